//! A trainer's program, compiled.

use crate::executor::Parts;
use crate::metrics::Better;
use crate::predict::BatchRunner;

/// A trainer's program, ready to run.
pub(super) struct Compiled {
    pub(super) runner: BatchRunner,
    /// Of a step of several batches.
    pub(super) parts: Option<Parts>,
    /// The metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}
