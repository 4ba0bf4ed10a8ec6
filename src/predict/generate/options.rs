//! What may be generated, and how a beam is searched.

/// What may be generated, and how it begins and ends.
///
/// A model is asked for the next token *step* by step. At the first step it is given the start token, at each other one the
/// token before. A hypothesis is what a source has got so far: it ends by the stop token, or after `max_steps` tokens. The stop
/// token counts as a token there, and in its score; neither it nor the start token is in the result.
///
/// The score of a hypothesis begins with the sum of the natural logarithms of its tokens' probabilities, each by the softmax of
/// the logits of its step. What may not be generated is left out without making others likelier; the repetition penalty changes the
/// logits, and so the softmax.
///
/// ```
/// use unpadded::predict::Generation;
/// // From token 1 to token 2, at most 40 of them, neither 0 nor an end at once, and a 7 among them.
/// let options = Generation::new(1).stop(2).max_steps(40).min_steps(1).banned([0]).required([7]);
/// // As many prefixes as there are sources, which their hypotheses begin with.
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

/// What hypotheses begin with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prefixes {
    All(Vec<i64>),
    Each(Vec<Vec<i64>>),
}

impl Generation {
    /// From this start token, which need not be one that the model scores. At most 256 steps, and nothing else is asked:
    /// without a stop token all hypotheses get as long as that.
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

    /// A hypothesis ends with this token.
    #[must_use]
    pub fn stop(self, stop: i64) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// A hypothesis ends after so many tokens at the latest, a forced prefix and the stop token among them; the result says
    /// which have not stopped by themselves.
    #[must_use]
    pub fn max_steps(self, max_steps: usize) -> Self {
        Self { max_steps, ..self }
    }

    /// There are at least so many tokens before the stop token, those of a forced prefix among them.
    #[must_use]
    pub fn min_steps(self, min_steps: usize) -> Self {
        Self { min_steps, ..self }
    }

    /// All hypotheses begin with these tokens. They are in the result, and count in scores and lengths.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Vec<i64>>) -> Self {
        Self { prefixes: Prefixes::All(prefix.into()), ..self }
    }

    /// The hypotheses of each source begin with tokens of its own, one list a source, of which some may be empty.
    #[must_use]
    pub fn prefixes(self, prefixes: impl Into<Vec<Vec<i64>>>) -> Self {
        Self { prefixes: Prefixes::Each(prefixes.into()), ..self }
    }

    /// These tokens are never generated.
    #[must_use]
    pub fn banned(self, banned: impl Into<Vec<i64>>) -> Self {
        Self { banned: banned.into(), ..self }
    }

    /// Each of these tokens, at most 64, is in every hypothesis, in any order: none stops without them, and when no more steps
    /// are left than tokens are missing, only those may be taken. A forced prefix may have some of them.
    #[must_use]
    pub fn required(self, required: impl Into<Vec<i64>>) -> Self {
        Self { required: required.into(), ..self }
    }

    /// The number of the first source in the data, of which draws depend: sources that come in several batches get what they would
    /// get in one, if each batch says where it begins.
    #[must_use]
    pub fn first(self, number: u64) -> Self {
        Self { first: number, ..self }
    }

    /// For how many sources there are prefixes, if each has its own.
    pub(in crate::predict) fn sources(&self) -> Option<usize> {
        match &self.prefixes {
            Prefixes::All(_) => None,
            Prefixes::Each(each) => Some(each.len()),
        }
    }

    /// The logit of each token that a hypothesis has already is divided by this if it is above 0, and multiplied by it if it
    /// is below; 1 changes nothing. (N. Keskar, B. McCann, L. Varshney, C. Xiong, R. Socher, CTRL, 2019.)
    #[must_use]
    pub fn repetition(self, penalty: f64) -> Self {
        Self { repetition: penalty, ..self }
    }
}

/// How a beam is searched for the hypotheses with the best scores.
///
/// A finished hypothesis of `Y` tokens, the stop token counted, for a source of `X` rows that are attended to has the score
///
/// ```text
/// ln p(Y) / ((5 + |Y|) / 6)^length  +  coverage · Σ over x of ln min(1, Σ over y of attention(y, x))
/// ```
///
/// with sums of attention below 1e-6 taken as 1e-6 (Y. Wu et al., Google's neural machine translation system, 2016).
///
/// At each step the continuations of a source's running hypotheses by one token are ranked by `ln p`; of equal ones that of the
/// hypothesis that is ranked higher itself, then that of the larger logit, then the smaller token. A stop token among the best
/// `width` finishes a hypothesis; the best `width` others go on. After the last step those that would go on are finished, too, and
/// compete by their scores with those that stopped. Of finished hypotheses with equal scores the one that was finished first is
/// the better one, then the one that is ranked higher. A width of as many continuations as there are finds the best of all
/// sequences.
///
/// With `n` required tokens the continuations are divided into `n + 1` groups by how many of these they have, and the `width`
/// places are dealt out to the groups one by one in turns, first to the group that has the most of them, as long as a group has
/// continuations left: so no group is displaced by likelier ones that lack more. (After M. Post, D. Vilar, Fast lexically
/// constrained decoding with dynamic beam allocation, 2018.)
///
/// A source is done when `n_best` hypotheses are finished and no running one can get a better score than the worst of
/// these, were all its further tokens certain; or with [`Self::early`].
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
    /// So many hypotheses of each source go on from step to step. The best one alone is wanted, and there are no penalties.
    ///
    /// A beam may be wider than the vocabulary: there is room only for the hypotheses that there are, whose number then grows with each
    /// step up to the width, for each source.
    pub fn new(width: usize) -> Self {
        Self { width, n_best: 1, length: 0.0, coverage: 0.0, early: false }
    }

    /// So many hypotheses of each source are wanted, at most as many as the width.
    #[must_use]
    pub fn n_best(self, n_best: usize) -> Self {
        Self { n_best, ..self }
    }

    /// The exponent of the length penalty, from 0 on; 0 for none, and the larger the more long ones are preferred.
    #[must_use]
    pub fn length(self, length: f64) -> Self {
        Self { length, ..self }
    }

    /// The factor of the coverage penalty, from 0 on; 0 for none. Hypotheses lose by it that left rows of the source
    /// unattended. The model must say what it attends to.
    #[must_use]
    pub fn coverage(self, coverage: f64) -> Self {
        Self { coverage, ..self }
    }

    /// A source is also done as soon as `width` of its hypotheses are finished: sooner, but a better one may be missed.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }
}
