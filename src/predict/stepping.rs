//! A model that runs row by row: its two programs, and the pool of idle compiled steps.

use std::sync::{Arc, Mutex};

use super::batch_limit::BatchLimit;
use super::checks::{listed, lock, unknown};
use super::compiled::LEAST;
use super::model::Model;
use super::windows::unique;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, MemoryUse, PlacedFeeds, Plan, Run, Scope, Threads, compile};
use crate::kernels::arena::Plain;
use crate::lod::Lod;
use crate::on_data::zeros;
use crate::operator::{Spec, VarId};
use crate::program::{Program, StepProgram, VarRole};
use crate::tensor::{Element, StorageKind, Variable, with_element};

/// A model divided into a part that runs once and a step that runs for each row: see [`Program::stepped`]. Sessions and
/// generators share a `Stepping`; each session holds its own state.
pub(super) struct Stepping {
    pub(super) model: Arc<Model>,
    pub(super) stepped: StepProgram,
    /// The names of the outputs, in the order of [`StepProgram::outputs`].
    pub(super) outputs: Vec<String>,
    /// The feeds that each step reads, row by row.
    pub(super) rows: Vec<VarId>,
    /// The feeds of the part that runs once, except the carried states.
    pub(super) once: Vec<VarId>,
    /// The variables that are computed once, before the first step: values that every step reads, and initial values of
    /// memories.
    computed: Vec<VarId>,
    /// The compiled part that runs once; `None` if it computes nothing.
    once_plan: Option<Arc<Plan>>,
    step_plan: Arc<Plan>,
    threads: Threads,
    limit: BatchLimit,
    before: Mutex<Vec<Executor>>,
    idle: Mutex<Vec<Engine>>,
}

/// A compiled step; one session or generation at a time uses it.
pub(super) struct Engine {
    executor: Executor,
    weights: Scope,
    /// The feeds whose values are placed in the step, and the LoD of each value; `None` for a value without a LoD.
    placed: Vec<(VarId, Option<Arc<Lod>>)>,
    /// The id of the session whose constant values are placed in the step; 0 for none.
    pub(super) of: u64,
}

/// The values that a session holds between steps.
#[derive(Clone)]
pub(super) struct StepStart {
    /// The constant values: one for each variable of [`StepProgram::kept`].
    pub(super) kept: Box<[Variable]>,
    /// The current values of the memories: one for each memory of [`StepProgram::memories`].
    pub(super) states: Box<[Variable]>,
}

impl Stepping {
    pub(super) fn new(
        model: &Arc<Model>,
        outputs: &[&str],
        threads: Threads,
        limit: BatchLimit,
    ) -> Result<Self> {
        let find = |&name: &&str| {
            let known = model.outputs.keys().chain(model.of_steps.keys()).map(String::as_str);
            let id = model.outputs.get(name).or_else(|| model.of_steps.get(name));
            id.copied().ok_or_else(|| unknown("output", name, known))
        };
        let wanted: Vec<VarId> = outputs.iter().map(find).collect::<Result<_>>()?;
        let stepped = model.program.stepped(&model.registry, &wanted)?;
        let feed = |program: &Program, id: &VarId| program.var(*id).role == VarRole::Feed;
        let fed: Vec<VarId> = stepped.memories.iter().map(|memory| memory.fed).collect();
        let given = |id: &VarId| !fed.contains(id) && !stepped.kept.contains(id);
        let rows = stepped.step.reads().into_iter();
        let rows: Vec<VarId> = rows.filter(|id| feed(&stepped.step, id) && given(id)).collect();
        let starts = stepped.memories.iter().filter_map(|memory| memory.start);
        let computed = unique(stepped.kept.iter().copied().chain(starts));
        let mut once = stepped.before.reads();
        once.extend(&computed);
        let carried = |id: &VarId| model.carried.iter().any(|state| state.before == *id);
        let once = once.into_iter().filter(|id| feed(&stepped.before, id) && !carried(id)).collect();
        let outputs = outputs.iter().map(|&name| name.to_owned()).collect();
        // Both programs are compiled here, so that their errors appear when the session is made.
        let left: Vec<VarId> = stepped.memories.iter().map(|memory| memory.left).collect();
        let feeds = fed.iter().chain(&stepped.kept).chain(&rows);
        let wanted = unique(stepped.outputs.iter().chain(&left).chain(feeds).copied());
        let step_plan = Arc::new(compile(stepped.step.clone(), &model.registry, &wanted, &left)?);
        let once_plan = match computed.is_empty() {
            true => None,
            false => Some(Arc::new(compile(stepped.before.clone(), &model.registry, &computed, &[])?)),
        };
        Ok(Self {
            model: model.clone(),
            stepped,
            outputs,
            rows,
            once,
            computed,
            once_plan,
            step_plan,
            threads,
            limit,
            before: Mutex::default(),
            idle: Mutex::default(),
        })
    }

