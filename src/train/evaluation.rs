//! Evaluation of a training: a pass over data, in one process or in parts on several.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::trainer::Trainer;
use crate::data::{Batch, Data};
use crate::error::Result;
use crate::metrics::Scores;
use crate::on_data::{BatchState, DataBatch, Measure, each_batch, merged, scores, zeros_of};
use crate::parallel::{self, Message, Reader, in_turn};
use crate::tensor::Variable;

impl Trainer {
    /// Returns the loss and the metrics over all of `data`, computed with the current parameters (with their averages, if
    /// [`Self::averaged`] was called). The training is unchanged, with one exception: pending [moves](crate::executor::settle)
    /// of rows are applied, which may change the last digits of later results. All processes of a
    /// [distributed](Self::distributed) training must call `evaluate` together.
    ///
    /// # Errors
    /// Returns an error if a setting, a batch or a feed does not fit the model; if the data returns an error or has no batch.
    #[track_caller]
    pub fn evaluate(&mut self, data: &dyn Data) -> Result<Scores> {
        let caller = Location::caller();
        let found =
            self.prepare(None).and_then(|()| self.check(data)).and_then(|()| self.pass(data, Stop::Never));
        self.reported(found).map(Option::unwrap_or_default).map_err(|e| e.called(caller))
    }

    /// Evaluates as [`Self::evaluate`] does; returns the tables of the metrics that have a table
    /// ([`Metric::table`](crate::metrics::Metric::table)), by the names of the metrics.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    #[track_caller]
    pub fn tables(&mut self, data: &dyn Data) -> Result<Vec<(String, String)>> {
        let caller = Location::caller();
        let found = self.prepare(None).and_then(|()| self.check(data)).and_then(|()| {
            self.pass_then(data, Stop::Never, |metrics, sums| {
                let table = |(metric, sums): (&Measure, &Vec<f64>)| {
                    Some((metric.name().to_owned(), metric.table(sums)?))
                };
                metrics.iter().zip(sums).filter_map(table).collect()
            })
        });
        self.reported(found).map(Option::unwrap_or_default).map_err(|e| e.called(caller))
    }

    /// Evaluates in one pass over the data; returns `None` if an interrupt ended the pass.
    pub(super) fn pass(&mut self, data: &dyn Data, stop: Stop) -> Result<Option<Scores>> {
        self.pass_then(data, stop, scores)
    }

    /// Evaluates in one pass over the data, then calls `ask` with the metrics; returns the result of `ask`, or `None` if an
    /// interrupt ended the pass.
    fn pass_then<T>(
        &mut self,
        data: &dyn Data,
        stop: Stop,
        ask: impl FnOnce(&[Measure], &[Vec<f64>]) -> T,
    ) -> Result<Option<T>> {
        let mut sums = zeros_of(&self.settings.metrics)?;
        self.step.collected = 0;
        // If they were kept, the buffers of divided steps would use memory in addition to the buffers of the
        // evaluation.
        self.step.switch(false);
        let found = self.settle().and_then(|()| {
            self.with_averages(|trainer| match trainer.parts_a_batch() {
                1 => trainer.infer(data, stop, &mut sums),
                _ => trainer.infer_in_parts(data, stop, &mut sums),
            })
        });
        found.map(|whole| whole.then(|| ask(&self.settings.metrics, &sums)))
    }

    /// Adds all batches of `data` to the sums of the metrics; returns `false` if an interrupt ended the pass before the end of the data.
    fn infer(&mut self, data: &dyn Data, stop: Stop, sums: &mut [Vec<f64>]) -> Result<bool> {
        let (flag, mut carried) = (self.step.stop.clone(), BTreeMap::new());
        each_batch(data, self.batches_of(data, None, 0)?, stop.flag(&flag), |_, batch| {
            self.infer_batch(data, batch, &mut carried, sums)
        })
    }

    /// Adds a batch to the sums of the metrics, in pieces if the batch does not fit the memory limit.
    fn infer_batch(
        &mut self,
        data: &dyn Data,
        batch: &Batch,
        carried: &mut BTreeMap<String, Variable>,
        sums: &mut [Vec<f64>],
    ) -> Result<()> {
        if self.fits(batch)? {
            let compiled = self.step.compiled()?;
            let (scope, metrics) = (&mut self.training.scope, &self.settings.metrics);
            return compiled.runner.infer(
                scope,
                DataBatch { data, batch },
                BatchState { carried, metrics, sums },
            );
        }
        let whole = self.whole_in_evaluation()?;
        for piece in self.pieces(batch.clone(), &whole)? {
            self.fits(&piece.batch)?;
            let mut own = piece.take_states(self.runner()?, carried)?;
            let compiled = self.step.compiled()?;
            let (scope, metrics) = (&mut self.training.scope, &self.settings.metrics);
            let of = DataBatch { data, batch: &piece.batch };
            compiled.runner.infer(scope, of, BatchState { carried: &mut own, metrics, sums })?;
            piece.put_states(own, carried)?;
        }
        Ok(())
    }

