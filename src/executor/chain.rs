//! Chains: row-wise calls of a step block that follow each other run chunk by chunk, all of them on the first rows, then
//! all on the next, so that what one of them writes is still in the cache when the next one reads it.
//!
//! Outside the loop the threads share the rows; in it a lane has rows of its own, and cuts them only where they are too
//! many for the cache. The bits are those of whole calls: that is what row-wise means. A gradient that sums over all
//! rows cannot be computed in chunks, and need not stand between two calls that can: it waits until the chain is done.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use super::frame::At;
use super::machine::{LaneAt, Shared, WORTH_DIVIDING, Worker};
use super::plan::{Access, Instr, OpInstr, Ref, Slot, Span};
use super::recurrent::Tools;
use crate::error::Result;
use crate::kernels::arena::{Lane, Share};
use crate::kernels::helpers;
use crate::program::contract::context::Place;
use crate::program::{BlockId, Extent, Reach, Role};

/// Bytes of a chunk, of everything that a chain touches: a part of a core's second cache.
const CHUNK_BYTES: usize = 1 << 19;
/// Fewer rows than this are not worth the calls.
const LEAST_ROWS: usize = 8;

/// Calls of a list of instructions that run chunk by chunk.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) calls: Range<usize>,
    /// How many rows a chunk has.
    rows: usize,
    /// Numbers that a row writes.
    width: usize,
}

/// Finds the chains of instructions that run outside a loop, and moves sums over all rows behind them.
pub(super) fn outside(code: Vec<Instr>, slots: &[Slot]) -> (Vec<Instr>, Vec<Chain>) {
    let mut sorted = Sorted {
        slots,
        out: Vec::new(),
        chains: Vec::new(),
        open: Vec::new(),
        sums: Vec::new(),
        written: HashSet::new(),
        touched: HashSet::new(),
    };
    for instr in code {
        let free = sorted.free(&instr);
        let joins = match (rows_of(&instr), sorted.open.first()) {
            (Some(rows), Some(first)) => rows_of(first) == Some(rows),
            (rows, None) => rows.is_some(),
            _ => false,
        };
        if joins && free {
            sorted.open.push(instr);
        } else if is_sum(&instr) && !sorted.open.is_empty() {
            sorted.wait(instr);
        } else {
            sorted.close();
            if rows_of(&instr).is_some() { sorted.open.push(instr) } else { sorted.out.push(instr) }
        }
    }
    sorted.close();
    (sorted.out, sorted.chains)
}

/// Finds the chains of a loop's body. Calls that prepare are no members: what they prepared is large, and would be
/// read again for each chunk.
pub(super) fn inside(code: &[Instr], slots: &[Slot]) -> Vec<Chain> {
    let rows =
        |i: usize| rows_of(&code[i]).filter(|_| matches!(&code[i], Instr::Op(op) if op.prepared.is_none()));
    let (mut chains, mut from) = (Vec::new(), 0);
    while from < code.len() {
        let end =
            (from..code.len()).find(|&i| rows(i).is_none() || rows(i) != rows(from)).unwrap_or(code.len());
        if end - from > 1 {
            chains.push(Chain::new(&code[from..end], from, slots));
        }
        from = end.max(from + 1);
    }
    chains
}

/// The instructions of a list: each chain as a whole, all others one by one.
pub(super) fn parts(
    instructions: usize,
    chains: &[Chain],
) -> impl Iterator<Item = (Range<usize>, Option<&Chain>)> {
    let (mut chains, mut next) = (chains.iter().peekable(), 0);
    std::iter::from_fn(move || {
        let chain = chains.next_if(|chain| chain.calls.start == next);
        let calls = chain.map_or(next..next + 1, |chain| chain.calls.clone());
        next = calls.end;
        (calls.start < instructions).then_some((calls, chain))
    })
}

struct Sorted<'a> {
    slots: &'a [Slot],
    out: Vec<Instr>,
    chains: Vec<Chain>,
    /// The chain that is being collected, and the sums that wait for its end.
    open: Vec<Instr>,
    sums: Vec<Instr>,
    /// The slots that these sums write, and that they read or write.
    written: HashSet<usize>,
    touched: HashSet<usize>,
}

