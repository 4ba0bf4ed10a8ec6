//! Finds the chains of a plan. A chain is a group of consecutive row-wise calls that run chunk by chunk. All calls run on the
//! first chunk of rows, then all calls run on the next chunk. With chunks, the result of a call is still in the cache when the
//! next call of the chain reads it.
//!
//! A gradient that sums over all rows cannot be computed in chunks. If a sum over all rows is between two calls of a chain, it
//! is moved to the end of the chain.

use std::collections::HashSet;

use super::slots::SlotDesc;
use crate::executor::plan::{Access, Chain, Instr, LoopRows, Ref};
use crate::kernels::cpu;
use crate::operator::{BlockId, Extent, Reach};
use crate::program::Role;

/// The minimum number of rows in a chunk: with fewer rows, the overhead of the calls is larger than the gain.
const LEAST_ROWS: usize = 8;

/// Finds the chains of the instructions outside the loop of a step block. A sum over all rows that interrupts a chain
/// is moved to the end of the chain.
pub(crate) fn outside(code: Vec<Instr>, slots: &[SlotDesc]) -> (Vec<Instr>, Vec<Chain>) {
    let (sorted, chains) = sort(code.into_iter().map(|instr| (0, instr)), slots, &member);
    (sorted.into_iter().map(|(_, instr)| instr).collect(), chains)
}

/// Finds chains as [`outside`] does, for the root block, whose instructions are grouped by operator. A sum that is
/// moved joins the group of the last operator of its chain. Matrix products of the root block are in no chain: a weight
/// may be large, and every chunk would read the weight again.
pub(crate) fn root(groups: Vec<Vec<Instr>>, slots: &[SlotDesc]) -> (Vec<Vec<Instr>>, Vec<Chain>) {
    let mut sorted_groups: Vec<Vec<Instr>> = groups.iter().map(|_| Vec::new()).collect();
    let numbered = groups.into_iter().enumerate();
    let code = numbered.flat_map(|(group, code)| code.into_iter().map(move |instr| (group, instr)));
    let (sorted, chains) = sort(code, slots, &|instr| member(instr).filter(|_| !prepares(instr)));
    sorted.into_iter().for_each(|(group, instr)| sorted_groups[group].push(instr));
    (sorted_groups, chains)
}

fn sort(
    code: impl Iterator<Item = Grouped>,
    slots: &[SlotDesc],
    member: &dyn Fn(&Instr) -> Option<Member>,
) -> (Vec<Grouped>, Vec<Chain>) {
    let mut sorted = Sorted {
        slots,
        out: Vec::new(),
        chains: Vec::new(),
        open: Vec::new(),
        sums: Vec::new(),
        written: HashSet::new(),
        touched: HashSet::new(),
    };
    for (group, instr) in code {
        let free = sorted.free(&instr);
        let joins = match (member(&instr), sorted.open.first()) {
            (Some(this), Some((_, first))) => member(first) == Some(this),
            (this, None) => this.is_some(),
            _ => false,
        };
        if joins && free {
            sorted.open.push((group, instr));
        } else if is_sum(&instr) && !sorted.open.is_empty() {
            sorted.wait(instr);
        } else {
            sorted.close();
            let list = if member(&instr).is_some() { &mut sorted.open } else { &mut sorted.out };
            list.push((group, instr));
        }
    }
    sorted.close();
    (sorted.out, sorted.chains)
}

/// Finds the chains of a loop's body. Calls that pack constants are in no chain: packed constants are large, and every chunk
/// would read them again.
pub(crate) fn inside(code: &[Instr], slots: &[SlotDesc]) -> Vec<Chain> {
    let like = |i: usize| member(&code[i]).filter(|_| !prepares(&code[i]));
    let (mut chains, mut from) = (Vec::new(), 0);
    while from < code.len() {
        let end =
            (from..code.len()).find(|&i| like(i).is_none() || like(i) != like(from)).unwrap_or(code.len());
        if end - from > 1 {
            chains.push(chain_of(code[from..end].iter(), from, slots));
        }
        from = end.max(from + 1);
    }
    chains
}

/// An instruction, and the number of its operator in the root block.
type Grouped = (usize, Instr);

/// The properties that all calls of one chain have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Member {
    /// The extent that counts the rows of each call.
    rows: Extent,
    /// The step block whose loop gives the order of the rows; `None` for the batch's order.
    order: Option<BlockId>,
    /// The role of the operators. All calls of a chain have the same role, so that a run can stop before the backward pass.
    role: Role,
}

