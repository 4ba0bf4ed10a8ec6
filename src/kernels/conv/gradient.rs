//! The gradients of a convolution's filter, bias and padding rows. The gradient of a convolution's input is itself a
//! convolution, with the reversed window and the transposed filter of each tap.

use crate::kernels::float::{Assign, Float};
use crate::kernels::gradient::{picked_gradient, picked_gradient_bytes};
use crate::kernels::helpers;
use crate::kernels::path::MatrixUnit;
use crate::kernels::picked::PickedRows;
use crate::kernels::product::{emptied, lengthen, product};
use crate::kernels::products::{BiasGradient, GradientRoom, PackedMatrix, RoundedRows, Transpose};
use crate::kernels::view::{View, ViewMut};

use super::super::fork::join;
use super::rows::ConvRows;
use super::window::Source;

/// Below this number of multiply-adds, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 20;

/// Scratch of the gradients of a convolution, which the caller keeps between calls.
#[derive(Debug, Default)]
pub struct ConvGradient<T> {
    threads: Vec<ThreadRoom<T>>,
    zeros: Vec<T>,
    sums: Vec<T>,
    rounded: RoundedRows<T>,
}

impl<T: Float> ConvGradient<T> {
    /// Returns the size in bytes of the scratch for a filter's gradient. A group has `width` columns of the input and
    /// `n` columns of the result.
    pub fn bytes_of(
        unit: MatrixUnit,
        rows: usize,
        (width, n): (usize, usize),
        groups: usize,
        threads: usize,
    ) -> usize {
        let of_thread = picked_gradient_bytes::<T>(unit, width, n) + rows * size_of::<usize>();
        threads * (of_thread + size_of::<ThreadRoom<T>>()) + width * groups * size_of::<T>()
    }

    /// Returns the size in bytes of the scratch for the gradient of `count` padding rows, with weights of `k` rows.
    pub fn padding_bytes_of(unit: MatrixUnit, count: usize, k: usize) -> usize {
        count * k * size_of::<T>() + RoundedRows::<T>::bytes_of(unit, count, k)
    }
}

/// Scratch of one thread for the gradients of a convolution.
#[derive(Debug, Default)]
struct ThreadRoom<T> {
    room: GradientRoom<T>,
    index: Vec<usize>,
}

/// Computes the gradient of the filter, `dW_j = Σ_t x[t + offset(j)]ᵀ · dy[t]` for every tap j, separately for each of
/// `groups` groups of columns. The gradients of the taps are stored below each other. Also computes the gradient of the
/// bias, the column sums of `dy`. Threads divide the rows of `dw`; the bits do not depend on the number of threads.
///
/// # Panics
/// If `dy` and `x` have different numbers of rows, if `groups` does not divide their widths, or if the gradients do not have
/// the shapes of the filter and the bias.
pub fn conv_gradient<T: Float>(
    rows: ConvRows<'_, T>,
    dy: View<'_, T>,
    groups: usize,
    (dw, assign): (ViewMut<'_, T>, Assign),
    db: Option<BiasGradient<'_, T>>,
    (unit, room): (MatrixUnit, &mut ConvGradient<T>),
    threads: usize,
) {
    let (width, n) = (rows.x.width() / groups, dy.width());
    rows.check();
    assert_eq!(rows.x.width(), width * groups, "the width of the input of a convolution");
    assert_eq!(dy.rows(), rows.x.rows(), "the rows of the gradient of a convolution");
    assert_eq!(n % groups, 0, "the width of the gradient of a convolution");
    let k = width * rows.window.taps;
    assert_eq!((dw.rows(), dw.width()), (k, n), "the shape of a filter's gradient");
    let threads = helpers(dy.rows() * k * (n / groups.max(1)), WORTH_A_THREAD, threads);
    room.threads.resize_with(room.threads.len().max(threads), ThreadRoom::default);
    lengthen(&mut room.zeros, rows.x.width());
    let shares = Shares { rows, dy, groups, assign, unit, zeros: &room.zeros };
    shares.divide((dw, 0), db, &mut room.threads[..threads]);
}

/// The inputs of a filter's gradient, which all threads read.
#[derive(Clone, Copy)]
struct Shares<'a, T> {
    rows: ConvRows<'a, T>,
    dy: View<'a, T>,
    groups: usize,
    assign: Assign,
    unit: MatrixUnit,
    zeros: &'a [T],
}

