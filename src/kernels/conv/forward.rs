//! The forward pass of a convolution, computed for one block of rows at a time.

use crate::kernels::cpu::cpu;
use crate::kernels::float::{Assign, Float};
use crate::kernels::path::MatrixUnit;
use crate::kernels::product::{ALIGNMENT, affine, lengthen};
use crate::kernels::products::{PackedMatrix, RoundedRows};
use crate::kernels::view::{Extent2, View, ViewMut};

use super::rows::ConvRows;

/// Scratch of a convolution, which the caller keeps between calls.
#[derive(Debug, Default)]
pub struct ConvRoom<T> {
    tile: Vec<T>,
    rounded: RoundedRows<T>,
}

impl<T: Float> ConvRoom<T> {
    /// Returns the size in bytes of the rooms of up to `threads` threads that divide a convolution of `rows` rows, with weights of
    /// `k` rows.
    pub fn bytes_of(unit: MatrixUnit, rows: usize, k: usize, threads: usize) -> usize {
        let (stride, block) = tile::<T>(k);
        // The threads divide the rows, so all tiles together have at most `rows` rows.
        let tiles = stride * rows.min(threads * block) * size_of::<T>();
        tiles + threads * RoundedRows::<T>::bytes_of(unit, rows.min(block), k)
    }
}

/// Returns the stride and the rows of a tile for weights of `k` rows.
fn tile<T>(k: usize) -> (usize, usize) {
    // This stride keeps successive rows of the tile out of the same cache sets.
    let stride = k.next_multiple_of(ALIGNMENT / size_of::<T>()) + ALIGNMENT / size_of::<T>();
    (stride, cpu().conv_rows::<T>(stride))
}

/// Computes `out = bias + Σ_j x[t + offset(j)] · W_j` for every row t, or adds this result to `out`. The rows of each window
/// are copied side by side into a tile; each group of columns is multiplied by its own weights. Up to `threads` threads
/// divide the columns of the result. The bits of each result do not depend on the other sequences of the batch.
///
/// # Panics
/// If two arguments do not have matching shapes. For G weights of K × N numbers, each row of `x` has G · K / taps numbers,
/// and `bias` and each row of `out` have G · N numbers.
pub fn conv_forward<T: Float>(
    rows: ConvRows<'_, T>,
    weights: &[PackedMatrix<T>],
    bias: Option<&[T]>,
    (mut out, assign): (ViewMut<'_, T>, Assign),
    room: &mut ConvRoom<T>,
    threads: usize,
) {
    let taps = rows.window.taps;
    let Some(first) = weights.first() else { return };
    let (k, n) = (first.k(), first.n());
    let width = k / taps.max(1);
    rows.check();
    assert_eq!(rows.x.width(), width * weights.len(), "the width of the input of a convolution");
    assert_eq!((out.rows(), out.width()), (rows.x.rows(), n * weights.len()), "the shape of a convolution");
    assert!(bias.is_none_or(|bias| bias.len() == out.width()), "the length of a bias");
    let (stride, block) = tile::<T>(k);
    lengthen(&mut room.tile, stride * block.min(out.rows()));
    for start in (0..out.rows()).step_by(block) {
        let block = start..out.rows().min(start + block);
        let extent = Extent2 { rows: block.len(), width: k, stride };
        for (group, weights) in weights.iter().enumerate() {
            let columns = group * n..(group + 1) * n;
            let rows = rows.columns(group * width, (group + 1) * width);
            for tap in 0..taps {
                let column = tap * width;
                rows.window.each(rows.offsets, tap, block.clone(), |row, from| {
                    let at = (row - block.start) * stride + column;
                    let to = &mut room.tile[at..at + width];
                    match rows.numbers(from) {
                        Some(numbers) => to.copy_from_slice(numbers),
                        None => to.fill(T::ZERO),
                    }
                });
            }
            let to = out.reborrow().columns(columns.start, columns.end);
            let (to, _) = to.split_rows(block.start).1.split_rows(block.len());
            let bias = bias.map(|bias| &bias[columns]);
            affine(
                View::strided(&room.tile, extent).into(),
                weights,
                bias,
                to.into(),
                assign,
                &mut room.rounded,
                threads,
            );
        }
    }
}
