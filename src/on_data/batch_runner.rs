//! Runs a compiled program on batches of data: matches the feeds of a batch by name, and passes carried states to the next
//! batch.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;

use super::carried::fed;
use crate::data::{Batch, Data};
use crate::error::{Error, Result};
use crate::executor::{Executor, MemoryUse, Run, Scope};
use crate::metrics::Metric;
use crate::operator::keys::locate;
use crate::operator::{Levels, VarId};
use crate::program::{CarriedState, Program, Var, VarRole};
use crate::reserve;
use crate::tensor::Variable;

#[derive(Clone, Copy)]
pub(crate) struct DataBatch<'a> {
    pub(crate) data: &'a dyn Data,
    pub(crate) batch: &'a Batch,
}

/// A compiled program that runs on batches, for training and evaluation.
pub(crate) struct BatchRunner {
    pub(crate) executor: Executor,
    /// The feeds of the program: name -> variable.
    feeds: BTreeMap<String, VarId>,
    carried: Vec<CarriedState>,
    /// Values that the runner feeds in addition to the data of a batch: see [`BatchLoss`](super::BatchLoss).
    pub(crate) seeds: Vec<(VarId, Variable)>,
    /// For each persistent variable that metrics read, a copy from before the last run; `None` before the first run.
    persistent: HashMap<VarId, Option<Variable>>,
    /// Pairs of feeds that share the sequences of their first levels; each pair has the number of shared levels.
    alike: Vec<([String; 2], usize)>,
}

impl BatchRunner {
    /// Makes a runner. The executor must be compiled to return the carried states after a batch. `looked_at` has the
    /// variables that metrics read.
    pub(crate) fn new(executor: Executor, looked_at: impl Iterator<Item = VarId>) -> Self {
        let program = executor.program();
        let feeds = program.vars().filter(|(_, v)| v.role == VarRole::Feed);
        Self {
            feeds: feeds.map(|(id, v)| (v.name.clone(), id)).collect(),
            carried: program.carried_states().collect(),
            seeds: Vec::new(),
            persistent: looked_at
                .filter(|&var| program.var(var).persistable)
                .map(|var| (var, None))
                .collect(),
            alike: alike(program),
            executor,
        }
    }

    /// Checks that feeds with shared sequences have equal lengths in `data`, before any batch is read. If `data` does
    /// not know the lengths, nothing is checked.
    pub(crate) fn check(&self, data: &dyn Data) -> Result<()> {
        self.alike.iter().try_for_each(|([a, b], levels)| data.same_lengths([a, b], *levels))
    }

    /// Returns the number of sequences of a batch. The number comes from the feeds, since [`Batch::numbers`] may be empty.
    pub(crate) fn sequences(&self, batch: &Batch) -> usize {
        let fed = batch.values.iter().find(|(name, _)| self.batched(name));
        fed.map_or(batch.numbers.len(), |(_, value)| value.batch_size())
    }

    /// Returns whether the program carries states from batch to batch.
    pub(super) fn carries(&self) -> bool {
        !self.carried.is_empty()
    }

    fn batched(&self, feed: &str) -> bool {
        let program = self.executor.program();
        self.feeds.get(feed).is_some_and(|&id| program.spec(id).is_ok_and(|spec| spec.batched()))
    }

    /// Returns, for each sequence of a batch, the largest number of rows that the sequence has in any feed.
    ///
    /// # Errors
    /// It is an error if feeds have different numbers of sequences.
    pub(crate) fn lengths(&self, batch: &Batch) -> Result<Vec<usize>> {
        let count = self.sequences(batch);
        let mut lengths = reserve::vector(count, "lengths of the sequences")?;
        lengths.resize(count, 0);
        let mut fed = batch.values.iter().filter(|(name, _)| self.batched(name)).peekable();
        let first = fed.peek().map_or("", |(name, _)| name.as_str());
        for (name, value) in fed {
            if value.batch_size() != lengths.len() {
                let expected = format!("{}, as `{first}` has", lengths.len());
                let got = value.batch_size().to_string();
                return Err(Error::new("sequences of a feed", expected, got).variable(name));
            }
            let rows = value.lod().and_then(|lod| lod.row_offsets(0).ok());
            for (i, length) in lengths.iter_mut().enumerate() {
                let rows = rows.as_ref().and_then(|at| Some(at.get(i + 1)? - at.get(i)?));
                *length = rows.unwrap_or(1).max(*length);
            }
        }
        Ok(lengths)
    }

