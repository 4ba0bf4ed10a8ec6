//! A pass over data: runs each batch for inference and updates metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::batch_runner::{BatchRunner, DataBatch};
use crate::data::{Batch, Batches, Data, until_stopped};
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope};
use crate::metrics::{self, Metric, Scores};
use crate::operator::{Spec, VarId};
use crate::program::{Program, Var, VarRole};
use crate::tensor::Variable;

/// A metric, and the source line that made it.
pub(crate) type Measure = CallerSetting<Box<dyn Metric>>;

/// The carried states and the sums of the metrics of a pass; each batch updates them.
pub(crate) struct BatchState<'a> {
    pub(crate) carried: &'a mut BTreeMap<String, Variable>,
    pub(crate) metrics: &'a [Measure],
    pub(crate) sums: &'a mut [Vec<f64>],
}

impl BatchRunner {
    /// Runs a batch as [`Self::run`] does, adds its values to the metrics, and stores the carried states after the batch in
    /// `carried`.
    pub(crate) fn measure(
        &mut self,
        scope: &mut Scope,
        fed: DataBatch<'_>,
        BatchState { carried, metrics, sums }: BatchState<'_>,
        how: impl for<'a> Fn(&'a [(VarId, &'a Variable)]) -> Run<'a>,
        then: impl FnOnce(&mut Executor) -> Result<()>,
        failed: impl Fn(&mut Scope, &Run<'_>, Error) -> Error,
    ) -> Result<()> {
        self.run(scope, fed, carried, how, then, failed)?;
        for (metric, sums) in metrics.iter().zip(sums) {
            self.update(&*metric.what, sums, fed.batch).map_err(|e| e.called(metric.line))?;
        }
        self.hand_on(carried)
    }

    /// Runs a batch for inference, as [`Self::measure`] does.
    pub(crate) fn infer(
        &mut self,
        scope: &mut Scope,
        fed: DataBatch<'_>,
        carry: BatchState<'_>,
    ) -> Result<()> {
        self.measure(scope, fed, carry, |feeds| Run::infer(feeds), |_| Ok(()), |_, _, e| e)
    }

    /// Adds all batches of the data to the metrics; the carried states start from zeros. Returns `false` if `stop` was set
    /// before the end of the data.
    pub(crate) fn infer_all(
        &mut self,
        scope: &mut Scope,
        data: &dyn Data,
        stop: Option<&Arc<AtomicBool>>,
        metrics: &[Measure],
        sums: &mut [Vec<f64>],
    ) -> Result<bool> {
        let (batches, mut carried) = (data.batches(None, 0)?, BTreeMap::new());
        each_batch(data, batches, stop, |_, batch| {
            self.infer(scope, DataBatch { data, batch }, BatchState { carried: &mut carried, metrics, sums })
        })
    }
}

impl BatchRunner {
    /// Calls `each` with the sums of metrics over each sequence of the data. If the program carries states from batch to batch,
    /// calls `each` with the sums over each batch.
    pub(crate) fn infer_each(
        &mut self,
        scope: &mut Scope,
        data: &dyn Data,
        metrics: &[&dyn Metric],
        each: &mut dyn FnMut(&[Vec<f64>]),
    ) -> Result<()> {
        let (batches, mut carried) = (data.batches(None, 0)?, BTreeMap::new());
        let program = self.executor.program();
        let is_of_rows = |var: &Var| program.spec(var.id()).is_ok_and(Spec::batched);
        // A value without rows, such as a scalar loss, is of a whole batch: each sequence then runs as a batch of its own.
        let alone =
            !self.carries() && !metrics.iter().all(|metric| metric.variables().iter().all(is_of_rows));
        let whole = self.carries();
        each_batch(data, batches, None, |_, batch| {
            let count = self.sequences(batch);
            let shares = (0..count).filter(|_| alone).map(|sequence| self.share(batch, &[sequence]));
            let shares = shares.collect::<Result<Vec<_>>>()?;
            for batch in if alone { &shares } else { std::slice::from_ref(batch) } {
                let of = DataBatch { data, batch };
                self.run(scope, of, &mut carried, |feeds| Run::infer(feeds), |_| Ok(()), |_, _, e| e)?;
                let values = metrics.iter().map(|metric| self.values(*metric)).collect::<Result<Vec<_>>>()?;
                for sequence in 0..if whole { 1 } else { self.sequences(batch) } {
                    let sums = metrics.iter().zip(&values).map(|(metric, values)| {
                        let mut sums = metrics::zeros(*metric)?;
                        let own = values.iter().map(|value| value.take_sequences(&[sequence]));
                        match whole || alone {
                            true => metric.update(&mut sums, values, self.sequences(batch))?,
                            false => metric.update(&mut sums, &own.collect::<Result<Vec<_>>>()?, 1)?,
                        }
                        Ok(sums)
                    });
                    each(&sums.collect::<Result<Vec<_>>>().map_err(|e| batch.noted(e))?);
                }
                self.hand_on(&mut carried)?;
            }
            Ok(())
        })
        .map(drop)
    }
}

/// Returns the variable of an output or of a feed.
pub(crate) fn named<'a>(
    name: &str,
    program: &'a Program,
    outputs: impl Iterator<Item = (&'a str, VarId)>,
) -> Result<VarId> {
    let feeds = program.vars().filter(|(_, var)| var.role == VarRole::Feed);
    let known: Vec<(&str, VarId)> = outputs.chain(feeds.map(|(id, var)| (&*var.name, id))).collect();
    known.iter().find(|(known, _)| *known == name).map(|(_, id)| *id).ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|(known, _)| format!("`{known}`")).collect();
        let expected = format!("a known name ({})", known.join(", "));
        Error::of(ErrorKind::Program, "output or feed", expected, format!("`{name}`"))
    })
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

/// Returns the sums of metrics before the first batch.
///
/// # Errors
/// If a metric has too many sums.
pub(crate) fn zeros_of(metrics: &[Measure]) -> Result<Vec<Vec<f64>>> {
    let mut sums = Vec::new();
    make_sums(metrics, &mut sums)?;
    Ok(sums)
}

/// Makes the sums of the metrics that have no sums yet.
pub(crate) fn make_sums(metrics: &[Measure], sums: &mut Vec<Vec<f64>>) -> Result<()> {
    sums.resize_with(metrics.len(), Vec::new);
    for (metric, sums) in metrics.iter().zip(sums).filter(|(metric, sums)| sums.len() != metric.sums()) {
        *sums = metrics::zeros(&*metric.what).map_err(|e| e.called(metric.line))?;
    }
    Ok(())
}

/// Adds the sums of metrics over some batches to their sums over other batches.
pub(crate) fn merged(mut sums: Vec<Vec<f64>>, other: &[Vec<f64>]) -> Vec<Vec<f64>> {
    sums.iter_mut().zip(other).for_each(|(sums, other)| metrics::add(sums, other));
    sums
}

pub(crate) fn scores(metrics: &[Measure], sums: &[Vec<f64>]) -> Scores {
    let score = |(metric, sums): (&Measure, &Vec<f64>)| (metric.name().to_owned(), metric.value(sums));
    Scores(metrics.iter().zip(sums).map(score).collect(), Vec::new())
}
