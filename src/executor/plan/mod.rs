//! A compiled program: slot numbers replace names, and every slot has a buffer.

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
    /// The operator's number in the block.
    pub(crate) number: usize,
}

/// The rows of a step block on which an instruction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopRows {
    /// All steps at once.
    All,
    /// Once for each sequence.
    Sequences,
    /// One step after another, before the loop: the inputs of a made level must be known for all steps.
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
    /// The levels that the operator makes, if this call computes their offsets.
    pub(crate) made: Vec<MadeLevelIds>,
    /// The extent that counts the block's top-level sequences.
    pub(crate) top: Extent,
    pub(crate) stream: u64,
    pub(crate) random: bool,
    /// Its number among the prepared states, if it prepares.
    pub(crate) prepared: Option<usize>,
    pub(crate) constants: Vec<Range<usize>>,
    /// It divides columns over its threads.
    pub(crate) divides_columns: bool,
    pub(crate) wanted: Vec<bool>,
    /// The writes that are flushed after the call: values that pass from step to step.
    pub(crate) flush: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) span: LoopRows,
    /// The block in whose order its rows are, and the extent that counts them there.
    pub(crate) order: Option<(BlockId, Extent)>,
    pub(crate) desc: OpId,
    /// The reason why it runs before, in or after the loop of its step block.
    pub(crate) why: Option<TimingReason>,
    /// The operators that it replaces, if there are several.
    pub(crate) stands_for: Option<Note>,
    /// The instruction's number in the plan.
    pub(crate) index: usize,
}

impl OpInstr {
    /// Adds the position of this call to an error.
    pub(crate) fn err(&self, error: Error) -> Error {
        let name = |slot: &str| {
            let named = |(known, _): &&(&str, String)| *known == slot;
            self.names.iter().find(named).map(|(_, name)| name.as_str())
        };
        error.renamed(name).at(self.place.clone())
    }

    /// The levels that delimit the sequences of a sequence-wise call, by its deepest input: the last level, and the levels
    /// above it.
    pub(crate) fn sequences(&self) -> Option<(LevelId, &[LevelId])> {
        let lods = self.inputs.iter().flatten().map(|spec| &spec.lod);
        let (last, above) = lods.rev().max_by_key(|lod| lod.len())?.split_last()?;
        Some((*last, above))
    }

    /// Returns whether the call reads or writes a value that is not dense.
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
    /// The call that computes the offsets of the levels that an operator makes, before the operator's call.
    Levels(Box<OpInstr>),
    /// A step loop.
    Loop(Box<Loop>),
    /// Starts a gradient that a loop adds to: with zeros, or, for selected rows, with no rows. The second field is the
    /// instruction's number in the plan.
    Zero(Ref, usize),
    /// Moves rows from the order of a block's rank table to the order of the batch.
    Reorder {
        from: Ref,
        to: Ref,
        block: BlockId,
        /// The extent that counts the rows inside the block.
        rows: Extent,
        role: Role,
        index: usize,
    },
}

impl Instr {
    /// The estimated effort in a batch of `rows` rows, over all steps if it is a loop.
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

    /// The rows of a step block on which it runs.
    pub(crate) fn span(&self) -> LoopRows {
        match self {
            Instr::Op(op) | Instr::Levels(op) => op.span,
            Instr::Loop(inner) => inner.span,
            Instr::Zero(..) | Instr::Reorder { .. } => LoopRows::All,
        }
    }
}

/// Rows that are moved between the order of the batch and the order of a step block.
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
    /// The slot of the first step's previous value.
    pub(crate) start: Ref,
    /// Whether the loop reads previous values at all.
    pub(crate) read: bool,
    pub(crate) initial: Option<Ref>,
    pub(crate) last: Option<Ref>,
    /// The previous values of all steps as one array, if an instruction outside the loop reads them.
    pub(crate) all: Option<Ref>,
}

/// A memory of a backward loop.
#[derive(Debug, Clone)]
pub(crate) struct MemoryGradientPlan {
    pub(crate) memory: usize,
    pub(crate) next: Ref,
    /// The slot of the gradient that the first step passes back.
    pub(crate) start: Ref,
    /// Whether a step writes the gradient that it passes back, or adds to it; `None` if it passes nothing.
    pub(crate) passes: Option<Assign>,
    /// Whether the next value's gradient holds a contribution before the loop.
    pub(crate) filled: bool,
    pub(crate) last: Option<Ref>,
    pub(crate) initial: Option<(Ref, Assign)>,
}

/// A level inside a step block, made from a level around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerLevel {
    pub(crate) outer: LevelId,
    pub(crate) inner: LevelId,
    /// The inner level above it; `None` if it delimits the entries (or, for a static input, the sequences).
    pub(crate) above: Option<usize>,
    pub(crate) statics: bool,
}

