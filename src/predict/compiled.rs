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
pub(super) const LEAST: usize = 1 << 20;

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
    /// The memory that this model keeps at most, beside the rows of known entries; all bytes after a run without a limit.
    most: MemoryUse,
    /// The number of successive runs that needed less than a quarter of the memory that earlier runs left, or that other
    /// models did while this one was idle.
    small: u32,
}

impl CompiledModel {
    fn new(model: &Model, set: &OutputSet, threads: &Threads) -> Self {
        let (executor, threads) = (Executor::of_plan(set.plan.clone(), threads.clone()), threads.clone());
        let (weights, most) = (model.weights.clone(), MemoryUse::default());
        Self { executor, threads, weights, windows: None, known: None, answered: false, most, small: 0 }
    }

    /// Returns the memory of a run on a batch, including the batch and its outputs.
    pub(super) fn memory(&mut self, values: &[(VarId, &Variable)], wanted: &[VarId]) -> Result<MemoryUse> {
        let counts = self.executor.counts(values)?;
        let memory = self.executor.memory(&counts);
        let feeds = values.iter().map(|(_, value)| value.bytes()).fold(0, usize::saturating_add);
        let rows = values.iter().map(|(_, value)| value.rows()).max().unwrap_or(0);
        let program = self.executor.program();
        let output = |id: &VarId| {
            let (spec, counted) = (program.spec(*id).ok()?, self.executor.counted_rows(*id, &counts));
            let rows = counted.unwrap_or(rows);
            Some(rows.saturating_mul(spec.width()).saturating_mul(spec.dtype.size_of()))
        };
        let outputs = wanted.iter().filter_map(output).fold(0, usize::saturating_add);
        Ok(MemoryUse { batch: feeds.saturating_add(outputs), ..memory })
    }

    /// Returns the values of `wanted`. If a feed has a LoD and more rows than the limit, or the batch does not fit the
    /// memory limit, the batch runs in windows if the program can run in windows. If the batch and the memory that idle models
    /// keep exceed the memory limit together, all models first release their memory.
    ///
    /// # Errors
    /// Fails if the batch does not fit the memory limit and the program cannot run in windows.
    pub(super) fn run(
        &mut self,
        model: &Model,
        values: &[(VarId, &Variable)],
        wanted: &[VarId],
        (limit, idle): (&BatchLimit, &IdleModels),
    ) -> Result<Vec<Variable>> {
        let mut memory = None;
        match limit.bytes() {
            Some(bytes) => memory = Some((bytes, self.memory(values, wanted)?)),
            None => self.most.lists = usize::MAX,
        }
        // The memory of earlier batches is released if it leaves too little.
        let fit = limit.fit(values, memory.map(|(_, memory)| MemoryUse { kept: 0, ..memory }));
        if let Some(rows) = fit.window.filter(|&rows| rows > 0) {
            let made = || Windows::new(&model.program, &model.registry, wanted, &self.threads).ok();
            // With a limit, windows are made anew, because the memory of earlier windows is not counted.
            let known = self.windows.take().filter(|known| memory.is_none() || known.is_none());
            let mut windows = known.unwrap_or_else(made);
            if let Some(parts) = &mut windows {
                self.small = 0;
                self.executor.counts(values)?; // checks the feeds of the whole batch
                if memory.is_some() {
                    idle.release();
                    self.release();
                }
                let found = parts.run(&mut self.weights, values, wanted, rows);
                self.windows = Some(windows).filter(|_| memory.is_none());
                return found;
            }
            self.windows = Some(windows);
        }
        fit.whole?;
        let is_small = memory.is_none_or(|(bytes, memory)| self.make_room(bytes, memory, idle));
        let Self { executor, threads, weights, known, answered, .. } = self;
        // A small first batch is answered without another compilation; a large one saves more time than a compilation takes.
        let is_large = values.iter().any(|(_, value)| value.rows() >= 1024);
        if known.is_none() && is_small && (*answered || is_large) {
            let outputs = unique(wanted.iter().copied());
            let made = model.program.inference(&outputs).and_then(|program| {
                KnownRows::new(program, &model.registry, &outputs, threads, model.weights.clone())
            });
            *known = Some(made.ok().flatten());
            if let Some(Some(_)) = known {
                executor.release();
            }
        }
        if !is_small {
            known.take_if(|known| known.is_some());
        }
        // After an error, the whole program runs, so that the error names the row of the batch.
        if let Some(Some(rows)) = known
            && let Ok(counts) = executor.counts(values)
            && let Ok(found) = rows.run(values, wanted)
        {
            if !rows.saves() {
                *known = Some(None);
            }
            if let Some(found) = found {
                self.count_small(&counts);
                return Ok(found);
            }
        }
        executor.run(weights, &Run::infer(values))?;
        *answered = true;
        let found = wanted.iter().map(|&id| executor.fetch(id)).collect();
        self.count_small(&self.executor.counts_of_run());
        found
    }

    /// Makes room for a batch below the limit of `bytes`: if the batch does not fit beside the memory that the idle models and this
    /// model keep, they all release it. Returns whether there is also room to keep the rows of known entries.
    fn make_room(&mut self, bytes: usize, memory: MemoryUse, idle: &IdleModels) -> bool {
        let (mut most, mut others) = (self.most.or_larger(memory), idle.most());
        if most.total().saturating_add(others) > bytes {
            idle.release();
            self.release();
            (most, others) = (MemoryUse { kept: 0, ..memory }, 0);
        }
        self.most = MemoryUse { parameters: 0, batch: 0, ..most };
        with_known(&most).saturating_add(others) <= bytes
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
        (self.small, self.most) = (0, MemoryUse::default());
        self.executor.release();
        self.windows.take_if(|windows| windows.is_some());
        self.known.take_if(|known| known.is_some());
    }
}

/// Returns the maximum memory of a model that keeps the rows of known entries, in bytes. Both parts of the divided program and the
/// whole program may hold buffers and packed weights at the same time.
fn with_known(memory: &MemoryUse) -> usize {
    memory.total().saturating_mul(3).saturating_add(KnownRows::BYTES)
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

    /// Returns the maximum memory that the idle models keep, in bytes.
    pub(super) fn most(&self) -> usize {
        let most = |model: &CompiledModel| match &model.known {
            Some(Some(_)) => with_known(&model.most),
            _ => model.most.total(),
        };
        lock(&self.0).values().flat_map(|(_, models)| models).map(most).fold(0, usize::saturating_add)
    }

    /// Gives the memory of all idle models back to the system.
    pub(super) fn release(&self) {
        lock(&self.0).values_mut().flat_map(|(_, models)| models).for_each(CompiledModel::release);
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
