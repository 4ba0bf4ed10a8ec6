//! The operators, with one folder per family, and the catalogue of all operators: an entry in the macro `catalogue!` registers
//! an operator.
#![cfg_attr(any(doc, doctest), doc = include_str!("operators.md"))]
// Without the feature `testing` there are no check cases, so items that only check cases use are unused.
#![cfg_attr(not(feature = "testing"), allow(unused_imports, dead_code))]

#[macro_use]
mod family;
mod prelude;
#[macro_use]
mod row_map;
#[macro_use]
mod attention;
#[macro_use]
mod cell;
#[macro_use]
mod conversion;
#[macro_use]
mod elementwise;
#[macro_use]
mod feature;
#[macro_use]
mod lookup;
#[macro_use]
mod loss;
#[macro_use]
mod product;
#[macro_use]
mod random;
#[macro_use]
mod sequence;
#[macro_use]
mod sparse;
#[macro_use]
mod structured;
pub(crate) mod update;

pub use attention::dot::DotAttention;
pub use cell::gru::UpdateGate;
pub use lookup::bag::LookupBag;
pub use loss::binary::{BinaryCrossEntropy, FocalLoss};
pub use loss::cross_entropy::CrossEntropy;
pub use loss::hierarchical::{ClassTree, Side};
pub use loss::sampled::SampledClasses;
pub use sequence::conv::Context;
pub use sequence::pool_kind::Pool;
pub(crate) use update::rule::HISTORY_SHAPE;
pub(crate) use update::settle::settle_attributes;

/// The pooling of the rows of a bag: an option of [`LookupBag`].
pub use crate::kernels::BagPool;

use crate::operator::Registry;
use crate::operator::registry::OperatorEntry;
use crate::program::{Builder, Var};
// These types are in the signatures of the methods that append operators.
use {
    attention::{additive::*, dot::*, rotary::*},
    cell::{gru::*, lstm::*},
    conversion::{assign::*, fill_like::*},
    elementwise::{activation::*, arithmetic::*, comparison::*, select::*},
    feature::{argmax::*, columns::*, norm::*, reduce::*, softmax::*, top_k::*},
    lookup::{bag::*, embedding::*, gather::*},
    loss::{
        accuracy::*, binary::*, clusters::*, cross_entropy::*, hierarchical::*, regression::*, sampled::*,
        similarity::*,
    },
    product::{linear::*, matmul::*, row_matrix::*},
    random::dropout::*,
    sequence::{
        concat::*, conv::*, cumulative_sum::*, enumerate::*, erase::*, expand::*, expand_as::*, filter::*,
        lod_of::*, lod_reset::*, mask::*, pad::*, pool::*, reorder::*, reshape::*, reverse::*, row_conv::*,
        scatter::*, slice::*, softmax::*, topk_pool::*, unpad_as::*,
    },
    sparse::{convert::*, dot::*, projection::*, reduce::SumRows, retain::*, take::*, transposed::*},
    structured::{align::*, crf::*, ctc::*, edit_distance::*, marginals::*, viterbi::*},
};

use crate::kernels::Transpose;
use crate::program::Term;
use crate::tensor::DType;
use std::ops::Range;

use elementwise::arithmetic::Binary;
use elementwise::comparison::ComparisonOp;
use elementwise::unary::Unary;
use elementwise::{activation, arithmetic, comparison};
use feature::norm::{self, Normalise};
use feature::reduce::{self, PerRow, Whole};
use feature::softmax::{self, Softmax};
use loss::pointwise::RowLoss;
use loss::sampled::ContrastOp;
use sparse::binary::SparseBinary;
use sparse::entrywise::Entrywise;
use sparse::reduce::{SparsePerRow, SparseWhole};

