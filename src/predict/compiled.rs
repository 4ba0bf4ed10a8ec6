//! Compiled programs of a predictor: one for each list of outputs, and one more for each thread that predicts at the same time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::Model;
use super::windows::Windows;
use crate::error::Result;
use crate::executor::{Executor, Run, Scope, Threads};
use crate::operator::VarId;
use crate::program::Program;
use crate::tensor::Variable;

/// The compiled part of a model that computes one list of outputs; one thread at a time runs it.
pub(super) struct CompiledModel {
    executor: Executor,
    threads: Threads,
    /// The model's weights; all compiled programs share the memory of the weights.
    weights: Scope,
    /// The program for long batches, which runs in windows of rows: `None` before the first long batch, `Some(None)` if the
    /// program cannot run in windows.
    windows: Option<Option<Windows>>,
}

impl CompiledModel {
    pub(super) fn new(model: &Model, set: &[VarId], threads: &Threads) -> Result<Self> {
        let program = model.program.inference(set)?;
        let executor = Executor::on(&program, &model.registry, set, threads.clone())?;
        Ok(Self { executor, threads: threads.clone(), weights: model.weights.clone(), windows: None })
    }

    pub(super) fn program(&self) -> &Program {
        self.executor.program()
    }

    /// Returns the values of `wanted`; if a feed has a LoD and more than `most` rows, the batch runs in windows if the program
    /// can.
    pub(super) fn run(
        &mut self,
        model: &Model,
        values: &[(VarId, &Variable)],
        wanted: &[VarId],
        most: usize,
    ) -> Result<Vec<Variable>> {
        let Self { executor, threads, weights, windows } = self;
        let long = |value: &Variable| value.lod().is_some() && value.rows() > most;
        let windows = match values.iter().any(|(_, value)| long(value)) {
            true => {
                let made = || Windows::new(executor.program(), &model.registry, wanted, threads).ok();
                windows.get_or_insert_with(made).as_mut()
            }
            false => None,
        };
        match windows {
            Some(windows) => {
                executor.counts(values)?; // the feeds are checked as a whole
                windows.run(weights, values, wanted, most)
            }
            None => {
                executor.run(weights, &Run::infer(values))?;
                wanted.iter().map(|&id| executor.fetch(id)).collect()
            }
        }
    }
}

/// The pool of idle compiled models, by their lists of outputs; the clones of a predictor share one pool.
#[derive(Default)]
pub(super) struct IdleModels(Mutex<BTreeMap<Vec<VarId>, Vec<CompiledModel>>>);

impl IdleModels {
    /// Removes an idle model for these outputs from the pool and returns it; `None` if the pool has none.
    pub(super) fn take(&self, set: &[VarId]) -> Option<CompiledModel> {
        self.all().get_mut(set)?.pop()
    }

    pub(super) fn put_back(&self, set: Vec<VarId>, compiled: CompiledModel) {
        self.all().entry(set).or_default().push(compiled);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Vec<VarId>, Vec<CompiledModel>>> {
        // No code that can panic runs while the lock is held, so the map is consistent even if the mutex is poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
