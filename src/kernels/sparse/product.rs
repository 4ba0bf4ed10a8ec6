//! The product of two sparse matrices: each row of the result is a sum of sparse rows (Gustavson, "Two fast algorithms
//! for sparse matrices", 1978). The kernel keeps one sum per column of the right factor. If the right factor has too
//! many columns, the kernel keeps sums only for the columns that have entries.

use super::super::fork::join;
use super::room::{Narrow, SparseRoom, ThreadSums};
use super::{CsrMut, CsrView, as_index};
use crate::kernels::float::Float;
use crate::kernels::helpers;
use crate::kernels::path::{Arithmetic, Sweep, sweep};

/// Below this number of multiply-adds, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 15;

/// Computes `out = x·y` in canonical form; the entries of `x` and `y` may be in any order. The result has an entry at every
/// position where entries were multiplied, even if the sum is 0. Up to `threads` threads divide the work; the bits do not
/// depend on the number of threads.
///
/// # Panics
/// If the number of columns of `x` is not the number of rows of `y`; if a column index is negative or beyond its matrix; or if
/// `y` is very wide (far more columns than entries) and has 2^32 entries or more.
pub fn csr_csr<T: Float>(
    x: CsrView<'_, T>,
    y: CsrView<'_, T>,
    out: CsrMut<'_, T>,
    room: &mut SparseRoom<T>,
    threads: usize,
) {
    assert_eq!(x.columns(), y.rows(), "the columns of a sparse matrix and the rows of its factor");
    let SparseRoom { parts, narrow, work, .. } = room;
    let (y, ids) = if Narrow::pays(y) {
        let (y, ids) = narrow.of(y);
        (y, Some(ids))
    } else {
        (y, None)
    };
    work.clear();
    work.push(0);
    let mut sum = 0;
    for r in 0..x.rows() {
        sum += x.row(r).0.iter().map(|&k| y.range(as_index(k)).len() as u64).sum::<u64>();
        work.push(sum);
    }
    let threads = helpers(usize::try_from(sum).unwrap_or(usize::MAX), WORTH_A_THREAD, threads);
    let parts = SparseRoom::parts(parts, threads);
    let CsrMut { indptr, indices, values } = out;
    // The first thread writes its rows directly into the result; the rows of the other threads are appended afterwards.
    let swap = |part: &mut ThreadSums<T>, indptr: &mut _, indices: &mut _, values: &mut _| {
        std::mem::swap(&mut part.indptr, indptr);
        std::mem::swap(&mut part.indices, indices);
        std::mem::swap(&mut part.values, values);
    };
    swap(&mut parts[0], indptr, indices, values);
    Multiply { x, y, ids, work, parts }.share();
    swap(&mut parts[0], indptr, indices, values);
    for part in &parts[1..] {
        let before = indices.len() as i64;
        indptr.extend(part.indptr[1..].iter().map(|end| end + before));
        indices.extend_from_slice(&part.indices);
        values.extend_from_slice(&part.values);
    }
}

/// The inputs and the scratch for some rows of the product `x·y`.
struct Multiply<'a, T> {
    x: CsrView<'a, T>,
    y: CsrView<'a, T>,
    /// The original index of each column of `y`; `None` if the columns of `y` are not renumbered.
    ids: Option<&'a [i64]>,
    /// The number of multiply-adds before each row of the product, and the total at the end.
    work: &'a [u64],
    parts: &'a mut [ThreadSums<T>],
}

impl<T: Float> Multiply<'_, T> {
    fn share(self) {
        let parts = self.parts.len();
        if parts < 2 {
            return sweep(self);
        }
        let rows = self.x.rows();
        let (first, last) = (self.work[0], self.work[rows]);
        let goal = first + (u128::from(last - first) * (parts / 2) as u128 / parts as u128) as u64;
        let middle = self.work[..rows].partition_point(|&work| work < goal);
        let (left, right) = self.parts.split_at_mut(parts / 2);
        let before =
            Multiply { x: self.x.rows_range(0, middle), work: &self.work[..=middle], parts: left, ..self };
        let after =
            Multiply { x: self.x.rows_range(middle, rows), work: &self.work[middle..], parts: right, ..self };
        join(|| before.share(), || after.share());
    }
}

