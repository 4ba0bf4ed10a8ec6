//! Operators on the sequences of the last LoD level: convolution, pooling, reversal, repetition, cutting, lengths.

#[macro_use]
pub(super) mod concat;
#[macro_use]
pub(super) mod conv;
mod counts;
#[macro_use]
pub(super) mod cumulative_sum;
#[macro_use]
pub(super) mod enumerate;
#[macro_use]
pub(super) mod erase;
#[macro_use]
pub(super) mod expand;
#[macro_use]
pub(super) mod expand_as;
#[macro_use]
pub(super) mod filter;
#[macro_use]
pub(super) mod lod_of;
#[macro_use]
pub(super) mod lod_reset;
#[macro_use]
pub(super) mod mask;
#[macro_use]
pub(super) mod pad;
#[macro_use]
pub(super) mod pool;
pub(super) mod pool_kind;
pub(super) mod pool_piece;
#[macro_use]
pub(super) mod reorder;
#[macro_use]
pub(super) mod reshape;
#[macro_use]
pub(super) mod reverse;
#[macro_use]
pub(super) mod row_conv;
#[macro_use]
pub(super) mod scatter;
mod samples;
#[macro_use]
pub(super) mod slice;
#[macro_use]
pub(super) mod softmax;
#[macro_use]
pub(super) mod topk_pool;
#[macro_use]
pub(super) mod unpad_as;
