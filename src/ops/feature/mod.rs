//! Operators on the columns of each row: concatenate, split, reduce, normalise.

pub(super) mod argmax;
pub(super) mod batch_norm;
pub(super) mod columns;
pub(super) mod gated;
pub(super) mod norm;
pub(super) mod reduce;
pub(super) mod softmax;
pub(super) mod top_k;

operators! {
    argmax::Argmax,
    batch_norm::BatchNorm,
    batch_norm::RunningAverage,
    columns::Concat,
    columns::Slice,
    columns::Split,
    norm::Normalise<norm::LayerNorm>,
    norm::Normalise<norm::RmsNorm>,
    reduce::PerRow<reduce::MaxFeatures>,
    reduce::PerRow<reduce::MeanFeatures>,
    reduce::PerRow<reduce::SumFeatures>,
    reduce::Whole<reduce::Mean>,
    reduce::Whole<reduce::Sum>,
    softmax::Softmax<softmax::LogSoftmax>,
    softmax::Softmax<softmax::PlainSoftmax>,
    top_k::TopK,
}
