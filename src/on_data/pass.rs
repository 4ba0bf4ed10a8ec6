//! A pass over data: runs each batch for inference and updates metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::batch_runner::{BatchRunner, DataBatch};
use crate::data::{Batch, Batches, Data, until_stopped};
use crate::error::{CallerSetting, Error, Result};
use crate::executor::{Executor, Run, Scope};
use crate::metrics::{Metric, Scores};
use crate::operator::VarId;
use crate::tensor::Variable;

/// A metric, and the source line that made it.
pub(crate) type Measure = CallerSetting<Box<dyn Metric>>;

/// The carried states and the metrics of a pass; each batch updates them.
pub(crate) struct BatchState<'a> {
    pub(crate) carried: &'a mut BTreeMap<String, Variable>,
    pub(crate) metrics: &'a mut [Measure],
}

impl BatchRunner {
    /// Runs a batch as [`Self::run`] does, adds its values to the metrics, and stores the carried states after the batch in
    /// `carried`.
    pub(crate) fn measure(
        &mut self,
        scope: &mut Scope,
        of: DataBatch<'_>,
        BatchState { carried, metrics }: BatchState<'_>,
        how: impl for<'a> Fn(&'a [(VarId, &'a Variable)]) -> Run<'a>,
        then: impl FnOnce(&mut Executor) -> Result<()>,
        failed: impl Fn(&mut Scope, &Run<'_>, Error) -> Error,
    ) -> Result<()> {
        self.run(scope, of, carried, how, then, failed)?;
        for metric in metrics {
            self.update(&mut *metric.what, of.batch).map_err(|e| e.called(metric.line))?;
        }
        self.hand_on(carried)
    }

    /// Runs a batch for inference, as [`Self::measure`] does.
    pub(crate) fn infer(
        &mut self,
        scope: &mut Scope,
        of: DataBatch<'_>,
        carry: BatchState<'_>,
    ) -> Result<()> {
        self.measure(scope, of, carry, |feeds| Run::infer(feeds), |_| Ok(()), |_, _, e| e)
    }

    /// Adds all batches of the data to the metrics; the carried states start from zeros. Returns `false` if `stop` was set
    /// before the end of the data.
    pub(crate) fn infer_all(
        &mut self,
        scope: &mut Scope,
        data: &dyn Data,
        stop: Option<&Arc<AtomicBool>>,
        metrics: &mut [Measure],
    ) -> Result<bool> {
        let (batches, mut carried) = (data.batches(None, 0)?, BTreeMap::new());
        each_batch(data, batches, stop, |_, batch| {
            self.infer(scope, DataBatch { data, batch }, BatchState { carried: &mut carried, metrics })
        })
    }
}

/// Calls `run` for each batch of the data, with the number of the batch (counted from 0) and the batch. Returns `false`
/// if `stop` was set before the end of the data.
///
/// # Errors
/// If the data or `run` fails, or if the data have no batch.
pub(crate) fn each_batch(
    data: &dyn Data,
    batches: Batches,
    stop: Option<&Arc<AtomicBool>>,
    mut run: impl FnMut(usize, &Batch) -> Result<()>,
) -> Result<bool> {
    let mut empty = true;
    let (batches, given_up) = match stop {
        Some(stop) => until_stopped(data, batches, stop)?,
        None => (batches, Arc::default()),
    };
    for (number, batch) in batches.enumerate() {
        if given_up.load(Ordering::SeqCst) || stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            return Ok(false);
        }
        run(number, &batch?)?;
        empty = false;
    }
    match empty {
        true => Err(Error::new("batches of data to evaluate on", "at least one", "none")),
        false => Ok(true),
    }
}

pub(crate) fn scores(metrics: &[Measure]) -> Scores {
    Scores(metrics.iter().map(|metric| (metric.name().to_owned(), metric.value())).collect(), Vec::new())
}
