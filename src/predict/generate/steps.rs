//! The interface between generation and a model.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Threads;
use crate::kernels::helpers;

/// A model that advances each hypothesis by one token per step.
pub(crate) trait Steps {
    /// The number of classes (tokens) that the model scores.
    fn classes(&self) -> usize;

    /// Makes one step: hypothesis i continues hypothesis `parents[i]` of the previous step (at the first step: source
    /// `parents[i]`), with `tokens[i]` as its newest token. There may be any number of hypotheses that fits memory; a source
    /// may have none.
    fn advance(&mut self, parents: &[usize], tokens: &[i64]) -> Result<()>;

    /// Returns the logits after `advance`, row-major, hypotheses x classes.
    fn logits(&self) -> Result<&[f32]>;

    /// Returns the attention of each hypothesis at this step for the coverage penalty: the weights of all hypotheses, which sum
    /// to about 1 for each hypothesis, and the offsets of the hypotheses in the weights. `None` if the model has no attention
    /// output.
    fn attention(&self) -> Result<Option<(&[f32], &[usize])>>;
}

/// Returns the logits of `hypotheses` hypotheses.
pub(super) fn logits_of(steps: &dyn Steps, hypotheses: usize) -> Result<&[f32]> {
    let logits = steps.logits()?;
    if logits.len() != hypotheses * steps.classes() {
        let expected = format!("{} for each of {hypotheses} hypotheses", steps.classes());
        return Err(Error::new("logits of a step", expected, format!("{} together", logits.len())));
    }
    Ok(logits)
}

/// Makes the error of a logit that is NaN or positive infinity.
pub(super) fn wrong_logit(wrong: f32, source: usize, step: usize) -> Error {
    let what = format!("logits of source {source} at step {step}");
    Error::of(ErrorKind::NotFinite, what, "numbers or negative infinity", wrong.to_string())
}

/// The least number of logits that is worth a thread: the work on them takes about as long as waking a thread.
const WORTH: usize = 1 << 16;

/// Returns the number of ranges into which the work on `logits` logits is divided.
pub(super) fn rooms(threads: &Threads, logits: usize) -> usize {
    helpers(logits, WORTH, threads.number())
}
