//! Element by element: functions of one number, of two, comparisons, and the signs of Rust for them.

#[macro_use]
pub(super) mod activation;
#[macro_use]
pub(super) mod arithmetic;
#[macro_use]
pub(super) mod comparison;
mod expression;
pub(super) mod unary;
