//! Facts that an operator declares for the compiler: its reach, its LoD, and the gradient of each input.

use crate::tensor::StorageKind;

/// The reach of an operator: the input rows on which a row of its result depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The same row of the batched inputs, and constants. May be called on any range of rows.
    Row,
    /// The rows of the same sequence (last level). May be called on any range of whole sequences.
    Sequence,
    /// The whole batch.
    Batch,
}

/// The effect of an operator on the LoD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LodEffect {
    /// Every batched output has the LoD of this input slot, the same `Arc`; an output with one row per sequence has that LoD
    /// without its last level. If a constant is bound there, it is the LoD of the first slot behind it whose variable has
    /// rows of the batch.
    Keeps(usize),
    /// Every output has the LoD of this input slot without its last level.
    DropsLevel(usize),
    /// Makes new offsets from the inputs' offsets, with [`InferShape::new_level`](crate::operator::InferShape::new_level).
    Replaces,
    /// Makes new offsets from the numbers in these input slots, with
    /// [`InferShape::level_from_data`](crate::operator::InferShape::level_from_data) and
    /// [`Op::levels`](crate::operator::Op::levels). In a step block no memory may reach them: the rows of every step are counted
    /// before the first.
    FromData(&'static [usize]),
    /// No output has a LoD.
    Drops,
}

impl LodEffect {
    /// The input slots that decide the offsets of the sequences that an operator makes; `None` if other offsets do.
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
    /// Draws random numbers, from [`Forward::uniform`](crate::operator::Forward::uniform) and its like, and nowhere else.
    pub random: bool,
    /// A row's bits depend on the batch (batch norm and the like): exempt from the test of equal bits.
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
    /// The forward values that `backward` reads for it. Other values may be freed or overwritten before it runs.
    pub reads: ReadSlots,
    /// The gradient IS the gradient of the first output, number for number, as for the operands of a sum. If nothing else
    /// adds to it, `backward` is not asked for it at all.
    pub passes: bool,
    /// `backward` can write the gradient over the value of the input. It then reads that value in the gradient's buffer
    /// ([`Backward::in_place`](crate::operator::Backward::in_place)) and nowhere else.
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

    /// Adds an input slot to the values that are read.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        Gradient { reads: self.reads.input(slot), ..self }
    }

    /// Adds an output slot to the values that are read.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        Gradient { reads: self.reads.output(slot), ..self }
    }

    /// Sets the storage.
    #[must_use]
    pub const fn stored(self, storage: StorageKind) -> Self {
        Gradient { storage, ..self }
    }

    /// Sets whether it is the gradient of the first output.
    #[must_use]
    pub const fn passes(self, passes: bool) -> Self {
        Gradient { passes, ..self }
    }

    /// Declares that it can be written over the input's value.
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
    /// Every number that the dense meaning has.
    Everything,
    /// As much as the inputs in these slots store together; a dense input counts by its rows.
    Together(&'static [usize]),
    /// As much as the input that stores least among these slots; a dense input does not count.
    Least(&'static [usize]),
}

/// The debt of a row after an update without a gradient for it, if gradients are selected rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debt {
    /// Nothing: the row would have stayed as it is.
    Nothing,
    /// A move that can be made when the row is next read, together with later moves.
    Later,
    /// A move that has to be made at once, with the reason: the rule can only make it for all rows.
    AtOnce(&'static str),
}
