//! Operators on the sequences of the last LoD level: convolution, pooling, reversal, repetition, cutting, lengths.

pub(super) mod concat;
pub(super) mod conv;
mod counts;
pub(super) mod cumulative_sum;
pub(super) mod enumerate;
pub(super) mod erase;
pub(super) mod expand;
pub(super) mod expand_as;
pub(super) mod filter;
pub(super) mod lod_of;
pub(super) mod lod_reset;
pub(super) mod mask;
pub(super) mod pad;
pub(super) mod pool;
pub(super) mod pool_kind;
pub(super) mod pool_piece;
pub(super) mod reorder;
pub(super) mod reshape;
pub(super) mod reverse;
pub(super) mod row_conv;
mod samples;
pub(super) mod scatter;
pub(super) mod slice;
pub(super) mod softmax;
pub(super) mod topk_pool;
pub(super) mod unpad_as;

operators! {
    concat::SequenceConcat,
    conv::SequenceConv,
    cumulative_sum::CumulativeSum,
    cumulative_sum::CumulativeSumFeatures,
    enumerate::SequenceEnumerate,
    erase::SequenceErase,
    expand::SequenceExpand,
    expand_as::SequenceExpandAs,
    filter::SequenceFilter,
    filter::SequencePlace,
    lod_of::LodOf,
    lod_reset::LodAppend,
    lod_reset::LodReset,
    mask::SequenceMask,
    pad::SequencePad,
    pad::SequenceUnpad,
    pool::SequencePool,
    pool_piece::SequencePoolPiece,
    reorder::ReorderByRank,
    reshape::SequenceReshape,
    reverse::SequenceReverse,
    row_conv::RowConv,
    scatter::SequenceScatter,
    slice::SequenceSlice,
    softmax::SequenceSoftmax,
    topk_pool::SequenceTopkPool,
    unpad_as::SequenceUnpadAs,
}
