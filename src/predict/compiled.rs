//! The compiled programs of a predictor: for each list of outputs, one program per thread that predicts at the same
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::batch_limit::BatchLimit;
use super::checks::lock;
use super::known::KnownRows;
use super::model::Model;
use super::windows::{Windows, unique};
use crate::error::Result;
use crate::executor::{Executor, MemoryUse, Plan, RowCounts, Run, Scope, Threads, compile};
use crate::operator::VarId;
use crate::program::Program;
use crate::tensor::Variable;

/// Idle models with less memory than this, in bytes, always keep it.
const LEAST: usize = 1 << 20;

/// What all runs of a list of outputs share.
pub(super) struct OutputSet {
    /// The compiled program; [`Plan::wanted`] has the outputs and the carried states after the batch.
    plan: Arc<Plan>,
    /// The names of the feeds that they need.
    pub(super) needed: Vec<String>,
}

impl OutputSet {
    /// Compiles a part of a model that computes the variables of `set`, and no others.
    fn new(model: &Model, program: Program, set: &[VarId]) -> Result<Arc<Self>> {
        let needed = model.feeds(&program, set).into_iter().map(str::to_owned).collect();
        Ok(Arc::new(Self { plan: Arc::new(compile(program, &model.registry, set, &[])?), needed }))
    }
}

/// The compiled part of a model that computes one list of outputs; one thread at a time runs it.
pub(super) struct CompiledModel {
    executor: Executor,
    threads: Threads,
    /// The model's weights; all compiled programs share the memory of the weights.
    weights: Scope,
    /// The program for long batches, which runs in windows of rows: `None` before the first long batch, `Some(None)` if the
    /// program cannot run in windows.
    windows: Option<Option<Windows>>,
    /// The program that computes the rows of equal entries once: `None` before it is needed, `Some(None)` if the program
    /// cannot be divided.
    known: Option<Option<KnownRows>>,
    /// Whether the whole program has run.
    answered: bool,
    /// The number of successive runs that needed less than a quarter of the memory that earlier runs left, or that other
    /// models did while this one was idle.
    small: u32,
}

impl CompiledModel {
    fn new(model: &Model, set: &OutputSet, threads: &Threads) -> Self {
        let (executor, threads) = (Executor::of_plan(set.plan.clone(), threads.clone()), threads.clone());
        let weights = model.weights.clone();
        Self { executor, threads, weights, windows: None, known: None, answered: false, small: 0 }
    }

    /// Returns the memory of a run on a batch, including the batch and its outputs.
    pub(super) fn memory(&mut self, values: &[(VarId, &Variable)], wanted: &[VarId]) -> Result<MemoryUse> {
        let counts = self.executor.counts(values)?;
        let memory = self.executor.memory(&counts);
        let feeds = values.iter().map(|(_, value)| value.bytes()).fold(0, usize::saturating_add);
        let rows = values.iter().map(|(_, value)| value.rows()).max().unwrap_or(0);
        let program = self.executor.program();
        let output = |id: &VarId| {
            let spec = program.spec(*id).ok()?;
            let rows = spec.rows().known().unwrap_or(rows);
            Some(rows.saturating_mul(spec.width()).saturating_mul(spec.dtype.size_of()))
        };
        let outputs = wanted.iter().filter_map(output).fold(0, usize::saturating_add);
        Ok(MemoryUse { batch: feeds.saturating_add(outputs), ..memory })
    }

    /// Returns the values of `wanted`. If a feed has a LoD and more rows than the limit, or the batch does not fit the
    /// memory limit, the batch runs in windows if the program can run in windows.
    ///
    /// # Errors
    /// Fails if the batch does not fit the memory limit and the program cannot run in windows.
    pub(super) fn run(
        &mut self,
        model: &Model,
        values: &[(VarId, &Variable)],
        wanted: &[VarId],
        limit: &BatchLimit,
    ) -> Result<Vec<Variable>> {
        let fit = limit.fit(values, || self.memory(values, wanted))?;
        let Self { executor, threads, weights, windows, known, answered, small } = self;
        if let Some(most) = fit.window {
            let made = || Windows::new(&model.program, &model.registry, wanted, threads).ok();
            let windows = windows.get_or_insert_with(made).as_mut();
            if let Some(windows) = windows.filter(|_| most > 0) {
                *small = 0;
                executor.counts(values)?; // checks the feeds of the whole batch
                return windows.run(weights, values, wanted, most);
            }
        }
        fit.whole?;
        // A small first batch is answered without another compilation; a large one saves more time than a compilation takes.
        let is_large = values.iter().any(|(_, value)| value.rows() >= 1024);
        if known.is_none() && fit.is_small && (*answered || is_large) {
            let outputs = unique(wanted.iter().copied());
            let made = model.program.inference(&outputs).and_then(|program| {
                KnownRows::new(program, &model.registry, &outputs, threads, model.weights.clone())
            });
            *known = Some(made.ok().flatten());
            if let Some(Some(_)) = known {
                executor.release();
            }
        }
        if !fit.is_small {
            known.take_if(|known| known.is_some());
        }
        // After an error, the whole program runs, so that the error names the row of the batch.
        if let Some(Some(rows)) = known
            && let Ok(counts) = executor.counts(values)
            && let Ok(Some(found)) = rows.run(values, wanted)
        {
            if !rows.saves() {
                *known = Some(None);
            }
            self.count_small(&counts);
            return Ok(found);
        }
        executor.run(weights, &Run::infer(values))?;
        *answered = true;
        let found = wanted.iter().map(|&id| executor.fetch(id)).collect();
        self.count_small(&self.executor.counts_of_run());
        found
    }