    pub(super) fn names(&self, ids: &[VarId]) -> Vec<&str> {
        ids.iter().map(|&id| self.model.program.var(id).name.as_str()).collect()
    }

    /// Runs the part that runs once, on `sequences` sequences; returns the values before the first step.
    ///
    /// # Errors
    /// If a feed is missing, unknown or does not fit, or if an operator rejects its data.
    #[track_caller]
    pub(super) fn begin(&self, feeds: &[(&str, &Variable)], sequences: usize) -> Result<StepStart> {
        let StepProgram { before, step, kept, memories, .. } = &self.stepped;
        let names = self.names(&self.once);
        let mut values = Vec::with_capacity(feeds.len());
        for &(name, value) in feeds {
            let at = names.iter().position(|known| *known == name);
            let carried = self.model.carried.iter().map(|state| state.before);
            let state = carried.into_iter().find(|&id| before.var(id).name == name);
            let id = at.map(|at| self.once[at]).or(state);
            values.push((id.ok_or_else(|| unknown("feed", name, names.iter().copied()))?, value));
        }
        if let Some(at) = self.once.iter().position(|id| !values.iter().any(|(given, _)| given == id)) {
            let expected = format!("`{}` among them", names[at]);
            let got = listed(feeds.iter().map(|(name, _)| *name));
            return Err(Error::of(ErrorKind::Program, "feeds to begin with", expected, got));
        }
        for (id, value) in values.iter().filter(|(id, _)| before.spec(*id).is_ok_and(Spec::batched)) {
            let count = value.batch_size();
            if count != sequences {
                let error = Error::new("sequences of a feed", sequences.to_string(), count.to_string());
                return Err(error.variable(&before.var(*id).name));
            }
        }
        let carried = self.model.carried.iter().map(|state| state.before);
        let absent = carried.filter(|id| !values.iter().any(|(given, _)| given == id));
        let states: Vec<(VarId, Variable)> =
            absent.map(|id| Ok((id, zeros(before, id, sequences, None)?))).collect::<Result<_>>()?;
        values.extend(states.iter().map(|(id, value)| (*id, value)));
        let mut found = Vec::new();
        if let Some(plan) = &self.once_plan {
            let idle = lock(&self.before).pop();
            let mut executor = idle.unwrap_or_else(|| Executor::of_plan(plan.clone(), self.threads.clone()));
            let mut weights = self.model.weights.clone();
            let fits = self.check_memory(&mut executor, &values);
            let ran = fits.and_then(|()| executor.run(&mut weights, &Run::infer(&values)));
            let values = ran.and_then(|()| {
                self.computed.iter().map(|&id| Ok((id, executor.fetch(id)?))).collect::<Result<Vec<_>>>()
            });
            if self.limit.bytes().is_none() || executor.bytes() <= LEAST {
                lock(&self.before).push(executor);
            }
            found = values?;
        }
        let value = |id: VarId| found.iter().find(|(known, _)| *known == id).map(|(_, value)| value.clone());
        let missing = |id: VarId| {
            Error::of(ErrorKind::Program, "value before the first step", "a computed value", step.called(id))
        };
        Ok(StepStart {
            kept: kept.iter().map(|&id| value(id).ok_or_else(|| missing(id))).collect::<Result<_>>()?,
            states: memories
                .iter()
                .map(|memory| match memory.start {
                    Some(start) => value(start).ok_or_else(|| missing(start)),
                    None => zeros(step, memory.fed, sequences, None),
                })
                .collect::<Result<_>>()?,
        })
    }

    /// Checks that the part that runs once fits the memory limit.
    fn check_memory(&self, executor: &mut Executor, values: &[(VarId, &Variable)]) -> Result<()> {
        if self.limit.bytes().is_none() {
            return Ok(());
        }
        let counts = executor.counts(values)?;
        let memory = executor.memory(&counts);
        self.limit.check(&memory, values.iter().map(|(_, value)| value.rows()).max().unwrap_or(0))
    }

