//! The calls that compute the offsets of levels that operators make, and what decides them.

use crate::error::{Error, ErrorKind, Place as Where, Result};
use crate::executor::compile::Compiler;
use crate::executor::compile::loops::Site;
use crate::executor::compile::loops::split::{Reached, Unit, When, early};
use crate::executor::plan::{MadeLevel, OpInstr};
use crate::executor::rewrite::classes::Class;
use crate::program::contract::context::{Pass, Wiring};
use crate::program::contract::infer::{Made, made_levels};
use crate::program::{LevelId, LodEffect, Op, OpDesc, Program, RECURRENT, Role, Spec, StepDesc, VarId};

/// By slot.
type Specs = Vec<Vec<Spec>>;

impl Compiler<'_> {
    /// The levels that an operator makes.
    pub(crate) fn makes(&self, op: &OpDesc) -> Result<Vec<Made>> {
        if op.kind == RECURRENT || op.role == Role::Backward {
            return Ok(Vec::new());
        }
        let instance = self.parse(op)?;
        if !matches!(instance.facts().lod, LodEffect::Replaces | LodEffect::FromData(_)) {
            return Ok(Vec::new());
        }
        let (inputs, outputs) = self.around(&*instance, op)?;
        Ok(made_levels(&inputs, &outputs))
    }

    /// The specs of a forward operator's slots.
    fn around(&self, instance: &dyn Op, op: &OpDesc) -> Result<(Specs, Specs)> {
        let signature = instance.signature();
        let inputs = self.program.input_specs(signature, op)?;
        let outputs = self.program.specs(&Program::slots_of(signature.outputs, &op.outputs, ""))?;
        Ok((inputs, outputs))
    }

    /// The call that computes the offsets of what an operator makes, if it makes any.
    pub(crate) fn levels_call(&mut self, op: &OpDesc, site: Site, place: Where) -> Result<Option<OpInstr>> {
        let made = self.makes(op)?;
        if made.is_empty() {
            return Ok(None);
        }
        let instance = self.parse(op)?;
        let signature = instance.signature();
        let decides = instance.facts().lod.deciding().unwrap_or(&[]);
        let (inputs, outputs) = self.around(&*instance, op)?;
        let literals = self.program.literals(&Program::slots_of(signature.inputs, &op.inputs, ""));
        let (mut reads, mut wiring) = (Vec::new(), Wiring::default());
        for (slot, vars) in Program::slots_of(signature.inputs, &op.inputs, "").iter().enumerate() {
            wiring.inputs.push(self.places(vars, decides.contains(&slot), None, &mut reads)?);
        }
        Ok(Some(OpInstr {
            names: self.names(&*instance, op),
            place,
            pass: Pass::Forward,
            role: op.role,
            reach: instance.facts().reach,
            wiring,
            reads,
            writes: Vec::new(),
            inputs,
            literals,
            outputs,
            made,
            top: self.program.top(site.block),
            stream: 0,
            random: false,
            prepared: None,
            constants: Vec::new(),
            wanted: Vec::new(),
            flush: Vec::new(),
            span: site.span,
            order: None,
            desc: (site.block, site.number),
            why: site.why,
            stands_for: None,
            index: 0,
            op: instance,
        }))
    }

    /// Notes the levels that an operator of a step block makes, and returns what decides their offsets; `None` if it
    /// makes none.
    pub(crate) fn makes_in_step(
        &mut self,
        op: &OpDesc,
        step: &StepDesc,
        class: Class,
    ) -> Result<Option<Vec<VarId>>> {
        let made = self.makes(op)?;
        if made.is_empty() {
            return Ok(None);
        }
        if class == Class::Constant {
            let got = "one without rows of the step";
            return Err(Error::of(
                ErrorKind::Program,
                "operator that makes sequences in a step",
                "an input",
                got,
            ));
        }
        let inner = self.inner_levels(step)?;
        for (level, upper) in made {
            let known = &self.made[step.block.0 as usize];
            let above = upper.map(|upper| {
                let outside = inner.iter().position(|inner| inner.inner == upper);
                let here = || known.iter().position(|made| made.level == upper).map(|i| inner.len() + i);
                outside.or_else(here).ok_or_else(|| {
                    let got = format!("level {}", upper.0);
                    Error::of(
                        ErrorKind::Program,
                        "level above one that is made in a step",
                        "one of the step",
                        got,
                    )
                })
            });
            let over_all = upper.is_none_or(|upper| self.over_all(upper, step));
            let made = MadeLevel { level, above: above.transpose()?, over_all };
            self.made[step.block.0 as usize].push(made);
        }
        let instance = self.parse(op)?;
        let slots = instance.signature().inputs.iter().enumerate();
        let decides = instance.facts().lod.deciding().unwrap_or(&[]);
        let vars = slots.filter(|(slot, _)| decides.contains(slot)).flat_map(|(_, slot)| op.input(slot.name));
        Ok(Some(vars.map(|&var| self.whole_of(var)).collect()))
    }

    /// Whether the rows of all steps have a LoD with a level: it is a step input's, or made of such in the step.
    fn over_all(&self, level: LevelId, step: &StepDesc) -> bool {
        step.levels.iter().any(|(_, inner)| *inner == level)
            || self.made[step.block.0 as usize].iter().any(|made| made.level == level && made.over_all)
    }

    /// Whether a variable has levels that have no LoD over all steps.
    pub(crate) fn foreign(&self, var: VarId, step: &StepDesc) -> bool {
        let levels = self.program.var(var).spec().map_or(&[][..], |spec| &spec.lod);
        !levels.iter().all(|&level| self.over_all(level, step))
    }

    /// Moves what decides offsets before the loop.
    ///
    /// # Errors
    /// If a memory reaches it; the error names the operator.
    pub(crate) fn decide_early(
        &self,
        step: &StepDesc,
        units: &mut [Unit],
        when: &mut [When],
        place: &dyn Fn(usize) -> Where,
    ) -> Result<()> {
        let carried: Vec<VarId> = step.memories.iter().map(|m| m.previous).collect();
        early(units, when, &carried).map_err(|Reached { op, by }| {
            crate::program::decided_late(&self.program.var(by).name).at(place(op))
        })
    }
}
