//! What names the rows of a call: the sequence in the data that each is of, and its place there.

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

/// The keys of a call's rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// The rows lie in the batch's own order, from row `first` on.
    Natural { numbers: &'a [u64], lod: Option<&'a Arc<Lod>>, first: usize },
    /// A key a row.
    Listed(&'a [RowKey]),
}

impl Keys<'_> {
    pub(crate) fn get(&self, row: usize) -> RowKey {
        match *self {
            Keys::Listed(keys) => keys.get(row).copied().unwrap_or_default(),
            Keys::Natural { numbers, lod, first } => {
                let row = row + first;
                let (sequence, position) = lod.map_or((row, 0), |lod| locate(lod, row));
                RowKey {
                    sequence: numbers.get(sequence).copied().unwrap_or(sequence as u64),
                    position: position as u64,
                }
            }
        }
    }
}

impl Keys<'_> {
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
    let mut entry = row;
    for level in (0..lod.levels()).rev() {
        entry = lod.level(level).partition_point(|&start| start <= entry) - 1;
    }
    (entry, row - lod.range(0, entry).start)
}
