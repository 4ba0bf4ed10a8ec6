//! Buffers for sparse matrices while a program runs, stored by rows; the memory of a buffer is reused from step to step.

use std::sync::Arc;

use super::rows::{Numbers, RowBuffer, RowValue};
use super::table::RowTable;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::sparse::{CsrMut, CsrView};
use crate::reserve;
use crate::tensor::{DType, StorageKind};

/// A sparse matrix, stored by rows in canonical form: the columns of a row ascend, without repetition. A coo variable
/// of a program is stored as a `CsrBuffer`, too.
#[derive(Debug, Clone, Default)]
pub struct CsrBuffer {
    columns: usize,
    indptr: Vec<i64>,
    indices: Vec<i64>,
    numbers: Numbers,
}

/// The name of the buffer's values in messages.
const WHAT: &str = "values of csr";

/// Reserves memory for the offsets (`indptr`) of `rows` rows.
///
/// # Errors
/// Fails if memory does not suffice.
pub(crate) fn room_for_rows(indptr: &mut Vec<i64>, rows: usize) -> Result<()> {
    let more = rows.saturating_add(2).saturating_sub(indptr.len());
    match reserve::fits(indptr, more) {
        true => Ok(()),
        false => Err(Error::new(
            "rows of a sparse matrix",
            "a number whose offsets fit into memory",
            rows.to_string(),
        )),
    }
}

impl CsrBuffer {
    /// Returns the number of rows of the matrix.
    pub fn rows(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Returns the number of columns of the matrix.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the number of stored entries.
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// Returns the dtype of the entries; `None` before the matrix is filled for the first time.
    pub(crate) fn dtype(&self) -> Option<DType> {
        self.numbers.dtype()
    }

    /// Returns the position of each row's first entry, then the number of entries.
    pub fn indptr(&self) -> &[i64] {
        &self.indptr
    }

    /// Returns the column of each stored entry.
    pub fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Returns the value of each stored entry.
    ///
    /// # Errors
    /// Fails if the matrix holds another dtype.
    #[track_caller]
    pub fn values<T: RowValue>(&self) -> Result<&[T]> {
        self.numbers.get::<T>(WHAT).map(Vec::as_slice).at_caller()
    }

    /// Returns the value of each stored entry, to be changed in place.
    ///
    /// # Errors
    /// Fails if the matrix holds another dtype.
    #[track_caller]
    pub fn values_mut<T: RowValue>(&mut self) -> Result<&mut [T]> {
        self.numbers.get_mut::<T>(WHAT).map(Vec::as_mut_slice).at_caller()
    }

    /// Returns a view of the whole matrix.
    ///
    /// # Errors
    /// Fails if the matrix holds another dtype.
    #[track_caller]
    pub(crate) fn view<T: RowValue>(&self) -> Result<CsrView<'_, T>> {
        let values = self.values::<T>().at_caller()?;
        Ok(CsrView::new(self.columns, &self.indptr, &self.indices, values))
    }

    /// Empties the matrix, sets its number of columns and its dtype `T`, and returns the vectors that a kernel fills. The kernel
    /// must fill the vectors in canonical form: ascending columns in each row, without repetition.
    pub fn fill<T: RowValue>(&mut self, columns: usize) -> CsrMut<'_, T> {
        self.columns = columns;
        self.indptr.clear();
        self.indices.clear();
        self.numbers.reset::<T>();
        CsrMut { indptr: &mut self.indptr, indices: &mut self.indices, values: T::of_mut(&mut self.numbers) }
    }

    /// Copies the positions of the entries of another matrix, and sets all values to zero.
    pub(crate) fn zeros_at<T: RowValue>(&mut self, like: &CsrBuffer) {
        let out = self.fill::<T>(like.columns);
        out.indptr.extend_from_slice(&like.indptr);
        out.indices.extend_from_slice(&like.indices);
        out.values.resize(like.entries(), T::ZERO);
    }

    /// Returns the size in bytes of the offsets, the columns and the values.
    pub(crate) fn bytes(&self) -> usize {
        let size = self.dtype().map_or(0, |dtype| dtype.size_of());
        self.indptr.len() * size_of::<i64>() + self.entries() * (size_of::<i64>() + size)
    }
}

/// The value of a variable that is not dense, in the pool of a call.
#[derive(Debug, Clone)]
pub(crate) enum PooledStorage {
    /// Selected rows: some rows of a table, with their row numbers.
    Rows(RowBuffer),
    /// A sparse matrix: csr or coo.
    Csr(CsrBuffer),
    /// A row-sparse parameter, or an optimizer's state for a row-sparse parameter. Copies of the table share one memory until one
    /// of the copies is written.
    Table(Arc<RowTable>),
}

