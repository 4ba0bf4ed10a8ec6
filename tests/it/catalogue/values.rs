//! What the catalogue test compares: numbers of any storage, and how it says what differs.

use std::fmt::Display;

use unpadded::tensor::{Dense, SelectedRows, Storage};
use unpadded::{DType, Error, Variable};

/// What went wrong, in words.
pub(super) struct Failure(pub(super) String);

pub(super) type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(error.to_string())
    }
}

pub(super) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(words())) }
}

/// Numbers between -1 and 1 without a pattern.
pub(super) fn filled(shape: &[usize], dtype: DType, salt: usize) -> Result<Storage, Error> {
    let len: usize = shape.iter().product();
    let numbers = (0..len).map(|i| (((i + 1) * (2 * salt + 3)) as f64 * 1.618).sin()).collect();
    let dense = Dense::from_vec::<f64>(shape, numbers)?.cast(DType::F32).cast(dtype);
    Ok(Storage::from(dense))
}

/// A gradient for an output, if it can have one.
pub(super) fn weights(output: &Variable, salt: usize) -> Result<Option<Storage>, Error> {
    let float = matches!(output.dtype(), DType::F32 | DType::F64);
    float.then(|| filled(output.shape(), output.dtype(), salt)).transpose()
}

/// f32 and f64 in `dtype`; anything else as it is.
pub(super) fn cast(value: &Variable, dtype: DType) -> Result<Variable, Error> {
    if !matches!(value.dtype(), DType::F32 | DType::F64) {
        return Ok(value.clone());
    }
    let storage: Storage = match value.storage() {
        Storage::Dense(dense) => dense.cast(dtype).into(),
        Storage::SelectedRows(rows) => {
            SelectedRows::new(rows.height(), rows.row_ids().to_vec(), rows.value().cast(dtype))?.into()
        }
        other => {
            return Err(Error::new("a sample's storage", "dense or selected rows", other.kind().to_string()));
        }
    };
    Variable::new(storage, value.lod().cloned())
}

/// The dense meaning in f64.
pub(super) fn numbers(storage: &Storage) -> Outcome<Vec<f64>> {
    Ok(storage.to_dense()?.cast(DType::F64).as_slice::<f64>()?.to_vec())
}

pub(super) fn has_nan(storage: &Storage) -> Outcome<bool> {
    Ok(storage.dtype().is_float() && numbers(storage)?.iter().any(|x| x.is_nan()))
}

pub(super) fn bits_eq(a: &Storage, b: &Storage) -> Outcome<bool> {
    Ok(a.to_dense()?.bits_eq(&*b.to_dense()?))
}

/// Within the rounding of f32, measured by the largest number of the tensor.
pub(super) fn close(single: &Storage, double: &Storage, name: impl Display) -> Outcome {
    let (a, b) = (numbers(single)?, numbers(double)?);
    let scale = b.iter().filter(|b| b.is_finite()).fold(1.0, |m: f64, b| m.max(b.abs()));
    let far = a.iter().zip(&b).position(|(a, b)| a != b && ((a - b).abs() > 2e-6 * scale || !b.is_finite()));
    match far {
        None if a.len() == b.len() => Ok(()),
        None => Err(Failure(format!("`{name}`: {} elements in f32, {} in f64", a.len(), b.len()))),
        Some(i) => Err(Failure(format!("`{name}`, element {i}: {} in f32, {} in f64", a[i], b[i]))),
    }
}
