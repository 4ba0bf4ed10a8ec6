//! Attributes that count something: whole numbers from 1.

use crate::error::{Error, ErrorKind, Result};
use crate::operator::Attributes;

/// A whole number from 1.
pub(in crate::ops) fn count(attributes: &Attributes, name: &str) -> Result<usize> {
    match attributes.size(name)? {
        0 => Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "at least 1", "0")),
        number => Ok(number),
    }
}

/// The same; 1 if it is missing.
pub(in crate::ops) fn count_or_one(attributes: &Attributes, name: &str) -> Result<usize> {
    if attributes.get(name).is_none() { Ok(1) } else { count(attributes, name) }
}
