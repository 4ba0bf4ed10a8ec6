//! Elementwise operators: functions of one number and of two, comparisons, and `+ - * /` on variables.

#[macro_use]
pub(super) mod activation;
#[macro_use]
pub(super) mod arithmetic;
#[macro_use]
pub(super) mod comparison;
mod expression;
#[macro_use]
pub(super) mod select;
pub(super) mod unary;
