//! Evaluation: computes the loss and the metrics of a loaded model on data.

use std::panic::Location;
use std::sync::Arc;

use super::checks::unknown;
use super::model::{Model, registered};
use super::predictor::{MakeMetric, Predictor};
use super::windows::unique;
use crate::checkpoint::MetricDesc;
use crate::data::Data;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, Scope};
use crate::metrics::{Metric, OWN, Scores, metric_of, variables_of};
use crate::on_data::{BatchRunner, Measure, named, scores, zeros_of};
use crate::operator::VarId;
use crate::program::{Program, Var};

impl Predictor {
    /// Defines the metric `name` of the training for [`Self::evaluate`]: a metric that you wrote yourself, of which a checkpoint
    /// has only the name and the variables. `make` gets these variables, in the order of [`Metric::variables`], and returns the
    /// metric.
    ///
    /// ```no_run
    /// use unpadded::metrics::Accuracy; // or a metric of your own
    /// use unpadded::predict::Predictor;
    /// let predictor = Predictor::load("sentiment.ckpt")?;
    /// let predictor = predictor.metric("accuracy", |vars| Accuracy::new(vars[0], vars[1]))?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the training had no metric of this name, or if `make` returns a metric of another name or of other variables.
    #[track_caller]
    pub fn metric<M: Metric + 'static>(
        mut self,
        name: &str,
        make: impl Fn(&[Var]) -> M + Send + Sync + 'static,
    ) -> Result<Self> {
        let known = &self.model().metrics;
        let desc = known.iter().find(|desc| desc.name == name);
        let desc =
            desc.ok_or_else(|| unknown("metric", name, known.iter().map(|desc| &*desc.name))).at_caller()?;
        let make: MakeMetric = Arc::new(move |vars| Box::new(make(vars)));
        own(desc, &self.model().scored, &make).at_caller()?;
        self.own.insert(name.to_owned(), make);
        Ok(self)
    }

    /// Returns the loss and the checkpoint's metrics over all of `data`, bit-identical to [`Trainer::evaluate`] with the same
    /// parameters. The data must have the fields of the development data, including labels. Metrics that you wrote yourself need
    /// [`Self::metric`]; without it, they have no value, and [`Scores::missing`] has their names.
    ///
    /// [`Trainer::evaluate`]: crate::train
    ///
    /// # Errors
    /// If the checkpoint has no metrics, or if an operator that only the metrics need is not registered. Also if the loss is a
    /// metric of your own without [`Self::metric`], or if the data fails, has no batch, or does not fit the feeds.
    #[track_caller]
    pub fn evaluate(&self, data: &dyn Data) -> Result<Scores> {
        let caller = Location::caller();
        self.score(data, caller).map_err(|e| e.called(caller))
    }

    fn score(&self, data: &dyn Data, line: &'static Location<'static>) -> Result<Scores> {
        let Model { scored, metrics, registry, .. } = self.model();
        if metrics.is_empty() {
            return Err(Error::of(ErrorKind::Program, "metrics of the checkpoint", "at least one", "none"));
        }
        let (mut measures, mut missing) = (Vec::new(), Vec::new());
        for desc in metrics {
            let what = match self.own.get(&desc.name) {
                Some(make) => own(desc, scored, make)?,
                // Without the first metric, the loss, another metric would be the first score.
                None if desc.kind == OWN && !measures.is_empty() => {
                    missing.push(desc.name.clone());
                    continue;
                }
                None => metric_of(desc, scored, registry)?,
            };
            measures.push(Measure { what, line });
        }
        let (mut runner, mut weights) = self.runner(measures.iter().map(|metric| &*metric.what))?;
        runner.check(data)?;
        let mut sums = zeros_of(&measures)?;
        runner.infer_all(&mut weights, data, None, &measures, &mut sums)?;
        Ok(Scores(scores(&measures, &sums).0, missing))
    }

    /// Returns the variable of an output or of a feed, such as the labels, for [`Self::evaluate_each`].
    ///
    /// # Errors
    /// If the model has no output or feed of this name.
    #[track_caller]
    pub fn variable(&self, name: &str) -> Result<Var> {
        let Model { scored, outputs, .. } = self.model();
        let id = named(name, scored, outputs.iter().map(|(name, id)| (&**name, *id))).at_caller()?;
        Ok(Var::of_program(id))
    }

    /// Computes metrics, of the training or others, on each sequence of `data` by itself. The callback `each` gets the sums of
    /// each metric over one sequence; the value of a metric over all of `data` is [`Metric::value`] of the added sums. If the
    /// model carries states from batch to batch, `each` gets the sums over one batch.
    ///
    /// ```no_run
    /// # use unpadded::{data::Data, predict::Predictor};
    /// use unpadded::metrics::{Accuracy, Metric}; // or a metric of your own
    /// # fn intervals(predictor: Predictor, data: &dyn Data) -> unpadded::Result<()> {
    /// let accuracy = Accuracy::new(predictor.variable("logits")?, predictor.variable("label")?);
    /// let mut hits = Vec::new();
    /// predictor.evaluate_each(data, &[&accuracy], &mut |sums| hits.push(accuracy.value(&sums[0])))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a metric reads variables that are not of this model, or has too many sums, or if the data fails, has no batch, or does
    /// not fit the feeds.
    #[track_caller]
    pub fn evaluate_each(
        &self,
        data: &dyn Data,
        metrics: &[&dyn Metric],
        each: &mut dyn FnMut(&[Vec<f64>]),
    ) -> Result<()> {
        let (mut runner, mut weights) = self.runner(metrics.iter().copied()).at_caller()?;
        runner.check(data).and_then(|()| runner.infer_each(&mut weights, data, metrics, each)).at_caller()
    }

    /// Compiles the program that computes the values of metrics; returns it with the weights.
    fn runner<'a>(&self, metrics: impl Iterator<Item = &'a dyn Metric>) -> Result<(BatchRunner, Scope)> {
        let Model { scored, registry, weights, carried, .. } = self.model();
        let mut wanted = Vec::new();
        for metric in metrics {
            let own: Vec<VarId> = metric.variables().into_iter().map(Var::id).collect();
            if own.iter().any(|var| var.0 as usize >= scored.vars().len()) {
                let (what, got) = (format!("metric `{}`", metric.name()), "a variable of another program");
                return Err(Error::of(ErrorKind::Program, what, "variables of the model", got));
            }
            wanted.extend(own);
        }
        let looked_at = wanted.clone();
        wanted.retain(|&var| !scored.var(var).persistable);
        let wanted = unique(wanted.into_iter().chain(carried.iter().map(|state| state.after)));
        let program = scored.inference(&wanted)?;
        registered(&program, registry)?;
        let executor = Executor::on(program, registry, &wanted, self.started()?.clone())?;
        Ok((BatchRunner::new(executor, looked_at.into_iter()), weights.clone()))
    }
}

/// Makes a metric of the user's own, whose description is `desc`.
///
/// # Errors
/// If the metric has another name or other variables than its description.
fn own(desc: &MetricDesc, program: &Program, make: &MakeMetric) -> Result<Box<dyn Metric>> {
    let vars = variables_of(desc, program)?;
    let metric = make(&vars);
    let ids = |vars: &[Var]| vars.iter().map(|var| var.id()).collect::<Vec<_>>();
    if metric.name() != desc.name || ids(&metric.variables()) != ids(&vars) {
        let expected =
            format!("a metric of this name that reads the variables `{}`", desc.variables.join("`, `"));
        let got = format!("`{}`, of {} variables", metric.name(), metric.variables().len());
        return Err(Error::of(ErrorKind::Program, format!("metric `{}`", desc.name), expected, got));
    }
    Ok(metric)
}
