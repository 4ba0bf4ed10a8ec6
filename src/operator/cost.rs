//! The cost of a call, for the profiler: operations and bytes, from the sizes of its operands.

use std::ops::AddAssign;

use super::context::Pass;
use crate::operator::extent::{Extent, Spec};

/// Operations and bytes of one or many calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Bytes that are read.
    pub read: u64,
    /// Bytes that are written.
    pub written: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops += other.flops;
        self.read += other.read;
        self.written += other.written;
    }
}

/// The sizes of a call, from which [`Op::cost`](crate::operator::Op::cost) computes the call's cost.
pub struct Work<'a> {
    pub(crate) pass: Pass,
    pub(crate) wanted: &'a [bool],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) outputs: &'a [Vec<Spec>],
    pub(crate) rows: &'a dyn Fn(Extent) -> usize,
    /// The count of numbers that the sparse variables of an input slot store.
    pub(crate) stored: &'a dyn Fn(usize) -> usize,
    pub(crate) touched: Cost,
}

impl Work<'_> {
    /// The pass of the call, forward or backward.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns whether a backward call computes the gradient of input slot `slot`.
    pub fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// Rows and width of the variable of input slot `slot` in this call; zeros if it is not bound.
    pub fn input(&self, slot: usize) -> (u64, u64) {
        self.size(self.inputs.get(slot))
    }

    /// Rows and width of the variable of output slot `slot` in this call; in a backward call, of its gradient.
    pub fn output(&self, slot: usize) -> (u64, u64) {
        self.size(self.outputs.get(slot))
    }

    /// The count of numbers that the variables of input slot `slot` store, if they are sparse; else 0.
    pub fn stored(&self, slot: usize) -> u64 {
        (self.stored)(slot) as u64
    }

    /// The default cost: one operation for each number that is written, and the bytes of everything that is bound to the call. If
    /// the call has selected rows, a table counts with only as many rows.
    pub fn touched(&self) -> Cost {
        self.touched
    }

    fn size(&self, slot: Option<&Vec<Spec>>) -> (u64, u64) {
        let size = |spec: &Spec| ((self.rows)(spec.rows()) as u64, spec.width() as u64);
        slot.and_then(|specs| specs.first()).map_or((0, 0), size)
    }
}
