//! Training: the training loop, its progress, and saving and resuming a training.
//!
//! [`Trainer`] holds a model and the settings of its training. This file has the training loop in three levels, from top to
//! bottom: a run ([`Trainer::fit`]), an epoch, a step.

mod averaging;
#[cfg(feature = "terminal")]
mod bar;
mod best;
mod dealt;
mod evaluation;
mod exchange;
mod gradients;
#[cfg(not(feature = "terminal"))]
mod headless;
mod parts;
mod pieces;
mod plateau;
mod precision;
mod prepare;
mod processes;
mod progress;
mod rate;
mod report;
mod resume;
mod settings;
#[cfg(feature = "terminal")]
mod signal;
mod start;
mod step;
mod tables;
#[cfg(test)]
mod tests;
mod trainer;
mod training;
mod until;

pub(crate) use crate::checkpoint::EpochScores;
pub use averaging::Averaging;
pub use plateau::Plateau;
pub use processes::MOST_PARTS;
pub use progress::Progress;
pub use report::{Process, Report, StopReason};
pub use start::{LoadedParameters, ParameterMismatch};
pub use trainer::Trainer;
pub use until::{Steps, Until};

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::checkpoint::{Checkpoint, Position};
use crate::data::{Batch, Batches, Data, until_stopped};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, MemoryUse, Run, Stage};
use crate::metrics::Scores;
use crate::on_data::{DataBatch, make_sums, scores};
use crate::tensor::Variable;
use crate::wire::Target;
use evaluation::Stop;
#[cfg(not(feature = "terminal"))]
use headless::{NoBar as Bar, NoInterrupts as Interrupts};
use parts::StepParts;
use progress::{BatchCounts, Console, UNOPTIMISED};
use settings::{LossSettings, TrainingSettings};
#[cfg(feature = "terminal")]
pub use signal::{catch_interrupts, interrupt_signals};
use step::Programs;
use step::{diagnosed, finite};
use training::TrainingState;
#[cfg(feature = "terminal")]
use {bar::Bar, signal::Interrupts};

impl Trainer {
    /// Trains on `train` until the end that `until` sets, and evaluates on `dev` after each epoch. If the training has
    /// already reached this end (0 epochs, or a finished training that was resumed), `fit` only evaluates.
    ///
    /// [Carried states](crate::Builder::carried_state) start from zeros in each epoch and in each evaluation. If a batch has
    /// fewer sequences than the previous batch, it continues the states of the first sequences, and the other states are
    /// dropped. A batch with more sequences than the previous batch is an error. [`Continuous`](crate::data::Continuous) makes
    /// batches for carried states.
    ///
    /// With the feature `terminal`, at an interrupt (Ctrl-C, or the signals SIGTERM and SIGHUP, which containers and schedulers send), `fit` finishes the
    /// step, saves the checkpoint and returns. A second interrupt ends the program at once. On Linux, SIGHUP does not interrupt
    /// if it was ignored when the program started, for example by `nohup`.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - A setting, a batch or a feed does not fit the model.
    /// - The data returns an error.
    /// - A loss or a gradient is not finite.
    /// - The checkpoint cannot be written, or another training saves to its file. Except for a full disk, both are detected
    ///   before the first step.
    /// - The best epoch so far was chosen by other development data or by another metric ([`Self::remeasure_best`]).
    ///
    /// The error names the position of the last checkpoint.
    #[track_caller]
    pub fn fit(&mut self, train: &dyn Data, dev: &dyn Data, until: Until) -> Result<Report> {
        let caller = Location::caller();
        let report = self.fitted(train, dev, until);
        self.reported(report).map_err(|e| e.called(caller))
    }

