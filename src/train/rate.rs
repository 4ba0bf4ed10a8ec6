//! Changes of the learning rate in addition to the optimizer's schedule: a plateau schedule, a factor that a user's function
//! returns, and a new rate for a resumed training.

use super::plateau::Plateau;
use super::progress::shown;
use super::trainer::Trainer;
use crate::checkpoint::{Checkpoint, Position};
use crate::error::{CallerSetting, Error, Result};
use crate::optimizer::{self, RATE_SCALE};
use crate::program::Program;
use crate::tensor::{Dense, Storage};

impl Trainer {
    /// Plateau schedule: lowers the learning rate when the selected metric stalls. The selected metric is the one that decides
    /// which epoch is the best. The lowered rate and the number of epochs without an improvement are saved and resumed with the
    /// training. The optimizer need not be made `adjustable` for this.
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::{RATE_SCALE, Sgd};
    /// # use unpadded::train::{Plateau, Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8)).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// // At so small a rate the loss hardly changes.
    /// let mut trainer = Trainer::new(net, loss, &Sgd::new(1e-9))?.plateau(Plateau::new(0.5).patience(2));
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// trainer.fit(&data, &data, Until::Epochs(12))?;
    /// assert!(trainer.scope().get(RATE_SCALE)?.as_slice::<f32>()?[0] < 1.0);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn plateau(mut self, plateau: Plateau) -> Self {
        self.settings.rates.plateau = Some(CallerSetting::new(plateau));
        self.adjustable()
    }

    /// Multiplies the learning rate of each step by `factor(position)`, which must be finite and at least 0. The `step`
    /// of the position is the index of the next step, counted from 0. The optimizer's schedule and [`Self::plateau`]
    /// apply, too: the factor multiplies their rate.
    ///
    /// A checkpoint cannot hold a function: call `rate_by` again when the training is resumed.
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Sgd;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8)).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// let trainer = Trainer::new(net, loss, &Sgd::new(0.5))?;
    /// let mut trainer = trainer.rate_by(|position| 1.0 / (1.0 + position.epoch as f64));
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// trainer.fit(&data, &data, Until::Epochs(2))?;
    /// assert_eq!(trainer.rate(), Some(0.25));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn rate_by(mut self, factor: impl Fn(&Position) -> f64 + 'static) -> Self {
        self.settings.rates.rate_by = Some(CallerSetting::new(Box::new(factor)));
        self.adjustable()
    }

    /// Allows [`resume`](Self::resume) to change the learning rate. The base rate and the schedule of the steps to come may
    /// then differ from the checkpoint, and a [`plateau`](Self::plateau) or a function of [`rate_by`](Self::rate_by) may be
    /// added or removed. By default, `resume` returns an error for each of these changes. The new rate applies from the next
    /// step on, and a plateau schedule starts again. Everything else must be the same as in the checkpoint, including the
    /// learning rates of parameter groups. A schedule that gives the finished steps other rates at the old base rate, and also
    /// other shares of the base rate, such as a cosine over more steps, stays an error, since the rate would jump.
    #[must_use]
    pub fn change_rate(mut self) -> Self {
        self.settings.rates.change_rate = true;
        self
    }

    /// Returns the learning rate of the last step, after the schedule, the plateau and the function of
    /// [`rate_by`](Self::rate_by); `None` before the first step.
    pub fn rate(&self) -> Option<f64> {
        self.training.position.rate
    }

    /// Adds a state variable to the program: the factor by which the learning rate is multiplied. If the optimizer has no
    /// learning rate to multiply, `fit` returns the error.
    fn adjustable(mut self) -> Self {
        if optimizer::adjustable(&mut self.training.state.program, self.training.rate).is_ok()
            && self.training.scope.value(RATE_SCALE).is_err()
        {
            // Setting a scalar cannot fail.
            self.training.scope.set(RATE_SCALE, one()).ok();
        }
        self.step.programs = None;
        self
    }

    /// Checks the settings that change the learning rate.
    pub(super) fn check_rate(&self) -> Result<()> {
        let line = self.settings.rates.plateau.as_ref().map(|given| given.line).or(self
            .settings
            .rates
            .rate_by
            .as_ref()
            .map(|given| given.line));
        let Some(line) = line else { return Ok(()) };
        let base =
            optimizer::base_rate(&self.training.program, self.training.rate).map_err(|e| e.called(line))?;
        self.settings
            .rates
            .plateau
            .as_ref()
            .map_or(Ok(()), |given| given.check(base).map_err(|e| e.called(given.line)))
    }

    /// Lowers the learning rate after an epoch if the plateau schedule's patience is over; returns the message about the
    /// change.
    pub(super) fn lower_rate(&mut self, better: bool) -> Result<Option<String>> {
        let Some(Plateau { factor, patience, least }) = self.settings.rates.plateau.as_deref().copied()
        else {
            return Ok(None);
        };
        let stalled = &mut self.training.position.stalled;
        *stalled = if better { 0 } else { *stalled + 1 };
        if *stalled < patience {
            return Ok(None);
        }
        *stalled = 0;
        let base = optimizer::base_rate(&self.training.program, self.training.rate)?;
        let scale = self.scale()?;
        let lower = (f64::from(scale) * factor).max(least / base) as f32;
        if lower >= scale {
            return Ok(None);
        }
        self.training.scope.set(RATE_SCALE, Dense::from_vec(&[], vec![lower])?)?;
        let epochs = if patience == 1 { "an epoch".to_owned() } else { format!("{patience} epochs") };
        Ok(Some(format!(
            "no better for {epochs}: base rate lowered from {} to {}",
            shown(base * f64::from(scale)),
            shown(base * f64::from(lower))
        )))
    }

    /// Makes a step at the learning rate multiplied by the user's function; restores the rate's scale afterwards.
    pub(super) fn at_rate<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let Some(given) = &self.settings.rates.rate_by else { return step(self) };
        let factor = (**given)(&self.training.position);
        if !(factor.is_finite() && factor >= 0.0) {
            let what = format!("factor of the learning rate at {}", self.training.position);
            return Err(Error::new(what, "a finite number from 0", factor.to_string()).called(given.line));
        }
        let scale = self.scale()?;
        let product = (f64::from(scale) * factor) as f32;
        self.training.scope.set(RATE_SCALE, Dense::from_vec(&[], vec![product])?)?;
        let made = step(self);
        self.training.scope.set(RATE_SCALE, Dense::from_vec(&[], vec![scale])?)?;
        made
    }

    fn scale(&mut self) -> Result<f32> {
        Ok(self.training.scope.get(RATE_SCALE)?.as_slice::<f32>()?[0])
    }
}

/// Replaces the learning rate in the checkpoint `from` by the rate of the program `ours`, and removes the lowering by a plateau
/// schedule. If the programs differ in more than the learning rate, changes nothing and returns the first difference.
pub(super) fn renew_rate(ours: &Program, from: &mut Checkpoint) -> Option<String> {
    let mut theirs = from.program.clone();
    optimizer::take_rate(ours, &mut theirs);
    let beside = ours.difference(&theirs);
    if beside.is_some() {
        return beside;
    }
    from.program = theirs;
    from.tensors.remove(RATE_SCALE);
    if ours.find(RATE_SCALE).is_some() {
        from.tensors.insert(RATE_SCALE.to_owned(), one());
    }
    from.position.stalled = 0;
    None
}

fn one() -> Storage {
    ndarray::arr0(1.0f32).into()
}
