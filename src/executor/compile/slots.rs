//! Slots: decides which values need memory in a run, and which slot each variable has.

use std::collections::{HashMap, HashSet};

use super::blocks::Blocks;
use super::layouts::{Layouts, RankedLayout};
use super::loops::block::{Forward, GradientHome, MemoryReads};
use super::schedule::{Item, LoopItem, Schedule, ScheduledCall};
use super::source::Source;
use super::writers::Writers;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Access, Home, Ref, Views};
use crate::operator::{BlockId, Extent, Spec, VarId};
use crate::program::{StepDesc, StepGradient, VarPair, VarRole};
use crate::tensor::{DType, StorageKind};

/// A copy of a variable from step-major order into the batch's order, made before an operator of the root block runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) var: VarId,
    pub(crate) from: usize,
    pub(crate) ranked: RankedLayout,
    /// The number of the operator before which the copy is made, counted from 1 among the operators that run. For a
    /// fetched variable, this is the number of the last operator plus 1.
    pub(crate) before: usize,
}

/// A slot before its lifetime and its buffer are known.
pub(crate) struct SlotDesc {
    pub(crate) var: VarId,
    pub(crate) dtype: DType,
    pub(crate) width: usize,
    pub(crate) rows: Extent,
    pub(crate) home: Home,
    /// Whether the scope keeps the slot's value from run to run.
    pub(crate) persistent: bool,
    /// The slot whose buffer this slot shares; `None` if the slot has a buffer of its own.
    pub(crate) alias: Option<usize>,
    /// The pool number of a value that is not dense; `None` for a dense slot.
    pub(crate) pool: Option<usize>,
}

#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) slots: Vec<SlotDesc>,
    /// For each slot, the operator of the root block for which the slot was made, counted among the operators that run.
    made_for: Vec<usize>,
    access: HashMap<VarId, Access>,
    /// The slot of each variable that is in step-major order.
    ranked: HashMap<VarId, usize>,
    /// For each memory, the slot that the first step reads in place of the previous step's value. The key is the step block or
    /// gradient block that runs, and the number of the memory.
    starts: HashMap<(BlockId, usize), usize>,
    /// For each memory, the slot that holds the previous values of all steps as one array; the key is as in `starts`.
    spread: HashMap<(BlockId, usize), usize>,
    /// For each step block, the slots whose rows are in an order of the block: step-major, or by rank.
    pub(crate) of_block: HashMap<BlockId, Vec<usize>>,
    pub(crate) copies: Vec<Copy>,
    /// The storage of each value that is not dense, by pool number.
    pub(crate) pools: Vec<StorageKind>,
    views: Views,
}

/// Assigns a slot to every variable that an instruction reads or writes, by going through the schedule.
pub(crate) fn slots(
    source: &Source<'_>,
    blocks: &Blocks,
    schedule: &Schedule,
    layouts: &Layouts,
    writers: &Writers,
    fetched: &[VarId],
) -> Result<Slots> {
    let slots = Slots { views: blocks.views(), ..Slots::default() };
    let mut maker = Maker { source, blocks, layouts, writers, now: 0, slots };
    // Each feed that is read or fetched gets a slot before all operators. A feed that is neither read nor fetched gets no slot,
    // but its value is still checked.
    let read: HashSet<VarId> =
        source.live.iter().flat_map(|&number| source.program.root().ops[number].reads()).collect();
    for (id, var) in source.program.vars() {
        if var.role == VarRole::Feed && (source.is_wanted(id) || read.contains(&id)) {
            maker.natural(id)?;
        }
    }
    for items in schedule {
        maker.now += 1;
        items.iter().try_for_each(|item| maker.item(item))?;
    }
    maker.now += 1;
    fetched.iter().try_for_each(|&var| maker.natural(var))?;
    Ok(maker.slots)
}

impl Slots {
    /// Returns the reference (slot, rows, width, first column) to a variable in the batch's order.
    ///
    /// # Errors
    /// Fails if no instruction reads or writes the variable: the variable then has no slot.
    pub(crate) fn reference(&self, source: &Source<'_>, var: VarId) -> Result<Ref> {
        let (whole, column) = self.views.get(&var).copied().unwrap_or((var, 0));
        let access = self.access.get(&whole).copied().ok_or_else(|| {
            let name = &source.program.var(var).name;
            Error::of(
                ErrorKind::Program,
                "variable",
                "a variable that an operator computes",
                "a variable without a slot",
            )
            .variable(name)
        })?;
        let spec = source.program.spec(var)?;
        Ok(Ref { access, rows: spec.rows(), width: spec.width(), column })
    }

