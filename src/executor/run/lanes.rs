//! Lanes: groups of sequences for threads that share the steps of a loop. A lane runs from the first step to the last without
//! waiting for the other lanes; if few sequences are left, one lane has all sequences and all threads.

use std::ops::Range;

use crate::error::Result;
use crate::executor::plan::{Home, Instr, Loop, parts};
use crate::executor::run::frame::{Frame, FrameRows};
use crate::executor::run::state::{CallRows, RunState};
use crate::executor::run::worker::{Lists, Tools, Worker};
use crate::kernels::arena::{Lane, LanePart, Share, StepRows};
use crate::kernels::{cpu, helpers};
use crate::operator::Extent;

/// Some steps of a loop, and the number of lanes that run them, each for its own sequences.
struct LaneSteps<'p> {
    instr: &'p Loop,
    steps: Range<usize>,
    lanes: usize,
    /// The nesting depth of loops on the first thread before the lanes start.
    depth: usize,
}

impl<'p> RunState<'p> {
    /// Runs the steps of a loop in lanes.
    pub(super) fn lanes(&self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let frame = &self.frames[instr.desc.block.0 as usize];
        let (steps, sequences) = (frame.rank.steps(), frame.rank.sequences());
        if instr.body.is_empty() || steps == 0 {
            return Ok(());
        }
        let starts = frame.rank.starts();
        let effort = instr.body.iter().map(|i| i.effort(starts[steps])).fold(0, usize::saturating_add);
        let threads = helpers(effort, self.worth.steps, tools.workers.len());
        // If few sequences are left, the threads share columns instead; they do so sooner if each thread would read weights that
        // do not fit into its own cache.
        let cpu = cpu();
        let few = |rows: usize| {
            rows <= threads / 2 || threads > 1 && cpu.streams(instr.weights, rows.div_ceil(threads))
        };
        let few = (0..steps).find(|&t| few(starts[t + 1] - starts[t])).unwrap_or(steps);
        self.share(instr, frame, tools.lists);
        let mut phases = [(0..few, threads), (few..steps, 1)];
        if instr.backward {
            phases.reverse();
        }
        let Lists { cuts, shares, bounds, .. } = &mut *tools.lists;
        let all = StepRows { starts, shares, bounds };
        for (range, lanes) in phases {
            if range.is_empty() {
                continue;
            }
            cut(&starts[..=range.end], sequences, lanes, cuts);
            let part = LaneSteps { instr, steps: range, lanes, depth: tools.workers[0].depth() };
            if lanes == 1 {
                let mut workers = [&mut tools.workers[..threads]];
                let run = |lane: Lane<'_>, workers: &mut &mut [Worker]| self.lane(&part, lane, workers);
                lane.split(cuts, all, &mut workers, &run)?;
                continue;
            }
            let run =
                |lane: Lane<'_>, worker: &mut Worker| self.lane(&part, lane, std::slice::from_mut(worker));
            lane.split(cuts, all, &mut tools.workers[..lanes], &run)?;
        }
        Ok(())
    }

    /// Sets the share of each buffer that a lane has: for buffers in an order of the loop, the rows of the lane's sequences; for
    /// all other buffers, the right to read.
    fn share(&self, instr: &Loop, frame: &Frame, lists: &mut Lists) {
        let Lists { shares, bounds, .. } = lists;
        shares.clear();
        shares.resize(self.plan.buffers.len(), Share::Frozen);
        bounds.clear();
        // The bounds of each static level: of its sequences, then of the steps.
        for level in frame.levels.iter().filter(|level| level.statics) {
            bounds.extend(level.bounds.iter().chain(&level.starts));
        }
        for &s in &instr.slots {
            let slot = &self.plan.slots[s];
            let stride = slot.width;
            shares[slot.buffer] = match (slot.rows, slot.home) {
                (Extent::Rows(level), home) => match (frame.runs(level), home) {
                    (Some((base, first, starts)), Home::Stepped(_)) => {
                        Share::SteppedRuns { base, starts, first, stride }
                    }
                    (Some((_, first, _)), _) => Share::Runs { first, stride },
                    // No call in a lane has rows of a level that is not static.
                    (None, _) => Share::Frozen,
                },
                (_, Home::Stepped(_)) => Share::Stepped { base: frame.base, stride },
                _ => Share::Sequence { stride },
            };
        }
    }

    /// Runs the steps of a lane, which has all of the workers.
    fn lane(&self, part: &LaneSteps<'_>, mut lane: Lane<'_>, workers: &mut [Worker]) -> Result<()> {
        let Some(LanePart { from, to, steps: StepRows { starts, .. } }) = lane.part() else { return Ok(()) };
        let &LaneSteps { instr, ref steps, lanes, depth } = part;
        let block = instr.desc.block;
        let opened = workers[0].open(lanes, depth);
        for i in 0..steps.len() {
            let t = if instr.backward { steps.end - 1 - i } else { steps.start + i };
            if starts[t + 1] - starts[t] <= from {
                // Later steps have even fewer sequences; earlier steps, in a backward loop, may have more.
                if instr.backward { continue } else { break }
            }
            let here =
                CallRows { threads: workers.len(), ..CallRows::new(block, FrameRows::Step { t, from, to }) };
            for (calls, chain) in parts(instr.body.len(), &instr.chains.body) {
                let calls = &instr.body[calls];
                match (chain, &mut *workers) {
                    (Some(chain), [worker]) => self.chain_step(calls, chain, &mut lane, here, worker)?,
                    // Threads that share a call divide its rows, and so need no chunks.
                    _ => calls.iter().try_for_each(|instr| match instr {
                        Instr::Op(op) => self.exec(op, &mut lane, Some(here), workers, &mut []),
                        _ => Ok(()),
                    })?,
                }
            }
        }
        workers[0].close(instr, opened);
        Ok(())
    }
}

/// Divides the rank order into lanes of about equal work. A step costs a lane its rows, and a constant for the step itself,
/// which matters if few rows are left.
fn cut(starts: &[usize], sequences: usize, lanes: usize, cuts: &mut Vec<usize>) {
    const STEP: usize = 3;
    cuts.clear();
    cuts.push(0);
    let steps = starts.len() - 1;
    let cost = |from: usize, to: usize| -> usize {
        let rows = |t: usize| (starts[t + 1] - starts[t]).min(to).saturating_sub(from);
        (0..steps).map(rows).take_while(|&r| r > 0).map(|r| r + STEP).sum()
    };
    for lane in 1..lanes {
        let from = cuts[lane - 1];
        // The first cut at which this lane costs its share of the rest.
        let rest = cost(from, sequences);
        let (mut low, mut high) = (from, sequences);
        while low < high {
            let middle = (low + high) / 2;
            if cost(from, middle) * (lanes - lane + 1) < rest { low = middle + 1 } else { high = middle }
        }
        cuts.push(low);
    }
    cuts.push(sequences);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::run::rank_table::RankTable;

    #[test]
    fn lanes_cover_all_sequences_in_order() {
        for lengths in [vec![5, 4, 3, 3, 1, 0], vec![], vec![7], vec![1; 9]] {
            let mut offsets = vec![0];
            lengths.iter().for_each(|l| offsets.push(offsets[offsets.len() - 1] + l));
            let rank = RankTable::new(&offsets, false);
            for lanes in 1..4 {
                let mut cuts = Vec::new();
                cut(rank.starts(), lengths.len(), lanes, &mut cuts);
                assert!(cuts.is_sorted(), "{cuts:?}");
                assert_eq!((cuts.len(), cuts[0], cuts[lanes]), (lanes + 1, 0, lengths.len()));
            }
        }
    }
}
