//! Prediction with a trained model: a checkpoint's parameters and the part of its program that the outputs need.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use super::batch_limit::BatchLimit;
use super::checks::{listed, lock, numbers, unknown};
use super::compiled::{CompiledModel, IdleModels};
use super::model::Model;
use super::stepping::Stepping;
use super::turn::Turns;
use crate::checkpoint::Checkpoint;
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{MemoryUse, Threads};
use crate::metrics::Metric;
use crate::on_data::fed;
use crate::operator::precision::no_unit;
use crate::operator::{MatrixUnit, Precision, Registry, Spec, VarId};
use crate::ops;
use crate::program::{CarriedState, Var};
use crate::tensor::Variable;

/// A predictor: a trained model to predict with.
///
/// A predictor holds the parameters of the best epoch if the checkpoint has them, else the last parameters. It runs
/// only the operators that the requested outputs need: no labels are fed, and nothing is updated. Several threads may
/// predict at once, with one predictor or with clones of it. Clones share one copy of the parameters. Each batch that
/// runs at the same time as other batches needs its own memory for activations; later batches reuse this memory.
///
/// ```
/// use unpadded::checkpoint::Checkpoint;
/// use unpadded::predict::Predictor;
/// use unpadded::{Builder, DType, Registry, Variable, executor::Scope, ops};
///
/// let net = Builder::new().seed(1);
/// let x = net.feed("x", DType::F32, &[3], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let logits = x.linear(2);
/// logits.cross_entropy(label).mean();
/// let outputs = [("logits".to_owned(), net.name_of(logits))];
/// let mut checkpoint = Checkpoint::of(net.finish()?, outputs);
/// let mut scope = Scope::of(&checkpoint.program)?;
/// for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
///     checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name)?);
/// }
///
/// let predictor = Predictor::new(checkpoint, &ops::catalogue())?;
/// let x = Variable::dense(ndarray::array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// let out = predictor.run(&[("x", &x)], &["logits"])?;
/// assert_eq!(out[0].shape(), [2, 2]);
/// let error = predictor.run(&[("x", &x)], &["logit"]).unwrap_err().to_string();
/// assert!(error.contains("expected a known name (`logits`), got `logit`"));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Predictor {
    model: Arc<Model>,
    /// The number of threads; the threads are started by the first batch.
    threads: usize,
    started: Arc<OnceLock<Threads>>,
    idle: Arc<IdleModels>,
    /// For each list of outputs, the model prepared to run row by row in sessions and generators.
    stepping: Arc<Mutex<HashMap<Vec<String>, Arc<Stepping>>>>,
    limit: BatchLimit,
    /// The carried states after the last batch; empty before the first batch.
    left: Mutex<Vec<Variable>>,
    /// The lock that lets one call at a time continue from the carried states in `left`.
    turns: Turns,
    /// The metrics that [`Self::metric`] defines, by name.
    pub(super) own: BTreeMap<String, MakeMetric>,
}

/// A function that makes a metric from its variables.
pub(super) type MakeMetric = Arc<dyn Fn(&[Var]) -> Box<dyn Metric> + Send + Sync>;

/// A function that gets a compiled model, the values of the model's feeds, and the outputs and carried states to
/// compute.
type CompiledCall<'a> = &'a mut dyn FnMut(&mut CompiledModel, &[(VarId, &Variable)], &[VarId]) -> Result<()>;

/// The values of the carried states before a batch.
#[derive(Clone, Copy)]
enum InitialStates<'a> {
    Nothing,
    /// The carried states after an earlier batch.
    Left(&'a [Variable]),
}

