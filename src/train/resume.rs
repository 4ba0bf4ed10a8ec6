//! Saving and resuming a training.

use std::collections::BTreeMap;
use std::path::Path;

use super::progress::shown;
use super::rate::renew_rate;
use super::trainer::Trainer;
use super::training::TrainingState;
use super::until::Until;
use crate::checkpoint::shard_files;
use crate::checkpoint::{Checkpoint, MetricDesc, Purpose, RowFilter};
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::metrics::{SHARE, describe};
use crate::on_data::make_sums;
use crate::optimizer;
use crate::printable::Printable;
use crate::tensor::StorageKind;
use crate::wire::Target;

/// The advice in the error for a training that differs from its checkpoint only in the learning rate.
const OTHER_RATE: &str =
    "only the learning rate differs: `Trainer::change_rate` continues with the rate of the model being built";

/// The advice in the error for a training whose schedule gives the finished steps other rates.
const NEW_SCHEDULE: &str = "`Trainer::load_parameters` starts a new training, with a new schedule";

impl Trainer {
    /// Saves the training to a file: the parameters, the best epoch's parameters, the optimizer's state, and the position in
    /// the data. An existing file is replaced, and the new file gets the permissions of the replaced file. With
    /// [dealt tables](Self::deal_tables), all processes must call `save` together; the path of rank 0 is used.
    ///
    /// # Errors
    /// Returns an error if another training saves to this file, or if the file cannot be written; an existing file is then
    /// unchanged. Also returns an error if a parameter is not finite, since a failed training must not replace a good
    /// checkpoint.
    #[track_caller]
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.save_file(path.as_ref()).at_caller()
    }

    fn save_file(&mut self, path: &Path) -> Result<()> {
        if !self.is_first() && self.own_rows().is_some() {
            return self.save_together(Ok(None));
        }
        let target = Target::find(path).and_then(|target| {
            let held = self.training.held.as_ref().is_some_and(|held| held.is(&target));
            let target = if held { target } else { target.lock()? };
            target.check().map(|()| target)
        });
        // With several processes, `fit` has gathered the carried states before it returned.
        if self.others().is_none() {
            self.gather_carried()?;
        }
        self.save_together(target.as_ref().map(Some).map_err(Error::clone))
    }

    pub(super) fn save_to(&mut self, target: &Target) -> Result<()> {
        self.with_sums(|trainer| trainer.save_whole(target))
    }

    /// Adds the sums of the metrics to the state, as a checkpoint file needs them; calls `act`, then removes the sums.
    pub(super) fn with_sums<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.restore_sums()?;
        let TrainingState { state, sums, .. } = &mut self.training;
        for (metric, sums) in self.settings.metrics.iter().zip(sums) {
            state.position.keep_sums(metric.name(), sums);
        }
        self.training.metrics = self.described();
        let outcome = act(self);
        self.training.position.clear_sums();
        outcome
    }

    fn save_whole(&mut self, target: &Target) -> Result<()> {
        let refused = |e: Error, name: &str| e.noted("nothing was saved").variable(name);
        for name in self.persistent() {
            self.training.scope.value(&name)?.check_finite("value to save").map_err(|e| refused(e, &name))?;
        }
        for (name, value) in &self.training.best {
            value.check_finite("value of the best epoch, to save").map_err(|e| refused(e, name))?;
        }
        let TrainingState { state, scope, .. } = &mut self.training;
        let saved = state.save_to(scope, target);
        let shards = &state.shards;
        // Rank files of an earlier set are removed, also if this process alone holds all rows now.
        if saved.is_ok() && state.program.vars().any(|(_, var)| var.is_row_sparse()) {
            shard_files::clear(target.path(), shards.as_ref());
        }
        saved
    }

    /// Locks the file of [`Self::checkpoint`] for this training and checks that it can be written. Returns `None` if there is
    /// no file or this run will save nothing.
    pub(super) fn claim(&mut self, until: Until, remeasure: bool) -> Result<Option<Target>> {
        let held = self.training.held.take();
        // Even a finished training saves if the best epoch is evaluated again; it may then also train further, since the
        // patience starts again.
        let saves = remeasure || self.over(until).is_none();
        let Some(file) = self.settings.file.as_deref().filter(|_| saves && self.is_first()) else {
            return Ok(None);
        };
        let target = held.map_or_else(|| Target::find(file)?.lock(), Ok)?;
        target.check()?;
        Ok(Some(target))
    }

    /// Joins the carried states of all parts of the batch, then saves a checkpoint to `file`, the locked file of
    /// [`Self::checkpoint`]. Without a `file` (as on every rank but the first), only joins the states.
    pub(super) fn save_checkpoint(&mut self, file: Option<&Target>) -> Result<()> {
        self.gather_carried()?;
        self.save_together(Ok(file))?;
        if file.is_some() {
            self.training.saved = Some(self.training.position.clone());
        }
        Ok(())
    }

    /// Resumes a saved training: its parameters, the optimizer's state, and its position in the data. The program that builds
    /// the model must be the same as when the training was saved. Only the line numbers in the program may differ. With
    /// [`Self::change_rate`], the learning rate of the steps to come may differ, too. If `path` is the file of [`Self::checkpoint`], no other
    /// training may save to this file until [`Self::fit`] has returned or this trainer is dropped.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - The file is damaged, or is a checkpoint for inference.
    /// - The program or a vocabulary differs; the error has the first difference.
    /// - The schedule of the learning rate differs for a finished step; the error has the rates before and after the resume.
    /// - A parameter or a state of the optimizer is not finite.
    /// - The file is the file of [`Self::checkpoint`], and another training saves to it now.
    ///
    /// After an error, the trainer is unchanged.
    #[track_caller]
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.training.held = None;
        // The file is locked before it is read. Without the lock, another training could save to the file after this
        // read, and the next save of this training would overwrite that save.
        let own = self.settings.file.as_deref().and_then(|file| Target::find(file).ok());
        let own = own.filter(|own| self.is_first() && Target::find(path).is_ok_and(|from| from.is(own)));
        let held = own.map(Target::lock).transpose().at_caller()?;
        let own = self.own_rows();
        let checkpoint = match own {
            Some(own) => Checkpoint::load_rows(path, &RowFilter::Own(own)).at_caller()?,
            None => Checkpoint::load(path)?,
        };
        self.take(checkpoint)
            .map_err(|e| e.noted(format!("in checkpoint `{}`", path.display())))
            .at_caller()?;
        self.training.dealt_as = own;
        // The other processes may have another working directory.
        let absolute = own.map(|_| std::path::absolute(path)).transpose();
        self.training.rows_from =
            absolute.map_err(|e| Error::io(format!("file `{}`", path.display()), "find", &e)).at_caller()?;
        self.training.saved = held.is_some().then(|| self.training.position.clone());
        self.training.held = held;
        Ok(())
    }

    /// If the file exists, resumes as [`Self::resume`] does; returns whether the file exists.
    ///
    /// # Errors
    /// Returns the errors of [`Self::resume`].
    #[track_caller]
    pub fn resume_if(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        let shown = path.as_ref().display();
        let exists = path
            .as_ref()
            .try_exists()
            .map_err(|e| Error::io(format!("file `{shown}`"), "read", &e))
            .at_caller()?;
        if exists {
            self.resume(path)?;
        }
        Ok(exists)
    }

    pub(super) fn take(&mut self, mut from: Checkpoint) -> Result<()> {
        if from.purpose == Purpose::Inference {
            let expected =
                "a checkpoint of a training, with the optimizer's state and the position in the data";
            let got = "a checkpoint for inference, which has only the parameters";
            return Err(Error::of(ErrorKind::Program, "checkpoint to resume", expected, got)
                .noted_in_code("`Trainer::load_parameters` starts a new training from the parameters"));
        }
        // Vocabularies are compared before the programs: another vocabulary changes shapes in the program, and the error about
        // the vocabulary is clearer than the error about a shape.
        let (ours, theirs) = (&self.training.vocabularies, &from.vocabularies);
        for name in ours.keys().chain(theirs.keys()) {
            if let Some((expected, got)) = other_entries(theirs.get(name), ours.get(name)) {
                let what = format!("vocabulary `{name}`");
                let note = "make the vocabulary from the same data, or remove it from the checkpoint";
                return Err(Error::new(what, expected, got).noted(note));
            }
        }
        let (ours, theirs) = (self.training.program.seed, from.program.seed);
        if ours != theirs {
            let expected = format!("{theirs}, as in the checkpoint");
            let error = Error::of(ErrorKind::Program, "seed of the model", expected, ours.to_string());
            return Err(error.noted_in_code("`Builder::seed` sets the seed"));
        }
        let unit = self.resumed_unit(&from)?;
        from.program.unit = self.unit();
        if let Some(difference) = self.training.program.difference(&from.program) {
            let steps = from.position.step;
            let jump = optimizer::other_past(&self.training.program, &from.program, steps)?;
            let beside = renew_rate(&self.training.program, &mut from);
            if let (None, Some((before, after))) = (&beside, jump) {
                let expected =
                    format!("the schedule of the model being built for the {steps} finished steps");
                let got =
                    format!("{difference}: the rate would change from {} to {}", shown(before), shown(after));
                let error = Error::of(ErrorKind::Program, "learning-rate schedule", expected, got);
                return Err(error.noted_in_code(NEW_SCHEDULE));
            }
            if beside.is_some() || !self.settings.rates.change_rate {
                let expected = "the program of the model being built";
                let reported =
                    beside.clone().filter(|_| self.settings.rates.change_rate).unwrap_or(difference);
                let error = Error::of(ErrorKind::Program, "program", expected, reported);
                return Err(if beside.is_none() { error.noted_in_code(OTHER_RATE) } else { error });
            }
        }
        for (name, value) in from.tensors.iter().chain(&from.best) {
            value.check_finite("value of the checkpoint").map_err(|e| e.variable(name))?;
        }
        from.restore(&mut self.training.scope)?;
        let Checkpoint { mut best, criterion, history, carried, position, metrics, shards, .. } = from;
        let ours = std::mem::take(&mut self.training.state);
        match shards {
            None => self.training.dealt_as = None,
            // The state of another rank has no rows of dealt tables, so this process keeps its own.
            Some(_) if best.is_empty() => {}
            Some(_) => best.extend(
                ours.best
                    .iter()
                    .filter(|(_, value)| value.kind() == StorageKind::SelectedRows)
                    .map(|(name, value)| (name.clone(), value.clone())),
            ),
        }
        // The checkpoint's descriptions of metrics are checked when the sums of the metrics are restored; the next save
        // replaces the descriptions.
        self.training.state = Checkpoint { best, criterion, history, carried, position, metrics, ..ours };
        self.training.program.unit = unit;
        self.training.sums.iter_mut().for_each(|sums| sums.fill(0.0));
        self.step.carried.clear();
        // The training in the checkpoint may have another number of parts, so the program must be compiled again.
        self.step.programs = None;
        self.training.resumed = true;
        Ok(())
    }

    /// Restores the sums of the metrics over the finished batches of the epoch. Returns an error if the checkpoint has a
    /// different metric of the same name, because the sums would mix two metrics.
    pub(super) fn restore_sums(&mut self) -> Result<()> {
        make_sums(&self.settings.metrics, &mut self.training.sums)?;
        let TrainingState { state, sums, .. } = &mut self.training;
        for (metric, own) in self.settings.metrics.iter().zip(sums) {
            let Some(sums) = state.position.sums_of(metric.name()) else { continue };
            let (ours, theirs) = (describe(&*metric.what, &state.program), &state.metrics);
            let theirs = theirs.iter().find(|known| known.name == metric.name());
            if let Some((expected, got)) = theirs.and_then(|theirs| other_metric(theirs, &ours)) {
                let what = format!(
                    "metric `{}`, whose sums of the epoch so far are in the checkpoint",
                    metric.name()
                );
                return Err(Error::new(what, expected, got).called(metric.line));
            }
            if own.len() as u64 != sums.count {
                let (what, expected) = (format!("metric `{}`", metric.name()), format!("{} sums", own.len()));
                return Err(Error::new(what, expected, sums.count.to_string()));
            }
            sums.fill(own);
        }
        self.training.position.clear_sums();
        Ok(())
    }

    /// Returns a checkpoint for inference ([`Checkpoint::for_inference`]). The checkpoint has the outputs, the metrics and the
    /// parameters of the best epoch. If there is no best epoch, it has the last parameters. The training is unchanged.
    ///
    /// # Errors
    /// Returns an error if no output was named, or if a parameter is not finite. With [dealt tables](Self::deal_tables), also
    /// returns an error if the file of [`Self::checkpoint`], from which the rows of other processes are read, is not at the
    /// position of the training.
    #[track_caller]
    pub fn for_inference(&mut self) -> Result<Checkpoint> {
        self.bare().at_caller()
    }

    fn bare(&mut self) -> Result<Checkpoint> {
        let mut whole = Checkpoint { metrics: self.described(), ..self.training.clone() };
        let mut others = BTreeMap::new();
        if self.training.dealt_as.is_some() {
            // The rows of the other processes are in the last checkpoint.
            let saved = self.training.saved.as_ref() == Some(&self.training.position);
            let Some(file) = self.settings.file.as_ref().filter(|_| saved) else {
                let expected =
                    "a checkpoint file at the position of the training, which has the rows of all processes";
                return Err(Error::of(
                    ErrorKind::Program,
                    "model of dealt tables",
                    expected,
                    self.where_to_resume(),
                ));
            };
            let mut from = Checkpoint::load_rows(file, &RowFilter::Predicting)?;
            from.best.retain(|_, value| value.kind() == StorageKind::SelectedRows);
            from.tensors.retain(|_, value| value.kind() == StorageKind::SelectedRows);
            whole.best.extend(from.best);
            others = from.tensors;
        }
        if whole.best.is_empty() {
            // The checkpoint applies pending moves of rows to its copies. This process alone must not apply them to the
            // training, since the processes of a distributed training would then have different numbers.
            for name in self.persistent() {
                let value = others.remove(&name).map_or_else(|| self.training.scope.value(&name), Ok)?;
                whole.tensors.insert(name, value);
            }
        }
        let bare = whole.for_inference(&self.training.registry)?;
        for (name, value) in &bare.tensors {
            value.check_finite("parameter of the model").map_err(|e| e.variable(name))?;
        }
        Ok(bare)
    }

    /// Returns the descriptions of the metrics for a checkpoint file.
    fn described(&self) -> Vec<MetricDesc> {
        self.settings.metrics.iter().map(|metric| describe(&*metric.what, &self.training.program)).collect()
    }

    pub(super) fn persistent(&self) -> Vec<String> {
        let kept = self.training.program.vars().filter(|(_, v)| v.persistable);
        kept.map(|(_, v)| v.name.clone()).collect()
    }

    /// Returns the end of an error message: the position of the last checkpoint.
    pub(super) fn where_to_resume(&self) -> String {
        match (&self.settings.file, &self.training.saved) {
            (Some(file), Some(saved)) => format!("the checkpoint in `{}` is at {saved}", file.display()),
            (Some(file), None) => format!("no checkpoint was saved in `{}` yet", file.display()),
            (None, _) if !self.is_first() => format!("the training is at {}", self.training.position),
            (None, _) => format!("the training is at {}; it has no checkpoint", self.training.position),
        }
    }
}

