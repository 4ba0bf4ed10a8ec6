//! Copies the caller's selected rows and sparse matrices, in canonical form, into the buffers that operators read. The memory of
//! the buffers is reused.

use crate::error::{Error, Result};
use crate::kernels::sparse::{CsrView, SparseRoom, canonical, is_canonical};
use crate::kernels::{RowMerge, View};
use crate::operator::entries::{CsrBuffer, PooledStorage, room_for_rows};
use crate::operator::rows::{RowBuffer, RowValue};
use crate::tensor::{Coo, Csr, Element, SelectedRows, Storage};
use crate::with_float;

/// The treatment of selected rows that list a row several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuplicateRows {
    /// Keeps every occurrence of a row that is listed several times, as in gradients.
    Kept,
    /// Adds up the values of a row that is listed several times, as forward operators require.
    Added,
}

/// Working memory for values that are not in canonical form yet; each call reuses the memory.
#[derive(Default)]
pub(crate) struct Intake {
    merge: RowMerge,
    f32: ByRows<f32>,
    f64: ByRows<f64>,
}

/// The entries of a sparse matrix, row by row. Within a row, the entries are in any order and may repeat.
#[derive(Default)]
pub(crate) struct ByRows<T> {
    indptr: Vec<i64>,
    indices: Vec<i64>,
    values: Vec<T>,
    room: SparseRoom<T>,
}

/// A float type (f32 or f64) of the values to copy.
trait Incoming: RowValue + Element {
    fn by_rows(intake: &mut Intake) -> &mut ByRows<Self>;
}

impl Incoming for f32 {
    fn by_rows(intake: &mut Intake) -> &mut ByRows<f32> {
        &mut intake.f32
    }
}

impl Incoming for f64 {
    fn by_rows(intake: &mut Intake) -> &mut ByRows<f64> {
        &mut intake.f64
    }
}

impl Intake {
    /// Copies a value into a buffer of the value's storage. Repeated entries of a matrix are added in the order in which they are
    /// listed.
    ///
    /// # Errors
    /// Fails if the values are not f32 or f64, or if a coo tensor does not have two dimensions.
    pub(crate) fn take_in(
        &mut self,
        pooled: &mut PooledStorage,
        value: &Storage,
        repeated: DuplicateRows,
    ) -> Result<()> {
        with_float!(value.dtype(), T => match (pooled, value) {
            (PooledStorage::Rows(buffer), Storage::SelectedRows(rows)) => self.rows::<T>(buffer, rows, repeated),
            (PooledStorage::Csr(buffer), Storage::Csr(csr)) => self.csr::<T>(buffer, csr),
            (PooledStorage::Csr(buffer), Storage::Coo(coo)) => self.coo::<T>(buffer, coo),
            _ => Err(Error::new("value", "a value with the buffer's storage", value.kind().to_string())),
        })
    }

    fn rows<T: Incoming>(
        &mut self,
        buffer: &mut RowBuffer,
        rows: &SelectedRows,
        repeated: DuplicateRows,
    ) -> Result<()> {
        let (ids, width) = (rows.row_ids(), rows.value().width());
        let values = View::new(rows.value().as_slice::<T>()?, ids.len(), width);
        buffer.reset::<T>(rows.height(), width);
        if rows.is_merged() || repeated == DuplicateRows::Kept {
            let mut out = buffer.extend::<T>(ids.iter().copied());
            out.iter_mut().zip(values.iter()).for_each(|(out, row)| out.copy_from_slice(row));
        } else {
            self.merge.prepare(ids);
            let out = buffer.extend::<T>(self.merge.ids().iter().copied());
            self.merge.merge(values, out);
        }
        if rows.is_merged() || repeated == DuplicateRows::Added {
            buffer.set_merged();
        }
        Ok(())
    }

