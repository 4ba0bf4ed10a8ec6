//! About how much a call computes, known when a program is compiled: what decides whether threads share it.

use crate::operator::Extent;

/// About how much a call computes, counted in numbers that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// What counts its rows.
    pub(crate) rows: Extent,
    /// For each of them.
    pub(crate) row: usize,
}