    /// Counts the successive runs that need little of the memory that earlier runs left, so that it can be released.
    fn count_small(&mut self, counts: &RowCounts) {
        let held = self.held();
        let needed = || self.executor.memory(counts).buffers;
        self.small = if held > LEAST && held / 4 > needed() { self.small + 1 } else { 0 };
    }

    /// Returns the size of all buffers in bytes.
    fn held(&self) -> usize {
        let windows = self.windows.iter().flatten().map(Windows::bytes).sum::<usize>();
        self.executor.bytes() + windows + self.known.iter().flatten().map(KnownRows::bytes).sum::<usize>()
    }

    /// Gives the memory of all buffers back to the system.
    fn release(&mut self) {
        self.small = 0;
        self.executor.release();
        self.windows.take_if(|windows| windows.is_some());
        self.known.take_if(|known| known.is_some());
    }
}

/// The sets of outputs that were compiled, each with its idle models; the clones of a predictor share them.
#[derive(Default)]
pub(super) struct IdleModels(Mutex<HashMap<Vec<VarId>, SetModels>>);

type SetModels = (Arc<OutputSet>, Vec<CompiledModel>);

impl IdleModels {
    /// Compiles all outputs of a model.
    pub(super) fn of_all(model: &Model) -> Result<Self> {
        let after = model.carried.iter().map(|state| state.after);
        let all = unique(model.outputs.values().copied().chain(after));
        let set = OutputSet::new(model, model.program.clone(), &all)?;
        Ok(Self(Mutex::new([(all, (set, Vec::new()))].into())))
    }

    /// Returns the compiled sets without their idle models.
    pub(super) fn without_models(&self) -> Self {
        let sets =
            lock(&self.0).iter().map(|(vars, (set, _))| (vars.clone(), (set.clone(), Vec::new()))).collect();
        Self(Mutex::new(sets))
    }

    /// Removes an idle model for the outputs `wanted` from the pool; makes a new model if the pool has none. The outputs are
    /// compiled only once.
    pub(super) fn take(
        &self,
        model: &Model,
        wanted: &[VarId],
        threads: &Threads,
    ) -> Result<(Arc<OutputSet>, CompiledModel)> {
        let vars = unique(wanted.iter().copied());
        let found = lock(&self.0).get_mut(&vars).map(|(set, models)| (set.clone(), models.pop()));
        let (set, idle) = match found {
            Some(found) => found,
            None => {
                let set = OutputSet::new(model, model.program.inference(&vars)?, &vars)?;
                (lock(&self.0).entry(vars).or_insert((set, Vec::new())).0.clone(), None)
            }
        };
        let compiled = idle.unwrap_or_else(|| CompiledModel::new(model, &set, threads));
        Ok((set, compiled))
    }

    /// Puts a model back into the pool. A model releases its memory after many successive small runs, or after many runs of
    /// other models while it was idle. One run is not enough: the next run would have to allocate and to pack weights again.
    pub(super) fn put_back(&self, set: &OutputSet, mut compiled: CompiledModel) {
        const MANY: u32 = 16;
        let mut all = lock(&self.0);
        for other in all.values_mut().flat_map(|(_, models)| models) {
            other.small = if other.held() > LEAST { other.small + 1 } else { 0 };
            if other.small >= MANY {
                other.release();
            }
        }
        if compiled.small >= MANY {
            compiled.release();
        }
        if let Some((_, models)) = all.get_mut(&set.plan.wanted) {
            models.push(compiled);
        }
    }
}
