//! The classes of a step block's variables: constant, one row per sequence, or one row per step.

use std::collections::HashMap;

use crate::operator::{Extent, VarId};
use crate::program::Program;

/// The class of a variable in a step block: whether its value differs between sequences, and between steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The variable has no rows of the batch, and is the same at every step.
    Constant,
    /// The variable has one row per sequence, which is the same at every step.
    Sequence,
    /// The variable has one row for each entry of each sequence.
    Step,
}

/// The classes of all variables that a step block and its gradient block use.
pub(crate) struct Classes(HashMap<VarId, Class>);

impl Classes {
    /// Returns the classes of the static inputs `statics`, which have one row per sequence; no other class is set yet.
    pub(crate) fn new(statics: impl Iterator<Item = VarId>) -> Self {
        Self(statics.map(|v| (v, Class::Sequence)).collect())
    }

    pub(crate) fn set(&mut self, var: VarId, class: Class) {
        self.0.insert(var, class);
    }

    /// Returns the class that was set for a variable, or else the class that follows from its rows.
    pub(crate) fn get(&self, program: &Program, var: VarId) -> Class {
        if let Some(&class) = self.0.get(&var) {
            return class;
        }
        let rows = program.var(var).spec().map_or(Extent::Known(1), |s| s.rows());
        if rows.known().is_some() { Class::Constant } else { Class::Step }
    }

    /// Returns the class of a result computed from the variables `reads`, and whether `reads` mixes sequence rows and step
    /// rows.
    pub(crate) fn of(&self, program: &Program, reads: &[VarId]) -> (Class, bool) {
        let read_classes: Vec<Class> = reads.iter().map(|&v| self.get(program, v)).collect();
        match (read_classes.contains(&Class::Sequence), read_classes.contains(&Class::Step)) {
            (true, true) => (Class::Step, true),
            (false, true) => (Class::Step, false),
            (true, false) => (Class::Sequence, false),
            (false, false) => (Class::Constant, false),
        }
    }
}