    fn fitted(&mut self, train: &dyn Data, dev: &dyn Data, until: Until) -> Result<Report> {
        self.synchronize(train, dev, until)?;
        let remeasure = self.checked(train, dev)?;
        let file = self.claim(until, remeasure)?;
        let whole_batch = self.of_batches(dev)?;
        let resumed = self.training.resumed.then(|| self.training.position.clone());
        self.training.resumed = false;
        let mut progress = match self.is_first() {
            true => std::mem::take(&mut self.settings.progress),
            false => Progress::Quiet,
        };
        let mut console = Console::new(&mut progress, until, train.batch_count(), &self.training.position);
        if !std::mem::replace(&mut self.step.warned, true) {
            UNOPTIMISED.into_iter().for_each(|slow| console.say(slow));
            self.training.net.warnings().iter().for_each(|warning| console.say(&warning.to_string()));
            self.without_gradient().iter().for_each(|warning| console.say(warning));
            self.of_parts().iter().for_each(|warning| console.say(warning));
            whole_batch.iter().for_each(|warning| console.say(warning));
            self.of_processes().iter().for_each(|line| console.say(line));
        }
        if let Some(position) = &resumed {
            let left = remeasure || self.over(until).is_none();
            let complete = if left { "" } else { ": the training is complete" };
            console.say(&format!("resumed at {position}{complete}"));
            self.other_limit().iter().for_each(|line| console.say(line));
        }
        let mut last = Scores::default();
        (self.step.largest, self.step.divided) = (MemoryUse::default(), 0);
        let began = self.measure();
        let ended = Interrupts::catch(&self.step.stop).and_then(|_caught| {
            if remeasure {
                let measured = self.measure_best_anew(dev, &mut console)?;
                self.save_checkpoint(file.as_ref())?;
                if !measured {
                    return Ok(StopReason::Interrupted);
                }
            }
            self.epochs(train, dev, until, file.as_ref(), &mut console, &mut last)
        });
        self.step.stop.store(false, Ordering::SeqCst);
        let ended = ended.and_then(|ended| Ok((ended, self.measured(began)?)));
        let report = ended.map(|(ended, processes)| Report {
            ended,
            epochs: self.training.position.epoch,
            steps: self.training.position.step,
            resumed,
            best: self.training.position.best,
            history: self.training.history.clone(),
            last,
            tokens: console.tokens,
            padded: console.padded,
            seconds: console.seconds().as_secs_f64(),
            tokens_per_s: console.tokens_per_s(),
            unit: self.unit(),
            memory: self.step.largest,
            divided: self.step.divided,
            processes,
        });
        drop(file);
        if let (Ok(Report { ended: StopReason::Interrupted, .. }), Some(file)) =
            (&report, &self.settings.file)
        {
            console.say(&format!(
                "interrupted; saved in `{}`, to resume at {}",
                file.display(),
                self.training.position
            ));
        }
        drop(console);
        if self.is_first() {
            self.settings.progress = progress;
        }
        report.map_err(|e| e.noted(self.where_to_resume()))
    }

    fn epochs(
        &mut self,
        train: &dyn Data,
        dev: &dyn Data,
        until: Until,
        file: Option<&Target>,
        console: &mut Console<'_>,
        last: &mut Scores,
    ) -> Result<StopReason> {
        loop {
            if let Some(ended) = self.over(until) {
                if last.0.is_empty() {
                    *last = self.pass(dev, Stop::Never)?.unwrap_or_default();
                }
                return Ok(ended);
            }

            if let Some(ended) = self.train_epoch(train, until, file, console)? {
                return Ok(ended);
            }
            if let Some(ended) = self.end_epoch(dev, file, console, last)? {
                return Ok(ended);
            }
        }
    }

