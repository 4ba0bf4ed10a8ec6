//! Sparse matrices in csr form: products with dense and with sparse matrices, and the gradients of these products.
//!
//! | file | what it computes |
//! |---|---|
//! | `dense.rs` | sparse · dense |
//! | `columns.rs` | transposed sparse · dense, only the columns that have entries |
//! | `product.rs` | sparse · sparse |
//! | `room.rs` | scratch of sparse · sparse |
//! | `sampled.rs` | gradients at the entries of a sparse factor |
//! | `pattern.rs` | canonical form; functions of two matrices, entry by entry |
//!
//! The order of summation of an element never depends on threads or other rows. The order depends on the width of the dense
//! factor, and on the entries of the sparse matrix in the element's row (if the matrix is transposed, in the element's column).

mod columns;
mod dense;
mod pattern;
mod product;
mod room;
mod sampled;

pub use columns::Columns;
pub use dense::csr_dense;
pub use pattern::{canonical, intersection, is_canonical, union};
pub use product::csr_csr;
pub use room::SparseRoom;
pub use sampled::{sampled_left, sampled_product, sampled_right};

/// A borrowed sparse matrix in csr form: each row has a range of entries, and each entry has a column and a value. The
/// columns of a row may be in any order, and a column may occur several times.
#[derive(Debug, Clone, Copy)]
pub struct CsrView<'a, T> {
    columns: usize,
    indptr: &'a [i64],
    indices: &'a [i64],
    values: &'a [T],
}

/// The output of a kernel that computes a csr matrix: vectors that the kernel clears and fills. The caller keeps the vectors
/// between calls, so that their memory is reused.
#[derive(Debug)]
pub struct CsrMut<'a, T> {
    /// The index of each row's first entry, then the number of all entries.
    pub indptr: &'a mut Vec<i64>,
    /// The column index of each entry.
    pub indices: &'a mut Vec<i64>,
    /// The value of each entry.
    pub values: &'a mut Vec<T>,
}

impl<'a, T> CsrView<'a, T> {
    /// Returns a view of a matrix whose row `r` has the entries `indptr[r]..indptr[r + 1]`. If the matrix is a range of the
    /// rows of a larger matrix, `indptr[0]` may be above 0.
    ///
    /// # Panics
    /// If `indptr` is empty, begins below 0, decreases, or ends beyond the entries; or if `indices` and `values` have
    /// different lengths.
    pub fn new(columns: usize, indptr: &'a [i64], indices: &'a [i64], values: &'a [T]) -> Self {
        assert_eq!(indices.len(), values.len(), "indices and values of a sparse matrix");
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            panic!("a sparse matrix without an indptr")
        };
        assert!(first >= 0 && indptr.is_sorted(), "an indptr that decreases");
        let entries = first as usize..last as usize;
        assert!(entries.end <= indices.len(), "an indptr up to {last} with {} entries", indices.len());
        Self { columns, indptr, indices: &indices[entries.clone()], values: &values[entries] }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the number of entries of all rows together.
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// Returns the column indices and the values of row `r`.
    ///
    /// # Panics
    /// If the matrix has no row `r`.
    #[inline(always)]
    pub fn row(&self, r: usize) -> (&'a [i64], &'a [T]) {
        let range = self.range(r);
        (&self.indices[range.clone()], &self.values[range])
    }

