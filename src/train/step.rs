//! The state of a trainer's steps: the compiled program, and what the steps of this run have computed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::executor::{BatchLoss, Executor, MemoryUse};
use crate::metrics::Better;
use crate::operator::VarId;
use crate::predict::BatchRunner;
use crate::tensor::Variable;

/// What the steps of a trainer share from step to step, beside the training itself.
#[derive(Default)]
pub(super) struct Step {
    /// `None` if the program must be compiled before the next step, because a setting has changed.
    pub(super) compiled: Option<CompiledTraining>,
    /// For each part that this process computes, the carried states; used only if batches have several parts.
    pub(super) carried: Vec<BTreeMap<String, Variable>>,
    /// The bytes of the selected rows that the gradients of the current step in parts collect; 0 while no step in parts
    /// runs.
    pub(super) collected: usize,
    /// The computed memory of the largest step of this run, and the number of steps that were divided.
    pub(super) largest: MemoryUse,
    pub(super) divided: u64,
    /// The data that the training holds in memory, in bytes, and the number of batches that its loader makes in advance.
    pub(super) held_data: (usize, usize),
    /// The number of tokens in the parts that this process has computed in this run.
    pub(super) computed: u64,
    pub(super) stop: Arc<AtomicBool>,
    /// Whether any process was asked to stop; the processes exchange this flag at the end of each step.
    pub(super) stopping: bool,
    /// Whether the warnings that come before the first step have been printed.
    pub(super) warned: bool,
}

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
