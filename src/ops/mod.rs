//! The catalogue: one file an operator family, one word in this list to register it.

mod adagrad;
mod adam;
mod fill_like;
mod global_norm;
mod learning_rate;
mod linear;
mod sgd;
mod update;

pub use learning_rate::Schedule;
pub use update::SparseMode;

use crate::program::{Builder, Registry};

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
    adagrad::Adagrad,
    adam::Adam,
    fill_like::FillLike,
    global_norm::GlobalNorm,
    global_norm::ScaleGradient,
    learning_rate::LearningRate,
    linear::Linear,
    sgd::Momentum,
    sgd::Sgd,
];

impl Builder {
    /// A builder that knows the crate's operators.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}
