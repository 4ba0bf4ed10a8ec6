//! The memory that the calls of an operator take beside their operands, computed before a run.

use super::context::Pass;
use crate::operator::extent::{Extent, LevelId, Spec};

/// The memory that the calls of an operator take beside their operands, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallMemory {
    /// The value that [`Op::prepare`](crate::operator::Op::prepare) leaves, such as packed weights.
    pub prepared: usize,
    /// The scratch memory of all threads together.
    pub scratch: usize,
    /// Whether `scratch` is an upper bound: values that only the run computes decide how much of it is used.
    pub bound: bool,
}

/// The sizes of a call's operands, from which [`Op::memory`](crate::operator::Op::memory) computes the memory of the call. A call
/// in a loop is counted with its largest step.
pub struct CallSizes<'a> {
    pub(crate) pass: Pass,
    pub(crate) threads: usize,
    /// Whether the constant inputs are prepared before the call.
    pub(crate) prepared: bool,
    pub(crate) wanted: &'a [bool],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) outputs: &'a [Vec<Spec>],
    pub(crate) rows: &'a dyn Fn(Extent) -> usize,
    pub(crate) stored: &'a dyn Fn(usize) -> usize,
    pub(crate) longest: &'a dyn Fn(LevelId) -> usize,
}

impl CallSizes<'_> {
    /// Returns the pass of the call: forward or backward.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns the number of threads that may share the call.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns whether [`Op::prepare`](crate::operator::Op::prepare) runs before the call.
    pub fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Returns whether a backward call computes the gradient of input slot `slot`.
    pub fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// Returns the number of variables in input slot `slot`.
    pub fn count(&self, slot: usize) -> usize {
        self.inputs.get(slot).map_or(0, Vec::len)
    }

    /// Returns the bytes of a number of the variable in input slot `slot`; 0 if no variable is bound.
    pub fn number(&self, slot: usize) -> usize {
        self.inputs.get(slot).and_then(|specs| specs.first()).map_or(0, |spec| spec.dtype.size_of())
    }

    /// Returns the number of rows and the width of the variable in input slot `slot`; zeros if no variable is bound.
    pub fn input(&self, slot: usize) -> (usize, usize) {
        self.size(self.inputs.get(slot))
    }

    /// Returns the number of rows and the width of the variable in output slot `slot`.
    pub fn output(&self, slot: usize) -> (usize, usize) {
        self.size(self.outputs.get(slot))
    }

    /// Returns the most entries, or selected rows, that the sparse variables of input slot `slot` store together; 0 if the
    /// variables are dense.
    pub fn stored(&self, slot: usize) -> usize {
        (self.stored)(slot)
    }

    /// Returns the length of the longest sequence (last level) of the variable in input slot `slot`; 0 without a LoD.
    pub fn longest(&self, slot: usize) -> usize {
        let level = self.inputs.get(slot).and_then(|specs| specs.first()?.lod.last());
        level.map_or(0, |&level| (self.longest)(level))
    }

    fn size(&self, slot: Option<&Vec<Spec>>) -> (usize, usize) {
        slot.and_then(|specs| specs.first()).map_or((0, 0), |spec| ((self.rows)(spec.rows()), spec.width()))
    }
}
