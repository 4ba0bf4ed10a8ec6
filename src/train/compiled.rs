//! What a trainer makes of its settings before the first batch: checked, compiled, and every name resolved.

use std::collections::BTreeMap;
use std::panic::Location;

use super::trainer::{Told, Trainer};
use crate::data::{Batch, Data};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, Profile, Run, Scope};
use crate::metrics::{Better, Metric};
use crate::predict::fed;
use crate::program::contract::keys::locate;
use crate::program::{BlockId, CarriedState, Levels, Program, Spec, Var, VarId, VarRole};
use crate::tensor::Variable;

/// A trainer's program, ready to run.
pub(super) struct Compiled {
    pub(super) executor: Executor,
    /// Feeds of the program, by name.
    feeds: BTreeMap<String, VarId>,
    carried: Vec<CarriedState>,
    /// Feeds that share sequences, by two, and in how many levels.
    alike: Vec<([String; 2], usize)>,
    /// The metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
}

impl Compiled {
    /// Checks everything that a trainer was told, and compiles its program.
    pub(super) fn of(trainer: &Trainer) -> Result<Self> {
        let Trainer { state, metrics, .. } = trainer;
        let program = &state.program;
        // What was built since, for a metric or an output, may not fit.
        trainer.net.check()?;
        for (i, metric) in metrics.iter().enumerate() {
            if metrics[..i].iter().any(|other| other.name() == metric.name()) {
                let error = Error::new("metrics", "each name once", format!("`{}` twice", metric.name()));
                return Err(error.called(metric.line));
            }
            let named = |e: Error| {
                Error::of(
                    e.kind(),
                    format!("metric `{}`", metric.name()),
                    "its variables to fit",
                    e.to_string(),
                )
            };
            metric
                .variables()
                .into_iter()
                .try_for_each(|var| trainer.own(var).map(drop))
                .map_err(named)
                .map_err(|e| e.called(metric.line))?;
        }
        for told in &trainer.outputs {
            let (name, var) = &**told;
            trainer.own(*var).map_err(|e| e.variable(format!("output {name}")).called(told.line))?;
        }
        for (what, number) in [
            ("patience, in epochs", &trainer.patience),
            ("steps from checkpoint to checkpoint", &trainer.every),
        ] {
            if let Some(told) = number
                && **told == 0
            {
                return Err(Error::new(what, "at least 1", "0").called(told.line));
            }
        }
        let selected = match &trainer.select {
            None => usize::from(metrics.len() > 1),
            Some(name) => metrics.iter().position(|m| m.name() == name.what).ok_or_else(|| {
                let names: Vec<String> = metrics.iter().map(|m| format!("`{}`", m.name())).collect();
                Error::new(
                    "selected metric",
                    format!("one of {}", names.join(", ")),
                    format!("`{}`", name.what),
                )
                .called(name.line)
            })?,
        };
        let carried: Vec<CarriedState> = program.carried_states().collect();
        let mut wanted: Vec<VarId> = vec![trainer.loss.id()];
        wanted.extend(metrics.iter().flat_map(|m| m.variables()).map(Var::id));
        wanted.extend(carried.iter().map(|state| state.after));
        wanted.sort();
        wanted.dedup();
        let feeds = program.vars().filter(|(_, v)| v.role == VarRole::Feed);
        Ok(Self {
            executor: Executor::new(program, &trainer.registry, &wanted, trainer.threads)?,
            feeds: feeds.map(|(id, v)| (v.name.clone(), id)).collect(),
            carried,
            alike: alike(program),
            selected,
            better: metrics.get(selected).map_or(Better::Lower, |m| m.better()),
        })
    }

    /// Checks what can be known of data before its batches are read.
    pub(super) fn check(&self, data: &dyn Data) -> Result<()> {
        self.alike.iter().try_for_each(|([a, b], levels)| data.same_lengths([a, b], *levels))
    }

