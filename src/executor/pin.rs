//! Which operators of a step block must stay in its loop, whatever depends on what.

use std::collections::HashSet;

use super::compile::Compiler;
use super::needs::made_levels;
use super::plan::Maker;
use super::split::{Class, Pin};
use crate::error::{Error, ErrorKind, Result};
use crate::program::{LevelId, LodEffect, OpDesc, Program, RECURRENT, Reach, Role, Spec, StepDesc};

impl Compiler<'_> {
    /// Whether an operator, or one of a `recurrent`'s step block, draws random numbers.
    pub(super) fn draws(&self, op: &OpDesc) -> Result<bool> {
        let Some(step) = &op.step else { return Ok(self.parse(op)?.facts().random) };
        for op in &self.program.block(step.block).ops {
            if self.draws(op)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks that what a random operator writes has rows that the data names.
    fn known_rows(&self, op: &OpDesc, step: &StepDesc) -> Result<()> {
        let inner = step.inputs.iter().chain(&step.statics).filter_map(|p| self.program.var(p.inner).spec());
        let known: HashSet<LevelId> = inner.flat_map(|spec| spec.lod.iter().copied()).collect();
        for var in op.writes() {
            let spec = self.program.spec(var)?;
            if !spec.lod.iter().all(|level| known.contains(level)) {
                let expected = "rows of a step input or of a static input, not of sequences made in the step";
                let what = "random operator in a step block";
                return Err(Error::of(ErrorKind::Program, what, expected, spec.to_string()));
            }
        }
        Ok(())
    }

    /// Why an operator must stay in the loop for reasons of its own, if it must.
    pub(super) fn stays(
        &mut self,
        program: &Program,
        op: &OpDesc,
        step: &StepDesc,
        class: Class,
    ) -> Result<Option<Pin>> {
        let foreign = |op: &OpDesc| {
            op.reads()
                .chain(op.writes())
                .any(|v| program.var(v).spec().is_some_and(|spec| foreign_levels(spec, step)))
        };
        if op.kind == RECURRENT {
            return Ok((class == Class::Step && foreign(op)).then_some(Pin::Foreign));
        }
        let instance = self.parse(op)?;
        let facts = instance.facts();
        if facts.reach == Reach::Batch && class != Class::Constant {
            let got = format!("`{}`, whose result depends on the whole batch", op.kind);
            return Err(Error::of(
                ErrorKind::Program,
                "operator in a step block",
                "a row- or sequence-wise one",
                got,
            ));
        }
        if facts.random && class != Class::Constant {
            self.known_rows(op, step)?;
        }
        let made = facts.lod == LodEffect::Replaces && class != Class::Constant;
        if made && op.role == Role::Forward {
            let signature = instance.signature();
            let vars = Program::slots_of(signature.inputs, &op.inputs, "");
            let (inputs, literals) = (program.specs(&vars)?, program.literals(&vars));
            let outputs = program.specs(&Program::slots_of(signature.outputs, &op.outputs, ""))?;
            let made = made_levels(&inputs, &outputs);
            if !made.is_empty() {
                let top = program.top(step.block);
                self.makers.push(Maker { op: instance.clone(), inputs, literals, made, top });
                self.made[step.block.0 as usize].push(self.makers.len() - 1);
            }
        }
        // Whole sub-sequences of static inputs, and sequences made in the step, have no LoD over all steps at once.
        let foreign = facts.reach == Reach::Sequence && class == Class::Step && foreign(op);
        Ok(made.then_some(Pin::Makes).or(foreign.then_some(Pin::Foreign)))
    }
}

/// Whether a variable has levels that are not those of a step input.
pub(super) fn foreign_levels(spec: &Spec, step: &StepDesc) -> bool {
    let known = |level: &LevelId| step.levels.iter().any(|(_, inner)| inner == level);
    !spec.lod.iter().all(known)
}
