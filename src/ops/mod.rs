//! The catalogue: one file an operator family, one word in this list to register it.

/// Makes a wrapper a family of operators: each operator is what it wraps, which is declared.
macro_rules! family {
    ($wrapper:ident) => {
        impl<F: $crate::program::Declared> $crate::program::Declared for $wrapper<F> {
            fn declaration() -> &'static $crate::program::Declaration {
                F::declaration()
            }

            fn parse(attributes: &$crate::program::Attributes) -> $crate::error::Result<Self> {
                F::parse(attributes).map(Self)
            }

            fn declared(&self) -> &'static $crate::program::Declaration {
                F::declaration()
            }
        }
    };
}

mod accuracy;
mod activation;
mod adagrad;
mod adam;
mod arithmetic;
mod assign;
mod comparison;
mod cross_entropy;
mod dropout;
mod embedding;
mod expression;
mod feature;
mod fill_like;
mod global_norm;
mod gru_cell;
mod ids;
mod learning_rate;
mod linear;
mod linear_cross_entropy;
mod lod_of;
mod lstm_cell;
mod matmul;
mod reduce;
mod row_matrix;
mod sequence_erase;
mod sequence_expand;
mod sequence_expand_as;
mod sequence_pool;
mod sequence_pool_piece;
mod sequence_reverse;
mod sequence_slice;
mod sequence_softmax;
mod sgd;
mod softmax;
mod unary;
mod update;

pub use cross_entropy::CrossEntropy;
pub use gru_cell::Update;
pub use learning_rate::Schedule;
pub use sequence_pool::Pool;
pub use update::SparseMode;

use crate::program::{Builder, Registry};

use arithmetic::Binary;
use comparison::Compared;
use reduce::{PerRow, Whole};
use softmax::Softmax;
use unary::Unary;

/// Every operator of the crate.
macro_rules! catalogue {
    ($($op:path),* $(,)?) => {
        /// The registry of the crate's own operators. A user's crate adds its own to it with [`Registry::add`].
        pub fn catalogue() -> Registry {
            let mut registry = Registry::empty();
            $(
                if let Err(error) = registry.add::<$op>() {
                    unreachable!("the catalogue lists an operator twice: {error}");
                }
            )*
            registry
        }
    };
}

catalogue![
    accuracy::Accuracy,
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
    adagrad::Adagrad,
    adam::Adam,
    Binary<arithmetic::Add>,
    Binary<arithmetic::Div>,
    Binary<arithmetic::Maximum>,
    Binary<arithmetic::Minimum>,
    Binary<arithmetic::Mul>,
    Binary<arithmetic::Sub>,
    assign::Assign,
    assign::Cast,
    Compared<comparison::Equal>,
    Compared<comparison::Greater>,
    Compared<comparison::GreaterEqual>,
    Compared<comparison::Less>,
    Compared<comparison::LessEqual>,
    Compared<comparison::NotEqual>,
    cross_entropy::SoftmaxCrossEntropy,
    linear_cross_entropy::Share,
    dropout::Dropout,
    embedding::Embedding,
    feature::Concat,
    feature::Slice,
    feature::Split,
    fill_like::FillLike,
    global_norm::GlobalNorm,
    global_norm::ScaleGradient,
    gru_cell::GruCell,
    learning_rate::LearningRate,
    linear::Linear,
    linear_cross_entropy::LinearCrossEntropy,
    lod_of::LodOf,
    lstm_cell::LstmCell,
    matmul::Matmul,
    row_matrix::Matvec,
    row_matrix::Outer,
    PerRow<reduce::MaxFeatures>,
    Whole<reduce::Mean>,
    PerRow<reduce::MeanFeatures>,
    Whole<reduce::Sum>,
    PerRow<reduce::SumFeatures>,
    sequence_erase::SequenceErase,
    sequence_expand::SequenceExpand,
    sequence_expand_as::SequenceExpandAs,
    sequence_pool::SequencePool,
    sequence_pool_piece::SequencePoolPiece,
    sequence_reverse::SequenceReverse,
    sequence_slice::SequenceSlice,
    sequence_softmax::SequenceSoftmax,
    sgd::Momentum,
    sgd::Sgd,
    Softmax<softmax::LogSoftmax>,
    Softmax<softmax::PlainSoftmax>,
];

impl Builder {
    /// A builder that knows the crate's operators.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}
