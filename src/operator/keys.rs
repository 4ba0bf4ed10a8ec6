//! What names a row independently of the batch it is in: random numbers depend on it, and errors name it.

use std::sync::Arc;

use crate::lod::Lod;

/// What names a row independently of the batch it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowKey {
    /// The number of the row's (top-level) sequence in the data.
    pub sequence: u64,
    /// The row's place in that sequence.
    pub position: u64,
}

impl RowKey {
    /// The key of a row of a sequence that is made in a step, for what `above` names: the place is that one's, and the
    /// upper half, where it is 0 or a step's number, says which row it is.
    pub(crate) fn below(above: RowKey, row: usize) -> RowKey {
        let high = (above.position >> 32).wrapping_mul(0x9e37_79b1).wrapping_add(row as u64 + 1);
        RowKey { position: above.position & u64::from(u32::MAX) | high << 32, ..above }
    }
}

/// What names the sequences of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names<'a> {
    /// Their numbers in the data; 0, 1, … without it.
    pub(crate) numbers: &'a [u64],
    /// The place of each one's first row; 0 without it.
    pub(crate) places: &'a [u64],
}

impl Names<'_> {
    /// The key of a row; without a LoD it stands for a sequence.
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
    /// The rows lie in the batch's own order, from row `first` on.
    Natural { names: Names<'a>, lod: Option<&'a Arc<Lod>>, first: usize },
    /// A key a row.
    Listed(&'a [RowKey]),
}

impl Keys<'_> {
    pub(crate) fn get(&self, row: usize) -> RowKey {
        match *self {
            Keys::Listed(keys) => keys.get(row).copied().unwrap_or_default(),
            Keys::Natural { names, lod, first } => names.key(lod, row + first),
        }
    }

    /// The number of the sequence that a row is of and, if that has many, the row's place there.
    pub(crate) fn sample(&self, row: usize) -> Option<(u64, Option<usize>)> {
        let many = match self {
            Keys::Listed(keys) if row >= keys.len() => return None,
            Keys::Listed(_) => true,
            Keys::Natural { lod, .. } => lod.is_some(),
        };
        let RowKey { sequence, position } = self.get(row);
        // Rows that come again at every step have the step in the upper half.
        Some((sequence, many.then_some(position as u32 as usize)))
    }
}

/// The top-level sequence that a row belongs to, and its place in it.
pub(crate) fn locate(lod: &Lod, row: usize) -> (usize, usize) {
    let sequence = lod.top_of(lod.levels(), row);
    (sequence, row - lod.range(0, sequence).map_or(row, |rows| rows.start))
}
