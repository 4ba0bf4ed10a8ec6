//! A model that runs row by row: its programs, and those of them that are compiled and idle.

use std::sync::{Arc, Mutex, PoisonError};

use super::carried::zeros;
use super::checks::{listed, unknown};
use super::model::Model;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, PlacedFeeds, Run, Scope, Threads};
use crate::kernels::arena::Plain;
use crate::lod::Lod;
use crate::operator::{Spec, VarId};
use crate::program::{Program, StepProgram, VarRole};
use crate::tensor::{Element, StorageKind, Variable, with_element};

/// A model cut into what is computed once and a step: see [`Program::stepped`]. What holds a text's place in it, a session or
/// a search, shares it with others.
pub(super) struct Stepping {
    pub(super) model: Arc<Model>,
    pub(super) stepped: StepProgram,
    /// The names of the outputs, in the order of [`StepProgram::outputs`].
    pub(super) outputs: Vec<String>,
    /// The feeds that each step is given.
    pub(super) rows: Vec<VarId>,
    /// The feeds that what is computed once needs, but for states that are carried.
    pub(super) once: Vec<VarId>,
    /// What is computed once that a step reads, or starts from.
    computed: Vec<VarId>,
    threads: Threads,
    before: Mutex<Vec<Executor>>,
    idle: Mutex<Vec<Engine>>,
}

/// A compiled step, which one text at a time uses.
pub(super) struct Engine {
    executor: Executor,
    weights: Scope,
    /// The LoD of each feed, in place.
    placed: Vec<(VarId, Option<Arc<Lod>>)>,
    /// Whose values that stay the same are in it.
    pub(super) of: u64,
}

/// What is known before a step.
#[derive(Clone)]
pub(super) struct StepStart {
    /// The values of [`StepProgram::kept`].
    pub(super) kept: Vec<Variable>,
    /// What [`StepProgram::memories`] hold.
    pub(super) states: Vec<Variable>,
}

impl Stepping {
    pub(super) fn new(model: &Arc<Model>, outputs: &[&str], threads: Threads) -> Result<Self> {
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
        let rows = rows.filter(|id| feed(&stepped.step, id) && given(id)).collect();
        let starts = stepped.memories.iter().filter_map(|memory| memory.start);
        let mut computed: Vec<VarId> = stepped.kept.iter().copied().chain(starts).collect();
        computed.sort();
        computed.dedup();
        let mut once = stepped.before.reads();
        once.extend(&computed);
        let carried = |id: &VarId| model.carried.iter().any(|state| state.before == *id);
        let once = once.into_iter().filter(|id| feed(&stepped.before, id) && !carried(id)).collect();
        let outputs = outputs.iter().map(|&name| name.to_owned()).collect();
        let stepping = Self {
            model: model.clone(),
            stepped,
            outputs,
            rows,
            once,
            computed,
            threads,
            before: Mutex::default(),
            idle: Mutex::default(),
        };
        // What does not compile should be known now.
        stepping.put_back(stepping.engine()?);
        if !stepping.computed.is_empty() {
            let before = stepping.preparation()?;
            lock(&stepping.before).push(before);
        }
        Ok(stepping)
    }

    /// What a program of the model is fed: the names, for messages.
    pub(super) fn names(&self, ids: &[VarId]) -> Vec<&str> {
        ids.iter().map(|&id| self.model.program.var(id).name.as_str()).collect()
    }

