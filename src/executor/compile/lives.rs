//! Computes the lifetime of each slot: from the first to the last instruction that reads or writes the slot.

use std::collections::BTreeSet;

use super::pools::pooled;
use super::slots::{SlotDesc, Slots};
use crate::executor::plan::{Access, Chain, Instr, Loop, MemoryPlan, Ref};
use crate::operator::BlockId;

/// The last moment of a fetched value, which lives until the run ends.
const FOREVER: usize = usize::MAX;

/// The lifetime of each slot, and the slots that each operator of the root block touches.
#[derive(Debug)]
pub(crate) struct Lives {
    /// The first and the last moment at which each slot is in use, counted from 1; moment 0 is the time before the first
    /// instruction. All instructions of one operator of the root block share one moment: the number of the operator's first
    /// instruction.
    pub(crate) of_slot: Vec<(usize, usize)>,
    /// The slots that each operator of the root block touches. The index counts the operators that run, from 1; entry 0 holds
    /// the slots that have values before the first operator.
    touched: Vec<BTreeSet<usize>>,
    /// The moment of each instruction of the root block.
    pub(crate) moments: Vec<usize>,
}

impl Lives {
    /// Returns the first and the last moment of a chain of the root block.
    pub(crate) fn of_chain(&self, chain: &Chain) -> (usize, usize) {
        (self.moments[chain.calls.start], self.moments[chain.calls.end - 1])
    }

    /// Returns the slots of a step block that an operator of the root block touches, given the number of the operator.
    pub(crate) fn touched(&self, slots: &Slots, operator: usize, block: BlockId) -> Vec<usize> {
        let of_block = slots.of_block.get(&block).map_or(&[][..], Vec::as_slice);
        of_block.iter().copied().filter(|slot| self.touched[operator].contains(slot)).collect()
    }
}

/// Computes the lifetime of each slot from the instructions of each operator of the root block; slots in `fetched` live until
/// the run ends.
pub(crate) fn lives(groups: &[Vec<Instr>], slots: &Slots, fetched: &[usize]) -> Lives {
    // Entry 0 is for slots that have values before any instruction runs, such as feeds.
    let mut touched = vec![BTreeSet::new()];
    touched.extend(groups.iter().map(|code| {
        let mut reader = Touched { slots: &slots.slots, loops: Vec::new(), found: BTreeSet::new() };
        code.iter().for_each(|instr| reader.instr(instr));
        reader.found
    }));
    for made in 0..slots.slots.len() {
        let mut with = Some(made);
        while let Some(slot) = with {
            touched[slots.made_for(made)].insert(slot);
            with = slots.slots[slot].alias;
        }
    }
    let mut of_slot = vec![(usize::MAX, 0); slots.slots.len()];
    let mut now = 0;
    for (operator, found) in touched.iter().enumerate() {
        for &slot in found {
            let life: &mut (usize, usize) = &mut of_slot[slot];
            *life = (life.0.min(now), now);
        }
        now += if operator == 0 { 1 } else { groups[operator - 1].len() };
    }
    for &slot in fetched {
        of_slot[slot].1 = FOREVER;
    }
    let starts = groups.iter().scan(1, |next, code| Some(std::mem::replace(next, *next + code.len())));
    let moments = groups.iter().zip(starts).flat_map(|(code, start)| code.iter().map(move |_| start));
    Lives { of_slot, touched, moments: moments.collect() }
}

/// Collects the slots that some instructions read or write.
struct Touched<'a> {
    slots: &'a [SlotDesc],
    /// The loops that contain the instruction, the innermost last.
    loops: Vec<&'a Loop>,
    found: BTreeSet<usize>,
}

impl<'a> Touched<'a> {
    fn view(&mut self, view: &Ref) {
        match view.access {
            Access::Slot(slot) => {
                let mut with = Some(slot);
                while let Some(slot) = with {
                    self.found.insert(slot);
                    with = self.slots[slot].alias;
                }
            }
            Access::Previous { block, memory } => {
                let around = self.loops.iter().find(|l| l.desc.block == block);
                if let Some(plan) = around.and_then(|l| l.memories.get(memory)) {
                    self.memory(plan);
                }
            }
            // The gradient that a step passes back is stored in the slot of the gradient of the memory's next value, which the
            // loop touches.
            Access::Passed { .. } => {}
        }
    }

    /// The loop touches the slot that holds the values of a memory at all steps.
    fn memory(&mut self, plan: &MemoryPlan) {
        let views = [Some(plan.next), Some(plan.start), plan.all];
        views.iter().flatten().for_each(|view| self.view(view));
    }

    fn instr(&mut self, instr: &'a Instr) {
        match instr {
            Instr::Op(op) | Instr::Levels(op) => {
                op.reads.iter().chain(&op.writes).for_each(|view| self.view(view));
                let slots = pooled(op).filter_map(|at| self.slots.iter().position(|s| s.pool == Some(at)));
                self.found.extend(slots);
            }
            Instr::Zero(view, _) => self.view(view),
            Instr::Reorder { from, to, .. } => [from, to].into_iter().for_each(|view| self.view(view)),
            Instr::Loop(inner) => {
                self.loops.push(inner);
                self.moves(inner);
                let code = inner.before.iter().chain(&inner.body).chain(&inner.after);
                code.for_each(|instr| self.instr(instr));
                self.loops.pop();
            }
        }
    }

    /// Records the slots that a loop moves rows from or to.
    fn moves(&mut self, inner: &Loop) {
        let moves = [&inner.gather, &inner.statics, &inner.scatter, &inner.scatter_statics];
        for moved in moves.into_iter().flatten() {
            self.view(&moved.outer);
            self.view(&moved.inner);
        }
        inner.zero.iter().chain(&inner.flush).for_each(|view| self.view(view));
        for plan in inner.memories.iter().filter(|plan| plan.read) {
            self.memory(plan);
            [plan.initial, plan.last].iter().flatten().for_each(|view| self.view(view));
        }
        for plan in &inner.gradients {
            let initial = plan.initial.map(|(view, _)| view);
            let views = [Some(plan.next), Some(plan.start), plan.last, initial];
            views.iter().flatten().for_each(|view| self.view(view));
        }
    }
}
