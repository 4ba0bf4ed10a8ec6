//! Computes values of a step block in the array of another value. For example, `x·W + h·U` is one array, to which each
//! step adds the second product; and the gradients of a cell's inputs may overwrite the inputs.
//!
//! A value and the value that is added to it share one array, like a split and its parts (the module `views`). The results are
//! bit-identical to results in two arrays: the product is summed completely before it is added to the first term.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::block::{EqualGradients, Forward, GradientBlock, GradientHome, StepBlock};
use super::columns::Columns;
use super::when::{Timing, Unit};
use crate::error::Result;
use crate::executor::compile::source::Source;
use crate::executor::plan::{Home, OpId};
use crate::executor::rewrite::classes::Class;
use crate::operator::{BlockId, VarId};
use crate::program::grad_name;

/// For each variable, the numbers of the units that read the variable, or of the units that write it.
type Numbers = HashMap<VarId, Vec<usize>>;

/// A unit that uses a variable: the time of the unit, the number of its operator, and the number of the unit.
type User = (Timing, usize, usize);

/// For each variable, the units that read the variable and the units that write it, in the order in which the units
/// run.
struct Users {
    reads: HashMap<VarId, BTreeSet<User>>,
    writes: HashMap<VarId, BTreeSet<User>>,
}

impl Users {
    fn of(units: &[Unit], without: &HashSet<usize>) -> Self {
        let mut users = Self { reads: HashMap::new(), writes: HashMap::new() };
        for (i, unit) in units.iter().enumerate().filter(|(i, _)| !without.contains(i)) {
            let user = (unit.when, unit.op, i);
            for &var in &unit.reads {
                users.reads.entry(var).or_default().insert(user);
            }
            for &var in &unit.writes {
                users.writes.entry(var).or_default().insert(user);
            }
        }
        users
    }

    fn readers(&self, var: VarId) -> impl Iterator<Item = &User> {
        self.reads.get(&var).into_iter().flatten()
    }

    fn writers(&self, var: VarId) -> impl Iterator<Item = &User> {
        self.writes.get(&var).into_iter().flatten()
    }

    /// Updates the index after an addition was merged. The unit `gone` of the addition is removed, the unit `adder` also reads
    /// `whole`, and the variables `vars` are renamed to `whole`.
    fn renamed(
        &mut self,
        units: &mut [Unit],
        (gone, adder): (User, User),
        (vars, whole): ([VarId; 2], VarId),
    ) {
        let Unit { reads, writes, .. } = &units[gone.2];
        for (all, own) in [(&mut self.reads, reads), (&mut self.writes, writes)] {
            for var in own {
                all.get_mut(var).map(|users| users.remove(&gone));
            }
        }
        self.reads.entry(whole).or_default().insert(adder);
        let rename = |var: &mut VarId| *var = if vars.contains(var) { whole } else { *var };
        for var in vars {
            if let Some(users) = self.reads.remove(&var) {
                users.iter().for_each(|user| units[user.2].reads.iter_mut().for_each(rename));
                self.reads.entry(whole).or_default().extend(users);
            }
            if let Some(users) = self.writes.remove(&var) {
                users.iter().for_each(|user| units[user.2].writes.iter_mut().for_each(rename));
                self.writes.entry(whole).or_default().extend(users);
            }
        }
    }
}

/// The two terms of an addition, and the sum.
struct Sum {
    terms: [VarId; 2],
    out: VarId,
}

/// Merges each addition into the operator that computes one of its terms. The operator adds this term to the buffer of
/// the other term, and the addition's unit is removed. The times of the remaining units (before, in or after the loop)
/// are not decided again: otherwise a unit that reads a value before the addition could move behind the addition.
pub(super) fn add_in_place(block: &StepBlock<'_>, found: &mut Forward) {
    let mut done: HashSet<usize> = HashSet::new();
    let mut users = Users::of(&found.units, &done);
    for addition in 0..found.units.len() {
        let id = OpId { block: block.step.block, number: found.units[addition].op };
        let Some(Sum { terms: [x, y], out }) = sum(block.source, id) else { continue };
        for (term, to) in [(y, x), (x, y)] {
            let whole = found.columns.whole_of(to);
            let Some(adder) = adder(block, found, &users, addition, Sum { terms: [term, to], out }) else {
                continue;
            };
            // Variables that are columns of the sum become columns of the whole variable.
            for part in found.columns.parts_of(out).collect::<Vec<_>>() {
                let (_, column) = found.columns.position_of(part);
                found.columns.view(part, (whole, column));
            }
            for var in [term, out] {
                found.columns.view(var, (whole, 0));
            }
            if found.saved.contains(&out) {
                found.saved.insert(whole);
            }
            found.adds.insert(found.units[adder.2].op);
            found.units[adder.2].reads.push(whole);
            if done.is_empty() {
                for unit in &mut found.units {
                    let vars = unit.reads.iter_mut().chain(&mut unit.writes);
                    vars.for_each(|v| *v = found.columns.whole_of(*v));
                }
                done.insert(addition);
                users = Users::of(&found.units, &done);
            } else {
                done.insert(addition);
                let gone = (found.units[addition].when, found.units[addition].op, addition);
                users.renamed(&mut found.units, (gone, adder), ([term, out], whole));
            }
            break;
        }
    }
    let mut number = 0..;
    found.units.retain(|_| !number.next().is_some_and(|i| done.contains(&i)));
}