/// A level that an operator of a step block makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeLevel {
    pub(crate) level: LevelId,
    /// The frame's level above it; `None` if it delimits the entries.
    pub(crate) above: Option<usize>,
    /// The rows of all steps have a LoD: no level above it is static, and so the same at every step.
    pub(crate) over_all: bool,
}

/// A step loop, forward or backward.
pub(crate) struct Loop {
    pub(crate) desc: StepDesc,
    pub(crate) place: Place,
    /// The reason why it runs before, in or after the loop around it.
    pub(crate) why: Option<TimingReason>,
    /// Its number in the plan, smaller than the numbers of its instructions.
    pub(crate) index: usize,
    pub(crate) backward: bool,
    pub(crate) span: LoopRows,
    /// Rows moved into the block's order, before any call.
    pub(crate) gather: Vec<Move>,
    /// Static inputs: one row or one sub-sequence per sequence.
    pub(crate) statics: Vec<Move>,
    pub(crate) memories: Vec<MemoryPlan>,
    pub(crate) gradients: Vec<MemoryGradientPlan>,
    /// Gradients set to zero before the loop: of static inputs, and of constants of the block that steps add to.
    pub(crate) zero: Vec<Ref>,
    pub(crate) before: Vec<Instr>,
    pub(crate) body: Vec<Instr>,
    pub(crate) after: Vec<Instr>,
    /// The instructions that run chunk by chunk.
    pub(crate) chains: Chains,
    /// Memories whose previous values instructions outside the loop read as one array: after a forward loop, which computes
    /// them; before and after a backward loop.
    pub(crate) spread: Vec<usize>,
    /// Rows moved back to the order of the batch.
    pub(crate) scatter: Vec<Move>,
    pub(crate) scatter_statics: Vec<Move>,
    /// Values flushed after the loop, which it passes to a step of the loop around it.
    pub(crate) flush: Vec<Ref>,
    /// Slots in this block's orders.
    pub(crate) slots: Vec<usize>,
    /// Lanes may run the loop, each for its own sequences: every row belongs to one lane, and no gradient is added across
    /// sequences.
    pub(crate) in_lanes: bool,
    /// The bytes of constants that calls of every step prepare: weights.
    pub(crate) weights: usize,
    /// The levels that operators of the forward block make.
    pub(crate) levels: Vec<MadeLevel>,
    /// The levels of step inputs and static inputs.
    pub(crate) inner: Vec<InnerLevel>,
    /// The block that holds the forward loop.
    pub(crate) parent: BlockId,
    /// The extent that counts the sequences, outside.
    pub(crate) sequences: Extent,
    /// An operator in the loop draws random numbers.
    pub(crate) random: bool,
}

/// The chains of the instructions before a loop, in it and after it.
#[derive(Default)]
pub(crate) struct Chains {
    pub(crate) before: Vec<Chain>,
    pub(crate) body: Vec<Chain>,
    pub(crate) after: Vec<Chain>,
}

/// The note about an operator that replaces several operators.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) text: String,
    /// Another operator computes the same result in a run that computes gradients.
    pub(crate) superseded: bool,
    /// It is a backward operator that also computes the results of forward operators.
    pub(crate) joint: bool,
}

/// Variables that are columns of another variable: that variable, which is no view itself, and the first column in it.
pub(crate) type Views = HashMap<VarId, (VarId, usize)>;

/// A compiled program.
pub(crate) struct Plan {
    pub(crate) slots: Vec<Slot>,
    pub(crate) code: Vec<Instr>,
    /// The instructions that run chunk by chunk.
    pub(crate) chains: Vec<Chain>,
    /// The slot of each variable in the order of the batch.
    pub(crate) of_var: Vec<Option<usize>>,
    pub(crate) buffers: Vec<DType>,
    /// The storages of values that are not dense, by number in the pool.
    pub(crate) pools: Vec<StorageKind>,
    pub(crate) prepared: usize,
    /// The number of instructions, with the instructions of loops.
    pub(crate) instructions: usize,
    /// Blocks whose frames provide row keys for instructions outside.
    pub(crate) keyed: Vec<BlockId>,
    /// The slots of the losses.
    pub(crate) losses: Vec<usize>,
    /// Variables of step blocks that are columns of another variable.
    pub(crate) views: Views,
    /// Gradients that equal another gradient, with that gradient.
    pub(crate) same: Vec<(VarId, VarId)>,
    /// The compiled program: the given program, with some operators fused or merged.
    pub(crate) program: Program,
    /// Operators that could have been fused, with the reasons why they are not.
    pub(crate) refused: Vec<String>,
}