    /// Computes what is computed once, for a batch of sequences.
    ///
    /// # Errors
    /// A feed that is missing, not known or does not fit; data that an operator refuses.
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
            return Err(Error::of(
                ErrorKind::Program,
                "feeds to begin with",
                expected,
                listed(feeds.iter().map(|(name, _)| *name)),
            ));
        }
        for (id, value) in values.iter().filter(|(id, _)| before.spec(*id).is_ok_and(Spec::batched)) {
            let of = value.batch_size();
            if of != sequences {
                let error = Error::new("sequences of a feed", sequences.to_string(), of.to_string());
                return Err(error.variable(&before.var(*id).name));
            }
        }
        let carried = self.model.carried.iter().map(|state| state.before);
        let absent = carried.filter(|id| !values.iter().any(|(given, _)| given == id));
        let states: Vec<(VarId, Variable)> =
            absent.map(|id| Ok((id, zeros(before, id, sequences, None)?))).collect::<Result<_>>()?;
        values.extend(states.iter().map(|(id, value)| (*id, value)));
        let mut found = Vec::new();
        if !self.computed.is_empty() {
            let idle = lock(&self.before).pop();
            let mut executor = idle.map_or_else(|| self.preparation(), Ok)?;
            let mut weights = self.model.weights.clone();
            let ran = executor.run(&mut weights, &Run::infer(&values));
            let values = ran.and_then(|()| {
                self.computed.iter().map(|&id| Ok((id, executor.fetch(id)?))).collect::<Result<Vec<_>>>()
            });
            lock(&self.before).push(executor);
            found = values?;
        }
        let value = |id: VarId| found.iter().find(|(known, _)| *known == id).map(|(_, value)| value.clone());
        let missing =
            |id: VarId| Error::of(ErrorKind::Program, "value before the first step", "one", step.called(id));
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

    /// The feeds of the step that a session holds: those that stay the same, then the memories.
    pub(super) fn fed(&self) -> impl Iterator<Item = VarId> + '_ {
        let StepProgram { kept, memories, .. } = &self.stepped;
        kept.iter().copied().chain(memories.iter().map(|memory| memory.fed))
    }

    fn preparation(&self) -> Result<Executor> {
        Executor::on(&self.stepped.before, &self.model.registry, &self.computed, self.threads.clone())
    }

    fn engine(&self) -> Result<Engine> {
        let StepProgram { step, kept, memories, outputs, .. } = &self.stepped;
        let left: Vec<VarId> = memories.iter().map(|memory| memory.left).collect();
        let fed = memories.iter().map(|memory| memory.fed).chain(self.rows.iter().copied());
        let feeds: Vec<VarId> = kept.iter().copied().chain(fed).collect();
        let mut wanted: Vec<VarId> = outputs.iter().chain(&left).chain(&feeds).copied().collect();
        wanted.sort();
        wanted.dedup();
        let executor = Executor::stepping(step, &self.model.registry, &wanted, &left, self.threads.clone())?;
        let placed = feeds.into_iter().map(|id| (id, None)).collect();
        Ok(Engine { executor, weights: self.model.weights.clone(), placed, of: 0 })
    }

    /// A compiled step; the one that holds the values of `of`, if it is idle.
    pub(super) fn take(&self, of: u64) -> Result<Engine> {
        let idle = {
            let mut idle = lock(&self.idle);
            let at = idle.iter().position(|engine| engine.of == of);
            at.map(|at| idle.swap_remove(at)).or_else(|| idle.pop())
        };
        idle.map_or_else(|| self.engine(), Ok)
    }

    pub(super) fn put_back(&self, engine: Engine) {
        lock(&self.idle).push(engine);
    }
}

impl Engine {
    /// Puts the value of a feed of the step in place; returns how many rows or sequences it has, if they are of the batch.
    pub(super) fn place(&mut self, id: VarId, value: &Variable) -> Result<Option<usize>> {
        let sequences = self.executor.place(id, value)?;
        if let Some((_, lod)) = self.placed.iter_mut().find(|(known, _)| *known == id) {
            *lod = value.lod().cloned();
        }
        Ok(sequences)
    }

    /// Computes a step of so many sequences from what is in place.
    pub(super) fn run(&mut self, batch: usize) -> Result<()> {
        let Self { executor, weights, placed, .. } = self;
        executor.run_placed(weights, PlacedFeeds { batch, feeds: placed })
    }

    /// Shows the numbers of what the step has left: rows after rows.
    pub(super) fn numbers<T: Element + Plain, R>(
        &mut self,
        id: VarId,
        show: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        self.executor.numbers(id, show)
    }

    /// What the step has left.
    pub(super) fn fetch(&mut self, id: VarId) -> Result<Variable> {
        self.executor.fetch(id)
    }

    /// Copies what the step has left, without an allocation where `to` has the shape.
    pub(super) fn copy(&mut self, id: VarId, to: &mut Variable) -> Result<()> {
        let spec = self.executor.program().spec(id)?;
        if !spec.lod.is_empty() || spec.storage != StorageKind::Dense || spec.dtype != to.dtype() {
            *to = self.executor.fetch(id)?;
            return Ok(());
        }
        with_element!(to.dtype(), T => {
            let to = to.as_mut_slice::<T>()?;
            let copied = self.executor.numbers::<T, bool>(id, |numbers| {
                // A value of no rows has a shape, too.
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

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing runs while it is held, so what is behind it is whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
