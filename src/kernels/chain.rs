//! Linear chains: each row of a sequence has a tag; tags and pairs of successive tags have scores; a path is one tag per row.
//! The module computes sums and maxima over all paths.
//!
//! Sums run over e^score and not over logarithms: each row is divided by its largest number or by its sum, so that a step needs
//! a product and no exponential. The probability that underflows is bounded (`vanished.rs`); if it could change the result, the
//! sequence is computed again with logarithms. All arithmetic is in f64, also for f32 inputs.

mod best;
mod marginals;
mod transitions;
mod vanished;

pub use best::{BestPaths, best_paths};
pub(super) use marginals::log_sum_exp;
pub use marginals::{ChainRoom, PairSums, log_sum, marginals};
pub use transitions::Transitions;
pub(super) use vanished::{SMALL, VanishedMass};

#[cfg(test)]
mod tests;