    /// Runs a batch, passes on what is carried, and takes the values into the metrics. `how` makes the run of the feeds.
    pub(super) fn run(
        &mut self,
        scope: &mut Scope,
        (data, batch): (&dyn Data, &Batch),
        carried: &mut BTreeMap<String, Variable>,
        metrics: &mut [Told<Box<dyn Metric>>],
        how: impl for<'a> Fn(&'a [(VarId, &'a Variable)]) -> Run<'a>,
        failed: impl Fn(&mut Scope, &Run<'_>, Error) -> Error,
    ) -> Result<()> {
        let sequences = batch.numbers.len();
        // Data of the user's own kinds do not know where they were made: then the call that trains is the place.
        let made = data.made_at().unwrap_or(Location::caller());
        let program = self.executor.program();
        for state in &self.carried {
            let name = &program.var(state.before).name;
            let value = fed(program, state, carried.get(name), sequences)?;
            carried.insert(name.clone(), value);
        }
        let mut feeds: Vec<(VarId, &Variable)> = Vec::with_capacity(batch.values.len() + carried.len());
        for (name, value) in &batch.values {
            let id = self.feeds.get(name).ok_or_else(|| {
                let known: Vec<String> = self.feeds.keys().map(|name| format!("`{name}`")).collect();
                Error::new(
                    "name of a feed in the data",
                    format!("one of {}", known.join(", ")),
                    format!("`{name}`"),
                )
                .called(made)
            })?;
            feeds.push((*id, value));
        }
        let value = |state: &CarriedState| carried.get(&program.var(state.before).name);
        feeds.extend(self.carried.iter().filter_map(|state| Some((state.before, value(state)?))));
        let run = how(&feeds).numbers(&batch.numbers);
        self.executor.run_data(scope, &run, made).map_err(|e| failed(scope, &run, e))?;
        drop(feeds);
        for metric in metrics {
            let values = metric.variables().into_iter().map(|var| self.executor.fetch(var));
            let values = values.collect::<Result<Vec<_>>>()?;
            let named = |e: Error| e.of_sample(|row| sample(batch, values.first()?, row)).called(metric.line);
            metric.update(&values, sequences).map_err(named)?;
        }
        for state in &self.carried {
            let name = self.executor.program().var(state.before).name.clone();
            carried.insert(name, self.executor.fetch(state.after)?);
        }
        Ok(())
    }
}

/// Each feed with the one before it that it shares the most levels with.
fn alike(program: &Program) -> Vec<([String; 2], usize)> {
    let feeds = program.vars().filter(|(_, v)| v.role == VarRole::Feed);
    let feeds: Vec<_> = feeds.filter_map(|(_, v)| Some((&v.name, &v.spec()?.lod))).collect();
    let shared = |a: &Levels, b: &Levels| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let pair = |(i, (name, lod)): (usize, &(&String, &Levels))| {
        let before = feeds[..i].iter().rev().map(|(before, of)| (before, shared(of, lod)));
        let (before, levels) = before.max_by_key(|(_, levels)| *levels)?;
        (levels > 0).then(|| ([(*before).clone(), (*name).clone()], levels))
    };
    feeds.iter().enumerate().filter_map(pair).collect()
}

/// The sample of a row of a value of a batch, and the row's place in it.
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

impl Trainer {
    /// The spec of a variable of the model that is trained.
    fn own(&self, var: Var) -> Result<&Spec> {
        self.net.owned(var)?;
        if var.id().0 as usize >= self.forward {
            let got = format!("`{}`, which was made later", self.net.name_of(var));
            return Err(Error::of(ErrorKind::Program, "variable", "one made before the trainer", got));
        }
        let desc = self.state.program.var(var.id());
        if desc.block != BlockId(0) {
            let got = format!("`{}`, one of a step block", desc.name);
            return Err(Error::of(ErrorKind::Program, "variable", "one of the root block", got));
        }
        self.state.program.spec(var.id())
    }
}

/// What a trainer made of its program, to be looked at.
impl Trainer {
    /// The compiled program as text: what runs where, in which memory, and why
    /// ([`executor::listing`](crate::executor::listing)).
    ///
    /// # Errors
    /// If a setting does not fit.
    #[track_caller]
    pub fn listing(&mut self) -> Result<String> {
        self.compiled().map(|compiled| compiled.executor.listing().to_string()).at_caller()
    }

    /// From now on writes down where the time of training and evaluating goes, until [`Self::take_profile`].
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Sgd;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8)).lstm(8);
    /// # let logits = h.sequence_pool(unpadded::ops::Pool::Last).linear(2);
    /// # let loss = logits.cross_entropy(label).mean();
    /// let mut trainer = Trainer::new(net, loss, &Sgd::new(0.1))?;
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// trainer.start_profile()?;
    /// trainer.fit(&data, &data, Until::Epochs(1))?;
    /// if let Some(profile) = trainer.take_profile() {
    ///     println!("{profile}"); // a table, longest first; `profile.chrome_trace()` is for about:tracing
    /// #   assert!(profile.to_string().contains("lstm_cell"));
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a setting does not fit.
    #[track_caller]
    pub fn start_profile(&mut self) -> Result<()> {
        self.compiled().map(|compiled| compiled.executor.start_profile()).at_caller()
    }

    /// Where the time went since [`Self::start_profile`]; `None` if it was not started.
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.compiled.as_mut()?.executor.take_profile()
    }

    fn compiled(&mut self) -> Result<&mut Compiled> {
        self.prepare(None)?;
        let missing = || Error::of(ErrorKind::Program, "trainer", "a compiled program", "none");
        self.compiled.as_mut().ok_or_else(missing)
    }
}
