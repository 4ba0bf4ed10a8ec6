//! Copies of variables: unchanged, in another dtype, or of the shape alone.

#[macro_use]
pub(super) mod assign;
pub(super) mod carry;
#[macro_use]
pub(super) mod fill_like;
