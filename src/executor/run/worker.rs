//! What a thread of a run has for itself, and what the calls of a run pass on to one another.

use std::time::Instant;

use crate::executor::run::recorder::Recorder;
use crate::kernels::arena::{OperandRoom, Region, Share};
use crate::operator::context::Scratch;
use crate::operator::entries::PooledStorage;

/// A thread's own memory.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    pub(crate) room: OperandRoom,
    /// The operands of the two halves of a call that is divided.
    pub(crate) halves: (OperandRoom, OperandRoom),
    pub(crate) reads: Vec<Region>,
    pub(crate) writes: Vec<Region>,
    /// What a profile is made of, while one is wanted.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl Worker {
    /// The time, if it is wanted.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.recorder.as_ref().map(|_| Instant::now())
    }
}

/// Lists that loops fill, kept from run to run for their memory.
#[derive(Default)]
pub(crate) struct Lists {
    /// A row outside of each row inside, or the other way round.
    pub(crate) index: Vec<usize>,
    /// Offsets that an operator computes from data.
    pub(crate) offsets: Vec<Vec<usize>>,
    /// Where rows or sequences are cut into parts for threads.
    pub(crate) cuts: Vec<usize>,
    /// Where runs of rows of sequences begin and end.
    pub(crate) bounds: Vec<usize>,
    /// What of each buffer the parts have.
    pub(crate) shares: Vec<Share>,
}

/// What an instruction needs beside what all threads see.
pub(crate) struct Tools<'a> {
    pub(crate) workers: &'a mut [Worker],
    /// Values that are not dense, by their numbers in the plan.
    pub(crate) pool: &'a mut [PooledStorage],
    pub(crate) lists: &'a mut Lists,
}
