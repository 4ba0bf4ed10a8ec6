//! The rank table: sorts sequences by length, longest first, and gives the step-major order of their entries.
//!
//! In step-major order, the entries of step *t* are contiguous, and the sequences that have step *t* are a prefix of the
//! sequences that have step *t* − 1. Therefore no sequence is padded, and no row is moved from step to step.

use crate::error::Result;
use crate::reserve;

/// The order in which a loop processes the sequences of one level and their entries.
///
/// For lengths 4, 5, 3 the order is 1, 0, 2; the steps start at 0, 3, 6, 9, 11, 12; and entry *i* of the step-major
/// order is entry 4, 0, 9, 5, 1, 10, 6, 2, 11, 7, 3, 8 of the batch.
#[doc(alias = "PackedSequence")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RankTable {
    order: Vec<usize>,
    starts: Vec<usize>,
    rows: Vec<usize>,
}

impl RankTable {
    /// Returns the table of the sequences that `offsets` delimits; if `reverse`, each sequence runs from its last entry to its
    /// first.
    #[cfg(test)]
    pub(crate) fn new(offsets: &[usize], reverse: bool) -> Self {
        let mut table = Self::default();
        table.rebuild(offsets, reverse).unwrap();
        table
    }

    /// Rebuilds the table for the sequences that `offsets` delimits, and reuses its memory.
    ///
    /// # Errors
    /// Fails if the system refuses the memory.
    pub(crate) fn rebuild(&mut self, offsets: &[usize], reverse: bool) -> Result<()> {
        let count = offsets.len().saturating_sub(1);
        let length = |i: usize| offsets[i + 1] - offsets[i];
        reserve::emptied(&mut self.order, count, "order of the sequences")?;
        self.order.extend(0..count);
        // Equal lengths are ordered by sequence number, which gives a stable sort without the extra memory of `sort_by`.
        self.order.sort_unstable_by_key(|&i| (usize::MAX - length(i), i));
        let steps = self.order.first().map_or(0, |&i| length(i));
        reserve::emptied(&mut self.starts, steps + 1, "steps of a loop")?;
        self.starts.push(0);
        let rows = offsets.last().map_or(0, |last| last - offsets[0]);
        reserve::emptied(&mut self.rows, rows, "rows of a loop")?;
        let mut alive = count;
        for t in 0..steps {
            while alive > 0 && length(self.order[alive - 1]) <= t {
                alive -= 1;
            }
            for &i in &self.order[..alive] {
                self.rows.push(if reverse { offsets[i + 1] - 1 - t } else { offsets[i] + t });
            }
            self.starts.push(self.rows.len());
        }
        Ok(())
    }

    /// Returns the sequence numbers in rank order (longest first).
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    /// Returns the first position of each step in step-major order, followed by the number of entries.
    pub(crate) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Returns, for each entry in step-major order, the index of the entry in the batch's order.
    pub(crate) fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Returns the number of steps of the longest sequence.
    pub(crate) fn steps(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of sequences that have a step `t`.
    pub(crate) fn alive(&self, t: usize) -> usize {
        self.starts[t + 1] - self.starts[t]
    }

    /// Returns the number of sequences, including sequences without steps.
    pub(crate) fn sequences(&self) -> usize {
        self.order.len()
    }

    /// Returns the number of steps of the sequence at position `rank` in rank order.
    pub(crate) fn length(&self, rank: usize) -> usize {
        // The number of sequences that have step `t` never increases with `t`, so a binary search works.
        let (mut low, mut high) = (0, self.steps());
        while low < high {
            let middle = (low + high) / 2;
            if self.alive(middle) > rank { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_first_and_step_major() {
        let table = RankTable::new(&[0, 4, 9, 12], false);
        assert_eq!(table.order(), [1, 0, 2]);
        assert_eq!(table.starts(), [0, 3, 6, 9, 11, 12]);
        assert_eq!(table.rows(), [4, 0, 9, 5, 1, 10, 6, 2, 11, 7, 3, 8]);
        assert_eq!((0..3).map(|r| table.length(r)).collect::<Vec<_>>(), [5, 4, 3]);
    }

    #[test]
    fn a_reversed_sequence_runs_from_its_own_end() {
        let table = RankTable::new(&[0, 2, 2, 5], true);
        assert_eq!(table.order(), [2, 0, 1]);
        assert_eq!(table.rows(), [4, 1, 3, 0, 2]);
        assert_eq!(table.length(2), 0);
    }

    #[test]
    fn no_sequence_and_only_empty_ones() {
        for offsets in [&[0][..], &[0, 0, 0]] {
            let table = RankTable::new(offsets, false);
            assert_eq!((table.steps(), table.sequences(), table.rows().len()), (0, offsets.len() - 1, 0));
        }
    }
}
