//! Compiled programs of a predictor: one for each set of outputs, and more where several threads predict at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::Model;
use super::windows::Windows;
use crate::error::Result;
use crate::executor::{Executor, Run, Scope, Threads};
use crate::operator::VarId;
use crate::program::Program;
use crate::tensor::Variable;

/// The compiled part of a model for a set of outputs, run by one thread at a time.
pub(super) struct CompiledModel {
    executor: Executor,
    threads: Threads,
    /// The model's weights, in memory shared with all other programs.
    weights: Scope,
    /// The program in windows: `None` before the first long batch, `Some(None)` if the program cannot run in windows.
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

    /// Returns the values of `wanted`; a batch of more than `most` rows runs in windows if the program can.
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
                executor.bytes_for(values)?; // the feeds are checked as a whole
                windows.run(weights, values, wanted, most)
            }
            None => {
                executor.run(weights, &Run::infer(values))?;
                wanted.iter().map(|&id| executor.fetch(id)).collect()
            }
        }
    }
}

/// The pool of idle compiled models, by their outputs; clones of a predictor share it.
#[derive(Default)]
pub(super) struct IdleModels(Mutex<BTreeMap<Vec<VarId>, Vec<CompiledModel>>>);

impl IdleModels {
    /// Takes an idle model for these outputs, if there is one.
    pub(super) fn take(&self, set: &[VarId]) -> Option<CompiledModel> {
        self.all().get_mut(set)?.pop()
    }

    pub(super) fn put_back(&self, set: Vec<VarId>, compiled: CompiledModel) {
        self.all().entry(set).or_default().push(compiled);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Vec<VarId>, Vec<CompiledModel>>> {
        // Nothing that can panic runs while the lock is held, so the map is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
