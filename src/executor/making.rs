//! Levels that operators make: their offsets are computed by a call of their own, before the operator runs, since only
//! then is known how much room its output needs.
//!
//! At the root that is one call. In a step block it is one for each step, all of them before the loop, so that the rows
//! of every step are counted before the first one runs: what decides the offsets is computed by then, at the latest step
//! by step (`Span::Steps`). From there on a level that is made in the step is like one of a step input: its sequences
//! of all steps lie behind each other, and what no memory reaches runs over all of them at once. The backward pass finds
//! the lengths where the forward pass wrote them down.

use super::compile::Compiler;
use super::frame::At;
use super::lower::Site;
use super::machine::Shared;
use super::plan::{Home, Instr, MadeLevel, OpInstr};
use super::recurrent::Tools;
use super::run::Executor;
use super::split::{Class, Reached, Unit, When, early};
use crate::error::{Error, ErrorKind, Place as Where, Result};
use crate::kernels::arena::Lane;
use crate::lod::Lod;
use crate::program::contract::context::{NewLevels, Pass, Wiring};
use crate::program::contract::infer::infer;
use crate::program::contract::levels::{Made, bind_made, made_levels};
use crate::program::contract::shapes::Phase;
use crate::program::{
    BlockId, Extent, LevelId, LodEffect, Op, OpDesc, Program, RECURRENT, Role, Spec, StepDesc, VarId,
};

/// By slot.
type Specs = Vec<Vec<Spec>>;

