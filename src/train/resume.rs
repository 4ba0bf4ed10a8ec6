//! Saving a training and going on with it.

use std::collections::BTreeMap;
use std::path::Path;

use super::checkpoint::Checkpoint;
use super::trainer::Trainer;
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::VarRole;
use crate::tensor::{DType, Dense};
use crate::with_float;

impl Trainer {
    /// Saves everything to a file: parameters, the best ones, the optimizer's state, the position in the data.
    ///
    /// # Errors
    /// If it cannot be written, which leaves a file that was there as it was; if a parameter is not finite: what cannot
    /// be trained further does not replace what can.
    #[track_caller]
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.restore_sums().at_caller()?;
        for name in self.persistent() {
            if !finite(&self.scope.get(&name)?) {
                let got = "NaN or infinity; nothing was saved";
                return Err(
                    Error::of(ErrorKind::NotFinite, "value to save", "finite numbers", got).variable(name)
                );
            }
        }
        let sums = self.metrics.iter_mut().map(|m| (m.name().to_owned(), m.sums().to_vec()));
        self.state.position.running = sums.collect();
        let saved = self.state.save_from(&mut self.scope, path);
        self.state.position.running.clear();
        saved
    }

    /// Saves to the file of [`Self::checkpoint`], if there is one.
    pub(super) fn save_checkpoint(&mut self) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        self.save(&file)?;
        self.saved = Some(self.state.position.clone());
        Ok(())
    }

    /// Goes on with a training that was saved: its parameters, the optimizer's state, its place in the data. The model
    /// is built as it was then; only the lines of code may have moved.
    ///
    /// # Errors
    /// If the file is damaged; if the program or a vocabulary is another one, with the first difference. Nothing was
    /// changed then.
    #[track_caller]
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::load(path)?;
        self.take(checkpoint)
            .map_err(|e| e.noted(format!("in checkpoint `{}`", path.display())))
            .at_caller()?;
        self.saved = self.file.as_deref().filter(|file| *file == path).map(|_| self.state.position.clone());
        Ok(())
    }

    /// [`Self::resume`] if the file exists; whether it does.
    ///
    /// # Errors
    /// As [`Self::resume`].
    #[track_caller]
    pub fn resume_if(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        let exists = path.as_ref().try_exists()?;
        if exists {
            self.resume(path)?;
        }
        Ok(exists)
    }

    fn take(&mut self, mut from: Checkpoint) -> Result<()> {
        // First: another vocabulary makes another program, and says more than a shape.
        let (ours, theirs) = (&self.state.vocabularies, &from.vocabularies);
        for name in ours.keys().chain(theirs.keys()) {
            let shown = |v: Option<&Vocabulary>| match v {
                Some(v) => format!("{} entries (fingerprint {:016x})", v.len(), v.fingerprint()),
                None => "none".to_owned(),
            };
            let (ours, theirs) = (shown(ours.get(name)), shown(theirs.get(name)));
            if ours != theirs {
                return Err(Error::new(format!("vocabulary `{name}`"), ours, theirs));
            }
        }
        if let Some(difference) = self.state.program.difference(&from.program) {
            let expected = "that of the model being built";
            return Err(Error::of(ErrorKind::Program, "program", expected, difference));
        }
        from.restore(&mut self.scope)?;
        let Checkpoint { best, carried, position, .. } = from;
        self.state = Checkpoint { best, carried, position, ..std::mem::take(&mut self.state) };
        self.resumed = true;
        Ok(())
    }

    /// The sums of the metrics over the part of the epoch that was done before.
    pub(super) fn restore_sums(&mut self) -> Result<()> {
        for metric in &mut self.metrics {
            let Some(sums) = self.state.position.running.get(metric.name()) else { continue };
            if metric.sums().len() != sums.len() {
                let expected = format!("{} sums", metric.sums().len());
                return Err(Error::new(
                    format!("metric `{}`", metric.name()),
                    expected,
                    sums.len().to_string(),
                ));
            }
            metric.sums().copy_from_slice(sums);
        }
        self.state.position.running.clear();
        Ok(())
    }

    fn persistent(&self) -> Vec<String> {
        let kept = self.state.program.vars().filter(|(_, v)| v.persistable);
        kept.map(|(_, v)| v.name.clone()).collect()
    }

    /// A copy of the parameters, without the optimizer's state.
    pub(super) fn parameters(&mut self) -> Result<BTreeMap<String, Dense>> {
        let kept = self.state.program.vars().filter(|(_, v)| v.persistable && v.role != VarRole::State);
        let names: Vec<String> = kept.map(|(_, v)| v.name.clone()).collect();
        names.into_iter().map(|name| Ok((name.clone(), self.scope.get(&name)?))).collect()
    }

    /// Puts the parameters of the best epoch in the place of the last ones, to evaluate or predict with them.
    ///
    /// # Errors
    /// If no epoch has ended, or none had a finite value.
    #[track_caller]
    pub fn use_best(&mut self) -> Result<()> {
        if self.state.best.is_empty() {
            return Err(Error::of(
                ErrorKind::Program,
                "best parameters",
                "an epoch that was evaluated",
                "none",
            ));
        }
        for (name, value) in &self.state.best {
            self.scope.set(name, value.clone())?;
        }
        Ok(())
    }

    /// For the end of an error's message.
    pub(super) fn where_to_resume(&self) -> String {
        match (&self.file, &self.saved) {
            (Some(file), Some(saved)) => format!("the checkpoint in `{}` stands at {saved}", file.display()),
            (Some(file), None) => format!("no checkpoint was saved in `{}` yet", file.display()),
            (None, _) => format!("the training stands at {}; it has no checkpoint", self.state.position),
        }
    }
}

fn finite(value: &Dense) -> bool {
    let all = || with_float!(value.dtype(), T => Ok(value.as_slice::<T>()?.iter().all(|x| x.is_finite())));
    !matches!(value.dtype(), DType::F32 | DType::F64) || all().unwrap_or(true)
}
