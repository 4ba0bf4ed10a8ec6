//! What a run is asked for: the batch, the mode, the step, how far to go.

use std::sync::Arc;

use crate::lod::Lod;
use crate::operator::VarId;
use crate::operator::context::Mode;
use crate::program::Role;
use crate::tensor::Variable;

/// How far a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Forward only.
    Forward,
    /// Forward and backward; nothing is updated, until [`Executor::update`](crate::executor::Executor::update) does.
    Gradients,
    /// All of it.
    Updates,
}

impl Stage {
    /// The first stage that has operators of a role.
    pub(crate) fn of(role: Role) -> Self {
        match role {
            Role::Forward | Role::Settle => Stage::Forward,
            Role::Backward => Stage::Gradients,
            Role::Update => Stage::Updates,
        }
    }
}

/// Feeds that were [put into place](crate::executor::Executor::place) before a run, or for an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedFeeds<'a> {
    /// How many sequences the batch has.
    pub(crate) batch: usize,
    /// The LoD of each.
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
    /// The numbers of the batch's sequences in the data; 0, 1, … without it. Random operators depend on them, and so
    /// not on how the data is cut into batches.
    pub numbers: &'a [u64],
    /// The place of each sequence's first row in the sequence, where a window of it is fed; 0 without it.
    pub places: &'a [u64],
    /// How far to go.
    pub stage: Stage,
}

impl<'a> Run<'a> {
    /// A training step: forward, backward, updates.
    pub fn train(feeds: &'a [(VarId, &'a Variable)], step: u64) -> Self {
        Run { feeds, mode: Mode::Train, step, numbers: &[], places: &[], stage: Stage::Updates }
    }

    /// A forward pass that infers.
    pub fn infer(feeds: &'a [(VarId, &'a Variable)]) -> Self {
        Run { feeds, mode: Mode::Infer, step: 0, numbers: &[], places: &[], stage: Stage::Forward }
    }

    /// The same with the numbers of the sequences in the data.
    #[must_use]
    pub fn numbers(self, numbers: &'a [u64]) -> Self {
        Run { numbers, ..self }
    }

    /// The same of windows of the sequences: the place of each one's first row in it.
    #[must_use]
    pub fn places(self, places: &'a [u64]) -> Self {
        Run { places, ..self }
    }

    /// The same up to a stage.
    #[must_use]
    pub fn until(self, stage: Stage) -> Self {
        Run { stage, ..self }
    }
}
