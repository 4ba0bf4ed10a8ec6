//! Operators for structured prediction: conditional random fields over tags, CTC alignment of labels with frames, edit distance
//! between sequences.

#[macro_use]
pub(super) mod align;
pub(super) mod chain;
#[macro_use]
pub(super) mod crf;
#[macro_use]
pub(super) mod ctc;
#[macro_use]
pub(super) mod edit_distance;
#[macro_use]
pub(super) mod marginals;
#[macro_use]
pub(super) mod viterbi;

/// Cost per number of an operator on chains or frames, about ten nanoseconds, as a multiple of the cost per number of an
/// ordinary operator.
const HEAVY: usize = 20;
