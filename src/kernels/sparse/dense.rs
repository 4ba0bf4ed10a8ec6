//! The product of a sparse and a dense matrix: each row of the result is a sum of rows of the dense matrix, computed in
//! vector registers.

use std::marker::PhantomData;

use super::super::fork::join;
use super::{CsrView, as_index};
use crate::kernels::float::{Assign, Float};
use crate::kernels::helpers;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::{View, ViewMut};

/// Below this number of multiply-adds, a second thread costs more than it gains. An entry costs about [`ENTRY`]
/// multiply-adds in addition to one multiply-add per column.
const WORTH_A_THREAD: usize = 1 << 18;
const ENTRY: usize = 16;

/// Computes `out = x·y`, or adds the product to `out`, on up to `threads` threads; the bits do not depend on the number of
/// threads.
///
/// # Panics
/// If the arguments do not have these shapes: `x` is R × K, `y` is K × N, and `out` is R × N. Also if a column index of `x` is
/// negative or not below K.
pub fn csr_dense<T: Float>(
    x: CsrView<'_, T>,
    y: View<'_, T>,
    out: ViewMut<'_, T>,
    assign: Assign,
    threads: usize,
) {
    assert_eq!(x.columns(), y.rows(), "the columns of a sparse matrix and the rows of its factor");
    assert_eq!((out.rows(), out.width()), (x.rows(), y.width()), "the shape of a product");
    Rows { x, y, out, assign, ids: None, first: 0 }.run_on(threads);
}

/// The product of some rows of the sparse matrix `x` with `y`.
pub(super) struct Rows<'a, T> {
    pub(super) x: CsrView<'a, T>,
    pub(super) y: View<'a, T>,
    pub(super) out: ViewMut<'a, T>,
    pub(super) assign: Assign,
    /// For each row of `x`, the index of the result's row, in ascending order; `None` if row `i` of `x` gives row `i` of the
    /// result.
    pub(super) ids: Option<&'a [i64]>,
    /// The index of the result's row that is stored in the first row of `out`; used only with `ids`.
    pub(super) first: usize,
}

impl<T: Float> Rows<'_, T> {
    pub(super) fn run_on(self, threads: usize) {
        if self.y.width() == 0 {
            return;
        }
        let work = self.x.entries().saturating_mul(self.y.width() + ENTRY);
        let threads = helpers(work, WORTH_A_THREAD, threads);
        self.share(threads);
    }

    fn share(self, threads: usize) {
        if threads < 2 || self.x.rows() < 2 {
            return self.run();
        }
        let (left, rows) = (threads / 2, self.x.rows());
        let middle = self.x.divided(left, threads);
        let (ids, first, split) = match self.ids {
            None => ((None, None), 0, middle),
            Some(ids) => {
                let first = ids.get(middle).map_or(self.first + self.out.rows(), |&id| as_index(id));
                ((Some(&ids[..middle]), Some(&ids[middle..])), first, first - self.first)
            }
        };
        let (out, out_after) = self.out.split_rows(split);
        let before = Rows { x: self.x.rows_range(0, middle), out, ids: ids.0, ..self };
        let after = Rows { x: self.x.rows_range(middle, rows), out: out_after, ids: ids.1, first, ..self };
        join(|| before.share(left), || after.share(threads - left));
    }
}

impl<T: Float> Rows<'_, T> {
    /// Runs the loop for the width of `y`; in wide rows, each vector of columns fills one line of the nearest cache.
    fn run(self) {
        match self.y.width() {
            0 => {}
            1 => sweep(Vector(self)),
            2 => self.each::<FewVectors<2, 1>>(),
            3 => self.each::<FewVectors<2, 2>>(),
            4 => self.each::<FewVectors<4, 1>>(),
            5..8 => self.each::<FewVectors<4, 2>>(),
            // The condition is a constant, so that the compiler generates only the loops for this element type.
            width => {
                if const { size_of::<T>() > 4 } {
                    self.each::<Wide<8>>();
                } else if width == 8 {
                    self.each::<FewVectors<8, 1>>();
                } else if width < 16 {
                    self.each::<FewVectors<8, 2>>();
                } else {
                    self.each::<Wide<16>>();
                }
            }
        }
    }

    fn each<B: Blocks>(self) {
        sweep(WidthLoop::<T, B> { rows: self, blocks: PhantomData });
    }
}

/// The product with a matrix `y` of a single column.
struct Vector<'a, T>(Rows<'a, T>);

impl<T: Float> Sweep for Vector<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Rows { x, y, mut out, assign, ids, first } = self.0;
        let y = Column { start: y.as_ptr(), rows: y.rows(), stride: y.stride(), of: PhantomData };
        for r in 0..x.rows() {
            let (indices, values) = x.row(r);
            let to = ids.map_or(r, |ids| as_index(ids[r]) - first);
            let mut sums = [T::ZERO; 4];
            let (turns, rest) = indices.as_chunks::<4>();
            let (value_turns, value_rest) = values.as_chunks::<4>();
            for (indices, values) in turns.iter().zip(value_turns) {
                for k in 0..4 {
                    sums[k] = A::mul_add(values[k], y.at(indices[k]), sums[k]);
                }
            }
            for ((sum, &index), &value) in sums.iter_mut().zip(rest).zip(value_rest) {
                *sum = A::mul_add(value, y.at(index), *sum);
            }
            let [a, b, c, d] = sums;
            assign.put(&mut out.row(to)[0], (a + c) + (b + d));
        }
    }
}

