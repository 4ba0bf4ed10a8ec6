//! Elementwise operators: functions of one number, functions of two numbers, comparisons, and the expressions `+ - * /` on
//! variables.

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
