//! Sparse · dense: each row of the result is a sum of rows of the dense factor, held in vector registers.

use super::{CsrView, place};
use crate::kernels::float::{Float, Store};
use crate::kernels::helpers;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::{View, ViewMut};

/// Below this many multiply-adds a second thread costs more than it gains. An entry costs about as much as [`ENTRY`] of them
/// beside its own.
const WORTH_A_THREAD: usize = 1 << 18;
const ENTRY: usize = 16;

/// `out = x·y`, or `out += x·y`, on up to `threads` threads, with the same bits for any number of them.
///
/// # Panics
/// Unless `x` is R × K, `y` K × N and `out` R × N; or if a column of `x` is not below K.
pub fn csr_dense<T: Float>(
    x: CsrView<'_, T>,
    y: View<'_, T>,
    out: ViewMut<'_, T>,
    store: Store,
    threads: usize,
) {
    assert_eq!(x.columns(), y.rows(), "the columns of a sparse matrix and the rows of its factor");
    assert_eq!((out.rows(), out.width()), (x.rows(), y.width()), "the shape of a product");
    Rows { x, y, out, store, ids: None, first: 0 }.run_on(threads);
}

/// Some rows of a product.
pub(super) struct Rows<'a, T> {
    pub(super) x: CsrView<'a, T>,
    pub(super) y: View<'a, T>,
    pub(super) out: ViewMut<'a, T>,
    pub(super) store: Store,
    /// The row of the result that each row of `x` goes to, ascending; none for row by row.
    pub(super) ids: Option<&'a [i64]>,
    /// The number of the first row of `out`, if there are ids.
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
            return sweep(self);
        }
        let (left, rows) = (threads / 2, self.x.rows());
        let middle = self.x.divided(left, threads);
        let (ids, first, split) = match self.ids {
            None => ((None, None), 0, middle),
            Some(ids) => {
                let first = ids.get(middle).map_or(self.first + self.out.rows(), |&id| place(id));
                ((Some(&ids[..middle]), Some(&ids[middle..])), first, first - self.first)
            }
        };
        let (out, out_after) = self.out.split_rows(split);
        let before = Rows { x: self.x.rows_range(0, middle), out, ids: ids.0, ..self };
        let after = Rows { x: self.x.rows_range(middle, rows), out: out_after, ids: ids.1, first, ..self };
        rayon::join(|| before.share(left), || after.share(threads - left));
    }
}

impl<T: Float> Sweep for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for r in 0..self.x.rows() {
            let to = self.ids.map_or(r, |ids| place(ids[r]) - self.first);
            let (indices, values) = self.x.row(r);
            let row = Row { indices, values, y: self.y };
            let out = self.out.row(to);
            // A unit is what fills the nearest cache's line.
            if size_of::<T>() == 4 {
                row.put::<A, 16>(out, self.store);
            } else {
                row.put::<A, 8>(out, self.store);
            }
        }
    }
}

/// One row of a product.
#[derive(Clone, Copy)]
struct Row<'a, T> {
    indices: &'a [i64],
    values: &'a [T],
    y: View<'a, T>,
}

/// Where the vectors of a block begin. The last one may begin before the one before it ends.
#[derive(Clone, Copy)]
struct Block<const V: usize> {
    places: [usize; V],
    /// Elements of the last vector that the one before it has, too.
    again: usize,
}

