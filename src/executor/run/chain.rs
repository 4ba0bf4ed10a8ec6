//! Runs chains: consecutive row-wise calls that run chunk by chunk. All calls run on the first chunk of rows, then all calls on
//! the next chunk, so that the result of a call is still in the cache when the next call reads it.
//!
//! Outside a loop, the threads divide the rows of a chain. In a loop, each lane runs the chain on its own rows, in chunks only
//! if the rows do not fit into the cache. A chain gives bit-identical results to whole calls, because row-wise operators
//! compute each row alone. A gradient that sums over all rows cannot be computed in chunks; such a sum runs after the chain.

use crate::error::Result;
use crate::executor::plan::{Chain, Instr};
use crate::executor::run::frame::FrameRows;
use crate::executor::run::state::{CallRows, RunState};
use crate::executor::run::worker::{Tools, Worker};
use crate::kernels::arena::{Lane, Share, StepRows};
use crate::kernels::{boundary, helpers};
use crate::operator::{BlockId, Extent};

impl<'p> RunState<'p> {
    /// Runs a chain outside a loop, on all rows of its block.
    pub(crate) fn chain(
        &self,
        block: BlockId,
        calls: &'p [Instr],
        chain: &Chain,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let ops = || calls.iter().filter_map(|i| if let Instr::Op(op) = i { Some(&**op) } else { None });
        let lists = &mut *tools.lists;
        lists.shares.clear();
        lists.shares.resize(self.plan.buffers.len(), Share::Frozen);
        let mut rows = 0;
        for view in ops().flat_map(|op| op.reads.iter().chain(&op.writes)) {
            if view.rows.known().is_none() {
                let region = self.region(view, None);
                rows = region.extent.rows;
                lists.shares[region.buffer] =
                    Share::Stepped { base: region.row, stride: region.extent.stride };
            }
        }
        let threads = helpers(rows * chain.width, self.worth.call, tools.workers.len());
        let chunk = chain.rows.min(self.worth.chunk);
        if threads == 1 && rows <= chunk {
            return ops().try_for_each(|op| self.exec(op, lane, None, tools.workers, tools.pool));
        }
        lists.cuts.clear();
        lists.cuts.extend((0..=threads).map(|i| rows * i / threads));
        if threads == 2 {
            lists.cuts[1] = boundary(rows, 1, 2);
        }
        let depth = tools.workers[0].depth();
        let run = |mut lane: Lane<'_>, worker: &mut Worker| {
            let Some(part) = lane.part() else { return Ok(()) };
            let opened = worker.open(threads, depth);
            for from in (part.from..part.to).step_by(chunk) {
                let only = Some((from, part.to.min(from + chunk)));
                let here = Some(CallRows { only, ..CallRows::new(block, self.frames[block.0 as usize].at) });
                for op in ops() {
                    self.exec(op, &mut lane, here, std::slice::from_mut(worker), &mut [])?;
                }
            }
            let indices = ops().map(|op| op.index);
            worker.close_chain(indices, opened);
            Ok(())
        };
        let steps = StepRows { starts: &[0, rows], shares: &lists.shares, bounds: &[] };
        let done = lane.split(&lists.cuts, steps, &mut tools.workers[..threads], &run);
        if done.is_err() {
            // If a chunk fails, the calls run again as whole calls, so that the error names the first failing call and its row.
            for op in ops() {
                self.exec(op, lane, None, tools.workers, tools.pool)?;
            }
        }
        done
    }

    /// Runs a chain in one step of a loop, on the rows of a lane's sequences.
    pub(crate) fn chain_step(
        &self,
        calls: &'p [Instr],
        chain: &Chain,
        lane: &mut Lane<'_>,
        here: CallRows,
        worker: &mut Worker,
    ) -> Result<()> {
        let FrameRows::Step { t, from, to } = here.at else { return Ok(()) };
        let alive = self.frames[here.block.0 as usize].rank.alive(t).min(to);
        let mut chunk = chain.rows.min(self.worth.chunk);
        // A lane is cut by sequences, which may have several rows each, so the chunk size is converted from rows to sequences.
        let first = calls.iter().find_map(|i| if let Instr::Op(op) = i { op.writes.first() } else { None });
        if let Some(view) = first.filter(|view| matches!(view.rows, Extent::Rows(_))) {
            let rows = self.region(view, Some(here)).extent.rows;
            chunk = (chunk * alive.saturating_sub(from) / rows.max(1)).max(1);
        }
        for from in (from..alive).step_by(chunk) {
            let some = CallRows { at: FrameRows::Step { t, from, to: alive.min(from + chunk) }, ..here };
            for instr in calls {
                if let Instr::Op(op) = instr {
                    self.exec(op, lane, Some(some), std::slice::from_mut(worker), &mut [])?;
                }
            }
        }
        Ok(())
    }
}
