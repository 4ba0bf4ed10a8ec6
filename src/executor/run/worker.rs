//! The memory that one thread of a run uses, and the lists that the calls of a run share.

use std::time::Instant;

use crate::executor::run::recorder::Recorder;
use crate::kernels::arena::{OperandRoom, Region, Share};
use crate::operator::context::Scratch;
use crate::operator::entries::PooledStorage;

#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    pub(crate) room: OperandRoom,
    /// Memory for the operands of the two halves of a divided call.
    pub(crate) halves: (OperandRoom, OperandRoom),
    pub(crate) reads: Vec<Region>,
    pub(crate) writes: Vec<Region>,
    /// The thread's recorder; `None` if no profile is recorded.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl Worker {
    /// Returns the current time if a profile is recorded; else `None`.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.recorder.as_ref().map(|_| Instant::now())
    }
}

/// Temporary lists for the calls of a loop; their memory is kept from run to run.
#[derive(Default)]
pub(crate) struct Lists {
    /// For each row of a level outside a block, its position in the order of the block's frame.
    pub(crate) index: Vec<usize>,
    /// The offsets that an operator has just computed, one list per level that it makes.
    pub(crate) offsets: Vec<Vec<usize>>,
    /// The positions (rows or sequences) at which work is cut into the parts of the threads.
    pub(crate) cuts: Vec<usize>,
    /// For each static level: the first row of each sequence, then the first row of each step.
    pub(crate) bounds: Vec<usize>,
    /// For each buffer, the part that a lane may use.
    pub(crate) shares: Vec<Share>,
    /// The counts of the batch, by the plan's quantities.
    pub(crate) counts: Vec<usize>,
}

/// The memory that an instruction uses in addition to the data that all threads share.
pub(crate) struct Tools<'a> {
    pub(crate) workers: &'a mut [Worker],
    /// The values that are not dense, by pool number.
    pub(crate) pool: &'a mut [PooledStorage],
    pub(crate) lists: &'a mut Lists,
}
