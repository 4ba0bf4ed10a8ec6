//! How far a training goes.

use crate::checkpoint::Position;

/// How far [`Trainer::fit`](super::Trainer::fit) goes. Both count from the start of the training, over all runs that it was resumed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// So many epochs are finished.
    Epochs(u64),
    /// So many steps are made. It stops inside an epoch, without an evaluation; one that ends with that step is
    /// evaluated as any other.
    Steps(u64),
}

impl Until {
    pub(super) fn reached(self, position: &Position) -> bool {
        match self {
            Until::Epochs(n) => position.epoch >= n,
            Until::Steps(n) => position.step >= n,
        }
    }
}

/// A number of training steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps(pub u64);
