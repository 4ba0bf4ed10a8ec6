//! Operators on the columns of each row: concatenate, split, reduce, normalise.

#[macro_use]
pub(super) mod argmax;
pub(super) mod batch_norm;
#[macro_use]
pub(super) mod columns;
#[macro_use]
pub(super) mod gated;
#[macro_use]
pub(super) mod norm;
#[macro_use]
pub(super) mod reduce;
#[macro_use]
pub(super) mod softmax;
#[macro_use]
pub(super) mod top_k;