    /// Returns a batch of the given `sequences` of `batch`; feeds without sequences are copied whole.
    pub(crate) fn share(&self, batch: &Batch, sequences: &[usize]) -> Result<Batch> {
        let (mut values, mut tokens) = (Vec::with_capacity(batch.values.len()), 0);
        for (name, value) in &batch.values {
            if !self.batched(name) {
                values.push((name.clone(), value.clone()));
                continue;
            }
            let own = value.take_sequences(sequences).map_err(|e| e.variable(name))?;
            tokens = own.rows().max(tokens);
            values.push((name.clone(), own));
        }
        Ok(batch.share(values, sequences, tokens))
    }

    /// Makes sure that `carried` has a value for each carried state, for a batch of `sequences` sequences.
    pub(crate) fn carry(&self, carried: &mut BTreeMap<String, Variable>, sequences: usize) -> Result<()> {
        let program = self.executor.program();
        for state in &self.carried {
            let name = &program.var(state.before).name;
            let value = fed(program, state, carried.get(name), sequences)?;
            carried.insert(name.clone(), value);
        }
        Ok(())
    }

    /// Returns the memory of a training step on a batch, including the batch. The values of the last run cannot be used
    /// afterwards.
    ///
    /// # Errors
    /// Fails if a feed is missing or does not fit.
    pub(crate) fn memory(&mut self, batch: &Batch) -> Result<MemoryUse> {
        let (sequences, mut carried) = (self.sequences(batch), BTreeMap::new());
        self.carry(&mut carried, sequences)?;
        let Self { executor, feeds, carried: states, seeds, .. } = self;
        let bound = Binding { program: executor.program(), feeds, states, seeds };
        let counts = executor.counts(&bound.feeds(batch, &carried, Location::caller())?)?;
        let batch = batch.values.iter().map(|(_, value)| value.bytes()).fold(0, usize::saturating_add);
        Ok(MemoryUse { batch, ..executor.memory(&counts) })
    }

