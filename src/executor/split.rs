//! Which operators of a step block leave the loop.
//!
//! An operator runs before the loop if no memory reaches it, after it if it reaches no memory, and in the loop
//! otherwise. Nothing here knows a cell or an operator by name.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::program::{Extent, Program, VarId};

/// What a variable of a step block has rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// No rows of the batch: the same at every step.
    Constant,
    /// Each sequence, the same at every step.
    Sequence,
    /// Each entry of each sequence.
    Step,
}

/// When an operator of a step block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// Once, before the loop.
    Before,
    /// At every step.
    Body,
    /// Once, after the loop.
    After,
}

/// A call, or the part of a backward call that computes some of its gradients.
pub(super) struct Unit {
    /// The operator's number in the block.
    pub(super) op: usize,
    /// The input slots whose gradients it computes.
    pub(super) wrt: Vec<usize>,
    pub(super) reads: Vec<VarId>,
    pub(super) writes: Vec<VarId>,
    /// It computes offsets of levels, before the operator itself runs.
    pub(super) levels: bool,
    /// It runs before the loop, but one step after the other.
    pub(super) steps: bool,
    /// Why it must run at every step, whatever depends on what.
    pub(super) pinned: Option<Pin>,
    /// Why it runs when it does; [`split`] says it.
    pub(super) why: Why,
}

impl Unit {
    pub(super) fn new(
        op: usize,
        wrt: Vec<usize>,
        reads: Vec<VarId>,
        writes: Vec<VarId>,
        pinned: Option<Pin>,
    ) -> Self {
        Self { op, wrt, reads, writes, levels: false, steps: false, pinned, why: Why::Apart }
    }
}

impl Unit {
    /// The call that computes offsets from `reads`.
    pub(super) fn of_levels(op: usize, reads: Vec<VarId>) -> Self {
        Self { levels: true, ..Self::new(op, Vec::new(), reads, Vec::new(), None) }
    }
}

/// Why an operator of a step block runs when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing that differs from step to step by another step's doing reaches it.
    Apart,
    /// The first variable reaches it: it comes from another step, or is computed at every step. And it reaches the
    /// second, which goes to another step or is read at every step.
    Between(VarId, VarId),
    /// The variable reaches it, and no step needs what it computes.
    Sinks(VarId),
    /// For a reason of its own.
    Pinned(Pin),
    /// Offsets of sequences that are made in the step depend on it, so that it runs before the loop.
    Decides,
}

/// Why an operator stays in the loop, whatever depends on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// It reads or writes rows of sequences and rows of steps.
    Mixed,
    /// It has a row a sequence, but its loop runs many times in a loop around it, and the values of every visit are
    /// needed again.
    Repeated,
    /// It has a row a sequence, but leaves the step, where every entry has one.
    Leaves,
    /// It has a row a sequence, but draws other random numbers at every step.
    Random,
    /// It makes sequences of what is the same at every step.
    Makes,
    /// Its sequences are not those of a step input, so that there is no LoD over all steps.
    Foreign,
    /// It writes what a step passes to another.
    Passes,
    /// A loop that runs inside the step.
    Stepwise,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pin::Mixed => "mixes rows of sequences with rows of steps",
            Pin::Repeated => "has a row a sequence, but each visit of the loop around has its own",
            Pin::Leaves => "has a row a sequence, but leaves the step, where every entry has one",
            Pin::Random => "has a row a sequence, but draws other numbers at every step",
            Pin::Makes => "makes other sequences at every step",
            Pin::Foreign => "its sequences have no LoD over all steps at once",
            Pin::Passes => "writes what the step passes on",
            Pin::Stepwise => "a loop that a memory reaches runs inside the step",
        })
    }
}

/// Decides for each unit, and tells it why. `carried` are the variables that come from another step, `wanted` those
/// that go to one.
pub(super) fn split(units: &mut [Unit], carried: &[VarId], wanted: &[VarId]) -> Vec<When> {
    // Each variable with the one that makes it depend on other steps.
    let mut dependent: HashMap<VarId, VarId> = carried.iter().map(|&v| (v, v)).collect();
    let mut depends = vec![None; units.len()];
    // A gradient may be written by several units, so one pass in order is not enough.
    loop {
        let before = dependent.len();
        for (i, unit) in units.iter().enumerate() {
            let own = unit.pinned.and_then(|_| unit.writes.first().copied());
            depends[i] = own.or_else(|| unit.reads.iter().find_map(|v| dependent.get(v).copied()));
            if let Some(from) = depends[i] {
                for &v in &unit.writes {
                    dependent.entry(v).or_insert(from);
                }
            }
        }
        if dependent.len() == before {
            break;
        }
    }
    let mut needed: HashMap<VarId, VarId> = wanted.iter().map(|&v| (v, v)).collect();
    let mut needs = vec![None; units.len()];
    loop {
        let before = needed.len();
        for (i, unit) in units.iter().enumerate().rev() {
            let own = unit.pinned.and_then(|_| unit.writes.first().copied());
            needs[i] = own.or_else(|| unit.writes.iter().find_map(|v| needed.get(v).copied()));
            if let Some(to) = needs[i] {
                for &v in &unit.reads {
                    needed.entry(v).or_insert(to);
                }
            }
        }
        if needed.len() == before {
            break;
        }
    }
    let mut when = Vec::with_capacity(units.len());
    for (i, unit) in units.iter_mut().enumerate() {
        let decided = match (unit.pinned, depends[i], needs[i]) {
            (Some(pin), _, _) => (When::Body, Why::Pinned(pin)),
            (None, None, _) => (When::Before, Why::Apart),
            (None, Some(from), Some(to)) => (When::Body, Why::Between(from, to)),
            (None, Some(from), None) => (When::After, Why::Sinks(from)),
        };
        unit.why = decided.1;
        when.push(decided.0);
    }
    when
}

