//! The hypotheses that a generator or a beam search returns.

use crate::error::{AtCaller, Error, Result};
use crate::tensor::Variable;

/// The generated hypotheses of each source, best first.
///
/// Sampling returns one hypothesis per source, and beam search at most `n_best` per source. A source has fewer
/// hypotheses, or none, if the options and the model's scores allow no more hypotheses.
#[derive(Debug, Clone)]
pub struct Hypotheses {
    tokens: Variable,
    scores: Vec<f64>,
    stopped: Vec<bool>,
}

/// A generated sequence of tokens for a source.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Hypothesis<'a> {
    /// The tokens, including a forced prefix, but not the start token or the stop token.
    pub tokens: &'a [i64],
    /// The sum of the natural logarithms of the tokens' probabilities, including the stop token; in beam search, the length
    /// penalty and the coverage penalty are applied.
    pub score: f64,
    /// Whether the hypothesis ended with the stop token; `false` if it ended at the maximal number of steps.
    pub stopped: bool,
}

pub(super) struct FinishedHypothesis {
    pub(super) tokens: Vec<i64>,
    pub(super) score: f64,
    pub(super) stopped: bool,
}

impl Hypotheses {
    /// Makes the result from the hypotheses of each source, best first.
    pub(super) fn new(sources: Vec<Vec<FinishedHypothesis>>) -> Result<Self> {
        let all = || sources.iter().flatten();
        let scores = all().map(|one| one.score).collect();
        let stopped = all().map(|one| one.stopped).collect();
        let tokens = |source: Vec<FinishedHypothesis>| source.into_iter().map(|one| one.tokens).collect();
        let nested: Vec<Vec<Vec<i64>>> = sources.into_iter().map(tokens).collect();
        Ok(Self { tokens: Variable::from_nested(&nested)?, scores, stopped })
    }

    /// Returns the tokens of all hypotheses: i64 of shape `[tokens]`, with two LoD levels. The first level has the
    /// hypotheses of each source, the second level the tokens of each hypothesis.
    pub fn tokens(&self) -> &Variable {
        &self.tokens
    }

    /// Returns the scores of all hypotheses, source by source.
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }

    /// Returns, for each hypothesis, whether it ended with the stop token; `false` if it ended at the maximal number of steps.
    pub fn stopped(&self) -> &[bool] {
        &self.stopped
    }

    /// Returns the number of sources.
    pub fn sources(&self) -> usize {
        self.tokens.batch_size()
    }

    /// Returns the hypotheses of a source, best first.
    ///
    /// # Errors
    /// If there is no source with the index `source`.
    #[track_caller]
    pub fn hypotheses(&self, source: usize) -> Result<Vec<Hypothesis<'_>>> {
        let Some(lod) = self.tokens.lod() else {
            return Err(Error::new("generated tokens", "two levels", "none"));
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
            let expected = format!("an index below {}", self.sources());
            return Err(Error::new("source of the generated tokens", expected, source.to_string()));
        }
        Ok((top[source]..top[source + 1]).map(one).collect())
    }

    /// Returns the best hypothesis of each source; `None` for a source without hypotheses.
    ///
    /// # Errors
    /// Never fails for a result that a generator or a beam search returned.
    #[track_caller]
    pub fn best(&self) -> Result<Vec<Option<Hypothesis<'_>>>> {
        (0..self.sources())
            .map(|source| Ok(self.hypotheses(source)?.first().copied()))
            .collect::<Result<_>>()
            .at_caller()
    }
}
