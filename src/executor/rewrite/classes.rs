//! What the variables of a step block have rows for.

use std::collections::HashMap;

use crate::operator::{Extent, VarId};
use crate::program::Program;

/// What a variable of a step block has rows for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// No rows of the batch: the same at every step.
    Constant,
    /// Each sequence, the same at every step.
    Sequence,
    /// Each entry of each sequence.
    Step,
}

/// The class of every variable that a step block and its gradient block use.
pub(crate) struct Classes(HashMap<VarId, Class>);

impl Classes {
    /// Starts with the static inputs.
    pub(crate) fn new(statics: impl Iterator<Item = VarId>) -> Self {
        Self(statics.map(|v| (v, Class::Sequence)).collect())
    }

    /// Sets a variable's class.
    pub(crate) fn set(&mut self, var: VarId, class: Class) {
        self.0.insert(var, class);
    }

    /// A variable's class: what was set, else by its rows.
    pub(crate) fn get(&self, program: &Program, var: VarId) -> Class {
        if let Some(&class) = self.0.get(&var) {
            return class;
        }
        let rows = program.var(var).spec().map_or(Extent::Known(1), |s| s.rows());
        if rows.known().is_some() { Class::Constant } else { Class::Step }
    }

    /// The class of what is computed from `reads`, and whether they mix rows of sequences with rows of steps.
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