/// A memory reaches what decides offsets: the operator that makes them, and the memory's previous value.
pub(super) struct Reached {
    pub(super) op: usize,
    pub(super) by: VarId,
}

/// Moves what decides the offsets of levels before the loop, where it runs step by step if it cannot run at once.
///
/// # Errors
/// If it depends on what comes from another step, one of `carried`.
pub(super) fn early(units: &mut [Unit], when: &mut [When], carried: &[VarId]) -> Result<(), Reached> {
    if !units.iter().any(|unit| unit.levels) {
        return Ok(());
    }
    let carried: HashSet<VarId> = carried.iter().copied().collect();
    let mut writers: HashMap<VarId, Vec<usize>> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        unit.writes.iter().for_each(|&var| writers.entry(var).or_default().push(i));
    }
    for of in 0..units.len() {
        if !units[of].levels {
            continue;
        }
        let mut due = vec![of];
        while let Some(i) = due.pop() {
            if when[i] == When::Before {
                continue;
            }
            if let Some(&by) = units[i].reads.iter().find(|v| carried.contains(v)) {
                return Err(Reached { op: units[of].op, by });
            }
            when[i] = When::Before;
            let unit = &mut units[i];
            (unit.steps, unit.why) = (!unit.levels, Why::Decides);
            let wrote = unit.reads.iter().filter_map(|var| writers.get(var));
            let mut wrote: Vec<usize> = wrote.flatten().copied().collect();
            wrote.sort_unstable();
            wrote.dedup();
            due.extend(wrote);
        }
    }
    Ok(())
}

/// The class of every variable that a step block and its gradient block use.
pub(super) struct Classes(HashMap<VarId, Class>);

impl Classes {
    /// Starts with the static inputs.
    pub(super) fn new(statics: impl Iterator<Item = VarId>) -> Self {
        Self(statics.map(|v| (v, Class::Sequence)).collect())
    }

    /// Sets a variable's class.
    pub(super) fn set(&mut self, var: VarId, class: Class) {
        self.0.insert(var, class);
    }

    /// A variable's class: what was set, else by its rows.
    pub(super) fn get(&self, program: &Program, var: VarId) -> Class {
        if let Some(&class) = self.0.get(&var) {
            return class;
        }
        let rows = program.var(var).spec().map_or(Extent::Known(1), |s| s.rows());
        if rows.known().is_some() { Class::Constant } else { Class::Step }
    }

    /// The class of what is computed from `reads`, and whether they mix rows of sequences with rows of steps.
    pub(super) fn of(&self, program: &Program, reads: &[VarId]) -> (Class, bool) {
        let of: Vec<Class> = reads.iter().map(|&v| self.get(program, v)).collect();
        match (of.contains(&Class::Sequence), of.contains(&Class::Step)) {
            (true, true) => (Class::Step, true),
            (false, true) => (Class::Step, false),
            (true, false) => (Class::Sequence, false),
            (false, false) => (Class::Constant, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_projection_leaves_and_so_does_the_output_projection() {
        // 0 = x, 1 = h_prev, 2 = x·W, 3 = h_prev·U, 4 = h, 5 = h·V
        let unit = |op, reads: &[u32], write| {
            Unit::new(op, Vec::new(), reads.iter().map(|&v| VarId(v)).collect(), vec![VarId(write)], None)
        };
        let mut units = [unit(0, &[0], 2), unit(1, &[1], 3), unit(2, &[2, 3], 4), unit(3, &[4], 5)];
        let when = split(&mut units, &[VarId(1)], &[VarId(4)]);
        assert_eq!(when, [When::Before, When::Body, When::Body, When::After]);
        let between = Why::Between(VarId(1), VarId(4));
        assert_eq!(units.map(|u| u.why), [Why::Apart, between, between, Why::Sinks(VarId(1))]);
    }
}
