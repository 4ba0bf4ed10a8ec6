//! Sequences of the last level: pooled, reversed, repeated, cut, and their lengths.

#[macro_use]
pub(super) mod cumulative_sum;
#[macro_use]
pub(super) mod erase;
#[macro_use]
pub(super) mod expand;
#[macro_use]
pub(super) mod expand_as;
#[macro_use]
pub(super) mod lod_of;
#[macro_use]
pub(super) mod pool;
pub(super) mod pool_kind;
pub(super) mod pool_piece;
#[macro_use]
pub(super) mod reverse;
#[macro_use]
pub(super) mod slice;
#[macro_use]
pub(super) mod softmax;
