//! The memory that the calls of an operator take beside their operands, computed before a run.

use std::any::TypeId;

use arrayvec::ArrayVec;

use super::context::Pass;
use super::precision::MatrixUnit;
use crate::operator::extent::{Extent, LevelId, Spec};
use crate::tensor::{DType, StorageKind};

/// The maximum number of sizes of scratch memory that a call declares; further sizes are added to the last size.
const MOST_SCRATCH: usize = 12;

/// The memory that the calls of an operator take beside their operands, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallMemory {
    /// The value that [`Op::prepare`](crate::operator::Op::prepare) leaves, such as packed weights.
    pub prepared: usize,
    /// Whether the scratch memory is an upper bound: values that only the run computes decide how much of it is used.
    pub(crate) bound: bool,
    /// The type of each scratch value, and the bytes of all threads together.
    pub(crate) scratch: ArrayVec<(TypeId, usize), MOST_SCRATCH>,
}

impl CallMemory {
    /// Returns the memory of a call that leaves `bytes` bytes in [`Op::prepare`](crate::operator::Op::prepare).
    pub fn prepared(bytes: usize) -> Self {
        Self { prepared: bytes, ..Self::default() }
    }

    /// Adds the bytes of a vector in the scratch value `S`, for all threads together. All calls of a run share the
    /// vector, so only the largest call counts. An operator always declares the vectors of a scratch value in the same
    /// order; an unused vector has 0 bytes.
    #[must_use]
    pub fn scratch<S: 'static>(mut self, bytes: usize) -> Self {
        if let Err(full) = self.scratch.try_push((TypeId::of::<S>(), bytes))
            && let Some((_, last)) = self.scratch.last_mut()
        {
            *last = last.saturating_add(full.element().1);
        }
        self
    }

    /// Adds the bytes of scratch memory that this call shares with no other call.
    pub(crate) fn own(self, bytes: usize) -> Self {
        self.scratch::<CallRoom>(bytes)
    }

    /// Marks the scratch memory as an upper bound if `bound` is true.
    #[must_use]
    pub(crate) fn bounded(self, bound: bool) -> Self {
        Self { bound, ..self }
    }
}

/// The type of scratch memory that each call has for itself.
pub(crate) struct CallRoom;

/// An input or output slot of a call, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallSlot {
    Input(usize),
    Output(usize),
}

/// The sizes of a call's operands, from which [`Op::memory`](crate::operator::Op::memory) computes the memory of the call. A call
/// in a loop is counted with its largest step.
pub struct CallSizes<'a> {
    pub(crate) pass: Pass,
    pub(crate) threads: usize,
    pub(crate) unit: MatrixUnit,
    /// Whether the call runs step by step in a loop.
    pub(crate) in_loop: bool,
    /// Whether the constant inputs are prepared before the call.
    pub(crate) prepared: bool,
    pub(crate) wanted: &'a [bool],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) outputs: &'a [Vec<Spec>],
    pub(crate) rows: &'a dyn Fn(Extent) -> usize,
    pub(crate) stored: &'a dyn Fn(CallSlot) -> usize,
    pub(crate) longest: &'a dyn Fn(LevelId) -> usize,
    pub(crate) pairs: &'a [CallSlot],
}

impl CallSizes<'_> {
    /// Returns the pass of the call: forward or backward.
    pub(crate) fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns the number of threads that may share the call.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the number of threads that may each run a part of the call with scratch of its own: several in a loop, whose
    /// sequences the threads divide, else 1.
    pub(crate) fn rooms(&self) -> usize {
        if self.in_loop { self.threads } else { 1 }
    }

    pub(crate) fn unit(&self) -> MatrixUnit {
        self.unit
    }

    /// Returns whether [`Op::prepare`](crate::operator::Op::prepare) runs before the call.
    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Returns whether a backward call computes the gradient of input slot `slot`.
    pub fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// Returns the number of variables in input slot `slot`.
    pub(crate) fn count(&self, slot: usize) -> usize {
        self.inputs.get(slot).map_or(0, Vec::len)
    }

    /// Returns the dtype of the variable in input slot `slot`; f32 if no variable is bound.
    pub fn dtype(&self, slot: usize) -> DType {
        self.inputs.get(slot).and_then(|specs| specs.first()).map_or(DType::F32, |spec| spec.dtype)
    }

    /// Returns the number of rows and the width of the variable in input slot `slot`; zeros if no variable is bound.
    pub fn input(&self, slot: usize) -> (usize, usize) {
        self.size(self.inputs.get(slot))
    }

    /// Returns the largest number of rows and the largest width of the variables in input slot `slot`.
    pub(crate) fn largest(&self, slot: usize) -> (usize, usize) {
        let specs = self.inputs.get(slot).into_iter().flatten();
        specs
            .fold((0, 0), |(rows, width), spec| (rows.max((self.rows)(spec.rows())), width.max(spec.width())))
    }

    /// Returns the number of rows and the width of the variable in output slot `slot`.
    pub fn output(&self, slot: usize) -> (usize, usize) {
        self.size(self.outputs.get(slot))
    }

    /// Returns the maximum number of entries, or of selected rows, that the sparse variables of input slot `slot` store
    /// together; 0 if the variables are dense.
    pub(crate) fn stored(&self, slot: usize) -> usize {
        (self.stored)(CallSlot::Input(slot))
    }

    /// Returns the maximum number of entries, or of selected rows, that the sparse variables of output slot `slot`
    /// store together.
    pub(crate) fn stored_output(&self, slot: usize) -> usize {
        (self.stored)(CallSlot::Output(slot))
    }

    /// Returns whether the variable in input slot `slot` is a row-sparse parameter.
    pub(crate) fn is_table(&self, slot: usize) -> bool {
        let spec = self.inputs.get(slot).and_then(|specs| specs.first());
        spec.is_some_and(|spec| spec.storage == StorageKind::SelectedRows)
    }

    /// Returns the length of the longest sequence (last level) of the variable in input slot `slot`; 0 without a LoD.
    pub fn longest(&self, slot: usize) -> usize {
        let level = self.inputs.get(slot).and_then(|specs| specs.first()?.lod.last());
        level.map_or(0, |&level| (self.longest)(level))
    }

    /// Returns whether the left matrix of a product is whole pairs: input slot `input`, or the gradient of output slot `output`.
    pub(crate) fn multiplies_pairs(&self, input: usize, output: usize) -> bool {
        let left = if self.pass == Pass::Forward { CallSlot::Input(input) } else { CallSlot::Output(output) };
        self.pairs.contains(&left)
    }

    fn size(&self, slot: Option<&Vec<Spec>>) -> (usize, usize) {
        slot.and_then(|specs| specs.first()).map_or((0, 0), |spec| ((self.rows)(spec.rows()), spec.width()))
    }
}