impl Compiler<'_> {
    /// The levels that an operator makes.
    pub(super) fn makes(&self, op: &OpDesc) -> Result<Vec<Made>> {
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
    pub(super) fn levels_call(&mut self, op: &OpDesc, site: Site, place: Where) -> Result<Option<OpInstr>> {
        let made = self.makes(op)?;
        if made.is_empty() {
            return Ok(None);
        }
        let instance = self.parse(op)?;
        let signature = instance.signature();
        let decides = deciding(&*instance).unwrap_or(&[]);
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
    pub(super) fn makes_in_step(
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
        let decides = deciding(&*instance).unwrap_or(&[]);
        let vars = slots.filter(|(slot, _)| decides.contains(slot)).flat_map(|(_, slot)| op.input(slot.name));
        Ok(Some(vars.map(|&var| self.whole_of(var)).collect()))
    }

    /// Whether the rows of all steps have a LoD with a level: it is a step input's, or made of such in the step.
    fn over_all(&self, level: LevelId, step: &StepDesc) -> bool {
        step.levels.iter().any(|(_, inner)| *inner == level)
            || self.made[step.block.0 as usize].iter().any(|made| made.level == level && made.over_all)
    }

    /// Whether a variable has levels that have no LoD over all steps.
    pub(super) fn foreign(&self, var: VarId, step: &StepDesc) -> bool {
        let levels = self.program.var(var).spec().map_or(&[][..], |spec| &spec.lod);
        !levels.iter().all(|&level| self.over_all(level, step))
    }

    /// Moves what decides offsets before the loop.
    ///
    /// # Errors
    /// If a memory reaches it; the error names the operator.
    pub(super) fn decide_early(
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

/// The input slots that decide the offsets of what an operator makes; `None` if other offsets do.
fn deciding(op: &dyn Op) -> Option<&'static [usize]> {
    if let LodEffect::FromData(slots) = op.facts().lod { Some(slots) } else { None }
}

impl<'p> Shared<'p> {
    /// Makes the levels of a call: at the root for all rows, in a step block for those of every step.
    pub(super) fn make_levels(
        &mut self,
        instr: &'p OpInstr,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let clock = tools.workers[0].clock();
        match instr.top {
            Extent::Alive(block) => self.make_in_step(block, instr, lane, tools)?,
            _ => {
                for &(level, _) in &instr.made {
                    let kept = self.spare.slot(level).take();
                    self.levels.set(level, kept);
                }
                self.make(instr, lane, tools)?;
            }
        }
        if let Some(start) = clock {
            self.record(instr, None, start, &mut tools.workers[0], tools.pool);
        }
        Ok(())
    }

    /// Binds the levels of a call for the rows where the run is now.
    fn make(&mut self, instr: &OpInstr, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        if deciding(&*instr.op).is_none() {
            let phase = Phase::Run { made: &instr.made, table: &mut self.levels };
            let given = (&instr.inputs[..], &instr.literals[..]);
            return infer(&*instr.op, given, instr.top, phase).map(drop).map_err(|e| instr.err(e));
        }
        let worker = &mut tools.workers[0];
        worker.reads.clear();
        worker.reads.extend(instr.reads.iter().map(|view| self.region(view, None)));
        worker.writes.clear();
        let offsets = &mut tools.memory.offsets;
        offsets.iter_mut().for_each(Vec::clear);
        let operands = lane.operands(&mut worker.room, &worker.reads, &[]);
        let call = self.call(instr, None);
        let outcome = instr.op.levels(&mut NewLevels { call, operands, pool: tools.pool, offsets });
        outcome.map_err(|e| self.named(instr, None, instr.err(e)))?;
        let top = self.count(instr.top, None);
        bind_made(&mut self.levels, &instr.made, &tools.memory.offsets, top).map_err(|e| instr.err(e))
    }

    /// Makes the levels of a call for every step, and room for what lies in them.
    fn make_in_step(
        &mut self,
        block: BlockId,
        instr: &'p OpInstr,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let at = block.0 as usize;
        let index = |this: &Self, level: LevelId| {
            this.frames[at].made_index(level).ok_or_else(|| {
                Error::of(ErrorKind::Program, "level made in a step", "one of its loop", level.0.to_string())
            })
        };
        for t in 0..self.frames[at].rank.steps() {
            self.go(block, At::Step { t, from: 0, to: usize::MAX })?;
            for &(level, _) in &instr.made {
                let i = index(self, level)?;
                let kept = self.frames[at].levels[i].step.take();
                self.levels.set(level, kept);
            }
            self.make(instr, lane, tools)?;
            for &(level, _) in instr.made.iter() {
                let i = index(self, level)?;
                let offsets = self.levels.get(level).map_or(&[][..], |lod| lod.offsets());
                self.frames[at].add_made(i, t, offsets).map_err(|e| instr.err(e))?;
            }
            // The levels above are bound anew at the next step, in their memory.
            for &(level, _) in instr.made.iter().rev() {
                let i = index(self, level)?;
                let mut made = self.levels.slot(level).take();
                Lod::release(&mut made);
                self.frames[at].levels[i].step = made;
            }
        }
        for &(level, _) in &instr.made {
            let i = index(self, level)?;
            self.frames[at].close_made(i)?;
        }
        self.go(block, At::All)?;
        let slots = self.loops[at].map_or(&[][..], |instr| &instr.slots);
        self.make_room(block, slots, lane);
        Ok(())
    }

    /// Room for slots of a loop, whose rows are known.
    pub(super) fn make_room(&self, block: BlockId, slots: &[usize], lane: &mut Lane<'_>) {
        let frame = &self.frames[block.0 as usize];
        for &s in slots {
            let slot = &self.plan.slots[s];
            let stepped = matches!(slot.home, Home::Stepped(_));
            lane.reserve(slot.buffer, frame.room(slot.rows, stepped) * slot.width);
        }
    }
}

impl Executor {
    /// Puts the levels that the last run made aside, for the next one to use their memory.
    pub(super) fn set_aside(&mut self) {
        for instr in &self.plan.code {
            let Instr::Levels(op) = instr else { continue };
            for &(level, _) in op.made.iter().rev() {
                let made = self.kept.levels.slot(level);
                if made.is_some() {
                    *self.kept.spare.slot(level) = made.take();
                }
            }
        }
        // The levels above can be used again, too, once nothing hangs below them.
        for instr in self.plan.code.iter().rev() {
            let Instr::Levels(op) = instr else { continue };
            op.made.iter().rev().for_each(|&(level, _)| Lod::release(self.kept.spare.slot(level)));
        }
    }
}
