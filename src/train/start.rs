//! Fine-tuning: a training starts from the parameters of another training.

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

/// The report of [`Trainer::load_fitting_parameters`]: the parameters that were loaded, and all differences between the model
/// and the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadedParameters {
    /// The names of the loaded parameters: they have the checkpoint's values now.
    pub loaded: Vec<String>,
    /// The names of the model's parameters that the checkpoint does not have; these parameters keep their values.
    pub only_in_model: Vec<String>,
    /// The names of the checkpoint's parameters that the model does not have.
    pub only_in_checkpoint: Vec<String>,
    /// The parameters whose shape or dtype differs between model and checkpoint; these parameters keep their values.
    pub unlike: Vec<ParameterMismatch>,
    /// The names of vocabularies that have other entries or other ids in the checkpoint than in the model. A parameter with one
    /// row per entry of such a vocabulary may have the right shape, but its rows belong to other entries.
    pub other_vocabularies: Vec<String>,
}

/// A parameter whose shape or dtype differs between a checkpoint and the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParameterMismatch {
    /// The parameter's name.
    pub name: String,
    /// The dtype and shape in the model, such as `f32[8, 2]`.
    pub in_model: String,
    /// The dtype and shape in the checkpoint, such as `f32[8, 5]`.
    pub in_checkpoint: String,
}

/// Prints a line such as `3 loaded; only in the model: a, b; of another shape: c (f32[2] in the model, f32[3] in the
/// checkpoint)`.
impl fmt::Display for LoadedParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} loaded", self.loaded.len())?;
        self.differences().iter().try_for_each(|difference| write!(f, "; {difference}"))
    }
}

impl LoadedParameters {
    /// Returns the differences between the model and the checkpoint, as texts.
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
    /// Fine-tuning: copies the parameters of another training's checkpoint into the model, matched by name. If the
    /// checkpoint has the parameters of its best epoch, these parameters are copied. The model and the checkpoint must
    /// have the same parameters, with the same shapes and dtypes; vocabularies of the same name must be equal. The
    /// optimizer's state and the position in the data are not copied: the training starts at step 0.
    ///
    /// # Errors
    /// Returns an error if this training has already made a step; if parameters or vocabularies differ (the error lists all
    /// differences); or if a value is not finite. After an error, the model is unchanged.
    #[track_caller]
    pub fn load_parameters(&mut self, from: &Checkpoint) -> Result<()> {
        let from = &from.predicting_copy(&self.training.registry).at_caller()?;
        let (given, found) = self.compare(from).at_caller()?;
        let differences = found.differences();
        if !differences.is_empty() {
            let expected = "the model's parameters, with the same names, shapes and vocabularies";
            let error = Error::of(
                ErrorKind::Program,
                "parameters of the checkpoint",
                expected,
                differences.join("; "),
            );
            return Err(error.noted_in_code("`Trainer::load_fitting_parameters` loads what fits"));
        }
        self.set_all(&given, &found.loaded).at_caller()
    }

    /// Fine-tuning with another last layer: loads the parameters of the checkpoint whose name, shape and dtype fit the model.
    /// Returns the loaded parameters and the differences. In everything else, the method works as [`Self::load_parameters`]
    /// does.
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
    /// Returns an error if this training has already made a step; if no parameter fits; or if a value of a fitting parameter is
    /// not finite. After an error, the model is unchanged.
    #[track_caller]
    pub fn load_fitting_parameters(&mut self, from: &Checkpoint) -> Result<LoadedParameters> {
        let from = &from.predicting_copy(&self.training.registry).at_caller()?;
        let (given, found) = self.compare(from).at_caller()?;
        if found.loaded.is_empty() {
            let expected = "at least one parameter that fits the model by name and shape";
            let got = format!("none ({})", found.differences().join("; "));
            return Err(Error::of(ErrorKind::Program, "parameters of the checkpoint", expected, got));
        }
        self.set_all(&given, &found.loaded).at_caller()?;
        Ok(found)
    }

    /// Copies the weights of a safetensors file into the model; the file has PyTorch's names and PyTorch's layout. The file
    /// must have exactly the parameters of the model, with the same shapes, except for the parameters and tensors that `names`
    /// excludes. Floats are converted to the dtype of the parameter.
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
    /// Returns an error if this training has already made a step, and the errors of
    /// [`import`](crate::formats::safetensors::import). After an error, the model is unchanged.
    #[cfg(feature = "safetensors")]
    #[track_caller]
    pub fn load_safetensors(&mut self, path: impl AsRef<Path>, names: &Names) -> Result<ImportReport> {
        self.load_safetensors_file(path.as_ref(), names).at_caller()
    }

    #[cfg(feature = "safetensors")]
    fn load_safetensors_file(&mut self, path: &Path, names: &Names) -> Result<ImportReport> {
        self.not_begun()?;
        let (values, imported) = read(path, names, &self.training.program, Purpose::Training)?;
        values.into_iter().try_for_each(|(name, value)| self.set_value(&name, value))?;
        Ok(imported)
    }

    /// Checks that this training has made no step: after a step, the optimizer's state would not fit other parameters.
    fn not_begun(&self) -> Result<()> {
        if self.training.position.step == 0 {
            return Ok(());
        }
        let got = format!("a trainer at {}", self.training.position);
        let expected = "a trainer before its first step";
        Err(Error::of(ErrorKind::Program, "trainer to load parameters", expected, got))
    }

    /// Returns the parameters of a checkpoint, and a report of the parameters that fit the model and of all differences.
    fn compare<'a>(&mut self, from: &'a Checkpoint) -> Result<(Parameters<'a>, LoadedParameters)> {
        self.not_begun()?;
        from.check_whole("checkpoint to start from")?;
        let program = &from.program;
        let state = |name: &str| program.find(name).is_some_and(|id| program.var(id).role == VarRole::State);
        let given = if from.best.is_empty() { &from.tensors } else { &from.best };
        let given: Parameters<'_> =
            given.iter().map(|(name, value)| (&**name, value)).filter(|(name, _)| !state(name)).collect();
        let (ours, theirs) = (&self.training.vocabularies, &from.vocabularies);
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

    /// Checks that all given values are finite, and then sets the named parameters.
    fn set_all(&mut self, given: &Parameters<'_>, names: &[String]) -> Result<()> {
        let values = || names.iter().filter_map(|name| Some((name, *given.get(&**name)?)));
        for (name, value) in values() {
            value.check_finite("value of the checkpoint").map_err(|e| e.variable(name))?;
        }
        values().try_for_each(|(name, value)| self.set_value(name, value.clone()))
    }
}

/// The parameters of a checkpoint, by name.
type Parameters<'a> = BTreeMap<&'a str, &'a Storage>;
