//! The identity of a row, independent of its batch: random numbers depend on it, and errors name it.

use std::sync::Arc;

use crate::lod::Lod;

/// The identity of a row, independent of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowKey {
    /// The number of the row's (top-level) sequence in the data.
    pub sequence: u64,
    /// The row's position in that sequence.
    pub position: u64,
}

impl RowKey {
    /// The key of row `row` of a sequence that an operator in a step makes from a row with the key `above`. The lower half of the
    /// position is kept. The upper half is a hash of `row` and of the upper half of `above`, which is 0 or a step's number.
    pub(crate) fn below(above: RowKey, row: usize) -> RowKey {
        let high = (above.position >> 32).wrapping_mul(0x9e37_79b1).wrapping_add(row as u64 + 1);
        RowKey { position: above.position & u64::from(u32::MAX) | high << 32, ..above }
    }
}

/// The identity of the sequences of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    /// The numbers of the sequences in the data; 0, 1, … if empty.
    pub(crate) numbers: &'a [u64],
    /// The position of each sequence's first row, which is not 0 in a window of a longer sequence; all 0 if empty.
    pub(crate) places: &'a [u64],
}

impl Names<'_> {
    /// The key of a row; without a LoD each row is a sequence.
    pub(crate) fn key(&self, lod: Option<&Arc<Lod>>, row: usize) -> RowKey {
        let (sequence, position) = match lod {
            Some(lod) => {
                let (sequence, position) = locate(lod, row);
                (sequence, position as u64 + self.places.get(sequence).copied().unwrap_or(0))
            }
            None => (row, 0),
        };
        RowKey { sequence: self.numbers.get(sequence).copied().unwrap_or(sequence as u64), position }
    }
}

/// The keys of a call's rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// The rows are in the batch's own order, from row `first` on.
    Natural { names: Names<'a>, lod: Option<&'a Arc<Lod>>, first: usize },
    /// One key per row.
    Listed(&'a [RowKey]),
}

impl Keys<'_> {
    pub(crate) fn get(&self, row: usize) -> RowKey {
        match *self {
            Keys::Listed(keys) => keys.get(row).copied().unwrap_or_default(),
            Keys::Natural { names, lod, first } => names.key(lod, row + first),
        }
    }

    /// The number of a row's sequence and, if the sequences may have several rows, the row's position in the sequence. `None` if
    /// the row has no key.
    pub(crate) fn sample(&self, row: usize) -> Option<(u64, Option<usize>)> {
        let many = match self {
            Keys::Listed(keys) if row >= keys.len() => return None,
            Keys::Listed(_) => true,
            Keys::Natural { lod, .. } => lod.is_some(),
        };
        let RowKey { sequence, position } = self.get(row);
        // The upper half of the position may hold a step's number, which is no position.
        Some((sequence, many.then_some(position as u32 as usize)))
    }
}

/// The top-level sequence of a row, and the row's position in it.
pub(crate) fn locate(lod: &Lod, row: usize) -> (usize, usize) {
    let sequence = lod.top_of(lod.levels(), row);
    (sequence, row - lod.range(0, sequence).map_or(row, |rows| rows.start))
}