impl Predictor {
    /// Loads a predictor from a checkpoint file, with the operators of [`ops::catalogue`](crate::ops::catalogue).
    ///
    /// # Errors
    /// As [`Checkpoint::load`] and [`Self::new`].
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, &ops::catalogue())
    }

    /// Loads a predictor from a checkpoint file, with operators that you defined yourself.
    ///
    /// # Errors
    /// As [`Checkpoint::load`] and [`Self::new`].
    #[track_caller]
    pub fn load_with(path: impl AsRef<Path>, registry: &Registry) -> Result<Self> {
        let path = path.as_ref();
        let named = |e: Error| e.noted(format!("in checkpoint `{}`", path.display()));
        Self::new(Checkpoint::load(path)?, registry).map_err(named).at_caller()
    }

    /// Makes a predictor from a checkpoint in memory.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - The checkpoint names no outputs.
    /// - An output is not computed in the forward pass.
    /// - An operator that the outputs need is not registered or refuses its inputs.
    /// - A parameter that the outputs need is not finite.
    #[track_caller]
    pub fn new(checkpoint: Checkpoint, registry: &Registry) -> Result<Self> {
        let model = Model::new(checkpoint, registry).at_caller()?;
        // The program is compiled when the model is loaded, so that an error of the program appears at loading.
        let idle = Arc::new(IdleModels::of_all(&model).at_caller()?);
        Ok(Self {
            model: Arc::new(model),
            threads: 0,
            started: Arc::default(),
            idle,
            stepping: Arc::default(),
            limit: BatchLimit::default(),
            left: Mutex::default(),
            turns: Turns::default(),
            own: BTreeMap::new(),
        })
    }

    /// Sets the number of threads (default: as many as the machine has cores). Results do not depend on the number of threads.
    /// All clones share these threads. With `threads(1)`, each thread that predicts runs its own batch, without waiting for
    /// other threads.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        let idle = Arc::new(self.idle.without_models());
        Self { threads, started: Arc::default(), idle, stepping: Arc::default(), ..self }
    }

    /// Sets the precision of matrix products (default: [`Precision::F32`], also for a model that was trained in bf16). In
    /// [`Precision::Bf16`], products round their operands to bf16, and the packed weights take half the memory. Every x86 CPU with
    /// AVX2 predicts in bf16: without a unit for bf16, a step of few sequences is faster than in f32, since it waits for the weights,
    /// and larger products are not. On any other CPU without a unit, each later call that computes returns an error.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        let unit = MatrixUnit::of_cpu(precision).unwrap_or(MatrixUnit::Bf16Pairs);
        if unit == self.model.program.unit {
            return self;
        }
        let mut model = Arc::unwrap_or_clone(self.model);
        (model.program.unit, model.scored.unit) = (unit, unit);
        Self { model: Arc::new(model), idle: Arc::default(), stepping: Arc::default(), ..self }
    }

    /// Adds the output `name`: the input of the last linear layer from which `output` is computed. For a classifier, this
    /// is the vector of a text. Nothing is compiled before the first run with this output.
    ///
    /// # Errors
    /// If `output` is unknown, if no linear layer computes it, or if the input of this layer does not have the rows of `output`.
    #[track_caller]
    pub fn with_hidden(self, output: &str, name: impl Into<String>) -> Result<Self> {
        let mut model = Arc::unwrap_or_clone(self.model);
        let id = model.hidden(output).at_caller()?;
        model.outputs.insert(name.into(), id);
        Ok(Self { model: Arc::new(model), ..self })
    }

    /// Sets the maximum number of rows of sequences in memory at once (default: 16,384). If the model can run in
    /// windows, a batch with more rows runs in windows, and each window passes its states to the next window. A model
    /// cannot run in windows if it combines rows of a forward layer with rows of a backward layer, attends to all rows
    /// of a sequence, or has nested sequences. Results do not depend on this limit.
    #[must_use]
    pub fn most_rows(self, most_rows: usize) -> Self {
        Self { limit: self.limit.with_rows(most_rows), ..self }
    }

    /// Memory limit: sets the maximum memory of a batch in bytes, as [`Self::memory`] computes it (default: no limit). A batch
    /// that does not fit runs in windows if the model can run in windows ([`Self::most_rows`]). Otherwise, the call fails with
    /// an error of the kind [`ErrorKind::Memory`] before anything is computed. The memory that earlier batches left, also for
    /// other outputs, counts: it is released before a batch that would not fit beside it. Carried states, which each clone keeps
    /// for [`Self::run_on`], and compiled programs do not count. Sessions and generators apply the limit only to the part that they run once, such as
    /// an encoder. All clones share the setting, but the limit applies to each batch: two batches that run at the same time may
    /// take twice the limit.
    #[must_use]
    pub fn memory_limit(self, bytes: u64) -> Self {
        self.limit.set_bytes(bytes);
        self
    }

    /// Returns the memory that [`Self::run`] takes for a batch, before the run: the parameters, the batch, its values and its
    /// outputs. Nothing is computed. A batch that runs in windows takes less. If the memory limit leaves room, rows of words that
    /// are kept for the next batches take up to 32 MiB more.
    ///
    /// # Errors
    /// The errors of [`Self::run`] that are about feeds and names.
    #[track_caller]
    pub fn memory(&self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<MemoryUse> {
        let mut memory = MemoryUse::default();
        self.with_compiled(feeds, outputs, InitialStates::Nothing, &mut |compiled, values, wanted| {
            memory = compiled.memory(values, wanted)?;
            Ok(())
        })
        .at_caller()?;
        Ok(memory)
    }

    /// Returns the memory that the check of the memory limit computed for the last batch, in bytes; 0 without a limit. The number
    /// counts the whole batch, even if the batch ran in windows or was refused. Clones share the number.
    pub fn last_memory(&self) -> u64 {
        self.limit.last() as u64
    }

    /// Releases the memory that earlier batches have left for later ones, if it is more than `bytes`. The next batch then allocates
    /// it, and packs weights, again.
    pub fn release_above(&self, bytes: u64) {
        if self.idle.most() as u64 > bytes {
            self.idle.release();
        }
    }

    /// Returns the values of the outputs for a batch, in the order of `outputs`. Only the feeds that the requested outputs need
    /// are required; other feeds are checked, but not used.
    ///
    /// [Carried states](crate::Builder::carried_state) start from zeros, unless their values are among the feeds. `run` also
    /// computes the carried states after the batch, from which [`Self::run_on`] continues; the feeds that these states need are
    /// therefore required, too. If several threads run batches with one predictor, the predictor keeps the carried states of
    /// the batch that ends last.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - An output or a feed is unknown; the error lists the known names.
    /// - A feed is missing or does not fit.
    /// - An operator rejects its data, or an output has a NaN.
    ///
    /// After an error, the carried states from which [`Self::run_on`] continues are unchanged.
    #[track_caller]
    pub fn run(&self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        self.run_for(Location::caller(), feeds, outputs)
    }

    /// Runs as [`Self::run`] does; errors name the line `caller`.
    pub(super) fn run_for(
        &self,
        caller: &Location<'_>,
        feeds: &[(&str, &Variable)],
        outputs: &[&str],
    ) -> Result<Vec<Variable>> {
        let (found, left) =
            self.predict(feeds, outputs, InitialStates::Nothing).map_err(|e| e.called(caller))?;
        if !left.is_empty() {
            *lock(&self.left) = left;
        }
        Ok(found)
    }

    /// Runs as [`Self::run`] does, but continues from the carried states after the last batch. Sequence *i* continues sequence
    /// *i* of the last batch; the results are bit-identical to one run of the joined sequences. Before the first batch,
    /// `run_on` equals `run`. Each clone has its own carried states: threads that process different texts need one clone each.
    /// Calls on one predictor run one after another.
    ///
    /// If the batch has fewer sequences than the last batch, the states of the first sequences are kept and the other states
    /// are dropped. The next batch may then not have more sequences than this batch.
    ///
    /// ```
    /// # use unpadded::checkpoint::Checkpoint;
    /// # use unpadded::predict::Predictor;
    /// # use unpadded::{Builder, DType, Variable, executor::Scope, layers::Embedding, layers::Gru, ops};
    /// # let net = Builder::new();
    /// # let x = net.feed("x", DType::I64, &[], 1).embedding(Embedding::new(5, 4));
    /// # let before = net.carried_state(4);
    /// # let (h, last) = net.gru_states(x, Gru::new(4).initial(before));
    /// # net.carry(before, last);
    /// # let (outputs, program) = ([("h".to_owned(), net.name_of(h))], net.finish()?);
    /// # let mut checkpoint = Checkpoint::of(program, outputs);
    /// # let mut scope = Scope::of(&checkpoint.program)?;
    /// # for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
    /// #     checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name)?);
    /// # }
    /// # let predictor = Predictor::new(checkpoint, &ops::catalogue())?;
    /// let whole = predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2, 3])?)], &["h"])?;
    /// predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2])?)], &[])?; // for its state alone
    /// let third = predictor.run_on(&[("x", &Variable::from_sequence(vec![3i64])?)], &["h"])?;
    /// assert_eq!(third[0].as_slice::<f32>()?, &whole[0].as_slice::<f32>()?[8..]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::run`]. Also if the batch has more sequences than the last batch, or if a call of `run_on` already runs on
    /// this thread, which can happen in tasks of a thread pool.
    #[track_caller]
    pub fn run_on(&self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        let caller = Location::caller();
        if self.model.carried.is_empty() {
            return self.run(feeds, outputs).map_err(|e| e.called(caller));
        }
        let _turn = self.turns.wait().map_err(|e| e.called(caller))?;
        // No mutex is locked during the run: a thread that waits for its pool may run another task, which may call `run_on`
        // again.
        let before = lock(&self.left).clone();
        let (found, left) =
            self.predict(feeds, outputs, InitialStates::Left(&before)).map_err(|e| e.called(caller))?;
        *lock(&self.left) = left;
        Ok(found)
    }

    /// Returns the model prepared to run row by row, for the given outputs.
    pub(super) fn stepping(&self, outputs: &[&str]) -> Result<Arc<Stepping>> {
        let names: Vec<String> = outputs.iter().map(|&name| name.to_owned()).collect();
        if let Some(stepping) = lock(&self.stepping).get(&names) {
            return Ok(stepping.clone());
        }
        let made =
            Arc::new(Stepping::new(&self.model, outputs, self.started()?.clone(), self.limit.clone())?);
        Ok(lock(&self.stepping).entry(names).or_insert(made).clone())
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the threads, which the first call starts. Every call that computes needs the threads, so this method also checks
    /// that vector instructions of this CPU compute the products.
    pub(super) fn started(&self) -> Result<&Threads> {
        let unit = self.model.program.unit;
        if !unit.is_vectorised() {
            return Err(no_unit(unit.precision()));
        }
        if let Some(threads) = self.started.get() {
            return Ok(threads);
        }
        let threads = Threads::new(self.threads)?;
        Ok(self.started.get_or_init(|| threads))
    }

    /// Returns the values of the outputs, and the carried states after the batch.
    fn predict(
        &self,
        feeds: &[(&str, &Variable)],
        outputs: &[&str],
        before: InitialStates<'_>,
    ) -> Result<(Vec<Variable>, Vec<Variable>)> {
        let mut found = Vec::new();
        self.with_compiled(feeds, outputs, before, &mut |compiled, values, wanted| {
            found = compiled.run(&self.model, values, wanted, (&self.limit, &self.idle))?;
            Ok(())
        })?;
        let left = found.split_off(outputs.len());
        numbers(&found, outputs)?;
        Ok((found, left))
    }

    /// Calls `with` with the compiled model for these outputs, the values of its feeds, and the outputs and carried states to
    /// compute.
    fn with_compiled(
        &self,
        feeds: &[(&str, &Variable)],
        outputs: &[&str],
        before: InitialStates<'_>,
        with: CompiledCall<'_>,
    ) -> Result<()> {
        let Model { outputs: known, carried, inputs, .. } = &*self.model;
        let find = |&name: &&str| {
            let id = known.get(name).copied();
            id.ok_or_else(|| unknown("output", name, known.keys().map(String::as_str)))
        };
        let mut wanted: Vec<VarId> = outputs.iter().map(find).collect::<Result<_>>()?;
        wanted.extend(carried.iter().map(|state| state.after));
        let mut values = Vec::with_capacity(feeds.len() + carried.len());
        for &(name, value) in feeds {
            let id = inputs.get(name).copied();
            values.push((id.ok_or_else(|| unknown("feed", name, self.feeds().into_iter()))?, value));
        }
        let states = self.states(&values, before)?;
        values.extend(states.iter().map(|(id, value)| (*id, value)));
        let (set, mut compiled) = self.idle.take(&self.model, &wanted, self.started()?)?;
        let given: Vec<&str> = feeds.iter().map(|(name, _)| *name).collect();
        let done = match set.needed.iter().find(|name| !given.contains(&name.as_str())) {
            None => with(&mut compiled, &values, &wanted),
            Some(name) => {
                let what = format!("feeds for {}", listed(outputs.iter().copied()));
                let (expected, got) = (format!("`{name}` among them"), listed(given.into_iter()));
                Err(Error::of(ErrorKind::Program, what, expected, got))
            }
        };
        // The compiled model is put back into the pool even after an error, since the next batch may succeed.
        self.idle.put_back(&set, compiled);
        done
    }

    /// Returns the carried states before a batch, except for the states that are among the feeds.
    fn states(
        &self,
        feeds: &[(VarId, &Variable)],
        before: InitialStates<'_>,
    ) -> Result<Vec<(VarId, Variable)>> {
        let Model { program, carried, .. } = &*self.model;
        let batched = |(id, _): &&(VarId, &Variable)| program.spec(*id).is_ok_and(Spec::batched);
        let Some((_, value)) = feeds.iter().find(batched) else { return Ok(Vec::new()) };
        let sequences = value.lod().map_or(value.rows(), |lod| lod.sequences());
        let left = |i: usize| match before {
            InitialStates::Nothing => None,
            InitialStates::Left(values) => values.get(i),
        };
        let given = |state: &CarriedState| feeds.iter().any(|(id, _)| *id == state.before);
        let states = carried.iter().enumerate().filter(|(_, state)| !given(state));
        let value =
            |(i, state): (usize, &CarriedState)| Ok((state.before, fed(program, state, left(i), sequences)?));
        states.map(value).collect()
    }

    /// Returns, for each row of an output, the entry of the vocabulary at the index of the largest value, together with this
    /// value. The value is a probability if the output is a softmax. If several values are the largest, the first is chosen. The
    /// feeds are the same as for [`Self::run`].
    ///
    /// ```
    /// # use unpadded::data::Vocabulary;
    /// # use unpadded::checkpoint::Checkpoint;
    /// # use unpadded::predict::Predictor;
    /// # use unpadded::{Builder, DType, Variable, ops};
    /// # let net = Builder::new();
    /// # let x = net.feed("scores", DType::F32, &[3], 0);
    /// # let probabilities = x.softmax();
    /// # let outputs = [("probabilities".to_owned(), net.name_of(probabilities))];
    /// # let mut checkpoint = Checkpoint::of(net.finish()?, outputs);
    /// # checkpoint.vocabularies.insert("labels".to_owned(), Vocabulary::labels(["bad", "fair", "good"])?);
    /// # let predictor = Predictor::new(checkpoint, &ops::catalogue())?;
    /// let scores = Variable::dense(ndarray::array![[0.0f32, 0.0, 9.0], [9.0, 0.0, 0.0]]);
    /// let found = predictor.likeliest(&[("scores", &scores)], "probabilities", "labels")?;
    /// assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("good", "bad"));
    /// assert!(found[0].1 > 0.99);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::run`] and [`Self::vocabulary`]. Also if the output is not f32, or if its rows do not have one value for each
    /// entry of the vocabulary.
    #[track_caller]
    pub fn likeliest(
        &self,
        feeds: &[(&str, &Variable)],
        output: &str,
        vocabulary: &str,
    ) -> Result<Vec<(String, f32)>> {
        let entries = self.vocabulary(vocabulary)?.len();
        let found = self.run(feeds, &[output])?;
        let labels = self.vocabulary(vocabulary)?;
        let mut rows = Vec::new();
        for value in &found {
            let numbers = value.as_slice::<f32>()?;
            if numbers.len() != value.rows() * entries {
                let expected = format!("rows of {entries} numbers, one for each entry of `{vocabulary}`");
                let got = format!("the shape {:?}", value.shape());
                return Err(Error::new(format!("output `{output}`"), expected, got));
            }
            for row in numbers.chunks_exact(entries) {
                let of_row = row.iter().copied().zip(labels.tokens());
                let likelier = |a: (f32, _), b: (f32, _)| if b.0 > a.0 { b } else { a };
                rows.extend(of_row.reduce(likelier).map(|(number, label)| (label.to_owned(), number)));
            }
        }
        Ok(rows)
    }

    /// Returns the names of the outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.model.outputs.keys().map(String::as_str)
    }

    /// Returns the names of the feeds that all outputs and all carried states need; the carried states themselves are optional
    /// feeds and are left out.
    pub fn feeds(&self) -> Vec<&str> {
        let all: Vec<VarId> = self.model.outputs.values().copied().collect();
        self.model.feeds(&self.model.program, &all)
    }

    /// Returns a vocabulary of the checkpoint by its name.
    ///
    /// # Errors
    /// If the checkpoint has no vocabulary of this name; the error lists the known names.
    #[track_caller]
    pub fn vocabulary(&self, name: &str) -> Result<&Vocabulary> {
        let known = &self.model.vocabularies;
        known
            .get(name)
            .ok_or_else(|| unknown("vocabulary", name, known.keys().map(String::as_str)))
            .at_caller()
    }

    /// Returns a note of the checkpoint by its name; `None` if there is no note of this name.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.model.notes.get(name).map(String::as_str)
    }
}

/// A clone shares weights and threads with the original, and starts with a copy of the original's carried states.
impl Clone for Predictor {
    fn clone(&self) -> Self {
        let Self { model, threads, started, idle, stepping, limit, own, .. } = self;
        Self {
            model: model.clone(),
            threads: *threads,
            started: started.clone(),
            idle: idle.clone(),
            stepping: stepping.clone(),
            limit: limit.clone(),
            left: Mutex::new(lock(&self.left).clone()),
            turns: Turns::default(),
            own: own.clone(),
        }
    }
}
