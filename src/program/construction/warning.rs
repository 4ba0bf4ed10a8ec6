//! Warnings about variables that the builder makes dense, and the setting that allows, reports or refuses dense copies.

use std::fmt;
use std::panic::Location;

use crate::operator::size::Size;
use crate::tensor::StorageKind;

/// What the builder does if an operator has no kernel for a variable's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fallback {
    /// Makes the variable dense, without a warning.
    Allow,
    /// Makes the variable dense and warns: [`Builder::warnings`](crate::Builder::warnings) has one warning per `to_dense` in the
    /// program.
    #[default]
    Warn,
    /// Refuses the operator: the missing kernel is an error.
    Deny,
}

/// The warning that the builder made a variable dense because an operator has no kernel for the variable's storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The kind of the operator without a kernel, and the operator's number in its block, such as `softmax #2`.
    pub operator: String,
    /// The operator's input slot to which the variable is bound.
    pub slot: &'static str,
    /// The name of the variable that was made dense.
    pub variable: String,
    /// The storage of the variable before it was made dense.
    pub storage: StorageKind,
    /// The size of the dense copy, in bytes.
    pub dense: Size,
    /// The source line that appended the operator.
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
