//! The CRF layer: a linear-chain conditional random field over tags.

use ndarray::Array2;

use super::init;
use super::layer::layer_name;
use crate::error::Error;
use crate::layers::{Instance, Layer};
use crate::program::construction::vars::unknown_of;
use crate::program::{Builder, Var};

/// A linear-chain conditional random field (CRF), which learns a score for each transition from a tag to the next tag. The
/// input `[rows, tags]` has a score for each tag in each row (Lafferty, McCallum and Pereira, "Conditional random fields:
/// probabilistic models for segmenting and labeling sequence data", 2001; on top of an LSTM: Huang, Xu and Yu, "Bidirectional
/// LSTM-CRF models for sequence tagging", 2015). The output is the likeliest path of tags for each sequence.
///
/// ```
/// use unpadded::data::{TagScheme, Vocabulary};
/// use unpadded::layers::{Crf, Embedding};
/// use unpadded::{Builder, DType};
/// let tags = Vocabulary::labels(["O", "B-place", "I-place"])?;
/// let net = Builder::new();
/// let words = net.feed("words", DType::I64, &[], 1);
/// let wanted = net.feed_like("tags", DType::I64, &[], words);
/// let scores = words.embedding(Embedding::new(1000, 32)).lstm(32).linear(tags.len());
/// // A chunk continues only after its beginning: the output never has `I-place` after `O`.
/// let crf = net.layer(Crf::new().forbidding(&TagScheme::Iob2.transitions(&tags)?));
/// let loss = crf.loss(scores, wanted).mean(); // of each sentence
/// let found = crf.of(scores); // i64, a tag for each word
/// assert_eq!(net.spec(found).unwrap().dims(), [-1, 1]);
/// # let _ = loss;
/// # net.finish()?;
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// Parameter: `transitions` `[tags + 2, tags]`. Row i, column j has the score of tag j after tag i. Row `tags` has the scores
/// of the first tag of a sequence, and row `tags + 1` the scores of the last tag. All scores start at zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Crf {
    forbidden: Vec<i64>,
    shape: Option<[usize; 2]>,
    name: Option<String>,
}

impl Crf {
    /// Makes a CRF in which any tag may follow any tag.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forbids the transitions for which `mask` is minus infinity; `mask` `[tags + 2, tags]` has the layout of the parameter
    /// `transitions`. [`TagScheme::transitions`](crate::data::TagScheme::transitions) makes the mask of a tag scheme. The loss
    /// of a sequence with a forbidden transition is infinite, so the tags of the training data must not contain a forbidden
    /// transition.
    #[must_use]
    pub fn forbidding(self, mask: &Array2<f32>) -> Self {
        let places = mask.iter().zip(0..).filter(|(score, _)| **score == f32::NEG_INFINITY);
        Self {
            forbidden: places.map(|(_, position)| position).collect(),
            shape: Some(mask.dim().into()),
            ..self
        }
    }
}

layer_name!(Crf, "crf");

impl Layer for Crf {
    type Weights = Var;

    fn kind(&self) -> &str {
        "crf"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Var> {
        let spec = net.spec(x)?;
        let tags = spec.width();
        if let Some(shape) = self.shape.filter(|shape| *shape != [tags + 2, tags]) {
            let expected =
                format!("[{}, {tags}], as its input has a score for each of {tags} tags", tags + 2);
            net.refuse(Error::new("mask of layer `crf`", expected, format!("{shape:?}")));
            return None;
        }
        Some(net.parameter("transitions", spec.dtype, &[tags + 2, tags], init::zeros()))
    }

    /// Returns the likeliest path of tags of each sequence, i64 `[rows, 1]`.
    fn run(&self, net: &Builder, x: Var, transitions: &Var) -> Var {
        net.viterbi_decode(x, *transitions, 1, &self.forbidden).0
    }
}

impl Instance<Crf> {
    /// Returns the loss of each sequence, `[sequences]`: −ln of the probability of its tags.
    ///
    /// # Errors
    /// The errors of [`Builder::linear_chain_crf`]; also if the mask does not have the shape `[tags + 2, tags]`.
    #[track_caller]
    pub fn loss(&self, scores: Var, tags: Var) -> Var {
        let Some(net) = Builder::of(scores) else { return unknown_of(scores) };
        self.append(&net, scores, |crf, transitions| {
            net.linear_chain_crf(scores, *transitions, tags, &crf.forbidden)
        })
    }

    /// Returns the n likeliest paths of tags of each sequence, i64 `[rows, n]`, and the scores of the paths, `[sequences, n]`.
    ///
    /// # Errors
    /// The errors of [`Builder::viterbi_decode`]; also if the mask does not have the shape `[tags + 2, tags]`.
    #[track_caller]
    pub fn n_best(&self, scores: Var, n: usize) -> (Var, Var) {
        let Some(net) = Builder::of(scores) else { return (unknown_of(scores), unknown_of(scores)) };
        let mut of_paths = net.unknown();
        let paths = self.append(&net, scores, |crf, transitions| {
            let (paths, found) = net.viterbi_decode(scores, *transitions, n, &crf.forbidden);
            of_paths = found;
            paths
        });
        (paths, of_paths)
    }

    /// Returns the probability of each tag in each row, `[rows, tags]`.
    ///
    /// # Errors
    /// The errors of [`Builder::crf_marginals`]; also if the mask does not have the shape `[tags + 2, tags]`.
    #[track_caller]
    pub fn marginals(&self, scores: Var) -> Var {
        let Some(net) = Builder::of(scores) else { return unknown_of(scores) };
        self.append(&net, scores, |crf, transitions| net.crf_marginals(scores, *transitions, &crf.forbidden))
    }
}
