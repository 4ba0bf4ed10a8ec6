//! Training steps in parts: each batch is divided into parts of whole sequences, or several batches make one step. The
//! gradients of all parts are summed, and the parameters are updated once per step. Several processes may compute the parts of
//! one step.

use std::cell::RefCell;
use std::ops::Range;

use super::gradients::{PartSums, RunOfPart};
use super::pieces::Piece;
use super::progress::BatchCounts;
use super::step::{CompiledTraining, ReadRows};
use super::step::{diagnosed, unprepared};
use super::trainer::Trainer;
use super::training::TrainingState;
use crate::checkpoint::Checkpoint;
use crate::data::{Batch, Batches, Data};
use crate::error::{CallerSetting, Error, Result};
use crate::executor::{Run, Stage};
use crate::on_data::BatchLoss;
use crate::on_data::{BatchState, DataBatch};
use crate::on_data::{Totals, Whole, zeros_of};
use crate::operator::VarId;
use crate::parallel::{self, by_tokens, in_turn, subtrees};
use crate::store::{WeighedGradient, merge};
use crate::tensor::{FloatsMut, Variable, add_row_numbers};

/// The batches of a step, divided into parts.
pub(super) struct StepParts {
    /// For each part, its share of each batch, in pieces that fit the memory limit; empty for a part that this process does not
    /// read.
    pub(super) shares: Vec<Vec<Piece>>,
    /// For each part, whether the part has any sequence.
    pub(super) occupied: Vec<bool>,
    /// The indices of the parts that this process computes.
    pub(super) own: Range<usize>,
}

impl StepParts {
    fn is_divided(&self) -> bool {
        self.shares.iter().flatten().any(|piece| !piece.is_whole())
    }

    /// Returns whether the step is one batch in one part and one piece.
    pub(super) fn is_single(&self) -> bool {
        self.occupied.len() == 1 && self.shares[0].len() == 1
    }
}

/// The sums of gradients over the parts of this process, and the key of the sum of each subtree of these parts.
pub(super) struct OwnSums {
    pub(super) sums: PartSums,
    pub(super) keys: Vec<(Range<usize>, Option<usize>)>,
}

/// The values that a step computes over all its parts before it computes any gradient, and the totals of each part and
/// batch.
pub(super) struct PartTotals {
    whole: Whole,
    totals: Vec<Vec<Totals>>,
    all: Totals,
}

/// The results of one part of a step, except for the gradients.
#[derive(Clone)]
pub(super) struct PartResult {
    pub(super) totals: Totals,
    /// The sums of each metric over the part.
    pub(super) metrics: Vec<Vec<f64>>,
}

