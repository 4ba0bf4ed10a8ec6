//! Facts that an operator declares for the compiler: its reach, its effect on the LoD, and the gradient of each input.

use crate::tensor::StorageKind;

/// The reach of an operator: the rows of the inputs on which one row of the output depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// A row of the output depends on the same row of the batched inputs, and on constants. The compiler may call a row-wise
    /// operator on any range of rows.
    Row,
    /// A row of the output depends on the rows of the same sequence (of the last LoD level), and on constants. The compiler may
    /// call a sequence-wise operator on any range of whole sequences.
    Sequence,
    /// A row of the output may depend on all rows of the batch.
    Batch,
}

/// The effect of an operator on the LoD: the LoD of the outputs, given the LoD of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LodEffect {
    /// Every batched output has the LoD of this input slot, as the same `Arc`. An output with one row per sequence has that LoD
    /// without its last level. If a constant is bound to this input slot, the LoD of the next slot with a batched variable is
    /// used.
    Keeps(usize),
    /// Every output has the LoD of this input slot without the last level.
    DropsLevel(usize),
    /// The operator makes new offsets from the offsets of its inputs, with
    /// [`InferShape::new_level`](crate::operator::InferShape::new_level).
    Replaces,
    /// The operator makes new offsets from the values in these input slots, with
    /// [`InferShape::level_from_data`](crate::operator::InferShape::level_from_data) and
    /// [`Op::levels`](crate::operator::Op::levels). In a step block, these inputs must not depend on a memory, since the rows of
    /// all steps are counted before the first step.
    FromData(&'static [usize]),
    /// The outputs of the operator have no LoD.
    Drops,
}

impl LodEffect {
    /// Returns the input slots whose values decide the offsets of new sequences; `None` unless the effect is `FromData`.
    pub(crate) fn deciding(self) -> Option<&'static [usize]> {
        if let LodEffect::FromData(slots) = self { Some(slots) } else { None }
    }
}

/// The facts about an operator on which the compiler may rely.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The reach of the operator: a row-wise or sequence-wise operator may be moved out of a step loop.
    pub reach: Reach,
    /// The effect of the operator on the LoD.
    pub lod: LodEffect,
    /// Whether the operator draws random numbers; the operator must draw these numbers by
    /// [`Forward::uniform`](crate::operator::CallInputs::uniform) and its variants only.
    pub random: bool,
    /// Whether the bits of an output row depend on the other rows of the batch, as in batch norm. A batch-dependent operator is
    /// exempt from the test that a row has the same bits in every batch.
    pub batch_dependent: bool,
}

impl Facts {
    /// Returns the facts of a row-wise operator that keeps the LoD of its first input slot.
    pub const fn row_wise() -> Self {
        Facts { reach: Reach::Row, lod: LodEffect::Keeps(0), random: false, batch_dependent: false }
    }

    /// Returns the facts of a sequence-wise operator with the given effect on the LoD.
    pub const fn sequence_wise(lod: LodEffect) -> Self {
        Facts { reach: Reach::Sequence, lod, ..Self::row_wise() }
    }

    /// Returns the facts of an operator with the reach [`Reach::Batch`] and the given effect on the LoD.
    pub const fn batch_wide(lod: LodEffect) -> Self {
        Facts { reach: Reach::Batch, lod, ..Self::row_wise() }
    }
}

/// The gradient of one input slot: see [`Op::gradient`](crate::operator::Op::gradient).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gradient {
    /// The storage of the gradient of a dense input: dense or selected rows.
    pub storage: StorageKind,
    /// The slots whose forward values `backward` reads to compute the gradient. The forward values of all other slots may be
    /// freed or overwritten before `backward` runs.
    pub(crate) reads: ReadSlots,
    /// Whether the input's gradient equals the gradient of the first output, number for number, as for the operands of a sum. If
    /// nothing else contributes to the input's gradient, `backward` is not called for this input.
    pub(crate) passes: bool,
    /// Whether `backward` can write the gradient over the value of the input. `backward` then finds the input's value only in the
    /// buffer of the gradient ([`Backward::in_place`](crate::operator::Backward::in_place)).
    pub(crate) overwrites: bool,
}