    fn csr<T: Incoming>(&mut self, buffer: &mut CsrBuffer, csr: &Csr) -> Result<()> {
        let columns = csr.shape().last().copied().unwrap_or(0);
        let parts = CsrView::new(columns, csr.indptr(), csr.indices(), csr.values().as_slice::<T>()?);
        let out = buffer.fill::<T>(columns);
        if is_canonical(csr.indptr(), csr.indices()) {
            out.indptr.extend_from_slice(csr.indptr());
            out.indices.extend_from_slice(csr.indices());
            out.values.extend_from_slice(csr.values().as_slice::<T>()?);
        } else {
            canonical(parts, out, &mut T::by_rows(self).room);
        }
        Ok(())
    }

    fn coo<T: Incoming>(&mut self, buffer: &mut CsrBuffer, coo: &Coo) -> Result<()> {
        let &[rows, columns] = coo.shape() else {
            let got = format!("shape {:?}", coo.shape());
            return Err(Error::new("a coo tensor of a program", "two dimensions", got));
        };
        let (at, values) = (coo.coordinates(), coo.values().as_slice::<T>()?);
        let ByRows { indptr, indices, values: sorted, room } = T::by_rows(self);
        indptr.clear();
        room_for_rows(indptr, rows)?;
        indptr.resize(rows + 2, 0);
        at.outer_iter().for_each(|at| indptr[at[0] as usize + 2] += 1);
        (1..rows + 1).for_each(|row| indptr[row + 1] += indptr[row]);
        indices.clear();
        indices.resize(values.len(), 0);
        sorted.clear();
        sorted.resize(values.len(), T::ZERO);
        // During the loop, `indptr[row + 1]` is the position of the next entry of `row`. After the loop, it is the position of
        // the first entry of the next row.
        for (at, &value) in at.outer_iter().zip(values) {
            let next = &mut indptr[at[0] as usize + 1];
            (indices[*next as usize], sorted[*next as usize]) = (at[1], value);
            *next += 1;
        }
        let out = buffer.fill::<T>(columns);
        room_for_rows(out.indptr, rows)?;
        canonical(CsrView::new(columns, &indptr[..rows + 1], indices, sorted), out, room);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn coo_and_csr_come_in_by_rows_in_canonical_form() -> Result<()> {
        let coo = Coo::new(
            &[4, 3],
            array![[3, 1], [0, 2], [3, 1], [0, 0], [2, 2]],
            array![1.0, 2.0, 4.0, 8.0, 16.0],
        )?;
        let csr =
            Csr::new([4, 3], vec![0, 2, 2, 3, 5], vec![2, 0, 2, 1, 1], array![2.0, 8.0, 16.0, 1.0, 4.0])?;
        let mut intake = Intake::default();
        for value in [Storage::from(coo), csr.into()] {
            let mut pooled = PooledStorage::Csr(CsrBuffer::default());
            intake.take_in(&mut pooled, &value, DuplicateRows::Kept)?;
            let PooledStorage::Csr(csr) = pooled else { continue };
            assert_eq!((csr.indptr(), csr.indices()), (&[0, 2, 2, 3, 4][..], &[0, 2, 2, 1][..]));
            assert_eq!(csr.values::<f64>()?, [8.0, 2.0, 16.0, 5.0]);
        }
        Ok(())
    }

    #[test]
    fn repeated_rows_are_added_or_kept() -> Result<()> {
        let rows = Storage::from(SelectedRows::new(5, vec![4, 1, 4], array![[1.0f32], [2.0], [4.0]])?);
        for (repeated, ids, values) in [
            (DuplicateRows::Kept, &[4, 1, 4][..], &[1.0, 2.0, 4.0][..]),
            (DuplicateRows::Added, &[1, 4], &[2.0, 5.0]),
        ] {
            let mut pooled = PooledStorage::Rows(RowBuffer::default());
            Intake::default().take_in(&mut pooled, &rows, repeated)?;
            let PooledStorage::Rows(found) = pooled else { continue };
            assert_eq!((found.ids(), found.merged()), (ids, repeated == DuplicateRows::Added));
            assert_eq!(found.values::<f32>()?.contiguous(), Some(values));
        }
        Ok(())
    }
}
