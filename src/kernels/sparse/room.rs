//! Scratch of sparse · sparse: the sums of one row. If a sum for every column would take too much memory, columns are
//! renumbered.

use super::dense::beyond;
use super::{CsrView, place};
use crate::kernels::float::Float;
use crate::kernels::path::Arithmetic;
use crate::kernels::rows::RowMerge;

/// Limit of columns per entry: below it, a row of sums has a sum for every column; above it, columns with entries are
/// renumbered. With at most [`ALWAYS`] columns,
/// it always has.
const COLUMNS_AN_ENTRY: usize = 4;
const ALWAYS: usize = 1 << 16;
/// The number of columns with a common mark.
const BLOCK: usize = 256;

/// Scratch of products of sparse matrices, kept from call to call. Its size grows with rows, entries and threads. It grows with
/// the number of columns only up to a few columns per entry.
#[derive(Debug, Default)]
pub struct SparseRoom<T> {
    /// One part per thread.
    pub(super) parts: Vec<ThreadSums<T>>,
    pub(super) narrow: Narrow,
    /// The number of multiply-adds before each row.
    pub(super) work: Vec<u64>,
    /// The column and the position of each entry of a row.
    pub(super) pairs: Vec<(i64, usize)>,
}

/// A thread's sums, and the rows that it computed.
#[derive(Debug, Default)]
pub(super) struct ThreadSums<T> {
    pub(super) sums: Sums<T>,
    pub(super) indptr: Vec<i64>,
    pub(super) indices: Vec<i64>,
    pub(super) values: Vec<T>,
}

impl<T: Float> SparseRoom<T> {
    /// Returns the first `count` parts; makes parts that are missing.
    pub(super) fn parts(parts: &mut Vec<ThreadSums<T>>, count: usize) -> &mut [ThreadSums<T>] {
        parts.resize_with(parts.len().max(count), ThreadSums::default);
        &mut parts[..count]
    }
}

/// A row of sums. An untouched sum is -0, and a sum that was added to is never -0, so sums need no marks of their own.
#[derive(Debug, Default)]
pub(super) struct Sums<T> {
    sums: Vec<T>,
    /// The number of sums in use.
    columns: usize,
    /// For each [`BLOCK`] of columns: 1 if a sum in it was added to, else 0.
    blocks: Vec<u8>,
}

impl<T: Float> Sums<T> {
    /// Grows the row to `columns` columns.
    pub(super) fn reach(&mut self, columns: usize) {
        self.columns = columns;
        if columns > self.sums.len() {
            let blocks = columns.div_ceil(BLOCK);
            self.sums.resize(blocks * BLOCK, -T::ZERO);
            self.blocks.resize(blocks, 0);
        }
    }

    /// Adds `factor` times a row. If `MARK`, the blocks that are added to are marked; else the caller must call
    /// [`Self::mark_all`].
    #[inline(always)]
    pub(super) fn add<A: Arithmetic, const MARK: bool>(
        &mut self,
        factor: T,
        (indices, values): (&[i64], &[T]),
    ) {
        let columns = self.columns;
        assert!(self.sums.len().min(self.blocks.len() * BLOCK) >= columns);
        let (sums, blocks) = (self.sums.as_mut_ptr(), self.blocks.as_mut_ptr());
        for (&column, &value) in indices.iter().zip(values) {
            // A negative column becomes a huge position, which the check refuses.
            let at = column as usize;
            if at >= columns {
                beyond(column, columns);
            }
            // SAFETY: `at` is a column, and each has a sum and a block.
            unsafe {
                let sum = &mut *sums.add(at);
                // Adding 0 changes -0 to 0, and leaves any other number unchanged.
                *sum = A::mul_add(factor, value, *sum) + T::ZERO;
                if MARK {
                    *blocks.add(at / BLOCK) = 1;
                }
            }
        }
    }

    /// Marks all blocks.
    pub(super) fn mark_all(&mut self) {
        self.blocks[..self.columns.div_ceil(BLOCK)].fill(1);
    }

    /// Appends each column that was added to, ascending, and its sum; resets sums and marks.
    #[inline(always)]
    pub(super) fn take(&mut self, indices: &mut Vec<i64>, values: &mut Vec<T>) {
        let untouched = (-0.0f64).to_bits();
        let blocks = self.blocks.iter_mut().zip(self.sums.as_chunks_mut::<BLOCK>().0).enumerate();
        for (b, (block, sums)) in blocks.filter(|(_, (block, _))| **block != 0) {
            *block = 0;
            indices.reserve(BLOCK);
            values.reserve(BLOCK);
            let (to_indices, to_values) = (indices.spare_capacity_mut(), values.spare_capacity_mut());
            let (Some(to_indices), Some(to_values)) =
                (to_indices.first_chunk_mut::<BLOCK>(), to_values.first_chunk_mut::<BLOCK>())
            else {
                return;
            };
            // Every sum is written to the next position, which advances only if the sum was touched: a branch would be
            // mispredicted.
            let mut count = 0;
            for (at, sum) in sums.iter_mut().enumerate() {
                to_indices[count].write((b * BLOCK + at) as i64);
                to_values[count].write(*sum);
                count += usize::from(sum.to_f64().to_bits() != untouched);
                *sum = -T::ZERO;
            }
            // SAFETY: `count` elements of each were written above.
            unsafe {
                indices.set_len(indices.len() + count);
                values.set_len(values.len() + count);
            }
        }
    }

    /// Adds `factor` times a row without marking blocks; [`Self::clear`] resets these sums.
    #[inline(always)]
    pub(super) fn add_unmarked<A: Arithmetic>(&mut self, factor: T, (indices, values): (&[i64], &[T])) {
        let sums = &mut self.sums[..self.columns];
        for (&column, &value) in indices.iter().zip(values) {
            let sum = &mut sums[place(column)];
            *sum = A::mul_add(factor, value, *sum);
        }
    }

    /// Resets the sums of these columns.
    #[inline(always)]
    pub(super) fn clear(&mut self, indices: &[i64]) {
        for &column in indices {
            self.sums[place(column)] = -T::ZERO;
        }
    }

    /// Returns the sum of a column.
    #[inline(always)]
    pub(super) fn get(&self, column: i64) -> T {
        self.sums[..self.columns][place(column)]
    }
}

/// The columns of a matrix that have entries, renumbered without gaps.
#[derive(Debug, Default)]
pub(super) struct Narrow {
    merge: RowMerge,
    indices: Vec<i64>,
    others: Vec<i64>,
}

impl Narrow {
    /// Returns whether a matrix has so few entries per column that renumbering its columns saves memory.
    pub(super) fn pays<T: Float>(x: CsrView<'_, T>) -> bool {
        x.columns() > x.entries().saturating_mul(COLUMNS_AN_ENTRY).max(ALWAYS)
    }

    /// Returns the matrix with its columns renumbered, and the original column of each new number.
    ///
    /// # Panics
    /// If a column is negative or not below the number of columns of `x`, or there are 2^32 entries.
    pub(super) fn of<'a, T: Float>(&'a mut self, x: CsrView<'a, T>) -> (CsrView<'a, T>, &'a [i64]) {
        self.number(x);
        (x.renamed(self.merge.ids().len(), &self.indices), self.merge.ids())
    }

    /// Renumbers the columns of two matrices by the columns of `x` that have entries; all other columns of `y` get one further
    /// number, the highest.
    ///
    /// # Panics
    /// As [`Self::of`], for both matrices.
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
