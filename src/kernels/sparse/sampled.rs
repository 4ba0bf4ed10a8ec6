//! Gradients of sparse factors of a product: the kernels compute only the elements at the entries of the sparse factor.

use super::super::fork::join;
use super::room::{Narrow, SparseRoom, ThreadSums};
use super::{Columns, CsrView, as_index};
use crate::kernels::float::{Assign, Float};
use crate::kernels::helpers;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::View;

/// Below this number of multiply-adds, a second thread costs more than it gains. An entry costs about [`ENTRY`]
/// multiply-adds in addition to one multiply-add per column.
const WORTH_A_THREAD: usize = 1 << 18;
const ENTRY: usize = 16;
/// The number of partial sums in a vector.
const LANES: usize = 16;

/// Computes the dot product `out[e] = a[r] · b[c]`, or adds it to `out[e]`, for every entry `e` of `x` in row `r` and column
/// `c`.
///
/// If `a` is the gradient of the product `x·b`, the result is the gradient of the values of `x`. Up to `threads` threads
/// divide the work; the bits do not depend on the number of threads.
///
/// # Panics
/// If the arguments do not have these shapes: for `x` of R × K, `a` is R × N, `b` is K × N, and `out` has one number per entry
/// of `x`. Also if a column index of `x` is not below K.
pub fn sampled_product<T: Float>(
    x: CsrView<'_, T>,
    a: View<'_, T>,
    b: View<'_, T>,
    out: &mut [T],
    assign: Assign,
    threads: usize,
) {
    let shapes = ((a.rows(), b.rows()), (a.width(), out.len()));
    assert_eq!(shapes, ((x.rows(), x.columns()), (b.width(), x.entries())), "shapes of a sampled product");
    let work = x.entries().saturating_mul(a.width() + ENTRY);
    Sampled { x, a, b, out, assign }.share(helpers(work, WORTH_A_THREAD, threads));
}

/// The sampled product for some rows of `x`.
struct Sampled<'a, T> {
    x: CsrView<'a, T>,
    a: View<'a, T>,
    b: View<'a, T>,
    out: &'a mut [T],
    assign: Assign,
}

impl<T: Float> Sampled<'_, T> {
    fn share(self, threads: usize) {
        if threads < 2 || self.x.rows() < 2 {
            return sweep(self);
        }
        let (left, rows) = (threads / 2, self.x.rows());
        let middle = self.x.divided(left, threads);
        let (out, out_after) = self.out.split_at_mut(self.x.start(middle));
        let before =
            Sampled { x: self.x.rows_range(0, middle), a: self.a.rows_range(0, middle), out, ..self };
        let after = Sampled {
            x: self.x.rows_range(middle, rows),
            a: self.a.rows_range(middle, rows),
            out: out_after,
            ..self
        };
        join(|| before.share(left), || after.share(threads - left));
    }
}

impl<T: Float> Sweep for Sampled<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        for r in 0..self.x.rows() {
            let a = self.a.row(r);
            let range = self.x.range(r);
            let columns = &self.x.indices()[range.clone()];
            for (out, &column) in self.out[range].iter_mut().zip(columns) {
                self.assign.put(out, dot::<A, T>(a, self.b.row(as_index(column))));
            }
        }
    }
}

/// Returns the dot product of two rows, computed as one partial sum per lane.
#[inline(always)]
fn dot<A: Arithmetic, T: Float>(a: &[T], b: &[T]) -> T {
    let mut sums = [[T::ZERO; LANES]; 2];
    let (a_pairs, a) = a.as_chunks::<{ 2 * LANES }>();
    let (b_pairs, b) = b.as_chunks::<{ 2 * LANES }>();
    for (a, b) in a_pairs.iter().zip(b_pairs) {
        for (half, sums) in sums.iter_mut().enumerate() {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum = A::mul_add(a[half * LANES + lane], b[half * LANES + lane], *sum);
            }
        }
    }
    let [mut sums, more] = sums;
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    let (a_lanes, a) = a.as_chunks::<LANES>();
    let (b_lanes, b) = b.as_chunks::<LANES>();
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = A::mul_add(a[lane], b[lane], *sum);
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
        *sum = A::mul_add(a, b, *sum);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    sums[0]
}

