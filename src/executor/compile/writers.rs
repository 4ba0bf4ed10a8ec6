//! Decides whether each contribution to a gradient is written or added: the first contribution in the order of the
//! run is written, and every other contribution is added. If the first contribution to the gradient of a constant is
//! computed many times, as in a loop inside a loop, this contribution is added, too. The gradient is then set to zero
//! before the first contribution.

use std::collections::{HashMap, HashSet};

use super::blocks::Blocks;
use super::layouts::Layouts;
use super::loops::block::{GradientHome, Visits};
use super::schedule::{Item, LoopItem, Schedule, ScheduledCall, Site};
use super::source::Source;
use crate::error::Result;
use crate::executor::plan::{Home, OpId};
use crate::executor::rewrite::classes::Class;
use crate::kernels::Assign;
use crate::operator::{BlockId, Pass, VarId};
use crate::program::{StepDesc, StepGradient, VarPair};

/// The state of the gradient of a memory's next value when a backward loop begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryAssign {
    /// Whether a step writes or adds the gradient that it passes to the previous step; `None` if the memory passes no gradient.
    pub(crate) passes: Option<Assign>,
    /// Whether the gradient of the memory's next value already has a contribution before the loop.
    pub(crate) filled: bool,
}

/// A gradient that a backward loop passes to a variable outside the loop; the number is the index of the memory, of the input,
/// or of the static input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HandedGradient {
    Initial(usize),
    Input(usize),
    Static(usize),
}

/// For each contribution to a gradient: whether it is written or added.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// The contributions of calls, by the number of the call and the gradient that it writes.
    calls: HashMap<(usize, VarId), Assign>,
    /// The contributions of loops, by the loop and the gradient that it passes to a variable outside the loop.
    loops: HashMap<(OpId, HandedGradient), Assign>,
    /// The gradients of memories, by the gradient block and the number of the memory.
    memories: HashMap<(BlockId, u32), MemoryAssign>,
    /// The gradients that each loop gathers from outside the loop into its own order.
    gathered: HashMap<OpId, Vec<VarPair>>,
    /// The gradients that are set to zero before an operator of the root block.
    before: HashMap<OpId, Vec<VarId>>,
    /// The gradients that are set to zero when the loop of a gradient block begins. An inner loop runs many times, and the sums
    /// of one run must not be added to the sums of the next run.
    in_loops: HashMap<OpId, Vec<VarId>>,
}

impl Writers {
    pub(crate) fn of_call(&self, call: &ScheduledCall, var: VarId) -> Assign {
        self.calls.get(&(call.number, var)).copied().unwrap_or(Assign::Write)
    }

    pub(crate) fn of_loop(&self, id: OpId, handed: HandedGradient) -> Assign {
        self.loops.get(&(id, handed)).copied().unwrap_or(Assign::Write)
    }

