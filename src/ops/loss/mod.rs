//! Losses and metrics.

#[macro_use]
pub(super) mod accuracy;
#[macro_use]
pub(super) mod cross_entropy;
pub(super) mod linear_cross_entropy;
