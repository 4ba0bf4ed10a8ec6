//! Comparisons of values in any storage; the error message names the first difference.

use std::fmt::Display;

use crate::error::{Error, Result};
use crate::tensor::{Coo, Csr, DType, Dense, SelectedRows, Storage, Variable};

/// The message for a rule that an operator breaks.
pub(super) struct Broken(pub(super) String);

pub(super) type Outcome<T = ()> = std::result::Result<T, Broken>;

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Broken(error.to_string())
    }
}

/// Returns an error with the message `words()` unless `holds` is true.
pub(super) fn ensure(holds: bool, words: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Broken(words())) }
}

/// Returns the result with `place()` put before the message of its error.
pub(super) fn within(outcome: Outcome, location: impl FnOnce() -> String) -> Outcome {
    outcome.map_err(|Broken(words)| Broken(format!("{}: {words}", location())))
}

/// Returns irregular numbers between -1 and 1, in the given shape; a different `salt` gives different numbers.
pub(super) fn filled(shape: &[usize], dtype: DType, salt: usize) -> Result<Dense> {
    let len: usize = shape.iter().product();
    let numbers = (0..len).map(|i| (((i + 1) * (2 * salt + 3)) as f64 * 1.618).sin()).collect();
    Ok(Dense::from_vec::<f64>(shape, numbers)?.cast(DType::F32).cast(dtype))
}

/// Returns a dense value with the given shape, in which every number is `number`.
pub(super) fn all(shape: &[usize], dtype: DType, number: f64) -> Result<Dense> {
    let len: usize = shape.iter().product();
    Ok(Dense::from_vec::<f64>(shape, vec![number; len])?.cast(dtype))
}

/// Returns whether variables of this dtype can have a gradient: f32 or f64.
pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// Makes up a gradient for an output; returns `None` if the output holds no floats.
pub(super) fn weights(output: &Variable, salt: usize) -> Result<Option<Storage>> {
    if !is_float(output.dtype()) {
        return Ok(None);
    }
    let dense = filled(output.shape(), output.dtype(), salt)?;
    at_stored(output.storage(), &dense).map(Some)
}

/// Returns, in the storage of `like`, the numbers of the dense value at the positions that `like` stores.
pub(super) fn at_stored(like: &Storage, dense: &Dense) -> Result<Storage> {
    let all = dense.cast(DType::F64);
    let (all, width) = (all.as_slice::<f64>()?, dense.width());
    let mut found = Vec::new();
    match &canonical(like)? {
        Storage::Dense(_) => return Ok(dense.clone().into()),
        Storage::SelectedRows(rows) => {
            for &id in rows.row_ids() {
                found.extend_from_slice(&all[id as usize * width..(id as usize + 1) * width]);
            }
        }
        Storage::Csr(csr) => {
            for (row, pair) in csr.indptr().windows(2).enumerate() {
                let columns = &csr.indices()[pair[0] as usize..pair[1] as usize];
                found.extend(columns.iter().map(|&column| all[row * width + column as usize]));
            }
        }
        Storage::Coo(coo) => {
            found.extend(
                coo.coordinates().outer_iter().map(|at| all[at[0] as usize * width + at[1] as usize]),
            );
        }
    }
    with_stored(like, found, dense.dtype())
}

/// Returns a value in canonical form, in which each number is stored once, in ascending order of positions.
pub(super) fn canonical(value: &Storage) -> Result<Storage> {
    Ok(match value.clone() {
        Storage::Dense(dense) => dense.into(),
        Storage::SelectedRows(rows) => rows.merge()?.into(),
        Storage::Csr(csr) => csr.canonicalize()?.into(),
        Storage::Coo(coo) => coo.canonicalize()?.into(),
    })
}

/// Returns the stored numbers of a value in f64, in the order of the canonical form.
pub(super) fn stored(value: &Storage) -> Result<Vec<f64>> {
    let numbers = match canonical(value)? {
        Storage::Dense(dense) => dense,
        Storage::SelectedRows(rows) => rows.into_parts().1,
        Storage::Csr(csr) => csr.into_parts().2,
        Storage::Coo(coo) => coo.into_parts().1,
    };
    Ok(numbers.cast(DType::F64).as_slice::<f64>()?.to_vec())
}