impl Sorted<'_> {
    fn close(&mut self) {
        if self.open.len() > 1 {
            self.chains.push(Chain::new(&self.open, self.out.len(), self.slots));
        }
        self.out.append(&mut self.open);
        self.out.append(&mut self.sums);
        self.written.clear();
        self.touched.clear();
    }

    /// The slot that a call reads or writes. What passes between steps is not written outside the loop.
    fn slot(&self, r: &Ref) -> Option<usize> {
        match r.access {
            Access::Slot(s) => Some(self.slots[s].alias.unwrap_or(s)),
            _ => None,
        }
    }

    /// A sum waits for the end of the chain.
    fn wait(&mut self, instr: Instr) {
        if let Instr::Op(op) = &instr {
            for place in &op.writes {
                self.written.extend(self.slot(place));
            }
            for place in op.reads.iter().chain(&op.writes) {
                self.touched.extend(self.slot(place));
            }
        }
        self.sums.push(instr);
    }

    /// Whether an instruction gives the same before the sums that wait as behind them.
    fn free(&self, instr: &Instr) -> bool {
        let Instr::Op(op) = instr else { return self.sums.is_empty() };
        let in_order = |r: &Ref| self.slot(r).is_some_and(|s| self.written.contains(&s));
        let before = |r: &Ref| self.slot(r).is_some_and(|s| self.touched.contains(&s));
        !op.reads.iter().chain(&op.writes).any(in_order) && !op.writes.iter().any(before)
    }
}

impl Chain {
    fn new(calls: &[Instr], first: usize, slots: &[Slot]) -> Self {
        let ops = || calls.iter().filter_map(|i| if let Instr::Op(op) = i { Some(op) } else { None });
        let batched = |r: &&Ref| r.rows.known().is_none();
        let places = ops().flat_map(|op| op.reads.iter().chain(&op.writes)).filter(batched);
        let distinct: HashSet<&Ref> = places.collect();
        let size = |r: &&Ref| match r.access {
            Access::Slot(s) => slots[s].dtype.size_of(),
            _ => size_of::<f32>(),
        };
        let bytes: usize = distinct.iter().map(|r| r.width * size(r)).sum();
        let width = ops().flat_map(|op| &op.writes).map(|r| r.width).sum();
        let rows = (CHUNK_BYTES / bytes.max(1)).max(LEAST_ROWS);
        Self { calls: first..first + calls.len(), rows, width }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "these {} calls in turn on every {} rows", self.calls.len(), self.rows)
    }
}

/// What counts the rows of a call that can run on any part of them.
fn rows_of(instr: &Instr) -> Option<Extent> {
    let Instr::Op(op) = instr else { return None };
    let rows = op.writes.first()?.rows;
    let fits = rows.known().is_none()
        && op.reach == Reach::Row
        && op.role != Role::Update
        && op.span == Span::All
        && op.order.is_none()
        && !selects(op)
        && op.writes.iter().all(|r| r.rows == rows)
        && op.reads.iter().all(|r| r.rows == rows || r.rows.known().is_some());
    fits.then_some(rows)
}

/// Whether a call writes sums over all rows and nothing else.
fn is_sum(instr: &Instr) -> bool {
    let Instr::Op(op) = instr else { return false };
    op.role == Role::Backward && !selects(op) && op.writes.iter().all(|r| r.rows.known().is_some())
}

/// Whether a call reads or writes selected rows.
fn selects(op: &OpInstr) -> bool {
    let wiring = &op.wiring;
    let places = wiring.inputs.iter().chain(&wiring.outputs).chain(&wiring.output_gradients);
    let places = places.chain(&wiring.results).flatten();
    let gradients = wiring.input_gradients.iter().flatten().map(|(place, _)| place);
    places.chain(gradients).any(|place| matches!(place, Place::Rows(_)))
}

impl<'p> Shared<'p> {
    /// Runs a chain outside the loop, on all rows of the block.
    pub(super) fn chain(
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
    pub(super) fn chain_step(
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
