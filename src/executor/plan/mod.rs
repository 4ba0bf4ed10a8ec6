//! A compiled program: names have become slot numbers, and every slot has a buffer.

mod chain;
mod effort;
mod slot;
mod why;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use chain::{Chain, parts};
pub(crate) use effort::Effort;
pub(crate) use slot::{Access, Home, Ref, Slot};
pub(crate) use why::{Pin, TimingReason};

use crate::error::{Error, Place};
use crate::kernels::Assign;
use crate::operator::context::{OperandPosition, Wiring};
use crate::operator::levels::MadeLevelIds;
use crate::operator::{BlockId, Extent, LevelId, Literal, Op, Pass, Reach, Spec, VarId};
use crate::program::{Program, Role, StepDesc};
use crate::tensor::{DType, StorageKind};

/// An operator of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OpId {
    pub(crate) block: BlockId,
    /// Its number there.
    pub(crate) number: usize,
}

/// Over which rows of a step block an instruction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopRows {
    /// All steps at once.
    All,
    /// Once for each sequence.
    Sequences,
    /// One step after the other, before the loop: what a level is made from must be known for all of them.
    Steps,
}

/// One call of an operator.
pub(crate) struct OpInstr {
    pub(crate) op: Arc<dyn Op>,
    pub(crate) place: Place,
    /// The kind and the pass of the operator in the program that was compiled.
    pub(crate) named: (String, Pass),
    /// The name of the variable in each input slot that has one variable.
    pub(crate) names: Vec<(&'static str, String)>,
    pub(crate) pass: Pass,
    pub(crate) role: Role,
    pub(crate) reach: Reach,
    pub(crate) wiring: Wiring,
    pub(crate) reads: Vec<Ref>,
    pub(crate) writes: Vec<Ref>,
    pub(crate) inputs: Vec<Vec<Spec>>,
    /// The literals of each input slot.
    pub(crate) literals: Vec<Vec<Literal>>,
    pub(crate) outputs: Vec<Vec<Spec>>,
    /// Levels that the operator makes, where it is called for their offsets.
    pub(crate) made: Vec<MadeLevelIds>,
    /// The block's count of top-level sequences.
    pub(crate) top: Extent,
    pub(crate) stream: u64,
    pub(crate) random: bool,
    /// Its place among the prepared states, if it prepares; the reads that are constant, by input slot.
    pub(crate) prepared: Option<usize>,
    pub(crate) constants: Vec<Range<usize>>,
    /// It divides columns over the threads that it is given.
    pub(crate) divides_columns: bool,
    pub(crate) wanted: Vec<bool>,
    /// Which of the writes are flushed after the call: what passes from step to step.
    pub(crate) flush: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) span: LoopRows,
    /// The block whose order its rows lie in, and what counts them there.
    pub(crate) order: Option<(BlockId, Extent)>,
    pub(crate) desc: OpId,
    /// Why it runs before, in or after the loop of its step block.
    pub(crate) why: Option<TimingReason>,
    /// What it stands for, if for several.
    pub(crate) stands_for: Option<Note>,
    /// Its number in the plan.
    pub(crate) index: usize,
}

impl OpInstr {
    /// An error of this call with its place.
    pub(crate) fn err(&self, error: Error) -> Error {
        let name = |slot: &str| {
            let named = |(known, _): &&(&str, String)| *known == slot;
            self.names.iter().find(named).map(|(_, name)| name.as_str())
        };
        error.renamed(name).at(self.place.clone())
    }

    /// Of a sequence-wise call the levels of what delimits its sequences, its deepest input: the last one, and those above it.
    pub(crate) fn sequences(&self) -> Option<(LevelId, &[LevelId])> {
        let lods = self.inputs.iter().flatten().map(|spec| &spec.lod);
        let (last, above) = lods.rev().max_by_key(|lod| lod.len())?.split_last()?;
        Some((*last, above))
    }

