//! The interface between generation and a model.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Threads;
use crate::kernels::helpers;

/// A model that generates: each step appends one token to each hypothesis and scores the next token.
pub(crate) trait Steps {
    /// Returns the number of tokens that the model scores.
    fn classes(&self) -> usize;

    /// Makes one step with a list of hypotheses: hypothesis i continues hypothesis `parents[i]` of the previous step by the
    /// token `tokens[i]`. At the first step, hypothesis i begins from source `parents[i]`. The number of hypotheses per source
    /// may change from step to step, and may be 0.
    fn advance(&mut self, parents: &[usize], tokens: &[i64]) -> Result<()>;

    /// Returns the logits after the last `advance`: one row per hypothesis, one column per token, row-major.
    fn logits(&self) -> Result<&[f32]>;

    /// Returns the attention at this step, for the coverage penalty. The first slice has the weights of all hypotheses;
    /// the second slice has the offsets at which the weights of each hypothesis begin and end. The weights of a
    /// hypothesis sum to about 1. Returns `None` if the model has no attention output.
    fn attention(&self) -> Result<Option<(&[f32], &[usize])>>;
}

/// Returns the logits of a step, and checks that there is a row for each of `hypotheses` hypotheses.
pub(super) fn logits_of(steps: &dyn Steps, hypotheses: usize) -> Result<&[f32]> {
    let logits = steps.logits()?;
    if logits.len() != hypotheses * steps.classes() {
        let expected = format!("{} for each of {hypotheses} hypotheses", steps.classes());
        return Err(Error::new("logits of a step", expected, format!("{} together", logits.len())));
    }
    Ok(logits)
}

/// Makes the error for a logit that is NaN or positive infinity.
pub(super) fn wrong_logit(wrong: f32, source: usize, step: usize) -> Error {
    let what = format!("logits of source {source} at step {step}");
    Error::of(ErrorKind::NotFinite, what, "numbers or negative infinity", wrong.to_string())
}

/// The minimum number of logits on which several threads work: for fewer logits, waking a thread takes longer than the work.
const WORTH: usize = 1 << 16;

/// Returns the number of threads among which the work on `logits` logits is divided.
pub(super) fn rooms(threads: &Threads, logits: usize) -> usize {
    helpers(logits, WORTH, threads.number())
}
