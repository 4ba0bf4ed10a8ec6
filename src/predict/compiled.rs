//! Compiled programs of a predictor: one for each set of outputs, and more of them where threads predict at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::model::Model;
use super::windows::Windows;
use crate::error::Result;
use crate::executor::{Executor, Run, Scope, Threads};
use crate::operator::VarId;
use crate::program::Program;
use crate::tensor::Variable;

/// The part of a model for a set of outputs, which one thread at a time runs.
pub(super) struct CompiledModel {
    executor: Executor,
    threads: Threads,
    /// The model's weights, in the same memory as everywhere else.
    weights: Scope,
    /// The same in windows, once a batch was long; `None` inside if it cannot be run so.
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

    /// The values of `wanted`; a batch of more rows than `most` runs in windows, if it can.
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

/// Those that no thread runs at the moment, by their outputs; clones of a predictor share them.
#[derive(Default)]
pub(super) struct IdleModels(Mutex<BTreeMap<Vec<VarId>, Vec<CompiledModel>>>);

impl IdleModels {
    /// One for these outputs, if one is idle.
    pub(super) fn take(&self, set: &[VarId]) -> Option<CompiledModel> {
        self.all().get_mut(set)?.pop()
    }

    pub(super) fn put_back(&self, set: Vec<VarId>, compiled: CompiledModel) {
        self.all().entry(set).or_default().push(compiled);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Vec<VarId>, Vec<CompiledModel>>> {
        // No thread runs anything while it holds the lock, so what is behind it is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
