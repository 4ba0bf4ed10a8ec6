//! Decides which operators of a step block leave the loop.
//!
//! An operator runs before the loop if it depends on no memory, after the loop if no memory depends on it, and in the loop
//! otherwise. This module does not know the kind of any operator or cell.

use std::collections::{HashMap, HashSet};

use crate::executor::plan::{Pin, TimingReason};
use crate::operator::VarId;

/// The time at which an operator of a step block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timing {
    /// Once, before the loop.
    Before,
    /// At every step.
    Body,
    /// Once, after the loop.
    After,
}

/// A unit of scheduling: an operator of a step block, or, for a backward operator, some of its gradients.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// The operator's number in the block.
    pub(crate) op: usize,
    /// The input slots whose gradients it computes.
    pub(crate) wrt: Vec<usize>,
    pub(crate) reads: Vec<VarId>,
    pub(crate) writes: Vec<VarId>,
    pub(crate) does: UnitWork,
    /// Whether the unit runs before the loop, once for each step.
    pub(crate) steps: bool,
    /// The reason why it must run at every step, whatever its dependencies.
    pub(crate) pinned: Option<Pin>,
    /// The time at which it runs, with the reason, set by [`decide`].
    pub(crate) when: Timing,
    pub(crate) why: TimingReason,
}

/// The part of its operator's work that a unit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitWork {
    /// The call of the operator.
    Computes,
    /// The offsets of the levels that the operator makes. They are computed before the call, since the size of its output depends
    /// on them.
    MakesLevels,
}

impl Unit {
    /// The unit of a forward operator, or of a whole loop.
    pub(crate) fn new(op: usize, reads: Vec<VarId>, writes: Vec<VarId>, pinned: Option<Pin>) -> Self {
        let (does, when, why) = (UnitWork::Computes, Timing::Before, TimingReason::Apart);
        Self { op, wrt: Vec::new(), reads, writes, does, steps: false, pinned, when, why }
    }

    /// The unit of the call that computes offsets from `reads`.
    pub(crate) fn of_levels(op: usize, reads: Vec<VarId>) -> Self {
        Self { does: UnitWork::MakesLevels, ..Self::new(op, reads, Vec::new(), None) }
    }

    /// The variables that it reads and writes.
    pub(crate) fn touches(&self) -> impl Iterator<Item = VarId> {
        self.reads.iter().chain(&self.writes).copied()
    }
}

/// Decides when each unit runs, and records the reason. `carried` are the variables that come from another step, `wanted`
/// the variables that another step needs.
pub(crate) fn decide(units: &mut [Unit], carried: &[VarId], wanted: &[VarId]) {
    // Each variable with the variable that makes it depend on other steps.
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
    for (i, unit) in units.iter_mut().enumerate() {
        (unit.when, unit.why) = match (unit.pinned, depends[i], needs[i]) {
            (Some(pin), _, _) => (Timing::Body, TimingReason::Pinned(pin)),
            (None, None, _) => (Timing::Before, TimingReason::Apart),
            (None, Some(from), Some(to)) => (Timing::Body, TimingReason::Between(from, to)),
            (None, Some(from), None) => (Timing::After, TimingReason::Sinks(from)),
        };
    }
}

/// The error that offsets depend on a memory: the operator that makes the offsets, and the memory's previous value.
pub(crate) struct ReachedOffsets {
    pub(crate) op: usize,
    pub(crate) by: VarId,
}

/// Moves the units that decide the offsets of levels before the loop, where they run step by step if they cannot run at once.
///
/// # Errors
/// If such a unit depends on a variable from another step, one of `carried`.
pub(crate) fn early(units: &mut [Unit], carried: &[VarId]) -> Result<(), ReachedOffsets> {
    if !units.iter().any(|unit| unit.does == UnitWork::MakesLevels) {
        return Ok(());
    }
    let carried: HashSet<VarId> = carried.iter().copied().collect();
    let mut writers: HashMap<VarId, Vec<usize>> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        unit.writes.iter().for_each(|&var| writers.entry(var).or_default().push(i));
    }
    for of in 0..units.len() {
        if units[of].does != UnitWork::MakesLevels {
            continue;
        }
        let mut due = vec![of];
        while let Some(i) = due.pop() {
            if units[i].when == Timing::Before {
                continue;
            }
            if let Some(&by) = units[i].reads.iter().find(|v| carried.contains(v)) {
                return Err(ReachedOffsets { op: units[of].op, by });
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
        // 0 = x, 1 = h_prev, 2 = x·W, 3 = h_prev·U, 4 = h, 5 = h·V
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
