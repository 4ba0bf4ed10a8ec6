//! The choice of the best epoch, and the check that values of different criteria are never compared.

use std::collections::BTreeMap;

use super::evaluation::Stop;
use super::progress::Console;
use super::resume::other_metric;
use super::step::unprepared;
use super::trainer::Trainer;
use crate::checkpoint::{Best, Criterion, Position};
use crate::data::Data;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor;
use crate::metrics::{Scores, describe};
use crate::program::VarRole;
use crate::tensor::Storage;

impl Trainer {
    /// Allows a resumed training to choose the best epoch by other development data or by another metric. By default,
    /// [`fit`](Self::fit) returns an error if either has changed. The best epoch's parameters are then evaluated again
    /// by the new criterion; the epoch stays the best until a later epoch is better.
    #[must_use]
    pub fn remeasure_best(mut self) -> Self {
        self.settings.remeasure = true;
        self
    }

    /// Returns the criterion by which this run chooses the best epoch: the metric and the development data.
    fn criterion(&self, dev: &dyn Data) -> Result<Criterion> {
        let compiled = self.step.program()?;
        let metric = self.settings.metrics.get(compiled.selected).ok_or_else(unprepared)?.name().to_owned();
        Ok(Criterion { metric, better: compiled.better, data: dev.fingerprint() })
    }

    /// Returns whether the best epoch so far must be evaluated again. This is true if the checkpoint has no criterion,
    /// or if its criterion differs from this run's criterion and `remeasure_best` was called.
    ///
    /// # Errors
    /// Returns an error if the checkpoint's criterion differs from this run's criterion and `remeasure_best` was not called.
    pub(super) fn must_remeasure(&self, dev: &dyn Data) -> Result<bool> {
        let Some(best) = self.training.position.best else { return Ok(false) };
        let Some(known) = &self.training.criterion else { return Ok(true) };
        let ours = self.criterion(dev)?;
        // A metric of the same name may have other options, such as another threshold of labels.
        let described = self.settings.metrics.get(self.step.program()?.selected);
        let described = described.map(|metric| describe(&*metric.what, &self.training.program));
        let other = described.and_then(|ours| {
            let theirs = self.training.metrics.iter().find(|theirs| theirs.name == ours.name)?;
            other_metric(theirs, &ours)
        });
        let same = ours == *known && other.is_none();
        if same || self.settings.remeasure {
            return Ok(!same);
        }
        let so_far = format!("epoch {}, {} {:.4}", best.epoch, known.metric, best.value);
        const METRIC: &str = "metric that decides which epoch is the best";
        let (what, expected, got) = if let (true, Some((theirs, ours))) = (ours == *known, other) {
            (METRIC, format!("{theirs}, by which the best epoch so far was chosen ({so_far})"), ours)
        } else if ours.data == known.data {
            let criterion = |c: &Criterion| format!("`{}`, where {} is better", c.metric, c.better);
            let expected = format!("{}, which chose the best epoch so far ({so_far})", criterion(known));
            (METRIC, expected, criterion(&ours))
        } else {
            let expected = format!(
                "the data on which the best epoch so far was chosen ({so_far}; fingerprint {:016x})",
                known.data
            );
            let got = format!("other data or batches (fingerprint {:016x})", ours.data);
            ("development data", expected, got)
        };
        Err(Error::new(what, expected, got).noted_in_code(
            "`Trainer::remeasure_best` (`--remeasure-best` of the programs) continues with the new data and metric, and evaluates the best epoch again",
        ))
    }

