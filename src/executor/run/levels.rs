//! Levels that operators make: a separate call computes the offsets before the operator runs, since the offsets determine the
//! size of the operator's output.
//!
//! In the root block, one call computes the offsets. In a step block, one call per step computes the offsets. The calls for all
//! steps run before the loop, so the rows of every step are known before the first step runs. Values that decide the offsets
//! are computed before the loop too, step by step if necessary (`LoopRows::Steps`). Once its offsets are computed, a level that
//! an operator of the step makes behaves like a level of a step input: the sequences of all steps are consecutive. Operators
//! that depend on no memory run over the sequences of all steps at once. The backward pass uses the sequence lengths that the
//! forward pass recorded.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Instr, OpInstr, Plan};
use crate::executor::run::frame::FrameRows;
use crate::executor::run::state::{RunMemory, RunState};
use crate::executor::run::worker::Tools;
use crate::kernels::arena::Lane;
use crate::lod::Lod;
use crate::operator::context::NewLevels;
use crate::operator::infer::infer;
use crate::operator::levels::bind_made;
use crate::operator::shapes::{InputSlots, Phase};
use crate::operator::{BlockId, Extent, LevelId};

impl<'p> RunState<'p> {
    /// Makes the levels of a call: in the root block for all rows, in a step block for the rows of every step.
    pub(crate) fn make_levels(
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

    /// Computes and binds the levels of a call for the rows that its block computes now.
    fn make(&mut self, instr: &OpInstr, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        if instr.op.facts().lod.deciding().is_none() {
            let phase = Phase::Run { made: &instr.made, table: &mut self.levels };
            let given = InputSlots { specs: &instr.inputs, literals: &instr.literals };
            return infer(&*instr.op, given, instr.top, phase).map(drop).map_err(|e| instr.err(e));
        }
        let worker = &mut tools.workers[0];
        worker.reads.clear();
        worker.reads.extend(instr.reads.iter().map(|view| self.region(view, None)));
        worker.writes.clear();
        let offsets = &mut tools.lists.offsets;
        offsets.iter_mut().for_each(Vec::clear);
        let operands = lane.operands(&mut worker.room, &worker.reads, &[]);
        let call = self.call(instr, None);
        let outcome = instr.op.levels(&mut NewLevels::new(call, operands, offsets));
        let outcome = instr.wiring.missing.checked(instr.op.signature(), outcome);
        outcome.map_err(|e| self.named(instr, None, instr.err(e)))?;
        let top = self.count(instr.top, None);
        bind_made(&mut self.levels, &instr.made, &tools.lists.offsets, top).map_err(|e| instr.err(e))
    }

    /// Makes the levels of a call for every step, and then reserves memory for the rows of these levels.
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
                Error::of(ErrorKind::Program, "level made in a step", "a loop's level", level.0.to_string())
            })
        };
        for t in 0..self.frames[at].rank.steps() {
            self.go(block, FrameRows::Step { t, from: 0, to: usize::MAX })?;
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
            // At the next step, the upper levels are bound again in this memory.
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
        self.go(block, FrameRows::All)?;
        let slots = self.loops[at].map_or(&[][..], |instr| &instr.slots);
        self.make_room(block, slots, lane)?;
        Ok(())
    }
}

impl RunMemory {
    /// Makes the levels of the root block that need only the LoDs of the batch. Levels that values decide stay unknown, and so
    /// do levels that are made from unknown levels.
    pub(super) fn infer_levels(&mut self, plan: &Plan) {
        for instr in &plan.code {
            let Instr::Levels(op) = instr else { continue };
            let mut read = op.inputs.iter().flatten().flat_map(|spec| spec.lod.iter());
            if op.op.facts().lod.deciding().is_some() || read.any(|&level| self.levels.get(level).is_none()) {
                continue;
            }
            for &(level, _) in &op.made {
                let kept = self.spare.slot(level).take();
                self.levels.set(level, kept);
            }
            let phase = Phase::Run { made: &op.made, table: &mut self.levels };
            let given = InputSlots { specs: &op.inputs, literals: &op.literals };
            if infer(&*op.op, given, op.top, phase).is_err() {
                // The run reports the error.
                op.made.iter().for_each(|&(level, _)| drop(self.levels.slot(level).take()));
            }
        }
    }

    /// Takes the levels of the last run and moves them to `spare`, so that the next run can reuse their memory.
    pub(super) fn set_aside(&mut self, plan: &Plan) {
        for instr in &plan.code {
            let Instr::Levels(op) = instr else { continue };
            for &(level, _) in op.made.iter().rev() {
                let made = self.levels.slot(level);
                if made.is_some() {
                    *self.spare.slot(level) = made.take();
                }
            }
        }
        // Once no lower level refers to the upper levels, their memory can be reused, too.
        for instr in plan.code.iter().rev() {
            let Instr::Levels(op) = instr else { continue };
            op.made.iter().rev().for_each(|&(level, _)| Lod::release(self.spare.slot(level)));
        }
    }
}