/// Returns the first difference between a metric of a checkpoint and the model's metric of the same name, as the texts
/// (checkpoint, model).
pub(super) fn other_metric(theirs: &MetricDesc, ours: &MetricDesc) -> Option<(String, String)> {
    let kind = |metric: &MetricDesc| format!("kind `{}`", metric.kind);
    let variables = |metric: &MetricDesc| format!("variables `{}`", metric.variables.join("`, `"));
    let shown: [&dyn Fn(&MetricDesc) -> String; 2] = [&kind, &variables];
    let names = [theirs, ours].into_iter().flat_map(|metric| metric.attributes.iter().map(|(name, _)| name));
    // Older files do not have the unit of a user's own metric.
    let names = names.filter(|name| *name != SHARE);
    let attribute = |name: &str| {
        let metric = |metric: &MetricDesc| match metric.attributes.get(name) {
            Some(value) => format!("`{name}` {value}"),
            None => format!("no `{name}`"),
        };
        (metric(theirs), metric(ours))
    };
    let pairs = shown.map(|shown| (shown(theirs), shown(ours))).into_iter().chain(names.map(attribute));
    pairs.into_iter().find(|(theirs, ours)| theirs != ours)
}

/// Returns the first difference between a vocabulary of a checkpoint and the model's vocabulary, as the texts (checkpoint,
/// model).
fn other_entries(theirs: Option<&Vocabulary>, ours: Option<&Vocabulary>) -> Option<(String, String)> {
    let size = |v: &Vocabulary| format!("{} entries", v.len());
    let (theirs, ours) = match (theirs, ours) {
        (Some(theirs), Some(ours)) if theirs.fingerprint() == ours.fingerprint() => return None,
        (Some(theirs), Some(ours)) => (theirs, ours),
        (theirs, ours) => {
            let shown = |v: Option<&Vocabulary>| v.map_or_else(|| "none".to_owned(), size);
            return Some((format!("{}, as the checkpoint has", shown(theirs)), shown(ours)));
        }
    };
    let both = 0..theirs.len().max(ours.len()) as i64;
    let Some(differ) = both.into_iter().find(|&id| theirs.token(id) != ours.token(id)) else {
        let same =
            |v: &Vocabulary| format!("the same {}, with other counts or for other unknown words", size(v));
        return Some((format!("the checkpoint's ({})", size(theirs)), same(ours)));
    };
    let entry = |v: &Vocabulary| match v.token(differ) {
        Some(token) => format!("{}, entry {differ} is {}", size(v), Printable(token).quoted(60)),
        None => size(v),
    };
    Some((format!("the checkpoint's ({})", entry(theirs)), entry(ours)))
}