/// Lists every operator of the crate by family. In brackets are the macros that define the methods of `Builder` and `Var`, in
/// braces the operator types.
macro_rules! catalogue {
    ($($(#[$about:meta])* [$($method:ident),*] { $($op:path),* $(,)? })*) => {
        $(catalogue!(methods [$(#[$about])*] $($method)*);)*

        /// Returns the registry of all operators of this crate. Another crate adds its own operators with [`Registry::add`].
        pub fn catalogue() -> Registry {
            let mut registry = Registry::empty();
            for entry in [$($(OperatorEntry::of::<$op>()),*),*].into_iter().chain(update::RULES.map(|of| of())) {
                if let Err(error) = registry.insert(entry) {
                    unreachable!("the catalogue lists an operator twice: {error}");
                }
            }
            registry
        }
    };
    (methods $about:tt) => {};
    (methods [$(#[$about:meta])*] $($method:ident)+) => {
        $(#[$about])*
        impl Builder {
            $($method!(Builder);)*
        }

        $(#[$about])*
        impl Var {
            $($method!(Var);)*
        }
    };
}

catalogue! {
    /// Arithmetic on two variables, element by element; one operand may be broadcast over the rows or columns of the
    /// other operand.
    [Add, Sub, Mul, Div, DivNoNan, Maximum, Minimum] {
        Binary<arithmetic::Add>,
        Binary<arithmetic::Sub>,
        Binary<arithmetic::Mul>,
        Binary<arithmetic::Div>,
        Binary<arithmetic::DivNoNan>,
        Binary<arithmetic::Maximum>,
        Binary<arithmetic::Minimum>,
    }
    /// Comparisons, whose output is 1 where the comparison is true, else 0; and `select`, which returns x where a condition is
    /// true, else y.
    [Greater, GreaterEqual, Less, LessEqual, Equal, NotEqual, Select] {
        elementwise::select::Select,
        ComparisonOp<comparison::Greater>,
        ComparisonOp<comparison::GreaterEqual>,
        ComparisonOp<comparison::Less>,
        ComparisonOp<comparison::LessEqual>,
        ComparisonOp<comparison::Equal>,
        ComparisonOp<comparison::NotEqual>,
    }
    /// Functions of one number, applied to every element.
    [Abs, Clamp, Elu, Exp, Gelu, LeakyRelu, Log, Reciprocal, Relu, Scale, Sigmoid, Silu, Softplus, Softsign, Sqrt, Square, Tanh] {
        Unary<activation::Abs>,
        Unary<activation::Clamp>,
        Unary<activation::Elu>,
        Unary<activation::Exp>,
        Unary<activation::Gelu>,
        Unary<activation::LeakyRelu>,
        Unary<activation::Log>,
        Unary<activation::Reciprocal>,
        Unary<activation::Relu>,
        Unary<activation::Scale>,
        Unary<activation::Sigmoid>,
        Unary<activation::Silu>,
        Unary<activation::Softplus>,
        Unary<activation::Softsign>,
        Unary<activation::Sqrt>,
        Unary<activation::Square>,
        Unary<activation::Tanh>,
    }
    /// Products of matrices and vectors: linear layers, matrix products, and outer, matrix-vector and dot products.
    [Linear, TransposedLinear, MatmulPlain, Matmul, Outer, Matvec, DotProduct, TransposedDot, RandomProjection] {
        product::linear::Linear,
        product::int8::Int8Linear,
        product::matmul::Matmul,
        product::row_matrix::Outer,
        product::row_matrix::Matvec,
        sparse::linear::SparseLinear,
        sparse::dot::Dot,
        sparse::dot::SparseMatmul,
        sparse::transposed::TransposedDot,
        sparse::projection::RandomProjection,
    }
    /// Reductions: sums and means of all numbers, sums over all rows, and sums, means, maxima, softmax and cumulative
    /// sums over the columns of each row.
    [Sum, Mean, SumRows, SumFeatures, MeanFeatures, MaxFeatures, TopK, Argmax, CumulativeSumFeatures, PlainSoftmax, LogSoftmax] {
        feature::top_k::TopK,
        feature::argmax::Argmax,
        sequence::cumulative_sum::CumulativeSumFeatures,
        Whole<reduce::Sum>,
        Whole<reduce::Mean>,
        sparse::reduce::SumRows,
        PerRow<reduce::SumFeatures>,
        PerRow<reduce::MeanFeatures>,
        PerRow<reduce::MaxFeatures>,
        Softmax<softmax::PlainSoftmax>,
        Softmax<softmax::LogSoftmax>,
    }
    /// Normalisation of rows and columns, and gated units.
    [LayerNorm, RmsNorm, Gated] {
        Normalise<norm::LayerNorm>,
        Normalise<norm::RmsNorm>,
        feature::batch_norm::BatchNorm,
        feature::batch_norm::RunningAverage,
    }
    /// Operators that concatenate, split and slice columns.
    [Concat, Split, Slice] {
        feature::columns::Concat,
        feature::columns::Split,
        feature::columns::Slice,
        sparse::columns::SparseConcat,
        sparse::columns::SparseSlice,
    }
    /// Operators on the sequences of the last level.
    [SequencePoolPlain, SequencePool, SequenceConvPlain, SequenceConv, SequenceSoftmax, SequenceReverse, SequenceExpand, SequenceExpandAs, SequenceSlice, SequenceErase, SequenceFilterPlain, SequenceFilter, SequencePlace, SequenceConcat, SequencePad, SequenceUnpad, SequenceUnpadAs, SequenceMask, SequenceEnumerate, SequenceReshape, SequenceTopkPool, LodReset, LodAppend, RowConv, SequenceScatter, ReorderByRank, CumulativeSum, LodOf] {
        sequence::cumulative_sum::CumulativeSum,
        sequence::pool::SequencePool,
        sequence::pool_piece::SequencePoolPiece,
        sequence::conv::SequenceConv,
        sequence::softmax::SequenceSoftmax,
        sequence::reverse::SequenceReverse,
        sequence::expand::SequenceExpand,
        sequence::expand_as::SequenceExpandAs,
        sequence::slice::SequenceSlice,
        sequence::erase::SequenceErase,
        sequence::filter::SequenceFilter,
        sequence::filter::SequencePlace,
        sequence::concat::SequenceConcat,
        sequence::pad::SequencePad,
        sequence::pad::SequenceUnpad,
        sequence::unpad_as::SequenceUnpadAs,
        sequence::mask::SequenceMask,
        sequence::enumerate::SequenceEnumerate,
        sequence::reshape::SequenceReshape,
        sequence::topk_pool::SequenceTopkPool,
        sequence::lod_reset::LodReset,
        sequence::lod_reset::LodAppend,
        sequence::row_conv::RowConv,
        sequence::scatter::SequenceScatter,
        sequence::reorder::ReorderByRank,
        sequence::lod_of::LodOf,
    }
    /// Attention, in which the queries of each sequence attend to the keys of the same sequence.
    [AdditiveAttentionPlain, AdditiveAttention, DotAttentionPlain, DotAttentionOp, Rotary] {
        attention::additive::AdditiveAttention,
        attention::dot::DotAttentionOp,
        attention::rotary::Rotary,
    }
    /// Operators that compute one step of a recurrent cell.
    [LstmCell, GruCell] {
        cell::lstm::LstmCell,
        cell::gru::GruCell,
    }
    /// Losses, and metrics such as accuracy.
    [CrossEntropyPlain, SoftmaxCrossEntropy, BinaryCrossEntropyPlain, LogisticLoss, FocalLossPlain, Focal, Hinge, SquaredError, Huber, KlDivergence, CosineSimilarity, CosineLoss, MarginRanking, Nce, SampledSoftmax, SampledLosses, HierarchicalSigmoidLoss, ClassClusters, Accuracy] {
        ContrastOp<loss::sampled::Nce>,
        ContrastOp<loss::sampled::SampledSoftmax>,
        loss::hierarchical::HierarchicalSigmoid,
        RowLoss<loss::binary::LogisticLoss>,
        RowLoss<loss::binary::Focal>,
        RowLoss<loss::binary::Hinge>,
        RowLoss<loss::regression::SquaredError>,
        RowLoss<loss::regression::Huber>,
        RowLoss<loss::regression::KlDivergence>,
        loss::clusters::ClassClusters,
        loss::similarity::CosineSimilarity,
        loss::cross_entropy::SoftmaxCrossEntropy,
        loss::linear_cross_entropy::LinearCrossEntropy,
        loss::linear_cross_entropy::share::Share,
        loss::accuracy::Accuracy,
    }
    /// Structured prediction: the tags of a sequence, the labels of frames, and the edit distance between sequences.
    [LinearChainCrf, CrfMarginals, ViterbiDecode, CtcLoss, CtcAlign, CtcGreedy, EditDistance] {
        structured::crf::LinearChainCrf,
        structured::marginals::CrfMarginals,
        structured::viterbi::ViterbiDecode,
        structured::ctc::CtcLoss,
        structured::align::CtcAlign,
        structured::edit_distance::EditDistance,
    }
    /// Dropout, which draws random numbers. Each random number depends on the seed, the step, the operator, the
    /// sequence, the position and the column, but not on the other sequences of the batch.
    [Dropout, VariationalDropout] {
        random::dropout::Dropout,
    }
    /// Operators on ids, and operators that copy a variable or convert it to another dtype.
    [Embedding, EmbeddingBag, GatherRows, ScatterRows, OneHot, TakeRows, Retain, Assign, Cast, FillLike, ToDense, ToCsr, ToSelectedRows] {
        lookup::embedding::Embedding,
        lookup::int8::Int8Embedding,
        lookup::bag::EmbeddingBag,
        lookup::gather::GatherRows,
        lookup::gather::ScatterRows,
        lookup::gather::OneHot,
        sparse::take::TakeRows,
        sparse::retain::Retain,
        conversion::assign::Assign,
        conversion::assign::Cast,
        conversion::round_bf16::RoundBf16,
        conversion::fill_like::FillLike,
        sparse::convert::ToDense,
        sparse::convert::ToCsr,
        sparse::convert::ToSelectedRows,
    }
    // No model calls these operators by name. They are the sparse kernels, which replace dense operators of the lists
    // above; the operator for carried states; and operators beside the update rules, which `update/mod.rs` lists.
    [] {
        SparseBinary<arithmetic::Add>,
        SparseBinary<arithmetic::Sub>,
        SparseBinary<arithmetic::Mul>,
        SparseBinary<arithmetic::Div>,
        SparseBinary<arithmetic::Maximum>,
        SparseBinary<arithmetic::Minimum>,
        Entrywise<activation::Abs>,
        Entrywise<activation::Clamp>,
        Entrywise<activation::Elu>,
        Entrywise<activation::Gelu>,
        Entrywise<activation::LeakyRelu>,
        Entrywise<activation::Relu>,
        Entrywise<activation::Scale>,
        Entrywise<activation::Silu>,
        Entrywise<activation::Softsign>,
        Entrywise<activation::Sqrt>,
        Entrywise<activation::Square>,
        Entrywise<activation::Tanh>,
        SparseWhole<reduce::Sum>,
        SparseWhole<reduce::Mean>,
        SparsePerRow<reduce::SumFeatures>,
        SparsePerRow<reduce::MeanFeatures>,
        sparse::copy::SparseAssign,
        sparse::copy::SparseCast,
        conversion::carry::Carry,
        update::average::AverageWeights,
        update::clip_gradient::ClipGradient,
        update::global_norm::GlobalNorm,
        update::global_norm::ScaleGradient,
        update::history::UpdateHistory,
        update::learning_rate::LearningRate,
        update::settle::Settle,
    }
}

impl Builder {
    /// Makes a builder with all operators of this crate.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}

#[cfg(test)]
mod tests;
