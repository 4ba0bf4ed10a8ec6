//! A trainer's program, compiled.

use crate::executor::BatchLoss;
use crate::metrics::Better;
use crate::predict::BatchRunner;

/// A trainer's program, ready to run.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// The loss over the parts, for a step in parts.
    pub(super) parts: Option<BatchLoss>,
    /// The metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}