struct Sorted<'a> {
    slots: &'a [SlotDesc],
    out: Vec<Grouped>,
    chains: Vec<Chain>,
    /// The calls of the chain that is being collected.
    open: Vec<Grouped>,
    /// The sums that wait for the end of the chain.
    sums: Vec<Instr>,
    /// The slots that the waiting sums write.
    written: HashSet<usize>,
    /// The slots that the waiting sums read or write.
    touched: HashSet<usize>,
}

impl Sorted<'_> {
    fn close(&mut self) {
        if self.open.len() > 1 {
            let calls = self.open.iter().map(|(_, instr)| instr);
            self.chains.push(chain_of(calls, self.out.len(), self.slots));
        }
        let group = self.open.last().map_or(0, |(group, _)| *group);
        self.out.append(&mut self.open);
        self.out.extend(self.sums.drain(..).map(|instr| (group, instr)));
        self.written.clear();
        self.touched.clear();
    }

    /// Returns the slot of a view; for an alias, the slot whose buffer the alias shares. `None` for a value that is
    /// passed from step to step, because no call outside the loop writes this value.
    fn slot(&self, r: &Ref) -> Option<usize> {
        match r.access {
            Access::Slot(mut s) => {
                while let Some(alias) = self.slots[s].alias {
                    s = alias;
                }
                Some(s)
            }
            _ => None,
        }
    }

    /// Delays a sum until the end of the chain.
    fn wait(&mut self, instr: Instr) {
        if let Instr::Op(op) = &instr {
            for position in &op.writes {
                self.written.extend(self.slot(position));
            }
            for position in op.reads.iter().chain(&op.writes) {
                self.touched.extend(self.slot(position));
            }
        }
        self.sums.push(instr);
    }

    /// Returns whether an instruction may run before the waiting sums: its result is then the same as after the sums.
    fn free(&self, instr: &Instr) -> bool {
        let Instr::Op(op) = instr else { return self.sums.is_empty() };
        let in_order = |r: &Ref| self.slot(r).is_some_and(|s| self.written.contains(&s));
        let before = |r: &Ref| self.slot(r).is_some_and(|s| self.touched.contains(&s));
        !op.reads.iter().chain(&op.writes).any(in_order) && !op.writes.iter().any(before)
    }
}

fn chain_of<'a>(
    calls: impl ExactSizeIterator<Item = &'a Instr> + Clone,
    first: usize,
    slots: &[SlotDesc],
) -> Chain {
    let ops = || calls.clone().filter_map(|i| if let Instr::Op(op) = i { Some(op) } else { None });
    let batched = |r: &&Ref| r.rows.known().is_none();
    let places = ops().flat_map(|op| op.reads.iter().chain(&op.writes)).filter(batched);
    let distinct: HashSet<&Ref> = places.collect();
    let size = |r: &&Ref| match r.access {
        Access::Slot(s) => slots[s].dtype.size_of(),
        _ => size_of::<f32>(),
    };
    let bytes: usize = distinct.iter().map(|r| r.width * size(r)).sum();
    let width = ops().flat_map(|op| &op.writes).map(|r| r.width).sum();
    let rows = (cpu().chunk() / bytes.max(1)).max(LEAST_ROWS);
    Chain { calls: first..first + calls.len(), rows, width }
}

/// Returns the properties that a call must share with its chain; `None` if the call cannot run on an arbitrary range of its
/// rows.
fn member(instr: &Instr) -> Option<Member> {
    let Instr::Op(op) = instr else { return None };
    let rows = op.writes.first()?.rows;
    let fits = rows.known().is_none()
        && op.reach == Reach::Row
        && op.role != Role::Update
        && op.span == LoopRows::All
        && !op.selects()
        && op.stands_for.as_ref().is_none_or(|note| !note.superseded)
        && op.writes.iter().all(|r| r.rows == rows)
        && op.reads.iter().all(|r| r.rows == rows || r.rows.known().is_some());
    fits.then_some(Member { rows, order: op.order.map(|(block, _)| block), role: op.role })
}

fn prepares(instr: &Instr) -> bool {
    matches!(instr, Instr::Op(op) if op.prepared.is_some())
}

/// Returns whether a call writes only sums over all rows.
fn is_sum(instr: &Instr) -> bool {
    let Instr::Op(op) = instr else { return false };
    op.role == Role::Backward && !op.selects() && op.writes.iter().all(|r| r.rows.known().is_some())
}
