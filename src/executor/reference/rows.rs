//! Reference operations on rows, one row at a time: take, set and add the rows with given indices.

use std::sync::Arc;

use crate::error::Result;
use crate::lod::Lod;
use crate::operator::Spec;
use crate::tensor::{Coo, Csr, Dense, SelectedRows, Storage, with_element};
use crate::with_float;

/// Returns `rows` rows of zeros; each row has the shape of a row of a batched variable or of a table.
pub(crate) fn zeros(spec: &Spec, rows: usize) -> Result<Dense> {
    let mut shape = vec![rows];
    shape.extend(spec.shape.iter().skip(1).map(|e| e.known().unwrap_or(0)));
    Dense::zeros(spec.dtype, &shape)
}

pub(crate) fn part(lod: Option<&Arc<Lod>>, levels: usize) -> Option<Arc<Lod>> {
    let mut lod = lod?;
    while lod.levels() > levels {
        lod = lod.upper()?;
    }
    Some(lod.clone())
}

/// Returns the indices of the rows that belong to the entries `chosen` at level `depth`, and the LoD of these rows alone. If the
/// LoD has no level `depth`, each entry is itself a row.
pub(crate) fn select(
    lod: Option<&Arc<Lod>>,
    depth: usize,
    chosen: &[usize],
) -> Result<(Vec<usize>, Option<Arc<Lod>>)> {
    let mut lod = lod.cloned();
    for _ in 0..depth {
        lod = lod.and_then(|lod| lod.without_top());
    }
    match lod {
        None => Ok((chosen.to_vec(), None)),
        Some(lod) => Ok((lod.take_rows(chosen)?, Some(lod.take(chosen)?))),
    }
}

/// Copies the rows of `from` into `to`, at the given row numbers.
pub(crate) fn put(to: &mut Dense, rows: &[usize], from: &Dense) -> Result<()> {
    let width = to.width();
    with_element!(to.dtype(), T => {
        let (to, from) = (to.as_mut_slice::<T>()?, from.as_slice::<T>()?);
        for (i, &row) in rows.iter().enumerate() {
            to[row * width..(row + 1) * width].copy_from_slice(&from[i * width..(i + 1) * width]);
        }
        Ok(())
    })
}

/// Adds the rows of `from` to `to`, at the given row numbers.
pub(crate) fn add_rows(to: &mut Dense, rows: &[usize], from: &Dense) -> Result<()> {
    let width = to.width();
    with_float!(to.dtype(), T => {
        let (to, from) = (to.as_mut_slice::<T>()?, from.as_slice::<T>()?);
        for (i, &row) in rows.iter().enumerate() {
            for column in 0..width {
                to[row * width + column] += from[i * width + column];
            }
        }
        Ok(())
    })
}

/// Returns the sum of two gradients of a sparse variable; both gradients have the stored entries of the variable.
pub(crate) fn add_stored(a: &Storage, b: &Storage) -> Result<Storage> {
    let sum = |a: &Dense, b: &Dense| -> Result<Dense> {
        let mut sum = a.clone();
        with_float!(a.dtype(), T => {
            let (sum, b) = (sum.as_mut_slice::<T>()?, b.as_slice::<T>()?);
            sum.iter_mut().zip(b).for_each(|(x, y)| *x += *y);
            Ok(())
        })?;
        Ok(sum)
    };
    Ok(match (a, b) {
        (Storage::SelectedRows(a), Storage::SelectedRows(b)) => {
            SelectedRows::new(a.height(), a.row_ids().to_vec(), sum(a.value(), b.value())?)?.into()
        }
        (Storage::Csr(a), Storage::Csr(b)) => {
            let shape = [a.shape()[0], a.shape()[1]];
            Csr::new(shape, a.indptr().to_vec(), a.indices().to_vec(), sum(a.values(), b.values())?)?.into()
        }
        (Storage::Coo(a), Storage::Coo(b)) => {
            Coo::new(a.shape(), a.coordinates().to_owned(), sum(a.values(), b.values())?)?.into()
        }
        _ => add(a, b)?,
    })
}

/// Returns the sum of two gradients; the sum is sparse only if both gradients are sparse.
pub(crate) fn add(a: &Storage, b: &Storage) -> Result<Storage> {
    if let (Storage::SelectedRows(a), Storage::SelectedRows(b)) = (a, b) {
        let rows = [a.row_ids(), b.row_ids()].concat();
        return Ok(SelectedRows::new(a.height(), rows, Dense::concat_rows(&[a.value(), b.value()])?)?.into());
    }
    let mut sum = a.to_dense()?.into_owned();
    let b = b.to_dense()?;
    with_float!(sum.dtype(), T => {
        let numbers = sum.as_mut_slice::<T>()?;
        numbers.iter_mut().zip(b.as_slice::<T>()?).for_each(|(x, y)| *x += *y);
        Ok(())
    })?;
    Ok(sum.into())
}