    /// Whether it reads or writes anything that is not dense.
    pub(crate) fn selects(&self) -> bool {
        let wiring = &self.wiring;
        let places = wiring.inputs.iter().chain(&wiring.outputs).chain(&wiring.output_gradients);
        let places = places.chain(&wiring.results).flatten();
        let gradients = wiring.input_gradients.iter().flatten().map(|(place, _)| place);
        places.chain(gradients).any(|place| matches!(place, OperandPosition::Pooled(_)))
    }
}

/// An instruction.
pub(crate) enum Instr {
    /// A call.
    Op(Box<OpInstr>),
    /// Offsets of levels that an operator makes, before its call.
    Levels(Box<OpInstr>),
    /// A step loop.
    Loop(Box<Loop>),
    /// Begins a gradient that a loop adds to: with zeros, or, of selected rows, with none. The second field is the
    /// instruction's number in the plan.
    Zero(Ref, usize),
    /// From the order of a block's rank table to that of the batch.
    Reorder {
        from: Ref,
        to: Ref,
        block: BlockId,
        /// What counts the rows inside the block.
        rows: Extent,
        role: Role,
        index: usize,
    },
}

impl Instr {
    /// About how much it computes in a batch of so many rows, in all steps if it is a loop.
    pub(crate) fn effort(&self, rows: usize) -> usize {
        match self {
            Instr::Op(op) => op.effort.row.saturating_mul(op.effort.rows.known().unwrap_or(rows)),
            Instr::Loop(inner) => {
                let code = inner.before.iter().chain(&inner.body).chain(&inner.after);
                code.map(|instr| instr.effort(rows)).fold(0, usize::saturating_add)
            }
            Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => 0,
        }
    }

    /// Over which rows of a step block it runs.
    pub(crate) fn span(&self) -> LoopRows {
        match self {
            Instr::Op(op) | Instr::Levels(op) => op.span,
            Instr::Loop(inner) => inner.span,
            Instr::Zero(..) | Instr::Reorder { .. } => LoopRows::All,
        }
    }
}

/// Rows that are moved between the order of the batch and a step block's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) outer: Ref,
    pub(crate) inner: Ref,
    pub(crate) assign: Assign,
}

/// A memory of a forward loop.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPlan {
    pub(crate) next: Ref,
    /// Slot of the first step's previous value.
    pub(crate) start: Ref,
    /// Whether this loop reads previous values at all.
    pub(crate) read: bool,
    pub(crate) initial: Option<Ref>,
    pub(crate) last: Option<Ref>,
    /// The previous values of all steps as one array, where an instruction outside the loop reads them.
    pub(crate) all: Option<Ref>,
}

/// A memory of a backward loop.
#[derive(Debug, Clone)]
pub(crate) struct MemoryGradientPlan {
    pub(crate) memory: usize,
    pub(crate) next: Ref,
    /// Slot of the gradient that the first step passes back.
    pub(crate) start: Ref,
    /// Whether a step writes what it passes back, or adds to what is there.
    pub(crate) passes: Option<Assign>,
    /// Whether the next value's gradient holds anything before the loop.
    pub(crate) filled: bool,
    pub(crate) last: Option<Ref>,
    pub(crate) initial: Option<(Ref, Assign)>,
}

/// A level inside a step block, made from one around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerLevel {
    pub(crate) outer: LevelId,
    pub(crate) inner: LevelId,
    /// Which inner level is above it; none if it delimits the entries (or, of a static input, the sequences).
    pub(crate) above: Option<usize>,
    pub(crate) statics: bool,
}

/// A level that an operator of a step block makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeLevel {
    pub(crate) level: LevelId,
    /// Which of the frame's levels is above it; none if it delimits the entries.
    pub(crate) above: Option<usize>,
    /// The rows of all steps have a LoD: nothing above it is static, and so the same at every step.
    pub(crate) over_all: bool,
}

