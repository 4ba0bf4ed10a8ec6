//! The options of generation and of beam search.

/// Options of generation: start and stop token, lengths, prefixes, banned and required tokens, repetition penalty.
///
/// A model generates token by token: each *step* scores the next token. The model's input is the start token at the
/// first step, and the previous token at each later step. A hypothesis is a sequence of tokens that is generated for a
/// source; it ends with the stop token, or after `max_steps` tokens. The stop token counts as one of the `max_steps`
/// tokens, and its probability counts in the score; the result has neither the stop token nor the start token.
///
/// The score of a hypothesis, without length and coverage penalty, is the sum of the natural logarithms of its tokens'
/// probabilities. The probabilities at a step are the softmax of the logits. A forbidden token is never taken, but it counts in
/// the softmax, so other tokens do not become likelier. The repetition penalty changes the logits before the softmax.
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
    /// Makes options with this start token and at most 256 steps; the start token need not be a token that the model scores.
    /// Without a stop token, every hypothesis has the maximal length.
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

    /// Sets the maximal length: a hypothesis ends after at most `max_steps` tokens. The tokens of a forced prefix and
    /// the stop token count, too. In the result, `Hypothesis::stopped` is true for a hypothesis that ended with the
    /// stop token.
    #[must_use]
    pub fn max_steps(self, max_steps: usize) -> Self {
        Self { max_steps, ..self }
    }

    /// Sets the minimal length: the stop token comes after at least `min_steps` tokens. The tokens of a forced prefix
    /// count, too.
    #[must_use]
    pub fn min_steps(self, min_steps: usize) -> Self {
        Self { min_steps, ..self }
    }

    /// Forces a prefix: every hypothesis begins with these tokens. The tokens of the prefix are in the result, and count in the
    /// score and in the length.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Vec<i64>>) -> Self {
        Self { prefixes: Prefixes::All(prefix.into()), ..self }
    }

    /// Forces one prefix per source: a list of tokens for each source. A list may be empty.
    #[must_use]
    pub fn prefixes(self, prefixes: impl Into<Vec<Vec<i64>>>) -> Self {
        Self { prefixes: Prefixes::Each(prefixes.into()), ..self }
    }

    /// Bans tokens: no hypothesis has a banned token.
    #[must_use]
    pub fn banned(self, banned: impl Into<Vec<i64>>) -> Self {
        Self { banned: banned.into(), ..self }
    }

    /// Requires tokens, at most 64: every hypothesis has all required tokens, in any order. The stop token is allowed
    /// only after all required tokens. When the number of steps that are left equals the number of missing required
    /// tokens, only the missing tokens are allowed. A forced prefix may contain required tokens.
    #[must_use]
    pub fn required(self, required: impl Into<Vec<i64>>) -> Self {
        Self { required: required.into(), ..self }
    }

    /// Sets the index of the batch's first source among the sources of all batches (default: 0). Random draws depend on the index
    /// of the source. If each batch sets its first index, the tokens of a source do not depend on how the sources are divided
    /// into batches.
    #[must_use]
    pub fn first(self, number: u64) -> Self {
        Self { first: number, ..self }
    }

    /// Returns the number of sources for which [`Self::prefixes`] has set prefixes; `None` if `prefixes` was not
    /// called.
    pub(in crate::predict) fn sources(&self) -> Option<usize> {
        match &self.prefixes {
            Prefixes::All(_) => None,
            Prefixes::Each(each) => Some(each.len()),
        }
    }

    /// Sets the repetition penalty, which changes the logit of each token that a hypothesis already has. A positive
    /// logit is divided by `penalty`, and a negative logit is multiplied by `penalty`. A penalty of 1 changes nothing.
    /// (N. Keskar, B. McCann, L. Varshney, C. Xiong, R. Socher, CTRL, 2019.)
    #[must_use]
    pub fn repetition(self, penalty: f64) -> Self {
        Self { repetition: penalty, ..self }
    }
}

/// Options of beam search, a search for the hypotheses with the best scores.
///
/// For a source with `X` rows of attention, a finished hypothesis of `Y` tokens, including the stop token, has the score
///
/// ```text
/// ln p(Y) / ((5 + |Y|) / 6)^length  +  coverage · Σ over x of ln min(1, Σ over y of attention(y, x))
/// ```
///
/// where a sum of attention below 1e-6 counts as 1e-6 (Y. Wu et al., Google's neural machine translation system, 2016).
///
/// At each step, each running hypothesis of a source is continued by each token, and all these continuations are ranked
/// by `ln p`. If several continuations have the same `ln p`, the continuation of the higher-ranked hypothesis comes
/// first. Among continuations of one hypothesis, the larger logit comes first, then the smaller token. If a
/// continuation by the stop token is among the best `width` continuations, its hypothesis is finished. The best `width`
/// continuations by tokens other than the stop token are the new running hypotheses. After the last step, the running
/// hypotheses count as finished, and their scores are compared with the scores of the stopped hypotheses. Of finished
/// hypotheses with equal scores, the hypothesis that was finished at the earlier step is better. Of hypotheses that
/// were finished at the same step, the higher-ranked hypothesis is better. If the width is at least the number of all
/// continuations, the search finds the best of all possible hypotheses.
///
/// With `n` required tokens, the continuations are divided into `n + 1` groups by the number of required tokens that they have.
/// The groups take turns to get one of the `width` places, and the group with the most required tokens begins. If all
/// continuations of a group have a place, the group is skipped. A group therefore keeps its places even if continuations with
/// fewer required tokens are likelier. (After M. Post, D. Vilar, Fast lexically constrained decoding with dynamic beam
/// allocation, 2018.)
///
/// The search of a source ends when `n_best` hypotheses are finished and no running hypothesis can get a better score than the
/// finished hypothesis at rank `n_best`, even if all further tokens had probability 1. With [`Self::early`], the search of a
/// source may end earlier.
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
    /// Makes options with the beam width `width`: the maximum number of running hypotheses per source. Only the best hypothesis
    /// is returned, and there are no penalties.
    ///
    /// The beam may be wider than the vocabulary. Memory is allocated only for existing hypotheses: their number grows with
    /// each step, up to `width` per source.
    pub fn new(width: usize) -> Self {
        Self { width, n_best: 1, length: 0.0, coverage: 0.0, early: false }
    }

    /// Sets the number of hypotheses that are returned per source, at most the width (default: 1).
    #[must_use]
    pub fn n_best(self, n_best: usize) -> Self {
        Self { n_best, ..self }
    }

    /// Sets the exponent of the length penalty (at least 0; default: 0, no penalty). A larger exponent prefers longer
    /// hypotheses.
    #[must_use]
    pub fn length(self, length: f64) -> Self {
        Self { length, ..self }
    }

    /// Sets the factor of the coverage penalty, at least 0; 0 turns the penalty off. The penalty lowers the score of a
    /// hypothesis whose attention left out rows of the source. The model must have an attention output.
    #[must_use]
    pub fn coverage(self, coverage: f64) -> Self {
        Self { coverage, ..self }
    }

    /// Early stopping of the search: the search of a source also ends when `width` of its hypotheses are finished. The search
    /// may then miss a better hypothesis.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }
}
