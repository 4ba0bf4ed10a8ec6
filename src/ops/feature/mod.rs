//! The features of rows: side by side and taken apart, summed, normalised.

#[macro_use]
pub(super) mod columns;
#[macro_use]
pub(super) mod reduce;
#[macro_use]
pub(super) mod softmax;