    /// Returns the gradients that a loop gathers into its own order before its first call.
    pub(crate) fn gathered(&self, id: OpId) -> &[VarPair] {
        self.gathered.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn of_memory(&self, block: BlockId, memory: u32) -> MemoryAssign {
        let none = MemoryAssign { passes: None, filled: false };
        self.memories.get(&(block, memory)).copied().unwrap_or(none)
    }

    /// Returns the gradients that are set to zero before an operator of the root block.
    pub(crate) fn zeroed_before(&self, id: OpId) -> &[VarId] {
        self.before.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the gradients of a gradient block that are set to zero when its loop begins.
    pub(crate) fn zeroed_in(&self, id: OpId) -> &[VarId] {
        self.in_loops.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Visits all contributions in the order of the run, and decides for each contribution whether it is written or added.
pub(crate) fn writers(
    source: &Source<'_>,
    blocks: &Blocks,
    schedule: &Schedule,
    layouts: &Layouts,
) -> Result<Writers> {
    let (found, due) = (Writers::default(), HashMap::new());
    let mut finder = WriterFinder { source, blocks, layouts, written: HashSet::new(), due, found };
    for (items, &number) in schedule.iter().zip(&source.live) {
        for item in items {
            finder.item(item)?;
        }
        let id = OpId { block: BlockId(0), number };
        if let Some(vars) = finder.due.remove(&BlockId(0)) {
            finder.found.before.insert(id, vars);
        }
    }
    Ok(finder.found)
}

struct WriterFinder<'a> {
    source: &'a Source<'a>,
    blocks: &'a Blocks,
    layouts: &'a Layouts,
    /// The gradients that already have a contribution.
    written: HashSet<VarId>,
    /// Gradients of constants to which the steps of a loop add, by block. The place where these gradients are set to zero is
    /// not decided yet.
    due: HashMap<BlockId, Vec<VarId>>,
    found: Writers,
}

impl WriterFinder<'_> {
    fn item(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Call(call) if call.pass == Pass::Backward => {
                self.call(call).map_err(|e| e.at(self.source.place(call.id)))
            }
            Item::Call(_) | Item::Levels(_) => Ok(()),
            Item::Loop(inner) => self.step_loop(inner).map_err(|e| e.at(self.source.place(inner.id))),
        }
    }

    fn call(&mut self, call: &ScheduledCall) -> Result<()> {
        let ordered = self.layouts.order_of(call).is_some();
        for &var in call.input_gradients.iter().flatten().filter(|&&var| var != VarId::NONE) {
            let assign = match ordered && self.source.program.spec(var)?.batched() {
                true => Assign::Write,
                false => self.assign(var, call.site),
            };
            self.found.calls.insert((call.number, var), assign);
        }
        Ok(())
    }

    /// Decides whether a contribution to a gradient is written or added; every contribution after the first is added.
    fn assign(&mut self, var: VarId, site: Site) -> Assign {
        let first = self.written.insert(var);
        if first && site.visits == Visits::Many && self.is_constant(var) {
            self.due.entry(self.source.program.var(var).block).or_default().push(var);
            return Assign::Add;
        }
        if first { Assign::Write } else { Assign::Add }
    }

    /// Returns whether a gradient has the shape of a constant, without rows of sequences or steps.
    fn is_constant(&self, var: VarId) -> bool {
        let block = self.source.program.var(var).block;
        let Ok(found) = self.blocks.backward(block) else { return block == BlockId(0) };
        let (var, _) = self.blocks.position_of(block, var);
        let home = found.homes.binary_search_by_key(&var, |(var, _)| *var).map(|i| found.homes[i].1);
        home == Ok(GradientHome::Own(Home::Whole)) && !self.layouts.taken.contains_key(&var)
    }

    fn step_loop(&mut self, inner: &LoopItem) -> Result<()> {
        let (step, gradient) = self.source.step(inner.id)?;
        let Some(gradient) = gradient else { return inner.items().try_for_each(|item| self.item(item)) };
        self.begin(inner.id, step, gradient)?;
        // If a memory passes no gradient back, the gradient of its next value is complete before the loop, so calls before the
        // loop may read it.
        self.memories(gradient, Passes::Nothing);
        inner.before.iter().try_for_each(|item| self.item(item))?;
        self.memories(gradient, Passes::ToTheStepBefore);
        inner.body.iter().chain(&inner.after).try_for_each(|item| self.item(item))?;
        let initial = gradient.memories.iter().map(|m| m.initial).enumerate();
        let inputs = gradient.inputs.iter().map(|p| p.outer).enumerate();
        let inputs = inputs.filter(|(_, outer)| !self.layouts.left.contains_key(outer));
        let statics = gradient.statics.iter().map(|p| p.outer).enumerate();
        let handed: Vec<(HandedGradient, VarId)> = initial
            .filter_map(|(i, var)| Some((HandedGradient::Initial(i), var?)))
            .chain(inputs.map(|(i, var)| (HandedGradient::Input(i), var)))
            .chain(statics.map(|(i, var)| (HandedGradient::Static(i), var)))
            .collect();
        for (handed, var) in handed {
            let assign = self.assign(var, inner.site);
            self.found.loops.insert((inner.id, handed), assign);
        }
        if let Some(vars) = self.due.remove(&gradient.block) {
            self.found.in_loops.insert(inner.id, vars);
        }
        Ok(())
    }

    /// Marks the gradients of a gradient block that have a value before the block's first call as written.
    fn begin(&mut self, id: OpId, step: &StepDesc, gradient: &StepGradient) -> Result<()> {
        let (forward, found) = (self.blocks.forward(step.block)?, self.blocks.backward(gradient.block)?);
        for &(var, home) in &found.homes {
            let taken = self.layouts.taken.contains_key(&var);
            let own = matches!(home, GradientHome::Own(_));
            if taken || own && forward.class(self.source, var) == Class::Sequence {
                self.written.insert(var);
            }
        }
        let gathered = gradient.outputs.iter().filter(|pair| self.written.insert(pair.inner)).copied();
        let gathered = gathered.collect();
        self.found.gathered.insert(id, gathered);
        Ok(())
    }

    /// Marks the gradient of each selected memory's next value as written. `which` selects the memories: either all
    /// memories that pass a gradient to the previous step, or all other memories.
    fn memories(&mut self, gradient: &StepGradient, which: Passes) {
        let passing = |previous: Option<VarId>| match previous {
            Some(_) => Passes::ToTheStepBefore,
            None => Passes::Nothing,
        };
        for m in gradient.memories.iter().filter(|m| passing(m.previous) == which) {
            let filled = !self.written.insert(m.next);
            let passes = m.previous.map(|_| if filled { Assign::Add } else { Assign::Write });
            if let (Some(previous), Some(Assign::Add)) = (m.previous, passes) {
                self.written.insert(previous);
            }
            self.found.memories.insert((gradient.block, m.memory), MemoryAssign { passes, filled });
        }
    }
}

/// Whether a backward loop passes a memory's gradient from each step to the previous step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    Nothing,
    ToTheStepBefore,
}
