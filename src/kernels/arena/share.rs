//! The rows of each buffer that belong to each lane of a split loop.

use crate::kernels::view::Extent2;

/// Rows of a buffer: `rows` rows from `row` on, columns `column..column + width` of rows that are `stride` wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// The buffer's number.
    pub buffer: usize,
    /// The first row.
    pub row: usize,
    /// The first column.
    pub column: usize,
    /// The number of rows and columns of the region, and the stride: the width of the buffer's rows.
    pub extent: Extent2,
    /// The step whose rows the region holds, in a step loop that is split over lanes.
    pub step: usize,
}

impl Region {
    // Saturating, so that no number wraps into a buffer: `Lane::resolve` refuses regions beyond the buffer.
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
    /// Row `base + starts[t] + i` belongs to sequence `i` at step `t`; rows are `stride` wide.
    Stepped {
        /// The first row of step 0.
        base: usize,
        /// Width of the buffer's rows.
        stride: usize,
    },
    /// Row `i` belongs to sequence `i`; rows are `stride` wide.
    Sequence {
        /// Width of the buffer's rows.
        stride: usize,
    },
    /// Each sequence has a run of rows: the run of sequence `i` begins at row `bounds[first + i]`, with [`StepRows::bounds`].
    Runs {
        /// The index of the first sequence's bound in the bounds.
        first: usize,
        /// Width of the buffer's rows.
        stride: usize,
    },
    /// Each step has a run of rows for each sequence that has not ended: the runs of step `t` begin at row
    /// `base + bounds[starts + t]`, and the run of sequence `i` begins `bounds[first + i]` rows later.
    SteppedRuns {
        /// The first row of step 0.
        base: usize,
        /// The index of the first step's bound in the bounds.
        starts: usize,
        /// The index of the first sequence's bound in the bounds.
        first: usize,
        /// Width of the buffer's rows.
        stride: usize,
    },
}

/// The assignment of buffer rows to the sequences and steps of a split loop.
#[derive(Clone, Copy)]
pub struct StepRows<'a> {
    /// The first row of each step, then the end of the last step.
    pub starts: &'a [usize],
    /// How the rows of each buffer are divided among the lanes.
    pub shares: &'a [Share],
    /// The bounds of the runs of all buffers with [`Share::Runs`] or [`Share::SteppedRuns`].
    pub bounds: &'a [usize],
}

impl StepRows<'_> {
    /// Returns whether no row belongs to two of `sequences` sequences or to two steps, so that lanes have disjoint rows.
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

/// The sequences of a lane of a split loop: `from..to`, by rank.
#[derive(Clone, Copy)]
pub struct LanePart<'a> {
    /// First sequence.
    pub from: usize,
    /// One past the last sequence.
    pub to: usize,
    /// The assignment of rows to sequences and steps.
    pub steps: StepRows<'a>,
}

impl LanePart<'_> {
    /// Returns whether a region with rows belongs to these sequences, so that this lane may read the region (or, if `write`,
    /// write it).
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
                // The starts of a step after the last step would belong to another list of bounds.
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
