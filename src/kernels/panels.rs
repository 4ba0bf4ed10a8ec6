//! The copying of a matrix into the panels of a packed matrix. Threads divide the panels.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::fork::join;
use super::path::Path;
use super::prefetch;
use super::products::{Corner, PackedMatrix, Transpose};
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
    pub(super) at: Corner,
}

impl<'a> PanelCopy<'a> {
    /// Returns the copy of `b`, or of the transpose of `b`, to a place of a packed matrix where it fits.
    pub(super) fn new(
        to: &'a mut PackedMatrix<f32>,
        b: View<'a, f32>,
        transpose: Transpose,
        at: Corner,
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

/// Returns the function that copies numbers in f32, by the instructions of a path, which this CPU must have.
pub(super) fn copy_numbers(path: Path, transpose: Transpose) -> fn(PanelCopy<'_>) {
    match (transpose, path) {
        (Transpose::No, _) => copy_rows,
        // SAFETY: the CPU has the instructions of the path.
        #[cfg(target_arch = "x86_64")]
        (Transpose::Yes, Path::Avx512) => |copy| unsafe { x86::turn_by_avx512(copy) },
        // SAFETY: the CPU has the instructions of the path.
        #[cfg(target_arch = "x86_64")]
        (Transpose::Yes, Path::Avx2) => |copy| unsafe { x86::turn_by_avx2(copy) },
        (Transpose::Yes, _) => |copy| {
            let (row, width) = (copy.at.0, copy.width);
            for (b, panel, first) in copy.panels() {
                turn_rows(b, &mut panel[row * width..], (width, first));
            }
        },
    }
}

/// Copies the rows of a matrix to rows of panels, a few panels at a time: parts of a row that lie side by side share cache lines
/// and pages.
fn copy_rows(copy: PanelCopy<'_>) {
    const PANELS: usize = 4;
    /// How many rows before a row is read it is prefetched; rows are far apart in memory.
    const AHEAD: usize = 8;
    let (row, width, rows, ahead) = (copy.at.0, copy.width, copy.b.rows(), AHEAD * copy.b.stride());
    let mut panels = copy.panels();
    loop {
        let mut group: ArrayVec<_, PANELS> = panels.by_ref().take(PANELS).collect();
        if group.is_empty() {
            return;
        }
        for k in 0..rows {
            for (b, panel, first) in &mut group {
                let from = b.row(k).as_chunks::<8>();
                let to = panel[(row + k) * width + *first..][..b.width()].as_chunks_mut::<8>();
                for (to, from) in to.0.iter_mut().zip(from.0) {
                    prefetch::to_read(from.as_ptr().wrapping_add(ahead));
                    *to = *from;
                }
                to.1.copy_from_slice(from.1);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PanelCopy, turn_rows};
    use crate::kernels::prefetch;
    use crate::kernels::turn::{Avx2, Avx512, TransposeSquare};

    #[target_feature(enable = "avx512f")]
    pub(super) fn turn_by_avx512(copy: PanelCopy<'_>) {
        turn::<Avx512>(copy);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn turn_by_avx2(copy: PanelCopy<'_>) {
        turn::<Avx2>(copy);
    }

    /// Copies the rows of a matrix to columns of panels, in squares. Numbers that fill no square are copied one by one.
    #[inline(always)]
    fn turn<T: TransposeSquare>(copy: PanelCopy<'_>) {
        /// How many numbers before a number of a row is read it is prefetched. Many rows are read in turn, more than the CPU
        /// prefetches by itself.
        const AHEAD: usize = 16;
        let (row, width) = (copy.at.0, copy.width);
        for (b, panel, first) in copy.panels() {
            let panel = &mut panel[row * width..];
            let [rows, columns] = [b.rows(), b.width()].map(|len| len / T::SIDE * T::SIDE);
            for j in (0..rows).step_by(T::SIDE) {
                for k in (0..columns).step_by(T::SIDE) {
                    for i in j..j + T::SIDE {
                        prefetch::to_read(b.row(i).as_ptr().wrapping_add(k + AHEAD));
                    }
                    let from = b.rows_range(j, j + T::SIDE).columns(k, k + T::SIDE);
                    let to = &mut panel[k * width + first + j..][..(T::SIDE - 1) * width + T::SIDE];
                    // SAFETY: both are squares, and the caller has the instructions.
                    unsafe { T::turn(from.as_ptr(), from.stride(), to.as_mut_ptr(), width) };
                }
            }
            turn_rows(b.rows_range(rows, b.rows()), panel, (width, first + rows));
            let below = b.rows_range(0, rows).columns(columns, b.width());
            turn_rows(below, &mut panel[columns * width..], (width, first));
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
