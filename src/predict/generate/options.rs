//! The options of generation and of beam search.

/// Options of generation: start and stop token, lengths, prefixes, banned and required tokens, repetition penalty.
///
/// A model computes the next token *step* by step. Its input is the start token at the first step, and the previous token at
/// each later step. A hypothesis is a source's tokens so far: it ends with the stop token, or after `max_steps` tokens. The
/// stop token is one of these tokens, and counts in the score; neither the stop token nor the start token is in the result.
///
/// The score of a hypothesis begins with the sum of the natural logarithms of its tokens' probabilities, each by the softmax of
/// the logits of its step. A forbidden token is never taken, but counts in the softmax, so other tokens do not become likelier;
/// the repetition penalty changes the logits, and so the softmax.
///
/// ```
/// use unpadded::predict::Generation;
/// // From token 1 to token 2, at most 40 tokens and not empty, without a 0 and with a 7.
/// let options = Generation::new(1).stop(2).max_steps(40).min_steps(1).banned([0]).required([7]);
/// // One prefix per source, with which its hypotheses begin.
/// let options = options.prefixes([vec![5, 6], vec![]]).repetition(1.2);
/// # assert_eq!(options, options.clone());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    pub(super) start: i64,
    pub(super) stop: Option<i64>,
    pub(super) max_steps: usize,
    pub(super) min_steps: usize,
    pub(super) prefixes: Prefixes,
    pub(super) banned: Vec<i64>,
    pub(super) required: Vec<i64>,
    pub(super) repetition: f64,
    pub(in crate::predict) first: u64,
}

/// The forced prefixes of hypotheses.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prefixes {
    All(Vec<i64>),
    Each(Vec<Vec<i64>>),
}

impl Generation {
    /// Options with this start token, which need not be a token that the model scores, and at most 256 steps. Without a stop
    /// token, all hypotheses have the maximal length.
    pub fn new(start: i64) -> Self {
        Self {
            start,
            stop: None,
            max_steps: 256,
            min_steps: 0,
            prefixes: Prefixes::All(Vec::new()),
            banned: Vec::new(),
            required: Vec::new(),
            repetition: 1.0,
            first: 0,
        }
    }

    /// Sets the stop token, which ends a hypothesis.
    #[must_use]
    pub fn stop(self, stop: i64) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Sets the maximal length: a hypothesis ends after `max_steps` tokens at the latest, including a forced prefix and the
    /// stop token. The result marks the hypotheses that ended with the stop token.
    #[must_use]
    pub fn max_steps(self, max_steps: usize) -> Self {
        Self { max_steps, ..self }
    }

    /// Sets the minimal length: at least `min_steps` tokens are before the stop token, including a forced prefix.
    #[must_use]
    pub fn min_steps(self, min_steps: usize) -> Self {
        Self { min_steps, ..self }
    }

    /// Forces a prefix: all hypotheses begin with these tokens. They are in the result, and count in scores and lengths.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Vec<i64>>) -> Self {
        Self { prefixes: Prefixes::All(prefix.into()), ..self }
    }

    /// Forces a prefix per source: one list of tokens for each source, possibly empty.
    #[must_use]
    pub fn prefixes(self, prefixes: impl Into<Vec<Vec<i64>>>) -> Self {
        Self { prefixes: Prefixes::Each(prefixes.into()), ..self }
    }

    /// Bans tokens: they are never generated.
    #[must_use]
    pub fn banned(self, banned: impl Into<Vec<i64>>) -> Self {
        Self { banned: banned.into(), ..self }
    }

    /// Requires tokens, at most 64: each is in every hypothesis, in any order. No hypothesis stops before it has all required
    /// tokens. When there are only as many steps left as tokens are missing, only the missing tokens may be taken. A forced
    /// prefix may have some of the required tokens.
    #[must_use]
    pub fn required(self, required: impl Into<Vec<i64>>) -> Self {
        Self { required: required.into(), ..self }
    }

    /// Sets the number in the data of the batch's first source (default: 0). Random draws depend on the numbers of the sources:
    /// sources in several batches get the same tokens as in one batch, if each batch sets its first number.
    #[must_use]
    pub fn first(self, number: u64) -> Self {
        Self { first: number, ..self }
    }

    /// Returns the number of sources that have prefixes of their own, if prefixes are per source.
    pub(in crate::predict) fn sources(&self) -> Option<usize> {
        match &self.prefixes {
            Prefixes::All(_) => None,
            Prefixes::Each(each) => Some(each.len()),
        }
    }

    /// Sets the repetition penalty: the logit of each token that a hypothesis already has is divided by `penalty` if the logit
    /// is above 0, and multiplied by `penalty` if it is below; 1 changes nothing. (N. Keskar, B. McCann, L. Varshney, C. Xiong,
    /// R. Socher, CTRL, 2019.)
    #[must_use]
    pub fn repetition(self, penalty: f64) -> Self {
        Self { repetition: penalty, ..self }
    }
}

