//! Chains: row-wise calls of a step block that follow each other run chunk by chunk, all of them on the first rows, then
//! all on the next, so that what one of them writes is still in the cache when the next one reads it.
//!
//! Outside the loop the threads share the rows; in it a lane has rows of its own, and cuts them only where they are too
//! many for the cache. The bits are those of whole calls: that is what row-wise means. A gradient that sums over all
//! rows cannot be computed in chunks, and need not stand between two calls that can: it waits until the chain is done.

use crate::error::Result;
use crate::executor::plan::{Chain, Instr};
use crate::executor::run::frame::At;
use crate::executor::run::machine::{LaneAt, Shared, WORTH_DIVIDING, Worker};
use crate::executor::run::step_loop::Tools;
use crate::kernels::arena::{Lane, Share};
use crate::kernels::helpers;
use crate::program::BlockId;

impl<'p> Shared<'p> {
    /// Runs a chain outside the loop, on all rows of the block.
    pub(crate) fn chain(
        &self,
        block: BlockId,
        calls: &'p [Instr],
        chain: &Chain,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let ops = || calls.iter().filter_map(|i| if let Instr::Op(op) = i { Some(&**op) } else { None });
        let memory = &mut *tools.memory;
        memory.shares.clear();
        memory.shares.resize(self.plan.buffers.len(), Share::Frozen);
        let mut rows = 0;
        for view in ops().flat_map(|op| op.reads.iter().chain(&op.writes)) {
            if view.rows.known().is_none() {
                let region = self.region(view, None);
                rows = region.extent.rows;
                memory.shares[region.buffer] =
                    Share::Stepped { base: region.row, stride: region.extent.stride };
            }
        }
        let threads = helpers(rows * chain.width, WORTH_DIVIDING, tools.workers.len());
        memory.cuts.clear();
        memory.cuts.extend((0..=threads).map(|i| rows * i / threads));
        let nested = tools.workers[0].stepping();
        let run = |mut lane: Lane<'_>, worker: &mut Worker| {
            let Some(part) = lane.part() else { return Ok(()) };
            let opened = worker.open(threads, nested);
            for from in (part.from..part.to).step_by(chain.rows) {
                let rows = Some((from, part.to.min(from + chain.rows)));
                let at = Some(LaneAt { rows, ..LaneAt::new(block, self.frames[block.0 as usize].at) });
                for op in ops() {
                    self.exec(op, &mut lane, at, std::slice::from_mut(worker), &mut [])?;
                }
            }
            let indices = ops().map(|op| op.index);
            worker.close_chain(indices, opened);
            Ok(())
        };
        let done = lane.split(&memory.cuts, &[0, rows], &memory.shares, &mut tools.workers[..threads], &run);
        if done.is_err() {
            // Whole calls name the row, and the call that comes first.
            for op in ops() {
                self.exec(op, lane, None, tools.workers, tools.pool)?;
            }
        }
        done
    }

    /// Runs a chain of a step for the sequences of a lane.
    pub(crate) fn chain_step(
        &self,
        calls: &'p [Instr],
        chain: &Chain,
        lane: &mut Lane<'_>,
        at: LaneAt,
        worker: &mut Worker,
    ) -> Result<()> {
        let At::Step { t, from, to } = at.at else { return Ok(()) };
        let alive = self.frames[at.block.0 as usize].rank.alive(t).min(to);
        for from in (from..alive).step_by(chain.rows) {
            let part = LaneAt { at: At::Step { t, from, to: alive.min(from + chain.rows) }, ..at };
            for instr in calls {
                if let Instr::Op(op) = instr {
                    self.exec(op, lane, Some(part), std::slice::from_mut(worker), &mut [])?;
                }
            }
        }
        Ok(())
    }
}
