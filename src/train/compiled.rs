//! A trainer's program, compiled.

use crate::executor::BatchLoss;
use crate::metrics::Better;
use crate::predict::BatchRunner;

/// A trainer's program, ready to run.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// The loss over all parts of a step; `None` if a step is one batch in one part.
    pub(super) parts: Option<BatchLoss>,
    /// The index of the metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}
