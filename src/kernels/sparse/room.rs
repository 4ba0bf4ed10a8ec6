//! What sparse · sparse computes in: sums of one row, and columns by other numbers where there are too many for that.

use super::{CsrView, place};
use crate::kernels::float::Float;
use crate::kernels::path::Arithmetic;
use crate::kernels::rows::RowMerge;

/// A row of sums has a place for each column, if there are at most so many for each entry of the matrix, or [`ALWAYS`].
const COLUMNS_AN_ENTRY: usize = 4;
const ALWAYS: usize = 1 << 16;
/// Columns whose marks are looked through together.
const BLOCK: usize = 256;

/// What products of sparse matrices are computed in, kept from call to call. It grows with rows, entries and threads; with the
/// columns only up to a few for each entry.
#[derive(Debug, Default)]
pub struct SparseRoom<T> {
    /// One a thread.
    pub(super) parts: Vec<Part<T>>,
    pub(super) narrow: Narrow,
    /// Multiply-adds up to each row.
    pub(super) work: Vec<u64>,
    /// Column and place of the entries of a row.
    pub(super) pairs: Vec<(i64, usize)>,
}

/// A thread's sums, and the rows that it made.
#[derive(Debug, Default)]
pub(super) struct Part<T> {
    pub(super) sums: Sums<T>,
    pub(super) indptr: Vec<i64>,
    pub(super) indices: Vec<i64>,
    pub(super) values: Vec<T>,
}

impl<T: Float> SparseRoom<T> {
    /// The first `count` parts.
    pub(super) fn parts(parts: &mut Vec<Part<T>>, count: usize) -> &mut [Part<T>] {
        parts.resize_with(parts.len().max(count), Part::default);
        &mut parts[..count]
    }
}

/// A row of sums, all zero between two rows, and which of them were added to.
#[derive(Debug, Default)]
pub(super) struct Sums<T> {
    sums: Vec<T>,
    /// 1 for each column that was added to.
    marks: Vec<u8>,
    /// The same of each [`BLOCK`] of columns.
    blocks: Vec<u8>,
}

impl<T: Float> Sums<T> {
    /// Makes room for so many columns.
    pub(super) fn reach(&mut self, columns: usize) {
        if columns > self.sums.len() {
            let blocks = columns.div_ceil(BLOCK);
            self.sums.resize(columns, T::ZERO);
            self.marks.resize(blocks * BLOCK, 0);
            self.blocks.resize(blocks, 0);
        }
    }

    /// Adds `factor` times a row, and marks its columns.
    #[inline(always)]
    pub(super) fn add<A: Arithmetic>(&mut self, factor: T, (indices, values): (&[i64], &[T])) {
        for (&column, &value) in indices.iter().zip(values) {
            let column = place(column);
            let sum = &mut self.sums[column];
            *sum = A::mul_add(factor, value, *sum);
            self.marks[column] = 1;
            self.blocks[column / BLOCK] = 1;
        }
    }

    /// Calls with each marked column, ascending, and its sum; leaves all zero.
    #[inline(always)]
    pub(super) fn take(&mut self, mut call: impl FnMut(i64, T)) {
        for (b, block) in self.blocks.iter_mut().enumerate().filter(|(_, block)| **block != 0) {
            *block = 0;
            let marks = &mut self.marks[b * BLOCK..(b + 1) * BLOCK];
            for (at, marks) in marks.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let mut bits = u64::from_le_bytes(*marks);
                *marks = [0; 8];
                while bits != 0 {
                    let column = b * BLOCK + at * 8 + bits.trailing_zeros() as usize / 8;
                    bits &= bits - 1;
                    call(column as i64, std::mem::replace(&mut self.sums[column], T::ZERO));
                }
            }
        }
    }

    /// Adds `factor` times a row without marks: [`Self::clear`] undoes it.
    #[inline(always)]
    pub(super) fn add_unmarked<A: Arithmetic>(&mut self, factor: T, (indices, values): (&[i64], &[T])) {
        for (&column, &value) in indices.iter().zip(values) {
            let sum = &mut self.sums[place(column)];
            *sum = A::mul_add(factor, value, *sum);
        }
    }

    /// Zeros the sums of these columns.
    #[inline(always)]
    pub(super) fn clear(&mut self, indices: &[i64]) {
        for &column in indices {
            self.sums[place(column)] = T::ZERO;
        }
    }

    /// The sum of a column.
    #[inline(always)]
    pub(super) fn get(&self, column: i64) -> T {
        self.sums[place(column)]
    }
}

/// The columns of a matrix that occur, numbered without gaps.
#[derive(Debug, Default)]
pub(super) struct Narrow {
    merge: RowMerge,
    indices: Vec<i64>,
    others: Vec<i64>,
}

impl Narrow {
    /// Whether a matrix has so many columns that a place for each of them would be more than its entries.
    pub(super) fn pays<T: Float>(x: CsrView<'_, T>) -> bool {
        x.columns() > x.entries().saturating_mul(COLUMNS_AN_ENTRY).max(ALWAYS)
    }

    /// The same entries under the numbers of their columns.
    ///
    /// # Panics
    /// If a column is negative or not below those of `x`, or there are 2^32 entries.
    pub(super) fn of<'a, T: Float>(&'a mut self, x: CsrView<'a, T>) -> (CsrView<'a, T>, &'a [i64]) {
        self.number(x);
        (x.renamed(self.merge.len(), &self.indices), self.merge.ids())
    }

    /// The same of two matrices by the columns that occur in the first. All others are one, the last.
    ///
    /// # Panics
    /// As [`Self::of`], of both.
    pub(super) fn of_both<'a, T: Float>(
        &'a mut self,
        x: CsrView<'a, T>,
        y: CsrView<'a, T>,
    ) -> (CsrView<'a, T>, CsrView<'a, T>) {
        self.number(x);
        let ids = self.merge.ids();
        self.others.clear();
        self.others.extend(y.indices().iter().map(|&column| {
            check(column, y.columns());
            ids.binary_search(&column).unwrap_or(ids.len()) as i64
        }));
        let columns = ids.len() + 1;
        (x.renamed(columns, &self.indices), y.renamed(columns, &self.others))
    }

    fn number<T: Float>(&mut self, x: CsrView<'_, T>) {
        self.merge.prepare(x.indices());
        self.indices.clear();
        self.indices.resize(x.entries(), 0);
        for (i, &id) in self.merge.ids().iter().enumerate() {
            check(id, x.columns());
            for &entry in self.merge.occurrences(i) {
                self.indices[entry as usize] = i as i64;
            }
        }
    }
}

fn check(column: i64, columns: usize) {
    assert!(place(column) < columns, "column {column} of {columns}");
}
