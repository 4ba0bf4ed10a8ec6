//! The training itself: the model and all that a checkpoint holds.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use crate::checkpoint::{Checkpoint, Position};
use crate::executor::Scope;
use crate::operator::{Registry, VarId};
use crate::program::{Builder, Var};
use crate::wire::Target;

/// A training: its program, its values and its position in the data.
pub(super) struct TrainingState {
    pub(super) net: Builder,
    pub(super) registry: Registry,
    /// The checkpoint of this training, without the tensors, which are in `scope`.
    pub(super) state: Checkpoint,
    pub(super) scope: Scope,
    /// The sums of each metric over the epoch so far; shorter than the metric needs, or absent, before the trainer is prepared.
    pub(super) sums: Vec<Vec<f64>>,
    /// The number of variables of the program before the backward operators were appended.
    pub(super) forward: usize,
    pub(super) loss: Var,
    /// The trained parameters: pairs (parameter, gradient).
    pub(super) trained: Vec<(VarId, VarId)>,
    pub(super) rate: VarId,
    /// The operators without a gradient between the loss and a trained parameter: pairs (operator, source line).
    pub(super) blocked: Vec<(String, String)>,
    /// The lock of the checkpoint file, held from [`Trainer::resume`](super::Trainer::resume) until `fit` takes it over.
    pub(super) held: Option<Target>,
    /// The position in the checkpoint file; `None` if this trainer has neither saved nor loaded the file.
    pub(super) saved: Option<Position>,
    /// Whether the position was loaded from a checkpoint: the data must then be the data of that checkpoint.
    pub(super) resumed: bool,
    /// The rank of this process and the number of processes, if the scope and the best epoch have only this process's rows of
    /// row-sparse parameters.
    pub(super) dealt_as: Option<(usize, usize)>,
    /// The checkpoint from which this process has read its own rows, for the other processes to read theirs.
    pub(super) rows_from: Option<PathBuf>,
}

impl Deref for TrainingState {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.state
    }
}

impl DerefMut for TrainingState {
    fn deref_mut(&mut self) -> &mut Checkpoint {
        &mut self.state
    }
}
