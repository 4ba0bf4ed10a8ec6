//! The operators, with one folder per family. The list `operators!` in the `mod.rs` of a family registers the family's operators;
//! [`catalogue`] returns all of them.
#![cfg_attr(any(doc, doctest), doc = include_str!("operators.md"))]
// Without the feature `testing` there are no check cases, so items that only check cases use are unused.
#![cfg_attr(not(feature = "testing"), allow(unused_imports, dead_code))]

#[macro_use]
mod family;
mod prelude;
#[macro_use]
mod row_map;

mod attention;
mod cell;
mod conversion;
mod elementwise;
mod feature;
mod lookup;
mod loss;
mod product;
mod random;
mod sequence;
mod sparse;
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
use crate::program::Builder;
// The page of operators links to it.
#[cfg(doc)]
use crate::program::Var;

/// Returns the registry of all operators of this crate. Another crate adds its own operators with [`Registry::add`].
pub fn catalogue() -> Registry {
    let families = [
        attention::OPERATORS,
        cell::OPERATORS,
        conversion::OPERATORS,
        elementwise::OPERATORS,
        feature::OPERATORS,
        lookup::OPERATORS,
        loss::OPERATORS,
        product::OPERATORS,
        random::OPERATORS,
        sequence::OPERATORS,
        sparse::OPERATORS,
        structured::OPERATORS,
        update::OPERATORS,
    ];
    let mut registry = Registry::empty();
    for entry in families.into_iter().flatten().copied().flatten() {
        if let Err(error) = registry.insert(entry()) {
            unreachable!("the families list an operator twice: {error}");
        }
    }
    registry
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
