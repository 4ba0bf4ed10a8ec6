//! What an operator is, as the compiler sees it: its facts, and what the gradient of each input is like.

use crate::tensor::StorageKind;

/// What a row of the result depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// On the same row of the batched inputs, and on constants. May be called on any range of rows.
    Row,
    /// On the rows of the same sequence (last level). May be called on any range of whole sequences.
    Sequence,
    /// On the whole batch.
    Batch,
}

/// What an operator does to the LoD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LodEffect {
    /// Every batched output has the LoD of this input slot, the same `Arc`; one with a row for each sequence that without its last
    /// level. If a constant is bound there, it is the LoD of
    /// the first slot behind it whose variable has rows of the batch.
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
    /// The input slots that decide the offsets of what an operator makes; `None` if other offsets do.
    pub(crate) fn deciding(self) -> Option<&'static [usize]> {
        if let LodEffect::FromData(slots) = self { Some(slots) } else { None }
    }
}

/// What the compiler may assume of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// What a row of the result depends on: row- and sequence-wise operators may leave a step loop.
    pub reach: Reach,
    /// What it does to the LoD.
    pub lod: LodEffect,
    /// Draws random numbers, from [`Forward::uniform`](crate::operator::Forward::uniform) and its like, and nowhere else.
    pub random: bool,
    /// A row's bits depend on the batch (batch norm and the like): exempt from that test.
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

/// What the gradient of one input slot is like: see [`Op::gradient`](crate::operator::Op::gradient).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gradient {
    /// How it is stored.
    pub storage: StorageKind,
    /// Which forward values `backward` reads for it. The others may be freed or overwritten before it runs.
    pub reads: ReadSlots,
    /// It IS the gradient of the first output, number for number, as for the operands of a sum. Where nothing else adds to
    /// it, `backward` is then not asked for it at all.
    pub passes: bool,
    /// `backward` can write it over the value of the input, which it then reads where the gradient goes
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

    /// Dense, computed from all there is.
    pub const fn reads_all() -> Self {
        Self::reading(ReadSlots::everything())
    }

    /// The same, reading an input slot too.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        Gradient { reads: self.reads.input(slot), ..self }
    }

    /// The same, reading an output slot too.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        Gradient { reads: self.reads.output(slot), ..self }
    }

    /// The same in another storage.
    #[must_use]
    pub const fn stored(self, storage: StorageKind) -> Self {
        Gradient { storage, ..self }
    }

    /// The same; if `passes`, it is the gradient of the first output.
    #[must_use]
    pub const fn passes(self, passes: bool) -> Self {
        Gradient { passes, ..self }
    }

    /// The same, written over the input's value on request.
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
    /// Nothing but the outputs' gradients.
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

    /// Whether an input slot is among them.
    pub(crate) const fn has_input(self, slot: usize) -> bool {
        self.inputs & (1 << slot) != 0
    }

    /// Whether an output slot is among them.
    pub(crate) const fn has_output(self, slot: usize) -> bool {
        self.outputs & (1 << slot) != 0
    }
}

/// How much a sparse result stores at most: entries of a matrix, or selected rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageBound {
    /// Every number that the dense meaning has.
    Everything,
    /// As much as the inputs in these slots store together; of a dense one, its rows count.
    Together(&'static [usize]),
    /// As much as the one of these slots that stores least; a dense one does not count.
    Least(&'static [usize]),
}

/// What a row owes after an update in which it had no gradient, where gradients are selected rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debt {
    /// Nothing: it would have stayed as it is.
    Nothing,
    /// A move that can be made when the row is next read, together with those after it.
    Later,
    /// A move that has to be made at once, and why: the rule can do so for all rows alone.
    AtOnce(&'static str),
}
