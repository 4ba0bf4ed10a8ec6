//! Matrix products in f64, computed by the crate `matrixmultiply`.
//!
//! The crate computes each element as one sum over k in ascending order, in parts of a fixed length. The bits of an element
//! therefore depend only on its row of the left matrix and its column of the right matrix. The crate could also add to `c`,
//! but this module does not use that: the crate would add the parts of a long sum to `c` one by one.

use std::ops::Range;

use ::half::bf16;

use super::column_sums::{SUM_ROWS, bias_gradient};
use super::float::Assign;
use super::fork::join;
use super::gradient::divided;

use super::path::ProductEngine;
use super::picked::RowSource;
use super::product::checked;
use super::products::{
    Corner, GradientRoom, Gradients, LeftMatrix, PackedMatrix, Products, ResultMatrix, RoundedRows, Transpose,
};
use super::view::{View, ViewMut};

/// The minimum number of columns of the result per thread.
pub(super) const PANEL: usize = 32;
/// The number of rows of a product that are computed in scratch before they are added to `c`.
const ADDED_ROWS: usize = 256;

impl Products for f64 {
    fn panel_width(_: ProductEngine, _: usize) -> usize {
        PANEL
    }

    fn words(_: ProductEngine, k: usize) -> usize {
        k
    }

    fn clear_ends(_: &mut PackedMatrix<f64>) {}

    fn left<'a>(
        _: ProductEngine,
        a: LeftMatrix<'a, f64>,
        _: &'a mut RoundedRows<f64>,
        _: usize,
    ) -> View<'a, f64> {
        let LeftMatrix::Full(a) = a else { panic!("a product in f64 of numbers in bf16") };
        a
    }

    fn put(to: &mut PackedMatrix<f64>, b: View<'_, f64>, transpose: Transpose, at: Corner, _: usize) {
        self::put(to, b, transpose, at);
    }

    fn product(
        a: View<'_, f64>,
        b: &PackedMatrix<f64>,
        panels: Range<usize>,
        bias: Option<&[f64]>,
        c: ResultMatrix<'_, f64>,
        assign: Assign,
    ) {
        let ResultMatrix::Full(c) = c else { panic!("a product in f64 with a result in bf16") };
        self::product(a, b, panels, bias, c, assign);
    }

    fn round_to_bf16(_: View<'_, f64>, _: ViewMut<'_, bf16>) {
        panic!("numbers in f64 that are rounded to bf16")
    }

    fn from_bf16(number: bf16) -> f64 {
        number.to_f64()
    }

    fn gradients(all: Gradients<'_, f64>, _: &mut GradientRoom<f64>, threads: usize) {
        self::gradients(all, threads);
    }
}

/// Implements [`PackedMatrix::put`] for f64: copies the matrix row by row. The caller has checked that the copied part fits
/// into the packed matrix.
pub(super) fn put(
    packed: &mut PackedMatrix<f64>,
    b: View<'_, f64>,
    transpose: Transpose,
    (row, column): (usize, usize),
) {
    let (k, n) = (packed.k(), packed.n());
    let mut to = ViewMut::new(packed.numbers_mut(), k, n);
    for (i, from) in b.iter().enumerate() {
        match transpose {
            Transpose::No => to.row(row + i)[column..column + from.len()].copy_from_slice(from),
            Transpose::Yes => {
                from.iter().enumerate().for_each(|(j, &value)| to.row(row + j)[column + i] = value);
            }
        }
    }
}

/// Implements `product_panels` for f64.
pub(super) fn product(
    a: View<'_, f64>,
    b: &PackedMatrix<f64>,
    panels: Range<usize>,
    bias: Option<&[f64]>,
    mut c: ViewMut<'_, f64>,
    assign: Assign,
) {
    let columns = checked(a, b, panels, bias, (c.rows(), c.width()));
    let b = View::new(b.numbers(), b.k(), b.n()).columns(columns.start, columns.end);
    multiply((a, Transpose::No), b, bias, c.reborrow(), assign);
}

