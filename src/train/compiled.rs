//! A trainer's program, compiled, with the metrics that look at its batches.

use std::collections::BTreeMap;

use super::setting::Setting;
use crate::error::{Error, Result};
use crate::executor::{BatchLoss, Executor, Run, Scope};
use crate::metrics::{Better, Metric};
use crate::operator::VarId;
use crate::predict::{BatchRunner, DataBatch};
use crate::tensor::Variable;

/// A trainer's program, ready to run.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// Of a step of several batches.
    pub(super) parts: Option<BatchLoss>,
    /// The metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}

/// What goes on from batch to batch.
pub(super) struct BatchState<'a> {
    pub(super) carried: &'a mut BTreeMap<String, Variable>,
    pub(super) metrics: &'a mut [Setting<Box<dyn Metric>>],
}

impl CompiledTraining {
    /// Runs a batch and takes its values into the metrics. `how` makes the run of the feeds, `then` goes on with what it has left.
    pub(super) fn run(
        &mut self,
        scope: &mut Scope,
        of: DataBatch<'_>,
        BatchState { carried, metrics }: BatchState<'_>,
        how: impl for<'a> Fn(&'a [(VarId, &'a Variable)]) -> Run<'a>,
        then: impl FnOnce(&mut Executor) -> Result<()>,
        failed: impl Fn(&mut Scope, &Run<'_>, Error) -> Error,
    ) -> Result<()> {
        self.runner.run(scope, of, carried, how, then, failed)?;
        for metric in metrics {
            self.runner.update(&mut *metric.what, of.batch).map_err(|e| e.called(metric.line))?;
        }
        self.runner.hand_on(carried)
    }
}
