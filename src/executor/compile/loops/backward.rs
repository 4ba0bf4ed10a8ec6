//! The analysis of a gradient block: decides when its operators run, and where the gradients are stored.
//!
//! Like the operators of the step block, the operators of the gradient block are divided into operators before the loop, in the
//! loop and after the loop. For example, the gradient of a weight is computed after the loop, as one product over all steps.

use std::collections::HashSet;

use super::block::{Backward, EqualGradients, Forward, GradientBlock, GradientHome, MemoryReads};
use super::columns::Columns;
use super::in_place::{Overwrites, overwrite};
use super::same::same;
use super::views::view_gradients;
use super::when::{Timing, Unit, decide};
use crate::error::Result;
use crate::executor::compile::source::{ParsedOp, Source};
use crate::executor::plan::{Home, OpId, Pin};
use crate::executor::rewrite::classes::Class;
use crate::executor::rewrite::needs::{gradient_reads, needed_values};
use crate::operator::{Reach, VarId};
use crate::program::{OpDesc, StepDesc, StepGradient, grad_name};

/// Analyses the gradient block of a step block.
pub(crate) fn backward(
    source: &Source<'_>,
    step: &StepDesc,
    gradient: &StepGradient,
    forward: &Forward,
) -> Result<Backward> {
    let block = GradientBlock::new(source, step, gradient, forward);
    let same = same(&block)?;
    let mut columns = Columns::default();
    let without_call = view_gradients(&block, &same, &mut columns)?;
    let names = Names { forward, same: &same, columns: &columns };
    let mut units = Vec::new();
    for (id, op) in block.ops().filter(|(id, _)| !without_call.contains(&id.number)) {
        match source.parsed(id) {
            Some(parsed) => units_of(&block, &names, (id, op), parsed, &mut units)?,
            None => units.push(loop_unit(&block, &names, id, op)),
        }
    }
    let passing = gradient.memories.iter().filter_map(|m| Some((m.previous?, m.next)));
    let (passed, carried): (Vec<VarId>, Vec<VarId>) = passing.unzip();
    decide(&mut units, &carried, &passed);
    let Overwrites { slots, homes: over } = overwrite(&block, &same, &units, &columns)?;
    let mut homes = own_homes(&block, &units, &passed.into_iter().chain(over.keys().copied()).collect());
    homes.extend(over);
    homes.sort_by_key(|(var, _)| *var);
    let memories = memories(step, &units);
    Ok(Backward { units, same, columns, overwrites: slots, homes, memories })
}

/// Finds the variable whose memory holds a given variable, if the given variable is a part of a split, or a gradient
/// that equals another gradient.
struct Names<'a> {
    forward: &'a Forward,
    same: &'a EqualGradients,
    columns: &'a Columns,
}

impl Names<'_> {
    /// Returns the variable whose memory holds a forward value or a gradient.
    fn whole_of(&self, var: VarId) -> VarId {
        self.forward.columns.whole_of(self.columns.whole_of(var))
    }
}

/// Returns the scheduling unit of an inner loop: a backward loop inside this backward loop.
fn loop_unit(block: &GradientBlock<'_>, names: &Names<'_>, id: OpId, op: &OpDesc) -> Unit {
    let reads: Vec<VarId> = op.reads().map(|v| names.whole_of(names.same.resolve(v))).collect();
    let writes: Vec<VarId> = op.writes().collect();
    let around = || reads.iter().chain(&writes).copied();
    let foreign = around().any(|v| block.class(v) == Class::Step)
        && around().any(|v| block.forward.levels.foreign(block.source, v));
    let stepwise = op.step.as_ref().is_some_and(|inner| block.forward.stepwise.contains(&inner.block));
    let pinned = first(&[
        (mixed(block, around()), Pin::Mixed),
        (passes(block, &writes), Pin::Passes),
        (foreign, Pin::Foreign),
        (stepwise, Pin::Stepwise),
    ]);
    Unit::new(id.number, reads, writes, pinned)
}

/// Returns the scheduling units of a backward operator: one unit per gradient, so that gradients of weights can be computed
/// after the loop. An operator that reads static sub-sequences at every step can share work between its gradients, so these
/// gradients are one unit.
fn units_of(
    block: &GradientBlock<'_>,
    names: &Names<'_>,
    (id, op): (OpId, &OpDesc),
    parsed: &ParsedOp,
    units: &mut Vec<Unit>,
) -> Result<()> {
    let grads = |slot: usize| {
        let vars = op.output(&grad_name(parsed.signature.inputs[slot].name)).iter().copied();
        vars.filter(|&v| v != VarId::NONE)
    };
    for slots in together(block, names.same, op, parsed) {
        let mut reads = needed_values(&*parsed.op, op, gradient_reads(&*parsed.op, &slots, &parsed.inputs));
        for out in parsed.signature.outputs {
            let given = op.input(&grad_name(out.name)).iter().filter(|&&v| v != VarId::NONE);
            reads.extend(given.map(|&v| names.same.resolve(v)));
        }
        reads.iter_mut().for_each(|v| *v = names.whole_of(*v));
        let writes: Vec<VarId> =
            slots.iter().flat_map(|&slot| grads(slot)).map(|v| names.whole_of(v)).collect();
        let around = || reads.iter().chain(&writes).copied();
        let foreign = parsed.facts.reach == Reach::Sequence
            && around().any(|v| block.class(v) == Class::Step)
            && op.reads().any(|v| block.forward.levels.foreign(block.source, v));
        let pinned = first(&[
            (mixed(block, around()), Pin::Mixed),
            (passes(block, &writes), Pin::Passes),
            (foreign, Pin::Foreign),
        ]);
        let unit = Unit { wrt: slots, ..Unit::new(id.number, reads, writes, pinned) };
        // An operator that reads static sub-sequences at every step computes all its gradients at every step, so these
        // gradients may share work.
        let shares = parsed.facts.reach == Reach::Sequence && !parsed.hints.separate_gradients;
        let at_every_step = |unit: &Unit| unit.pinned == Some(Pin::Mixed);
        match units.last_mut().filter(|last| last.op == id.number && shares && at_every_step(last)) {
            Some(last) if at_every_step(&unit) => {
                last.wrt.extend(unit.wrt);
                last.reads.extend(unit.reads);
                last.writes.extend(unit.writes);
            }
            _ => units.push(unit),
        }
    }
    Ok(())
}