/// A step loop, forward or backward.
pub(crate) struct Loop {
    pub(crate) desc: StepDesc,
    pub(crate) place: Place,
    /// Why it runs before, in or after the loop around it.
    pub(crate) why: Option<TimingReason>,
    /// Its number in the plan, before those of its instructions.
    pub(crate) index: usize,
    pub(crate) backward: bool,
    pub(crate) span: LoopRows,
    /// Into the block's order, before anything runs.
    pub(crate) gather: Vec<Move>,
    /// Static inputs: one row or sub-sequence a sequence.
    pub(crate) statics: Vec<Move>,
    pub(crate) memories: Vec<MemoryPlan>,
    pub(crate) gradients: Vec<MemoryGradientPlan>,
    /// Set to zero before the loop: gradients of static inputs, and of constants of the block that steps add to.
    pub(crate) zero: Vec<Ref>,
    pub(crate) before: Vec<Instr>,
    pub(crate) body: Vec<Instr>,
    pub(crate) after: Vec<Instr>,
    /// Which of these run chunk by chunk.
    pub(crate) chains: Chains,
    /// Memories whose previous values instructions outside the loop read as one array: behind a forward loop, which computes
    /// them; before and behind a backward one.
    pub(crate) spread: Vec<usize>,
    /// Back to the order of the batch.
    pub(crate) scatter: Vec<Move>,
    pub(crate) scatter_statics: Vec<Move>,
    /// Flushed after the loop: what it hands to a step of the loop around it.
    pub(crate) flush: Vec<Ref>,
    /// Slots that live in this block's orders.
    pub(crate) slots: Vec<usize>,
    /// Lanes may run the loop, each for its own sequences: every row belongs to one of them, and no gradient is added across
    /// sequences.
    pub(crate) in_lanes: bool,
    /// Bytes of constants that calls of every step prepare: weights.
    pub(crate) weights: usize,
    /// Levels that operators of the forward block make.
    pub(crate) levels: Vec<MadeLevel>,
    /// Levels of step inputs and static inputs.
    pub(crate) inner: Vec<InnerLevel>,
    /// The block that holds the forward loop.
    pub(crate) parent: BlockId,
    /// What counts the sequences, outside.
    pub(crate) sequences: Extent,
    /// Some operator in it draws random numbers.
    pub(crate) random: bool,
}

/// The chains of the instructions before a loop, in it and after it.
#[derive(Default)]
pub(crate) struct Chains {
    pub(crate) before: Vec<Chain>,
    pub(crate) body: Vec<Chain>,
    pub(crate) after: Vec<Chain>,
}

/// What is to be said of an operator that several became.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) text: String,
    /// Another operator computes the same in a run that computes gradients.
    pub(crate) superseded: bool,
    /// It is a backward operator that also computes what forward operators do.
    pub(crate) joint: bool,
}

/// Variables that are columns of another one: that one, which is no such variable itself, and the first column there.
pub(crate) type Views = HashMap<VarId, (VarId, usize)>;

/// A compiled program.
pub(crate) struct Plan {
    pub(crate) slots: Vec<Slot>,
    pub(crate) code: Vec<Instr>,
    /// Which of the instructions run chunk by chunk.
    pub(crate) chains: Vec<Chain>,
    /// Which slot holds a variable in the order of the batch.
    pub(crate) of_var: Vec<Option<usize>>,
    pub(crate) buffers: Vec<DType>,
    /// The storages of what is not dense, by number in the pool.
    pub(crate) pools: Vec<StorageKind>,
    pub(crate) prepared: usize,
    /// How many instructions there are, those of loops included.
    pub(crate) instructions: usize,
    /// Blocks whose frames know the keys of their rows for instructions outside.
    pub(crate) keyed: Vec<BlockId>,
    /// The slots of what is minimised.
    pub(crate) losses: Vec<usize>,
    /// Variables of step blocks that are columns of another one.
    pub(crate) views: Views,
    /// Gradients that are another one, with that one.
    pub(crate) same: Vec<(VarId, VarId)>,
    /// What was compiled: the program that was given, with some operators fused or merged.
    pub(crate) program: Program,
    /// Operators that could have been fused, and why they are not.
    pub(crate) refused: Vec<String>,
}
