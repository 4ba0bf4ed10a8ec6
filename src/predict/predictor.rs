//! Predicting with a trained model: a checkpoint's parameters and the part of its program that the outputs need.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::Location;
use std::path::Path;

use super::carried::fed;
use super::windows::Windows;
use crate::checkpoint::Checkpoint;
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope};
use crate::ops;
use crate::program::{CarriedState, Program, RECURRENT, Registry, Spec, VarId, VarRole};
use crate::tensor::{Storage, Variable};

/// A model to predict with.
///
/// It holds the parameters of the best epoch if the checkpoint has them, else the last ones, and computes only what
/// the outputs asked for need: no labels are fed, and nothing is updated.
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
/// let mut checkpoint = Checkpoint {
///     outputs: [("logits".to_owned(), net.name_of(logits))].into(),
///     program: net.finish()?,
///     ..Checkpoint::default()
/// };
/// let mut scope = Scope::of(&checkpoint.program)?;
/// for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
///     checkpoint.tensors.insert(parameter.name.clone(), scope.get(&parameter.name)?);
/// }
///
/// let mut predictor = Predictor::new(checkpoint, &ops::catalogue())?;
/// let x = Variable::dense(ndarray::array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// let out = predictor.run(&[("x", &x)], &["logits"])?;
/// assert_eq!(out[0].shape(), [2, 2]);
/// let error = predictor.run(&[("x", &x)], &["logit"]).unwrap_err().to_string();
/// assert!(error.contains("expected one of those there are (`logits`), got `logit`"));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Predictor {
    program: Program,
    registry: Registry,
    scope: Scope,
    vocabularies: BTreeMap<String, Vocabulary>,
    notes: BTreeMap<String, String>,
    outputs: BTreeMap<String, VarId>,
    /// The states that pass from batch to batch.
    carried: Vec<CarriedState>,
    /// What the last batch left of each; none before the first.
    left: Vec<Variable>,
    threads: usize,
    /// Batches of more rows run in windows of at most so many, if the program can.
    most_rows: usize,
    /// One for each set of outputs that was asked for so far.
    compiled: BTreeMap<Vec<VarId>, Compiled>,
}

/// The part of the program for a set of outputs.
struct Compiled {
    executor: Executor,
    /// The same in windows, once a batch was long; `None` inside if it cannot be run so.
    windows: Option<Option<Windows>>,
}

/// Rows that run at once: enough to be fast, and some tens of megabytes in a model of usual width.
const MOST_ROWS: usize = 16_384;