/// Returns `value` in canonical form, with the stored numbers replaced by `numbers`.
pub(super) fn with_stored(value: &Storage, numbers: Vec<f64>, dtype: DType) -> Result<Storage> {
    let stored = |shape: &[usize]| Ok::<_, Error>(Dense::from_vec(shape, numbers.clone())?.cast(dtype));
    Ok(match canonical(value)? {
        Storage::Dense(dense) => stored(dense.shape())?.into(),
        Storage::SelectedRows(rows) => {
            let (height, shape) = (rows.height(), rows.value().shape().to_vec());
            SelectedRows::new(height, rows.into_parts().0, stored(&shape)?)?.into()
        }
        Storage::Csr(csr) => {
            let &[rows, columns] = csr.shape() else {
                return Err(Error::new("csr", "two dimensions", "others"));
            };
            let (indptr, indices, _) = csr.into_parts();
            Csr::new([rows, columns], indptr, indices, stored(&[numbers.len()])?)?.into()
        }
        Storage::Coo(coo) => {
            let shape = coo.shape().to_vec();
            Coo::new(&shape, coo.into_parts().0, stored(&[numbers.len()])?)?.into()
        }
    })
}

/// Returns, in the storage of `value`, the numbers of [`filled`] at the positions that `value` stores.
pub(super) fn filled_like(value: &Storage, salt: usize) -> Result<Storage> {
    let dense = filled(value.shape(), value.dtype(), salt)?;
    at_stored(value, &dense)
}

/// Casts a value of f32 or f64 to `dtype`; returns a value of any other dtype unchanged.
pub(super) fn cast(value: &Variable, dtype: DType) -> Result<Variable> {
    if !is_float(value.dtype()) {
        return Ok(value.clone());
    }
    let storage: Storage = match value.storage() {
        Storage::Dense(dense) => dense.cast(dtype).into(),
        Storage::SelectedRows(rows) => {
            SelectedRows::new(rows.height(), rows.row_ids().to_vec(), rows.value().cast(dtype))?.into()
        }
        Storage::Csr(csr) => {
            let &[rows, columns] = csr.shape() else {
                return Err(Error::new("csr", "two dimensions", "others"));
            };
            let (indptr, indices, values) = csr.clone().into_parts();
            Csr::new([rows, columns], indptr, indices, values.cast(dtype))?.into()
        }
        Storage::Coo(coo) => {
            let (coordinates, values) = coo.clone().into_parts();
            Coo::new(coo.shape(), coordinates, values.cast(dtype))?.into()
        }
    };
    Variable::new(storage, value.lod().cloned())
}

pub(super) fn numbers(storage: &Storage) -> Result<Vec<f64>> {
    Ok(storage.to_dense()?.cast(DType::F64).as_slice::<f64>()?.to_vec())
}

pub(super) fn has_nan(storage: &Storage) -> Result<bool> {
    Ok(storage.dtype().is_float() && numbers(storage)?.iter().any(|x| x.is_nan()))
}

pub(super) fn bits_eq(a: &Storage, b: &Storage) -> Result<bool> {
    Ok(a.to_dense()?.bits_eq(&*b.to_dense()?))
}

/// Checks that two values have the same bits; the error names the first different element and its numbers.
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

/// Checks that two values have the same bits after `got` is reshaped to the shape of the expected value.
pub(super) fn same_numbers(got: &Storage, expected: &Storage, name: impl Display) -> Outcome {
    let shape = expected.shape().to_vec();
    let got = got.to_dense()?.into_owned();
    if got.len() != expected.shape().iter().product::<usize>() {
        return Err(Broken(format!("{name}: {:?} instead of {shape:?}", got.shape())));
    }
    same_bits(&got.reshape(&shape)?.into(), expected, name)
}

/// Checks that every number differs from the expected number by at most `tolerance` · s. Here s is the largest
/// magnitude of the finite expected numbers, or 1 if 1 is larger.
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

/// Joins the columns of values that have the same number of rows.
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