    /// Runs the program on a batch. A carried state starts from its value in `carried`; without a value there, it starts from
    /// zeros. `how` makes the [`Run`] from the feeds, `then` is called after the run, and `failed` converts an error of the run
    /// or of `then`.
    pub(crate) fn run(
        &mut self,
        scope: &mut Scope,
        DataBatch { data, batch }: DataBatch<'_>,
        carried: &mut BTreeMap<String, Variable>,
        how: impl for<'a> Fn(&'a [(VarId, &'a Variable)]) -> Run<'a>,
        then: impl FnOnce(&mut Executor) -> Result<()>,
        failed: impl Fn(&mut Scope, &Run<'_>, Error) -> Error,
    ) -> Result<()> {
        let sequences = self.sequences(batch);
        self.carry(carried, sequences)?;
        let Self { executor, feeds, carried: states, seeds, persistent, .. } = self;
        let bound = Binding { program: executor.program(), feeds, states, seeds };
        // A user's own data type need not record the line that made the data. An error then has the caller's line.
        let made = data.made_at().unwrap_or(Location::caller());
        let feeds = bound.feeds(batch, carried, made)?;
        for (var, value) in persistent {
            *value = Some(Variable::new(scope.value(&executor.program().var(*var).name)?, None)?);
        }
        let run = how(&feeds).numbers(&batch.numbers);
        let ran = executor.run_data(scope, &run, made);
        ran.and_then(|()| then(executor)).map_err(|e| batch.noted(failed(scope, &run, e)))
    }

    /// Returns the values of the last run that a metric reads.
    pub(super) fn values(&mut self, metric: &dyn Metric) -> Result<Vec<Variable>> {
        let value = |var: Var| match self.persistent.get(&var.id()) {
            Some(Some(value)) => Ok(value.clone()),
            _ => self.executor.fetch(var),
        };
        metric.variables().into_iter().map(value).collect()
    }

    pub(super) fn update(&mut self, metric: &dyn Metric, sums: &mut [f64], batch: &Batch) -> Result<()> {
        let values = self.values(metric)?;
        let named = |e: Error| e.of_sample(|row| sample(batch, values.first()?, row));
        metric.update(sums, &values, self.sequences(batch)).map_err(|e| batch.noted(named(e)))
    }

    /// Sets each carried state to a value of 0 sequences, as a batch without sequences does.
    pub(crate) fn carry_none(&self, carried: &mut BTreeMap<String, Variable>) -> Result<()> {
        let program = self.executor.program();
        for state in &self.carried {
            let name = &program.var(state.before).name;
            let none = fed(program, state, carried.get(name), 0)?;
            carried.insert(name.clone(), none);
        }
        Ok(())
    }

    /// Stores the carried states after the last run in `carried`; the next batch starts from them.
    pub(super) fn hand_on(&mut self, carried: &mut BTreeMap<String, Variable>) -> Result<()> {
        for state in &self.carried {
            let name = self.executor.program().var(state.before).name.clone();
            carried.insert(name, self.executor.fetch(state.after)?);
        }
        Ok(())
    }
}

/// The data from which the feeds of a run are made.
struct Binding<'p, 'a> {
    program: &'p Program,
    feeds: &'p BTreeMap<String, VarId>,
    states: &'p [CarriedState],
    seeds: &'a [(VarId, Variable)],
}

impl<'a> Binding<'_, 'a> {
    /// Returns the feeds of a run: the values of a batch, the carried states and the seeds. `made` is the source line
    /// that made the data.
    fn feeds(
        &self,
        batch: &'a Batch,
        carried: &'a BTreeMap<String, Variable>,
        made: &Location<'_>,
    ) -> Result<Vec<(VarId, &'a Variable)>> {
        let mut feeds = Vec::with_capacity(batch.values.len() + carried.len());
        for (name, value) in &batch.values {
            let id = self.feeds.get(name).ok_or_else(|| {
                let known: Vec<String> = self.feeds.keys().map(|name| format!("`{name}`")).collect();
                let expected = format!("one of {}", known.join(", "));
                Error::new("name of a feed in the data", expected, format!("`{name}`")).called(made)
            })?;
            feeds.push((*id, value));
        }
        let value = |state: &CarriedState| carried.get(&self.program.var(state.before).name);
        feeds.extend(self.states.iter().filter_map(|state| Some((state.before, value(state)?))));
        feeds.extend(self.seeds.iter().map(|(id, seed)| (*id, seed)));
        Ok(feeds)
    }
}

/// Pairs each feed with the earlier feed with which it shares the most levels; a feed that shares no level has no pair.
fn alike(program: &Program) -> Vec<([String; 2], usize)> {
    let feeds = program.vars().filter(|(_, v)| v.role == VarRole::Feed);
    let feeds: Vec<_> = feeds.filter_map(|(_, v)| Some((&v.name, &v.spec()?.lod))).collect();
    let shared = |a: &Levels, b: &Levels| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let pair = |(i, (name, lod)): (usize, &(&String, &Levels))| {
        let before = feeds[..i].iter().rev().map(|(before, other)| (before, shared(other, lod)));
        let (before, levels) = before.max_by_key(|(_, levels)| *levels)?;
        (levels > 0).then(|| ([(*before).clone(), (*name).clone()], levels))
    };
    feeds.iter().enumerate().filter_map(pair).collect()
}

/// Returns the number of the sample that contains row `row` of `value`, and the row's position in the sample (`None` if `value`
/// has no LoD).
fn sample(batch: &Batch, value: &Variable, row: usize) -> Option<(u64, Option<usize>)> {
    let (sequence, position) = match value.lod() {
        Some(lod) => {
            let (sequence, position) = locate(lod, row);
            (sequence, Some(position))
        }
        None => (row, None),
    };
    Some((*batch.numbers.get(sequence)?, position))
}
