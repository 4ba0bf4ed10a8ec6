//! Operators for structured prediction: conditional random fields over tags, CTC alignment of labels with frames, edit distance
//! between sequences.

pub(super) mod align;
pub(super) mod chain;
pub(super) mod crf;
pub(super) mod ctc;
pub(super) mod edit_distance;
pub(super) mod marginals;
pub(super) mod viterbi;

operators! {
    align::CtcAlign,
    crf::LinearChainCrf,
    ctc::CtcLoss,
    edit_distance::EditDistance,
    marginals::CrfMarginals,
    viterbi::ViterbiDecode,
}