    /// Returns the memory of a session on `sequences` sequences, and of a compiled step.
    pub(super) fn memory(&self, begun: &StepStart, sequences: usize) -> Result<MemoryUse> {
        /// The maximum size in bytes of a variable, beside its numbers.
        const VALUE: usize = 256;
        let step = &self.stepped.step;
        let rows = self.rows.iter().map(|&id| Ok((id, zeros(step, id, sequences, None)?)));
        let rows: Vec<_> = rows.collect::<Result<_>>()?;
        let begun = self.fed().zip(begun.kept.iter().chain(&begun.states));
        let feeds: Vec<_> = begun.chain(rows.iter().map(|(id, value)| (*id, value))).collect();
        let mut executor = Executor::of_plan(self.step_plan.clone(), self.threads.clone());
        let counts = executor.counts(&feeds)?;
        let memory = executor.memory(&counts);
        let held = feeds[..feeds.len() - rows.len()].iter().map(|(_, value)| VALUE + value.bytes());
        let output = |&id: &VarId| Ok(VALUE + zeros(step, id, sequences, None)?.bytes());
        let outputs = self.stepped.outputs.iter().map(output).sum::<Result<usize>>()?;
        let parameters = memory.parameters + memory.state;
        Ok(MemoryUse { parameters, state: held.sum::<usize>() + outputs, ..memory })
    }

    /// Returns the feeds of a step that a session holds: the constant values, then the memories.
    pub(super) fn fed(&self) -> impl Iterator<Item = VarId> + '_ {
        let StepProgram { kept, memories, .. } = &self.stepped;
        kept.iter().copied().chain(memories.iter().map(|memory| memory.fed))
    }

    /// Takes a compiled step from the pool; makes a new step if the pool is empty. If the pool has the step that holds the
    /// constant values of session `generation`, takes this step.
    pub(super) fn take(&self, generation: u64) -> Engine {
        let idle = {
            let mut idle = lock(&self.idle);
            let at = idle.iter().position(|engine| engine.of == generation);
            at.map(|at| idle.swap_remove(at)).or_else(|| idle.pop())
        };
        idle.unwrap_or_else(|| Engine {
            executor: Executor::of_plan(self.step_plan.clone(), self.threads.clone()),
            weights: self.model.weights.clone(),
            placed: self.fed().chain(self.rows.iter().copied()).map(|id| (id, None)).collect(),
            of: 0,
        })
    }

    pub(super) fn put_back(&self, engine: Engine) {
        lock(&self.idle).push(engine);
    }
}

impl Engine {
    /// Copies the value of a feed into the compiled step; returns the value's number of rows or sequences, or `None` if the
    /// feed is not batched.
    pub(super) fn keep_feed(&mut self, id: VarId, value: &Variable) -> Result<Option<usize>> {
        let sequences = self.executor.keep_feed(id, value)?;
        if let Some((_, lod)) = self.placed.iter_mut().find(|(known, _)| *known == id) {
            *lod = value.lod().cloned();
        }
        Ok(sequences)
    }

    /// Runs a step on `batch` sequences, with the feeds that were placed before.
    pub(super) fn run(&mut self, batch: usize) -> Result<()> {
        let Self { executor, weights, placed, .. } = self;
        executor.run_placed(weights, PlacedFeeds { batch, feeds: placed })
    }

    /// Calls `show` with the values of a variable after the last step, row-major.
    pub(super) fn numbers<T: Element + Plain, R>(
        &mut self,
        id: VarId,
        show: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        self.executor.numbers(id, show)
    }

    /// Returns the value of a variable after the last step.
    pub(super) fn fetch(&mut self, id: VarId) -> Result<Variable> {
        self.executor.fetch(id)
    }

    /// Copies the value of a variable after the last step to `to`; allocates no memory if `to` has the shape of the value.
    pub(super) fn copy(&mut self, id: VarId, to: &mut Variable) -> Result<()> {
        let spec = self.executor.program().spec(id)?;
        if !spec.lod.is_empty() || spec.storage != StorageKind::Dense || spec.dtype != to.dtype() {
            *to = self.executor.fetch(id)?;
            return Ok(());
        }
        with_element!(to.dtype(), T => {
            let to = to.as_mut_slice::<T>()?;
            let copied = self.executor.numbers::<T, bool>(id, |numbers| {
                // An empty value is replaced, not copied, since its shape may differ from the shape of `to`.
                let fits = numbers.len() == to.len() && !to.is_empty();
                if fits {
                    to.copy_from_slice(numbers);
                }
                fits
            })?;
            if copied {
                return Ok(());
            }
        });
        *to = self.executor.fetch(id)?;
        Ok(())
    }
}
