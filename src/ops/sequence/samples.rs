//! LoDs for check cases of sequence operators.

use crate::ops::prelude::*;

/// Returns a LoD with the upper levels of `lod` and a last level of sequences with the lengths `lengths`.
pub(super) fn of_lengths(lod: &Lod, lengths: impl Iterator<Item = usize>) -> Result<Arc<Lod>> {
    let mut offsets = vec![0];
    let mut end = 0;
    offsets.extend(lengths.map(|length| {
        end += length;
        end
    }));
    Lod::extend(lod.upper().cloned(), offsets)
}
