//! Which rows of its sequence a row of a convolution reads.

use std::ops::Range;

/// Which rows of its sequence a convolution reads for row t: t + start, t + start + step, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first, counted from row t.
    pub start: isize,
    /// From one to the next.
    pub step: isize,
    /// How many they are.
    pub taps: usize,
}

/// Where numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A row of the sequence, counted among all rows.
    Row(usize),
    /// A row outside of the sequence, counted among the padding rows.
    Padding(usize),
}

impl Window {
    /// Which row tap `tap` reads, counted from row t.
    pub fn offset(&self, tap: usize) -> isize {
        self.start + tap as isize * self.step
    }

    /// How many rows above a sequence its first row reads.
    pub fn above(&self) -> usize {
        let first = self.start.min(self.offset(self.taps.saturating_sub(1)));
        first.min(0).unsigned_abs()
    }

    /// How many rows below a sequence its last row reads.
    pub fn below(&self) -> usize {
        let last = self.start.max(self.offset(self.taps.saturating_sub(1)));
        last.max(0).unsigned_abs()
    }

    /// The padding rows: those above a sequence, then those below.
    pub fn padding_rows(&self) -> usize {
        self.above() + self.below()
    }

    /// Which rows of the result read a row, tap by tap: what the gradient of that row is made of.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { start: -self.start, step: -self.step, taps: self.taps }
    }

    /// Where `tap` reads for a row of a sequence.
    #[inline(always)]
    pub(super) fn source(&self, sequence: &Range<usize>, row: usize, tap: usize) -> Source {
        let place = row as isize + self.offset(tap);
        let (start, end) = (sequence.start as isize, sequence.end as isize);
        if place < start {
            Source::Padding((self.above() as isize + place - start) as usize)
        } else if place < end {
            Source::Row(place as usize)
        } else {
            Source::Padding((self.above() as isize + place - end) as usize)
        }
    }

    /// Calls `each` with every row of a range and where `tap` reads for it. The sequences are given by their offsets, of which
    /// the first is that of row 0.
    #[inline(always)]
    pub(super) fn each(
        &self,
        offsets: &[usize],
        tap: usize,
        rows: Range<usize>,
        mut each: impl FnMut(usize, Source),
    ) {
        let Some(&base) = offsets.first() else { return };
        let first = offsets.partition_point(|&end| end - base <= rows.start).max(1);
        for pair in offsets[first - 1..].windows(2) {
            let sequence = pair[0] - base..pair[1] - base;
            if sequence.start >= rows.end {
                break;
            }
            for row in rows.start.max(sequence.start)..rows.end.min(sequence.end) {
                each(row, self.source(&sequence, row, tap));
            }
        }
    }
}