impl Predictor {
    /// From a checkpoint's file, whose operators are the catalogue's.
    ///
    /// # Errors
    /// As [`Checkpoint::load`] and [`Self::new`].
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, &ops::catalogue())
    }

    /// From a checkpoint's file, with operators of your own.
    ///
    /// # Errors
    /// As [`Checkpoint::load`] and [`Self::new`].
    #[track_caller]
    pub fn load_with(path: impl AsRef<Path>, registry: &Registry) -> Result<Self> {
        let path = path.as_ref();
        let named = |e: Error| e.noted(format!("in checkpoint `{}`", path.display()));
        Self::new(Checkpoint::load(path)?, registry).map_err(named)
    }

    /// From a checkpoint.
    ///
    /// # Errors
    /// If it names no outputs, if one of them is not a forward value, if an operator that they need is not registered or
    /// does not fit, or if a parameter that they need is not finite.
    #[track_caller]
    pub fn new(checkpoint: Checkpoint, registry: &Registry) -> Result<Self> {
        Self::of(checkpoint, registry).at_caller()
    }

    fn of(checkpoint: Checkpoint, registry: &Registry) -> Result<Self> {
        let Checkpoint { program, mut tensors, mut best, vocabularies, notes, outputs, .. } = checkpoint;
        let mut named = BTreeMap::new();
        for (name, of) in outputs {
            let id = program.find(&of).filter(|&id| !program.var(id).persistable);
            let what = format!("output `{name}` of the checkpoint");
            let wrong = || Error::of(ErrorKind::Program, what, "a value that the program computes", &of);
            named.insert(name, id.ok_or_else(wrong)?);
        }
        if named.is_empty() {
            let got = "none: a trainer has them named with `.output(name, variable)`";
            return Err(Error::of(ErrorKind::Program, "outputs of the checkpoint", "at least one", got));
        }
        let carried: Vec<CarriedState> = program.carried_states().collect();
        let after = carried.iter().map(|state| state.after);
        let all: Vec<VarId> = named.values().copied().chain(after).collect();
        let program = program.inference(&all)?;
        registered(&program, registry)?;
        let mut scope = Scope::new();
        for desc in program.reads().into_iter().map(|id| program.var(id)).filter(|desc| desc.persistable) {
            let value = best.remove(&desc.name).or_else(|| tensors.remove(&desc.name));
            let missing = || Error::of(ErrorKind::Program, "checkpoint", "a value for it", "none");
            let value = value.ok_or_else(missing).map_err(|e| e.variable(&desc.name))?;
            value.check_finite("value of the checkpoint").map_err(|e| e.variable(&desc.name))?;
            scope.set(&desc.name, value)?;
        }
        // What does not compile should be known now.
        Executor::new(&program, registry, &all, 1)?;
        Ok(Self {
            program,
            registry: registry.clone(),
            scope,
            vocabularies,
            notes,
            outputs: named,
            carried,
            left: Vec::new(),
            threads: 0,
            most_rows: MOST_ROWS,
            compiled: BTreeMap::new(),
        })
    }

    /// The same on so many threads; without it, on as many as the machine has cores. Results do not depend on it.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, compiled: BTreeMap::new(), ..self }
    }

    /// The same with at most so many rows of sequences in memory at once, 16,384 without it. What is longer runs in windows
    /// that hand on their states, if the model can: not one that joins rows read from both ends, attends to all rows
    /// of a sequence, or nests sequences. Results do not depend on it.
    #[must_use]
    pub fn most_rows(self, most_rows: usize) -> Self {
        Self { most_rows: most_rows.max(1), ..self }
    }

    /// The values of the outputs for a batch, in the order of `outputs`. Only the feeds that these outputs need must
    /// be there; others are checked and not used.
    ///
    /// [Carried states](crate::Builder::carried_state) start from zeros, unless they are fed. What they are after the batch
    /// is computed too, whatever the outputs, and needs its feeds; [`Self::run_on`] goes on from there.
    ///
    /// # Errors
    /// An output or a feed that is not known (the error lists those that are), a feed that is missing or does not
    /// fit, data that an operator refuses, or an output that is not a number (NaN): no prediction can be read off it.
    /// The states that [`Self::run_on`] goes on from are then as they were.
    #[track_caller]
    pub fn run(&mut self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        let caller = Location::caller();
        self.predict(feeds, outputs, false).map_err(|e| e.called(caller))
    }

    /// [`Self::run`], with the carried states as the last batch left them: sequence *i* goes on where sequence *i* of that
    /// one ended, to the bits of both in one. Before any batch it is the same as `run`.
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
    /// # let (outputs, program) = ([("h".to_owned(), net.name_of(h))].into(), net.finish()?);
    /// # let mut checkpoint = Checkpoint { outputs, program, ..Checkpoint::default() };
    /// # let mut scope = Scope::of(&checkpoint.program)?;
    /// # for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
    /// #     checkpoint.tensors.insert(parameter.name.clone(), scope.get(&parameter.name)?);
    /// # }
    /// # let mut predictor = Predictor::new(checkpoint, &ops::catalogue())?;
    /// let whole = predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2, 3])?)], &["h"])?;
    /// predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2])?)], &[])?; // for its state alone
    /// let third = predictor.run_on(&[("x", &Variable::from_sequence(vec![3i64])?)], &["h"])?;
    /// assert_eq!(third[0].as_slice::<f32>()?, &whole[0].as_slice::<f32>()?[8..]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::run`], and if there are more sequences than in the batch before.
    #[track_caller]
    pub fn run_on(&mut self, feeds: &[(&str, &Variable)], outputs: &[&str]) -> Result<Vec<Variable>> {
        let caller = Location::caller();
        self.predict(feeds, outputs, true).map_err(|e| e.called(caller))
    }

    fn predict(&mut self, feeds: &[(&str, &Variable)], outputs: &[&str], on: bool) -> Result<Vec<Variable>> {
        let find = |&name: &&str| {
            let id = self.outputs.get(name).copied();
            id.ok_or_else(|| unknown("output", name, self.outputs.keys().map(String::as_str)))
        };
        let mut wanted: Vec<VarId> = outputs.iter().map(find).collect::<Result<_>>()?;
        wanted.extend(self.carried.iter().map(|state| state.after));
        let mut values = Vec::with_capacity(feeds.len() + self.carried.len());
        for &(name, value) in feeds {
            let id = self.program.find(name).filter(|&id| self.program.var(id).role == VarRole::Feed);
            values.push((id.ok_or_else(|| unknown("feed", name, self.feeds().into_iter()))?, value));
        }
        let before = self.states(&values, on)?;
        values.extend(before.iter().map(|(id, value)| (*id, value)));
        let mut set = wanted.clone();
        set.sort();
        set.dedup();
        let Compiled { executor, windows } = match self.compiled.entry(set) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let program = self.program.inference(place.key())?;
                let executor = Executor::new(&program, &self.registry, place.key(), self.threads)?;
                place.insert(Compiled { executor, windows: None })
            }
        };
        let program = executor.program();
        for name in feeds_of(program, &wanted, &self.carried) {
            if !feeds.iter().any(|(given, _)| *given == name) {
                let what = format!("feeds for {}", listed(outputs.iter().copied()));
                let (expected, got) =
                    (format!("`{name}` among them"), listed(feeds.iter().map(|(name, _)| *name)));
                return Err(Error::of(ErrorKind::Program, what, expected, got));
            }
        }
        let long = |value: &Variable| value.lod().is_some() && value.rows() > self.most_rows;
        let windows = match values.iter().any(|(_, value)| long(value)) {
            true => {
                let (program, registry, threads) = (executor.program(), &self.registry, self.threads);
                let made = || Windows::new(program, registry, &wanted, threads).ok();
                windows.get_or_insert_with(made).as_mut()
            }
            false => None,
        };
        let mut found = match windows {
            Some(windows) => {
                executor.bytes_for(&values)?; // the feeds are checked as a whole
                windows.run(&mut self.scope, &values, &wanted, self.most_rows)?
            }
            None => {
                executor.run(&mut self.scope, &Run::infer(&values))?;
                wanted.into_iter().map(|id| executor.fetch(id)).collect::<Result<_>>()?
            }
        };
        let left = found.split_off(outputs.len());
        let found = numbers(found, outputs)?;
        self.left = left;
        Ok(found)
    }

    /// What the carried states that are not fed are before a batch of these feeds.
    fn states(&self, feeds: &[(VarId, &Variable)], on: bool) -> Result<Vec<(VarId, Variable)>> {
        let batched = |(id, _): &&(VarId, &Variable)| self.program.spec(*id).is_ok_and(Spec::batched);
        let Some((_, value)) = feeds.iter().find(batched) else { return Ok(Vec::new()) };
        let sequences = value.lod().map_or(value.rows(), |lod| lod.sequences());
        let left = |i: usize| self.left.get(i).filter(|_| on);
        let given = |state: &CarriedState| feeds.iter().any(|(id, _)| *id == state.before);
        let states = self.carried.iter().enumerate().filter(|(_, state)| !given(state));
        let value = |(i, state): (usize, &CarriedState)| {
            Ok((state.before, fed(&self.program, state, left(i), sequences)?))
        };
        states.map(value).collect()
    }

    /// The likeliest entry of a vocabulary for each row of an output, of equal ones the first, and the number that the
    /// output has for it: its probability, if the output is a softmax. The feeds are those of [`Self::run`].
    ///
    /// ```
    /// # use unpadded::data::Vocabulary;
    /// # use unpadded::checkpoint::Checkpoint;
    /// # use unpadded::predict::Predictor;
    /// # use unpadded::{Builder, DType, Variable, ops};
    /// # let net = Builder::new();
    /// # let x = net.feed("scores", DType::F32, &[3], 0);
    /// # let probabilities = x.softmax();
    /// # let checkpoint = Checkpoint {
    /// #     outputs: [("probabilities".to_owned(), net.name_of(probabilities))].into(),
    /// #     vocabularies: [("labels".to_owned(), Vocabulary::labels(["bad", "fair", "good"])?)].into(),
    /// #     program: net.finish()?,
    /// #     ..Checkpoint::default()
    /// # };
    /// # let mut predictor = Predictor::new(checkpoint, &ops::catalogue())?;
    /// let scores = Variable::dense(ndarray::array![[0.0f32, 0.0, 9.0], [9.0, 0.0, 0.0]]);
    /// let found = predictor.likeliest(&[("scores", &scores)], "probabilities", "labels")?;
    /// assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("good", "bad"));
    /// assert!(found[0].1 > 0.99);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::run`] and [`Self::vocabulary`]; if the output has no f32 rows with a number for each entry.
    #[track_caller]
    pub fn likeliest(
        &mut self,
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
                let expected = format!("rows of {entries} numbers, one for each of `{vocabulary}`");
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

    /// The names of the outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.outputs.keys().map(String::as_str)
    }

    /// The names of the feeds that the outputs and the states need, all of them together, but for the states before a batch,
    /// which need not be given.
    pub fn feeds(&self) -> Vec<&str> {
        let all: Vec<VarId> = self.outputs.values().copied().collect();
        feeds_of(&self.program, &all, &self.carried)
    }

    /// A vocabulary of the checkpoint.
    ///
    /// # Errors
    /// If there is none of that name; the error lists those there are.
    #[track_caller]
    pub fn vocabulary(&self, name: &str) -> Result<&Vocabulary> {
        let known = self.vocabularies.keys().map(String::as_str);
        self.vocabularies.get(name).ok_or_else(|| unknown("vocabulary", name, known)).at_caller()
    }

    /// A note of the checkpoint.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }
}

