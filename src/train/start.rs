//! Starting from the parameters of another training: fine-tuning.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "safetensors")]
use std::path::Path;

use super::trainer::Trainer;
use crate::checkpoint::Checkpoint;
#[cfg(feature = "safetensors")]
use crate::checkpoint::Purpose;
use crate::error::{AtCaller, Error, ErrorKind, Result};
#[cfg(feature = "safetensors")]
use crate::formats::safetensors::{ImportReport, Names, read};
use crate::program::VarRole;
use crate::tensor::{Storage, StorageKind};

/// What [`Trainer::load_fitting_parameters`] took from a checkpoint, and what it left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadedParameters {
    /// The parameters that now have the checkpoint's values.
    pub loaded: Vec<String>,
    /// Those of the model that the checkpoint does not have; they start as they did.
    pub only_in_model: Vec<String>,
    /// Those of the checkpoint that the model does not have.
    pub only_in_checkpoint: Vec<String>,
    /// Those that both have, and that do not fit; they start as they did. Each with what it is in the model and in the
    /// checkpoint.
    pub unlike: Vec<ParameterMismatch>,
    /// The vocabularies of the same name that number other entries, or the same ones otherwise: a parameter with a row for each
    /// entry may fit, and mean something else.
    pub other_vocabularies: Vec<String>,
}

/// A parameter that has another shape or dtype in a checkpoint than in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParameterMismatch {
    /// Its name.
    pub name: String,
    /// What it is in the model, as `f32[8, 2]`.
    pub in_model: String,
    /// What it is in the checkpoint.
    pub in_checkpoint: String,
}

/// As `3 loaded; only in the model: a, b; of another shape: c (f32[2] in the model, f32[3] in the checkpoint)`.
impl fmt::Display for LoadedParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loaded", self.loaded.len())?;
        self.differences().iter().try_for_each(|difference| write!(f, "; {difference}"))
    }
}

impl LoadedParameters {
    /// What does not fit, in words.
    fn differences(&self) -> Vec<String> {
        let unlike = self.unlike.iter().map(|ParameterMismatch { name, in_model, in_checkpoint }| {
            format!("{name} ({in_model} in the model, {in_checkpoint} in the checkpoint)")
        });
        let kinds = [
            ("only in the model", self.only_in_model.clone()),
            ("only in the checkpoint", self.only_in_checkpoint.clone()),
            ("of another shape", unlike.collect()),
            ("vocabularies with other entries", self.other_vocabularies.clone()),
        ];
        let some = kinds.iter().filter(|(_, names)| !names.is_empty());
        some.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect()
    }
}

impl Trainer {
    /// Starts from the parameters of another training's checkpoint, those of its best epoch if it has some, as a predictor takes
    /// them: by name. Every parameter of the model has to be there, of the same shape and dtype, and none else; vocabularies of
    /// the same name have to be the same. The optimizer's state and the place in the data start anew.
    ///
    /// # Errors
    /// If this training has made a step; if something does not fit, with all that does not, or a value is not finite. Nothing was
    /// changed then.
    #[track_caller]
    pub fn load_parameters(&mut self, from: &Checkpoint) -> Result<()> {
        let from = &predicting(from).at_caller()?;
        let (given, found) = self.compare(from).at_caller()?;
        let differences = found.differences();
        if !differences.is_empty() {
            let expected = "those of the model, with the same names, shapes and vocabularies";
            let error = Error::of(
                ErrorKind::Program,
                "parameters of the checkpoint",
                expected,
                differences.join("; "),
            );
            return Err(error.noted_in_code("`Trainer::load_fitting_parameters` takes those that fit"));
        }
        self.set_all(&given, &found.loaded).at_caller()
    }

    /// [`Self::load_parameters`] of those that fit by name, shape and dtype, as under another last layer; what it took and what
    /// it left.
    ///
    /// ```no_run
    /// # use unpadded::{Result, checkpoint::Checkpoint, train::Trainer};
    /// # fn of(trainer: &mut Trainer) -> Result<()> {
    /// let found = trainer.load_fitting_parameters(&Checkpoint::load("reviews.ckpt")?)?;
    /// println!("{found}"); // 4 loaded; of another shape: linear_0.bias (f32[5] in the model, f32[2] in the checkpoint)
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If this training has made a step; if no parameter fits, or the value of one that does is not finite. Nothing was changed
    /// then.
    #[track_caller]
    pub fn load_fitting_parameters(&mut self, from: &Checkpoint) -> Result<LoadedParameters> {
        let from = &predicting(from).at_caller()?;
        let (given, found) = self.compare(from).at_caller()?;
        if found.loaded.is_empty() {
            let expected = "at least one that fits the model, by name and shape";
            let got = format!("none ({})", found.differences().join("; "));
            return Err(Error::of(ErrorKind::Program, "parameters of the checkpoint", expected, got));
        }
        self.set_all(&given, &found.loaded).at_caller()?;
        Ok(found)
    }

