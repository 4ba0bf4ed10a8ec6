//! Depthwise convolutions, in which each column of the result depends on one column of the input:
//! `out[t][c] = bias[c] + Σ_j x[t + offset(j)][c] · w[j][c]`.

use crate::kernels::column_sums::SUM_ROWS;
use crate::kernels::float::{Assign, Float};
use crate::kernels::helpers;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::{View, ViewMut};

use super::super::fork::join;
use super::rows::ConvRows;
use super::window::Source;

/// The number of columns that are summed at the same time, in registers.
const COLUMNS: usize = 64;
/// Below this number of multiply-adds, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 19;

/// Convolves each column of the input with the same column of the filter `w`, which has the shape `[taps, width]`. The bits
/// of each result do not depend on the other sequences of the batch.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn depthwise_forward<T: Float>(
    rows: ConvRows<'_, T>,
    w: View<'_, T>,
    bias: Option<&[T]>,
    (out, assign): (ViewMut<'_, T>, Assign),
) {
    let width = rows.x.width();
    rows.check();
    assert_eq!((w.rows(), w.width()), (rows.window.taps, width), "the shape of a filter");
    assert_eq!((out.rows(), out.width()), (rows.x.rows(), width), "the shape of a convolution");
    assert!(bias.is_none_or(|bias| bias.len() == width), "the length of a bias");
    sweep(DepthwiseRows { rows, w, bias, out, assign });
}

struct DepthwiseRows<'a, 'o, T> {
    rows: ConvRows<'a, T>,
    w: View<'a, T>,
    bias: Option<&'a [T]>,
    out: ViewMut<'o, T>,
    assign: Assign,
}

impl<T: Float> Sweep for DepthwiseRows<'_, '_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let DepthwiseRows { rows, w, bias, mut out, assign } = self;
        let width = rows.x.width();
        for pair in rows.offsets.windows(2) {
            let sequence = pair[0] - rows.offsets[0]..pair[1] - rows.offsets[0];
            for row in sequence.clone() {
                for from in (0..width).step_by(COLUMNS) {
                    let columns = from..width.min(from + COLUMNS);
                    let mut sums = [T::ZERO; COLUMNS];
                    if let Some(bias) = bias {
                        sums[..columns.len()].copy_from_slice(&bias[columns.clone()]);
                    }
                    for tap in 0..rows.window.taps {
                        let Some(x) = rows.numbers(rows.window.source(&sequence, row, tap)) else {
                            continue;
                        };
                        let (x, w) = (&x[columns.clone()], &w.row(tap)[columns.clone()]);
                        for (sum, (&x, &w)) in sums.iter_mut().zip(x.iter().zip(w)) {
                            *sum = A::mul_add(x, w, *sum);
                        }
                    }
                    for (out, &sum) in out.row(row)[columns].iter_mut().zip(&sums) {
                        assign.put(out, sum);
                    }
                }
            }
        }
    }
}

/// Computes the gradient of the filter, `dw[j][c] = Σ_t x[t + offset(j)][c] · dy[t][c]`. Threads share the columns; rows are
/// summed in fixed blocks, so the bits do not depend on the number of threads.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn depthwise_gradient<T: Float>(
    rows: ConvRows<'_, T>,
    dy: View<'_, T>,
    (dw, assign): (ViewMut<'_, T>, Assign),
    threads: usize,
) {
    let (taps, width) = (rows.window.taps, rows.x.width());
    rows.check();
    assert_eq!((dy.rows(), dy.width()), (rows.x.rows(), width), "the gradient of a convolution");
    assert_eq!((dw.rows(), dw.width()), (taps, width), "the shape of a filter's gradient");
    let threads = helpers(dy.rows() * taps * width, WORTH_A_THREAD, threads);
    share(rows, dy, (dw, assign), threads);
}

fn share<T: Float>(
    rows: ConvRows<'_, T>,
    dy: View<'_, T>,
    (dw, assign): (ViewMut<'_, T>, Assign),
    threads: usize,
) {
    let width = dy.width();
    if threads < 2 || width < 2 {
        return sweep(Sums { rows, dy, dw, assign });
    }
    let left = threads / 2;
    let middle = (width * left / threads).max(1);
    let (dw, after) = dw.split_columns(middle);
    join(
        || share(rows.columns(0, middle), dy.columns(0, middle), (dw, assign), left),
        || share(rows.columns(middle, width), dy.columns(middle, width), (after, assign), threads - left),
    );
}

struct Sums<'a, 'o, T> {
    rows: ConvRows<'a, T>,
    dy: View<'a, T>,
    dw: ViewMut<'o, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Sums<'_, '_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Sums { rows, dy, mut dw, assign } = self;
        let width = dy.width();
        for from in (0..width).step_by(COLUMNS) {
            let columns = from..width.min(from + COLUMNS);
            let mut assign = assign;
            // The loop runs at least once, so that the sum is written even if there are no rows.
            for start in (0..dy.rows().max(1)).step_by(SUM_ROWS) {
                let block = start..dy.rows().min(start + SUM_ROWS);
                for tap in 0..rows.window.taps {
                    let mut sums = [T::ZERO; COLUMNS];
                    rows.window.each(rows.offsets, tap, block.clone(), |row, source| {
                        let Some(x) = rows.numbers(source) else { return };
                        let (x, dy) = (&x[columns.clone()], &dy.row(row)[columns.clone()]);
                        for (sum, (&x, &dy)) in sums.iter_mut().zip(x.iter().zip(dy)) {
                            *sum = A::mul_add(x, dy, *sum);
                        }
                    });
                    for (dw, &sum) in dw.row(tap)[columns.clone()].iter_mut().zip(&sums) {
                        assign.put(dw, sum);
                    }
                }
                assign = Assign::Add;
            }
        }
    }
}

/// Computes the gradient of each padding row: the sum of `dy[t] · w[j]` over all rows t and taps j that read the padding
/// row. `dy.x` holds the gradient of the result.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn depthwise_padding_gradient<T: Float>(
    dy: ConvRows<'_, T>,
    w: View<'_, T>,
    (mut padding, assign): (ViewMut<'_, T>, Assign),
) {
    let (width, count) = (dy.x.width(), dy.window.padding_rows());
    dy.check();
    assert_eq!((padding.rows(), padding.width()), (count, width), "the shape of padding rows");
    assign.put_nothing(padding.reborrow());
    for tap in 0..dy.window.taps {
        dy.window.each(dy.offsets, tap, 0..dy.x.rows(), |row, source| {
            if let Source::Padding(at) = source {
                let sums = padding.row(at).iter_mut().zip(dy.x.row(row).iter().zip(w.row(tap)));
                sums.for_each(|(sum, (&dy, &w))| *sum += dy * w);
            }
        });
    }
}
