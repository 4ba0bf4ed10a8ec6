//! What generation asks of a model.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Threads;
use crate::kernels::helpers;

/// A model that goes on by one token a hypothesis.
pub(crate) trait Steps {
    /// How many classes (tokens) it scores.
    fn classes(&self) -> usize;

    /// One step: hypothesis i goes on from hypothesis `parents[i]` of the step before (at the first step: from source
    /// `parents[i]`), with `tokens[i]` as its newest token. At most as many as fit memory; any number, also none of a source.
    fn advance(&mut self, parents: &[usize], tokens: &[i64]) -> Result<()>;

    /// Logits after `advance`, row-major, hypotheses x classes.
    fn logits(&self) -> Result<&[f32]>;

    /// For the coverage penalty: what each hypothesis attended to at this step, flat, with the offsets of the hypotheses (sum
    /// over a hypothesis about 1). None where the model says nothing of it.
    fn attention(&self) -> Result<Option<(&[f32], &[usize])>>;
}

/// The logits of so many hypotheses.
pub(super) fn logits_of(steps: &dyn Steps, hypotheses: usize) -> Result<&[f32]> {
    let logits = steps.logits()?;
    if logits.len() != hypotheses * steps.classes() {
        let expected = format!("{} for each of {hypotheses} hypotheses", steps.classes());
        return Err(Error::new("logits of a step", expected, format!("{} together", logits.len())));
    }
    Ok(logits)
}

/// A logit that cannot be used.
pub(super) fn wrong_logit(wrong: f32, source: usize, step: usize) -> Error {
    let what = format!("logits of source {source} at step {step}");
    Error::of(ErrorKind::NotFinite, what, "numbers or negative infinity", wrong.to_string())
}

/// So many logits are worth dividing over threads: about as long as it takes to wake one.
const WORTH: usize = 1 << 16;

/// Into how many ranges the work on so many logits is to be divided.
pub(super) fn rooms(threads: &Threads, logits: usize) -> usize {
    helpers(logits, WORTH, threads.number())
}