/// A view of a single column.
#[derive(Clone, Copy)]
struct Column<'a, T> {
    start: *const T,
    rows: usize,
    stride: usize,
    of: PhantomData<&'a T>,
}

impl<T: Float> Column<'_, T> {
    #[inline(always)]
    fn at(self, index: i64) -> T {
        // A negative index becomes a huge row number, which the next comparison refuses.
        let row = index as usize;
        if row >= self.rows {
            beyond(index, self.rows);
        }
        // SAFETY: `row` is a row of the view, and every row has a column.
        unsafe { *self.start.add(row * self.stride) }
    }
}

/// The loop over rows for one class of widths of `y`. The compiler compiles each loop as a separate function, so that the
/// loops do not compete for registers.
struct WidthLoop<'a, T, B> {
    rows: Rows<'a, T>,
    blocks: PhantomData<B>,
}

impl<T: Float, B: Blocks> Sweep for WidthLoop<'_, T, B> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Rows { x, y, mut out, assign, ids, first } = self.rows;
        for r in 0..x.rows() {
            let to = ids.map_or(r, |ids| as_index(ids[r]) - first);
            let (indices, values) = x.row(r);
            B::put::<A, T>(Row { indices, values, y }, out.row(to), assign);
        }
    }
}

/// A division of the columns of a row into vectors. A trait is used instead of a closure, since a closure would not be
/// compiled for the CPU's vectors.
trait Blocks {
    fn put<A: Arithmetic, T: Float>(row: Row<'_, T>, out: &mut [T], assign: Assign);
}

/// The division of a narrow row into `V` vectors of `L` columns.
struct FewVectors<const L: usize, const V: usize>;

impl<const L: usize, const V: usize> Blocks for FewVectors<L, V> {
    #[inline(always)]
    fn put<A: Arithmetic, T: Float>(row: Row<'_, T>, out: &mut [T], assign: Assign) {
        row.block::<A, L, V, 4>(0, out, assign);
    }
}

/// The division of a row of at least `L` columns into blocks of four vectors of `L` columns.
struct Wide<const L: usize>;

impl<const L: usize> Blocks for Wide<L> {
    #[inline(always)]
    fn put<A: Arithmetic, T: Float>(row: Row<'_, T>, out: &mut [T], assign: Assign) {
        for from in (0..out.len()).step_by(4 * L) {
            match (out.len() - from).div_ceil(L) {
                1 => row.block::<A, L, 1, 4>(from, out, assign),
                2 => row.block::<A, L, 2, 2>(from, out, assign),
                3 => row.block::<A, L, 3, 1>(from, out, assign),
                _ => row.block::<A, L, 4, 1>(from, out, assign),
            }
        }
    }
}

/// One row of the sparse matrix, and the dense matrix `y`.
#[derive(Clone, Copy)]
struct Row<'a, T> {
    indices: &'a [i64],
    values: &'a [T],
    y: View<'a, T>,
}

impl<T: Float> Row<'_, T> {
    /// Computes a block of the result's row: `V` vectors of `L` columns, from column `from` on. If fewer columns are left,
    /// the last vector ends at the last column of the row and overlaps the vector before it. The entries are added to `K`
    /// partial sums in turn: with a single sum, each addition would wait for the previous addition.
    #[inline(always)]
    fn block<A: Arithmetic, const L: usize, const V: usize, const K: usize>(
        self,
        from: usize,
        out: &mut [T],
        assign: Assign,
    ) {
        let end = out.len().min(from + V * L);
        let begin = from.min(end - L);
        let last = end - L - begin;
        let columns = self.y.columns(begin, end);
        let mut sums = [[[T::ZERO; L]; V]; K];
        let (turns, rest) = self.indices.as_chunks::<K>();
        let (value_turns, value_rest) = self.values.as_chunks::<K>();
        for (indices, values) in turns.iter().zip(value_turns) {
            for k in 0..K {
                add::<A, T, L, V>(&mut sums[k], columns, last, indices[k], values[k]);
            }
        }
        for ((sums, &index), &value) in sums.iter_mut().zip(rest).zip(value_rest) {
            add::<A, T, L, V>(sums, columns, last, index, value);
        }
        let total = total(sums);
        let out = &mut out[begin..end];
        for (v, sums) in total[..V - 1].iter().enumerate() {
            put(&mut out[v * L..], sums, assign);
        }
        // Columns that the previous block or the previous vector has already written are not written again.
        let done = from + (V - 1) * L - begin;
        if done == last {
            put(&mut out[last..], &total[V - 1], assign);
        } else {
            assign.put_row(&mut out[done..], &total[V - 1][done - last..]);
        }
    }
}

