//! Row keys, which identify a row independently of its batch. Random numbers depend on the key of a row, and error
//! messages name a row by its key.

use std::sync::Arc;

use crate::lod::Lod;

/// The identity of a row, independent of the batch that contains the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RowKey {
    /// The index of the row's top-level sequence in the data set.
    pub(crate) sequence: u64,
    /// The row's position in its top-level sequence.
    pub(crate) position: u64,
}

impl RowKey {
    /// Returns the key of row `row` of a new sequence, which an operator in a step block makes from a row with the key `above`.
    /// The new position has the lower 32 bits of the position in `above`. Its upper 32 bits are a hash of `row` and of the
    /// upper 32 bits of the position in `above`, which are 0 or the index of a step.
    pub(crate) fn below(above: RowKey, row: usize) -> RowKey {
        let high = (above.position >> 32).wrapping_mul(0x9e37_79b1).wrapping_add(row as u64 + 1);
        RowKey { position: above.position & u64::from(u32::MAX) | high << 32, ..above }
    }
}

/// The identities of the sequences of a batch: their indices in the data set, and the positions of their first rows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    /// The index of each sequence in the data set; if the list is empty, the indices are 0, 1, ….
    pub(crate) numbers: &'a [u64],
    /// The position of each sequence's first row; it is not 0 for a window of a longer sequence. If the list is empty, all
    /// positions are 0.
    pub(crate) places: &'a [u64],
}

impl Names<'_> {
    /// Returns the key of row `row`; without a LoD, each row is a sequence.
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

/// The keys of the rows of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// The rows are rows of the batch, in the batch's order, beginning with row `first`.
    Natural { names: Names<'a>, lod: Option<&'a Arc<Lod>>, first: usize },
    /// The keys are listed: one key per row.
    Listed(&'a [RowKey]),
}

impl Keys<'_> {
    pub(crate) fn get(&self, row: usize) -> RowKey {
        match *self {
            Keys::Listed(keys) => keys.get(row).copied().unwrap_or_default(),
            Keys::Natural { names, lod, first } => names.key(lod, row + first),
        }
    }

    /// Returns a row's top-level sequence, as an index in the data set, and the row's position in the sequence. The
    /// position is `None` if each row is a sequence. Returns `None` if the row has no key.
    pub(crate) fn sample(&self, row: usize) -> Option<(u64, Option<usize>)> {
        let many = match self {
            Keys::Listed(keys) if row >= keys.len() => return None,
            Keys::Listed(_) => true,
            Keys::Natural { lod, .. } => lod.is_some(),
        };
        let RowKey { sequence, position } = self.get(row);
        // The upper 32 bits of the position may hold the number of a step, so only the lower 32 bits are the position.
        Some((sequence, many.then_some(position as u32 as usize)))
    }
}

/// Returns the index of a row's top-level sequence in the batch, and the row's position in this sequence.
pub(crate) fn locate(lod: &Lod, row: usize) -> (usize, usize) {
    let sequence = lod.top_of(lod.levels(), row);
    (sequence, row - lod.range(0, sequence).map_or(row, |rows| rows.start))
}
