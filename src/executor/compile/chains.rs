//! Finds the chains of a plan: row-wise calls that follow each other run chunk by chunk, all of them on the first rows, then
//! all on the next, so that what one of them writes is still in the cache when the next one reads it.
//!
//! A gradient that sums over all rows cannot be computed in chunks, and need not stand between two calls that can: it waits
//! until the chain is done.

use std::collections::HashSet;

use crate::executor::plan::{Access, Chain, Instr, OpInstr, Ref, Slot, Span};
use crate::program::contract::context::OperandAt;
use crate::program::{Extent, Reach, Role};

/// Bytes of a chunk, of everything that a chain touches: a part of a core's second cache.
const CHUNK_BYTES: usize = 1 << 19;
/// Fewer rows than this are not worth the calls.
const LEAST_ROWS: usize = 8;

/// Finds the chains of instructions that run outside a loop, and moves sums over all rows behind them.
pub(crate) fn outside(code: Vec<Instr>, slots: &[Slot]) -> (Vec<Instr>, Vec<Chain>) {
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
pub(crate) fn inside(code: &[Instr], slots: &[Slot]) -> Vec<Chain> {
    let rows =
        |i: usize| rows_of(&code[i]).filter(|_| matches!(&code[i], Instr::Op(op) if op.prepared.is_none()));
    let (mut chains, mut from) = (Vec::new(), 0);
    while from < code.len() {
        let end =
            (from..code.len()).find(|&i| rows(i).is_none() || rows(i) != rows(from)).unwrap_or(code.len());
        if end - from > 1 {
            chains.push(chain_of(&code[from..end], from, slots));
        }
        from = end.max(from + 1);
    }
    chains
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
            self.chains.push(chain_of(&self.open, self.out.len(), self.slots));
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

fn chain_of(calls: &[Instr], first: usize, slots: &[Slot]) -> Chain {
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
    Chain { calls: first..first + calls.len(), rows, width }
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
    places.chain(gradients).any(|place| matches!(place, OperandAt::Rows(_)))
}
