//! The transposed product `xᵀ·d` of a sparse matrix `x`, computed only for the columns of `x` that have entries.

use super::dense::Rows;
use super::{CsrView, as_index};
use crate::kernels::float::{Assign, Float};
use crate::kernels::rows::RowMerge;
use crate::kernels::view::{View, ViewMut};

/// The limit of columns per entry: up to this limit, the plan counts entries in a table of all columns; beyond it, the plan
/// sorts the entries.
const COLUMNS_AN_ENTRY: usize = 4;

/// The plan of `xᵀ·d`: the columns of `x` that have entries, in ascending order. The entries of each column are in ascending
/// order of their rows.
///
/// The caller keeps the plan for the next batch; once its memory has grown, planning allocates no memory.
#[derive(Debug, Clone)]
pub struct Columns<T> {
    ids: Vec<i64>,
    starts: Vec<i64>,
    rows: Vec<i64>,
    values: Vec<T>,
    /// The number of rows of `x`.
    height: usize,
    /// The number of columns of `x`.
    width: usize,
    next: Vec<u32>,
    row_of: Vec<u32>,
    merge: RowMerge,
}

impl<T> Default for Columns<T> {
    fn default() -> Self {
        Self {
            ids: vec![],
            starts: vec![],
            rows: vec![],
            values: vec![],
            height: 0,
            width: 0,
            next: vec![],
            row_of: vec![],
            merge: RowMerge::new(),
        }
    }
}

impl<T: Float> Columns<T> {
    /// Returns the maximum size in bytes of a plan for a matrix of `columns` columns with up to `entries` entries.
    pub fn bytes_of(entries: usize, columns: usize) -> usize {
        let word = size_of::<i64>();
        let lists = (2 * entries.min(columns) + 1) * word;
        let sorted = match columns <= COLUMNS_AN_ENTRY.saturating_mul(entries) {
            true => entries.min(columns / COLUMNS_AN_ENTRY),
            false => entries,
        };
        let next = if sorted < entries { columns * size_of::<u32>() } else { 0 };
        let sorting = sorted * (RowMerge::BYTES_PER_ROW + size_of::<u32>());
        lists + entries * (word + size_of::<T>()) + sorting + next
    }

    /// Plans the products `xᵀ·d` for any `d`.
    ///
    /// # Panics
    /// If `x` has 2^32 entries or more, or 2^32 rows or more, or if a column index is negative or not below the number
    /// of columns of `x`.
    pub fn prepare(&mut self, x: CsrView<'_, T>) {
        let entries = x.entries();
        let fits = u32::try_from(entries).is_ok() && u32::try_from(x.rows()).is_ok();
        assert!(fits, "{entries} entries in {} rows to transpose", x.rows());
        (self.height, self.width) = (x.rows(), x.columns());
        self.ids.clear();
        self.starts.clear();
        self.starts.push(0);
        self.rows.resize(entries, 0);
        self.values.resize(entries, T::ZERO);
        // Later, a matrix with fewer entries may have more columns with entries, or `prepare` may sort the entries
        // instead of counting them. Memory is reserved for both cases.
        let most = entries.min(x.columns());
        self.ids.reserve(most);
        self.starts.reserve(most + 1);
        let sorted = entries.min(x.columns() / COLUMNS_AN_ENTRY);
        self.merge.reserve(sorted);
        self.row_of.reserve(sorted.saturating_sub(self.row_of.len()));
        if x.columns() <= COLUMNS_AN_ENTRY.saturating_mul(entries) { self.count(x) } else { self.sort(x) }
    }

    /// Makes the plan by counting the entries of each column in a table of all columns.
    fn count(&mut self, x: CsrView<'_, T>) {
        self.next.clear();
        self.next.resize(x.columns(), 0);
        let next = &mut self.next[..];
        for &column in x.indices() {
            next[as_index(column)] += 1;
        }
        let mut sum = 0;
        for (column, next) in next.iter_mut().enumerate().filter(|(_, next)| **next > 0) {
            sum += std::mem::replace(next, sum);
            self.ids.push(column as i64);
            self.starts.push(i64::from(sum));
        }
        let (to_rows, to_values) = (&mut self.rows[..], &mut self.values[..]);
        for r in 0..x.rows() {
            let (indices, values) = x.row(r);
            for (&column, &value) in indices.iter().zip(values) {
                let next = &mut next[as_index(column)];
                let to = *next as usize;
                *next += 1;
                to_rows[to] = r as i64;
                to_values[to] = value;
            }
        }
    }

    /// Makes the plan by sorting the entries by column, for a matrix whose table of all columns would be larger than its
    /// entries.
    fn sort(&mut self, x: CsrView<'_, T>) {
        self.row_of.clear();
        for r in 0..x.rows() {
            self.row_of.resize(x.range(r).end, r as u32);
        }
        self.merge.prepare(x.indices());
        let mut at = 0;
        for (i, &id) in self.merge.ids().iter().enumerate() {
            assert!(as_index(id) < x.columns(), "column {id} of {}", x.columns());
            for &entry in self.merge.occurrences(i) {
                self.rows[at] = i64::from(self.row_of[entry as usize]);
                self.values[at] = x.values()[entry as usize];
                at += 1;
            }
            self.ids.push(id);
            self.starts.push(at as i64);
        }
    }