/// Options of beam search for the hypotheses with the best scores.
///
/// A finished hypothesis of `Y` tokens, including the stop token, for a source with `X` rows of attention has the score
///
/// ```text
/// ln p(Y) / ((5 + |Y|) / 6)^length  +  coverage · Σ over x of ln min(1, Σ over y of attention(y, x))
/// ```
///
/// with sums of attention below 1e-6 taken as 1e-6 (Y. Wu et al., Google's neural machine translation system, 2016).
///
/// At each step the continuations of a source's running hypotheses by one token are ranked by `ln p`; ties are decided by the
/// rank of the hypothesis, then by the larger logit, then by the smaller token. A stop token among the best `width` finishes a
/// hypothesis; the best `width` other continuations run on. After the last step, the running hypotheses are finished, too, and
/// compete by their scores with the stopped hypotheses. Of finished hypotheses with equal scores, the earlier finished is
/// better, then the higher ranked. If the width is at least the number of all continuations, the search finds the best of all
/// sequences.
///
/// With `n` required tokens the continuations are divided into `n + 1` groups by how many required tokens they have. The
/// `width` places are dealt to the groups one by one in turns, beginning with the group that has most required tokens, as long
/// as a group has continuations left. So a group is not displaced by likelier continuations that lack more tokens. (After M.
/// Post, D. Vilar, Fast lexically constrained decoding with dynamic beam allocation, 2018.)
///
/// A source is done when `n_best` hypotheses are finished and no running hypothesis can get a better score than the worst of
/// these, even if all its further tokens were certain. With [`Self::early`], a source may be done earlier.
///
/// ```
/// use unpadded::predict::Beam;
/// let beam = Beam::new(8).n_best(3).length(0.6).coverage(0.2);
/// # assert_ne!(beam, Beam::new(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beam {
    pub(super) width: usize,
    pub(super) n_best: usize,
    pub(super) length: f64,
    pub(super) coverage: f64,
    pub(super) early: bool,
}

impl Beam {
    /// Options with beam width `width`: the number of running hypotheses of each source. Only the best hypothesis is returned,
    /// and there are no penalties.
    ///
    /// The beam may be wider than the vocabulary: memory is allocated only for existing hypotheses, whose number then grows with each
    /// step up to the width, for each source.
    pub fn new(width: usize) -> Self {
        Self { width, n_best: 1, length: 0.0, coverage: 0.0, early: false }
    }

    /// Sets the number of hypotheses that are returned per source, at most the width (default: 1).
    #[must_use]
    pub fn n_best(self, n_best: usize) -> Self {
        Self { n_best, ..self }
    }

    /// Sets the exponent of the length penalty, at least 0; 0 is no penalty, and a larger exponent prefers longer hypotheses.
    #[must_use]
    pub fn length(self, length: f64) -> Self {
        Self { length, ..self }
    }

    /// Sets the factor of the coverage penalty, at least 0; 0 is no penalty. The penalty lowers the score of hypotheses that
    /// left rows of the source unattended. The model must have an attention output.
    #[must_use]
    pub fn coverage(self, coverage: f64) -> Self {
        Self { coverage, ..self }
    }

    /// Early stopping of the search: a source is also done when `width` of its hypotheses are finished. The search may then
    /// miss a better hypothesis.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }
}
