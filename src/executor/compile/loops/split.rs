//! Which operators of a step block leave the loop.
//!
//! An operator runs before the loop if no memory reaches it, after it if it reaches no memory, and in the loop
//! otherwise. Nothing here knows a cell or an operator by name.

use std::collections::{HashMap, HashSet};

use crate::executor::plan::{Pin, Why};
use crate::program::VarId;

/// When an operator of a step block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// Once, before the loop.
    Before,
    /// At every step.
    Body,
    /// Once, after the loop.
    After,
}

/// A call, or the part of a backward call that computes some of its gradients.
pub(crate) struct Unit {
    /// The operator's number in the block.
    pub(crate) op: usize,
    /// The input slots whose gradients it computes.
    pub(crate) wrt: Vec<usize>,
    pub(crate) reads: Vec<VarId>,
    pub(crate) writes: Vec<VarId>,
    /// It computes offsets of levels, before the operator itself runs.
    pub(crate) levels: bool,
    /// It runs before the loop, but one step after the other.
    pub(crate) steps: bool,
    /// Why it must run at every step, whatever depends on what.
    pub(crate) pinned: Option<Pin>,
    /// Why it runs when it does; [`split`] says it.
    pub(crate) why: Why,
}

impl Unit {
    pub(crate) fn new(
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
    pub(crate) fn of_levels(op: usize, reads: Vec<VarId>) -> Self {
        Self { levels: true, ..Self::new(op, Vec::new(), reads, Vec::new(), None) }
    }
}

/// Decides for each unit, and tells it why. `carried` are the variables that come from another step, `wanted` those
/// that go to one.
pub(crate) fn split(units: &mut [Unit], carried: &[VarId], wanted: &[VarId]) -> Vec<When> {
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
pub(crate) struct Reached {
    pub(crate) op: usize,
    pub(crate) by: VarId,
}

/// Moves what decides the offsets of levels before the loop, where it runs step by step if it cannot run at once.
///
/// # Errors
/// If it depends on what comes from another step, one of `carried`.
pub(crate) fn early(units: &mut [Unit], when: &mut [When], carried: &[VarId]) -> Result<(), Reached> {
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
