//! The compiled program of a trainer.

use crate::executor::BatchLoss;
use crate::metrics::Better;
use crate::predict::BatchRunner;

/// A trainer's compiled program with the values that each step needs.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// The loss for steps in parts, computed over all parts; `None` if a step is one batch in one part.
    pub(super) parts: Option<BatchLoss>,
    /// The index of the metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
    /// The program for batches that are divided because of the memory limit; `None` before the first such batch, and if the
    /// steps are in parts anyway.
    pub(super) divided: Option<Box<CompiledTraining>>,
}
