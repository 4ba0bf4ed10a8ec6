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
    /// The rows of all steps at once.
    All,
    /// One row, or one sub-sequence, for each sequence.
    Sequences,
    /// The rows of one step after another, before the loop. The inputs of an operator that makes a level must be known for all
    /// steps before the first.
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
    /// The number of the call's prepared state; `None` if the operator prepares nothing.
    pub(crate) prepared: Option<usize>,
    pub(crate) constants: Vec<Range<usize>>,
    /// Whether the operator divides its columns over threads.
    pub(crate) divides_columns: bool,
    pub(crate) wanted: Vec<bool>,
    /// The writes whose very small numbers are set to zero after the call: values that pass from step to step.
    pub(crate) flush: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) span: LoopRows,
    /// For a call of the root block on rows in step-major order: the step block whose loop gives this order, and the extent that
    /// counts the rows in that block; else `None`.
    pub(crate) order: Option<(BlockId, Extent)>,
    pub(crate) desc: OpId,
    /// The reason why the call runs before, in or after the loop of its step block.
    pub(crate) why: Option<TimingReason>,
    /// The note about the operators that this operator replaces; `None` if it replaces none.
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

    /// The levels of the input with the most levels, on whose sequences a sequence-wise call works: the last level, and the
    /// levels above it. `None` if no input has a LoD.
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
    /// The estimated effort in a batch of `rows` rows, over all steps of a loop.
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

    /// The rows of a step block on which the instruction runs.
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
    /// Whether calls in the loop read the previous value.
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
    /// Whether a step writes the gradient that it passes to the step before it, or adds to that gradient; `None` if it passes no
    /// gradient.
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
    /// The number of the inner level above this level; `None` if this level has one sequence per entry (of a static input: per
    /// sequence of the loop).
    pub(crate) above: Option<usize>,
    pub(crate) statics: bool,
}

/// A level that an operator of a step block makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeLevel {
    pub(crate) level: LevelId,
    /// The number of the frame's level above this level; `None` if this level has one sequence per entry.
    pub(crate) above: Option<usize>,
    /// Whether the rows of all steps have a LoD: not if a level above this level is static, since a static level has the same
    /// rows at every step.
    pub(crate) over_all: bool,
}

/// A step loop, forward or backward.
pub(crate) struct Loop {
    pub(crate) desc: StepDesc,
    pub(crate) place: Place,
    /// The reason why this loop runs before, in or after the loop around it.
    pub(crate) why: Option<TimingReason>,
    /// The loop's number in the plan, smaller than the numbers of its instructions.
    pub(crate) index: usize,
    pub(crate) backward: bool,
    pub(crate) span: LoopRows,
    /// Moves of rows from the order of the batch into the order of the block, before any call.
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
    /// The chains: calls that run chunk by chunk.
    pub(crate) chains: Chains,
    /// The memories whose previous values are also written to one array, since instructions outside the loop read that array:
    /// after a forward loop, which computes the values; before and after a backward loop.
    pub(crate) spread: Vec<usize>,
    /// Moves of rows from the order of the block back to the order of the batch.
    pub(crate) scatter: Vec<Move>,
    pub(crate) scatter_statics: Vec<Move>,
    /// The values that the loop passes to a step of the loop around it. Their very small numbers are set to zero after the loop.
    pub(crate) flush: Vec<Ref>,
    /// The slots whose rows are in an order of this block: step-major, or by rank.
    pub(crate) slots: Vec<usize>,
    /// Whether lanes may run the loop, each for its own sequences: every row belongs to one lane, and no gradient is added across
    /// sequences.
    pub(crate) in_lanes: bool,
    /// The bytes of the constants (weights) that the calls in the loop prepare.
    pub(crate) weights: usize,
    /// The levels that operators of the forward block make.
    pub(crate) levels: Vec<MadeLevel>,
    /// The levels of step inputs and static inputs.
    pub(crate) inner: Vec<InnerLevel>,
    /// The block that holds the forward loop.
    pub(crate) parent: BlockId,
    /// The extent that counts the loop's sequences in the block around the loop.
    pub(crate) sequences: Extent,
    /// Whether an operator in the loop draws random numbers.
    pub(crate) random: bool,
}

/// The chains of the instructions before, in and after a loop.
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
    /// Whether another operator computes the same result in a run that computes gradients.
    pub(crate) superseded: bool,
    /// Whether fusion made the operator. A backward operator made by fusion also computes the results of forward operators.
    pub(crate) joint: bool,
}

/// For each variable that is columns of another variable: the other variable, which is no view itself, and the first column in
/// it.
pub(crate) type Views = HashMap<VarId, (VarId, usize)>;

/// A compiled program.
pub(crate) struct Plan {
    pub(crate) slots: Vec<Slot>,
    pub(crate) code: Vec<Instr>,
    /// The chains: calls that run chunk by chunk.
    pub(crate) chains: Vec<Chain>,
    /// The slot of each variable whose rows are in the order of the batch; `None` for all other variables.
    pub(crate) of_var: Vec<Option<usize>>,
    pub(crate) buffers: Vec<DType>,
    /// The storage of each value in the pool, which has the values that are not dense.
    pub(crate) pools: Vec<StorageKind>,
    pub(crate) prepared: usize,
    /// The number of instructions, including the instructions of loops.
    pub(crate) instructions: usize,
    /// The blocks whose frames provide row keys for instructions outside the block.
    pub(crate) keyed: Vec<BlockId>,
    /// The slots of the losses.
    pub(crate) losses: Vec<usize>,
    /// Variables of step blocks that are columns of another variable.
    pub(crate) views: Views,
    /// The gradients that equal another gradient, each with the other gradient.
    pub(crate) same: Vec<(VarId, VarId)>,
    /// The compiled program: the given program, with some operators fused or merged.
    pub(crate) program: Program,
    /// Operators that could have been fused, with the reasons why they are not.
    pub(crate) refused: Vec<String>,
}
