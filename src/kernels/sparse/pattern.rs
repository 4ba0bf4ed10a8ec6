//! The canonical form of a csr matrix, and functions that combine the entries of two csr matrices.

use super::room::SparseRoom;
use super::{CsrMut, CsrView};
use crate::kernels::float::Float;

impl<T> CsrMut<'_, T> {
    /// Clears the output matrix, which then has no rows.
    pub(super) fn begin(&mut self) {
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        self.values.clear();
    }

    #[inline(always)]
    fn push(&mut self, column: i64, value: T) {
        self.indices.push(column);
        self.values.push(value);
    }

    /// Ends the current row of the output matrix.
    fn end_row(&mut self) {
        self.indptr.push(self.indices.len() as i64);
    }
}

/// Returns whether the matrix is canonical: in each row, the columns ascend without repeats.
///
/// # Panics
/// If `indptr` refers to entries beyond the end of `indices`.
pub fn is_canonical(indptr: &[i64], indices: &[i64]) -> bool {
    indptr.windows(2).all(|pair| ascends(&indices[pair[0] as usize..pair[1] as usize]))
}

fn ascends(row: &[i64]) -> bool {
    row.is_sorted_by(|a, b| a < b)
}

/// Computes the canonical form of a matrix: the columns of each row ascend, and repeated entries are summed in their order.
pub fn canonical<T: Float>(x: CsrView<'_, T>, mut out: CsrMut<'_, T>, room: &mut SparseRoom<T>) {
    out.begin();
    for r in 0..x.rows() {
        let (indices, values) = x.row(r);
        if ascends(indices) {
            out.indices.extend_from_slice(indices);
            out.values.extend_from_slice(values);
        } else {
            let pairs = &mut room.pairs;
            pairs.clear();
            pairs.extend(indices.iter().copied().zip(0..));
            // The pairs are sorted by column, then by position. No two pairs are equal, so an unstable sort suffices.
            pairs.sort_unstable();
            let mut last = None;
            for &(column, at) in &*pairs {
                match out.values.last_mut().filter(|_| last == Some(column)) {
                    Some(sum) => *sum += values[at],
                    None => out.push(column, values[at]),
                }
                last = Some(column);
            }
        }
        out.end_row();
    }
}

/// A function f(x, y) that computes the results for several pairs per call. It takes two slices of arguments, and a
/// slice for the results.
type Combine<'a, T> = &'a dyn Fn(&[T], &[T], &mut [T]);

/// The argument pairs of entries that have no values yet; `f` computes the results for 64 pairs per call.
struct Pairs<'a, T> {
    f: Combine<'a, T>,
    x: [T; 64],
    y: [T; 64],
    len: usize,
}

impl<'a, T: Float> Pairs<'a, T> {
    fn new(f: Combine<'a, T>) -> Self {
        Self { f, x: [T::ZERO; 64], y: [T::ZERO; 64], len: 0 }
    }

    /// Appends an entry to the result; the value of the entry may be computed later.
    fn push(&mut self, column: i64, x: T, y: T, out: &mut CsrMut<'_, T>) {
        out.indices.push(column);
        (self.x[self.len], self.y[self.len]) = (x, y);
        self.len += 1;
        if self.len == self.x.len() {
            self.finish(out);
        }
    }

    /// Computes the values of all appended entries that have no values yet.
    fn finish(&mut self, out: &mut CsrMut<'_, T>) {
        let done = out.values.len();
        out.values.resize(done + self.len, T::ZERO);
        (self.f)(&self.x[..self.len], &self.y[..self.len], &mut out.values[done..]);
        self.len = 0;
    }
}

/// Computes `f(x, y)` for each entry that `x` or `y` stores; a missing entry counts as 0. The matrices `x` and `y` must be
/// canonical; the result is then canonical, too. Each call of `f` computes the results for several pairs.
///
/// # Panics
/// If `x` and `y` have different shapes.
pub fn union<T: Float>(x: CsrView<'_, T>, y: CsrView<'_, T>, f: Combine<'_, T>, mut out: CsrMut<'_, T>) {
    assert_eq!((x.rows(), x.columns()), (y.rows(), y.columns()), "shapes of sparse matrices");
    out.begin();
    let mut pairs = Pairs::new(f);
    for r in 0..x.rows() {
        let ((x_at, x), (y_at, y)) = (x.row(r), y.row(r));
        let (mut i, mut j) = (0, 0);
        while i < x.len() && j < y.len() {
            let (a, b) = (x_at[i], y_at[j]);
            let (left, right) = (a <= b, b <= a);
            let (x, y) = (if left { x[i] } else { T::ZERO }, if right { y[j] } else { T::ZERO });
            pairs.push(a.min(b), x, y, &mut out);
            i += usize::from(left);
            j += usize::from(right);
        }
        for i in i..x.len() {
            pairs.push(x_at[i], x[i], T::ZERO, &mut out);
        }
        for j in j..y.len() {
            pairs.push(y_at[j], T::ZERO, y[j], &mut out);
        }
        out.end_row();
    }
    pairs.finish(&mut out);
}