    /// Returns the column indices of all entries, row by row.
    pub fn indices(&self) -> &'a [i64] {
        self.indices
    }

    /// Returns the values of all entries, row by row.
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Returns the rows `from..to` as a matrix.
    ///
    /// # Panics
    /// If the range `from..to` is not within the rows of the matrix.
    pub(crate) fn rows_range(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.rows(), "rows {from}..{to} of {}", self.rows());
        let entries = self.start(from)..self.start(to);
        Self {
            indptr: &self.indptr[from..=to],
            indices: &self.indices[entries.clone()],
            values: &self.values[entries],
            ..*self
        }
    }

    /// Returns a matrix with the same rows and values, but with the given column indices and number of columns.
    fn renamed(&self, columns: usize, indices: &'a [i64]) -> Self {
        assert_eq!(indices.len(), self.entries(), "columns of entries");
        Self { columns, indices, ..*self }
    }

    /// Returns the range of the entries of row `r`.
    #[inline(always)]
    fn range(&self, r: usize) -> std::ops::Range<usize> {
        assert!(r < self.rows(), "row {r} of a sparse matrix of {}", self.rows());
        self.start(r)..self.start(r + 1)
    }

    #[inline(always)]
    fn start(&self, r: usize) -> usize {
        (self.indptr[r] - self.indptr[0]) as usize
    }

    /// Returns the first row of part `part` if the rows are divided into `parts` parts of equal work. Each entry and each
    /// row counts as one unit of work.
    pub(crate) fn divided(&self, part: usize, parts: usize) -> usize {
        let all = (self.entries() + self.rows()) as u128;
        let goal = (all * part as u128 / parts as u128) as usize;
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle) + middle < goal { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Converts a column index to a position in an array. A negative index becomes a position beyond the end of every array, so
/// that a bounds check refuses it.
#[inline(always)]
fn as_index(index: i64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::{self, near, numbers, plain_sums};
    use crate::kernels::{Float, View};

    /// A sparse matrix that owns its vectors, for tests.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub(super) struct Sparse<T> {
        pub(super) columns: usize,
        pub(super) indptr: Vec<i64>,
        pub(super) indices: Vec<i64>,
        pub(super) values: Vec<T>,
    }

    impl<T: Float> Sparse<T> {
        /// Returns a matrix with 0 to `most` entries per row, in any order and with repeats; each fourth row is empty.
        pub(super) fn any(rows: usize, columns: usize, most: usize, seed: u64) -> Self {
            let draws = numbers::<f64>(rows + 1, seed);
            let mut made = Self { columns, indptr: vec![0], ..Self::default() };
            for (row, draw) in draws[..rows].iter().enumerate() {
                let none = columns == 0 || row % 4 == 3;
                let len = if none { 0 } else { ((draw + 1.0) / 2.0 * (most + 1) as f64) as usize };
                let places = numbers::<f64>(len, seed + 7 * row as u64 + 1);
                let places = places.iter().map(|x| ((x + 1.0) / 2.0 * columns as f64) as i64);
                made.indices.extend(places);
                made.indptr.push(made.indices.len() as i64);
            }
            made.values = numbers(made.indices.len(), seed + 99);
            made
        }

        pub(super) fn view(&self) -> CsrView<'_, T> {
            CsrView::new(self.columns, &self.indptr, &self.indices, &self.values)
        }

        /// Returns the matrix that a kernel with a sparse result writes.
        pub(super) fn made(columns: usize, fill: impl FnOnce(CsrMut<'_, T>)) -> Self {
            // The output has contents that the kernel has to replace.
            let mut made = Self { columns, indptr: vec![7], indices: vec![-1; 3], values: vec![T::ONE; 3] };
            fill(CsrMut { indptr: &mut made.indptr, indices: &mut made.indices, values: &mut made.values });
            assert_eq!(made.indptr.last(), Some(&(made.indices.len() as i64)));
            made
        }

        pub(super) fn canonical(&self) -> Self {
            Self::made(self.columns, |out| canonical(self.view(), out, &mut SparseRoom::default()))
        }

        /// Returns the matrix as dense rows in f64, row by row.
        pub(super) fn dense(&self) -> Vec<f64> {
            let (view, width) = (self.view(), self.columns);
            let mut out = vec![0.0; view.rows() * width];
            for r in 0..view.rows() {
                let (indices, values) = view.row(r);
                for (&c, &v) in indices.iter().zip(values) {
                    out[r * width + c as usize] += v.to_f64();
                }
            }
            out
        }
    }

    /// Returns the product of a rows × inner matrix and an inner × columns matrix.
    pub(super) fn naive(a: &[f64], b: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
        let [sums, _] = plain_sums([rows, inner, columns], |i, k, j| a[i * inner + k] * b[k * columns + j]);
        sums
    }

    pub(super) fn turned(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
        checks::turned(View::new(a, rows, columns))
    }

    pub(super) fn close<T: Float>(got: &[T], expected: &[f64]) {
        near(got, expected, if size_of::<T>() == 4 { 1e-4 } else { 1e-12 }, "a product");
    }

    #[test]
    fn a_range_of_rows_is_a_matrix() {
        let x = Sparse::<f32>::any(9, 5, 4, 1);
        let part = x.view().rows_range(2, 7);
        assert_eq!((part.rows(), part.columns()), (5, 5));
        for r in 0..5 {
            assert_eq!(part.row(r), x.view().row(r + 2));
        }
        let same = CsrView::new(5, &x.indptr[2..8], &x.indices, &x.values);
        assert_eq!((same.indices(), same.entries()), (part.indices(), part.entries()));
        assert_eq!(x.view().rows_range(9, 9).entries(), 0);
    }

    #[test]
    fn work_is_divided_by_entries() {
        let indptr = [0, 0, 0, 90, 91, 92, 93, 94];
        let x = CsrView::new(1, &indptr, &[0; 94], &[1.0f32; 94]);
        assert_eq!([0, 1, 2].map(|part| x.divided(part, 2)), [0, 3, 7]);
        assert_eq!(x.rows_range(7, 7).divided(1, 2), 0);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        for indptr in [&[][..], &[-1, 0], &[0, 2, 1], &[0, 4]] {
            let new = || CsrView::new(3, indptr, &[0, 1], &[1.0f32, 2.0]);
            assert!(std::panic::catch_unwind(new).is_err(), "{indptr:?}");
        }
        assert!(std::panic::catch_unwind(|| CsrView::new(3, &[0, 1], &[0, 1], &[1.0f32])).is_err());
    }
}
