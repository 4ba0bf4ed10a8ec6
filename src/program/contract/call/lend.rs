//! Values as operators see them, lent to a call: dense ones as views, selected rows as buffers.

use crate::error::{Error, Result};
use crate::kernels::arena::Lender;
use crate::kernels::{View, ViewMut};
use crate::program::contract::context::OperandAt;
use crate::program::contract::rows::RowBuffer;
use crate::program::spec::extent::Spec;
use crate::tensor::{Dense, SelectedRows, Storage, with_element};

pub(super) fn lend_reads<'a>(
    values: impl Iterator<Item = Option<&'a Storage>>,
    specs: &[Spec],
    lender: &mut Lender<'a>,
    reads: &mut usize,
    pool: &mut Vec<RowBuffer>,
) -> Result<Vec<OperandAt>> {
    let mut places = Vec::new();
    for (value, spec) in values.zip(specs) {
        places.push(match value {
            None => OperandAt::Absent,
            Some(Storage::Dense(dense)) => {
                let (rows, width) = two_dimensional(dense.shape(), spec);
                with_element!(dense.dtype(), T => lender.read(View::new(dense.as_slice::<T>()?, rows, width)));
                *reads += 1;
                OperandAt::Dense(*reads - 1)
            }
            Some(Storage::SelectedRows(rows)) => {
                pool.push(row_buffer(rows)?);
                OperandAt::Rows(pool.len() - 1)
            }
            Some(other) => return Err(Error::new("storage", "dense or selected rows", other.kind().to_string())),
        });
    }
    Ok(places)
}

pub(super) fn lend_write<'a>(dense: &'a mut Dense, spec: &Spec, lender: &mut Lender<'a>) -> Result<()> {
    let (rows, width) = two_dimensional(dense.shape(), spec);
    with_element!(dense.dtype(), T => lender.write(ViewMut::new(dense.as_mut_slice::<T>()?, rows, width)));
    Ok(())
}

/// Rows and width of a value's two-dimensional view.
pub(crate) fn two_dimensional(shape: &[usize], spec: &Spec) -> (usize, usize) {
    match shape {
        [] => (1, 1),
        [n] if spec.batched() => (*n, 1),
        [n] => (1, *n),
        [rows, rest @ ..] => (*rows, rest.iter().product()),
    }
}

/// Selected rows as operators see them.
///
/// # Errors
/// If the values are not f32 or f64.
pub(crate) fn row_buffer(rows: &SelectedRows) -> Result<RowBuffer> {
    let mut buffer = RowBuffer::default();
    let width = rows.value().width();
    crate::with_float!(rows.dtype(), T => {
        buffer.reset::<T>(rows.height(), width);
        let values = rows.value().as_slice::<T>()?;
        let mut out = buffer.extend::<T>(rows.row_ids().iter().copied());
        for (i, row) in out.iter_mut().enumerate() {
            row.copy_from_slice(&values[i * width..(i + 1) * width]);
        }
        Ok(())
    })?;
    if rows.is_merged() {
        buffer.set_merged();
    }
    Ok(buffer)
}

/// Selected rows as values, in the shape of the table `spec`.
///
/// # Errors
/// If a row number is out of range.
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
