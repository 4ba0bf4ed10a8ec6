//! Copies of variables: unchanged, in another dtype, or only with the same shape.

#[macro_use]
pub(super) mod assign;
pub(super) mod carry;
#[macro_use]
pub(super) mod fill_like;
