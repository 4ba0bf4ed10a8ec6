//! The trainer: the settings and the state of a training.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::progress::Progress;
use super::settings::{LossSettings, TrainingSettings};
use super::step::StepState;
use super::training::TrainingState;
use super::until::Steps;
use crate::checkpoint::{Checkpoint, EpochScores, Position};
use crate::data::Vocabulary;
use crate::error::{AtCaller, CallerSetting, Error, Result};
use crate::executor::Scope;
use crate::metrics::{Loss, Metric};
use crate::on_data::{Measure, named};
use crate::optimizer::Optimizer;
use crate::program::transform::blocked::blocked;
use crate::program::{Builder, Program, Var};
use crate::tensor::Storage;

/// A trainer of a program: it runs epochs, evaluations and early stopping, and saves checkpoints.
///
/// Methods that take and return the trainer set its options; [`fit`](Self::fit) starts the training:
///
/// ```
/// use unpadded::data::{Batching, Field, Loader, Samples};
/// use unpadded::layers::Embedding;
/// use unpadded::ops::Pool;
/// use unpadded::optimizer::Adam;
/// use unpadded::metrics::Accuracy;
/// use unpadded::train::{Progress, Trainer, Until};
/// use unpadded::{Builder, DType};
/// let net = Builder::new().seed(1);
/// let words = net.feed("words", DType::I64, &[], 1);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let h = words.embedding(Embedding::new(9, 8).sparse()).lstm(8);
/// let logits = h.sequence_pool(Pool::Last).linear(2);
/// let loss = logits.cross_entropy(label).mean();
///
/// // Which of two words came last?
/// let sample = |i: i64| vec![Field::from(vec![i % 7, 3, 7 + i % 2]), (i % 2).into()];
/// let samples = |part: std::ops::Range<i64>| part.map(sample).collect::<Samples>();
/// let train = Loader::new(samples(0..64), &["words", "label"])?.batching(Batching::Sequences(8)).shuffle(1);
/// let dev = Loader::new(samples(64..80), &["words", "label"])?;
///
/// let mut trainer = Trainer::new(net, loss, &Adam::new(0.02).lazy())?
///     .metric(Accuracy::new(logits, label))
///     .progress(Progress::Quiet);
/// let report = trainer.fit(&train, &dev, Until::Epochs(5))?;
/// assert_eq!((report.epochs, report.steps), (5, 40));
/// assert_eq!(report.last.get("accuracy"), Some(1.0));
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Failures during a training
/// An error in the data, in a step or in a metric ends `fit`. The parameters then have their values after the last complete
/// step. The error names the position of the last saved checkpoint, from which the training can be resumed. A loss or a
/// gradient that is not finite is detected before any update. The error names the operator, the variable and the line of the
/// program that first produced such a number.
pub struct Trainer {
    pub(super) settings: TrainingSettings,
    pub(super) training: TrainingState,
    pub(super) step: StepState,
}

/// Returns the text of the warning that the gradient ends at an operator, with the operator's source line.
pub(super) fn ends_at((operator, line): &(String, String)) -> String {
    format!("no gradient flows through `{operator}`, called at {line}")
}

/// The advice in the error about a loss that cannot be computed from parts of a batch.
pub(super) const BY_WEIGHT: &str = "`Trainer::weight` sets the weight of each batch";

impl Trainer {
    /// Makes a trainer for the program of `net`: appends the backward operators of `loss` and the updates of `optimizer`, and
    /// initializes the parameters. At its first call, `fit` warns of operators without a gradient between the loss and a
    /// trained parameter, such as `crf_marginals`.
    ///
    /// # Errors
    /// Returns all errors that were recorded while the program was built, and the errors of [`Optimizer::minimize`]. Also
    /// returns an error if `loss` belongs to another builder, or if an initializer does not fit the shape of its parameter.
    #[track_caller]
    pub fn new(net: Builder, loss: Var, optimizer: &dyn Optimizer) -> Result<Self> {
        let caller = Location::caller();
        net.check_whole()?;
        let (registry, mut program) = (net.registry(), net.program()?);
        net.owned(loss).map_err(|e| e.called(caller))?;
        let forward = program.vars().len();
        let own = Loss::new(loss);
        let unseen = own.refused().err().map(|error| error.noted(BY_WEIGHT).called(caller));
        let blocked =
            blocked(&program, &registry, loss.id(), &net.stopped()).map_err(|e| e.called(caller))?;
        let untrained = program.var(loss.id()).stop_gradient;
        let minimized = optimizer.minimize(&mut program, &registry, loss.id()).map_err(|e| {
            let ends = blocked.iter().filter(|_| untrained).map(ends_at);
            ends.fold(e, Error::noted).called(caller)
        })?;
        program.called_from(caller);
        let scope = Scope::of(&program).map_err(|e| e.called(caller))?;
        let objective = LossSettings { select: None, weight: None, own_loss: true, unseen };
        let training = TrainingState {
            registry,
            state: Checkpoint { program, ..Checkpoint::default() },
            forward,
            loss,
            trained: minimized.gradients,
            rate: minimized.rate,
            scope,
            blocked,
            held: None,
            saved: None,
            resumed: false,
            dealt_as: None,
            rows_from: None,
            sums: Vec::new(),
            net,
        };
        Ok(Self {
            settings: TrainingSettings::new(CallerSetting::new(Box::new(own)), objective),
            training,
            step: StepState::default(),
        })
    }