    /// Adds the batches of a pass to the sums of the metrics. Each part has its own sums, and the sums of all parts are merged
    /// along the tree of parts. Returns `false` if an interrupt ended the pass before the end of the data.
    fn infer_in_parts(&mut self, data: &dyn Data, stop: Stop, of_data: &mut Vec<Vec<f64>>) -> Result<bool> {
        let parts = self.parts_a_batch() as usize;
        let others = self.others().cloned();
        let own = others.as_ref().map_or(0..parts, |w| parallel::parts_of(w.rank(), w.size(), parts));
        let carries = self.training.program.carried_states().next().is_some();
        let mut sums = vec![of_data.clone(); parts];
        let mut carried: Vec<BTreeMap<String, Variable>> = vec![BTreeMap::new(); parts];
        let alone = if others.is_some() { Stop::Never } else { stop };
        let flag = self.step.stop.clone();
        // The rows of dealt tables are pulled for all batches that the processes evaluate at the same time.
        let (deals, mut round, mut left) = (self.own_rows().is_some(), Vec::new(), false);
        let ran = each_batch(data, self.batches_of(data, None, 0)?, alone.flag(&flag), |number, batch| {
            let dealt = match carries {
                true => in_turn(self.runner()?.sequences(batch), parts),
                false => Vec::new(),
            };
            for part in own.clone() {
                let share = match dealt.get(part) {
                    Some(sequences) => Some(self.runner()?.share(batch, sequences)?),
                    None if number % parts == part => None,
                    None => continue,
                };
                if share.as_ref().is_some_and(|share| self.runner().is_ok_and(|r| r.sequences(share) == 0)) {
                    self.runner()?.carry_none(&mut carried[part])?;
                    continue;
                }
                if deals {
                    round.push((part, share.unwrap_or_else(|| batch.clone())));
                    continue;
                }
                self.infer_batch(data, share.as_ref().unwrap_or(batch), &mut carried[part], &mut sums[part])?;
            }
            left = deals && !carries && !(number + 1).is_multiple_of(parts);
            if deals && !left {
                self.infer_round(data, &mut round, &mut carried, &mut sums)?;
            }
            Ok(())
        });
        let ran = ran.and_then(|ended| {
            if left {
                self.infer_round(data, &mut round, &mut carried, &mut sums)?;
            }
            Ok(ended)
        });
        let mut whole = true;
        if others.is_none() {
            whole = ran.clone()?;
        }
        if let Some(world) = others {
            let mine = ran.map(|_| {
                let mut message = Message::default();
                message.count(usize::from(self.step.stop.load(Ordering::SeqCst)));
                sums[own].iter().flatten().for_each(|sums| message.sums(sums));
                message.0
            });
            for (rank, message) in world.agree("evaluation", mine)?.iter().enumerate() {
                let mut message = Reader(message);
                whole &= message.number()? == 0 || stop == Stop::Never;
                for part in parallel::parts_of(rank, world.size(), parts) {
                    sums[part].iter_mut().try_for_each(|sums| message.sums(sums))?;
                }
            }
        }
        let parts = sums.into_iter().map(Some).collect();
        if let Some(sums) = parallel::sum_all(parts, &mut |sum, other| Ok(merged(sum, &other)))? {
            *of_data = sums;
        }
        Ok(whole)
    }
}

impl Trainer {
    /// Adds batches of several parts to the sums of their parts, after the rows of dealt tables that they read were pulled.
    fn infer_round(
        &mut self,
        data: &dyn Data,
        round: &mut Vec<(usize, Batch)>,
        carried: &mut [BTreeMap<String, Variable>],
        sums: &mut [Vec<Vec<f64>>],
    ) -> Result<()> {
        self.pull_rows(data, &round.iter().map(|(_, batch)| batch).collect::<Vec<_>>(), None)?;
        let mut each = round.drain(..);
        let ran = each.try_for_each(|(part, batch)| {
            self.infer_batch(data, &batch, &mut carried[part], &mut sums[part])
        });
        drop(each);
        self.release_rows().and(ran)
    }
}

/// Whether the stop flag may end a pass before the end of the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Never,
    WhenAsked,
}

impl Stop {
    /// Returns the flag that can end the pass; `None` if no flag can.
    fn flag(self, flag: &Arc<AtomicBool>) -> Option<&Arc<AtomicBool>> {
        (self == Self::WhenAsked).then_some(flag)
    }
}
