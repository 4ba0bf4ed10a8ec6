//! The window of a convolution: the rows of a sequence that each row of the result depends on.

use std::ops::Range;

/// The rows of a sequence that a convolution reads for row t of the result: the rows t + start + j · step for j = 0, 1, 2, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The offset of the window's first row relative to row t; a negative offset means an earlier row.
    pub start: isize,
    /// The distance between successive rows of the window; 1 means adjacent rows.
    pub step: isize,
    /// The number of rows in the window.
    pub taps: usize,
}

/// The kind and index of a row that a convolution reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A row inside the sequence: its index among the rows of all sequences.
    Row(usize),
    /// A row outside of the sequence: its index among the padding rows.
    Padding(usize),
}

impl Window {
    /// Returns the offset of the row that tap `tap` reads, relative to row t.
    pub fn offset(&self, tap: usize) -> isize {
        self.start + tap as isize * self.step
    }

    /// Returns how far the window of a sequence's first row reaches before the sequence, in rows.
    pub fn above(&self) -> usize {
        let first = self.start.min(self.offset(self.taps.saturating_sub(1)));
        first.min(0).unsigned_abs()
    }

    /// Returns how far the window of a sequence's last row reaches after the sequence, in rows.
    pub fn below(&self) -> usize {
        let last = self.start.max(self.offset(self.taps.saturating_sub(1)));
        last.max(0).unsigned_abs()
    }

    /// Returns the number of padding rows of a sequence: the rows before it plus the rows after it. The indices of the padding
    /// rows count the rows before the sequence first.
    pub fn padding_rows(&self) -> usize {
        self.above() + self.below()
    }

    /// Returns the reversed window: for row t of the input, the rows of the result whose windows contain row t. The gradient
    /// of the input is a convolution with this reversed window.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { start: -self.start, step: -self.step, taps: self.taps }
    }

    /// Returns the row that tap `tap` reads for row `row`; `sequence` is the range of the rows of the row's sequence.
    #[inline(always)]
    pub(super) fn source(&self, sequence: &Range<usize>, row: usize, tap: usize) -> Source {
        let index = row as isize + self.offset(tap);
        let (start, end) = (sequence.start as isize, sequence.end as isize);
        if index < start {
            Source::Padding((self.above() as isize + index - start) as usize)
        } else if index < end {
            Source::Row(index as usize)
        } else {
            Source::Padding((self.above() as isize + index - end) as usize)
        }
    }

    /// Calls `each` with every row of a range and the row that tap `tap` reads for it. The offsets divide the rows into
    /// sequences; the first offset belongs to row 0, whatever its value.
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
