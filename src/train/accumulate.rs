//! Several batches a step: their gradients are summed up, and one update follows.

use std::collections::BTreeMap;

use super::compiled::{Compiled, Goes};
use super::progress::BatchesMade;
use super::told::Told;
use super::trainer::Trainer;
use super::{diagnosed, unprepared};
use crate::checkpoint::Checkpoint;
use crate::data::{Batch, Batches, Data};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Parts, Run, Stage, Totals};
use crate::predict::DataBatch;
use crate::program::VarId;
use crate::store::{Part, merge};
use crate::tensor::{StorageKind, Variable};

/// By parameter: what its gradient is the sum of, each times its factor.
type Sums = BTreeMap<VarId, Vec<Part>>;

impl Trainer {
    /// Makes one step of several batches, as if they were one: memory holds what is computed from one of them at a time, and the sum
    /// of their gradients. `step` counts updates; the batches that are left over at an epoch's end make a step by themselves. An
    /// interrupt, [`every`](Self::every) and [`Until::Steps`](super::Until) wait for the step's end.
    ///
    /// The step is that of all batches in one, for every loss that is computed from sums and means over rows: a mean weighs
    /// each batch by its rows, a quotient of two sums adds up both, a penalty on parameters counts once. A loss of several terms
    /// whose factors depend on their values, as the square root of a sum, costs a second forward pass. Another loss is an error,
    /// unless [`weight`](Self::weight) says how much a batch counts. Clipping sees the sum. Gradients of selected rows stay
    /// rows. Operators that look at a whole batch, as a batch norm, see each by itself; the progress warns of them.
    ///
    /// ```
    /// # use unpadded::data::{Batching, Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Adam;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8).sparse()).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(4));
    /// let mut trainer = Trainer::new(net, loss, &Adam::new(0.01).lazy())?.accumulate(4); // steps of 16 samples
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// let report = trainer.fit(&data, &data, Until::Epochs(1))?;
    /// assert_eq!(report.steps, 3); // 16, 16 and 8
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn accumulate(mut self, batches: u64) -> Self {
        (self.accumulate, self.compiled) = (Some(Told::new(batches)), None);
        self
    }

    /// How many batches make a step.
    pub(super) fn batches_a_step(&self) -> u64 {
        self.accumulate.as_deref().copied().unwrap_or(1)
    }

    /// Warns of operators whose results for a step of several batches are not those for one batch of all.
    pub(super) fn of_parts(&self) -> Vec<String> {
        let whole = self.compiled.iter().flat_map(|compiled| &compiled.parts).flat_map(Parts::whole_batch);
        let warned = whole.map(|(operator, line)| {
            format!(
                "warning: `{operator}`, called at {line}, looks at a whole batch, and sees each of the {} batches of a step by \
                 itself: the step is not that of one batch",
                self.batches_a_step()
            )
        });
        warned.collect()
    }

    /// Checks that so many batches made a step so far.
    pub(super) fn check_accumulated(&self) -> Result<()> {
        let (known, ours) = (self.state.position.accumulate.max(1), self.batches_a_step());
        if known == ours {
            return Ok(());
        }
        let expected = format!("{known}, as in the training so far, which stands at {}", self.state.position);
        let error = Error::new("batches that make a step", expected, ours.to_string());
        Err(self.accumulate.iter().fold(error, |error, told| error.called(told.line)))
    }

    /// A step of the batch `first` and the next ones.
    pub(super) fn accumulated(
        &mut self,
        data: &dyn Data,
        first: Batch,
        rest: &mut Batches,
    ) -> Result<BatchesMade> {
        let mut made = BatchesMade::default();
        let mut next = Some(first);
        let mut batches = Vec::new();
        while let Some(batch) = next {
            made.count(&batch);
            batches.push(batch);
            next = if made.batches < self.batches_a_step() { rest.next().transpose()? } else { None };
        }
        let (mut sums, mut all) = (Sums::new(), self.parts()?.zero());
        // Factors that depend on all batches are known first, or last.
        let whole = match self.parts()?.is_late() {
            true => None,
            false => {
                let counted = self.counted(&batches)?;
                let known = match &counted {
                    Some(counted) => counted.clone(),
                    None => self.totals_of(data, &batches)?,
                };
                let Self { compiled, scope, state, .. } = self;
                let Compiled { parts, .. } = compiled.as_mut().ok_or_else(unprepared)?;
                let (parts, step) = (parts.as_mut().ok_or_else(unprepared)?, state.position.step);
                let known_all = sum_of(parts.zero(), &known);
                let whole = match counted {
                    Some(_) => parts.of_counted(scope, &known_all, step)?,
                    None => parts.whole(scope, &known_all, step)?,
                };
                Some((whole, known, known_all))
            }
        };
        for (at, batch) in batches.iter().enumerate() {
            let seeds = match &whole {
                Some((whole, known, all)) => self.parts()?.seeds(Some((whole, all)), &known[at])?,
                None => self.parts()?.seeds(None, &self.parts()?.zero())?,
            };
            all.add(&self.add_gradients(data, batch, seeds, &mut sums)?);
        }
        let Self { compiled, scope, rate, state, trained, .. } = self;
        let Compiled { runner, parts, .. } = compiled.as_mut().ok_or_else(unprepared)?;
        let parts = parts.as_mut().ok_or_else(unprepared)?;
        let whole = parts.whole(scope, &all, state.position.step)?;
        let names: Vec<&str> =
            trained.iter().map(|(param, _)| state.program.var(*param).name.as_str()).collect();
        // The gradients of a batch alone are there as they are.
        if made.batches > 1 || !parts.is_mean() {
            let factor = parts.factor(&whole, &all);
            for (&(param, gradient), name) in trained.iter().zip(names) {
                let mut sum = sums.remove(&param).unwrap_or_default();
                sum.iter_mut().for_each(|part| part.factor *= factor);
                let without_rows = whole.gradients.iter().filter(|(of, _)| *of == gradient);
                sum.extend(
                    without_rows.map(|(_, gradient)| Part { gradient: gradient.clone(), factor: 1.0 }),
                );
                runner.executor.set_gradient(param, merge(sum).map_err(|e| e.variable(name))?)?;
            }
        }
        runner.executor.update(scope)?;
        state.position.rate = Some(runner.executor.scalar(*rate)?);
        Ok(made)
    }

