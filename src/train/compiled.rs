//! A trainer's program, compiled.

use crate::executor::BatchLoss;
use crate::metrics::Better;
use crate::predict::BatchRunner;

/// A trainer's program, ready to run.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// Of a step of several batches.
    pub(super) parts: Option<BatchLoss>,
    /// The metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}
