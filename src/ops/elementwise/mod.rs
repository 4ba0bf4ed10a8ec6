//! Elementwise operators: functions of one number, functions of two numbers, comparisons, and the expressions `+ - * /` on
//! variables.

pub(super) mod activation;
pub(super) mod arithmetic;
pub(super) mod comparison;
mod expression;
pub(super) mod select;
pub(super) mod unary;

operators! {
    [activation::OPERATORS, arithmetic::OPERATORS, comparison::OPERATORS]
    select::Select,
}
