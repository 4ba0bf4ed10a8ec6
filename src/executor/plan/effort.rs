//! The estimated effort of a call, known when a program is compiled: it decides whether threads share the call.

use crate::operator::Extent;

/// The estimated effort of a call, counted in numbers that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The extent that counts its rows.
    pub(crate) rows: Extent,
    /// The effort per row.
    pub(crate) row: usize,
}
