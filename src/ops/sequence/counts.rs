//! Attributes that are counts, such as a number of rows: whole numbers of at least 1.

use crate::ops::prelude::*;

/// Reads an attribute that is a whole number of at least 1.
pub(in crate::ops) fn count(attributes: &Attributes, name: &str) -> Result<usize> {
    match attributes.size(name)? {
        0 => Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "at least 1", "0")),
        number => Ok(number),
    }
}

/// Reads an attribute that is a whole number of at least 1; returns 1 if the attribute is missing.
pub(in crate::ops) fn count_or_one(attributes: &Attributes, name: &str) -> Result<usize> {
    if attributes.get(name).is_none() { Ok(1) } else { count(attributes, name) }
}
