//! Slots: room for a value, and what views of it a call has.

use crate::operator::{BlockId, Extent, VarId};
use crate::tensor::DType;

/// How the rows of a slot lie in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// In the order of the batch (or, for a constant, its own).
    Whole,
    /// The rows of all steps of a block, in step-major order.
    Stepped(BlockId),
    /// One row (or sub-sequence) for each sequence of a block, in rank order.
    Sequence(BlockId),
}

/// Room for the value of a variable.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) var: VarId,
    pub(crate) dtype: DType,
    pub(crate) width: usize,
    pub(crate) rows: Extent,
    pub(crate) home: Home,
    pub(crate) buffer: usize,
    /// The first and the last top-level instruction that touch it.
    pub(crate) life: (usize, usize),
    /// Kept in the scope from run to run.
    pub(crate) persistent: bool,
    /// Another slot, whose buffer it shares.
    pub(crate) alias: Option<usize>,
    /// Not dense: its number in the pool, instead of a buffer.
    pub(crate) pool: Option<usize>,
}

/// What a view of a call refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// A slot.
    Slot(usize),
    /// A memory's value of the step before: the initial rows, or a part of the next value's slot.
    Previous { block: BlockId, memory: usize },
    /// The gradient that a step passes to the step before it.
    Passed { block: BlockId, memory: usize },
}

/// An access with its rows and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ref {
    pub(crate) access: Access,
    pub(crate) rows: Extent,
    pub(crate) width: usize,
    /// The first column, where it is a part of the slot's.
    pub(crate) column: usize,
}
