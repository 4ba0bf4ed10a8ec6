//! Operators that copy a variable: unchanged, into another dtype, or only the shape.

#[macro_use]
pub(super) mod assign;
pub(super) mod carry;
#[macro_use]
pub(super) mod fill_like;
pub(super) mod round_bf16;
