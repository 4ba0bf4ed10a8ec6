//! Slots: the memory of values, and the views through which calls read and write them.

use crate::operator::{BlockId, Extent, VarId};
use crate::tensor::DType;

/// How the rows of a slot are laid out in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// Rows in the batch's order; for a constant, rows in the constant's own order.
    Whole,
    /// Rows of all steps of a step block, in step-major order.
    Stepped(BlockId),
    /// One row (or sub-sequence) per sequence of a step block, sorted by the rank of the sequence.
    Sequence(BlockId),
}

/// A slot: the memory of one variable's value.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) var: VarId,
    pub(crate) dtype: DType,
    pub(crate) width: usize,
    pub(crate) rows: Extent,
    pub(crate) home: Home,
    pub(crate) buffer: usize,
    /// The first and the last moment (instruction of the root block) at which the slot is in use.
    pub(crate) life: (usize, usize),
    /// Whether the scope keeps the slot's value from run to run.
    pub(crate) persistent: bool,
    /// The slot whose buffer this slot shares; `None` if this slot has a buffer of its own.
    pub(crate) alias: Option<usize>,
    /// The pool number of a value that is not dense and so has no buffer; `None` for a dense slot.
    pub(crate) pool: Option<usize>,
}

/// The value that a view reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Slot(usize),
    /// The previous value of a memory. At the first step, this is the initial value; at later steps, the rows that the
    /// previous step wrote to the slot of the next value.
    Previous {
        block: BlockId,
        memory: usize,
    },
    /// The gradient of a memory that a step passes to the previous step.
    Passed {
        block: BlockId,
        memory: usize,
    },
}

/// A view of a value: the value, its rows, its width and its first column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ref {
    pub(crate) access: Access,
    pub(crate) rows: Extent,
    pub(crate) width: usize,
    /// The first column of the slot that the view contains; 0 if the view contains all columns.
    pub(crate) column: usize,
}
