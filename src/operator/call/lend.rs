//! Gives an operator's call access to values: to dense values by views, to all other values by buffers.

use std::sync::Arc;

use ndarray::Array2;

use super::intake::{DuplicateRows, Intake};
use crate::error::{Error, Result};
use crate::kernels::arena::Lender;
use crate::kernels::{View, ViewMut};
use crate::operator::context::OperandPosition;
use crate::operator::entries::PooledStorage;
use crate::operator::extent::Spec;
use crate::operator::rows::RowBuffer;
use crate::operator::table::{RowStart, RowTable};
use crate::tensor::{Coo, Csr, Dense, SelectedRows, Storage, StorageKind, with_element};

pub(super) fn lend_reads<'a>(
    values: impl Iterator<Item = Option<&'a Storage>>,
    specs: &[Spec],
    lender: &mut Lender<'a>,
    reads: &mut usize,
    pool: &mut Vec<PooledStorage>,
    repeated: DuplicateRows,
) -> Result<Vec<OperandPosition>> {
    let mut places = Vec::new();
    for (value, spec) in values.zip(specs) {
        places.push(match value {
            None => OperandPosition::Absent,
            Some(Storage::Dense(dense)) => {
                let (rows, width) = two_dimensional(dense.shape(), spec);
                with_element!(dense.dtype(), T => lender.read(View::new(dense.as_slice::<T>()?, rows, width)));
                *reads += 1;
                OperandPosition::Dense(*reads - 1)
            }
            Some(other) => {
                pool.extend(pooled(other, repeated)?);
                OperandPosition::Pooled(pool.len() - 1)
            }
        });
    }
    Ok(places)
}

pub(super) fn lend_write<'a>(dense: &'a mut Dense, spec: &Spec, lender: &mut Lender<'a>) -> Result<()> {
    let (rows, width) = two_dimensional(dense.shape(), spec);
    with_element!(dense.dtype(), T => lender.write(ViewMut::new(dense.as_mut_slice::<T>()?, rows, width)));
    Ok(())
}

/// Returns the number of rows and the width of a value's two-dimensional view.
pub(crate) fn two_dimensional(shape: &[usize], spec: &Spec) -> (usize, usize) {
    match shape {
        [] => (1, 1),
        [n] if spec.batched() => (*n, 1),
        [n] => (1, *n),
        [rows, rest @ ..] => (*rows, rest.iter().product()),
    }
}

/// Copies a sparse value into a buffer that operators can read; returns `None` for a dense value.
///
/// # Errors
/// Fails if the values are not f32 or f64.
pub(crate) fn pooled(value: &Storage, repeated: DuplicateRows) -> Result<Option<PooledStorage>> {
    let Some(mut pooled) = PooledStorage::of(value.kind()) else { return Ok(None) };
    Intake::default().take_in(&mut pooled, value, repeated)?;
    Ok(Some(pooled))
}

/// Converts selected rows to a row-sparse parameter; a row that `rows` does not contain has its
/// initial value, which `start` computes.
///
/// # Errors
/// Fails if the values are not f32 or f64.
pub(super) fn table(rows: &SelectedRows, start: RowStart) -> Result<PooledStorage> {
    let mut table = RowTable::new(rows.dtype(), rows.shape(), start)?;
    table.set(rows.clone())?;
    Ok(PooledStorage::Table(Arc::new(table)))
}

/// Converts a buffer to a value of the shape `spec`.
///
/// # Errors
/// Fails if an index in the buffer is out of range.
pub(crate) fn stored(pooled: &PooledStorage, spec: &Spec) -> Result<Storage> {
    let csr = match pooled {
        PooledStorage::Rows(rows) => return Ok(selected_rows(rows, spec)?.into()),
        PooledStorage::Csr(csr) => csr,
        PooledStorage::Table(table) => return Ok(table.to_selected_rows()?.into()),
    };
    let shape = [csr.rows(), spec.width()];
    let Some(dtype) = csr.dtype() else {
        let empty = Csr::new([0, spec.width()], vec![0], Vec::new(), Dense::zeros(spec.dtype, &[0])?)?;
        return Ok(empty.into());
    };
    crate::with_float!(dtype, T => {
        let values = Dense::from_vec(&[csr.entries()], csr.values::<T>()?.to_vec())?;
        if spec.storage == StorageKind::Coo {
            let rows = csr.indptr().windows(2).enumerate().flat_map(|(row, p)| (p[0]..p[1]).map(move |_| row as i64));
            let places = rows.zip(csr.indices()).flat_map(|(row, &column)| [row, column]).collect();
            let coordinates = Array2::from_shape_vec((csr.entries(), 2), places)
                .map_err(|_| Error::new("coordinates", "two for each entry", "another number"))?;
            return Ok(Coo::new(&shape, coordinates, values)?.into());
        }
        Ok(Csr::new(shape, csr.indptr().to_vec(), csr.indices().to_vec(), values)?.into())
    })
}

/// Converts a buffer of selected rows to a value; `spec` is the spec of the whole table.
///
/// # Errors
/// Fails if a row number in the buffer is out of range.
pub(crate) fn selected_rows(buffer: &RowBuffer, spec: &Spec) -> Result<SelectedRows> {
    let mut shape = vec![buffer.ids().len()];
    shape.extend(spec.shape.iter().skip(1).map(|e| e.known().unwrap_or(1)));
    let Some(dtype) = buffer.dtype() else {
        return SelectedRows::new(
            spec.shape[0].known().unwrap_or(0),
            Vec::new(),
            Dense::zeros(spec.dtype, &shape)?,
        );
    };
    crate::with_float!(dtype, T => {
        let values: Vec<T> = buffer.values::<T>()?.iter().flatten().copied().collect();
        SelectedRows::new(buffer.height(), buffer.ids().to_vec(), Dense::from_vec(&shape, values)?)
    })
}
