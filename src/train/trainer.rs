//! The trainer: the settings and the state of a training.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::compiled::CompiledTraining;
use super::plateau::Plateau;
use super::progress::Progress;
use super::until::Steps;
use crate::checkpoint::{Checkpoint, EpochScores, Position};
use crate::data::Vocabulary;
use crate::error::{CallerSetting, Error, Result};
use crate::executor::{MemoryUse, Scope};
use crate::metrics::{Loss, Metric};
use crate::operator::{Precision, Registry, VarId};
use crate::optimizer::Optimizer;
use crate::parallel::World;
use crate::predict::Measure;
use crate::program::transform::blocked::blocked;
use crate::program::{Builder, Program, Var};
use crate::tensor::{Storage, Variable};
use crate::wire::Target;

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
    pub(super) net: Builder,
    pub(super) registry: Registry,
    /// The checkpoint of this training, without the tensors, which are in `scope`.
    pub(super) state: Checkpoint,
    /// The number of variables of the program before the backward operators were appended.
    pub(super) forward: usize,
    pub(super) loss: Var,
    /// The variable of [`Self::weight`], which weighs the losses of batches; `None` if `weight` was not called.
    pub(super) weight: Option<CallerSetting<Var>>,
    /// Whether the first metric is the trainer's own loss; `false` if a user's metric named `loss` replaces it.
    pub(super) own_loss: bool,
    /// The error for a loss that cannot be computed over several batches; it has the line that made the trainer. `None` if the
    /// loss can be computed batch by batch.
    pub(super) unseen: Option<Error>,
    /// The trained parameters: pairs (parameter, gradient).
    pub(super) trained: Vec<(VarId, VarId)>,
    /// The variable of the learning rate.
    pub(super) rate: VarId,
    pub(super) scope: Scope,
    pub(super) compiled: Option<CompiledTraining>,

    pub(super) threads: usize,
    /// The metrics; the loss is the first one.
    pub(super) metrics: Vec<Measure>,
    pub(super) select: Option<CallerSetting<String>>,
    pub(super) outputs: Vec<CallerSetting<(String, Var)>>,
    pub(super) file: Option<PathBuf>,
    pub(super) every: Option<CallerSetting<u64>>,
    pub(super) patience: Option<CallerSetting<u64>>,
    pub(super) on_epoch: Option<OnEpoch>,
    pub(super) accumulate: Option<CallerSetting<u64>>,
    pub(super) parts: Option<CallerSetting<u64>>,
    pub(super) memory_limit: Option<CallerSetting<u64>>,
    pub(super) precision: Option<CallerSetting<Precision>>,
    /// Whether [`Self::allow_slow`] was called.
    pub(super) allow_slow: bool,
    /// The bytes of the selected rows that the gradients of the current step in parts collect; 0 while no step in parts
    /// runs.
    pub(super) collected: usize,
    /// The computed memory of the largest step of this run, and the number of steps that were divided.
    pub(super) largest: MemoryUse,
    pub(super) divided: u64,
    /// The data that the training holds in memory, in bytes, and the number of batches that its loader makes in advance.
    pub(super) held_data: (usize, usize),
    /// The processes that train together; `None` without [`Self::distributed`].
    pub(super) world: Option<World>,
    /// For each part that this process computes, the carried states; used only if batches have several parts.
    pub(super) carried: Vec<BTreeMap<String, Variable>>,
    /// The number of tokens in the parts that this process has computed in this run.
    pub(super) computed: u64,
    /// Whether any process was asked to stop; the processes exchange this flag at the end of each step.
    pub(super) stopping: bool,
    /// Whether [`Self::remeasure_best`] was called.
    pub(super) remeasure: bool,
    pub(super) plateau: Option<CallerSetting<Plateau>>,
    pub(super) rate_by: Option<CallerSetting<RateFn>>,
    /// Whether [`Self::change_rate`] was called.
    pub(super) change_rate: bool,
    /// An error in the settings of [`Self::averaged`], which `fit` returns.
    pub(super) averaged_wrongly: Option<Error>,
    pub(super) progress: Progress,
    /// The operators without a gradient between the loss and a trained parameter: pairs (operator, source line).
    pub(super) blocked: Vec<(String, String)>,
    /// Whether the warnings that come before the first step have been printed.
    pub(super) warned: bool,
    pub(super) stop: Arc<AtomicBool>,

    /// The lock of the checkpoint file, held from [`Self::resume`] until `fit` takes it over.
    pub(super) held: Option<Target>,
    /// The position in the checkpoint file; `None` if this trainer has neither saved nor loaded the file.
    pub(super) saved: Option<Position>,
    /// Whether the position was loaded from a checkpoint: the data must then be the data of that checkpoint.
    pub(super) resumed: bool,
}

/// A user's function that the trainer calls after each epoch.
type OnEpoch = Box<dyn FnMut(&EpochScores) -> ControlFlow<()>>;

