//! Evaluation: computes the loss and the metrics of a loaded model on data.

use std::panic::Location;

use super::batch_runner::BatchRunner;
use super::model::{Model, registered};
use super::pass::{Measure, scores};
use super::predictor::Predictor;
use crate::data::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::metrics::{Scores, metric_of};
use crate::operator::VarId;
use crate::program::Var;

impl Predictor {
    /// Returns the loss and the checkpoint's metrics over all of `data`, bit-identical to [`Trainer::evaluate`] with the same
    /// parameters. The data must have the fields of the development data, including labels. Metrics that you defined yourself are
    /// left out, because a checkpoint file cannot describe them.
    ///
    /// [`Trainer::evaluate`]: crate::train
    ///
    /// # Errors
    /// If the checkpoint has no metrics, or if an operator that only the metrics need is not registered. Also if the data
    /// fails, has no batch, or does not fit the feeds.
    #[track_caller]
    pub fn evaluate(&self, data: &dyn Data) -> Result<Scores> {
        let caller = Location::caller();
        self.score(data, caller).map_err(|e| e.called(caller))
    }

    fn score(&self, data: &dyn Data, line: &'static Location<'static>) -> Result<Scores> {
        let Model { scored, metrics, registry, weights, carried, .. } = self.model();
        if metrics.is_empty() {
            return Err(Error::of(ErrorKind::Program, "metrics of the checkpoint", "at least one", "none"));
        }
        let made = |desc| Ok(Measure { what: metric_of(desc, scored, registry)?, line });
        let mut metrics: Vec<Measure> = metrics.iter().map(made).collect::<Result<_>>()?;
        let mut wanted: Vec<VarId> =
            metrics.iter().flat_map(|metric| metric.variables()).map(Var::id).collect();
        let looked_at = wanted.clone();
        wanted.retain(|&var| !scored.var(var).persistable);
        wanted.extend(carried.iter().map(|state| state.after));
        wanted.sort();
        wanted.dedup();
        registered(scored, registry)?;
        let executor = Executor::on(scored, registry, &wanted, self.started()?.clone())?;
        let (mut runner, mut weights) = (BatchRunner::new(executor, looked_at.into_iter()), weights.clone());
        runner.check(data)?;
        runner.infer_all(&mut weights, data, None, &mut metrics)?;
        Ok(scores(&metrics))
    }
}