/// Returns the unit that computes the first term and can add it to the second term; `None` if the first term cannot be
/// added in place.
fn adder(
    block: &StepBlock<'_>,
    found: &Forward,
    users: &Users,
    addition: usize,
    Sum { terms: [term, to], out }: Sum,
) -> Option<User> {
    let (source, program) = (block.source, block.source.program);
    let whole = found.columns.whole_of(to);
    let alone = |var: VarId| {
        found.classes.get(program, var) == Class::Step
            && !block.leaving.contains(&var)
            && !source.in_a_loop(block.step.block, var)
    };
    let others = |user: &&User| user.2 != addition;
    let writers: Vec<User> = users.writers(term).filter(others).take(2).copied().collect();
    let &[adder] = &writers[..] else { return None };
    let last = |all: Option<&BTreeSet<User>>| {
        let mut last = all.into_iter().flatten().rev().filter(others);
        last.next().map(|&(time, op, _)| (time, op))
    };
    let uses = last(users.writes.get(&whole)).max(last(users.reads.get(&whole)));
    let fits = [term, to, out, found.columns.whole_of(term), whole].into_iter().all(alone)
        && found.columns.whole_of(term) == term
        && term != whole
        && program.var(whole).spec() == program.var(term).spec()
        && !found.saved.contains(&term)
        && !found.saved.contains(&whole)
        && accumulates(source, OpId { block: block.step.block, number: adder.1 })
        && found.columns.parts_of(term).next().is_none()
        && !users.readers(term).any(|user| others(&user))
        && users.writers(whole).any(|user| others(&user))
        && uses.is_none_or(|last| last < (adder.0, adder.1));
    fits.then_some(adder)
}

/// Returns the terms and the sum of an addition; `None` if the operator is not an addition.
fn sum(source: &Source<'_>, id: OpId) -> Option<Sum> {
    let (op, parsed) = (source.desc(id), source.parsed(id)?);
    let (inputs, outputs): (Vec<VarId>, Vec<VarId>) = (op.reads().collect(), op.writes().collect());
    let (&[x, y], &[out]) = (&inputs[..], &outputs[..]) else { return None };
    let alike = source.program.var(x).spec() == source.program.var(y).spec();
    (parsed.hints.sums && alike && x != y).then_some(Sum { terms: [x, y], out })
}

/// Returns whether an operator has one output and can add it to the existing contents of a buffer.
fn accumulates(source: &Source<'_>, id: OpId) -> bool {
    let parsed = source.parsed(id).filter(|_| source.desc(id).writes().count() == 1);
    parsed.is_some_and(|parsed| parsed.hints.accumulates)
}

/// The gradients that overwrite forward values: pairs of operator and input slot, and the home of each such gradient.
#[derive(Default)]
pub(super) struct Overwrites {
    pub(super) slots: HashSet<(usize, usize)>,
    pub(super) homes: HashMap<VarId, GradientHome>,
}

/// Lets a backward operator write a gradient over a forward value that no other backward operator reads.
pub(super) fn overwrite(
    block: &GradientBlock<'_>,
    same: &EqualGradients,
    units: &[Unit],
    columns: &Columns,
) -> Result<Overwrites> {
    let GradientBlock { source, step, gradient, forward, .. } = *block;
    let program = source.program;
    let pairs = step.inputs.iter().chain(&step.outputs).chain(&step.statics);
    let mut shared: HashSet<VarId> = pairs.map(|p| p.inner).chain(block.leaving.iter().copied()).collect();
    shared.extend(step.memories.iter().flat_map(|m| [m.next, m.previous]));
    let homes: HashMap<VarId, Home> = forward.homes.iter().copied().collect();
    let (mut readers, mut writers): (Numbers, Numbers) = Default::default();
    for (number, unit) in units.iter().enumerate() {
        unit.reads.iter().for_each(|&var| readers.entry(var).or_default().push(number));
        unit.writes.iter().for_each(|&var| writers.entry(var).or_default().push(number));
    }
    let mut overwrites = Overwrites::default();
    for (number, unit) in units.iter().enumerate().filter(|(_, unit)| !unit.wrt.is_empty()) {
        let id = OpId { block: gradient.block, number: unit.op };
        let (op, Some(parsed)) = (source.desc(id), source.parsed(id)) else { continue };
        let over = |slot: usize| parsed.op.gradient(slot, &parsed.inputs).overwrites;
        for &slot in unit.wrt.iter().filter(|&&slot| over(slot)) {
            let name = parsed.signature.inputs[slot].name;
            let (&[value], &[result]) = (op.input(name), op.output(&grad_name(name))) else { continue };
            let whole = forward.columns.whole_of(value);
            let own = |var: VarId, lists: BlockId| {
                program.var(var).block == lists
                    && block.class(var) == Class::Step
                    && !shared.contains(&var)
                    && !source.in_a_loop(lists, var)
            };
            let others = |lists: &Numbers, var| lists.get(&var).into_iter().flatten().any(|i| *i != number);
            let fits = own(value, step.block)
                && own(whole, step.block)
                && own(result, gradient.block)
                && program.spec(whole)?.width() == program.spec(value)?.width()
                && columns.whole_of(result) == result
                && !same.contains(result)
                && op.reads().filter(|&v| forward.columns.whole_of(v) == whole).count() == 1
                && !others(&readers, whole)
                && !others(&writers, result)
                && homes.get(&whole) == Some(&Home::Stepped(step.block));
            if fits {
                overwrites.homes.insert(result, GradientHome::Over(whole));
                overwrites.slots.insert((unit.op, slot));
            }
        }
    }
    Ok(overwrites)
}
