//! The window of a convolution: which rows of the sequence each row of the result depends on.

use std::ops::Range;

/// The rows of a sequence that a convolution reads for row t of the result: t + start, t + start + step, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The offset of the first row, relative to row t (negative: earlier).
    pub start: isize,
    /// The distance of successive rows of the window.
    pub step: isize,
    /// The number of rows of the window.
    pub taps: usize,
}

/// The source of a row that a convolution reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A row of the sequence, counted among all rows.
    Row(usize),
    /// A row outside of the sequence, counted among the padding rows.
    Padding(usize),
}

impl Window {
    /// Returns the offset of the row that tap `tap` reads, relative to row t.
    pub fn offset(&self, tap: usize) -> isize {
        self.start + tap as isize * self.step
    }

    /// Returns how many rows before the start of a sequence the window of its first row reaches.
    pub fn above(&self) -> usize {
        let first = self.start.min(self.offset(self.taps.saturating_sub(1)));
        first.min(0).unsigned_abs()
    }

    /// Returns how many rows after the end of a sequence the window of its last row reaches.
    pub fn below(&self) -> usize {
        let last = self.start.max(self.offset(self.taps.saturating_sub(1)));
        last.max(0).unsigned_abs()
    }

    /// Returns the number of padding rows: the rows above and below a sequence together. Padding rows are numbered from the
    /// rows above to the rows below.
    pub fn padding_rows(&self) -> usize {
        self.above() + self.below()
    }

    /// Returns the turned window: for row t of the input, the rows of the result whose windows contain row t. It is the window
    /// of the gradient of the input.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { start: -self.start, step: -self.step, taps: self.taps }
    }

    /// Returns the source that `tap` reads for a row of a sequence.
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

    /// Calls `each` with every row of a range and the source that `tap` reads for it. The sequences are given by their offsets;
    /// the first offset belongs to row 0.
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