    /// Sets the number of threads (default: 0, which means one per core of the machine). Results do not depend on the number of
    /// threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        (self.settings.threads, self.step.programs) = (threads, None);
        self
    }

    /// Adds a metric, which is computed over each epoch of training and in each evaluation. The first metric that you add
    /// decides which epoch is the best, unless [`Self::select`] names another metric. The loss is always a metric, too. The
    /// loss is computed over all rows of the data as if they were one batch: the sums and means in the loss run over the rows
    /// of all batches. An operator that reads a whole batch, such as `gather_rows` of a variable of the batch, reads each batch
    /// separately. If the development data have several batches, the progress warns of such operators. If the added metric is
    /// named `loss`, it replaces the loss.
    #[must_use]
    #[track_caller]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Self {
        self.step.programs = None;
        let metric: Measure = CallerSetting::new(Box::new(metric));
        match self.settings.metrics.first_mut() {
            Some(loss) if loss.name() == metric.name() => {
                (*loss, self.settings.objective.own_loss, self.settings.objective.unseen) =
                    (metric, false, None);
                self.training.sums.first_mut().into_iter().for_each(Vec::clear);
            }
            _ => self.settings.metrics.push(metric),
        }
        self
    }

    /// Sets the scalar variable that holds the weight of a batch. The loss over several batches is then Σ weight · loss / Σ
    /// weight. Reports, [accumulated](Self::accumulate) steps and the choice of the best epoch use this loss. A weight is
    /// needed for a loss that is not computed from sums and means over rows.
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Sgd;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..6).map(|i| vec![Field::from(vec![i % 5, 1])]).collect();
    /// # let data = Loader::new(samples, &["words"])?;
    /// let net = Builder::new();
    /// let y = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(9, 4)).linear(1);
    /// let loss = (y - y.mean()).square().mean(); // a batch's own mean is in every row
    /// let rows = y.fill_like(1.0).sum();
    /// let trainer = Trainer::new(net, loss, &Sgd::new(0.1))?.weight(rows);
    /// # trainer.progress(Progress::Quiet).fit(&data, &data, Until::Epochs(1))?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn weight(mut self, weight: Var) -> Self {
        (self.settings.objective.weight, self.settings.objective.unseen, self.step.programs) =
            (Some(CallerSetting::new(weight)), None, None);
        if let (Some(loss), true) = (self.settings.metrics.first_mut(), self.settings.objective.own_loss) {
            loss.what = Box::new(Loss::new(self.training.loss).weighted(weight));
            self.training.sums.first_mut().into_iter().for_each(Vec::clear);
        }
        self
    }

    /// Selects, by its name, the metric that decides which epoch is the best; `loss` is a metric, too.
    #[must_use]
    #[track_caller]
    pub fn select(mut self, metric: &str) -> Self {
        (self.settings.objective.select, self.step.programs) =
            (Some(CallerSetting::new(metric.to_owned())), None);
        self
    }

    /// Names an output: predictors return the variable `var` under this name. A variable of a step block, such as the weights
    /// of an attention, has one value per step: a [`Session`](crate::predict::Session) returns this value, and a
    /// [`Generator`](crate::predict::Generator) can use it.
    #[must_use]
    #[track_caller]
    pub fn output(mut self, name: &str, var: Var) -> Self {
        self.step.programs = None;
        self.training.state.outputs.insert(name.to_owned(), self.training.net.name_of(var));
        self.settings.outputs.push(CallerSetting::new((name.to_owned(), var)));
        self
    }

    /// Returns the variable of an output or of a feed, for a metric of your own on a model that other code has made.
    ///
    /// # Errors
    /// If the model has no output or feed of this name.
    #[track_caller]
    pub fn variable(&self, name: &str) -> Result<Var> {
        let outputs = self.settings.outputs.iter().map(|output| (&*output.0, output.1.id()));
        named(name, &self.training.program, outputs).map(|id| self.training.net.var(id)).at_caller()
    }

    /// Adds a vocabulary to the checkpoint, under the given name.
    #[must_use]
    pub fn vocabulary(mut self, name: &str, vocabulary: Vocabulary) -> Self {
        self.training.vocabularies.insert(name.to_owned(), vocabulary);
        self
    }

    /// Returns the vocabularies of the checkpoint, by name.
    pub fn vocabularies(&self) -> impl Iterator<Item = (&str, &Vocabulary)> {
        self.training.vocabularies.iter().map(|(name, vocabulary)| (name.as_str(), vocabulary))
    }

    /// Adds a text of your own to the checkpoint, under the given name.
    #[must_use]
    pub fn note(mut self, name: &str, text: impl Into<String>) -> Self {
        self.training.notes.insert(name.to_owned(), text.into());
        self
    }

    /// Sets the checkpoint file: the training is saved to it at the end of each epoch and at an interrupt; see [`Self::every`].
    ///
    /// The first save replaces any existing checkpoint, also one of another model, and keeps the permissions of the file. To
    /// continue a training instead, call [`resume`](Self::resume) or [`resume_if`](Self::resume_if). Before it trains,
    /// [`Self::fit`] returns an error if the file exists and is not a checkpoint, if it cannot be written, or if another
    /// training saves to it.
    #[must_use]
    pub fn checkpoint(mut self, path: impl Into<PathBuf>) -> Self {
        (self.settings.file, self.training.held) = (Some(path.into()), None);
        self
    }

    /// Also saves the checkpoint after every `steps` steps.
    #[must_use]
    #[track_caller]
    pub fn every(mut self, steps: Steps) -> Self {
        self.settings.every = Some(CallerSetting::new(steps.0));
        self
    }

    /// Early stopping: stops the training after `epochs` epochs in a row without an improvement (default: never). Early
    /// stopping needs no checkpoint file: the best epoch's parameters are kept in memory.
    #[must_use]
    #[track_caller]
    pub fn patience(mut self, epochs: u64) -> Self {
        self.settings.patience = Some(CallerSetting::new(epochs));
        self
    }

    /// Calls a function at the end of each epoch, after the evaluation and the save. If the function returns
    /// [`ControlFlow::Break`], the training ends after this epoch ([`StopReason::Stopped`](super::StopReason)); a later
    /// [`fit`](Self::fit) continues with the next epoch.
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Sgd;
    /// # use unpadded::train::{StopReason, Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// use std::ops::ControlFlow;
    /// # let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8)).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// let mut trainer = Trainer::new(net, loss, &Sgd::new(0.5))?.on_epoch(|epoch| {
    ///     println!("{}: {:?} on other texts", epoch.epoch, epoch.dev("loss"));
    ///     if epoch.epoch == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    /// });
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// let report = trainer.fit(&data, &data, Until::Epochs(12))?;
    /// assert_eq!((report.ended, report.epochs), (StopReason::Stopped, 3));
    /// let losses: Vec<f64> = report.history.iter().filter_map(|epoch| epoch.train("loss")).collect();
    /// assert!(losses[2] < losses[0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn on_epoch(mut self, each: impl FnMut(&EpochScores) -> ControlFlow<()> + 'static) -> Self {
        self.settings.on_epoch = Some(Box::new(each));
        self
    }

    /// Sets the output of the progress (default: [`Progress::Auto`]).
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.settings.progress = progress;
        self
    }

    /// Returns the stop flag, by which other threads can stop the training. Setting the flag to `true` has the effect of
    /// Ctrl-C: [`Self::fit`] finishes the step, saves, resets the flag and returns.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.step.stop.clone()
    }

    /// Returns the training program: forward, backward and updates.
    pub fn program(&self) -> &Program {
        &self.training.program
    }

    /// Sets a parameter to the given value, for example to pre-trained weights. All processes of a
    /// [distributed](Self::distributed) training must call `set_parameter` together, with equal values.
    ///
    /// # Errors
    /// Returns an error if there is no parameter of this name, or if the value and the parameter differ in shape, dtype or
    /// storage.
    #[track_caller]
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Storage>) -> Result<()> {
        if !self.training.scope.names().any(|known| known == name) {
            let known: Vec<String> = self
                .training
                .program
                .parameters()
                .map(|id| self.training.program.var(id).name.clone())
                .collect();
            let expected = format!("one of `{}`", known.join("`, `"));
            return Err(Error::new("name of a parameter", expected, format!("`{name}`")));
        }
        self.settle().at_caller()?;
        self.set_value(name, value.into())
    }

    /// Returns the scope, which has the parameters and the optimizer's state, for inspection. In a training with sparse
    /// gradients, rows of parameters may have pending moves: [`settle`](crate::executor::settle) applies them, as every
    /// evaluation does.
    pub fn scope(&mut self) -> &mut Scope {
        &mut self.training.scope
    }

    /// Returns the position of the training: its epoch, batch and step.
    pub fn position(&self) -> &Position {
        &self.training.position
    }

    /// Returns the scores of all finished epochs, in order; epochs before [`Self::resume`] are included.
    pub fn history(&self) -> &[EpochScores] {
        &self.training.history
    }
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("position", &self.training.position).finish_non_exhaustive()
    }
}
