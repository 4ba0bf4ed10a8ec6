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
use crate::executor::{Executor, Run, Stage};
use crate::kernels::Float;
use crate::predict::DataBatch;
use crate::program::VarId;
use crate::tensor::{Dense, SelectedRows, Storage, StorageKind};
use crate::with_float;

impl Trainer {
    /// Makes one step of so many batches, as if they were one: memory holds one of them at a time, and the sum of their
    /// gradients. `step` counts updates; the batches that are left over at an epoch's end make a step by themselves. An
    /// interrupt, [`every`](Self::every) and [`Until::Steps`](super::Until) wait for the step's end.
    ///
    /// If the loss is the `mean` of losses, one a row, each batch weighs as many as it has rows, so that the step is that of
    /// all batches in one; else each weighs as many as it has sequences. Clipping sees the sum. Gradients of selected rows stay
    /// rows. Operators that look at a whole batch see each by itself.
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

    /// A step of the batch `first` and the next ones. After an error all is as it was before.
    pub(super) fn accumulated(
        &mut self,
        data: &dyn Data,
        first: Batch,
        rest: &mut Batches,
    ) -> Result<BatchesMade> {
        let carried = self.state.carried.clone();
        let sums: Vec<Vec<f64>> = self.metrics.iter_mut().map(|m| m.sums().to_vec()).collect();
        let made = self.sum_up(data, first, rest);
        if made.is_err() {
            self.state.carried = carried;
            for (metric, sums) in self.metrics.iter_mut().zip(&sums) {
                metric.sums().copy_from_slice(sums);
            }
        }
        made
    }

    fn sum_up(&mut self, data: &dyn Data, first: Batch, rest: &mut Batches) -> Result<BatchesMade> {
        let most = self.batches_a_step();
        let (mut sums, mut made, mut next) = (Sums::default(), BatchesMade::default(), Some(first));
        while let Some(batch) = next {
            self.add_gradients(data, &batch, &mut sums)?;
            made.count(&batch);
            next = if made.batches < most { rest.next().transpose()? } else { None };
        }
        let Self { compiled, scope, rate, state, .. } = self;
        let Compiled { runner, .. } = compiled.as_mut().ok_or_else(unprepared)?;
        // The gradients of a batch alone are there as they are.
        if made.batches > 1 {
            sums.hand_over(&mut runner.executor)?;
        }
        runner.executor.update(scope)?;
        state.position.rate = Some(runner.executor.scalar(*rate)?);
        Ok(made)
    }

    /// Runs a batch until its gradients, and adds them.
    fn add_gradients(&mut self, data: &dyn Data, batch: &Batch, sums: &mut Sums) -> Result<()> {
        let Self { compiled, scope, state, metrics, registry, trained, averaged, loss, .. } = self;
        let Checkpoint { program, carried, position, .. } = state;
        let (compiled, step) = (compiled.as_mut().ok_or_else(unprepared)?, position.step);
        let names = |param: VarId| program.var(param).name.as_str();
        compiled.run(
            scope,
            DataBatch { data, batch },
            Goes { carried, metrics },
            |feeds| Run::train(feeds, step).until(Stage::Gradients),
            |executor| {
                if !executor.scalar(*loss)?.is_finite() {
                    return Err(not_finite("loss", names(loss.id())));
                }
                let weight = match averaged {
                    Some(losses) => executor.fetch(*losses)?.shape().first().copied().unwrap_or(1),
                    None => batch.numbers.len(),
                };
                trained
                    .iter()
                    .try_for_each(|&(param, _)| sums.add(executor, param, weight as f64, names(param)))?;
                sums.weight += weight as f64;
                Ok(())
            },
            |scope, run, error| diagnosed(program, registry, scope, run, error),
        )
    }
}

/// The gradients of some batches, each times its weight, by parameter.
#[derive(Default)]
struct Sums {
    gradients: BTreeMap<VarId, Sum>,
    weight: f64,
}

enum Sum {
    Dense(Dense),
    /// The rows of each batch.
    Rows(Vec<SelectedRows>),
}

impl Sums {
    fn add(&mut self, executor: &mut Executor, param: VarId, weight: f64, name: &str) -> Result<()> {
        let gradient = executor.gradient(param)?;
        gradient.check_finite("gradient").map_err(|_| not_finite("gradient of a batch", name))?;
        match (gradient, self.gradients.get_mut(&param)) {
            (Storage::Dense(gradient), Some(Sum::Dense(sum))) => add_scaled(sum, &gradient, weight)?,
            (Storage::Dense(mut gradient), None) => {
                scale(&mut gradient, weight)?;
                self.gradients.insert(param, Sum::Dense(gradient));
            }
            (Storage::SelectedRows(rows), Some(Sum::Rows(parts))) => parts.push(rows.scale(weight)?),
            (Storage::SelectedRows(rows), None) => {
                self.gradients.insert(param, Sum::Rows(vec![rows.scale(weight)?]));
            }
            (other, _) => return Err(of_storage(other.kind(), name)),
        }
        Ok(())
    }

    /// Puts the weighted mean in the place of the last batch's gradients.
    fn hand_over(self, executor: &mut Executor) -> Result<()> {
        let share = if self.weight > 0.0 { 1.0 / self.weight } else { 1.0 };
        for (param, sum) in self.gradients {
            let mean: Storage = match sum {
                Sum::Dense(mut sum) => {
                    scale(&mut sum, share)?;
                    sum.into()
                }
                Sum::Rows(parts) => {
                    let height = parts.first().map_or(0, SelectedRows::height);
                    let ids = parts.iter().flat_map(|part| part.row_ids()).copied().collect();
                    let values: Vec<&Dense> = parts.iter().map(SelectedRows::value).collect();
                    let mut values = Dense::concat_rows(&values)?;
                    drop(parts);
                    scale(&mut values, share)?;
                    SelectedRows::new(height, ids, values)?.into()
                }
            };
            executor.set_gradient(param, mean)?;
        }
        Ok(())
    }
}

fn add_scaled(sum: &mut Dense, gradient: &Dense, weight: f64) -> Result<()> {
    with_float!(sum.dtype(), T => {
        let weight = T::from_f64(weight);
        for (sum, &g) in sum.as_mut_slice::<T>()?.iter_mut().zip(gradient.as_slice::<T>()?) {
            *sum += weight * g;
        }
        Ok(())
    })
}

fn scale(values: &mut Dense, factor: f64) -> Result<()> {
    with_float!(values.dtype(), T => {
        let factor = T::from_f64(factor);
        values.as_mut_slice::<T>()?.iter_mut().for_each(|x| *x *= factor);
        Ok(())
    })
}

fn not_finite(what: &str, name: &str) -> Error {
    let got = "NaN or infinity; nothing was updated";
    Error::of(ErrorKind::NotFinite, what, "finite numbers", got).variable(name)
}

fn of_storage(kind: StorageKind, name: &str) -> Error {
    Error::of(ErrorKind::Program, "gradient to accumulate", "dense, or selected rows", kind.to_string())
        .variable(name)
}
