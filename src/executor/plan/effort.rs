//! The estimated effort of a call, known when a program is compiled: it decides whether several threads run the call.

use crate::operator::Extent;

/// The estimated effort of a call: how many numbers it writes, with costly numbers counted several times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The extent that counts the rows of the call.
    pub(crate) rows: Extent,
    /// The estimated effort of the call per row.
    pub(crate) row: usize,
}
