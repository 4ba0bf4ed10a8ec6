//! Slots: the buffers of values, and the views that a call has of them.

use crate::operator::{BlockId, Extent, VarId};
use crate::tensor::DType;

/// The layout of a slot's rows in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// In the order of the batch (or, for a constant, its own).
    Whole,
    /// The rows of all steps of a block, in step-major order.
    Stepped(BlockId),
    /// One row (or sub-sequence) for each sequence of a block, in rank order.
    Sequence(BlockId),
}

/// The slot of a variable's value.
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
    /// The value is kept in the scope from run to run.
    pub(crate) persistent: bool,
    /// The slot whose buffer this slot shares.
    pub(crate) alias: Option<usize>,
    /// The number in the pool, if the value is not dense; it then has no buffer.
    pub(crate) pool: Option<usize>,
}

/// The value that a view of a call refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// A slot.
    Slot(usize),
    /// A memory's value of the previous step: the initial rows, or rows of the next value's slot.
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
    /// The first column, if the view has only some columns of the slot.
    pub(crate) column: usize,
}