/// A user's function that returns a factor of the learning rate for a position.
type RateFn = Box<dyn Fn(&Position) -> f64>;

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
        Ok(Self {
            registry,
            state: Checkpoint { program, ..Checkpoint::default() },
            forward,
            loss,
            weight: None,
            own_loss: true,
            unseen,
            trained: minimized.gradients,
            rate: minimized.rate,
            scope,
            compiled: None,
            threads: 0,
            metrics: vec![CallerSetting::new(Box::new(own))],
            select: None,
            outputs: Vec::new(),
            file: None,
            every: None,
            patience: None,
            on_epoch: None,
            accumulate: None,
            parts: None,
            memory_limit: None,
            precision: None,
            allow_slow: false,
            collected: 0,
            largest: MemoryUse::default(),
            divided: 0,
            held_data: (0, 0),
            world: None,
            carried: Vec::new(),
            computed: 0,
            stopping: false,
            remeasure: false,
            plateau: None,
            rate_by: None,
            change_rate: false,
            averaged_wrongly: None,
            progress: Progress::Auto,
            blocked,
            warned: false,
            stop: Arc::default(),
            held: None,
            saved: None,
            resumed: false,
            net,
        })
    }

    /// Sets the number of threads (default: 0, which means one per core of the machine). Results do not depend on the number of
    /// threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        (self.threads, self.compiled) = (threads, None);
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
        self.compiled = None;
        let metric: Measure = CallerSetting::new(Box::new(metric));
        match self.metrics.first_mut() {
            Some(loss) if loss.name() == metric.name() => {
                (*loss, self.own_loss, self.unseen) = (metric, false, None);
            }
            _ => self.metrics.push(metric),
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
        (self.weight, self.unseen, self.compiled) = (Some(CallerSetting::new(weight)), None, None);
        if let (Some(loss), true) = (self.metrics.first_mut(), self.own_loss) {
            loss.what = Box::new(Loss::new(self.loss).weighted(weight));
        }
        self
    }

    /// Selects, by its name, the metric that decides which epoch is the best; `loss` is a metric, too.
    #[must_use]
    #[track_caller]
    pub fn select(mut self, metric: &str) -> Self {
        (self.select, self.compiled) = (Some(CallerSetting::new(metric.to_owned())), None);
        self
    }

    /// Names an output: predictors return the variable `var` under this name. A variable of a step block, such as the weights
    /// of an attention, has one value per step: a [`Session`](crate::predict::Session) returns this value, and a
    /// [`Generator`](crate::predict::Generator) can use it.
    #[must_use]
    #[track_caller]
    pub fn output(mut self, name: &str, var: Var) -> Self {
        self.compiled = None;
        self.state.outputs.insert(name.to_owned(), self.net.name_of(var));
        self.outputs.push(CallerSetting::new((name.to_owned(), var)));
        self
    }

    /// Adds a vocabulary to the checkpoint, under the given name.
    #[must_use]
    pub fn vocabulary(mut self, name: &str, vocabulary: Vocabulary) -> Self {
        self.state.vocabularies.insert(name.to_owned(), vocabulary);
        self
    }

    /// Returns the vocabularies of the checkpoint, by name.
    pub fn vocabularies(&self) -> impl Iterator<Item = (&str, &Vocabulary)> {
        self.state.vocabularies.iter().map(|(name, vocabulary)| (name.as_str(), vocabulary))
    }

    /// Adds a text of your own to the checkpoint, under the given name.
    #[must_use]
    pub fn note(mut self, name: &str, text: impl Into<String>) -> Self {
        self.state.notes.insert(name.to_owned(), text.into());
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
        (self.file, self.held) = (Some(path.into()), None);
        self
    }

    /// Also saves the checkpoint after every `steps` steps.
    #[must_use]
    #[track_caller]
    pub fn every(mut self, steps: Steps) -> Self {
        self.every = Some(CallerSetting::new(steps.0));
        self
    }

    /// Early stopping: stops the training after `epochs` epochs in a row without an improvement (default: never). Early
    /// stopping needs no checkpoint file: the best epoch's parameters are kept in memory.
    #[must_use]
    #[track_caller]
    pub fn patience(mut self, epochs: u64) -> Self {
        self.patience = Some(CallerSetting::new(epochs));
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
        self.on_epoch = Some(Box::new(each));
        self
    }

    /// Sets the output of the progress (default: [`Progress::Auto`]).
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Returns the stop flag, by which other threads can stop the training. Setting the flag to `true` has the effect of
    /// Ctrl-C: [`Self::fit`] finishes the step, saves, resets the flag and returns.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Returns the training program: forward, backward and updates.
    pub fn program(&self) -> &Program {
        &self.state.program
    }

    /// Sets a parameter to the given value, for example to pre-trained weights. All processes of a
    /// [distributed](Self::distributed) training must call `set_parameter` together, with equal values.
    ///
    /// # Errors
    /// Returns an error if there is no parameter of this name, or if the value and the parameter differ in shape, dtype or
    /// storage.
    #[track_caller]
    pub fn set_parameter(&mut self, name: &str, value: impl Into<Storage>) -> Result<()> {
        if !self.scope.names().any(|known| known == name) {
            let known: Vec<String> =
                self.state.program.parameters().map(|id| self.state.program.var(id).name.clone()).collect();
            let expected = format!("one of `{}`", known.join("`, `"));
            return Err(Error::new("name of a parameter", expected, format!("`{name}`")));
        }
        self.settle()?;
        self.scope.set(name, value)
    }

    /// Returns the scope, which has the parameters and the optimizer's state, for inspection. In a training with sparse
    /// gradients, rows of parameters may have pending moves: [`settle`](crate::executor::settle) applies them, as every
    /// evaluation does.
    pub fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    /// Returns the position of the training: its epoch, batch and step.
    pub fn position(&self) -> &Position {
        &self.state.position
    }

    /// Returns the scores of all finished epochs, in order; epochs before [`Self::resume`] are included.
    pub fn history(&self) -> &[EpochScores] {
        &self.state.history
    }
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("position", &self.state.position).finish_non_exhaustive()
    }
}
