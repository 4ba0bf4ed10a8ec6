//! The end of a training, in epochs or steps.

use crate::checkpoint::Position;

/// The end of [`Trainer::fit`](super::Trainer::fit), counted from the start of the training over all its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Stop after this many epochs.
    Epochs(u64),
    /// Stop after this many steps. Inside an epoch, the training stops without an evaluation; an epoch that ends with the last
    /// step is evaluated as usual.
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