impl<T: Float> Shares<'_, T> {
    /// Splits the rows of the gradient in half recursively, until each thread has its own rows. The first of the given rows
    /// is row `first` of the whole gradient.
    fn divide(
        self,
        (dw, first): (ViewMut<'_, T>, usize),
        db: Option<BiasGradient<'_, T>>,
        rooms: &mut [ThreadRoom<T>],
    ) {
        let parts = rooms.len();
        if parts < 2 || dw.rows() < 2 {
            return self.taps((dw, first), db, &mut rooms[0]);
        }
        let (left, right) = rooms.split_at_mut(parts / 2);
        let middle = (dw.rows() * left.len() / parts).max(1);
        let (dw, rest) = dw.split_rows(middle);
        join(|| self.divide((dw, first), db, left), || self.divide((rest, first + middle), None, right));
    }

    /// Computes some rows of the filter's gradient, tap by tap.
    fn taps(
        self,
        (mut dw, first): (ViewMut<'_, T>, usize),
        mut db: Option<BiasGradient<'_, T>>,
        own: &mut ThreadRoom<T>,
    ) {
        let Shares { rows, dy, groups, assign, unit, zeros } = self;
        let (width, n, end) = (rows.x.width() / groups, dy.width() / groups, first + dw.rows());
        let mut at = first;
        while at < end {
            let tap = at / width;
            let columns = at - tap * width..width.min(end - tap * width);
            rows.index(tap, &mut own.index);
            for group in 0..groups {
                let input = rows.columns(group * width + columns.start, group * width + columns.end);
                let picked = PickedRows { x: input.x, beside: input.padding, zeros, index: &own.index };
                let (dy, dw) = (dy.columns(group * n, (group + 1) * n), dw.reborrow());
                let dw = dw.columns(group * n, (group + 1) * n);
                let (dw, _) = dw.split_rows(at - first).1.split_rows(columns.len());
                let db = db.as_mut().filter(|_| at == first);
                let db = db.map(|(db, assign)| (&mut db[group * n..(group + 1) * n], *assign));
                picked_gradient(dy, picked, (dw, assign, Transpose::No), db, unit, &mut own.room);
            }
            at += columns.len();
        }
    }
}

impl<T: Float> ConvRows<'_, T> {
    /// Lists, for each row of the result, the index of the row that a tap reads; the indices of the padding rows follow the
    /// indices of the rows of `x`.
    fn index(&self, tap: usize, index: &mut Vec<usize>) {
        let rows = self.x.rows();
        emptied(index, rows);
        self.window.each(self.offsets, tap, 0..rows, |_, from| {
            index.push(match from {
                Source::Row(row) => row,
                Source::Padding(row) => rows + row,
            });
        });
    }
}

/// Computes the gradient of each padding row: the sum of `dy · W_jᵀ` over all rows and taps j that read the padding row.
/// `weights` are the weights of the reversed window, as for the gradient of `x`; `dy.x` holds the gradient of the result.
/// The kernel first sums the rows of `dy` and then multiplies, so that it computes few products.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn conv_padding_gradient<T: Float>(
    dy: ConvRows<'_, T>,
    weights: &[PackedMatrix<T>],
    (mut padding, assign): (ViewMut<'_, T>, Assign),
    room: &mut ConvGradient<T>,
) {
    let Some(first) = weights.first() else { return };
    let (k, width, taps, count) = (first.k(), first.n(), dy.window.taps, dy.window.padding_rows());
    let n = k / taps.max(1);
    dy.check();
    assert_eq!(dy.x.width(), n * weights.len(), "the gradient of a convolution");
    assert_eq!(
        (padding.rows(), padding.width()),
        (count, width * weights.len()),
        "the shape of padding rows"
    );
    for (group, weights) in weights.iter().enumerate() {
        let dy = dy.columns(group * n, (group + 1) * n);
        emptied(&mut room.sums, count * k).resize(count * k, T::ZERO);
        for tap in 0..taps {
            dy.window.each(dy.offsets, tap, 0..dy.x.rows(), |row, from| {
                if let Source::Padding(at) = from {
                    let sums = &mut room.sums[at * k + tap * n..at * k + (tap + 1) * n];
                    sums.iter_mut().zip(dy.x.row(row)).for_each(|(sum, &dy)| *sum += dy);
                }
            });
        }
        let to = padding.reborrow().columns(group * width, (group + 1) * width);
        product(View::new(&room.sums, count, k), weights, to, assign, &mut room.rounded);
    }
}
