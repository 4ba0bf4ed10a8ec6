//! Computes the lifetime of each slot: from the first to the last instruction that reads or writes the slot. A loop of
//! the root block has three parts (before, in and after its steps). Values that only the steps use therefore share
//! memory with values that only the instructions after the steps use.

use std::collections::BTreeMap;

use super::pools::pooled;
use super::slots::{SlotDesc, Slots};
use crate::executor::plan::{Access, Chain, Instr, Loop, MemoryPlan, Move, Ref};
use crate::operator::BlockId;

/// The last moment of a fetched value, which lives until the run ends.
const FOREVER: usize = usize::MAX;

/// A part of an operator of the root block. Only a loop has more than one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoopPart {
    /// Before the steps of the loop: the moves into the loop, and the instructions before the loop.
    Before,
    Steps,
    /// After the steps of the loop: the instructions after the loop, and the moves out of the loop.
    After,
}

const PARTS: usize = 3;

/// The first and the last part in which an operator touches a slot.
type LoopParts = (LoopPart, LoopPart);

const ALL: LoopParts = (LoopPart::Before, LoopPart::After);

/// The lifetime of each slot, and the slots that each operator of the root block touches.
#[derive(Debug)]
pub(crate) struct Lives {
    /// The first and the last moment at which each slot is in use. An operator of the root block has one moment per part; all
    /// its instructions count as the operator's first instruction.
    pub(crate) of_slot: Vec<(usize, usize)>,
    /// The slots that each operator of the root block touches. The index counts the operators that run, from 1; entry 0 holds
    /// the slots that have values before the first operator.
    touched: Vec<BTreeMap<usize, LoopParts>>,
    /// For each instruction of the root block, the number of its operator's first instruction.
    pub(crate) firsts: Vec<usize>,
}

impl Lives {
    /// Returns the first and the last moment of a chain of the root block.
    pub(crate) fn of_chain(&self, chain: &Chain) -> (usize, usize) {
        let (first, last) = (self.firsts[chain.calls.start], self.firsts[chain.calls.end - 1]);
        (moment(first, LoopPart::Before), moment(last, LoopPart::After))
    }

    /// Returns the lifetime of a slot in instructions of the root block, counted from 1; 0 is the time before the first
    /// instruction. All instructions of an operator count as the operator's first instruction.
    pub(crate) fn in_instructions(&self, slot: usize) -> (usize, usize) {
        let (first, last) = self.of_slot[slot];
        (first / PARTS, if last == FOREVER { FOREVER } else { last / PARTS })
    }

    /// Returns the slots of a step block that operator `operator` of the root block touches in the parts `parts`.
    pub(crate) fn touched(
        &self,
        slots: &Slots,
        operator: usize,
        block: BlockId,
        parts: LoopParts,
    ) -> Vec<usize> {
        let of_block = slots.of_block.get(&block).map_or(&[][..], Vec::as_slice);
        let meets = |span: &LoopParts| span.0 <= parts.1 && parts.0 <= span.1;
        let touched = |slot: &usize| self.touched[operator].get(slot).is_some_and(meets);
        of_block.iter().copied().filter(touched).collect()
    }
}

fn moment(instruction: usize, part: LoopPart) -> usize {
    instruction * PARTS + part as usize
}

/// Computes the lifetime of each slot from the instructions of each operator of the root block; slots in `fetched` live until
/// the run ends.
pub(crate) fn lives(groups: &[Vec<Instr>], slots: &Slots, fetched: &[usize]) -> Lives {
    // Entry 0 is for slots that have values before any instruction runs, such as feeds.
    let mut touched = vec![BTreeMap::new()];
    touched.extend(groups.iter().map(|code| {
        let mut reader =
            Touched { slots: &slots.slots, loops: Vec::new(), span: ALL, found: BTreeMap::new() };
        reader.operator(code);
        reader.found
    }));
    for made in 0..slots.slots.len() {
        let mut with = Some(made);
        while let Some(slot) = with {
            touched[slots.made_for(made)].entry(slot).or_insert(ALL);
            with = slots.slots[slot].alias;
        }
    }
    let mut of_slot = vec![(usize::MAX, 0); slots.slots.len()];
    let mut now = 0;
    for (operator, found) in touched.iter().enumerate() {
        for (&slot, &(first, last)) in found {
            let life: &mut (usize, usize) = &mut of_slot[slot];
            *life = (life.0.min(moment(now, first)), moment(now, last));
        }
        now += if operator == 0 { 1 } else { groups[operator - 1].len() };
    }
    for &slot in fetched {
        of_slot[slot].1 = FOREVER;
    }
    let starts = groups.iter().scan(1, |next, code| Some(std::mem::replace(next, *next + code.len())));
    let firsts = groups.iter().zip(starts).flat_map(|(code, start)| code.iter().map(move |_| start));
    Lives { of_slot, touched, firsts: firsts.collect() }
}

/// Collects the slots that some instructions read or write.
struct Touched<'a> {
    slots: &'a [SlotDesc],
    /// The loops that contain the instruction, the innermost last.
    loops: Vec<&'a Loop>,
    /// The parts in which the instruction runs.
    span: LoopParts,
    found: BTreeMap<usize, LoopParts>,
}

