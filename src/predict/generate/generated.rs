//! What was generated.

use crate::error::{Error, Result};
use crate::tensor::Variable;

/// What was generated for each source: its hypotheses, best first.
///
/// A source has one drawn hypothesis, or up to `n_best` of a beam; fewer, or none, if no more were possible.
#[derive(Debug, Clone)]
pub struct Hypotheses {
    tokens: Variable,
    scores: Vec<f64>,
    stopped: Vec<bool>,
}

/// One of the hypotheses of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis<'a> {
    /// Without the start token and the stop token; a forced prefix is among them.
    pub tokens: &'a [i64],
    /// The sum of the natural logarithms of its tokens' probabilities, the stop token's among them; of a beam, with its penalties.
    pub score: f64,
    /// Whether it ended with the stop token; if not, the limit on steps was reached.
    pub stopped: bool,
}

/// A hypothesis that is finished.
pub(super) struct FinishedHypothesis {
    pub(super) tokens: Vec<i64>,
    pub(super) score: f64,
    pub(super) stopped: bool,
}

impl Hypotheses {
    /// Of the hypotheses of each source, best first.
    pub(super) fn new(sources: Vec<Vec<FinishedHypothesis>>) -> Result<Self> {
        let all = || sources.iter().flatten();
        let scores = all().map(|one| one.score).collect();
        let stopped = all().map(|one| one.stopped).collect();
        let tokens = |source: Vec<FinishedHypothesis>| source.into_iter().map(|one| one.tokens).collect();
        let nested: Vec<Vec<Vec<i64>>> = sources.into_iter().map(tokens).collect();
        Ok(Self { tokens: Variable::from_nested(&nested)?, scores, stopped })
    }

    /// The tokens of all hypotheses, of shape `[tokens]` in i64, with two levels: the hypotheses of each source, and the
    /// tokens of each hypothesis.
    pub fn tokens(&self) -> &Variable {
        &self.tokens
    }

    /// The score of each hypothesis, of one source after another.
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }

    /// Whether each hypothesis ended with the stop token; if not, the limit on steps was reached.
    pub fn stopped(&self) -> &[bool] {
        &self.stopped
    }

    /// How many sources there were.
    pub fn sources(&self) -> usize {
        self.tokens.batch_size()
    }

    /// The hypotheses of a source, best first.
    ///
    /// # Errors
    /// If there are not so many sources.
    #[track_caller]
    pub fn hypotheses(&self, source: usize) -> Result<Vec<Hypothesis<'_>>> {
        let Some(lod) = self.tokens.lod() else {
            return Err(Error::new("tokens that were generated", "two levels", "none"));
        };
        let tokens = self.tokens.as_slice::<i64>()?;
        let ends = lod.level(1)?;
        let one = |i: usize| Hypothesis {
            tokens: &tokens[ends[i]..ends[i + 1]],
            score: self.scores[i],
            stopped: self.stopped[i],
        };
        let top = lod.level(0)?;
        if source >= self.sources() {
            let expected = format!("one of {}, from 0 on", self.sources());
            return Err(Error::new("source of what was generated", expected, source.to_string()));
        }
        Ok((top[source]..top[source + 1]).map(one).collect())
    }

    /// The best hypothesis of each source; `None` where there is none.
    ///
    /// # Errors
    /// Never of what was generated.
    #[track_caller]
    pub fn best(&self) -> Result<Vec<Option<Hypothesis<'_>>>> {
        (0..self.sources()).map(|source| Ok(self.hypotheses(source)?.first().copied())).collect()
    }
}
