//! Structured prediction: chains of tags, labels of frames, distances between sequences.

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

/// The cost per number in a chain or a frame, relative to a number in an ordinary operator: some ten nanoseconds.
const HEAVY: usize = 20;