impl<'a> Touched<'a> {
    /// Reads the instructions of one operator of the root block.
    fn operator(&mut self, code: &'a [Instr]) {
        let is_loop = |instr: &Instr| matches!(instr, Instr::Loop(_));
        let at = code.iter().position(is_loop).filter(|_| code.iter().filter(|i| is_loop(i)).count() == 1);
        for (i, instr) in code.iter().enumerate() {
            match (instr, at) {
                (Instr::Loop(inner), Some(_)) => self.in_parts(inner),
                (instr, Some(at)) => {
                    let part = if i < at { LoopPart::Before } else { LoopPart::After };
                    self.during((part, part), |this| this.instr(instr));
                }
                (instr, None) => self.instr(instr),
            }
        }
    }

    fn during(&mut self, span: LoopParts, read: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.span, span);
        read(self);
        self.span = before;
    }

    fn view(&mut self, view: &Ref) {
        match view.access {
            Access::Slot(slot) => self.slot(slot),
            Access::Previous { block, memory } => {
                let around = self.loops.iter().find(|l| l.desc.block == block);
                if let Some(plan) = around.and_then(|l| l.memories.get(memory)) {
                    self.memory(plan);
                    // In the steps, a call reads the rows that the previous step wrote. Outside the steps, a call reads
                    // the array with the previous values of all steps.
                    if self.span != (LoopPart::Steps, LoopPart::Steps) {
                        plan.all.iter().for_each(|view| self.view(view));
                    }
                }
            }
            // A gradient that a step passes to the previous step is stored in the slot of the gradient of the memory's
            // next value. The loop touches this slot.
            Access::Passed { .. } => {}
        }
    }

    fn slot(&mut self, slot: usize) {
        let (first, last) = self.span;
        let mut with = Some(slot);
        while let Some(slot) = with {
            let known = self.found.entry(slot).or_insert(self.span);
            *known = (known.0.min(first), known.1.max(last));
            with = self.slots[slot].alias;
        }
    }

    /// Adds the slots of a memory: the slot of its values after each step, and the slot that the first step reads.
    fn memory(&mut self, plan: &MemoryPlan) {
        [plan.next, plan.start].iter().for_each(|view| self.view(view));
    }

    fn instr(&mut self, instr: &'a Instr) {
        match instr {
            Instr::Op(op) | Instr::Levels(op) => {
                op.reads.iter().chain(&op.writes).for_each(|view| self.view(view));
                let slots = pooled(op).filter_map(|at| self.slots.iter().position(|s| s.pool == Some(at)));
                slots.collect::<Vec<_>>().into_iter().for_each(|slot| self.slot(slot));
            }
            Instr::Zero(view, _) => self.view(view),
            Instr::Reorder { from, to, .. } => [from, to].into_iter().for_each(|view| self.view(view)),
            Instr::Loop(inner) => {
                let span = self.span;
                self.step_loop(inner, [span; PARTS]);
            }
        }
    }

    /// Reads a loop of the root block.
    fn in_parts(&mut self, inner: &'a Loop) {
        self.step_loop(inner, [LoopPart::Before, LoopPart::Steps, LoopPart::After].map(|part| (part, part)));
    }

    /// Reads a loop. `before`, `steps` and `after` are the parts of the root block's operator in which the parts of the
    /// loop run.
    fn step_loop(&mut self, inner: &'a Loop, [before, steps, after]: [LoopParts; PARTS]) {
        self.loops.push(inner);
        let views = |this: &mut Self, views: &[Option<&Ref>]| {
            views.iter().flatten().for_each(|view| this.view(view));
        };
        let moves = |this: &mut Self, moves: &[Move]| {
            moves.iter().for_each(|moved| views(this, &[Some(&moved.outer), Some(&moved.inner)]));
        };
        let gradients = |passes: bool| inner.gradients.iter().filter(move |g| g.passes.is_some() == passes);
        let begin = |this: &mut Self, passes: bool| {
            gradients(passes).for_each(|g| views(this, &[Some(&g.next), Some(&g.start), g.last.as_ref()]));
        };
        let read = || inner.memories.iter().filter(|plan| plan.read);
        self.during(before, |this| {
            moves(this, &inner.gather);
            moves(this, &inner.statics);
            read().for_each(|plan| views(this, &[Some(&plan.start), plan.initial.as_ref()]));
            inner.zero.iter().for_each(|view| this.view(view));
            begin(this, false);
            inner.before.iter().for_each(|instr| this.instr(instr));
        });
        self.during(steps, |this| {
            begin(this, true);
            read().for_each(|plan| this.memory(plan));
            inner.gradients.iter().for_each(|g| this.view(&g.next));
            inner.body.iter().for_each(|instr| this.instr(instr));
        });
        let spread = if inner.spreads_first() { before } else { after };
        self.during(spread, |this| {
            for plan in inner.spread.iter().map(|&memory| &inner.memories[memory]) {
                this.memory(plan);
                plan.all.iter().for_each(|view| this.view(view));
            }
        });
        self.during(after, |this| {
            inner.after.iter().for_each(|instr| this.instr(instr));
            for g in &inner.gradients {
                views(this, &[Some(&g.start), g.initial.as_ref().map(|(view, _)| view)]);
            }
            inner.flush.iter().for_each(|view| this.view(view));
            moves(this, &inner.scatter);
            moves(this, &inner.scatter_statics);
            for plan in read().filter(|plan| plan.last.is_some()) {
                this.memory(plan);
                plan.last.iter().for_each(|view| this.view(view));
            }
        });
        self.loops.pop();
    }
}
