//! Linear chains: a tag for each row of a sequence, scores of tags and of pairs of successive tags, and the sums and maxima
//! over all paths of tags.
//!
//! Sums run over the numbers themselves and not over their logarithms: each row is divided by its largest number or by its sum, so
//! that a step costs a product and no exponential. The mass that underflows is bounded (`vanished.rs`); where it could change the
//! result, a sequence is recomputed with logarithms. All arithmetic is in f64, whatever the inputs are.

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