impl Trainer {
    /// Gradient accumulation: makes one step from `batches` batches; the step equals a step on one large batch. The
    /// memory holds the activations of one batch at a time, plus the sum of the gradients. The position's `step` counts
    /// updates, not batches; the last step of an epoch may have fewer batches. An interrupt, [`every`](Self::every) and
    /// [`Until::Steps`](super::Until) take effect at the end of a step.
    ///
    /// The step equals the step on one batch of all samples for every loss that is computed from sums and means over rows. A
    /// mean weighs each batch by its number of rows, a quotient of two sums uses the sums over all batches, and a penalty on
    /// parameters is added once. Some losses have several terms, and the factors of the terms' gradients depend on the values
    /// of the terms, as for the square root of a sum. For such a loss, the step needs a second forward pass. Any other loss is
    /// an error, unless [`weight`](Self::weight) sets the weight of a batch. Gradient clipping applies to the summed gradient.
    /// If the gradients are selected rows, their sum is selected rows, too. An operator that reads a whole batch, such as a
    /// batch norm, reads each of the batches separately; the progress warns of such operators.
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
        (self.settings.division.accumulate, self.step.programs) = (Some(CallerSetting::new(batches)), None);
        self
    }

    /// Sets the number of parts into which each batch is divided. The number must be a power of two. The default is 1; with
    /// [`distributed`](Self::distributed), the default is the number of processes, rounded up to a power of two. The gradients
    /// of the parts are summed along a fixed binary tree.
    ///
    /// The results of a training depend on the number of parts, but not on the number of processes: with 8 parts, 1, 2, 3 and 8
    /// processes compute bit-identical parameters. A checkpoint of one process can be resumed on several processes. Each part
    /// has whole sequences; all parts have about the same number of tokens. With
    /// [carried states](crate::Builder::carried_state), part i of n parts has the sequences i, i + n, i + 2n, … of the batch.
    /// The step equals the step of the whole batch for the same losses as in [`accumulate`](Self::accumulate). Batches of
    /// development data are divided into parts, too.
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
    /// let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(16));
    /// let mut trainer = Trainer::new(net, loss, &Adam::new(0.01).lazy())?.parts(4); // 4 sequences each
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// let report = trainer.fit(&data, &data, Until::Epochs(1))?;
    /// assert_eq!(report.steps, 3); // 16, 16 and 8
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn parts(mut self, parts: u64) -> Self {
        (self.settings.division.parts, self.step.programs) = (Some(CallerSetting::new(parts)), None);
        self
    }

    pub(super) fn batches_a_step(&self) -> u64 {
        self.settings.division.accumulate.as_deref().copied().unwrap_or(1)
    }

    pub(super) fn parts_a_batch(&self) -> u64 {
        let known = self.training.position.parts;
        let of_world = || self.step.world.as_ref().map_or(1, |world| world.size().next_power_of_two() as u64);
        self.settings
            .division
            .parts
            .as_deref()
            .copied()
            .unwrap_or_else(|| if known > 0 { known } else { of_world() })
    }

    /// Returns whether a step has several batches or several parts.
    pub(super) fn is_in_parts(&self) -> bool {
        self.batches_a_step() > 1 || self.parts_a_batch() > 1
    }

    /// Returns a warning for each operator whose results differ between a step in parts and a step of one batch.
    pub(super) fn of_parts(&self) -> Vec<String> {
        let program = self.step.program().ok();
        let whole =
            program.and_then(|program| program.parts.as_ref()).into_iter().flat_map(BatchLoss::whole_batch);
        let (batches, parts) = (self.batches_a_step(), self.parts_a_batch());
        let each = match (batches, parts) {
            (_, 1) => format!("each of the {batches} batches of a step"),
            (1, _) => format!("each of the {parts} parts of a batch"),
            _ => format!("each of the {parts} parts of the {batches} batches of a step"),
        };
        let warned = whole.map(|(operator, line)| {
            format!(
                "warning: `{operator}`, called at {line}, reads a whole batch, and sees {each} by itself: the step differs from a step \
                 of one batch"
            )
        });
        warned.collect()
    }

    /// Checks that a step has the same numbers of batches and parts as the earlier steps of the training.
    pub(super) fn check_step(&self) -> Result<()> {
        let known = &self.training.position;
        for (what, known, ours, given) in [
            (
                "batches that make a step",
                known.accumulate,
                self.batches_a_step(),
                &self.settings.division.accumulate,
            ),
            ("parts of a batch", known.parts, self.parts_a_batch(), &self.settings.division.parts),
        ] {
            if known.max(1) != ours {
                let at = &self.training.position;
                let expected = format!("{}, as in the training so far, which is at {at}", known.max(1));
                let error = Error::new(what, expected, ours.to_string());
                return Err(given.iter().fold(error, |error, given| error.called(given.line)));
            }
        }
        Ok(())
    }

    /// Returns the batches of a step: the batch `first` and, with gradient accumulation, the next ones.
    pub(super) fn batches_of_step(
        &mut self,
        first: Batch,
        rest: &mut Batches,
    ) -> Result<(Vec<Batch>, BatchCounts)> {
        let mut made = BatchCounts::default();
        let mut next = Some(first);
        let mut batches = Vec::new();
        while let Some(batch) = next {
            made.count(&batch);
            batches.push(batch);
            next = if made.batches < self.batches_a_step() { rest.next().transpose()? } else { None };
        }
        Ok((batches, made))
    }

    pub(super) fn loss_parts(&self) -> Result<&BatchLoss> {
        self.step.program()?.parts.as_ref().ok_or_else(unprepared)
    }

    /// Divides batches into parts. Returns the shares of this process's parts, or the shares of all parts if the rows of all
    /// parts must be counted.
    pub(super) fn deal(&mut self, mut batches: Vec<Batch>) -> Result<StepParts> {
        let parts = self.parts_a_batch() as usize;
        let own = self.others().map_or(0..parts, |w| parallel::parts_of(w.rank(), w.size(), parts));
        if self.step.program()?.parts.is_none() {
            let batch = batches.pop().ok_or_else(unprepared)?;
            let shares = vec![vec![Piece::whole(batch, self.runner()?)]];
            return Ok(StepParts { shares, occupied: vec![true], own });
        }
        self.count_collected(&batches)?;
        let whole = self.loss_parts()?.whole_batch().to_vec();
        if parts == 1 {
            let pieces =
                batches.into_iter().map(|batch| self.pieces(batch, &whole)).collect::<Result<Vec<_>>>()?;
            let dealt =
                StepParts { shares: vec![pieces.into_iter().flatten().collect()], occupied: vec![true], own };
            self.step.divided += u64::from(dealt.is_divided());
            return Ok(dealt);
        }
        let looked_at = if self.loss_parts()?.is_late() { own.clone() } else { 0..parts };
        let (mut shares, mut occupied) =
            ((0..parts).map(|_| Vec::new()).collect::<Vec<_>>(), vec![false; parts]);
        for batch in &batches {
            let lengths = self.runner()?.lengths(batch)?;
            let dealt = match self.training.program.carried_states().next() {
                Some(_) => in_turn(lengths.len(), parts),
                None => by_tokens(&lengths, parts),
            };
            for (part, sequences) in dealt.iter().enumerate() {
                occupied[part] |= !sequences.is_empty();
                if own.contains(&part) {
                    let share = self.runner()?.share(batch, sequences)?;
                    shares[part].extend(self.pieces(share, &whole)?);
                } else if looked_at.contains(&part) {
                    let runner = self.runner()?;
                    shares[part].push(Piece::whole(runner.share(batch, sequences)?, runner));
                }
            }
        }
        // If no batch has a sequence, the first part counts as occupied.
        if !occupied.contains(&true) {
            occupied[0] = true;
        }
        let dealt = StepParts { shares, occupied, own };
        self.step.divided += u64::from(dealt.is_divided());
        Ok(dealt)
    }

    /// Computes the values that depend on all parts. If the loss needs only the number of rows of each part, no forward
    /// pass is made; else a forward pass runs over each part.
    pub(super) fn known(&mut self, data: &dyn Data, dealt: &StepParts) -> Result<PartTotals> {
        let counted: Option<Vec<Vec<Totals>>> =
            dealt.shares.iter().map(|shares| self.counted(shares)).collect::<Result<_>>()?;
        let by_count = counted.is_some();
        let totals = match counted {
            Some(totals) => totals,
            None => {
                let mut found = vec![Vec::new(); dealt.occupied.len()];
                let ran = dealt.own.clone().filter(|&part| dealt.occupied[part]).try_for_each(|part| {
                    found[part] = self.totals_of(data, part, &dealt.shares[part])?;
                    Ok(())
                });
                self.share_totals(ran, dealt, &mut found)?;
                found
            }
        };
        let zero = self.loss_parts()?.zero();
        let of_part = |totals: &Vec<Totals>| (!totals.is_empty()).then(|| sum_of(zero.clone(), totals));
        let all = parallel::sum_all(totals.iter().map(of_part).collect(), &mut |sum, other| {
            Ok(sum_of(sum, &[other]))
        })?;
        let all = all.unwrap_or(zero);
        let TrainingState { scope, state, .. } = &mut self.training;
        let CompiledTraining { parts, .. } = self.step.compiled()?;
        let (parts, step) = (parts.as_mut().ok_or_else(unprepared)?, state.position.step);
        let whole = match by_count {
            true => parts.of_counted(scope, &all, step)?,
            false => parts.whole(scope, &all, step)?,
        };
        Ok(PartTotals { whole, totals, all })
    }

    /// Computes the sums of the gradients over this process's parts: one sum for each of the largest [`subtrees`] that
    /// cover these parts. Returns the key of each sum, `None` for a subtree without sequences.
    pub(super) fn gradients(
        &mut self,
        data: &dyn Data,
        dealt: &StepParts,
        known: Option<&PartTotals>,
        results: &mut [Option<PartResult>],
    ) -> Result<OwnSums> {
        let mut keys = Vec::new();
        self.step.compiled()?.read.iter_mut().for_each(|read| read.rows.clear());
        let tables = &self.step.program()?.tables;
        let dealt_param = |param| tables.as_ref().is_some_and(|tables| tables.has(param));
        let sums = PartSums::new(&self.training.program, &self.training.trained, &dealt_param)?;
        let state = RefCell::new((self, sums, results));
        for range in subtrees(dealt.own.clone()) {
            let mut single = |range: &Range<usize>| {
                (range.len() == 1).then(|| {
                    let (trainer, sums, results) = &mut *state.borrow_mut();
                    let part = range.start;
                    if !dealt.occupied[part] {
                        let mut carried = std::mem::take(trainer.carried_of(part));
                        trainer.runner()?.carry_none(&mut carried)?;
                        *trainer.carried_of(part) = carried;
                        return Ok(None);
                    }
                    results[part] = Some(trainer.part(data, part, dealt, known, sums)?);
                    Ok(Some(part))
                })
            };
            let mut join = |left: usize, right: usize| {
                let (trainer, sums, _) = &mut *state.borrow_mut();
                let compiled = trainer.step.compiled()?;
                sums.join(&mut compiled.runner.executor, left, right)
            };
            let key = parallel::sum(range.clone(), &mut single, &mut join)?;
            keys.push((range, key));
        }
        let (trainer, mut sums, _) = state.into_inner();
        // An update is possible only after a run. If no part of this process has a sequence, its first part therefore
        // runs on a batch without sequences.
        if keys.iter().all(|(_, key)| key.is_none()) {
            let metrics = trainer.training.sums.clone();
            trainer.part(data, dealt.own.start, dealt, known, &mut sums)?;
            trainer.training.sums = metrics;
        }
        Ok(OwnSums { sums, keys })
    }

    /// Runs a part's share of each batch, forward and backward; adds the gradients to `sums` and returns the other results.
    fn part(
        &mut self,
        data: &dyn Data,
        part: usize,
        dealt: &StepParts,
        known: Option<&PartTotals>,
        sums: &mut PartSums,
    ) -> Result<PartResult> {
        let shares = &dealt.shares[part];
        // The gradients of a single batch in a single part are used without a change.
        let loss = self.step.program()?.parts.as_ref();
        let unchanged = dealt.is_single() && loss.is_none_or(BatchLoss::is_mean);
        let mut totals = loss.map_or_else(Totals::default, BatchLoss::zero);
        sums.make_room(&mut self.step.compiled()?.runner.executor)?;
        // If each batch is a single part, the run of the part adds to the sums of the metrics directly. With several parts, the
        // sums of each part are merged later.
        let several = self.parts_a_batch() > 1;
        let mut metrics = if several { Some(zeros_of(&self.settings.metrics)?) } else { None };
        let mut ran = Ok(());
        for (at, piece) in shares.iter().enumerate() {
            let run = RunOfPart { key: part, first: at == 0, last: at + 1 == shares.len() };
            ran = self.seeds(part, at, known).and_then(|seeds| {
                let found =
                    self.add_gradients(data, &run, piece, seeds, (&mut *sums, unchanged), metrics.as_mut())?;
                totals.add(&found);
                Ok(())
            });
            if ran.is_err() {
                break;
            }
        }
        if several {
            ran = ran.and_then(|()| sums.finish(part));
        }
        ran.map(|()| PartResult { totals, metrics: metrics.unwrap_or_default() })
    }

    fn seeds(&self, part: usize, batch: usize, known: Option<&PartTotals>) -> Result<Vec<(VarId, Variable)>> {
        let Some(parts) = &self.step.program()?.parts else { return Ok(Vec::new()) };
        match known {
            // A part without sequences has no totals and no gradients.
            Some(PartTotals { whole, totals, all }) => {
                let zero = parts.zero();
                parts.seeds(Some((whole, all)), totals[part].get(batch).unwrap_or(&zero))
            }
            None => parts.seeds(None, &parts.zero()),
        }
    }

    pub(super) fn total(&self, results: &[Option<PartResult>]) -> Result<Totals> {
        let of_part = |result: &Option<PartResult>| result.as_ref().map(|result| result.totals.clone());
        let parts = results.iter().map(of_part).collect();
        let all = parallel::sum_all(parts, &mut |sum, other| Ok(sum_of(sum, &[other])))?;
        all.map_or_else(|| self.loss_parts().map(BatchLoss::zero), Ok)
    }

    /// Completes the gradients in the executor's slots, which have the sums over all parts: multiplies dense gradients by
    /// `factor`, sets the selected rows, and adds the gradients of loss terms that do not depend on rows.
    pub(super) fn set_gradients(
        &mut self,
        mut rows: Vec<Vec<WeighedGradient>>,
        factor: f64,
        whole: &Whole,
    ) -> Result<()> {
        let TrainingState { state, trained, .. } = &self.training;
        let executor = &mut self.step.compiled()?.runner.executor;
        for (at, &(param, gradient)) in trained.iter().enumerate() {
            let mut without_rows = whole.gradients.iter().filter(|(var, _)| *var == gradient);
            let name = &state.program.var(param).name;
            let dense = executor.change_gradient(param, &mut |mut sum| {
                let others: Vec<_> = without_rows.by_ref().map(|(_, other)| other.clone()).collect();
                if factor != 1.0 {
                    sum.scale(factor);
                }
                for other in others {
                    let mut other = other.into_dense()?;
                    sum.add_scaled(&FloatsMut::of(&mut other)?, 1.0);
                }
                Ok(())
            })?;
            if dense {
                continue;
            }
            let mut sum = std::mem::take(&mut rows[at]);
            let one = |(_, gradient): &(VarId, _)| WeighedGradient {
                gradient: Clone::clone(gradient),
                factor: 1.0,
            };
            sum.extend(without_rows.map(one));
            executor.set_gradient(param, merge(sum).map_err(|e| e.variable(name))?)?;
        }
        Ok(())
    }

    /// Returns the totals of each piece, computed from the numbers of rows in the feeds; `None` if the loss needs other
    /// values, too.
    fn counted(&self, pieces: &[Piece]) -> Result<Option<Vec<Totals>>> {
        let parts = self.loss_parts()?;
        let counted = pieces.iter().map(|Piece { batch, .. }| {
            parts.counted(|feed| {
                let name = &parts.body.var(feed).name;
                batch.values.iter().find(|(fed, _)| fed == name).map(|(_, value)| value)
            })
        });
        Ok(counted.collect())
    }

    /// Returns the totals of each piece of a part, computed by a forward pass before the gradients.
    fn totals_of(&mut self, data: &dyn Data, part: usize, pieces: &[Piece]) -> Result<Vec<Totals>> {
        let mut found = Vec::with_capacity(pieces.len());
        let mut all = self.carried_of(part).clone();
        for piece in pieces {
            self.fits(&piece.batch)?;
            let mut carried = piece.take_states(self.runner()?, &mut all)?;
            let TrainingState { scope, state, registry, .. } = &mut self.training;
            let CompiledTraining { runner, parts, .. } = self.step.compiled()?;
            let parts = parts.as_ref().ok_or_else(unprepared)?;
            let step = state.position.step;
            runner.seeds = parts.seeds(None, &parts.zero())?;
            runner.measure(
                scope,
                DataBatch { data, batch: &piece.batch },
                BatchState { carried: &mut carried, metrics: &[], sums: &mut [] },
                |feeds| Run::train(feeds, step).until(Stage::Forward),
                |executor| parts.read(executor).map(|totals| found.push(totals)),
                |scope, run, error| diagnosed(&parts.body, registry, scope, run, error),
            )?;
            piece.put_states(carried, &mut all)?;
        }
        Ok(found)
    }

    /// Runs a piece of a part, forward and backward; adds the gradients to `sums`, with weight 1 if they are to be `unchanged`.
    /// Returns the totals of the piece.
    fn add_gradients(
        &mut self,
        data: &dyn Data,
        run_of: &RunOfPart,
        piece: &Piece,
        seeds: Vec<(VarId, Variable)>,
        (sums, unchanged): (&mut PartSums, bool),
        of_part: Option<&mut Vec<Vec<f64>>>,
    ) -> Result<Totals> {
        let (part, stage) = (run_of.key, self.stage()?);
        self.step.computed = self.step.computed.saturating_add(piece.batch.tokens as u64);
        if self.step.program()?.parts.is_some() {
            self.fits(&piece.batch)?;
        }
        let mut all = std::mem::take(self.carried_of(part));
        let mut carried = piece.take_states(self.runner()?, &mut all)?;
        let metrics = &self.settings.metrics;
        let TrainingState { scope, state, registry, sums: of_epoch, .. } = &mut self.training;
        let Checkpoint { program, position, .. } = state;
        let (compiled, step) = (self.step.compiled()?, position.step);
        let CompiledTraining { runner, parts, read, .. } = compiled;
        let zero = parts.as_ref().map_or_else(Totals::default, BatchLoss::zero);
        let mut totals = zero;
        runner.seeds = seeds;
        let body = parts.as_ref().map_or(&*program, |parts| &parts.body);
        let ran = runner.measure(
            scope,
            DataBatch { data, batch: &piece.batch },
            BatchState { carried: &mut carried, metrics, sums: of_part.unwrap_or(of_epoch) },
            |feeds| Run::train(feeds, step).until(stage),
            |executor| {
                let Some(parts) = &*parts else { return Ok(()) };
                totals = parts.read(executor)?;
                let weight = if unchanged { 1.0 } else { parts.weight(&totals) };
                for ReadRows { ids, rows, .. } in read {
                    add_row_numbers(executor.fetch(*ids)?.storage(), rows);
                }
                sums.add_run(executor, program, run_of, weight)
            },
            |scope, run, error| diagnosed(body, registry, scope, run, error),
        );
        piece.put_states(carried, &mut all)?;
        *self.carried_of(part) = all;
        ran.map(|()| totals)
    }
}

fn sum_of(zero: Totals, parts: &[Totals]) -> Totals {
    parts.iter().fold(zero, |mut sum, part| {
        sum.add(part);
        sum
    })
}