impl<T: Float> Row<'_, T> {
    /// All columns, in units of `L`.
    #[inline(always)]
    fn put<A: Arithmetic, const L: usize>(self, out: &mut [T], store: Store) {
        match out.len() {
            0 => {}
            1 => store.put(&mut out[0], self.column::<A>()),
            width if width < 4 => self.few::<A, 2>(out, store, width),
            width if width < 8 => self.few::<A, 4>(out, store, width),
            width if width < L => self.few::<A, 8>(out, store, width),
            width => {
                for from in (0..width).step_by(4 * L) {
                    match (width - from).div_ceil(L) {
                        1 => self.block::<A, L, 1, 4>(from, out, store),
                        2 => self.block::<A, L, 2, 2>(from, out, store),
                        3 => self.block::<A, L, 3, 1>(from, out, store),
                        _ => self.block::<A, L, 4, 1>(from, out, store),
                    }
                }
            }
        }
    }

    /// From `L` to less than twice as many columns.
    #[inline(always)]
    fn few<A: Arithmetic, const L: usize>(self, out: &mut [T], store: Store, width: usize) {
        if width == L {
            self.block::<A, L, 1, 4>(0, out, store);
        } else {
            self.block::<A, L, 2, 4>(0, out, store);
        }
    }

    /// The columns of `V` vectors of `L` from one on, or as many as there are: then the last vector ends with them.
    /// Entries go to `K` sums in turn, as one sum would wait for itself.
    #[inline(always)]
    fn block<A: Arithmetic, const L: usize, const V: usize, const K: usize>(
        self,
        from: usize,
        out: &mut [T],
        store: Store,
    ) {
        let end = out.len().min(from + V * L);
        let block =
            Block { places: std::array::from_fn(|v| (from + v * L).min(end - L)), again: from + V * L - end };
        let mut sums = [[[T::ZERO; L]; V]; K];
        let (turns, rest) = self.indices.as_chunks::<K>();
        let (value_turns, value_rest) = self.values.as_chunks::<K>();
        for (indices, values) in turns.iter().zip(value_turns) {
            for ((sums, &index), &value) in sums.iter_mut().zip(indices).zip(values) {
                self.add::<A, L, V>(sums, index, value, block);
            }
        }
        for ((sums, &index), &value) in sums.iter_mut().zip(rest).zip(value_rest) {
            self.add::<A, L, V>(sums, index, value, block);
        }
        let total = total(sums);
        for (v, (sums, &place)) in total.iter().zip(&block.places).enumerate() {
            let done = if v + 1 == V { block.again } else { 0 };
            store.put_row(&mut out[place + done..place + L], &sums[done..]);
        }
    }

    /// `sums += value · y[index]`, in the columns of a block.
    #[inline(always)]
    fn add<A: Arithmetic, const L: usize, const V: usize>(
        self,
        sums: &mut [[T; L]; V],
        index: i64,
        value: T,
        block: Block<V>,
    ) {
        let row = self.y.row(place(index));
        for (sums, &place) in sums.iter_mut().zip(&block.places) {
            let row = &row[place..place + L];
            for (sum, &y) in sums.iter_mut().zip(row) {
                *sum = A::mul_add(value, y, *sum);
            }
        }
    }

    /// The only column.
    #[inline(always)]
    fn column<A: Arithmetic>(self) -> T {
        let mut sums = [T::ZERO; 4];
        let (turns, rest) = self.indices.as_chunks::<4>();
        let (value_turns, value_rest) = self.values.as_chunks::<4>();
        for (indices, values) in turns.iter().zip(value_turns) {
            for ((sum, &index), &value) in sums.iter_mut().zip(indices).zip(values) {
                *sum = A::mul_add(value, self.y.row(place(index))[0], *sum);
            }
        }
        for ((sum, &index), &value) in sums.iter_mut().zip(rest).zip(value_rest) {
            *sum = A::mul_add(value, self.y.row(place(index))[0], *sum);
        }
        (sums[0] + sums[1]) + (sums[2] + sums[3])
    }
}

/// The sums of all turns, of two at a time.
#[inline(always)]
fn total<T: Float, const L: usize, const V: usize, const K: usize>(
    mut sums: [[[T; L]; V]; K],
) -> [[T; L]; V] {
    let mut step = 1;
    while step < K {
        for k in (0..K - step).step_by(2 * step) {
            for v in 0..V {
                for j in 0..L {
                    sums[k][v][j] += sums[k + step][v][j];
                }
            }
        }
        step *= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sparse, close, naive, wide};
    use super::*;
    use crate::kernels::numbers;
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
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Store::Write, 1);
                close(&out, &expected);
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Store::Add, 1);
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
                csr_dense(x.view(), y, ViewMut::new(&mut out, rows, width), Store::Write, threads);
                out
            };
            let expected = run(1);
            for threads in [2, 3, 7] {
                assert!(run(threads) == expected, "{threads} threads, width {width}");
            }
            let mut alone = vec![0.0; width];
            for r in [0, 1, 350, 699] {
                let x = x.view().rows_range(r, r + 1);
                csr_dense(x, y, ViewMut::new(&mut alone, 1, width), Store::Write, 1);
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
                    csr_dense(x, View::new(&y, 3, width), ViewMut::new(&mut out, 1, width), Store::Write, 1);
                };
                assert!(std::panic::catch_unwind(run).is_err());
            }
        }
    }
}
