//! Warnings about variables that are made dense, and the choice between allowing, warning and refusing.

use std::fmt;
use std::panic::Location;

use crate::operator::size::Size;
use crate::tensor::StorageKind;

/// The behaviour if an operator has no kernel for a variable's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fallback {
    /// The variable is made dense.
    Allow,
    /// The variable is made dense, and [`Builder::warnings`](crate::Builder::warnings) reports it, once for each `to_dense`
    /// of the variable in the program.
    #[default]
    Warn,
    /// The missing kernel is an error.
    Deny,
}

/// The warning that a variable is made dense since an operator has no kernel for its storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The kind of the operator without a kernel, with its number in its block.
    pub operator: String,
    /// The slot of the operator that the variable is bound to.
    pub slot: &'static str,
    /// The variable's name.
    pub variable: String,
    /// The storage of the variable.
    pub storage: StorageKind,
    /// The size of the dense variable, in bytes.
    pub dense: Size,
    /// The line of code that appended the operator.
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
