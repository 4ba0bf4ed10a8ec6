//! The catalogue: one file an operator family, one word in this list to register it.

/// Runs `$body` with `$T` standing for the Rust type of any dtype.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use $crate::tensor::DType;
        match $dtype {
            DType::F32 => with_element!(as f32, $T => $body),
            DType::F64 => with_element!(as f64, $T => $body),
            DType::I16 => with_element!(as i16, $T => $body),
            DType::I32 => with_element!(as i32, $T => $body),
            DType::I64 => with_element!(as i64, $T => $body),
            DType::Bool => with_element!(as bool, $T => $body),
            DType::F16 => with_element!(as half::f16, $T => $body),
            DType::BF16 => with_element!(as half::bf16, $T => $body),
        }
    }};
    (as $type:ty, $T:ident => $body:expr) => {{
        type $T = $type;
        $body
    }};
}

mod ids;

mod accuracy;
mod cross_entropy;
mod embedding;
mod fill_like;
mod gru_cell;
mod linear;
mod lod_of;
mod lstm_cell;
mod sequence_expand;
mod sequence_expand_as;
mod sequence_pool;
mod sequence_reverse;
mod sequence_softmax;

pub use cross_entropy::CrossEntropy;
pub use gru_cell::Update;
pub use sequence_pool::Pool;

use crate::error::Result;
use crate::program::{Attributes, Builder, Registry};

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
    sequence_expand_as::SequenceExpandAs,
    sequence_pool::SequencePool,
    sequence_reverse::SequenceReverse,
    sequence_softmax::SequenceSoftmax,
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
