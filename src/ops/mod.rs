//! The catalogue: one file an operator family, one word in this list to register it.

mod fill_like;
mod linear;

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

catalogue![fill_like::FillLike, linear::Linear,];

impl Builder {
    /// A builder that knows the crate's operators.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Builder::with_registry(catalogue())
    }
}
