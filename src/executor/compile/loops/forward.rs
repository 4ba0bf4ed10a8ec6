//! The analysis of a step block: decides when its operators run, and where their results are stored.

use std::collections::HashSet;

use super::block::{Forward, StepBlock, Visits};
use super::columns::Columns;
use super::in_place::add_in_place;
use super::levels::StepLevels;
use super::pins::{draws, stays};
use super::views::view_outputs;
use super::when::{ReachedOffsets, Timing, Unit, decide, early};
use crate::error::Result;
use crate::executor::compile::saved::SavedValues;
use crate::executor::compile::source::Source;
use crate::executor::plan::{Home, OpId, Pin};
use crate::executor::rewrite::classes::{Class, Classes};
use crate::operator::VarId;
use crate::program::{StepDesc, decided_late};

/// Analyses a step block. `visits` is how often the loop of the step block runs in a run: once or many times.
///
/// # Errors
/// Fails if an operator cannot run in a step block, or if the offsets of sequences depend on a memory.
pub(crate) fn forward(
    source: &Source<'_>,
    saved: &SavedValues,
    step: &StepDesc,
    visits: Visits,
) -> Result<Forward> {
    let block = StepBlock::new(source, step);
    let mut found = Forward {
        visits,
        classes: Classes::new(step.statics.iter().map(|p| p.inner)),
        levels: StepLevels::new(source, step)?,
        units: Vec::new(),
        columns: Columns::default(),
        adds: HashSet::new(),
        saved: saved.clone(),
        homes: Vec::new(),
        spread: HashSet::new(),
        stepwise: HashSet::new(),
    };
    for (id, _) in block.ops() {
        classify(&block, id, &mut found)?;
    }
    times(&block, &mut found)?;
    add_in_place(&block, &mut found);
    let inside = |unit: &&Unit| unit.when == Timing::Body || unit.steps;
    let ops = &source.program.block(step.block).ops;
    let loops = found.units.iter().filter(inside).filter_map(|unit| ops[unit.op].step.as_ref());
    found.stepwise = loops.map(|inner| inner.block).collect();
    homes(&block, &mut found);
    Ok(found)
}

/// Analyses one operator: the class of its rows, whether it needs a call, and the reason why it must stay in the loop (`None`
/// if it need not).
fn classify(block: &StepBlock<'_>, id: OpId, found: &mut Forward) -> Result<()> {
    let source = block.source;
    let op = source.desc(id);
    let reads: Vec<VarId> = op.reads().map(|v| found.columns.whole_of(v)).collect();
    let (class, mixed) = found.classes.of(source.program, &reads);
    if class == Class::Step && view_outputs(block, id, &mut found.columns, &mut found.saved) {
        op.writes().for_each(|v| found.classes.set(v, class));
        return Ok(());
    }
    if let Some(decides) = found.levels.make(source, id, class, &found.columns)? {
        found.units.push(Unit::of_levels(id.number, decides));
    }
    let stays = stays(source, &found.levels, id, class)?;
    let pinned = mixed.then_some(Pin::Mixed).or(again(block, id, class, found.visits)).or(stays);
    let class = if pinned.is_some() && class != Class::Constant { Class::Step } else { class };
    op.writes().for_each(|v| found.classes.set(v, class));
    found.units.push(Unit::new(id.number, reads, op.writes().collect(), pinned));
    Ok(())
}

/// Returns the reason why an operator with one row per sequence must still run at every step; `None` if it can run
/// once. A loop inside a loop runs many times, and each run would overwrite a result that is computed once per
/// sequence; the backward pass needs the results of all runs. A variable that leaves the step has one row for each
/// entry of a sequence, so its operator must run at every step. An operator that draws random numbers must draw new
/// numbers at each step.
fn again(block: &StepBlock<'_>, id: OpId, class: Class, visits: Visits) -> Option<Pin> {
    if class != Class::Sequence {
        return None;
    }
    if visits == Visits::Many {
        return Some(Pin::Repeated);
    }
    if block.source.desc(id).writes().any(|v| block.leaving.contains(&v)) {
        return Some(Pin::Leaves);
    }
    draws(block.source, id).then_some(Pin::Random)
}

/// Decides whether each scheduling unit of a step block runs before, in or after the loop.
fn times(block: &StepBlock<'_>, found: &mut Forward) -> Result<()> {
    let StepBlock { source, step, .. } = *block;
    let carried: Vec<VarId> = step.memories.iter().map(|m| m.previous).collect();
    let nexts: Vec<VarId> = step.memories.iter().map(|m| m.next).collect();
    let ops = &source.program.block(step.block).ops;
    // A value that is computed before the loop, or rounded after it, would be stored for all steps before it is rounded.
    let of_steps = |var: &VarId| {
        source.is_rounded_in_steps(*var) && found.classes.get(source.program, *var) == Class::Step
    };
    for unit in found.units.iter_mut().filter(|unit| unit.reads.iter().chain(&unit.writes).any(of_steps)) {
        unit.pinned = unit.pinned.or(Some(Pin::Rounds));
    }
    decide(&mut found.units, &carried, &nexts);
    // An inner loop runs either once for all steps or once per step, in the backward pass as in the forward pass;
    // otherwise the backward pass would not find the saved values. An inner loop after the outer loop depends on a
    // memory of the outer loop. The gradient of this memory forces the backward inner loop to run once per step, so the
    // forward inner loop must run once per step, too.
    for unit in found.units.iter_mut().filter(|unit| unit.when == Timing::After) {
        if ops[unit.op].step.is_some() {
            unit.pinned = unit.pinned.or(Some(Pin::Stepwise));
        }
    }
    // So would a value that is stored in bf16 outside of the loop.
    let in_steps = |unit: &&Unit| unit.when == Timing::Body;
    let computed: HashSet<VarId> =
        found.units.iter().filter(in_steps).flat_map(|unit| unit.writes.iter().copied()).collect();
    for unit in found.units.iter_mut().filter(|unit| unit.when == Timing::After) {
        if unit.reads.iter().any(|&var| source.given(var) != var && computed.contains(&var)) {
            unit.pinned = unit.pinned.or(Some(Pin::Rounds));
        }
    }
    decide(&mut found.units, &carried, &nexts);
    early(&mut found.units, &carried).map_err(|ReachedOffsets { op, by }| {
        let place = source.place(OpId { block: step.block, number: op });
        decided_late(&source.program.var(by).name).at(place)
    })
}

/// Decides the place in memory (home) of each variable that the block computes. A variable that is used only in the loop, and
/// not by the backward pass, needs the rows of one step only.
fn homes(block: &StepBlock<'_>, found: &mut Forward) {
    let outside: HashSet<VarId> =
        found.units.iter().filter(|unit| unit.when != Timing::Body).flat_map(Unit::touches).collect();
    let mut seen = HashSet::new();
    for &var in found.units.iter().flat_map(|unit| &unit.writes).filter(|&&var| seen.insert(var)) {
        let kept = block.leaving.contains(&var) || found.saved.contains(&var) || outside.contains(&var);
        let home = match found.classes.get(block.source.program, var) {
            Class::Constant => Home::Whole,
            Class::Step if kept => Home::Stepped(block.step.block),
            Class::Sequence | Class::Step => Home::Sequence(block.step.block),
        };
        found.homes.push((var, home));
    }
    let after = found.units.iter().filter(|unit| unit.when == Timing::After);
    let read: HashSet<VarId> = after.flat_map(|unit| unit.reads.iter().copied()).collect();
    let previous = block.step.memories.iter().map(|m| m.previous);
    found.spread = previous.filter(|previous| read.contains(previous)).collect();
}