/// Groups the input slots of a backward operator; one call computes the gradients of one group. If a row-wise operator
/// shares work between its gradients, all its gradients with one row per step are in one group, since two calls would
/// do the shared work twice.
fn together(
    block: &GradientBlock<'_>,
    same: &EqualGradients,
    op: &OpDesc,
    parsed: &ParsedOp,
) -> Vec<Vec<usize>> {
    let grads = |slot: usize| op.output(&grad_name(parsed.signature.inputs[slot].name)).iter().copied();
    let (mut groups, mut rows): (Vec<Vec<usize>>, Option<usize>) = (Vec::new(), None);
    for &slot in &parsed.wanted {
        if grads(slot).any(|v| same.contains(v)) {
            continue;
        }
        let of_rows = grads(slot).filter(|&v| v != VarId::NONE).all(|v| block.class(v) == Class::Step);
        let shares = parsed.facts.reach == Reach::Row && !parsed.hints.separate_gradients && of_rows;
        match rows.and_then(|group: usize| groups.get_mut(group)).filter(|_| shares) {
            Some(group) => group.push(slot),
            None => {
                if shares {
                    rows = Some(groups.len());
                }
                groups.push(vec![slot]);
            }
        }
    }
    groups
}

/// Returns whether some of the variables have one row per sequence and others have one row per step.
fn mixed(block: &GradientBlock<'_>, vars: impl Iterator<Item = VarId>) -> bool {
    let classes: Vec<Class> = vars.map(|v| block.class(v)).collect();
    classes.contains(&Class::Sequence) && classes.contains(&Class::Step)
}

/// Returns whether an operator writes a gradient that is passed to the previous step.
fn passes(block: &GradientBlock<'_>, writes: &[VarId]) -> bool {
    block.gradient.memories.iter().filter_map(|m| m.previous).any(|previous| writes.contains(&previous))
}

/// Returns the first pin (a reason to stay in the loop) whose condition is true.
fn first(reasons: &[(bool, Pin)]) -> Option<Pin> {
    reasons.iter().find(|(holds, _)| *holds).map(|(_, pin)| *pin)
}

/// Returns the homes (places in memory) of the block's gradients, except for the gradients in `elsewhere`.
fn own_homes(
    block: &GradientBlock<'_>,
    units: &[Unit],
    elsewhere: &HashSet<VarId>,
) -> Vec<(VarId, GradientHome)> {
    let GradientBlock { source, step, gradient, .. } = *block;
    let mut kept: HashSet<VarId> = gradient.memories.iter().map(|m| m.next).collect();
    kept.extend(gradient.inputs.iter().chain(&gradient.outputs).map(|p| p.inner));
    let outside: HashSet<VarId> =
        units.iter().filter(|unit| unit.when != Timing::Body).flat_map(Unit::touches).collect();
    let mut vars: Vec<VarId> = kept.iter().copied().collect();
    vars.extend(gradient.statics.iter().map(|p| p.inner));
    vars.extend(units.iter().flat_map(|unit| &unit.writes));
    vars.sort();
    vars.dedup();
    vars.retain(|var| source.program.var(*var).block == gradient.block && !elsewhere.contains(var));
    let home = |var: VarId| match block.class(var) {
        Class::Constant => Home::Whole,
        Class::Step if kept.contains(&var) || outside.contains(&var) => Home::Stepped(step.block),
        Class::Sequence | Class::Step => Home::Sequence(step.block),
    };
    vars.into_iter().map(|var| (var, GradientHome::Own(home(var)))).collect()
}

/// Returns, for each memory, how the backward loop reads the memory's previous value.
fn memories(step: &StepDesc, units: &[Unit]) -> Vec<MemoryReads> {
    let reads = |unit: &Unit, var| unit.reads.contains(&var);
    let how = |previous: VarId| {
        let (body, outside): (Vec<&Unit>, Vec<&Unit>) =
            units.iter().filter(|unit| reads(unit, previous)).partition(|unit| unit.when == Timing::Body);
        match (body.is_empty(), outside.is_empty()) {
            (_, false) => MemoryReads::AsOneArray,
            (false, true) => MemoryReads::AtEachStep,
            (true, true) => MemoryReads::Not,
        }
    };
    step.memories.iter().map(|m| how(m.previous)).collect()
}
