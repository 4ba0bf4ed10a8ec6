//! Decides which operators of a step block leave the loop.
//!
//! An operator runs before the loop if it depends on no memory, after the loop if no memory depends on the operator, and in the
//! loop otherwise. The decision uses only dependencies: this module has no rule for a kind of operator or cell.

use std::collections::{HashMap, HashSet};

use crate::executor::plan::{Pin, TimingReason};
use crate::operator::VarId;

/// The time at which an operator of a step block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timing {
    /// The operator runs before the loop: once, or step by step ([`Unit::steps`]).
    Before,
    /// The operator runs at every step of the loop.
    Body,
    /// The operator runs once, after the loop.
    After,
}

/// A unit of scheduling: an operator of a step block; a backward operator can have several units, each for some of its
/// gradients.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// The number of the unit's operator in the block.
    pub(crate) op: usize,
    /// The input slots whose gradients the unit computes; empty for a forward operator.
    pub(crate) wrt: Vec<usize>,
    pub(crate) reads: Vec<VarId>,
    pub(crate) writes: Vec<VarId>,
    pub(crate) does: UnitWork,
    /// Whether the unit runs before the loop but step by step, once for each step.
    pub(crate) steps: bool,
    /// The reason why the unit must run at every step, whatever its dependencies; `None` if the dependencies decide.
    pub(crate) pinned: Option<Pin>,
    /// The time at which the unit runs, and the reason; [`decide`] sets both.
    pub(crate) when: Timing,
    pub(crate) why: TimingReason,
}

/// The work of a unit: the call of its operator, or the levels that the operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitWork {
    /// The unit is the call of the operator.
    Computes,
    /// The unit computes the offsets of the levels that the operator makes. The offsets are computed before the call, since the
    /// size of the call's output depends on them.
    MakesLevels,
}

impl Unit {
    /// Makes the unit of a forward operator, or of a whole inner loop.
    pub(crate) fn new(op: usize, reads: Vec<VarId>, writes: Vec<VarId>, pinned: Option<Pin>) -> Self {
        let (does, when, why) = (UnitWork::Computes, Timing::Before, TimingReason::Apart);
        Self { op, wrt: Vec::new(), reads, writes, does, steps: false, pinned, when, why }
    }

    /// Makes the unit that computes an operator's offsets from the variables `reads`.
    pub(crate) fn of_levels(op: usize, reads: Vec<VarId>) -> Self {
        Self { does: UnitWork::MakesLevels, ..Self::new(op, reads, Vec::new(), None) }
    }

    /// Returns the variables that the unit reads or writes.
    pub(crate) fn touches(&self) -> impl Iterator<Item = VarId> {
        self.reads.iter().chain(&self.writes).copied()
    }
}

/// Decides whether each unit runs before, in or after the loop, and records the reason. `carried` holds the variables that come
/// from another step, and `wanted` the variables that another step needs.
pub(crate) fn decide(units: &mut [Unit], carried: &[VarId], wanted: &[VarId]) {
    // Maps each variable that depends on another step to the variable through which it depends on that step.
    let mut dependent: HashMap<VarId, VarId> = carried.iter().map(|&v| (v, v)).collect();
    let mut depends = vec![None; units.len()];
    // Several units may write one gradient, so a variable may become dependent after a unit that reads it was visited.
    // The loop therefore repeats until nothing changes.
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
    for (i, unit) in units.iter_mut().enumerate() {
        (unit.when, unit.why) = match (unit.pinned, depends[i], needs[i]) {
            (Some(pin), _, _) => (Timing::Body, TimingReason::Pinned(pin)),
            (None, None, _) => (Timing::Before, TimingReason::Apart),
            (None, Some(from), Some(to)) => (Timing::Body, TimingReason::Between(from, to)),
            (None, Some(from), None) => (Timing::After, TimingReason::Sinks(from)),
        };
    }
}

/// The error if the offsets of a level depend on a memory. It has the number `op` of the operator that makes the level, and the
/// variable `by` of another step that the offsets depend on.
pub(crate) struct ReachedOffsets {
    pub(crate) op: usize,
    pub(crate) by: VarId,
}

/// Moves units before the loop: the units that compute offsets of levels, and all units on which they depend. A moved unit runs
/// step by step if it cannot run for all steps at once.
///
/// # Errors
/// Fails if offsets depend on a unit that reads a variable from another step (one of `carried`).
pub(crate) fn early(units: &mut [Unit], carried: &[VarId]) -> Result<(), ReachedOffsets> {
    if !units.iter().any(|unit| unit.does == UnitWork::MakesLevels) {
        return Ok(());
    }
    let carried: HashSet<VarId> = carried.iter().copied().collect();
    let mut writers: HashMap<VarId, Vec<usize>> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        unit.writes.iter().for_each(|&var| writers.entry(var).or_default().push(i));
    }
    for first_unit in 0..units.len() {
        if units[first_unit].does != UnitWork::MakesLevels {
            continue;
        }
        let mut due = vec![first_unit];
        while let Some(i) = due.pop() {
            if units[i].when == Timing::Before {
                continue;
            }
            if let Some(&by) = units[i].reads.iter().find(|v| carried.contains(v)) {
                return Err(ReachedOffsets { op: units[first_unit].op, by });
            }
            let unit = &mut units[i];
            (unit.when, unit.why) = (Timing::Before, TimingReason::Decides);
            unit.steps = unit.does == UnitWork::Computes;
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
        // The variables are 0 = x, 1 = h_prev, 2 = x·W, 3 = h_prev·U, 4 = h, 5 = h·V.
        let unit = |op, reads: &[u32], write| {
            Unit::new(op, reads.iter().map(|&v| VarId(v)).collect(), vec![VarId(write)], None)
        };
        let mut units = [unit(0, &[0], 2), unit(1, &[1], 3), unit(2, &[2, 3], 4), unit(3, &[4], 5)];
        decide(&mut units, &[VarId(1)], &[VarId(4)]);
        assert_eq!(
            units.clone().map(|u| u.when),
            [Timing::Before, Timing::Body, Timing::Body, Timing::After]
        );
        let between = TimingReason::Between(VarId(1), VarId(4));
        assert_eq!(
            units.map(|u| u.why),
            [TimingReason::Apart, between, between, TimingReason::Sinks(VarId(1))]
        );
    }
}
