//! Readers of the attributes of update rules.

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::Attributes;
use crate::operator::attributes::Attribute;
use crate::tensor::StorageKind;

/// Reads the storage of a parameter and its states: dense, or selected rows for a row-sparse parameter.
#[doc(hidden)]
#[track_caller]
pub fn dense_or_rows(attributes: &Attributes, name: &str) -> Result<StorageKind> {
    if attributes.get(name).is_none() {
        return Ok(StorageKind::Dense);
    }
    match StorageKind::read(attributes, name).at_caller()? {
        kind @ (StorageKind::Dense | StorageKind::SelectedRows) => Ok(kind),
        other => {
            let what = format!("attribute `{name}`");
            Err(Error::of(ErrorKind::Program, what, "dense or selected_rows", other.to_string()))
        }
    }
}

/// Reads a number attribute; returns an error with the text `expected` unless the number is finite and `valid` accepts it.
#[track_caller]
pub(in crate::ops) fn number(
    attributes: &Attributes,
    name: &str,
    expected: &str,
    valid: impl FnOnce(f64) -> bool,
) -> Result<f64> {
    let value = attributes.float(name)?;
    if value.is_finite() && valid(value) {
        return Ok(value);
    }
    Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, value.to_string()))
}

/// Reads a number attribute that is at least 0.
#[track_caller]
pub fn not_negative(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a finite number from 0", |v| v >= 0.0)
}

/// Reads a number attribute that is at least 0; returns 0 if the attribute is absent.
#[track_caller]
pub fn or_zero(attributes: &Attributes, name: &str) -> Result<f64> {
    if attributes.get(name).is_none() { Ok(0.0) } else { not_negative(attributes, name) }
}

/// Reads a number attribute that is at least 0; returns 1 if the attribute is absent.
#[doc(hidden)]
#[track_caller]
pub fn or_one(attributes: &Attributes, name: &str) -> Result<f64> {
    if attributes.get(name).is_none() { Ok(1.0) } else { not_negative(attributes, name) }
}

/// Reads a number of steps; returns 0 if the attribute is absent.
#[doc(hidden)]
#[track_caller]
pub fn steps(attributes: &Attributes, name: &str) -> Result<usize> {
    if attributes.get(name).is_none() { Ok(0) } else { attributes.size(name).at_caller() }
}

/// Returns the factor of the learning rate at a step: 0 for the steps 1 to `held`, and 1 for later steps.
#[doc(hidden)]
pub fn after(held: usize, step: f64) -> f64 {
    if held == 0 || step > held as f64 { 1.0 } else { 0.0 }
}

/// Reads a number attribute above 0.
#[track_caller]
pub fn positive(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a finite number above 0", |v| v > 0.0)
}

/// Reads a number attribute in [0, 1).
#[track_caller]
pub fn fraction(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a number from 0 and below 1", |v| (0.0..1.0).contains(&v))
}

/// Reads a number attribute in [0, 1); returns `None` if the attribute is absent.
#[track_caller]
pub fn fraction_if_set(attributes: &Attributes, name: &str) -> Result<Option<f64>> {
    let is_set = attributes.iter().any(|(known, _)| known == name);
    is_set.then(|| fraction(attributes, name)).transpose()
}
