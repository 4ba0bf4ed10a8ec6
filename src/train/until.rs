//! The end of a training, as a number of epochs or steps.

use crate::checkpoint::Position;

/// The condition at which [`Trainer::fit`](super::Trainer::fit) ends; epochs and steps are counted over all runs of the
/// training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Ends the training after this many epochs.
    Epochs(u64),
    /// Ends the training after this many steps. If the last step is inside an epoch, the training ends without an evaluation;
    /// if it is the last step of an epoch, the epoch is evaluated as usual.
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

/// A number of training steps, as a type of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps(pub u64);
