//! The cost of an operator's call, for the profiler: operations and bytes, computed from the sizes of the operands.

use std::ops::AddAssign;

use super::context::Pass;
use crate::operator::extent::{Extent, Spec};

/// The operations and bytes of one or more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// The number of floating-point operations; a multiply-add counts as two.
    pub flops: u64,
    /// The number of bytes that the calls read.
    pub read: u64,
    /// The number of bytes that the calls write.
    pub written: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops += other.flops;
        self.read += other.read;
        self.written += other.written;
    }
}

/// The sizes of a call's operands, from which [`Op::cost`](crate::operator::Op::cost) computes the cost of the call.
pub struct Work<'a> {
    pub(crate) pass: Pass,
    pub(crate) wanted: &'a [bool],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) outputs: &'a [Vec<Spec>],
    pub(crate) rows: &'a dyn Fn(Extent) -> usize,
    /// Returns the number of values that the sparse variables of an input slot store.
    pub(crate) stored: &'a dyn Fn(usize) -> usize,
    pub(crate) touched: Cost,
}

impl Work<'_> {
    /// Returns the pass of the call: forward or backward.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns whether a backward call computes the gradient of input slot `slot`.
    pub(crate) fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// Returns the number of rows and the width of the variable in input slot `slot` in this call; zeros if no variable is bound.
    pub fn input(&self, slot: usize) -> (u64, u64) {
        self.size(self.inputs.get(slot))
    }

    /// Returns the number of rows and the width of the variable in output slot `slot` in this call. In a backward call, the
    /// output's gradient has this size.
    pub fn output(&self, slot: usize) -> (u64, u64) {
        self.size(self.outputs.get(slot))
    }

    /// Returns how many numbers the sparse variables of input slot `slot` store; 0 if the variables are dense.
    pub(crate) fn stored(&self, slot: usize) -> u64 {
        (self.stored)(slot) as u64
    }

    /// Returns the default cost: one operation per number that is written, and the bytes of all operands of the call. If the
    /// call has selected rows, only as many rows of a table are counted as there are selected rows.
    pub fn touched(&self) -> Cost {
        self.touched
    }

    fn size(&self, slot: Option<&Vec<Spec>>) -> (u64, u64) {
        let size = |spec: &Spec| ((self.rows)(spec.rows()) as u64, spec.width() as u64);
        slot.and_then(|specs| specs.first()).map_or((0, 0), size)
    }
}
