//! Parameter averaging: averages of the parameters over the training steps, for evaluation and prediction.

use super::trainer::Trainer;
use crate::error::{CallerSetting, Error, Result};
use crate::operator::Attributes;
use crate::optimizer::{average, averages};
use crate::tensor::Storage;

/// The settings of parameter averaging ([`Trainer::averaged`]): the training evaluates and predicts with averages of the
/// parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Averaging {
    /// The decay of the exponential moving average; 1 means the mean over the steps.
    decay: f64,
    start: u64,
    except: Vec<String>,
}

impl Averaging {
    /// Exponential moving average (EMA): after each step, average = decay · average + (1 − decay) · parameter. The
    /// decay is above 0 and below 1, such as 0.999. After the first step, the average equals the parameter.
    pub fn ema(decay: f64) -> Self {
        // The field `decay` is 1 for the mean, so a user's decay of 1 is stored as NaN, which the check rejects.
        Self { decay: if decay == 1.0 { f64::NAN } else { decay }, start: 0, except: Vec::new() }
    }

    /// Mean of the parameters over all steps (Polyak and Juditsky, 1992), or only over late steps if [`since`](Self::since) is
    /// set. The mean over late steps is "stochastic weight averaging" (Izmailov et al., 2018, arXiv:1803.05407), but includes
    /// the parameters of every step, not only of the last step of each epoch or cycle.
    pub fn mean() -> Self {
        Self { decay: 1.0, start: 0, except: Vec::new() }
    }

    /// Sets the first step that the average includes; before this step, the average equals the parameter. The first
    /// step of a training is step 0.
    #[must_use]
    pub fn since(self, step: u64) -> Self {
        Self { start: step, ..self }
    }

    /// Excludes the parameters of these names from averaging: evaluation and prediction use the last values of these
    /// parameters.
    #[must_use]
    pub fn except<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self { except: names.into_iter().map(Into::into).collect(), ..self }
    }
}

impl Trainer {
    /// Parameter averaging (EMA, SWA): evaluation, the choice of the best epoch and prediction use averages of the
    /// parameters over the steps. The steps themselves train the parameters, not the averages. The averages are state
    /// variables of the program, so they are saved and resumed like the optimizer's state.
    ///
    /// When the training starts, a parameter with a sparse gradient (selected rows) is an error that names the parameter: its
    /// average would update the whole table at every step. Exclude such a parameter with [`Averaging::except`], or make its
    /// gradient dense.
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Adam;
    /// # use unpadded::train::{Averaging, Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8).sparse()).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// let trainer = Trainer::new(net, loss, &Adam::new(0.01))?;
    /// let mut trainer = trainer.averaged(Averaging::ema(0.9).except(["embedding_0.weight"]));
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// trainer.fit(&data, &data, Until::Epochs(2))?;
    /// assert_ne!(trainer.scope().get("linear_0.bias.average")?, trainer.scope().get("linear_0.bias")?);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn averaged(mut self, averaging: Averaging) -> Self {
        let setting = CallerSetting::new(());
        let appended = self.append_averages(&averaging, setting.line.to_string());
        self.settings.averaged_wrongly = appended.err().map(|error| error.called(setting.line));
        self.step.programs = None;
        self
    }

    fn append_averages(&mut self, averaging: &Averaging, caller: String) -> Result<()> {
        let Averaging { decay, start, except } = averaging;
        if averages(&self.training.program).next().is_some() {
            return Err(Error::new("averages of the parameters", "one kind of average", "a second kind"));
        }
        if !(*decay > 0.0 && *decay <= 1.0) {
            return Err(Error::new("decay of an average", "a number above 0 and below 1", decay.to_string()));
        }
        let mut program = self.training.program.clone();
        let name = |param| self.training.program.var(param).name.as_str();
        let trained: Vec<&str> = self.training.trained.iter().map(|&(param, _)| name(param)).collect();
        if let Some(unknown) = except.iter().find(|except| !trained.contains(&except.as_str())) {
            let expected = format!("a trained parameter ({})", trained.join(", "));
            return Err(Error::new("parameter not to average", expected, format!("`{unknown}`")));
        }
        let start = usize::try_from(*start).unwrap_or(usize::MAX);
        for &parameter in self
            .training
            .trained
            .iter()
            .filter(|(param, _)| !except.iter().any(|except| except == name(*param)))
        {
            let attributes = Attributes::new().with("start", start).with("decay", *decay);
            average(&mut program, &self.training.registry, parameter, attributes, caller.clone())?;
        }
        for (param, average) in averages(&program) {
            let start = self.training.scope.value(param)?;
            self.training.scope.set(average, start)?;
        }
        self.training.program = program;
        Ok(())
    }

    pub(super) fn check_averages(&self) -> Result<()> {
        self.settings.averaged_wrongly.clone().map_or(Ok(()), Err)
    }

    /// Returns the pairs (parameter, average of the parameter), by name; empty before the first step.
    pub(super) fn averages(&self) -> Vec<(String, String)> {
        if self.training.position.step == 0 {
            return Vec::new();
        }
        let names = averages(&self.training.program);
        names.map(|(param, average)| (param.to_owned(), average.to_owned())).collect()
    }

    /// Calls `act` with the averages as the values of the parameters; restores the parameters afterwards.
    pub(super) fn with_averages<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut raw: Vec<(String, Storage)> = Vec::new();
        for (param, average) in self.averages() {
            let (value, average) = (self.training.scope.value(&param)?, self.training.scope.value(&average)?);
            self.training.scope.set(&param, average)?;
            raw.push((param, value));
        }
        let outcome = act(self);
        raw.into_iter().try_for_each(|(param, value)| self.training.scope.set(&param, value))?;
        outcome
    }
}
