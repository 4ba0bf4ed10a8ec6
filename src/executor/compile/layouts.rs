//! Layouts: decides which variables of the root block are in step-major order (the order of a loop's rows) instead of the
//! batch's order.
//!
//! The gradients that a backward loop returns are in step-major order, by the rank table of the loop. Another loop over the
//! same sequences, or a row-wise operator, can read a gradient in step-major order. A gradient is copied into the batch's order
//! only if an operator needs the batch's order, or if the gradient is fetched (the module `slots`).

use std::collections::{HashMap, HashSet};

use super::blocks::Blocks;
use super::loops::block::GradientHome;
use super::loops::views::counts;
use super::schedule::{Item, LoopItem, Schedule, ScheduledCall};
use super::source::Source;
use crate::error::Result;
use crate::executor::rewrite::needs::{gradient_reads, needed_values};
use crate::operator::{BlockId, Extent, LevelId, Reach, VarId};
use crate::program::{OpDesc, Role, StepDesc, grad_name};

/// The order of a loop's rows: step-major over the sequences of a level. If `reverse` is true, the loop runs each
/// sequence from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    level: LevelId,
    reverse: bool,
}

/// The layout of a variable that is in step-major order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankedLayout {
    pub(crate) order: Order,
    /// The step block whose loop gives the order, and the extent that counts the rows in the step block.
    pub(crate) block: BlockId,
    pub(crate) rows: Extent,
}

/// The variables and calls of the root block that are in step-major order.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    ranked: HashMap<VarId, RankedLayout>,
    /// For the number of a call of the root block: the step-major order in which the call runs without a copy of its
    /// rows.
    calls: HashMap<usize, RankedLayout>,
    /// The variables of step blocks that share the memory of a variable outside the loop, each with the outer variable.
    pub(crate) taken: HashMap<VarId, VarId>,
    /// The variables outside a loop that stay in the step-major order in which the loop wrote their rows. Each variable
    /// is mapped to the corresponding variable of the loop's block.
    pub(crate) left: HashMap<VarId, VarId>,
    /// The step blocks whose frames must provide row keys (for random numbers) to calls outside the block.
    pub(crate) keyed: Vec<BlockId>,
}

impl Layouts {
    pub(crate) fn ranked(&self, var: VarId) -> Option<RankedLayout> {
        self.ranked.get(&var).copied()
    }

    /// Returns the step-major order in which a call runs; `None` for the batch's order.
    pub(crate) fn order_of(&self, call: &ScheduledCall) -> Option<RankedLayout> {
        self.calls.get(&call.number).copied()
    }
}

/// Finds the variables that can stay in step-major order, by going through all calls in the order of the run.
pub(crate) fn layouts(source: &Source<'_>, blocks: &Blocks, schedule: &Schedule) -> Result<Layouts> {
    let ops = source.live.iter().map(|&number| &source.program.root().ops[number]);
    let contributions = counts(ops.flat_map(OpDesc::writes));
    let mut finder = Finder { source, blocks, contributions, layouts: Layouts::default() };
    for item in schedule.iter().flatten() {
        match item {
            Item::Call(call) => finder.call(call).map_err(|e| e.at(source.place(call.id)))?,
            Item::Levels(_) => {}
            Item::Loop(inner) => finder.step_loop(inner).map_err(|e| e.at(source.place(inner.id)))?,
        }
    }
    Ok(finder.layouts)
}

struct Finder<'a> {
    source: &'a Source<'a>,
    blocks: &'a Blocks,
    /// For each variable, how many operators of the root block write it.
    contributions: HashMap<VarId, usize>,
    layouts: Layouts,
}

fn order_of(step: &StepDesc) -> Order {
    Order { level: step.level, reverse: step.reverse }
}

