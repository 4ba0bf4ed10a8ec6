//! Linear chains: a tag for each row of a sequence, scores of tags and of pairs that follow each other, and what sums and
//! maxima over all paths of tags are.
//!
//! Sums run over the numbers themselves and not over their logarithms: each row is divided by its largest number or by its sum, so
//! that a step costs a product and no exponential. What vanishes by that is bounded (`vanished.rs`); where it could be seen in the
//! result, a sequence is computed again by logarithms. All is in f64, whatever the inputs are.

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