/// Computes `f(x, y)` for each entry that both `x` and `y` store. The matrices `x` and `y` must be canonical; the result is
/// then canonical, too. Each call of `f` computes the results for several pairs.
///
/// # Panics
/// If `x` and `y` have different shapes.
pub fn intersection<T: Float>(
    x: CsrView<'_, T>,
    y: CsrView<'_, T>,
    f: Combine<'_, T>,
    mut out: CsrMut<'_, T>,
) {
    assert_eq!((x.rows(), x.columns()), (y.rows(), y.columns()), "shapes of sparse matrices");
    out.begin();
    let mut pairs = Pairs::new(f);
    for r in 0..x.rows() {
        let ((x_at, x), (y_at, y)) = (x.row(r), y.row(r));
        let (mut i, mut j) = (0, 0);
        while i < x.len() && j < y.len() {
            let (a, b) = (x_at[i], y_at[j]);
            if a == b {
                pairs.push(a, x[i], y[j], &mut out);
            }
            i += usize::from(a <= b);
            j += usize::from(b <= a);
        }
        out.end_row();
    }
    pairs.finish(&mut out);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::Sparse;
    use super::*;

    /// Returns the entries of each row by column, with repeated entries added in their order.
    fn maps<T: Float>(x: CsrView<'_, T>) -> Vec<BTreeMap<i64, T>> {
        let row = |r| {
            let (indices, values) = x.row(r);
            indices.iter().zip(values).fold(BTreeMap::new(), |mut row, (&column, &value)| {
                row.entry(column).and_modify(|sum| *sum += value).or_insert(value);
                row
            })
        };
        (0..x.rows()).map(row).collect()
    }

    fn agrees<T: Float>() {
        for (rows, columns, most) in [(0, 3, 2), (3, 0, 0), (1, 1, 4), (30, 20, 15), (20, 1 << 40, 50)] {
            let (x, y) = (Sparse::<T>::any(rows, columns, most, 4), Sparse::any(rows, columns, most, 5));
            let (a, b) = (x.canonical(), y.canonical());
            assert!(is_canonical(&a.indptr, &a.indices));
            assert_eq!(is_canonical(&x.indptr, &x.indices), x == a);
            assert_eq!(maps(a.view()), maps(x.view()));
            assert_eq!(a.indices.len(), maps(x.view()).iter().map(BTreeMap::len).sum::<usize>());
            assert_eq!(a.canonical(), a);
            let f = |x: T, y: T| x * y + x + y + y;
            let all = |x: &[T], y: &[T], to: &mut [T]| {
                to.iter_mut().zip(x.iter().zip(y)).for_each(|(to, (&x, &y))| *to = f(x, y));
            };
            let both = Sparse::made(columns, |out| union(a.view(), b.view(), &all, out));
            let common = Sparse::made(columns, |out| intersection(a.view(), b.view(), &all, out));
            assert!(is_canonical(&both.indptr, &both.indices));
            assert!(is_canonical(&common.indptr, &common.indices));
            for (r, (x, y)) in maps(a.view()).iter().zip(maps(b.view())).enumerate() {
                let value = |row: &BTreeMap<i64, T>, column| row.get(&column).copied().unwrap_or(T::ZERO);
                let expected_at = |column: &i64| (*column, f(value(x, *column), value(&y, *column)));
                let expected: BTreeMap<_, _> = x.keys().chain(y.keys()).map(expected_at).collect();
                assert_eq!(maps(both.view())[r], expected);
                let expected = x.keys().filter(|column| y.contains_key(column)).map(expected_at).collect();
                assert_eq!(maps(common.view())[r], expected);
            }
        }
    }

    #[test]
    fn matrices_meet_entry_by_entry() {
        agrees::<f32>();
        agrees::<f64>();
    }

    #[test]
    fn shapes_that_differ_are_refused() {
        let x = CsrView::new(3, &[0, 0], &[], &[0.0f32; 0]);
        let y = CsrView::new(4, &[0, 0], &[], &[]);
        let run = |both: bool| {
            Sparse::made(3, |out| match both {
                true => union(x, y, &|x, _, to| to.copy_from_slice(x), out),
                false => intersection(x, y, &|x, _, to| to.copy_from_slice(x), out),
            })
        };
        assert!([true, false].iter().all(|&both| std::panic::catch_unwind(|| run(both)).is_err()));
    }
}
