//! Lanes: threads share the steps of a loop by sequences; each lane is a group of sequences. A lane runs from the first to the
//! last step without waiting for other lanes. If few sequences are left, one lane has all sequences and all threads.

use std::ops::Range;

use crate::error::Result;
use crate::executor::plan::{Home, Instr, Loop, parts};
use crate::executor::run::call::few_rows;
use crate::executor::run::frame::{Frame, FrameRows};
use crate::executor::run::state::{CallRows, RunState};
use crate::executor::run::worker::{Lists, Tools, Worker};
use crate::kernels::arena::{Lane, LanePart, Share, StepRows};
use crate::kernels::{helpers, share};
use crate::operator::Extent;

/// Some steps of a loop, and the number of lanes that run these steps.
struct LaneSteps<'p> {
    instr: &'p Loop,
    steps: Range<usize>,
    lanes: usize,
    /// The nesting depth of loops on the first thread, before the lanes start.
    depth: usize,
}

impl<'p> RunState<'p> {
    pub(super) fn lanes(&self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let frame = &self.frames[instr.desc.block.0 as usize];
        let (steps, sequences) = (frame.rank.steps(), frame.rank.sequences());
        if instr.body.is_empty() || steps == 0 {
            return Ok(());
        }
        let starts = frame.rank.starts();
        let effort = instr.body.iter().map(|i| i.effort(starts[steps])).fold(0, usize::saturating_add);
        let threads = helpers(effort, self.worth.steps, tools.workers.len());
        // If few sequences are left, threads share columns instead of sequences.
        let few = |t: &usize| few_rows(starts[t + 1] - starts[*t], threads, instr.weights);
        let few = (0..steps).find(few).unwrap_or(steps);
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
            let first = if lanes == 2 { share(1, 2) } else { 0.5 };
            lane_boundaries(&starts[..=range.end], sequences, (lanes, first), cuts);
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

    /// Sets the part of each buffer that a lane may write: in buffers with the loop's order, the rows of the lane's sequences.
    /// All other buffers are read-only.
    fn share(&self, instr: &Loop, frame: &Frame, lists: &mut Lists) {
        let Lists { shares, bounds, .. } = lists;
        shares.clear();
        shares.resize(self.plan.buffers.len(), Share::Frozen);
        bounds.clear();
        // For each static level: the first row of each sequence, then the first row of each step.
        for level in frame.levels.iter().filter(|level| level.statics) {
            bounds.extend(level.bounds.iter().chain(&level.starts));
        }
        for &s in &instr.in_steps {
            let slot = &self.plan.slots[s];
            let stride = slot.width;
            shares[slot.buffer] = match (slot.rows, slot.home) {
                (Extent::Rows(level), home) => match (frame.runs(level), home) {
                    (Some((base, first, starts)), Home::Stepped(_)) => {
                        Share::SteppedRuns { base, starts, first, stride }
                    }
                    (Some((_, first, _)), _) => Share::Runs { first, stride },
                    // Calls in a lane have no rows of levels that are not static.
                    (None, _) => Share::Frozen,
                },
                (_, Home::Stepped(_)) => Share::Stepped { base: frame.base, stride },
                _ => Share::Sequence { stride },
            };
        }
    }

    /// Runs the steps of one lane on the threads `workers`.
    fn lane(&self, part: &LaneSteps<'_>, mut lane: Lane<'_>, workers: &mut [Worker]) -> Result<()> {
        let Some(LanePart { from, to, steps: StepRows { starts, .. } }) = lane.part() else { return Ok(()) };
        let &LaneSteps { instr, ref steps, lanes, depth } = part;
        let block = instr.desc.block;
        let opened = workers[0].open(lanes, depth);
        for i in 0..steps.len() {
            let t = if instr.backward { steps.end - 1 - i } else { steps.start + i };
            if starts[t + 1] - starts[t] <= from {
                // The lane has no sequence at this step. In a forward loop, no later step has more sequences, so the
                // lane ends; in a backward loop, the next steps may have more sequences.
                if instr.backward { continue } else { break }
            }
            let here =
                CallRows { threads: workers.len(), ..CallRows::new(block, FrameRows::Step { t, from, to }) };
            for (calls, chain) in parts(instr.body.len(), &instr.chains.body) {
                let calls = &instr.body[calls];
                match (chain, &mut *workers) {
                    (Some(chain), [worker]) => self.chain_step(calls, chain, &mut lane, here, worker)?,
                    // If several threads share the calls of the lane, each call is divided by rows, and no chunks are needed.
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

/// Divides the sequences, in rank order, into lanes of about equal work. For a lane, the cost of a step is the number
/// of its rows plus a constant. The constant matters if few rows are left. The first of two lanes gets the share `first`.
fn lane_boundaries(starts: &[usize], sequences: usize, (lanes, first): (usize, f32), cuts: &mut Vec<usize>) {
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
        // Binary search for the first cut at which this lane has its share of the remaining cost.
        let rest = cost(from, sequences);
        let (mut low, mut high) = (from, sequences);
        while low < high {
            let middle = (low + high) / 2;
            let share = if lanes == 2 { first } else { 1.0 / (lanes - lane + 1) as f32 };
            if (cost(from, middle) as f32) < rest as f32 * share { low = middle + 1 } else { high = middle }
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
                lane_boundaries(rank.starts(), lengths.len(), (lanes, 0.4), &mut cuts);
                assert!(cuts.is_sorted(), "{cuts:?}");
                assert_eq!((cuts.len(), cuts[0], cuts[lanes]), (lanes + 1, 0, lengths.len()));
            }
        }
    }
}
