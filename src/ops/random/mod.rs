//! Operators that draw random numbers.

#[macro_use]
pub(super) mod dropout;
