//! The copying of a matrix into the panels of a packed matrix. Threads divide the panels.

use std::ops::Range;

use super::fork::join;
use super::products::{PackedMatrix, Place, Transpose};
use super::view::View;

/// Below this number of numbers, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 18;

/// A copy of a matrix into successive panels.
pub(super) struct PanelCopy<'a> {
    panels: Range<usize>,
    data: &'a mut [f32],
    /// The number of columns per panel.
    pub(super) width: usize,
    /// The number of words in a column of a panel.
    words: usize,
    b: View<'a, f32>,
    pub(super) transpose: Transpose,
    /// The row and the column of the packed matrix that receive the first row and the first column.
    pub(super) at: Place,
}

impl<'a> PanelCopy<'a> {
    /// Returns the copy of `b`, or of the transpose of `b`, to a place of a packed matrix where it fits.
    pub(super) fn new(
        to: &'a mut PackedMatrix<f32>,
        b: View<'a, f32>,
        transpose: Transpose,
        at: Place,
    ) -> Self {
        let (width, words) = (to.width, to.words());
        let (_, columns) = transpose.shape((b.rows(), b.width()));
        let panels = at.1 / width..(at.1 + columns).div_ceil(width);
        let data = &mut to.numbers_mut()[panels.start * width * words..panels.end * width * words];
        Self { panels, data, width, words, b, transpose, at }
    }

    /// Copies the panels by `copy`, on up to `threads` threads.
    pub(super) fn divide(self, copy: fn(PanelCopy<'_>), threads: usize) {
        let Self { panels: Range { start, end }, width, words, b, transpose, .. } = self;
        let (rows, _) = transpose.shape((b.rows(), b.width()));
        if threads < 2 || end - start < 2 || (end - start) * width * rows < WORTH_A_THREAD {
            return copy(self);
        }
        let left = threads / 2;
        let middle = start + ((end - start) * left / threads).max(1);
        let (data, after) = self.data.split_at_mut((middle - start) * width * words);
        let before = Self { panels: start..middle, data, ..self };
        let after = Self { panels: middle..end, data: after, ..self };
        join(|| before.divide(copy, left), || after.divide(copy, threads - left));
    }

    /// Returns the panels, each with the part of the matrix as stored that it receives, and the column of the panel that
    /// receives the first column of the part.
    pub(super) fn panels(self) -> impl Iterator<Item = (View<'a, f32>, &'a mut [f32], usize)> {
        let Self { panels, data, width, words, b, transpose, at: (_, column) } = self;
        let (_, columns) = transpose.shape((b.rows(), b.width()));
        panels.zip(data.chunks_exact_mut((width * words).max(1))).map(move |(p, panel)| {
            let (from, to) = ((p * width).max(column), ((p + 1) * width).min(column + columns));
            let part = match transpose {
                Transpose::No => b.columns(from - column, to - column),
                Transpose::Yes => b.rows_range(from - column, to - column),
            };
            (part, panel, from - p * width)
        })
    }
}

/// Copies numbers in f32.
pub(super) fn copy_numbers(copy: PanelCopy<'_>) {
    let ((row, _), width, transpose) = (copy.at, copy.width, copy.transpose);
    for (b, panel, first) in copy.panels() {
        let panel = &mut panel[row * width..];
        match transpose {
            Transpose::No => {
                for (to, from) in panel.chunks_exact_mut(width).zip(b.iter()) {
                    to[first..first + from.len()].copy_from_slice(from);
                }
            }
            Transpose::Yes => turn_rows(b, panel, (width, first)),
        }
    }
}

/// Copies the rows of `b` to columns of a panel, from column `first` on. The copy runs in blocks, so that source and target
/// stay in cache.
fn turn_rows(b: View<'_, f32>, panel: &mut [f32], (width, first): (usize, usize)) {
    const BLOCK: usize = 16;
    for from in (0..b.width()).step_by(BLOCK) {
        let to = &mut panel[from * width..];
        for (j, row) in b.iter().enumerate() {
            let rest = &row[from..row.len().min(from + BLOCK)];
            for (k, &value) in rest.iter().enumerate() {
                to[k * width + first + j] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests;
