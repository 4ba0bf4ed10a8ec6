//! Operators that draw random numbers.

pub(super) mod dropout;

operators! {
    dropout::Dropout,
}