impl PooledStorage {
    /// Returns an empty value of the given storage; `None` for dense storage.
    pub(crate) fn of(storage: StorageKind) -> Option<Self> {
        match storage {
            StorageKind::Dense => None,
            StorageKind::SelectedRows => Some(Self::Rows(RowBuffer::default())),
            StorageKind::Csr | StorageKind::Coo => Some(Self::Csr(CsrBuffer::default())),
        }
    }

    /// Returns the selected rows; `None` if the value has another storage.
    pub(crate) fn rows(&self) -> Option<&RowBuffer> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Csr(_) | Self::Table(_) => None,
        }
    }

    /// Returns the selected rows, to be filled; `None` if the value has another storage.
    pub(crate) fn rows_mut(&mut self) -> Option<&mut RowBuffer> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Csr(_) | Self::Table(_) => None,
        }
    }

    /// Returns the row-sparse variable; `None` if the value has another storage.
    pub(crate) fn table(&self) -> Option<&RowTable> {
        match self {
            Self::Table(table) => Some(table),
            Self::Rows(_) | Self::Csr(_) => None,
        }
    }

    /// Returns the row-sparse variable, to be written; `None` if the value has another storage. Copies the table first if other
    /// values share the table's memory.
    pub(crate) fn table_mut(&mut self) -> Option<&mut RowTable> {
        match self {
            Self::Table(table) => Some(Arc::make_mut(table)),
            Self::Rows(_) | Self::Csr(_) => None,
        }
    }

    /// Returns the sparse matrix; `None` if the value has another storage.
    pub(crate) fn csr(&self) -> Option<&CsrBuffer> {
        match self {
            Self::Csr(csr) => Some(csr),
            Self::Rows(_) | Self::Table(_) => None,
        }
    }

    /// Returns the sparse matrix, to be filled; `None` if the value has another storage.
    pub(crate) fn csr_mut(&mut self) -> Option<&mut CsrBuffer> {
        match self {
            Self::Csr(csr) => Some(csr),
            Self::Rows(_) | Self::Table(_) => None,
        }
    }

    /// Returns how many numbers the value stores.
    pub(crate) fn numbers(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.ids().len() * rows.width(),
            Self::Csr(csr) => csr.entries(),
            Self::Table(table) => table.touched() * table.width(),
        }
    }

    /// Returns the size in bytes of everything that the value stores.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.bytes(),
            Self::Csr(csr) => csr.bytes(),
            Self::Table(table) => table.bytes(),
        }
    }

    /// Returns the allocated bytes of the value; 0 for a row-sparse table, which belongs to the scope.
    pub(crate) fn allocated(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.allocated(),
            Self::Csr(csr) => {
                (csr.indptr.capacity() + csr.indices.capacity()) * size_of::<i64>() + csr.numbers.allocated()
            }
            Self::Table(_) => 0,
        }
    }

    /// Empties the value, and sets the height and width of its table or matrix.
    pub(crate) fn reset<T: RowValue>(&mut self, height: usize, width: usize) {
        match self {
            Self::Rows(rows) => rows.reset::<T>(height, width),
            Self::Csr(csr) => csr.fill::<T>(width).indptr.resize(height + 1, 0),
            // A row-sparse table belongs to the scope, so it is not emptied.
            Self::Table(_) => {}
        }
    }

    /// Copies the positions of the entries, or the row numbers, of another value, and sets all numbers to zero.
    ///
    /// # Errors
    /// Fails if the other value has another storage.
    pub(crate) fn zeros_at<T: RowValue>(&mut self, like: &PooledStorage) -> Result<()> {
        match (self, like) {
            (Self::Rows(to), Self::Rows(like)) => to.zeros_at::<T>(like),
            (Self::Csr(to), Self::Csr(like)) => to.zeros_at::<T>(like),
            _ => {
                return Err(Error::of(
                    ErrorKind::Program,
                    "storage of a gradient",
                    "the storage of its variable",
                    "another storage",
                ));
            }
        }
        Ok(())
    }

    /// Returns all stored numbers, to be changed: the values of the entries, or the numbers of all rows in order.
    ///
    /// # Errors
    /// Fails if the value holds another dtype.
    pub(crate) fn numbers_mut<T: RowValue>(&mut self) -> Result<&mut [T]> {
        match self {
            Self::Csr(csr) => csr.values_mut::<T>(),
            Self::Rows(rows) => rows.flat_mut::<T>(),
            Self::Table(table) => Arc::make_mut(table).numbers_mut::<T>(),
        }
    }
}
