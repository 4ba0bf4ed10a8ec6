//! The compiled program of a trainer.

use crate::executor::{BatchLoss, Executor};
use crate::metrics::Better;
use crate::operator::VarId;
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
    /// The rows of parameters that steps read and whose missed updates all processes apply; empty for a single process.
    pub(super) read: Vec<ReadRows>,
}

/// The rows of parameters that one variable selects.
pub(super) struct ReadRows {
    /// The variable with the row numbers.
    pub(super) ids: VarId,
    pub(super) params: Vec<VarId>,
    /// The number of rows of the lowest of the parameters.
    pub(super) height: usize,
    /// The program that applies the missed updates of rows; `ids` is its feed.
    pub(super) settling: Executor,
    /// The numbers of the rows that this process has read in the current step.
    pub(super) rows: Vec<i64>,
}
