//! Sequences for samples.

use std::sync::Arc;

use crate::error::Result;
use crate::lod::Lod;

/// The levels above the last one of a LoD, and below them sequences of these lengths.
pub(super) fn of_lengths(lod: &Lod, lengths: impl Iterator<Item = usize>) -> Result<Arc<Lod>> {
    let mut offsets = vec![0];
    let mut end = 0;
    offsets.extend(lengths.map(|length| {
        end += length;
        end
    }));
    Lod::extend(lod.upper().cloned(), offsets)
}
