//! The contract of an operator.
//!
//! One operator family is one file; the file carries, in this order, the formula with a worked example, the builder,
//! [`Op::infer_shape`], [`Op::forward`], [`Op::backward`] and [`Op::samples`]. A user's crate implements the same
//! trait and registers the type in a [`Registry`](super::registry::Registry).

use std::fmt;
use std::ops::Range;

use super::attributes::Attributes;
use super::context::{Backward, Forward, NewLevels, Prepare};
use super::cost::{Cost, Work};
use super::extent::Spec;
use super::infer::InferShape;
use super::sample::Sample;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::StorageKind;

/// An operator with its attributes.
///
/// - `infer_shape` runs when the operator is appended, so that its errors point at the user's line, and again, for
///   operators that make new sequences from offsets, at every run, with the offsets known. ONE rule serves both. Offsets
///   that the data decides come from `levels` instead.
/// - `forward` WRITES its outputs whole: what they hold on entry is undefined (may be NaN), unless the slot is
///   declared [`Slot::updated`].
/// - `backward` computes only the gradients that are asked for, and for each WRITES or ADDS as the request says.
///   Each may be asked for alone.
/// - Both take `&self`, may be called at the same time on disjoint ranges of rows (for a sequence-wise operator: of
///   whole sequences), and must give a row (a sequence) THE SAME BITS whatever else is in the batch, unless the
///   facts say [`Facts::batch_dependent`].
/// - Both are TOTAL: no sequence, an empty sequence, an empty batch are defined, never a panic or a NaN.
pub trait Op: Send + Sync + 'static {
    /// The name stored in programs. Two operators of one registry cannot share it.
    fn kind() -> &'static str
    where
        Self: Sized;

    /// Reads the operator's attributes.
    ///
    /// # Errors
    /// If one is missing, of the wrong type or out of range.
    fn parse(attributes: &Attributes) -> Result<Self>
    where
        Self: Sized;

    /// Small cases that the catalogue-wide test runs: shapes, gradients, empty sequences, several LoD levels.
    fn samples() -> Vec<Sample>
    where
        Self: Sized;

    /// The slots it reads and writes.
    fn signature(&self) -> Signature;

    /// What the compiler may assume.
    fn facts(&self) -> Facts;

    /// Sets the spec of every output: shape, dtype, LoD and storage.
    ///
    /// # Errors
    /// If the inputs do not fit; the error names the slot, what was expected and what came.
    fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()>;

    /// Computes the offsets of the levels that `infer_shape` makes by [`InferShape::level_from_data`], from the slots
    /// that [`LodEffect::FromData`] names. It runs before `forward`, when no output has room yet. In a step block it runs
    /// for one step after the other, before the first of them does anything else.
    ///
    /// # Errors
    /// As `forward`.
    fn levels(&self, _run: &mut NewLevels<'_>) -> Result<()> {
        let expected = "an operator that computes them (`Op::levels`)";
        Err(Error::of(ErrorKind::Program, "offsets from data", expected, "one that does not"))
    }

    /// Computes the outputs.
    ///
    /// # Errors
    /// Only for what the data decides: an id out of range, a length that does not divide.
    fn forward(&self, run: &mut Forward<'_>) -> Result<()>;

    /// Computes the gradients that are asked for.
    ///
    /// # Errors
    /// As `forward`; and if the operator has no gradient.
    fn backward(&self, _run: &mut Backward<'_>) -> Result<()> {
        Err(Error::of(ErrorKind::Program, "gradient", "an operator that has one", "an operator without"))
    }

    /// Which forward values `backward` reads for the gradient of input slot `wrt`. The others may be freed or
    /// overwritten before it runs.
    fn needs(&self, _wrt: usize) -> Needs {
        Needs::everything()
    }

    /// How the gradient of input slot `wrt` is stored.
    fn gradient_storage(&self, _wrt: usize) -> StorageKind {
        StorageKind::Dense
    }

    /// Whether the gradient of input slot `wrt` IS that of the first output, number for number, as for the operands of
    /// a sum. Where nothing else adds to it, `backward` is then not asked for it at all.
    fn passes_gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> bool {
        false
    }

    /// Whether the output IS the sum of the two inputs, number for number.
    fn sums(&self, _inputs: &[Vec<Spec>]) -> bool {
        false
    }

    /// Whether `forward` can add its one output to what is there: [`Forward::store`] then says so. What is only added
    /// to something else needs no memory of its own.
    fn accumulates(&self) -> bool {
        false
    }

    /// Whether `backward` can write the gradient of input slot `wrt` over that input's value, which it then reads where
    /// the gradient goes ([`Backward::in_place`]) and nowhere else.
    fn overwrites(&self, _wrt: usize) -> bool {
        false
    }

    /// If the outputs ARE columns of the first input, number for number: which columns, in order and not overlapping.
    /// In a step block they are then views of the input, and `forward` and `backward` are not called.
    fn columns(&self) -> Option<Vec<Range<usize>>> {
        None
    }

    /// How a call of this operator and one of the operator that computes an input can be one call of a third operator,
    /// so that the value between them never is in memory as a whole. The compiler does so where nothing else reads it.
    fn fusions(&self) -> &'static [Fusion] {
        &[]
    }

    /// How calls that share their other inputs can be one. The compiler makes them one in a step block, at a loop. Only of
    /// operators that are row-wise, not random, and have one output.
    fn merges(&self) -> Option<Merge> {
        None
    }

    /// How an operator that reaches over the rows of a sequence can be called on one piece of each sequence after the
    /// other, from the last piece to the first if it is `from_end`, for the same bits as on whole sequences. `None`: only
    /// on whole ones. Not asked of a row-wise operator, for which a piece is as good as the whole.
    fn pieces(&self, _from_end: bool) -> Option<Pieces> {
        None
    }

    /// What a call costs, for [profiles](crate::program::cost). Without a word of the operator's: one operation for each
    /// number it writes, and the bytes of everything that is bound to the call.
    fn cost(&self, work: &Work<'_>) -> Cost {
        work.touched()
    }

    /// Called once before many calls (all steps of a loop) whose constant inputs do not change: packs weights.
    ///
    /// # Errors
    /// As `forward`.
    fn prepare(&self, _prepare: &mut Prepare<'_>) -> Result<()> {
        Ok(())
    }
}

