//! The memory of a thread of a run, and the lists that the calls of a run share.

use std::time::Instant;

use crate::executor::run::recorder::Recorder;
use crate::kernels::arena::{OperandRoom, Region, Share};
use crate::operator::context::Scratch;
use crate::operator::entries::PooledStorage;

/// The memory of one thread.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    pub(crate) room: OperandRoom,
    /// The operands of the two halves of a divided call.
    pub(crate) halves: (OperandRoom, OperandRoom),
    pub(crate) reads: Vec<Region>,
    pub(crate) writes: Vec<Region>,
    /// The recorder of a profile, while a profile is wanted.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl Worker {
    /// The current time, if it is recorded.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.recorder.as_ref().map(|_| Instant::now())
    }
}

/// Lists that loops fill; their memory is kept from run to run.
#[derive(Default)]
pub(crate) struct Lists {
    /// For each row around a block, its position in the order of the block's frame.
    pub(crate) index: Vec<usize>,
    /// Offsets that an operator computes from data.
    pub(crate) offsets: Vec<Vec<usize>>,
    /// The positions at which rows or sequences are divided over threads.
    pub(crate) cuts: Vec<usize>,
    /// The bounds of static levels, by sequence and by step.
    pub(crate) bounds: Vec<usize>,
    /// The share of each buffer that a lane has.
    pub(crate) shares: Vec<Share>,
}

/// The memory that an instruction uses, beside the data that all threads share.
pub(crate) struct Tools<'a> {
    pub(crate) workers: &'a mut [Worker],
    /// The values that are not dense, by their numbers in the pool.
    pub(crate) pool: &'a mut [PooledStorage],
    pub(crate) lists: &'a mut Lists,
}
