//! What is said where a variable is made dense, and what may happen there.

use std::fmt;
use std::panic::Location;

use crate::operator::size::Size;
use crate::tensor::StorageKind;

/// What happens where an operator has no kernel for a variable as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fallback {
    /// The variable is made dense.
    Allow,
    /// It is made dense, and [`Builder::warnings`](crate::Builder::warnings) says so, once for each `to_dense`
    /// that the program has of it.
    #[default]
    Warn,
    /// It is an error.
    Deny,
}

/// A variable that is made dense since an operator has no kernel for it as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The operator, with its number in its block.
    pub operator: String,
    /// The operator's slot.
    pub slot: &'static str,
    /// The variable's name.
    pub variable: String,
    /// How it is stored.
    pub storage: StorageKind,
    /// What it takes once it is dense.
    pub dense: Size,
    /// The line that appended the operator.
    pub caller: &'static Location<'static>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { operator, slot, variable, storage, dense, caller } = self;
        write!(
            f,
            "variable `{variable}` is {storage}, for which `{slot}` of {operator} has no kernel: made dense, "
        )?;
        write!(f, "{dense}; at {caller}")
    }
}