impl<T: Float> Sweep for Multiply<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let ThreadSums { sums, indptr, indices, values } = &mut self.parts[0];
        CsrMut { indptr, indices, values }.begin();
        sums.reach(self.y.columns());
        // A row with at least this number of multiply-adds has sums in nearly every block of columns.
        let all = self.y.columns() as u64 / 8;
        for r in 0..self.x.rows() {
            let (columns, factors) = self.x.row(r);
            let work = self.work[r + 1] - self.work[r];
            if work >= all {
                for (&k, &factor) in columns.iter().zip(factors) {
                    sums.add::<A, false>(factor, self.y.row(as_index(k)));
                }
                sums.mark_all();
            } else {
                for (&k, &factor) in columns.iter().zip(factors) {
                    sums.add::<A, true>(factor, self.y.row(as_index(k)));
                }
            }
            sums.take(indices, values);
            indptr.push(indices.len() as i64);
        }
        if let Some(ids) = self.ids {
            indices.iter_mut().for_each(|column| *column = ids[as_index(*column)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::is_canonical;
    use super::super::tests::{Sparse, close, naive};
    use super::*;

    fn product<T: Float>(x: &Sparse<T>, y: &Sparse<T>, threads: usize) -> Sparse<T> {
        Sparse::made(y.columns, |out| csr_csr(x.view(), y.view(), out, &mut SparseRoom::default(), threads))
    }

    fn agrees<T: Float>() {
        let mut room = SparseRoom::default();
        for [rows, inner, columns] in
            [[0, 3, 4], [3, 0, 4], [4, 3, 0], [1, 1, 1], [30, 20, 25], [17, 200, 900], [40, 9, 3]]
        {
            let x = Sparse::<T>::any(rows, inner, 12, 4);
            let y = Sparse::<T>::any(inner, columns, 15, 5);
            let out = Sparse::made(columns, |out| csr_csr(x.view(), y.view(), out, &mut room, 1));
            assert!(is_canonical(&out.indptr, &out.indices));
            assert_eq!(out.view().rows(), rows);
            close(
                &out.dense().iter().map(|&x| T::from_f64(x)).collect::<Vec<_>>(),
                &naive(&x.dense(), &y.dense(), [rows, inner, columns]),
            );
        }
    }

    #[test]
    fn a_product_is_that_of_plain_loops() {
        agrees::<f32>();
        agrees::<f64>();
    }

    #[test]
    fn threads_and_very_many_columns_change_no_bit() {
        let x = Sparse::<f32>::any(400, 300, 40, 1);
        let y = Sparse::<f32>::any(300, 5000, 40, 2);
        let expected = product(&x, &y, 1);
        assert!([2, 3, 7].iter().all(|&threads| product(&x, &y, threads) == expected));
        let mut wide = y.clone();
        wide.columns = 1 << 50;
        wide.indices.iter_mut().for_each(|column| *column *= 1_000_000_007);
        assert!(Narrow::pays(wide.view()) && !Narrow::pays(y.view()));
        for threads in [1, 3] {
            let mut out = product(&x, &wide, threads);
            out.columns = 5000;
            out.indices.iter_mut().for_each(|column| *column /= 1_000_000_007);
            assert!(out == expected);
        }
    }

    #[test]
    fn sums_that_are_zero_are_entries() {
        let x = Sparse { columns: 2, indptr: vec![0, 2], indices: vec![0, 1], values: vec![1.0f32, -1.0] };
        let y = Sparse { columns: 3, indptr: vec![0, 1, 2], indices: vec![2, 2], values: vec![5.0, 5.0] };
        let out = product(&x, &y, 1);
        assert_eq!((&out.indptr[..], &out.indices[..], &out.values[..]), (&[0, 1][..], &[2][..], &[0.0][..]));
    }

    #[test]
    fn a_column_beyond_the_last_is_refused() {
        for (left, right, columns) in [(-1, 0, 3), (1, 0, 3), (0, -1, 3), (0, 3, 3), (0, -1, 1 << 40)] {
            let (left, right) = ([left], [right]);
            let run = || {
                let x = CsrView::new(1, &[0, 1], &left, &[1.0f32]);
                let y = CsrView::new(columns, &[0, 1], &right, &[1.0f32]);
                Sparse::made(columns, |out| csr_csr(x, y, out, &mut SparseRoom::default(), 1))
            };
            assert!(std::panic::catch_unwind(run).is_err(), "{left:?} {right:?}");
        }
    }
}
