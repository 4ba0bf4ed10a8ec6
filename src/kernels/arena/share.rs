//! The assignment of the rows of each buffer to the lanes of a split loop.

use crate::kernels::view::Extent2;

/// A rectangle of a buffer whose rows have `stride` numbers: `rows` rows from row `row` on, in the columns
/// `column..column + width`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// The index of the buffer in the arena.
    pub buffer: usize,
    /// The first row of the region.
    pub row: usize,
    /// The first column of the region.
    pub column: usize,
    /// The numbers of rows and columns of the region, and the stride: the width of the buffer's rows.
    pub extent: Extent2,
    /// The step to which the rows of the region belong, in a step loop that is split over lanes.
    pub step: usize,
}

impl Region {
    // The arithmetic saturates, so that an overflow cannot produce an index inside the buffer: `Lane::resolve` refuses
    // regions beyond the buffer.
    pub(super) fn first(&self) -> usize {
        self.row.saturating_mul(self.extent.stride).saturating_add(self.column)
    }

    pub(super) fn end(&self) -> usize {
        self.first().saturating_add(self.extent.span())
    }

    pub(super) fn overlaps(&self, other: &Region) -> bool {
        if self.buffer != other.buffer || self.extent.span() == 0 || other.extent.span() == 0 {
            return false;
        }
        if self.extent.stride == other.extent.stride {
            let below = |from: usize, start: usize, len: usize| from < start.saturating_add(len);
            let rows =
                below(self.row, other.row, other.extent.rows) && below(other.row, self.row, self.extent.rows);
            let columns = below(self.column, other.column, other.extent.width)
                && below(other.column, self.column, self.extent.width);
            return rows && columns;
        }
        self.first() < other.end() && other.first() < self.end()
    }
}

/// How the rows of a buffer are divided among the lanes of a split loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All lanes read the buffer, and no lane writes it.
    Frozen,
    /// Row `base + starts[t] + i` of the buffer belongs to sequence `i` at step `t`; each row has `stride` numbers.
    Stepped {
        /// The index of the first row of step 0 in the buffer.
        base: usize,
        /// The width of the buffer's rows, in numbers.
        stride: usize,
    },
    /// Row `i` of the buffer belongs to sequence `i`; each row has `stride` numbers.
    Sequence {
        /// The width of the buffer's rows, in numbers.
        stride: usize,
    },
    /// Each sequence has a run of successive rows: the run of sequence `i` begins at row `bounds[first + i]` of
    /// [`StepRows::bounds`].
    Runs {
        /// The index in [`StepRows::bounds`] of the first row of sequence 0.
        first: usize,
        /// The width of the buffer's rows, in numbers.
        stride: usize,
    },
    /// At each step, each sequence that has not ended has a run of successive rows. The runs of step `t`
    /// begin at row `base + bounds[starts + t]`, and the run of sequence `i` begins `bounds[first + i]` rows later.
    SteppedRuns {
        /// The index of the first row of step 0 in the buffer.
        base: usize,
        /// The index in [`StepRows::bounds`] of the first row of step 0.
        starts: usize,
        /// The index in [`StepRows::bounds`] of the first row of sequence 0.
        first: usize,
        /// The width of the buffer's rows, in numbers.
        stride: usize,
    },
}

/// The assignment of buffer rows to the sequences and steps of a split loop.
#[derive(Clone, Copy)]
pub struct StepRows<'a> {
    /// The index of the first row of each step, then the index after the last row of the last step.
    pub starts: &'a [usize],
    /// How the rows of each buffer are divided among the lanes.
    pub shares: &'a [Share],
    /// The row indices at which runs begin, for all buffers with [`Share::Runs`] or [`Share::SteppedRuns`].
    pub bounds: &'a [usize],
}

impl StepRows<'_> {
    /// Returns whether the start rows of the steps and of the sequences' runs never decrease. Lanes then have disjoint
    /// rows.
    pub(super) fn are_apart(&self, sequences: usize) -> bool {
        let sorted = |first: usize, len: usize| {
            let end = first.saturating_add(len).saturating_add(1);
            self.bounds.get(first..end).is_some_and(|bounds| bounds.is_sorted())
        };
        let steps = self.starts.len().saturating_sub(1);
        self.starts.is_sorted()
            && self.shares.iter().all(|share| match *share {
                Share::Runs { first, .. } => sorted(first, sequences),
                Share::SteppedRuns { starts, first, .. } => sorted(first, sequences) && sorted(starts, steps),
                _ => true,
            })
    }
}

/// The sequences of one lane of a split loop: the positions `from..to` in the order of the loop.
#[derive(Clone, Copy)]
pub struct LanePart<'a> {
    /// The position of the first sequence of the lane.
    pub from: usize,
    /// The position after the last sequence of the lane.
    pub to: usize,
    /// The assignment of rows to sequences and steps, for all lanes.
    pub steps: StepRows<'a>,
}

impl LanePart<'_> {
    /// Returns whether this lane may read a region, or may write the region if `write` is set. A lane may read and
    /// write the rows of its own sequences, and may read frozen buffers.
    #[inline]
    pub(super) fn has(&self, region: &Region, write: bool) -> bool {
        let (row, end) = (region.row, region.row.saturating_add(region.extent.rows));
        let StepRows { starts, shares, bounds } = self.steps;
        match shares[region.buffer] {
            Share::Frozen => !write,
            Share::Stepped { base, stride } => {
                let first = base.saturating_add(starts[region.step]);
                stride == region.extent.stride
                    && row >= first.saturating_add(self.from)
                    && end <= first.saturating_add(self.to)
                    && end <= base.saturating_add(starts[region.step + 1])
            }
            Share::Runs { first, stride } => {
                stride == region.extent.stride
                    && row >= bounds[first + self.from]
                    && end <= bounds[first + self.to]
            }
            Share::SteppedRuns { base, starts, first, stride } => {
                // A step after the last step has no start: the next entry of `bounds` belongs to another list.
                let steps = self.steps.starts.len().saturating_sub(1);
                let begin = base.saturating_add(bounds[starts + region.step]);
                region.step < steps
                    && stride == region.extent.stride
                    && row >= begin.saturating_add(bounds[first + self.from])
                    && end <= begin.saturating_add(bounds[first + self.to])
                    && end <= base.saturating_add(bounds[starts + region.step + 1])
            }
            Share::Sequence { stride } => {
                stride == region.extent.stride && row >= self.from && end <= self.to
            }
        }
    }
}