    /// Returns the reference to a variable for a call that runs on rows in step-major order.
    pub(crate) fn ranked_reference(&self, source: &Source<'_>, var: VarId) -> Result<Ref> {
        match self.ranked.get(&var) {
            Some(&slot) if source.program.spec(var)?.batched() => Ok(within(slot, source.program.spec(var)?)),
            _ => self.reference(source, var),
        }
    }

    /// Returns the reference to the value that the first step of a loop reads as a memory's previous value.
    pub(crate) fn start(&self, block: BlockId, memory: usize, spec: &Spec) -> Result<Ref> {
        let slot = self.starts.get(&(block, memory));
        slot.map(|&slot| within(slot, spec)).ok_or_else(|| {
            Error::of(ErrorKind::Program, "memory", "a memory with a slot", format!("memory {memory}"))
        })
    }

    /// Returns the reference to a memory's previous values of all steps as one array; `None` if no instruction reads that
    /// array.
    pub(crate) fn spread(&self, block: BlockId, memory: usize, spec: &Spec) -> Option<Ref> {
        self.spread.get(&(block, memory)).map(|&slot| within(slot, spec))
    }

    /// Returns the slot of a variable in the batch's order; `None` if the variable has no such slot.
    pub(crate) fn slot_of(&self, var: VarId) -> Option<usize> {
        match self.access.get(&var) {
            Some(&Access::Slot(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Returns the operator of the root block for which a slot was made, counted from 1 among the operators that run; 0 means
    /// before all operators.
    pub(crate) fn made_for(&self, slot: usize) -> usize {
        self.made_for[slot]
    }

    /// Returns whether a variable is a parameter, or a constant that is computed before operator `now` of the root block.
    /// Operators are counted among the operators that run.
    pub(crate) fn known_before(&self, source: &Source<'_>, var: VarId, now: usize) -> bool {
        match self.slot_of(var) {
            Some(at) => {
                let slot = &self.slots[at];
                let constant = slot.home == Home::Whole && slot.rows.known().is_some();
                constant && slot.pool.is_none() && (slot.persistent || self.made_for[at] < now)
            }
            None => source.program.var(var).persistable,
        }
    }
}

fn within(slot: usize, spec: &Spec) -> Ref {
    Ref { access: Access::Slot(slot), rows: spec.rows(), width: spec.width(), column: 0 }
}

struct Maker<'a> {
    source: &'a Source<'a>,
    blocks: &'a Blocks,
    layouts: &'a Layouts,
    writers: &'a Writers,
    /// The operator of the root block that is being handled, counted from 1 among the operators that run.
    now: usize,
    slots: Slots,
}

impl Maker<'_> {
    fn item(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Call(call) | Item::Levels(call) => {
                self.call(call).map_err(|e| e.at(self.source.place(call.id)))
            }
            Item::Loop(inner) => self.step_loop(inner).map_err(|e| e.at(self.source.place(inner.id))),
        }
    }

    fn call(&mut self, call: &ScheduledCall) -> Result<()> {
        let order = self.layouts.order_of(call);
        for var in call.reads().chain(call.writes()) {
            let batched = self.source.program.var(var).spec().is_some_and(Spec::batched);
            match order {
                Some(_) if batched => self.in_order(var)?,
                _ => self.natural(var)?,
            }
        }
        Ok(())
    }

    /// Assigns a slot in step-major order to a variable.
    fn in_order(&mut self, var: VarId) -> Result<()> {
        if !self.slots.ranked.contains_key(&var) {
            let slot = self.add(var, self.source.program.spec(var)?, Home::Whole);
            self.slots.ranked.insert(var, slot);
        }
        Ok(())
    }

    /// Assigns a slot in the batch's order to a variable; a variable in step-major order is copied into that slot.
    fn natural(&mut self, var: VarId) -> Result<()> {
        let (var, _) = self.slots.views.get(&var).copied().unwrap_or((var, 0));
        if self.slots.access.contains_key(&var) {
            return Ok(());
        }
        self.assign_slot(var, Home::Whole)?;
        if let (Some(ranked), Some(&from)) = (self.layouts.ranked(var), self.slots.ranked.get(&var)) {
            self.slots.copies.push(Copy { var, from, ranked, before: self.now });
        }
        Ok(())
    }

    fn assign_slot(&mut self, var: VarId, home: Home) -> Result<()> {
        let desc = self.source.program.var(var);
        let spec = self.source.program.spec(var)?;
        // In a damaged file, a variable of a step block may be used outside its block.
        if home == Home::Whole && matches!(spec.rows(), Extent::Alive(_)) {
            let (expected, got) = ("a place inside the step", "a place outside");
            let error = Error::of(ErrorKind::Program, "rows of a step", expected, got);
            return Err(error.variable(&desc.name));
        }
        let slot = self.add_kept(var, spec, home, (desc.persistable, None));
        self.slots.access.insert(var, Access::Slot(slot));
        Ok(())
    }

    /// Adds a slot for a variable's value, or for another value with the same dtype and shape.
    fn add(&mut self, var: VarId, spec: &Spec, home: Home) -> usize {
        self.add_kept(var, spec, home, (false, None))
    }

    /// Adds a slot. `persistent` is whether the scope keeps its value from run to run; `alias` is the slot whose buffer
    /// the new slot shares.
    fn add_kept(
        &mut self,
        var: VarId,
        spec: &Spec,
        home: Home,
        (persistent, alias): (bool, Option<usize>),
    ) -> usize {
        let pool = (spec.storage != StorageKind::Dense).then(|| {
            self.slots.pools.push(spec.storage);
            self.slots.pools.len() - 1
        });
        let slot = self.slots.slots.len();
        self.slots.slots.push(SlotDesc {
            var,
            dtype: self.source.stored_dtype(var, spec),
            width: spec.width(),
            rows: spec.rows(),
            home,
            persistent,
            alias,
            pool,
        });
        self.slots.made_for.push(self.now);
        if let Home::Stepped(block) | Home::Sequence(block) = home {
            self.slots.of_block.entry(block).or_default().push(slot);
        }
        slot
    }

    /// Adds a slot that shares the buffer of another slot.
    fn alias(&mut self, aliased: usize, home: Home, spec: &Spec) -> usize {
        self.add_kept(self.slots.slots[aliased].var, spec, home, (false, Some(aliased)))
    }

    /// Lets a variable of a step block share the memory of a variable outside the loop, if the layouts allow it. Returns
    /// whether the two variables share memory.
    fn take(&mut self, inner: VarId, block: BlockId) -> Result<bool> {
        let outer = self.layouts.taken.get(&inner);
        let Some(&slot) = outer.and_then(|outer| self.slots.ranked.get(outer)) else { return Ok(false) };
        let alias = self.alias(slot, Home::Stepped(block), self.source.program.spec(inner)?);
        self.slots.access.insert(inner, Access::Slot(alias));
        Ok(true)
    }

    fn step_loop(&mut self, inner: &LoopItem) -> Result<()> {
        let (step, gradient) = self.source.step(inner.id)?;
        match gradient {
            None => self.forward(step, inner),
            Some(gradient) => self.backward(step, gradient, inner),
        }
    }

    fn forward(&mut self, step: &StepDesc, inner: &LoopItem) -> Result<()> {
        let (block, blocks) = (step.block, self.blocks);
        let found: &Forward = blocks.forward(block)?;
        let mut outside = Vec::new();
        for pair in &step.inputs {
            if !self.take(pair.inner, block)? {
                self.assign_slot(pair.inner, Home::Stepped(block))?;
                outside.push(pair.outer);
            }
        }
        for pair in &step.statics {
            self.assign_slot(pair.inner, Home::Sequence(block))?;
            outside.push(pair.outer);
        }
        for (memory, m) in step.memories.iter().enumerate() {
            self.slots.access.insert(m.previous, Access::Previous { block, memory });
        }
        for &(var, home) in &found.homes {
            self.assign_slot(var, home)?;
        }
        for (memory, m) in step.memories.iter().enumerate() {
            let spec = self.source.program.spec(m.previous)?;
            let start = self.add(m.next, spec, Home::Sequence(block));
            self.slots.starts.insert((block, memory), start);
            if found.spread.contains(&m.previous) {
                let all = self.add(m.next, spec, Home::Stepped(block));
                self.slots.spread.insert((block, memory), all);
            }
            [Some(m.next), m.initial, m.last].into_iter().flatten().try_for_each(|var| self.natural(var))?;
        }
        outside.into_iter().try_for_each(|var| self.natural(var))?;
        inner.items().try_for_each(|item| self.item(item))?;
        step.outputs.iter().try_for_each(|pair| {
            self.natural(pair.inner)?;
            self.natural(pair.outer)
        })
    }

    fn backward(&mut self, step: &StepDesc, gradient: &StepGradient, inner: &LoopItem) -> Result<()> {
        let (block, blocks) = (step.block, self.blocks);
        let found = blocks.backward(gradient.block)?;
        for m in &gradient.memories {
            if let Some(previous) = m.previous {
                let access = Access::Passed { block, memory: m.memory as usize };
                self.slots.access.insert(previous, access);
            }
        }
        for &(var, home) in &found.homes {
            match home {
                GradientHome::Over(value) => {
                    if let Some(&access) = self.slots.access.get(&value) {
                        self.slots.access.insert(var, access);
                    }
                }
                GradientHome::Own(home) => {
                    if !self.take(var, block)? {
                        self.assign_slot(var, home)?;
                    }
                }
            }
        }
        for (&var, &original) in &found.same.0 {
            if let Some(&access) = self.slots.access.get(&original) {
                self.slots.access.insert(var, access);
            }
        }
        for pair in self.writers.gathered(inner.id) {
            self.natural(pair.outer)?;
        }
        for pair in read_again(self.source, blocks.forward(block)?, step, gradient) {
            self.natural(pair.outer)?;
        }
        for (memory, reads) in found.memories.iter().enumerate() {
            if *reads == MemoryReads::AsOneArray {
                let m = &step.memories[memory];
                let all = self.add(m.next, self.source.program.spec(m.previous)?, Home::Stepped(block));
                self.slots.spread.insert((gradient.block, memory), all);
            }
        }
        for m in &gradient.memories {
            let memory = m.memory as usize;
            let spec = self.source.program.spec(step.memories[memory].previous)?;
            let start = self.add(m.next, spec, Home::Sequence(block));
            self.slots.starts.insert((gradient.block, memory), start);
            m.last.into_iter().try_for_each(|var| self.natural(var))?;
        }
        inner.items().try_for_each(|item| self.item(item))?;
        gradient.memories.iter().filter_map(|m| m.initial).try_for_each(|var| self.natural(var))?;
        for pair in &gradient.inputs {
            if self.layouts.left.get(&pair.outer) == Some(&pair.inner) {
                self.leave(pair.outer, pair.inner)?;
            } else {
                self.natural(pair.outer)?;
            }
        }
        gradient.statics.iter().try_for_each(|pair| self.natural(pair.outer))
    }

    /// Lets the variable `outer` outside a loop share the memory of the gradient `inner` that the loop wrote. The rows are not
    /// copied and stay in the loop's order.
    fn leave(&mut self, outer: VarId, inner: VarId) -> Result<()> {
        let Access::Slot(slot) = self.slots.reference(self.source, inner)?.access else {
            let (what, got) = ("gradient that a loop returns", "a gradient that a step passes on");
            return Err(Error::of(ErrorKind::Program, what, "a gradient in its own memory", got));
        };
        let alias = self.alias(slot, Home::Whole, self.source.program.spec(outer)?);
        self.slots.ranked.insert(outer, alias);
        Ok(())
    }
}

/// Returns the static inputs whose values a backward loop reads and therefore gathers again.
pub(crate) fn read_again<'a>(
    source: &Source<'_>,
    found: &Forward,
    step: &'a StepDesc,
    gradient: &StepGradient,
) -> Vec<&'a VarPair> {
    if step.statics.is_empty() {
        return Vec::new();
    }
    let read: HashSet<VarId> = source.ops(gradient.block).flat_map(|(_, op)| op.reads()).collect();
    let again = |pair: &&VarPair| found.saved.contains(&pair.inner) || read.contains(&pair.inner);
    step.statics.iter().filter(again).collect()
}