/// The slots of an operator. Forward calls number them from 0 in this order.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    /// What it reads.
    pub inputs: &'static [Slot],
    /// What it writes.
    pub outputs: &'static [Slot],
}

/// How many variables a slot takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly one.
    One,
    /// One or none.
    Optional,
    /// One or more, in order.
    Many,
    /// None, one or more, in order.
    Any,
}

impl Arity {
    /// Whether so many variables may be bound.
    pub const fn takes(self, count: usize) -> bool {
        match self {
            Arity::One => count == 1,
            Arity::Optional => count <= 1,
            Arity::Many => count >= 1,
            Arity::Any => true,
        }
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arity::One => "one variable",
            Arity::Optional => "at most one variable",
            Arity::Many => "at least one variable",
            Arity::Any => "any number of variables",
        })
    }
}

/// Two operators that can be one: see [`Op::fusions`]. The third operator has the attributes of both, and the outputs of the
/// one that declares it.
#[derive(Debug, Clone, Copy)]
pub struct Fusion {
    /// The input slot that the other operator fills, with its one output.
    pub slot: &'static str,
    /// The kind of the operator that fills it.
    pub producer: &'static str,
    /// The kind of the third operator, which computes the same from the inputs of both.
    pub into: &'static str,
    /// Each input slot of the producer, with its name at the third operator.
    pub producer_slots: &'static [(&'static str, &'static str)],
    /// Each other input slot of this operator, with its name at the third one.
    pub own_slots: &'static [(&'static str, &'static str)],
    /// Outputs of this operator that the third one lacks, each with the operator that computes it: it reads nothing of
    /// the producer's output, and has those of the third one's input slots that it needs.
    pub apart: &'static [(&'static str, &'static str)],
    /// Rows narrower than this are not worth it.
    pub least_width: usize,
}

/// Calls that can be one: see [`Op::merges`]. The one call has the variables of all of them in turn in some slots, and
/// its output has the columns of theirs side by side, number for number; the gradient of a shared input is the sum of
/// what theirs would be.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The input slots that hold the variables of all calls, each constant.
    pub beside: &'static [&'static str],
    /// The kind of the operator that cuts the output into columns, as many in each part as its attribute `sizes` says: one
    /// input, one output slot, and [`Op::columns`].
    pub parts: &'static str,
}

/// Calls on pieces of sequences: see [`Op::pieces`]. The operator that is called on each piece has the slots of the one that
/// declares it, and more: for each value that it hands from piece to piece, an optional input, which is zero at the first
/// piece, and an output of the same name. Every other input but the rows of the sequences is the same at each piece; what
/// it writes for each sequence is right at the last piece, what it writes for each row at every one.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// Its kind.
    pub into: &'static str,
    /// Its attributes.
    pub attributes: Attributes,
    /// The values that it hands on, one row a sequence: a slot's name each, of an input and of an output.
    pub carried: &'static [&'static str],
}