    /// Starts from the weights of a safetensors file, under the names and in the layout that PyTorch gives them. Every parameter of
    /// the model has to be there, of the same shape, and none else, but for what `names` leaves out; floats become those
    /// of the parameter's dtype.
    ///
    /// ```no_run
    /// # use unpadded::{Result, formats::safetensors::Names, train::Trainer};
    /// # fn of(trainer: &mut Trainer) -> Result<()> {
    /// let names = Names::new().rename("lstm_0", "encoder.rnn").without("linear_0").ignore("head");
    /// trainer.load_safetensors("encoder.safetensors", &names)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If this training has made a step, or as [`import`](crate::formats::safetensors::import). Nothing was changed then.
    #[cfg(feature = "safetensors")]
    #[track_caller]
    pub fn load_safetensors(&mut self, path: impl AsRef<Path>, names: &Names) -> Result<ImportReport> {
        self.load_safetensors_file(path.as_ref(), names).at_caller()
    }

    #[cfg(feature = "safetensors")]
    fn load_safetensors_file(&mut self, path: &Path, names: &Names) -> Result<ImportReport> {
        self.not_begun()?;
        let (values, imported) = read(path, names, &self.state.program, Purpose::Training)?;
        values.into_iter().try_for_each(|(name, value)| self.scope.set(&name, value))?;
        Ok(imported)
    }

    /// Checks that no step was made: parameters belong to the state of their optimizer.
    fn not_begun(&self) -> Result<()> {
        if self.state.position.step == 0 {
            return Ok(());
        }
        let got = format!("one that stands at {}", self.state.position);
        let expected = "one before its first step";
        Err(Error::of(ErrorKind::Program, "trainer to load parameters", expected, got))
    }

    /// The parameters of a checkpoint, and how they fit.
    fn compare<'a>(&mut self, from: &'a Checkpoint) -> Result<(Parameters<'a>, LoadedParameters)> {
        self.not_begun()?;
        let program = &from.program;
        let state = |name: &str| program.find(name).is_some_and(|id| program.var(id).role == VarRole::State);
        let given = if from.best.is_empty() { &from.tensors } else { &from.best };
        let given: Parameters<'_> =
            given.iter().map(|(name, value)| (&**name, value)).filter(|(name, _)| !state(name)).collect();
        let (ours, theirs) = (&self.state.vocabularies, &from.vocabularies);
        let other = |name: &&String| {
            theirs.get(*name).is_some_and(|other| other.fingerprint() != ours[*name].fingerprint())
        };
        let mut found = LoadedParameters {
            other_vocabularies: ours.keys().filter(other).cloned().collect(),
            ..LoadedParameters::default()
        };
        let shown = |value: &Storage| match value.kind() {
            StorageKind::Dense => format!("{}{:?}", value.dtype(), value.shape()),
            kind => format!("{}{:?} {kind}", value.dtype(), value.shape()),
        };
        let layout = |value: &Storage| (value.kind(), value.dtype(), value.shape().to_vec());
        let own = self.parameters()?;
        for (name, value) in &own {
            match given.get(&**name) {
                None => found.only_in_model.push(name.clone()),
                Some(other) if layout(other) == layout(value) => {
                    found.loaded.push(name.clone());
                }
                Some(other) => {
                    let (in_model, in_checkpoint) = (shown(value), shown(other));
                    found.unlike.push(ParameterMismatch { name: name.clone(), in_model, in_checkpoint });
                }
            }
        }
        let foreign = given.keys().filter(|name| !own.contains_key(**name));
        found.only_in_checkpoint = foreign.map(|&name| name.to_owned()).collect();
        Ok((given, found))
    }

    /// Sets parameters that fit, once all were found finite.
    fn set_all(&mut self, given: &Parameters<'_>, names: &[String]) -> Result<()> {
        let values = || names.iter().filter_map(|name| Some((name, *given.get(&**name)?)));
        for (name, value) in values() {
            value.check_finite("value of the checkpoint").map_err(|e| e.variable(name))?;
        }
        values().try_for_each(|(name, value)| self.scope.set(name, value.clone()))
    }
}

/// A checkpoint whose parameters are those to predict with.
fn predicting(from: &Checkpoint) -> Result<Cow<'_, Checkpoint>> {
    if from.predicts_as_it_is() { Ok(Cow::Borrowed(from)) } else { from.clone().predicting().map(Cow::Owned) }
}

/// The parameters of a checkpoint, by name.
type Parameters<'a> = BTreeMap<&'a str, &'a Storage>;