    /// Trains on the batches of an epoch, from the first batch that is not finished yet. Returns the reason if the training ends
    /// within the epoch.
    fn train_epoch(
        &mut self,
        train: &dyn Data,
        until: Until,
        file: Option<&Target>,
        console: &mut Console<'_>,
    ) -> Result<Option<StopReason>> {
        let (epoch, from) = (self.training.position.epoch, self.training.position.batch);
        let batches = self.batches_of(train, Some(epoch), from)?;
        let (mut batches, given_up) = match self.others() {
            // Several processes must stop after the same step, so the stop flag of one process must not stop the
            // reading of its data early.
            Some(_) => (batches, Arc::default()),
            None => until_stopped(train, batches, &self.step.stop)?,
        };
        console.resume_clock();
        loop {
            if self.is_stopping() {
                self.save_checkpoint(file)?;
                return Ok(Some(StopReason::Interrupted));
            }
            let next = batches.next();
            if given_up.load(Ordering::SeqCst) {
                continue;
            }
            let Some(batch) = next.transpose()? else { break };
            if until.reached(&self.training.position) {
                self.save_checkpoint(file)?;
                return Ok(Some(StopReason::Done));
            }

            let before = self.step.divided;
            // A step makes the forward pass, the backward pass and the updates, checks that all numbers are finite,
            // and changes the metrics and the carried states.
            let made = self.at_rate(|trainer| trainer.step(train, batch, &mut batches));
            if given_up.load(Ordering::SeqCst) {
                continue;
            }
            let made = made?;
            if before == 0 && self.step.divided > 0 {
                console.say(&self.first_division(&made));
            }
            let position = &mut self.training.state.position;
            position.batch += made.batches;
            position.step += 1;
            position.tokens = position.tokens.saturating_add(made.tokens);
            console.made(&made);
            console.step(position, position.rate, || scores(&self.settings.metrics, &self.training.sums));
            let step = position.step;
            if self.settings.every.as_ref().is_some_and(|steps| step.is_multiple_of(**steps)) {
                console.pause_clock();
                self.save_checkpoint(file)?;
                console.resume_clock();
            }
        }
        console.pause_clock();
        match self.training.position.batch {
            0 => Err(Error::new("batches of an epoch of training data", "at least one", "none")),
            _ => Ok(None),
        }
    }

    /// Ends an epoch: evaluates, decides whether the epoch is the best, and saves. Returns the reason if the training ends.
    fn end_epoch(
        &mut self,
        dev: &dyn Data,
        file: Option<&Target>,
        console: &mut Console<'_>,
        last: &mut Scores,
    ) -> Result<Option<StopReason>> {
        let Some(found) = self.pass(dev, Stop::WhenAsked)? else {
            self.save_checkpoint(file)?;
            return Ok(Some(StopReason::Interrupted));
        };
        let better = self.decide(&found, dev)?;
        let of_train = scores(&self.settings.metrics, &self.training.sums);
        let rate = self.training.position.rate;
        console.epoch(&self.training.position, [&of_train, &found], rate, better);
        self.lower_rate(better)?.iter().for_each(|line| console.say(line));
        let state = &mut self.training.state;
        state.position.epoch += 1;
        let Position { epoch, step, rate, .. } = state.position;
        let dev = found.0.clone();
        state.history.push(EpochScores { epoch, step, rate, train: of_train.0, dev, best: better });
        *last = found;
        state.position.batch = 0;
        state.carried.clear();
        self.step.carried.clear();
        self.training.sums.iter_mut().for_each(|sums| sums.fill(0.0));
        self.save_checkpoint(file)?;
        let stops = match (&mut self.settings.on_epoch, self.training.state.history.last()) {
            (Some(on_epoch), Some(scores)) => on_epoch(scores).is_break(),
            _ => false,
        };
        let stops = self.agreed(stops, &format!("end of epoch {epoch}"))?;
        Ok(stops.then_some(StopReason::Stopped))
    }

    /// Returns the reason why the training ends now; `None` if epochs or steps are left to do.
    fn over(&self, until: Until) -> Option<StopReason> {
        let early = self
            .settings
            .patience
            .as_ref()
            .is_some_and(|epochs| self.training.position.since_best >= **epochs);
        let done = until.reached(&self.training.position).then_some(StopReason::Done);
        if early { Some(StopReason::Early) } else { done }
    }

