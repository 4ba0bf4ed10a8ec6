//! Losses, and metrics such as accuracy.

#[macro_use]
pub(super) mod accuracy;
#[macro_use]
pub(super) mod binary;
pub(super) mod class_table;
#[macro_use]
pub(super) mod clusters;
#[macro_use]
pub(super) mod cross_entropy;
#[macro_use]
pub(super) mod hierarchical;
pub(super) mod linear_cross_entropy;
pub(super) mod pointwise;
#[macro_use]
pub(super) mod regression;
#[macro_use]
pub(super) mod sampled;
#[macro_use]
pub(super) mod similarity;