/// Computes the gradient of `x` in `c = x·y` at the entries of `x`. For the entry `e` in row `r` and column `k`, `out[e] =
/// Σⱼ dc[r][j] · y[k][j]`, or this sum is added to `out[e]`.
///
/// # Panics
/// If the arguments do not have these shapes: `x` is R × K, `y` is K × N, `dc` is R × N, and `out` has one number per entry of
/// `x`. The function also panics if a column index of `x` or `y` is beyond its matrix, or if `y` is very wide and has 2^32
/// entries or more.
pub fn sampled_left<T: Float>(
    x: CsrView<'_, T>,
    y: CsrView<'_, T>,
    dc: CsrView<'_, T>,
    out: &mut [T],
    assign: Assign,
    room: &mut SparseRoom<T>,
) {
    check(x, y, dc);
    assert_eq!(out.len(), x.entries(), "the entries of a gradient");
    let SparseRoom { parts, narrow, .. } = room;
    let (y, dc) = if Narrow::pays(y) { narrow.of_both(y, dc) } else { (y, dc) };
    let part = &mut SparseRoom::parts(parts, 1)[0];
    part.sums.reach(y.columns());
    sweep(LeftGradient { x, y, dc, out, assign, part });
}

fn check<T: Float>(x: CsrView<'_, T>, y: CsrView<'_, T>, dc: CsrView<'_, T>) {
    let shapes = ((x.columns(), dc.rows()), dc.columns());
    assert_eq!(shapes, ((y.rows(), x.rows()), y.columns()), "shapes of the gradient of a product");
}

struct LeftGradient<'a, T> {
    x: CsrView<'a, T>,
    y: CsrView<'a, T>,
    dc: CsrView<'a, T>,
    out: &'a mut [T],
    assign: Assign,
    part: &'a mut ThreadSums<T>,
}

impl<T: Float> Sweep for LeftGradient<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let sums = &mut self.part.sums;
        for r in 0..self.x.rows() {
            let row = self.dc.row(r);
            sums.add_unmarked::<A>(T::ONE, row);
            let range = self.x.range(r);
            let columns = &self.x.indices()[range.clone()];
            for (out, &k) in self.out[range].iter_mut().zip(columns) {
                let (columns, values) = self.y.row(as_index(k));
                let mut total = T::ZERO;
                for (&column, &value) in columns.iter().zip(values) {
                    total = A::mul_add(value, sums.get(column), total);
                }
                self.assign.put(out, total);
            }
            sums.clear(row.0);
        }
    }
}

/// Computes the gradient of `y` in `c = x·y` at the entries of `y`. For the entry `e` in row `k` and column `j`, `out[e] =
/// Σᵣ x[r][k] · dc[r][j]`, or this sum is added to `out[e]`. After the call, `columns` contains the plan of `x`.
///
/// # Panics
/// As [`sampled_left`], except that `out` has one number per entry of `y`; also if `x` has 2^32 entries or more, or
/// 2^32 rows or more.
pub fn sampled_right<T: Float>(
    x: CsrView<'_, T>,
    y: CsrView<'_, T>,
    dc: CsrView<'_, T>,
    out: &mut [T],
    assign: Assign,
    columns: &mut Columns<T>,
    room: &mut SparseRoom<T>,
) {
    check(x, y, dc);
    assert_eq!(out.len(), y.entries(), "the entries of a gradient");
    columns.prepare(x);
    let SparseRoom { parts, narrow, .. } = room;
    let (y, dc) = if Narrow::pays(y) { narrow.of_both(y, dc) } else { (y, dc) };
    let part = &mut SparseRoom::parts(parts, 1)[0];
    part.sums.reach(y.columns());
    if assign == Assign::Write {
        out.fill(T::ZERO);
    }
    sweep(Right { columns, y, dc, out, part });
}

struct Right<'a, T> {
    columns: &'a Columns<T>,
    y: CsrView<'a, T>,
    dc: CsrView<'a, T>,
    /// The gradient at each entry, to which the products are added.
    out: &'a mut [T],
    part: &'a mut ThreadSums<T>,
}

