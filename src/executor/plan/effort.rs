//! The estimated effort of a call, known when a program is compiled: it decides whether several threads run the call.

use crate::kernels::cpu;
use crate::operator::Extent;

/// The estimated effort of a call: how many numbers it writes, with costly numbers counted several times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The extent that counts the rows of the call.
    pub(crate) rows: Extent,
    /// The estimated effort of the call per row.
    pub(crate) row: usize,
    /// The size in bytes of the constants (such as weights) that the call packs in its preparation, as the call reads them.
    pub(crate) packed: usize,
}

impl Effort {
    /// Returns the estimated effort of a call on `rows` rows. The call reads its packed constants once, and with few rows it
    /// mostly waits for them.
    pub(crate) fn of(&self, rows: usize) -> usize {
        let read = if rows == 0 { 0 } else { self.packed / cpu().read_per_number() };
        self.row.saturating_mul(rows).max(read)
    }
}
