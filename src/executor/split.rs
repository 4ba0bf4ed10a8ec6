//! Which operators of a step block leave the loop.
//!
//! An operator runs before the loop if no memory reaches it, after it if it reaches no memory, and in the loop
//! otherwise. Nothing here knows a cell or an operator by name.

use std::collections::{HashMap, HashSet};

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

/// A call, or the part of a backward call that computes one gradient.
pub(super) struct Unit {
    /// The operator's number in the block.
    pub(super) op: usize,
    /// The input slot whose gradient it computes.
    pub(super) wrt: Option<usize>,
    pub(super) reads: Vec<VarId>,
    pub(super) writes: Vec<VarId>,
    /// Must run at every step: it mixes rows of sequences with rows of steps, or writes what a step passes on.
    pub(super) pinned: bool,
}

/// Decides for each unit. `carried` are the variables that come from another step, `wanted` those that go to one.
pub(super) fn split(units: &[Unit], carried: &[VarId], wanted: &[VarId]) -> Vec<When> {
    let mut dependent: HashSet<VarId> = carried.iter().copied().collect();
    let mut depends = vec![false; units.len()];
    // A gradient may be written by several units, so one pass in order is not enough.
    loop {
        let before = dependent.len();
        for (i, unit) in units.iter().enumerate() {
            depends[i] = unit.pinned || unit.reads.iter().any(|v| dependent.contains(v));
            if depends[i] {
                dependent.extend(&unit.writes);
            }
        }
        if dependent.len() == before {
            break;
        }
    }
    let mut needed: HashSet<VarId> = wanted.iter().copied().collect();
    let mut needs = vec![false; units.len()];
    loop {
        let before = needed.len();
        for (i, unit) in units.iter().enumerate().rev() {
            needs[i] = unit.pinned || unit.writes.iter().any(|v| needed.contains(v));
            if needs[i] {
                needed.extend(&unit.reads);
            }
        }
        if needed.len() == before {
            break;
        }
    }
    (0..units.len())
        .map(|i| match (depends[i], needs[i]) {
            (false, _) => When::Before,
            (true, true) => When::Body,
            (true, false) => When::After,
        })
        .collect()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_projection_leaves_and_so_does_the_output_projection() {
        // 0 = x, 1 = h_prev, 2 = x·W, 3 = h_prev·U, 4 = h, 5 = h·V
        let unit = |op, reads: &[u32], write| Unit {
            op,
            wrt: None,
            reads: reads.iter().map(|&v| VarId(v)).collect(),
            writes: vec![VarId(write)],
            pinned: false,
        };
        let units = [unit(0, &[0], 2), unit(1, &[1], 3), unit(2, &[2, 3], 4), unit(3, &[4], 5)];
        let when = split(&units, &[VarId(1)], &[VarId(4)]);
        assert_eq!(when, [When::Before, When::Body, When::Body, When::After]);
    }
}
