//! The catalogue: one file an operator family, one word in this list to register it.

mod accuracy;
mod activation;
mod arithmetic;
mod assign;
mod cross_entropy;
mod dropout;
mod embedding;
mod feature;
mod fill_like;
mod gru_cell;
mod ids;
mod linear;
mod lod_of;
mod lstm_cell;
mod matmul;
mod reduce;
mod rowwise;
mod sequence_expand;
mod sequence_pool;
mod sequence_reverse;
mod sequence_softmax;
mod softmax;
mod unary;

pub use cross_entropy::CrossEntropy;
pub use gru_cell::Update;
pub use sequence_pool::Pool;

use crate::error::Result;
use crate::program::{Attributes, Builder, Registry};

use arithmetic::Binary;
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
    cross_entropy::SoftmaxCrossEntropy,
    embedding::Embedding,
    fill_like::FillLike,
    gru_cell::GruCell,
    linear::Linear,
    lod_of::LodOf,
    lstm_cell::LstmCell,
    sequence_expand::SequenceExpand,
    sequence_pool::SequencePool,
    sequence_reverse::SequenceReverse,
    sequence_softmax::SequenceSoftmax,
    Unary<activation::Abs>,
    Unary<activation::Elu>,
    Unary<activation::Exp>,
    Unary<activation::Gelu>,
    Unary<activation::LeakyRelu>,
    Unary<activation::Log>,
    Unary<activation::Relu>,
    Unary<activation::Scale>,
    Unary<activation::Sigmoid>,
    Unary<activation::Silu>,
    Unary<activation::Softplus>,
    Unary<activation::Softsign>,
    Unary<activation::Sqrt>,
    Unary<activation::Square>,
    Unary<activation::Tanh>,
    Binary<arithmetic::Add>,
    Binary<arithmetic::Div>,
    Binary<arithmetic::Mul>,
    Binary<arithmetic::Sub>,
    assign::Assign,
    assign::Cast,
    dropout::Dropout,
    feature::Concat,
    feature::Slice,
    feature::Split,
    matmul::Matmul,
    PerRow<reduce::Max>,
    PerRow<reduce::Mean>,
    PerRow<reduce::Sum>,
    Whole<reduce::Mean>,
    Whole<reduce::Sum>,
    Softmax<softmax::Log>,
    Softmax<softmax::Plain>,
];

impl Builder {
    /// A builder that knows the crate's operators.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}

/// An attribute that may be missing.
fn optional<T>(
    attributes: &Attributes,
    name: &str,
    read: impl FnOnce(&Attributes, &str) -> Result<T>,
) -> Result<Option<T>> {
    attributes.get(name).map(|_| read(attributes, name)).transpose()
}