    /// Makes one training step on a batch or, with gradient accumulation, on the next batches, too. After an error, the
    /// parameters, the carried states and the metrics are unchanged.
    fn step(&mut self, data: &dyn Data, batch: Batch, rest: &mut Batches) -> Result<BatchCounts> {
        let before = self.training.carried.clone();
        let sums = self.training.sums.clone();
        let of_parts = self.step.carried.clone();
        let made = self.run_step(data, batch, rest, &before);
        let made = self.release_rows().and(made);
        self.step.programs.iter_mut().for_each(|programs| programs.on_divided = false);
        if made.is_err() {
            (self.training.carried, self.step.carried, self.training.sums) = (before, of_parts, sums);
        }
        made
    }

    /// Makes a step: divides its batches into parts and pieces, computes the gradients of this process's parts, sums the
    /// gradients of all parts, and updates the parameters. A batch that is one part and fits is computed whole. `before` has the
    /// values of the carried states before the step.
    fn run_step(
        &mut self,
        data: &dyn Data,
        first: Batch,
        rest: &mut Batches,
        before: &BTreeMap<String, Variable>,
    ) -> Result<BatchCounts> {
        let (batches, made) = self.batches_of_step(first, rest)?;
        self.choose_program(&batches[0])?;
        let dealt = self.deal(batches)?;
        let read: Vec<&Batch> =
            dealt.shares[dealt.own.clone()].iter().flatten().map(|piece| &piece.batch).collect();
        self.pull_rows(data, &read, Some(self.training.position.step))?;
        // The gradients are multiplied by factors that depend on all parts. If the loss allows it, the factors are computed
        // after the gradients, else before them.
        let known = match &self.step.program()?.parts {
            Some(parts) if !parts.is_late() => Some(self.known(data, &dealt)?),
            _ => None,
        };
        let mut results = vec![None; dealt.occupied.len()];
        let ran = self.gradients(data, &dealt, known.as_ref(), &mut results);
        let done = self.exchange_sums(ran, &dealt, results).and_then(|()| self.update());
        done.or_else(|error| self.first_not_finite(data, &dealt, before, error))?;
        self.share_statistics(&dealt)?;
        Ok(made)
    }

    /// Returns the stage up to which a run computes. A whole batch is updated in the same run, unless a metric may return an error
    /// for the batch: the parameters are updated last.
    pub(super) fn stage(&self) -> Result<Stage> {
        let TrainingSettings { metrics, objective: LossSettings { own_loss, weight, .. }, .. } =
            &self.settings;
        // The trainer's own loss, without a weight, accepts every batch.
        let refusing = metrics.len() > 1 || !own_loss || weight.is_some();
        let whole = self.step.program()?.parts.is_none();
        Ok(if whole && !refusing { Stage::Updates } else { Stage::Gradients })
    }

    /// Updates the parameters, if the run of a whole batch has not updated them.
    fn update(&mut self) -> Result<()> {
        let stage = self.stage()?;
        let TrainingState { scope, rate, state, .. } = &mut self.training;
        let executor = &mut self.step.compiled()?.runner.executor;
        if stage == Stage::Gradients {
            executor.update(scope)?;
        }
        state.position.rate = Some(executor.scalar(*rate)?);
        Ok(())
    }

    /// Returns the error of a step on a whole batch. If a number is not finite, this is the error about the number instead of an
    /// error of a metric: the step runs again to find the operator that produced the number.
    fn first_not_finite(
        &mut self,
        data: &dyn Data,
        dealt: &StepParts,
        before: &BTreeMap<String, Variable>,
        error: Error,
    ) -> Result<()> {
        if self.step.program()?.parts.is_some() || self.stage()? == Stage::Updates {
            return Err(error);
        }
        let Some(piece) = dealt.shares[0].first() else { return Err(error) };
        let TrainingState { scope, state, registry, loss, trained, .. } = &mut self.training;
        let Checkpoint { program, position, .. } = state;
        let then = |executor: &mut Executor| match finite(executor, *loss, trained) {
            Err(first) if first.kind() == ErrorKind::NotFinite => Err(first),
            _ => Err(error),
        };
        self.step.compiled()?.runner.run(
            scope,
            DataBatch { data, batch: &piece.batch },
            &mut before.clone(),
            |feeds| Run::train(feeds, position.step).until(Stage::Gradients),
            then,
            |scope, run, e| diagnosed(program, registry, scope, run, e),
        )
    }