/// A named place for variables.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// Its name, as `"x"`.
    pub name: &'static str,
    /// How many variables it takes.
    pub arity: Arity,
    /// Whether a gradient can pass: not for ids, labels and the like.
    pub gradient: bool,
    /// An output whose value on entry is read and changed in place: parameters under an update rule.
    pub updated: bool,
    /// An input of which only the shape and the LoD are looked at, never a number.
    pub shape_only: bool,
    /// Which storages the operator has kernels for at this slot.
    pub storages: &'static [StorageKind],
}

impl Slot {
    /// One variable.
    pub const fn one(name: &'static str) -> Self {
        Slot {
            name,
            arity: Arity::One,
            gradient: true,
            updated: false,
            shape_only: false,
            storages: &[StorageKind::Dense],
        }
    }

    /// One variable or none.
    pub const fn optional(name: &'static str) -> Self {
        Slot { arity: Arity::Optional, ..Self::one(name) }
    }

    /// One or more variables.
    pub const fn many(name: &'static str) -> Self {
        Slot { arity: Arity::Many, ..Self::one(name) }
    }

    /// None, one or more variables.
    pub const fn any(name: &'static str) -> Self {
        Slot { arity: Arity::Any, ..Self::one(name) }
    }

    /// The same, and no gradient passes it.
    #[must_use]
    pub const fn without_gradient(self) -> Self {
        Slot { gradient: false, ..self }
    }

    /// The same output, changed in place.
    #[must_use]
    pub const fn updated(self) -> Self {
        Slot { updated: true, ..self }
    }

    /// The same input, of which no number is read: it may be bound before it was computed.
    #[must_use]
    pub const fn shape_only(self) -> Self {
        Slot { shape_only: true, ..self }
    }

    /// The same for these storages.
    #[must_use]
    pub const fn storages(self, storages: &'static [StorageKind]) -> Self {
        Slot { storages, ..self }
    }
}

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
    /// Every batched output has the LoD of this input slot, the same `Arc`; if a constant is bound there, that of the
    /// first slot behind it that has rows.
    Keeps(usize),
    /// Every output has the LoD of this input slot without its last level.
    DropsLevel(usize),
    /// Makes new offsets from the inputs' offsets, with [`InferShape::new_level`].
    Replaces,
    /// Makes new offsets from the numbers in these input slots, with [`InferShape::level_from_data`] and
    /// [`Op::levels`]. In a step block no memory may reach them: the rows of every step are counted before the first.
    FromData(&'static [usize]),
    /// No output has a LoD.
    Drops,
}

/// What the compiler may assume of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// What a row of the result depends on: row- and sequence-wise operators may leave a step loop.
    pub reach: Reach,
    /// What it does to the LoD.
    pub lod: LodEffect,
    /// Draws random numbers, from [`Forward::uniform`] and nowhere else.
    pub random: bool,
    /// A row's bits depend on the batch (batch norm and the like): exempt from that test.
    pub batch_dependent: bool,
    /// [`Op::prepare`] does something.
    pub prepares: bool,
    /// Its gradients share no work, as those of a product: each may be computed in a call of its own, at another time.
    pub apart: bool,
    /// [`Op::backward`] can compute the outputs in the same call, where [`Backward::result`] asks for them.
    pub joins: bool,
}

impl Facts {
    /// Row-wise, keeping the LoD of the first input slot.
    pub const fn row_wise() -> Self {
        Facts {
            reach: Reach::Row,
            lod: LodEffect::Keeps(0),
            random: false,
            batch_dependent: false,
            prepares: false,
            apart: false,
            joins: false,
        }
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

/// A set of slots whose forward values `backward` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    inputs: u32,
    outputs: u32,
}

impl Needs {
    /// Nothing but the outputs' gradients.
    pub const fn nothing() -> Self {
        Needs { inputs: 0, outputs: 0 }
    }

    /// All inputs and outputs.
    pub const fn everything() -> Self {
        Needs { inputs: u32::MAX, outputs: u32::MAX }
    }

    /// Adds an input slot.
    #[must_use]
    pub const fn input(self, slot: usize) -> Self {
        Needs { inputs: self.inputs | 1 << slot, ..self }
    }

    /// Adds an output slot.
    #[must_use]
    pub const fn output(self, slot: usize) -> Self {
        Needs { outputs: self.outputs | 1 << slot, ..self }
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Needs) -> Self {
        Needs { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }

    /// Whether an input slot is among them.
    pub const fn has_input(self, slot: usize) -> bool {
        self.inputs & (1 << slot) != 0
    }

    /// Whether an output slot is among them.
    pub const fn has_output(self, slot: usize) -> bool {
        self.outputs & (1 << slot) != 0
    }
}
