//! Scratch for the product of two sparse matrices: the sums of one row of the result. If one sum per column would take too
//! much memory, the columns that have entries are renumbered.

use super::dense::beyond;
use super::{CsrView, as_index};
use crate::kernels::float::Float;
use crate::kernels::path::Arithmetic;
use crate::kernels::rows::RowMerge;

/// The limit of columns per entry. Below the limit, a row of sums has one sum per column; above it, the columns that have
/// entries are renumbered. A matrix of at most [`ALWAYS`] columns is never renumbered.
const COLUMNS_AN_ENTRY: usize = 4;
const ALWAYS: usize = 1 << 16;
/// The number of columns in a block; the columns of a block share one mark.
const BLOCK: usize = 256;

/// Scratch of products of sparse matrices, which the caller keeps between calls. The size of the scratch grows with the
/// numbers of rows, entries and threads. The size grows with the number of columns only up to a few columns per entry.
#[derive(Debug, Default)]
pub struct SparseRoom<T> {
    pub(super) parts: Vec<ThreadSums<T>>,
    pub(super) narrow: Narrow,
    /// The number of multiply-adds before each row of the product, and the total at the end.
    pub(super) work: Vec<u64>,
    /// The column and the position of each entry of a row, to sort the entries of the row.
    pub(super) pairs: Vec<(i64, usize)>,
}

/// The sums of a thread, and the rows of the result that the thread has computed.
#[derive(Debug, Default)]
pub(super) struct ThreadSums<T> {
    pub(super) sums: Sums<T>,
    pub(super) indptr: Vec<i64>,
    pub(super) indices: Vec<i64>,
    pub(super) values: Vec<T>,
}

impl<T: Float> SparseRoom<T> {
    /// Returns the maximum size in bytes of the scratch for a product with `rows` rows and `entries` entries. `of_y`
    /// has the number of columns and the number of entries of the right factor.
    pub fn bytes_of(rows: usize, entries: usize, of_y: (usize, usize), threads: usize) -> usize {
        let (word, (columns, of_y)) = (size_of::<i64>(), of_y);
        let narrow = columns > of_y.saturating_mul(COLUMNS_AN_ENTRY).max(ALWAYS);
        let (columns, renumbered) = match narrow {
            true => (of_y, of_y * (RowMerge::BYTES_PER_ROW + 2 * word)),
            false => (columns, 0),
        };
        let sums = columns.div_ceil(BLOCK) * (BLOCK * size_of::<T>() + 1);
        // The memory of a part grows to at most twice its entries; the first part is the result itself.
        let parts = 2 * entries.saturating_mul(word + size_of::<T>()) / threads.max(1);
        let others = parts.saturating_add((rows + 2) * word).saturating_mul(threads.saturating_sub(1));
        others.saturating_add((rows + 2) * word + threads * sums + renumbered)
    }

    /// Returns the scratch of the first `count` threads, and creates missing scratch.
    pub(super) fn parts(parts: &mut Vec<ThreadSums<T>>, count: usize) -> &mut [ThreadSums<T>] {
        parts.resize_with(parts.len().max(count), ThreadSums::default);
        &mut parts[..count]
    }
}

/// The sums of one row of the result, one sum per column. A sum of -0 means that no product was added: adding a product
/// never leaves -0. A sum therefore needs no separate mark.
#[derive(Debug, Default)]
pub(super) struct Sums<T> {
    sums: Vec<T>,
    /// The number of columns in use, one sum each.
    columns: usize,
    /// For each block of [`BLOCK`] columns, 1 if a product was added to a sum of the block, else 0.
    blocks: Vec<u8>,
}

impl<T: Float> Sums<T> {
    /// Sets the number of columns, and grows the memory for the sums if necessary.
    pub(super) fn reach(&mut self, columns: usize) {
        self.columns = columns;
        if columns > self.sums.len() {
            let blocks = columns.div_ceil(BLOCK);
            self.sums.resize(blocks * BLOCK, -T::ZERO);
            self.blocks.resize(blocks, 0);
        }
    }

    /// Adds `factor` times a sparse row to the sums. With `MARK`, the method marks the changed blocks; without it, the
    /// caller must call [`Self::mark_all`].
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
            // A negative column becomes a huge position, which the next comparison refuses.
            let at = column as usize;
            if at >= columns {
                beyond(column, columns);
            }
            // SAFETY: `at` is below the number of columns, and each column has a sum and a block.
            unsafe {
                let sum = &mut *sums.add(at);
                // Adding 0 changes -0 to 0, and leaves every other number unchanged.
                *sum = A::mul_add(factor, value, *sum) + T::ZERO;
                if MARK {
                    *blocks.add(at / BLOCK) = 1;
                }
            }
        }
    }

    pub(super) fn mark_all(&mut self) {
        self.blocks[..self.columns.div_ceil(BLOCK)].fill(1);
    }

    /// Appends each changed column and its sum in ascending order of columns; resets the sums and the marks.
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
            // The loop writes every sum to the next position, and advances the position only if the sum was changed: a
            // branch on the sum would often be mispredicted.
            let mut count = 0;
            for (at, sum) in sums.iter_mut().enumerate() {
                to_indices[count].write((b * BLOCK + at) as i64);
                to_values[count].write(*sum);
                count += usize::from(sum.to_f64().to_bits() != untouched);
                *sum = -T::ZERO;
            }
            // SAFETY: the loop above wrote `count` elements of `indices` and of `values`.
            unsafe {
                indices.set_len(indices.len() + count);
                values.set_len(values.len() + count);
            }
        }
    }

    /// Adds `factor` times a sparse row to the sums without marking blocks; [`Self::clear`] resets these sums.
    #[inline(always)]
    pub(super) fn add_unmarked<A: Arithmetic>(&mut self, factor: T, (indices, values): (&[i64], &[T])) {
        let sums = &mut self.sums[..self.columns];
        for (&column, &value) in indices.iter().zip(values) {
            let sum = &mut sums[as_index(column)];
            *sum = A::mul_add(factor, value, *sum);
        }
    }

    /// Resets the sums of the given columns.
    #[inline(always)]
    pub(super) fn clear(&mut self, indices: &[i64]) {
        for &column in indices {
            self.sums[as_index(column)] = -T::ZERO;
        }
    }

    /// Returns the sum of the given column.
    #[inline(always)]
    pub(super) fn get(&self, column: i64) -> T {
        self.sums[..self.columns][as_index(column)]
    }
}

/// A renumbering of the columns of a matrix: the columns that have entries get the indices 0, 1, 2 and so on.
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

    /// Returns the matrix with its columns renumbered, and the original index of each renumbered column.
    ///
    /// # Panics
    /// If a column index is negative or not below the number of columns of `x`, or if `x` has 2^32 entries or more.
    pub(super) fn of<'a, T: Float>(&'a mut self, x: CsrView<'a, T>) -> (CsrView<'a, T>, &'a [i64]) {
        self.number(x);
        (x.renamed(self.merge.ids().len(), &self.indices), self.merge.ids())
    }

    /// Renumbers the columns of `x` that have entries, and gives these columns the same indices in `y`. All other columns of
    /// `y` get one common index, the highest.
    ///
    /// # Panics
    /// As [`Self::of`], for the column indices of `x` and of `y`.
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
    assert!(as_index(column) < columns, "column {column} of {columns}");
}