impl Gradient {
    /// Declares a dense gradient; `backward` computes it from the gradients of the outputs and from the forward values in the
    /// slots `reads`.
    pub(crate) const fn reading(reads: ReadSlots) -> Self {
        Gradient { storage: StorageKind::Dense, reads, passes: false, overwrites: false }
    }

    /// Declares a dense gradient; `backward` computes it from the gradients of the outputs alone.
    pub const fn reads_nothing() -> Self {
        Self::reading(ReadSlots::nothing())
    }

    /// Declares a dense gradient; `backward` computes it from the gradients of the outputs and from all forward values.
    pub const fn reads_all() -> Self {
        Self::reading(ReadSlots::everything())
    }

    /// Adds an input slot to the slots whose forward values `backward` reads.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        Gradient { reads: self.reads.input(slot), ..self }
    }

    /// Adds an output slot to the slots whose forward values `backward` reads.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        Gradient { reads: self.reads.output(slot), ..self }
    }

    /// Sets the storage of the gradient.
    #[must_use]
    pub const fn stored(self, storage: StorageKind) -> Self {
        Gradient { storage, ..self }
    }

    /// Sets whether the input's gradient equals the gradient of the first output.
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
pub(crate) struct ReadSlots {
    inputs: u32,
    outputs: u32,
}

/// Returns the bit of a slot; 0 for a slot beyond the 32 slots of the set.
const fn bit(slot: usize) -> u32 {
    if slot < 32 { 1 << slot } else { 0 }
}

impl ReadSlots {
    /// Returns the empty set: `backward` reads the gradients of the outputs alone.
    pub(crate) const fn nothing() -> Self {
        ReadSlots { inputs: 0, outputs: 0 }
    }

    /// Returns the set of all input slots and output slots.
    pub(crate) const fn everything() -> Self {
        ReadSlots { inputs: u32::MAX, outputs: u32::MAX }
    }

    #[must_use]
    pub(crate) const fn input(self, slot: usize) -> Self {
        ReadSlots { inputs: self.inputs | bit(slot), ..self }
    }

    #[must_use]
    pub(crate) const fn output(self, slot: usize) -> Self {
        ReadSlots { outputs: self.outputs | bit(slot), ..self }
    }

    #[must_use]
    pub(crate) const fn union(self, other: ReadSlots) -> Self {
        ReadSlots { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }

    pub(crate) const fn has_input(self, slot: usize) -> bool {
        self.inputs & bit(slot) != 0
    }

    pub(crate) const fn has_output(self, slot: usize) -> bool {
        self.outputs & bit(slot) != 0
    }
}

/// An upper bound of what a sparse output stores: the number of entries of a matrix, or the number of selected
/// rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageBound {
    /// At most all numbers (or all rows) of the output's dense form.
    Everything,
    /// At most the number of entries or selected rows that the inputs in these slots store together; a dense input
    /// counts with its number of rows.
    Together(&'static [usize]),
    /// At most a given number for each row of an input. The fields are the slot of the input, and the number.
    PerRow(usize, usize),
    /// At most the smallest number of entries or selected rows that an input in these slots stores; dense inputs are
    /// ignored.
    Least(&'static [usize]),
}

/// The update that a row misses in a step in which it has no gradient. A row can only miss updates if gradients are stored as
/// selected rows; a dense gradient has zeros in a row without a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debt {
    /// No update is missed: a gradient of zeros leaves the row unchanged.
    Nothing,
    /// The missed update can be postponed until the row is next read, and is then made together with later missed updates.
    Later,
    /// The missed update cannot be postponed, since the rule can only make it for all rows at once; the string is the reason.
    AtOnce(&'static str),
    /// As [`Self::AtOnce`]; also, the update of each row depends on all other rows, so a table with such a rule cannot be divided.
    Whole(&'static str),
}

impl Debt {
    /// Returns the reason why the missed update cannot be postponed; `None` if it can be, or if none is missed.
    pub fn at_once(self) -> Option<&'static str> {
        match self {
            Self::AtOnce(reason) | Self::Whole(reason) => Some(reason),
            Self::Nothing | Self::Later => None,
        }
    }
}