impl Finder<'_> {
    /// Returns whether a gradient must be in the batch's order: another operator adds to the gradient, or the gradient
    /// is fetched.
    fn is_shared(&self, var: VarId) -> bool {
        self.source.is_gradient(var)
            && (self.contributions.get(&var) != Some(&1) || self.source.is_wanted(var))
    }

    fn call(&mut self, call: &ScheduledCall) -> Result<()> {
        let Some(parsed) = self.source.parsed(call.id) else { return Ok(()) };
        // A fused operator that sums over rows while it computes them (`joins`) always uses the batch's order.
        let joins = parsed.hints.joins;
        let row_wise = parsed.facts.reach == Reach::Row && self.source.desc(call.id).role != Role::Update;
        let Some(order) = (if joins || !row_wise { None } else { self.order(call)? }) else { return Ok(()) };
        if parsed.facts.random {
            self.layouts.keyed.push(order.block);
        }
        for var in call.writes() {
            if self.source.program.spec(var)?.batched() {
                self.layouts.ranked.entry(var).or_insert(order);
            }
        }
        self.layouts.calls.insert(call.number, order);
        Ok(())
    }

    /// Returns the step-major order in which a row-wise call can run without a copy. The order is the common order of
    /// all batched variables that the call reads. `None` if the variables that the call reads have no common order, if
    /// a result must be in the batch's order, or if the results are wider than the variables that the call reads.
    fn order(&self, call: &ScheduledCall) -> Result<Option<RankedLayout>> {
        let mut found: Option<RankedLayout> = None;
        let (mut read_width, mut write_width) = (0, 0);
        let (reads, writes) = self.operands(call);
        for var in self.source.program.tensors(reads.into_iter()) {
            let spec = self.source.program.spec(var)?;
            if !spec.batched() {
                continue;
            }
            read_width += spec.width();
            match (self.layouts.ranked(var), found) {
                (Some(r), None) => found = Some(r),
                (Some(r), Some(f)) if r.order == f.order => {}
                _ => return Ok(None),
            }
        }
        for var in writes {
            let spec = self.source.program.spec(var)?;
            if !spec.batched() {
                continue;
            }
            write_width += spec.width();
            if self.source.is_wanted(var) || self.is_shared(var) {
                return Ok(None);
            }
        }
        Ok(found.filter(|_| write_width <= read_width))
    }

    /// Returns the variables that a call reads, and the variables that it writes. For a backward call, the written variables
    /// are all gradients of its input slots, even gradients that another call of the operator writes.
    fn operands(&self, call: &ScheduledCall) -> (Vec<VarId>, Vec<VarId>) {
        let (desc, Some(parsed)) = (self.source.desc(call.id), self.source.parsed(call.id)) else {
            return Default::default();
        };
        if desc.role != Role::Backward {
            return (desc.reads().collect(), desc.writes().collect());
        }
        let present = |vars: &[VarId]| -> Vec<VarId> {
            vars.iter().copied().filter(|&var| var != VarId::NONE).collect()
        };
        let signature = parsed.signature;
        let needs = gradient_reads(&*parsed.op, &call.wanted, &parsed.inputs);
        let mut reads = needed_values(&*parsed.op, desc, needs);
        reads.extend(signature.outputs.iter().flat_map(|slot| present(desc.input(&grad_name(slot.name)))));
        let wanted = call.wanted.iter().map(|&slot| grad_name(signature.inputs[slot].name));
        (reads, wanted.flat_map(|name| present(desc.output(&name))).collect())
    }

    fn step_loop(&mut self, inner: &LoopItem) -> Result<()> {
        let (step, gradient) = self.source.step(inner.id)?;
        let Some(gradient) = gradient else {
            for pair in &step.inputs {
                self.take(pair.outer, pair.inner, step);
            }
            return Ok(());
        };
        // The pairs are collected in reverse, so that the first pair counts if a variable has two pairs.
        let incoming: HashMap<VarId, VarId> =
            gradient.outputs.iter().rev().map(|p| (p.inner, p.outer)).collect();
        let homes = &self.blocks.backward(gradient.block)?.homes;
        for (var, _) in homes.iter().filter(|(_, home)| matches!(home, GradientHome::Own(_))) {
            if let Some(&outer) = incoming.get(var) {
                self.take(outer, *var, step);
            }
        }
        let passed: HashSet<VarId> = gradient.memories.iter().filter_map(|m| m.previous).collect();
        for pair in gradient.inputs.iter().filter(|pair| !passed.contains(&pair.inner)) {
            if !self.is_shared(pair.outer) {
                let rows = self.source.program.spec(pair.inner)?.rows();
                let ranked = RankedLayout { order: order_of(step), block: step.block, rows };
                self.layouts.ranked.insert(pair.outer, ranked);
                self.layouts.left.insert(pair.outer, pair.inner);
            }
        }
        Ok(())
    }

    /// Lets a variable of a step block share the memory of a variable outside the loop. If the outer variable is not in
    /// the order of the loop, nothing changes.
    fn take(&mut self, outer: VarId, inner: VarId, step: &StepDesc) {
        if self.layouts.ranked(outer).is_some_and(|ranked| ranked.order == order_of(step)) {
            self.layouts.taken.insert(inner, outer);
        }
    }
}
