//! The classes of a step block's variables: constant, or with rows per sequence or per step.

use std::collections::HashMap;

use crate::operator::{Extent, VarId};
use crate::program::Program;

/// The class of a step block's variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// No rows of the batch: the same at every step.
    Constant,
    /// One row per sequence, the same at every step.
    Sequence,
    /// One row per entry of each sequence.
    Step,
}

/// The class of every variable that a step block and its gradient block use.
pub(crate) struct Classes(HashMap<VarId, Class>);

impl Classes {
    /// Returns the classes with only the static inputs set.
    pub(crate) fn new(statics: impl Iterator<Item = VarId>) -> Self {
        Self(statics.map(|v| (v, Class::Sequence)).collect())
    }

    /// Sets a variable's class.
    pub(crate) fn set(&mut self, var: VarId, class: Class) {
        self.0.insert(var, class);
    }

    /// A variable's class: the class that was set, else the class that follows from the variable's rows.
    pub(crate) fn get(&self, program: &Program, var: VarId) -> Class {
        if let Some(&class) = self.0.get(&var) {
            return class;
        }
        let rows = program.var(var).spec().map_or(Extent::Known(1), |s| s.rows());
        if rows.known().is_some() { Class::Constant } else { Class::Step }
    }

    /// The class of a result computed from `reads`, and whether `reads` mix rows of sequences with rows of steps.
    pub(crate) fn of(&self, program: &Program, reads: &[VarId]) -> (Class, bool) {
        let of: Vec<Class> = reads.iter().map(|&v| self.get(program, v)).collect();
        match (of.contains(&Class::Sequence), of.contains(&Class::Step)) {
            (true, true) => (Class::Step, true),
            (false, true) => (Class::Step, false),
            (true, false) => (Class::Sequence, false),
            (false, false) => (Class::Constant, false),
        }
    }
}