    fn parts(&self) -> Result<&Parts> {
        self.compiled.as_ref().and_then(|compiled| compiled.parts.as_ref()).ok_or_else(unprepared)
    }

    /// The totals of each batch from its numbers of rows, if these are enough.
    fn counted(&self, batches: &[Batch]) -> Result<Option<Vec<Totals>>> {
        let parts = self.parts()?;
        let counted = batches.iter().map(|batch| {
            parts.counted(|feed| {
                let name = &parts.body.var(feed).name;
                batch.values.iter().find(|(fed, _)| fed == name).map(|(_, value)| value)
            })
        });
        Ok(counted.collect())
    }

    /// The totals of each batch, by a forward pass before its gradients.
    fn totals_of(&mut self, data: &dyn Data, batches: &[Batch]) -> Result<Vec<Totals>> {
        let mut found = Vec::with_capacity(batches.len());
        let mut carried = self.state.carried.clone();
        for batch in batches {
            let Self { compiled, scope, state, registry, .. } = self;
            let Compiled { runner, parts, .. } = compiled.as_mut().ok_or_else(unprepared)?;
            let parts = parts.as_ref().ok_or_else(unprepared)?;
            let step = state.position.step;
            runner.seeds = parts.seeds(None, &parts.zero())?;
            runner.run(
                scope,
                DataBatch { data, batch },
                &mut carried,
                |feeds| Run::train(feeds, step).until(Stage::Forward),
                |executor| parts.read(executor).map(|totals| found.push(totals)),
                |scope, run, error| diagnosed(&parts.body, registry, scope, run, error),
            )?;
            runner.hand_on(&mut carried)?;
        }
        Ok(found)
    }

    /// Runs a batch until its gradients, and adds them. Its totals.
    fn add_gradients(
        &mut self,
        data: &dyn Data,
        batch: &Batch,
        seeds: Vec<(VarId, Variable)>,
        sums: &mut Sums,
    ) -> Result<Totals> {
        let Self { compiled, scope, state, metrics, registry, trained, .. } = self;
        let Checkpoint { program, carried, position, .. } = state;
        let (compiled, step) = (compiled.as_mut().ok_or_else(unprepared)?, position.step);
        let parts = compiled.parts.take().ok_or_else(unprepared)?;
        compiled.runner.seeds = seeds;
        let mut totals = parts.zero();
        let names = |param: VarId| program.var(param).name.as_str();
        let ran = compiled.run(
            scope,
            DataBatch { data, batch },
            Goes { carried, metrics },
            |feeds| Run::train(feeds, step).until(Stage::Gradients),
            |executor| {
                totals = parts.read(executor)?;
                let weight = parts.weight(&totals);
                trained.iter().try_for_each(|&(param, _)| add(sums, executor, param, weight, names(param)))
            },
            |scope, run, error| diagnosed(&parts.body, registry, scope, run, error),
        );
        compiled.parts = Some(parts);
        ran.map(|()| totals)
    }
}

fn sum_of(zero: Totals, parts: &[Totals]) -> Totals {
    parts.iter().fold(zero, |mut sum, part| {
        sum.add(part);
        sum
    })
}

/// Adds the gradient of a parameter in the last run, times `weight`. Selected rows are kept until all are there.
fn add(sums: &mut Sums, executor: &mut Executor, param: VarId, weight: f64, name: &str) -> Result<()> {
    let gradient = executor.gradient(param)?;
    gradient.check_finite("gradient").map_err(|_| not_finite("gradient of a batch", name))?;
    let rows = gradient.kind() == StorageKind::SelectedRows;
    let sum = sums.entry(param).or_default();
    sum.push(Part { gradient, factor: weight });
    if !rows {
        let gradient = merge(std::mem::take(sum)).map_err(|e| e.variable(name))?;
        sum.push(Part { gradient, factor: 1.0 });
    }
    Ok(())
}

fn not_finite(what: &str, name: &str) -> Error {
    let got = "NaN or infinity; nothing was updated";
    Error::of(ErrorKind::NotFinite, what, "finite numbers", got).variable(name)
}
