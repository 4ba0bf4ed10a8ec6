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

/// The cost per number of an operator on chains or frames, relative to an ordinary operator. The operator takes about ten
/// nanoseconds per number.
const HEAVY: usize = 20;