/// Writes or adds a whole vector of the constant length `L`, with one instruction per register.
#[inline(always)]
fn put<T: Float, const L: usize>(out: &mut [T], sums: &[T; L], assign: Assign) {
    let Some(out) = out.first_chunk_mut::<L>() else { return };
    match assign {
        Assign::Write => *out = *sums,
        Assign::Add => out.iter_mut().zip(sums).for_each(|(out, &sum)| *out += sum),
    }
}

/// Adds `value · y[index]` to `sums`, which are `V` vectors of `L` columns side by side; the last vector begins at column
/// `last`.
#[inline(always)]
fn add<A: Arithmetic, T: Float, const L: usize, const V: usize>(
    sums: &mut [[T; L]; V],
    y: View<'_, T>,
    last: usize,
    index: i64,
    value: T,
) {
    // A negative index becomes a huge row number, which the next comparison refuses.
    let row = index as usize;
    if row >= y.rows() {
        beyond(index, y.rows());
    }
    debug_assert!(last + L == y.width() && last <= (V - 1) * L && last + L > (V - 1) * L);
    let start = y.as_ptr().wrapping_add(row * y.stride());
    for (v, sums) in sums.iter_mut().enumerate() {
        let from = if v + 1 == V { last } else { v * L };
        // SAFETY: `row` is a row of `y`. The `L` columns from `last` on are the last columns of `y`, and every other vector
        // ends before the end of `y`.
        let y = unsafe { start.add(from).cast::<[T; L]>().read_unaligned() };
        for (sum, y) in sums.iter_mut().zip(y) {
            *sum = A::mul_add(value, y, *sum);
        }
    }
}

/// Panics with a message about a column that is beyond the matrix. As this is a separate function, the arguments of the
/// message occupy no registers inside the loops.
#[cold]
#[inline(never)]
pub(super) fn beyond(column: i64, columns: usize) -> ! {
    panic!("column {column} of a sparse matrix of {columns}");
}

/// Adds up the `K` partial sums: adds the second half to the first half until one sum is left.
#[inline(always)]
fn total<T: Float, const L: usize, const V: usize, const K: usize>(
    mut sums: [[[T; L]; V]; K],
) -> [[T; L]; V] {
    let mut half = K / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        for (sums, more) in low.iter_mut().flatten().flatten().zip(high.iter().flatten().flatten()) {
            *sums += *more;
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sparse, close, naive};
    use super::*;
    use crate::kernels::checks::{numbers, wide};
    use crate::kernels::view::Extent2;

    fn agrees<T: Float>() {
        for width in (0..40).chain([63, 64, 65, 100, 128, 200]) {
            for (rows, columns, most) in [(0, 4, 3), (5, 0, 0), (1, 1, 9), (23, 11, 9), (40, 300, 60)] {
                let x = Sparse::<T>::any(rows, columns, most, 3 + width as u64);
                let y = numbers::<T>(columns * (width + 2), 5);
                let extent = Extent2 { rows: columns, width, stride: width + 2 };
                let y = View::strided(&y, extent);
                let dense: Vec<f64> = y.iter().flat_map(wide).collect();
                let mut expected = naive(&x.dense(), &dense, [rows, columns, width]);
                let mut out = vec![T::NEG_INFINITY; rows * width];
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Assign::Write, 1);
                close(&out, &expected);
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Assign::Add, 1);
                expected.iter_mut().for_each(|x| *x *= 2.0);
                close(&out, &expected);
            }
        }
    }

    #[test]
    fn a_product_is_that_of_plain_loops() {
        agrees::<f32>();
        agrees::<f64>();
    }

    #[test]
    fn threads_and_parts_of_the_rows_give_the_same_bits() {
        let (rows, columns) = (700, 90);
        let x = Sparse::<f32>::any(rows, columns, 60, 8);
        for width in [1, 3, 20, 64, 150] {
            let y = numbers::<f32>(columns * width, 9);
            let y = View::new(&y, columns, width);
            let run = |threads| {
                let mut out = vec![0.0; rows * width];
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Assign::Write, threads);
                out
            };
            let expected = run(1);
            for threads in [2, 3, 7] {
                assert!(run(threads) == expected, "{threads} threads, width {width}");
            }
            let mut alone = vec![0.0; width];
            for r in [0, 1, 350, 699] {
                let x = x.view().rows_range(r, r + 1);
                csr_dense(x, y, ViewMut::new(&mut alone, 1, width), Assign::Write, 1);
                assert_eq!(alone, expected[r * width..(r + 1) * width]);
            }
        }
    }

    #[test]
    fn a_column_beyond_the_last_is_refused() {
        for column in [-1, 3] {
            for width in [1, 64] {
                let run = || {
                    let x = CsrView::new(3, &[0, 1], std::slice::from_ref(&column), &[1.0f32]);
                    let (y, mut out) = (vec![0.0; 3 * width], vec![0.0; width]);
                    csr_dense(x, View::new(&y, 3, width), ViewMut::new(&mut out, 1, width), Assign::Write, 1);
                };
                assert!(std::panic::catch_unwind(run).is_err());
            }
        }
    }
}