    /// Returns the columns of `x` that have entries, in ascending order.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// Returns `xᵀ` without its empty rows: row `i` is column `ids[i]` of `x`.
    pub fn transposed(&self) -> CsrView<'_, T> {
        // Before the first plan, the list of starts is empty.
        let starts = if self.starts.is_empty() { &[0] } else { &self.starts[..] };
        CsrView::new(self.height, starts, &self.rows, &self.values)
    }

    /// Computes `out`, whose row `i` is row `ids[i]` of `xᵀ·d`, or adds this result to `out`. Up to `threads` threads divide
    /// the work; the bits do not depend on the number of threads.
    ///
    /// # Panics
    /// If `d` does not have as many rows as `x`, or if `out` does not have one row per column id, as wide as the rows
    /// of `d`.
    pub fn product(&self, d: View<'_, T>, out: ViewMut<'_, T>, assign: Assign, threads: usize) {
        let x = self.transposed();
        super::csr_dense(x, d, out, assign, threads);
    }

    /// Adds `xᵀ·d` to `out`, which has a row for each column of `x`. The rows of `out` for columns without entries are left
    /// unchanged.
    ///
    /// # Panics
    /// If `d` does not have as many rows as `x`, or if `out` does not have one row per column of `x`, as wide as the
    /// rows of `d`.
    pub fn product_into(&self, d: View<'_, T>, out: ViewMut<'_, T>, threads: usize) {
        assert_eq!(d.rows(), self.height, "the rows of a transposed matrix's factor");
        assert_eq!((out.rows(), out.width()), (self.width, d.width()), "the shape of a transposed product");
        let (x, ids) = (self.transposed(), Some(&self.ids[..]));
        Rows { x, y: d, out, assign: Assign::Add, ids, first: 0 }.run_on(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sparse, close, naive, turned};
    use super::*;
    use crate::kernels::checks::{numbers, wide};

    fn agrees<T: Float>() {
        let mut columns = Columns::<T>::default();
        assert_eq!((columns.ids().len(), columns.transposed().rows()), (0, 0));
        // The plan sorts the entries of the widest matrix, and counts the entries of the other matrices.
        for (rows, many, most) in [(0, 4, 3), (5, 0, 0), (1, 1, 9), (23, 11, 9), (40, 300, 60), (6, 900, 9)] {
            let x = Sparse::<T>::any(rows, many, most, 3);
            columns.prepare(x.view());
            let mut ids = x.indices.clone();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(columns.ids(), &ids[..]);
            for r in 0..columns.ids().len() {
                assert!(columns.transposed().row(r).0.is_sorted());
            }
            for width in [0, 1, 2, 7, 64, 70, 300] {
                let d = numbers::<T>(rows * width, 5);
                let expected = naive(&turned(&x.dense(), rows, many), &wide(&d), [many, rows, width]);
                let d = View::new(&d, rows, width);
                let mut out = vec![T::NEG_INFINITY; columns.ids().len() * width];
                let len = columns.ids().len();
                columns.product(d, ViewMut::new(&mut out, len, width), Assign::Write, 1);
                let index = |id: &i64| *id as usize * width..(*id as usize + 1) * width;
                let some: Vec<f64> = ids.iter().flat_map(|id| expected[index(id)].to_vec()).collect();
                close(&out, &some);
                let mut all = vec![T::ONE; many * width];
                columns.product_into(d, ViewMut::new(&mut all, many, width), 1);
                close(&all, &expected.iter().map(|x| x + 1.0).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_transposed_product_is_that_of_plain_loops() {
        agrees::<f32>();
        agrees::<f64>();
    }

    #[test]
    fn both_ways_to_plan_and_any_number_of_threads_give_the_same_bits() {
        let (rows, many, width) = (900, 700, 70);
        let x = Sparse::<f32>::any(rows, many, 60, 8);
        let d = numbers::<f32>(rows * width, 9);
        let d = View::new(&d, rows, width);
        let mut columns = Columns::default();
        columns.prepare(x.view());
        let run = |columns: &Columns<f32>, threads| {
            let mut out = vec![0.0; columns.ids().len() * width];
            columns.product(d, ViewMut::new(&mut out, columns.ids().len(), width), Assign::Write, threads);
            out
        };
        let expected = run(&columns, 1);
        for threads in [2, 3, 7] {
            assert!(run(&columns, threads) == expected);
            let mut all = vec![0.0; many * width];
            columns.product_into(d, ViewMut::new(&mut all, many, width), threads);
            for (i, &id) in columns.ids().iter().enumerate() {
                let row = |all: &[f32], i: usize| all[i * width..(i + 1) * width].to_vec();
                assert_eq!(row(&all, id as usize), row(&expected, i));
            }
        }
        let mut sorted = Columns::default();
        sorted.prepare(CsrView::new(1 << 30, &x.indptr, &x.indices, &x.values));
        assert_eq!(sorted.ids(), columns.ids());
        assert!(run(&sorted, 1) == expected);
    }

    #[test]
    fn a_column_beyond_the_last_is_refused() {
        for (columns, column) in [(3, -1), (3, 3), (300, -1), (300, 300)] {
            let prepare = || {
                let x = CsrView::new(columns, &[0, 1], std::slice::from_ref(&column), &[1.0f32]);
                Columns::default().prepare(x);
            };
            assert!(std::panic::catch_unwind(prepare).is_err());
        }
    }
}
