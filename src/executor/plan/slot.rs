//! Slots: the buffers of values, and the views that a call has of them.

use crate::operator::{BlockId, Extent, VarId};
use crate::tensor::DType;

/// The layout of a slot's rows in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// The rows of the batch in its order; the rows of a constant in their own order.
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
    /// The first and the last instruction of the root block that uses the slot.
    pub(crate) life: (usize, usize),
    /// Whether the scope keeps the value from run to run.
    pub(crate) persistent: bool,
    /// The slot whose buffer this slot shares.
    pub(crate) alias: Option<usize>,
    /// The number of the value in the pool, if the value is not dense; the slot then has no buffer.
    pub(crate) pool: Option<usize>,
}

/// The value of which a call has a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// A slot.
    Slot(usize),
    /// The previous value of a memory: the initial value, or the rows that the step before wrote to the slot of the next value.
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
    /// The first column of the slot that the view has; 0 if it has all columns.
    pub(crate) column: usize,
}
