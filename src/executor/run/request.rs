//! The request of a run: the batch, the mode (train or infer), the step number, and the last stage.

use std::sync::Arc;

use crate::lod::Lod;
use crate::operator::VarId;
use crate::operator::context::Mode;
use crate::program::Role;
use crate::tensor::Variable;

/// The stage after which a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// The run ends after the forward pass.
    Forward,
    /// The run ends after the backward pass; [`Executor::update`](crate::executor::Executor::update) can then apply the
    /// updates.
    Gradients,
    /// The run ends after the updates.
    Updates,
}

impl Stage {
    /// Returns the stage in which operators of a role run.
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
    pub(crate) batch: usize,
    /// The LoD of each feed, or `None` for a feed without levels.
    pub(crate) feeds: &'a [(VarId, Option<Arc<Lod>>)],
}

/// The arguments of a run, without the scope.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Run<'a> {
    /// The batch: each feed with its value.
    pub feeds: &'a [(VarId, &'a Variable)],
    /// The mode of the run: train or infer.
    pub mode: Mode,
    /// The number of the training step, counted from 0.
    pub step: u64,
    /// For each sequence of the batch, its index in the data; empty means 0, 1, …. Random operators derive their random
    /// numbers from these indices, so their results do not depend on how the data is divided into batches.
    pub numbers: &'a [u64],
    /// For sequences that are windows of longer sequences: the position of each window's first row in the longer
    /// sequence. Empty means that all positions are 0.
    pub places: &'a [u64],
    /// The stage after which the run ends.
    pub stage: Stage,
}

impl<'a> Run<'a> {
    /// Returns the request of a training step: forward pass, backward pass and updates.
    pub fn train(feeds: &'a [(VarId, &'a Variable)], step: u64) -> Self {
        Run { feeds, mode: Mode::Train, step, numbers: &[], places: &[], stage: Stage::Updates }
    }

    /// Returns the request of a forward pass in inference mode.
    pub fn infer(feeds: &'a [(VarId, &'a Variable)]) -> Self {
        Run { feeds, mode: Mode::Infer, step: 0, numbers: &[], places: &[], stage: Stage::Forward }
    }

    /// Sets, for each sequence of the batch, its index in the data.
    #[must_use]
    pub fn numbers(self, numbers: &'a [u64]) -> Self {
        Run { numbers, ..self }
    }

    /// Sets the position of each window's first row in the longer sequence.
    #[must_use]
    pub fn places(self, places: &'a [u64]) -> Self {
        Run { places, ..self }
    }

    /// Sets the stage after which the run ends.
    #[must_use]
    pub fn until(self, stage: Stage) -> Self {
        Run { stage, ..self }
    }
}