impl<T: Float> Sweep for Right<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let (sums, x) = (&mut self.part.sums, self.columns.transposed());
        for (i, &k) in self.columns.ids().iter().enumerate() {
            let range = self.y.range(as_index(k));
            if range.is_empty() {
                continue;
            }
            let (rows, factors) = x.row(i);
            for (&r, &factor) in rows.iter().zip(factors) {
                sums.add_unmarked::<A>(factor, self.dc.row(as_index(r)));
            }
            let columns = &self.y.indices()[range.clone()];
            for (out, &column) in self.out[range].iter_mut().zip(columns) {
                *out += sums.get(column);
            }
            for &r in rows {
                sums.clear(self.dc.row(as_index(r)).0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sparse, close, naive, turned};
    use super::*;
    use crate::kernels::checks::{numbers, wide};

    /// Returns the elements of a dense matrix at the positions of the entries of a sparse matrix.
    fn at_entries<T: Float>(dense: &[f64], pattern: CsrView<'_, T>) -> Vec<f64> {
        let row = |r| {
            pattern
                .row(r)
                .0
                .iter()
                .map(move |&c| dense[r * pattern.columns() + c as usize])
                .collect::<Vec<_>>()
        };
        (0..pattern.rows()).flat_map(row).collect()
    }

    const CASES: [[usize; 3]; 7] =
        [[0, 3, 4], [3, 0, 4], [4, 3, 0], [1, 1, 1], [30, 20, 25], [17, 200, 90], [40, 9, 100]];

    fn agrees<T: Float>() {
        for [rows, columns, width] in CASES {
            let x = Sparse::<T>::any(rows, columns, 12, 4);
            let (a, b) = (numbers::<T>(rows * width, 1), numbers::<T>(columns * width, 2));
            let expected = naive(&wide(&a), &turned(&wide(&b), columns, width), [rows, width, columns]);
            let mut expected = at_entries(&expected, x.view());
            let (a, b) = (View::new(&a, rows, width), View::new(&b, columns, width));
            let mut out = vec![T::NEG_INFINITY; x.indices.len()];
            sampled_product(x.view(), a, b, &mut out, Assign::Write, 1);
            close(&out, &expected);
            sampled_product(x.view(), a, b, &mut out, Assign::Add, 1);
            expected.iter_mut().for_each(|x| *x *= 2.0);
            close(&out, &expected);
        }
    }

    fn gradients_agree<T: Float>() {
        let (mut room, mut columns) = (SparseRoom::default(), Columns::default());
        for [rows, inner, width] in CASES {
            let x = Sparse::<T>::any(rows, inner, 12, 4);
            let y = Sparse::<T>::any(inner, width, 15, 5);
            let dc = Sparse::<T>::any(rows, width, 15, 6);
            let (xs, ys, dcs) = (x.dense(), y.dense(), dc.dense());
            let dx = at_entries(&naive(&dcs, &turned(&ys, inner, width), [rows, width, inner]), x.view());
            let dy = at_entries(&naive(&turned(&xs, rows, inner), &dcs, [inner, rows, width]), y.view());
            // In the second pair of matrices, the same entries have far larger column indices; the gradients must have
            // the same bits.
            let far = |x: &Sparse<T>| {
                let mut far = x.clone();
                far.columns = width << 30;
                far.indices.iter_mut().for_each(|column| *column <<= 30);
                far
            };
            let mut bits = vec![];
            for (y, dc) in [(&y, &dc), (&far(&y), &far(&dc))] {
                let (x, y, dc) = (x.view(), y.view(), dc.view());
                for (assign, factor) in [(Assign::Write, 1.0), (Assign::Add, 2.0)] {
                    let expected = |d: &[f64]| d.iter().map(|d| d * factor).collect::<Vec<_>>();
                    let mut out = vec![if factor == 1.0 { T::NEG_INFINITY } else { T::ZERO }; x.entries()];
                    sampled_left(x, y, dc, &mut out, Assign::Write, &mut room);
                    if assign == Assign::Add {
                        sampled_left(x, y, dc, &mut out, assign, &mut room);
                    }
                    close(&out, &expected(&dx));
                    bits.push(out);
                    let mut out = vec![T::NEG_INFINITY; y.entries()];
                    sampled_right(x, y, dc, &mut out, Assign::Write, &mut columns, &mut room);
                    if assign == Assign::Add {
                        sampled_right(x, y, dc, &mut out, assign, &mut columns, &mut room);
                    }
                    close(&out, &expected(&dy));
                    bits.push(out);
                }
            }
            assert!(bits[..4] == bits[4..]);
        }
    }

    #[test]
    fn gradients_at_entries_are_those_of_plain_loops() {
        agrees::<f32>();
        agrees::<f64>();
        gradients_agree::<f32>();
        gradients_agree::<f64>();
    }

    #[test]
    fn threads_give_the_same_bits() {
        let (rows, columns, width) = (700, 90, 70);
        let x = Sparse::<f32>::any(rows, columns, 60, 8);
        let (a, b) = (numbers::<f32>(rows * width, 1), numbers::<f32>(columns * width, 2));
        let run = |threads| {
            let mut out = vec![0.0; x.indices.len()];
            let (a, b) = (View::new(&a, rows, width), View::new(&b, columns, width));
            sampled_product(x.view(), a, b, &mut out, Assign::Write, threads);
            out
        };
        let expected = run(1);
        assert!([2, 3, 7].iter().all(|&threads| run(threads) == expected));
    }
}
