//! Saving a training and going on with it.

use std::collections::BTreeMap;
use std::path::Path;

use super::checkpoint::{Checkpoint, Position};
use super::trainer::Trainer;
use crate::error::{Error, ErrorKind, Result};
use crate::program::{Program, VarRole};
use crate::tensor::{DType, Dense};
use crate::with_float;

impl Trainer {
    /// Everything that the training needs to go on where it is.
    ///
    /// # Errors
    /// If a parameter is not finite: what cannot be trained further does not replace what can.
    pub fn to_checkpoint(&mut self) -> Result<Checkpoint> {
        let names = |(_, v): (_, &crate::program::VarDesc)| v.persistable.then(|| v.name.clone());
        let mut tensors = BTreeMap::new();
        for name in self.program.vars().filter_map(names).collect::<Vec<_>>() {
            let value = self.scope.get(&name)?;
            if !finite(&value) {
                let got = "NaN or infinity; the checkpoint was left as it was";
                return Err(Error::of(ErrorKind::NotFinite, "value to save", "finite numbers", got).variable(name));
            }
            tensors.insert(name, value);
        }
        let mut position = self.position.clone();
        position.running = self.metrics.iter_mut().map(|m| (m.name().to_owned(), m.sums().to_vec())).collect();
        let name_of = |(name, var): &(String, crate::program::Var)| (name.clone(), self.program.var(var.id()).name.clone());
        Ok(Checkpoint {
            program: self.program.clone(),
            tensors,
            best: self.best.clone(),
            vocabularies: self.vocabularies.clone(),
            notes: self.notes.clone(),
            outputs: self.outputs.iter().map(name_of).collect(),
            carried: self.carried.clone(),
            position,
        })
    }

    /// Saves everything to a file: parameters, the best ones, the optimizer's state, the position in the data.
    ///
    /// # Errors
    /// If it cannot be written, which leaves a file that was there as it was; if a parameter is not finite.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.to_checkpoint()?.save(path)
    }

    /// Saves to the file of [`Self::checkpoint`], if there is one.
    pub(super) fn save_checkpoint(&mut self) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        self.save(&file)?;
        self.saved = Some(self.position.clone());
        Ok(())
    }

    /// Goes on with a training that was saved: its parameters, the optimizer's state, its place in the data. The model
    /// is built as it was then; only the lines of code may have moved.
    ///
    /// # Errors
    /// If the file is damaged; if the program or a vocabulary is another one, with the first difference. Nothing was
    /// changed then.
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::load(path)?;
        self.take(checkpoint).map_err(|e| e.noted(format!("in checkpoint `{}`", path.display())))?;
        self.saved = self.file.as_deref().filter(|file| *file == path).map(|_| self.position.clone());
        Ok(())
    }

    /// [`Self::resume`] if the file exists; whether it does.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub fn resume_if(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        let exists = path.as_ref().try_exists()?;
        if exists {
            self.resume(path)?;
        }
        Ok(exists)
    }

    fn take(&mut self, from: Checkpoint) -> Result<()> {
        let other = |what: &str, got: String| Err(Error::of(ErrorKind::Program, what, "that of the model being built", got));
        if let Some(difference) = self.program.difference(&from.program) {
            return other("program", difference);
        }
        let names = self.vocabularies.keys().chain(from.vocabularies.keys());
        for name in names {
            let print = |of: &BTreeMap<String, crate::data::Vocabulary>| of.get(name).map(|v| (v.len(), v.fingerprint()));
            let (ours, theirs) = (print(&self.vocabularies), print(&from.vocabularies));
            if ours != theirs {
                let of = |v: Option<(usize, u64)>| v.map_or("none".to_owned(), |(n, print)| format!("{n} entries (fingerprint {print:016x})"));
                return Err(Error::new(format!("vocabulary `{name}`"), of(ours), of(theirs)));
            }
        }
        // Everything fits or nothing is taken.
        let specs = |program: &Program| -> Vec<(String, crate::program::Spec)> {
            program.vars().filter(|(_, v)| v.persistable).filter_map(|(_, v)| Some((v.name.clone(), v.spec()?.clone()))).collect()
        };
        for (name, _) in specs(&self.program) {
            let missing = || Error::of(ErrorKind::Format, "checkpoint", "a value of each parameter", "none").variable(&name);
            let (ours, theirs) = (self.scope.get(&name)?, from.tensors.get(&name).ok_or_else(missing)?);
            if (ours.dtype(), ours.shape()) != (theirs.dtype(), theirs.shape()) {
                let got = format!("{}{:?}", theirs.dtype(), theirs.shape());
                return Err(Error::new("value", format!("{}{:?}", ours.dtype(), ours.shape()), got).variable(name));
            }
        }
        for (name, value) in from.tensors {
            self.scope.set(&name, value)?;
        }
        (self.best, self.carried, self.position, self.resumed) = (from.best, from.carried, from.position, true);
        if self.compiled.is_some() {
            self.restore_sums()?;
        }
        Ok(())
    }

    /// The sums of the metrics over the part of the epoch that was done before.
    pub(super) fn restore_sums(&mut self) -> Result<()> {
        for metric in &mut self.metrics {
            let Some(sums) = self.position.running.get(metric.name()) else { continue };
            if metric.sums().len() != sums.len() {
                let expected = format!("{} sums", metric.sums().len());
                return Err(Error::new(format!("metric `{}`", metric.name()), expected, sums.len().to_string()));
            }
            metric.sums().copy_from_slice(sums);
        }
        self.position.running.clear();
        Ok(())
    }

    /// A copy of the parameters, without the optimizer's state.
    pub(super) fn parameters(&mut self) -> Result<BTreeMap<String, Dense>> {
        let kept = self.program.vars().filter(|(_, v)| v.persistable && v.role != VarRole::State);
        let names: Vec<String> = kept.map(|(_, v)| v.name.clone()).collect();
        names.into_iter().map(|name| Ok((name.clone(), self.scope.get(&name)?))).collect()
    }

    /// Puts the parameters of the best epoch in the place of the last ones, to evaluate or predict with them.
    ///
    /// # Errors
    /// If no epoch has ended, or none had a finite value.
    pub fn use_best(&mut self) -> Result<()> {
        if self.best.is_empty() {
            return Err(Error::of(ErrorKind::Program, "best parameters", "an epoch that was evaluated", "none"));
        }
        for (name, value) in &self.best {
            self.scope.set(name, value.clone())?;
        }
        Ok(())
    }

    /// For the end of an error's message.
    pub(super) fn where_to_resume(&self) -> String {
        match (&self.file, &self.saved) {
            (Some(file), Some(saved)) => format!("the checkpoint in `{}` stands at {saved}", file.display()),
            (Some(file), None) => format!("no checkpoint was saved in `{}` yet", file.display()),
            (None, _) => format!("the training stands at {}; it has no checkpoint", self.position),
        }
    }
}

fn finite(value: &Dense) -> bool {
    let all = || with_float!(value.dtype(), T => Ok(value.as_slice::<T>()?.iter().all(|x| x.is_finite())));
    !matches!(value.dtype(), DType::F32 | DType::F64) || all().unwrap_or(true)
}

