//! The step executor: runs any step block over sequences of any lengths without padding, forward and backward.
//!
//! The rows of the loop's inputs are gathered once into step-major order. Operators that depend on no memory run before the
//! loop, over all steps at once. Operators on which no memory depends run after the loop, over all steps at once. Each step of
//! the loop works on the rows of the sequences that have not ended; in step-major order, these sequences come first. No value
//! is copied from step to step: the previous value of a memory *is* the rows that the previous step wrote. In the backward
//! pass, a step writes the gradient for the previous step directly into the gradient of the rows that the previous step wrote.
//!
//! An instruction may be a loop, and a loop runs instructions; this recursion is only in this file.

use crate::error::{Error, Result};
use crate::executor::plan::{Chain, Instr, Loop, LoopRows, Move, parts};
use crate::executor::run::frame::FrameRows;
use crate::executor::run::recording::Laps;
use crate::executor::run::state::{RunState, step_parent};
use crate::executor::run::worker::Tools;
use crate::kernels::Assign;
use crate::kernels::arena::Lane;
use crate::operator::{BlockId, Cost, Extent};

impl<'p> RunState<'p> {
    /// Runs an instruction on the rows that its block computes now.
    pub(super) fn instruction(
        &mut self,
        instr: &'p Instr,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        match instr {
            Instr::Op(op) => self.exec(op, lane, None, tools.workers, tools.pool),
            Instr::Levels(op) => self.make_levels(op, lane, tools),
            Instr::Loop(inner) => self.run_loop(inner, lane, tools),
            Instr::Zero(view, _) => {
                self.zero(view, lane, &mut tools.workers[0].room, tools.pool);
                Ok(())
            }
            Instr::Reorder { from, to, block, rows, index, .. } => {
                let clock = tools.workers[0].clock();
                self.reorder(*block, *rows, from, to, lane, tools)?;
                if let (Some(start), Some(recorder)) = (clock, &mut tools.workers[0].recorder) {
                    let rows = self.region(to, None).extent.rows;
                    let bytes = (rows * to.width * self.dtype(to).size_of()) as u64;
                    recorder.call(*index, start, rows, Cost { flops: 0, read: bytes, written: bytes });
                }
                Ok(())
            }
        }
    }

    fn run_loop(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        let mut laps = Laps::start(&tools.workers[0]);
        self.build_frame(instr)?;
        self.make_room(block, &instr.slots, lane)?;
        self.bring_in(instr, lane, tools)?;
        laps.mark();
        self.outside(block, &instr.before, &instr.chains.before, lane, tools)?;
        laps.mark();
        for plan in instr.gradients.iter().filter(|plan| plan.passes.is_some()) {
            self.begin_gradient(instr, plan, lane, tools)?;
        }
        laps.mark();
        if instr.in_lanes {
            self.lanes(instr, lane, tools)?;
        } else {
            self.all_together(instr, lane, tools)?;
        }
        laps.mark();
        if !instr.spreads_first() {
            self.spread(instr, lane, tools);
        }
        laps.mark();
        self.outside(block, &instr.after, &instr.chains.after, lane, tools)?;
        laps.mark();
        self.bring_out(instr, lane, tools)?;
        laps.end(instr, || self.moved(instr), &mut tools.workers[0]);
        Ok(())
    }

    /// Builds the frame of a loop's block: the rank table, the levels, and the position of the first row in buffers.
    fn build_frame(&mut self, instr: &'p Loop) -> Result<()> {
        let block = instr.desc.block;
        let index = block.0 as usize;
        self.loops[index] = Some(instr);
        let mut frame = std::mem::take(&mut self.frames[index]);
        let lod = self.levels.get(instr.desc.level).cloned();
        let built = match &lod {
            Some(lod) => frame.build(instr, lod, &mut self.levels),
            None => Err(Error::new("level of a recurrent", "to be bound", "nothing").at(instr.place.clone())),
        };
        let parent = step_parent(instr);
        let base = |this: &Self, rows: Extent| {
            parent.map_or(0, |p| {
                let outer = &this.frames[p.0 as usize];
                if outer.at == FrameRows::Sequences { 0 } else { outer.stepped(outer.at, rows).0 }
            })
        };
        frame.base = base(self, Extent::Rows(instr.desc.level));
        for (level, inner) in frame.levels.iter_mut().zip(&instr.inner) {
            level.base = if inner.statics { 0 } else { base(self, Extent::Rows(inner.outer)) };
        }
        if parent.is_some() && built.is_ok() {
            frame.place_statics();
        }
        if (instr.random || self.plan.keyed.contains(&block)) && built.is_ok() {
            frame.build_keys(instr, &|extent, row| self.key(parent, extent, row));
        }
        // For a backward loop, the lengths of the sequences that operators make in the step are known from the forward pass.
        let known = frame.made().filter(|_| instr.backward && built.is_ok());
        let built = known.into_iter().try_for_each(|i| frame.close_made(i)).and(built);
        self.frames[index] = frame;
        built
    }

    /// Moves values into a loop: the rows of its inputs in the loop's order, and the initial values of memories and of
    /// gradients that are summed.
    fn bring_in(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        self.go(block, FrameRows::All)?;
        for rows in &instr.gather {
            self.gather(block, rows, FrameRows::All, lane, tools);
        }
        self.go(block, FrameRows::Sequences)?;
        for rows in &instr.statics {
            self.gather(block, rows, FrameRows::Sequences, lane, tools);
        }
        for memory in instr.memories.iter().filter(|m| m.read) {
            match memory.initial {
                Some(outer) => {
                    let rows = Move { outer, inner: memory.start, assign: Assign::Write };
                    self.gather(block, &rows, FrameRows::Sequences, lane, tools);
                }
                None => self.zero(&memory.start, lane, &mut tools.workers[0].room, tools.pool),
            }
        }
        for view in &instr.zero {
            self.zero(view, lane, &mut tools.workers[0].room, tools.pool);
        }
        if instr.spreads_first() {
            self.spread(instr, lane, tools);
        }
        let whole = instr.gradients.iter().filter(|plan| plan.passes.is_none());
        whole.into_iter().try_for_each(|plan| self.begin_gradient(instr, plan, lane, tools))
    }

    /// Moves values out of a loop: the gradients of initial values, the rows of outputs in the batch's order, and the last
    /// values of memories.
    fn bring_out(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        self.go(block, FrameRows::All)?;
        // Gradients must be moved out of the loop in exactly this order, because the compiler used this order to decide
        // which contribution to a gradient is written first.
        for plan in &instr.gradients {
            self.end_gradient(block, plan, lane, tools)?;
        }
        for view in &instr.flush {
            self.flush(view, lane, &mut tools.workers[0].room);
        }
        for rows in &instr.scatter {
            self.scatter(block, rows, FrameRows::All, lane, tools)?;
        }
        self.go(block, FrameRows::Sequences)?;
        for rows in &instr.scatter_statics {
            self.scatter(block, rows, FrameRows::Sequences, lane, tools)?;
        }
        for memory in instr.memories.iter().filter(|_| !instr.backward) {
            if let Some(last) = &memory.last {
                self.last_values(block, &memory.next, &memory.start, last, lane, tools);
            }
        }
        self.frames[block.0 as usize].at = FrameRows::All;
        Ok(())
    }

    /// Runs the instructions before or after a loop, with their chains.
    fn outside(
        &mut self,
        block: BlockId,
        code: &'p [Instr],
        chains: &'p [Chain],
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        for (calls, chain) in parts(code.len(), chains) {
            if let Some(chain) = chain {
                self.go(block, FrameRows::All)?;
                self.chain(block, &code[calls], chain, lane, tools)?;
                continue;
            }
            let instr = &code[calls.start];
            let span = instr.span();
            if span == LoopRows::Steps && !matches!(instr, Instr::Levels(_)) {
                for t in 0..self.frames[block.0 as usize].rank.steps() {
                    self.go(block, FrameRows::Step { t, from: 0, to: usize::MAX })?;
                    self.instruction(instr, lane, tools)?;
                }
                continue;
            }
            self.go(block, if span == LoopRows::Sequences { FrameRows::Sequences } else { FrameRows::All })?;
            self.instruction(instr, lane, tools)?;
        }
        self.go(block, FrameRows::All)
    }

    /// Runs the steps of a loop that cannot be divided into lanes; each step works on the rows of all sequences that have not
    /// ended.
    fn all_together(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        let steps = self.frames[block.0 as usize].rank.steps();
        if instr.body.is_empty() || steps == 0 {
            return Ok(());
        }
        let opened = tools.workers[0].open(1, 0);
        for i in 0..steps {
            let t = if instr.backward { steps - 1 - i } else { i };
            self.go(block, FrameRows::Step { t, from: 0, to: usize::MAX })?;
            for inner in &instr.body {
                self.instruction(inner, lane, tools)?;
            }
        }
        tools.workers[0].close(instr, opened);
        self.go(block, FrameRows::All)
    }
}
