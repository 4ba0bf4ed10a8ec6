//! What the check compares: numbers of any storage, and how it says what differs.

use std::fmt::Display;

use crate::error::{Error, Result};
use crate::tensor::{DType, Dense, SelectedRows, Storage, Variable};

/// What went wrong, in words.
pub(super) struct Broken(pub(super) String);

pub(super) type Outcome<T = ()> = std::result::Result<T, Broken>;

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Broken(error.to_string())
    }
}

/// Says what is wrong, unless it holds.
pub(super) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Broken(words())) }
}

/// Says more of where something is wrong.
pub(super) fn within(outcome: Outcome, place: impl FnOnce() -> String) -> Outcome {
    outcome.map_err(|Broken(words)| Broken(format!("{}: {words}", place())))
}

/// Numbers between -1 and 1 without a pattern.
pub(super) fn filled(shape: &[usize], dtype: DType, salt: usize) -> Result<Dense> {
    let len: usize = shape.iter().product();
    let numbers = (0..len).map(|i| (((i + 1) * (2 * salt + 3)) as f64 * 1.618).sin()).collect();
    Ok(Dense::from_vec::<f64>(shape, numbers)?.cast(DType::F32).cast(dtype))
}

/// A dense value of the shape, every number of it the same.
pub(super) fn all(shape: &[usize], dtype: DType, number: f64) -> Result<Dense> {
    let len: usize = shape.iter().product();
    Ok(Dense::from_vec::<f64>(shape, vec![number; len])?.cast(dtype))
}

/// Whether gradients can be of this dtype.
pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// A gradient for an output, if it can have one.
pub(super) fn weights(output: &Variable, salt: usize) -> Result<Option<Storage>> {
    let dense = is_float(output.dtype()).then(|| filled(output.shape(), output.dtype(), salt));
    Ok(dense.transpose()?.map(Storage::from))
}

/// f32 and f64 in `dtype`; anything else as it is.
pub(super) fn cast(value: &Variable, dtype: DType) -> Result<Variable> {
    if !is_float(value.dtype()) {
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
pub(super) fn numbers(storage: &Storage) -> Result<Vec<f64>> {
    Ok(storage.to_dense()?.cast(DType::F64).as_slice::<f64>()?.to_vec())
}

pub(super) fn has_nan(storage: &Storage) -> Result<bool> {
    Ok(storage.dtype().is_float() && numbers(storage)?.iter().any(|x| x.is_nan()))
}

pub(super) fn bits_eq(a: &Storage, b: &Storage) -> Result<bool> {
    Ok(a.to_dense()?.bits_eq(&*b.to_dense()?))
}

/// Says at which element the bits are others, and what is there.
pub(super) fn same_bits(got: &Storage, expected: &Storage, name: impl Display) -> Outcome {
    if bits_eq(got, expected)? {
        return Ok(());
    }
    let (a, b) = (numbers(got)?, numbers(expected)?);
    let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
    Err(Broken(match a.iter().zip(&b).position(differs) {
        Some(i) if a.len() == b.len() => format!("{name}, element {i}: {} instead of {}", a[i], b[i]),
        _ => format!(
            "{name}: {} {:?} instead of {} {:?}",
            got.dtype(),
            got.shape(),
            expected.dtype(),
            expected.shape()
        ),
    }))
}

/// As [`same_bits`], where the shapes may be told in other words: a gradient of the same rows and columns.
pub(super) fn same_numbers(got: &Storage, expected: &Storage, name: impl Display) -> Outcome {
    let shape = expected.shape().to_vec();
    let got = got.to_dense()?.into_owned();
    if got.len() != expected.shape().iter().product::<usize>() {
        return Err(Broken(format!("{name}: {:?} instead of {shape:?}", got.shape())));
    }
    same_bits(&got.reshape(&shape)?.into(), expected, name)
}

/// Within `tolerance` of the expected, measured by its largest number and 1.
pub(super) fn near(got: &Storage, expected: &Storage, tolerance: f64, name: impl Display) -> Outcome {
    let (a, b) = (numbers(got)?, numbers(expected)?);
    let scale = b.iter().filter(|b| b.is_finite()).fold(1.0, |m: f64, b| m.max(b.abs()));
    let far = |(a, b): (&f64, &f64)| {
        let same = a == b || (a.is_nan() && b.is_nan());
        !same && ((a - b).abs() > tolerance * scale || !b.is_finite() || !a.is_finite())
    };
    match a.iter().zip(&b).position(far) {
        None if a.len() == b.len() => Ok(()),
        None => Err(Broken(format!("{name}: {} numbers instead of {}", a.len(), b.len()))),
        Some(i) => Err(Broken(format!("{name}, element {i}: {} instead of {}", a[i], b[i]))),
    }
}

/// Columns of values side by side: each value with as many rows.
pub(super) fn beside(values: &[&Dense]) -> Result<Dense> {
    let rows = values.first().map_or(0, |v| v.rows());
    let mut all = Vec::new();
    let casted: Vec<Dense> = values.iter().map(|v| v.cast(DType::F64)).collect();
    let width: usize = values.iter().map(|v| v.width()).sum();
    for row in 0..rows {
        for value in &casted {
            all.extend_from_slice(&value.as_slice::<f64>()?[row * value.width()..(row + 1) * value.width()]);
        }
    }
    let dtype = values.first().map_or(DType::F64, |v| v.dtype());
    Ok(Dense::from_vec(&[rows, width], all)?.cast(dtype))
}
