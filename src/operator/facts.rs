//! Facts that an operator declares for the compiler: its reach, its LoD, and the gradient of each input.

use crate::tensor::StorageKind;

/// The reach of an operator: the input rows on which a row of its result depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The same row of the batched inputs, and constants. The operator may be called on any range of rows.
    Row,
    /// The rows of the same sequence (last level). The operator may be called on any range of whole sequences.
    Sequence,
    /// The whole batch.
    Batch,
}

/// The effect of an operator on the LoD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LodEffect {
    /// Every batched output has the LoD of this input slot, the same `Arc`; an output with one row per sequence has that LoD
    /// without its last level. If a constant is bound to this slot, the LoD comes from the next slot whose variable is batched.
    Keeps(usize),
    /// Every output has the LoD of this input slot without its last level.
    DropsLevel(usize),
    /// Makes new offsets from the inputs' offsets, with [`InferShape::new_level`](crate::operator::InferShape::new_level).
    Replaces,
    /// Makes new offsets from the numbers in these input slots, with
    /// [`InferShape::level_from_data`](crate::operator::InferShape::level_from_data) and
    /// [`Op::levels`](crate::operator::Op::levels). In a step block these inputs must not depend on a memory, since the rows of
    /// all steps are counted before the first step.
    FromData(&'static [usize]),
    /// No output has a LoD.
    Drops,
}

impl LodEffect {
    /// The input slots whose numbers decide the offsets of new sequences; `None` unless the operator makes offsets from data.
    pub(crate) fn deciding(self) -> Option<&'static [usize]> {
        if let LodEffect::FromData(slots) = self { Some(slots) } else { None }
    }
}

/// The facts about an operator on which the compiler may rely.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The reach: row-wise and sequence-wise operators may leave a step loop.
    pub reach: Reach,
    /// The effect on the LoD.
    pub lod: LodEffect,
    /// The operator draws random numbers, and only by [`Forward::uniform`](crate::operator::Forward::uniform) and its variants.
    pub random: bool,
    /// The bits of a row depend on the other rows of the batch, as in batch norm. The operator is then exempt from the test that
    /// a row has the same bits in any batch.
    pub batch_dependent: bool,
}

impl Facts {
    /// Row-wise, keeping the LoD of the first input slot.
    pub const fn row_wise() -> Self {
        Facts { reach: Reach::Row, lod: LodEffect::Keeps(0), random: false, batch_dependent: false }
    }

    /// Sequence-wise with the given effect on the LoD.
    pub const fn sequence_wise(lod: LodEffect) -> Self {
        Facts { reach: Reach::Sequence, lod, ..Self::row_wise() }
    }

    /// Batch-wide with the given effect on the LoD.
    pub const fn batch_wide(lod: LodEffect) -> Self {
        Facts { reach: Reach::Batch, lod, ..Self::row_wise() }
    }
}

/// The gradient of one input slot: see [`Op::gradient`](crate::operator::Op::gradient).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gradient {
    /// The storage of the gradient.
    pub storage: StorageKind,
    /// The slots whose forward values `backward` reads to compute the gradient. All other forward values may be freed or
    /// overwritten before `backward` runs.
    pub reads: ReadSlots,
    /// The input's gradient IS the gradient of the first output, number for number, as for the operands of a sum. If nothing else
    /// contributes to the input's gradient, `backward` is not called for it.
    pub passes: bool,
    /// `backward` can write the gradient over the value of the input. It then reads that value only in the gradient's buffer
    /// ([`Backward::in_place`](crate::operator::Backward::in_place)).
    pub overwrites: bool,
}

impl Gradient {
    /// Dense, computed from the outputs' gradients and these forward values.
    pub const fn reading(reads: ReadSlots) -> Self {
        Gradient { storage: StorageKind::Dense, reads, passes: false, overwrites: false }
    }

    /// Dense, computed from the outputs' gradients alone.
    pub const fn reads_nothing() -> Self {
        Self::reading(ReadSlots::nothing())
    }

    /// Dense, computed from the outputs' gradients and all forward values.
    pub const fn reads_all() -> Self {
        Self::reading(ReadSlots::everything())
    }

    /// Adds an input slot to the slots whose values are read.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        Gradient { reads: self.reads.input(slot), ..self }
    }

    /// Adds an output slot to the slots whose values are read.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        Gradient { reads: self.reads.output(slot), ..self }
    }

    /// Sets the storage.
    #[must_use]
    pub const fn stored(self, storage: StorageKind) -> Self {
        Gradient { storage, ..self }
    }

    /// Sets whether the input's gradient is the gradient of the first output.
    #[must_use]
    pub const fn passes(self, passes: bool) -> Self {
        Gradient { passes, ..self }
    }

    /// Declares that `backward` can write the gradient over the input's value.
    #[must_use]
    pub const fn overwrites(self) -> Self {
        Gradient { overwrites: true, ..self }
    }
}

/// A set of slots whose forward values `backward` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadSlots {
    inputs: u32,
    outputs: u32,
}

impl ReadSlots {
    /// No slots: `backward` reads the outputs' gradients alone.
    pub const fn nothing() -> Self {
        ReadSlots { inputs: 0, outputs: 0 }
    }

    /// All inputs and outputs.
    pub const fn everything() -> Self {
        ReadSlots { inputs: u32::MAX, outputs: u32::MAX }
    }

    /// Adds an input slot.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        ReadSlots { inputs: self.inputs | 1 << slot, ..self }
    }

    /// Adds an output slot.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        ReadSlots { outputs: self.outputs | 1 << slot, ..self }
    }

    /// Both sets together.
    #[must_use]
    pub(crate) const fn union(self, other: ReadSlots) -> Self {
        ReadSlots { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }

    /// Returns whether an input slot is in the set.
    pub(crate) const fn has_input(self, slot: usize) -> bool {
        self.inputs & (1 << slot) != 0
    }

    /// Returns whether an output slot is in the set.
    pub(crate) const fn has_output(self, slot: usize) -> bool {
        self.outputs & (1 << slot) != 0
    }
}

/// An upper bound of the stored numbers of a sparse result: entries of a matrix, or selected rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageBound {
    /// All numbers of the dense form.
    Everything,
    /// The sum of the stored counts of the inputs in these slots; a dense input counts with its number of rows.
    Together(&'static [usize]),
    /// The smallest stored count of the inputs in these slots; dense inputs are ignored.
    Least(&'static [usize]),
}

/// The update that a row without a gradient misses, if gradients are selected rows: with a dense gradient, the row would have the
/// gradient zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debt {
    /// No update: a gradient of zeros leaves the row unchanged.
    Nothing,
    /// An update that can be postponed until the row is next read, and then made together with later missed updates.
    Later,
    /// An update that cannot be postponed, with the reason: the rule can only make it for all rows at once.
    AtOnce(&'static str),
}
