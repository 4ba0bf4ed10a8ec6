//! Linear chains, as in a conditional random field: each row of a sequence has a tag, and a path is one tag per row. Each
//! tag of a row and each pair of successive tags has a score. The module computes sums and maxima of scores over all paths
//! of a sequence.
//!
//! The sums are computed from the factors e^score, and not from logarithms, because a step is then a matrix product
//! without exponentials of pairs. Each row is divided by its largest number or by its sum, which keeps the numbers in
//! the range of f64. `vanished.rs` bounds the probability mass that underflows; if underflow could change the result,
//! the sequence is computed again with logarithms. All arithmetic is in f64, even if the scores are f32.

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