    /// Evaluates the best epoch's parameters by the current criterion; returns `false` if an interrupt ended the evaluation.
    pub(super) fn measure_best_anew(&mut self, dev: &dyn Data, console: &mut Console<'_>) -> Result<bool> {
        let criterion = self.criterion(dev)?;
        let mut value = f64::NAN;
        if !self.training.best.is_empty() {
            let last = self.kept()?;
            self.use_best()?;
            let found = self.pass(dev, Stop::WhenAsked);
            last.into_iter().try_for_each(|(name, value)| self.training.scope.set(&name, value))?;
            let Some(found) = found? else { return Ok(false) };
            value = found.get(&criterion.metric).unwrap_or(f64::NAN);
        }
        let state = &mut self.training.state;
        let Position { best, since_best, stalled, .. } = &mut state.position;
        *best = best.map(|best| Best { value, ..best }).filter(|_| value.is_finite());
        if let Some(best) = best {
            console.say(&format!(
                "the best epoch so far, {}, measured anew: {} {value:.4}",
                best.epoch, criterion.metric
            ));
        } else {
            state.best.clear();
        }
        // Epochs that were no improvement by the old criterion no longer count for the patience.
        if state.criterion.replace(criterion).is_some() {
            (*since_best, *stalled) = (0, 0);
        }
        Ok(true)
    }

    /// Returns whether an epoch with the scores `found` is the best so far; if it is, stores its parameters.
    pub(super) fn decide(&mut self, found: &Scores, dev: &dyn Data) -> Result<bool> {
        let compiled = self.step.program()?;
        let value = found.0.get(compiled.selected).map_or(f64::NAN, |(_, value)| *value);
        let than = |best: Best| compiled.better.than(value, best.value);
        let better = self.training.position.best.map_or(value.is_finite(), than);
        if better {
            let Position { epoch, step, .. } = self.training.position;
            self.training.position.best = Some(Best { value, epoch: epoch + 1, step });
            self.training.position.since_best = 0;
            self.training.best = self.parameters()?;
            self.training.criterion = Some(self.criterion(dev)?);
        } else {
            self.training.position.since_best += 1;
        }
        Ok(better)
    }

    /// Copies the parameters that evaluation uses (averages, if there are any), without the optimizer's state; pending moves of
    /// rows are applied first.
    pub(super) fn parameters(&mut self) -> Result<BTreeMap<String, Storage>> {
        self.with_averages(Self::raw_parameters)
    }

    /// Copies the parameters of the last step and their averages.
    fn kept(&mut self) -> Result<BTreeMap<String, Storage>> {
        let mut kept = self.raw_parameters()?;
        for (_, average) in self.averages() {
            let value = self.training.scope.value(&average)?;
            kept.insert(average, value);
        }
        Ok(kept)
    }

    fn raw_parameters(&mut self) -> Result<BTreeMap<String, Storage>> {
        self.settle()?;
        let kept = self.training.program.vars().filter(|(_, v)| v.persistable && v.role != VarRole::State);
        let names: Vec<String> = kept.map(|(_, v)| v.name.clone()).collect();
        names.into_iter().map(|name| Ok((name.clone(), self.training.scope.value(&name)?))).collect()
    }

    /// Replaces the trainer's parameters by the parameters of the best epoch, to evaluate or predict with the best epoch. All
    /// processes of a [distributed](Self::distributed) training must call `use_best` together.
    ///
    /// # Errors
    /// Returns an error if no epoch has ended, or if the selected metric was not finite in any epoch.
    #[track_caller]
    pub fn use_best(&mut self) -> Result<()> {
        if self.training.best.is_empty() {
            return Err(Error::of(
                ErrorKind::Program,
                "best parameters",
                "an epoch that was evaluated",
                "none",
            ));
        }
        // Pending moves of rows belong to the last parameters, so they are applied before the parameters are replaced.
        self.settle().at_caller()?;
        for (name, value) in &self.training.state.best {
            self.training.scope.set(name, value.clone())?;
        }
        for (param, average) in self.averages() {
            let value = self.training.scope.value(&param)?;
            self.training.scope.set(&average, value)?;
        }
        Ok(())
    }

    /// Applies all pending [moves](crate::executor::settle) to rows of parameters.
    pub(super) fn settle(&mut self) -> Result<()> {
        executor::settle(
            &self.training.state.program,
            &self.training.registry,
            &mut self.training.scope,
            self.settings.threads,
        )
    }
}
