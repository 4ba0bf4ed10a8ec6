//! The request of a run: the batch, the mode, the step and the last stage.

use std::sync::Arc;

use crate::lod::Lod;
use crate::operator::VarId;
use crate::operator::context::Mode;
use crate::program::Role;
use crate::tensor::Variable;

/// The last stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Forward only.
    Forward,
    /// Forward and backward; nothing is updated until [`Executor::update`](crate::executor::Executor::update).
    Gradients,
    /// Forward, backward and the updates.
    Updates,
}

impl Stage {
    /// The stage in which the operators of a role run.
    pub(crate) fn of(role: Role) -> Self {
        match role {
            Role::Forward | Role::Settle => Stage::Forward,
            Role::Backward => Stage::Gradients,
            Role::Update => Stage::Updates,
        }
    }
}

/// Feeds that were [placed](crate::executor::Executor::place) before this run, or before an earlier run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedFeeds<'a> {
    /// The number of sequences of the batch.
    pub(crate) batch: usize,
    /// The LoD of each feed.
    pub(crate) feeds: &'a [(VarId, Option<Arc<Lod>>)],
}

/// The arguments of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Run<'a> {
    /// The batch: each feed's variable.
    pub feeds: &'a [(VarId, &'a Variable)],
    /// Train or infer.
    pub mode: Mode,
    /// The number of the training step, from 0.
    pub step: u64,
    /// The numbers of the batch's sequences in the data; 0, 1, … if empty. Random operators depend on these numbers, and so
    /// not on how the data is divided into batches.
    pub numbers: &'a [u64],
    /// If the fed sequences are windows: the position of each window's first row in its whole sequence; all 0 if empty.
    pub places: &'a [u64],
    /// The last stage of the run.
    pub stage: Stage,
}

impl<'a> Run<'a> {
    /// Returns a training step: forward, backward, updates.
    pub fn train(feeds: &'a [(VarId, &'a Variable)], step: u64) -> Self {
        Run { feeds, mode: Mode::Train, step, numbers: &[], places: &[], stage: Stage::Updates }
    }

    /// Returns a forward pass in inference mode.
    pub fn infer(feeds: &'a [(VarId, &'a Variable)]) -> Self {
        Run { feeds, mode: Mode::Infer, step: 0, numbers: &[], places: &[], stage: Stage::Forward }
    }

    /// Sets the numbers of the sequences in the data.
    #[must_use]
    pub fn numbers(self, numbers: &'a [u64]) -> Self {
        Run { numbers, ..self }
    }

    /// Sets the position of each window's first row in its sequence.
    #[must_use]
    pub fn places(self, places: &'a [u64]) -> Self {
        Run { places, ..self }
    }

    /// Sets the last stage.
    #[must_use]
    pub fn until(self, stage: Stage) -> Self {
        Run { stage, ..self }
    }
}