/// The values of some outputs, if none is NaN, which would pass for a prediction.
#[track_caller]
fn numbers(values: Vec<Variable>, outputs: &[&str]) -> Result<Vec<Variable>> {
    for (value, name) in values.iter().zip(outputs) {
        if let Storage::Dense(dense) = value.storage()
            && let Some((at, number)) = dense.find_float(f64::is_nan)
        {
            let (what, row) = (format!("output `{name}`"), at / dense.width().max(1));
            let got = format!("{number} in row {row}");
            return Err(Error::of(ErrorKind::NotFinite, what, "numbers", got));
        }
    }
    Ok(values)
}

/// The feeds that a program reads, or gives back as outputs, without the states that are carried.
fn feeds_of<'a>(program: &'a Program, outputs: &[VarId], carried: &[CarriedState]) -> Vec<&'a str> {
    let read = program.reads();
    let used = |id: &VarId| read.contains(id) || outputs.contains(id);
    let given = |id: &VarId| used(id) && !carried.iter().any(|state| state.before == *id);
    let feeds = program.vars().filter(|(id, desc)| desc.role == VarRole::Feed && given(id));
    feeds.map(|(_, desc)| desc.name.as_str()).collect()
}

/// Checks that every operator of a program is known, before anything asks it for its shapes.
fn registered(program: &Program, registry: &Registry) -> Result<()> {
    for op in program.blocks().flat_map(|(_, block)| &block.ops) {
        if op.kind != RECURRENT && !registry.kinds().any(|kind| kind == op.kind) {
            let expected = "one that is registered: give `Predictor::load_with` a registry that has it";
            let what = format!("operator that the outputs need, appended at {}", op.caller);
            return Err(Error::of(ErrorKind::Program, what, expected, format!("`{}`", op.kind)));
        }
    }
    Ok(())
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let expected = format!("one of those there are ({})", listed(known));
    Error::of(ErrorKind::Program, what, expected, format!("`{name}`"))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