    /// Checks the data and compiles the program; [`fit`](Self::fit) does the same before its first step. Call `check_data`, for
    /// example, before you write other files of a run.
    ///
    /// # Errors
    /// Returns an error if data in memory have lengths that do not fit the feeds, or if a resumed training gets other data than
    /// before. Also returns an error if the [memory limit](Self::memory_limit) leaves no memory for batches beside the
    /// parameters, the optimizer's state and the data.
    #[track_caller]
    pub fn check_data(&mut self, train: &dyn Data, dev: &dyn Data) -> Result<()> {
        let caller = Location::caller();
        self.checked(train, dev).map(drop).map_err(|e| e.called(caller))
    }

    /// Checks the data as [`Self::check_data`] does; returns whether the best epoch so far must be evaluated again.
    fn checked(&mut self, train: &dyn Data, dev: &dyn Data) -> Result<bool> {
        self.prepare(Some(train))?;
        let twice = std::ptr::addr_eq(train, dev);
        let held = train.held_bytes() + if twice { 0 } else { dev.held_bytes() };
        self.step.held_data = (held, train.batches_ahead().max(dev.batches_ahead()));
        self.has_room()?;
        [train, dev].into_iter().try_for_each(|data| self.check(data))?;
        self.must_remeasure(dev)
    }

    /// Returns the memory that a training step on a batch takes, before the step is made. The memory includes the parameters,
    /// the optimizer's state, the batch, its values and its gradients. If the step is in [parts](Self::parts), the memory also
    /// includes the sums of the gradients, and is computed as if the batch were one part, which is an upper bound. After
    /// [`Self::check_data`] or [`Self::fit`], the memory also includes the samples that data hold in memory. `memory` never
    /// divides the batch because of the memory limit.
    ///
    /// # Errors
    /// Returns an error if a setting or a feed does not fit the model.
    #[track_caller]
    pub fn memory(&mut self, batch: &Batch) -> Result<MemoryUse> {
        self.prepare(None).at_caller()?;
        let compiled = self.step.compiled().at_caller()?;
        let in_parts = compiled.parts.is_some();
        let memory = compiled.runner.memory(batch).at_caller()?;
        let collected = std::mem::replace(&mut self.step.collected, memory.selected);
        let memory = MemoryUse { bound: memory.bound || in_parts, ..self.with_training(memory, in_parts) };
        self.step.collected = collected;
        Ok(memory)
    }

    /// Checks data before the first batch is read.
    fn check(&self, data: &dyn Data) -> Result<()> {
        self.step.program()?.runner.check(data)
    }

    /// At the first call, compiles the program. In a resumed training, checks that `train` is the data of the training so far.
    fn prepare(&mut self, train: Option<&dyn Data>) -> Result<()> {
        if self.step.programs.is_none() {
            let main = self.compile(self.is_in_parts())?;
            self.step.programs = Some(Programs { main, divided: None, on_divided: false });
        }
        make_sums(&self.settings.metrics, &mut self.training.sums)?;
        let bound =
            self.training.position.step > 0 && (self.training.resumed || self.training.position.batch > 0);
        if !bound {
            self.training.position.memory =
                self.settings.division.memory_limit.as_deref().copied().unwrap_or(0);
        }
        let Some(train) = train else { return Ok(()) };
        self.restore_sums()?;
        let (data, known) = (train.fingerprint(), self.training.position.data);
        if bound && data != known {
            let expected = format!(
                "the data of the training so far (fingerprint {known:016x}), which is at {}",
                self.training.position
            );
            let got = format!("other samples, batches or another order (fingerprint {data:016x})");
            return Err(Error::new("training data", expected, got));
        }
        if bound {
            self.check_step()?;
        }
        self.training.position.data = data;
        let [accumulate, parts] =
            [self.batches_a_step(), self.parts_a_batch()].map(|n| if n > 1 { n } else { 0 });
        (self.training.position.accumulate, self.training.position.parts) = (accumulate, parts);
        Ok(())
    }
}