/// Computes `c = bias + a·b`, or adds the finished sums to `c`; `a` may be stored transposed. `bias` has one number per
/// column of `c`.
///
/// # Panics
/// If `a` is not M × K, `b` not K × N, or `c` not M × N.
fn multiply(
    (a, transpose): (View<'_, f64>, Transpose),
    b: View<'_, f64>,
    bias: Option<&[f64]>,
    mut c: ViewMut<'_, f64>,
    assign: Assign,
) {
    let (m, k) = transpose.shape((a.rows(), a.width()));
    let n = b.width();
    assert_eq!((b.rows(), c.rows(), c.width()), (k, m, n), "the shapes of a product in f64");
    if m == 0 || n == 0 {
        return;
    }
    if assign == Assign::Add {
        let mut room = vec![0.0; m.min(ADDED_ROWS) * n];
        for row in (0..m).step_by(ADDED_ROWS) {
            let end = m.min(row + ADDED_ROWS);
            let a = match transpose {
                Transpose::No => a.rows_range(row, end),
                Transpose::Yes => a.columns(row, end),
            };
            multiply((a, transpose), b, bias, ViewMut::new(&mut room, end - row, n), Assign::Write);
            let (c, _) = c.reborrow().split_rows(row).1.split_rows(end - row);
            assign.put_rows(c, View::new(&room, end - row, n));
        }
        return;
    }
    let (row, column) = transpose.shape((a.stride() as isize, 1));
    // SAFETY: the three matrices have the given sizes and strides. `c` overlaps neither `a` nor `b`, and its rows do not
    // overlap each other.
    unsafe {
        let (b, b_row, c_row) = (b.as_ptr(), b.stride() as isize, c.stride() as isize);
        let (a, to) = (a.as_ptr(), c.as_mut_ptr());
        matrixmultiply::dgemm(m, k, n, 1.0, a, row, column, b, b_row, 1, 0.0, to, c_row, 1);
    }
    if let Some(bias) = bias {
        c.iter_mut().for_each(|c| c.iter_mut().zip(bias).for_each(|(c, &bias)| *c += bias));
    }
}

/// Computes the gradients of a weight and a bias in f64.
pub(super) fn gradients(mut all: Gradients<'_, f64>, threads: usize) {
    let Some(threads) = divided(&mut all, threads) else { return };
    if let Some((db, assign)) = all.db.take() {
        bias_gradient((all.dy, false), db, assign, threads);
    }
    share(all, threads);
}

/// Divides the columns of the weight's gradient among threads.
fn share(all: Gradients<'_, f64>, threads: usize) {
    let n = all.dy.width();
    if threads < 2 || n < 2 {
        return blocks(all);
    }
    let Gradients { unit, x, dy, dw: (dw, assign, transpose), .. } = all;
    let left = threads / 2;
    let middle = (n * left / threads).max(1);
    let (dw, dw_after) = match transpose {
        Transpose::No => dw.split_columns(middle),
        Transpose::Yes => dw.split_rows(middle),
    };
    let part =
        |from, to, dw| Gradients { unit, x, dy: dy.columns(from, to), dw: (dw, assign, transpose), db: None };
    let (a, b) = (part(0, middle, dw), part(middle, n, dw_after));
    join(|| share(a, left), || share(b, threads - left));
}

/// Adds the products of the rows, block by block.
fn blocks(all: Gradients<'_, f64>) {
    let Gradients { x, dy, dw: (mut dw, assign, transpose), .. } = all;
    let LeftMatrix::Full(dy) = dy else { panic!("a gradient in f64 of numbers in bf16") };
    let mut picked = Vec::new();
    for row in (0..x.rows()).step_by(SUM_ROWS) {
        let end = x.rows().min(row + SUM_ROWS);
        let x = match x.rows_range(row, end) {
            RowSource::Lying(x) => x,
            rows => {
                picked.clear();
                rows.each(|row| picked.extend_from_slice(row));
                View::new(&picked, rows.rows(), rows.width())
            }
        };
        let dy = dy.rows_range(row, end);
        let (a, b) = transpose.shape((x, dy));
        let assign = if row > 0 { Assign::Add } else { assign };
        multiply((a, Transpose::Yes), b, None, dw.reborrow(), assign);
    }
}
