//! The plan: a compiled program as plain data, in which slots replace variables and every dense slot has a buffer.

mod chain;
mod effort;
mod needs;
mod slot;
mod why;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use chain::{Chain, parts};
pub(crate) use effort::Effort;
pub(crate) use needs::{BufferNeed, CallNeed, EntryTerm, Growth, LevelBound, Needs, PoolNeed, Quantity};
pub(crate) use slot::{Access, Home, Ref, Slot};
pub(crate) use why::{Pin, TimingReason};

use crate::error::{Error, Place};
use crate::kernels::Assign;
use crate::operator::context::{OperandPosition, Wiring};
use crate::operator::levels::MadeLevelIds;
use crate::operator::{
    BlockId, CallSlot, Extent, LevelId, Literal, MatrixUnit, Op, Pass, Reach, Spec, VarId,
};
use crate::program::{Program, Role, StepDesc};
use crate::tensor::{DType, StorageKind};

/// The identity of an operator: its block and its number in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OpId {
    pub(crate) block: BlockId,
    /// The number of the operator in its block, counted from 0.
    pub(crate) number: usize,
}

/// The rows of a step block on which an instruction runs at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopRows {
    /// The instruction runs once, on the rows of all steps.
    All,
    /// The instruction runs once, on one row or one sub-sequence per sequence.
    Sequences,
    /// The instruction runs step by step before the loop, on the rows of one step at a time. The inputs of an operator
    /// that makes a level are computed in this way, since the offsets of all steps must be known before the first step
    /// of the loop.
    Steps,
}

pub(crate) struct OpInstr {
    pub(crate) op: Arc<dyn Op>,
    pub(crate) place: Place,
    /// The kind and the pass of the operator in the program that was compiled.
    pub(crate) named: (String, Pass),
    /// For each input slot with exactly one variable, the name of the variable.
    pub(crate) names: Vec<(&'static str, String)>,
    pub(crate) pass: Pass,
    pub(crate) role: Role,
    pub(crate) reach: Reach,
    pub(crate) wiring: Wiring,
    pub(crate) reads: Vec<Ref>,
    pub(crate) writes: Vec<Ref>,
    pub(crate) inputs: Vec<Vec<Spec>>,
    /// The literals (constant arguments) of each input slot.
    pub(crate) literals: Vec<Vec<Literal>>,
    pub(crate) outputs: Vec<Vec<Spec>>,
    /// The levels whose offsets this call computes; empty for every other call.
    pub(crate) made: Vec<MadeLevelIds>,
    /// The extent that counts the top-level sequences of the call's block.
    pub(crate) top: Extent,
    pub(crate) stream: u64,
    pub(crate) random: bool,
    /// The number of the store for the state that the call prepares (such as packed weights); `None` if the operator prepares
    /// nothing.
    pub(crate) prepared: Option<usize>,
    pub(crate) constants: Vec<Range<usize>>,
    /// Whether threads may divide the call by columns.
    pub(crate) divides_columns: bool,
    pub(crate) wanted: Vec<bool>,
    /// The results that pass from step to step: after the call, their very small numbers are set to zero.
    pub(crate) flush: Vec<usize>,
    pub(crate) effort: Effort,
    pub(crate) span: LoopRows,
    /// For a call of the root block on rows in step-major order: the step block whose loop gives this order, and the extent
    /// that counts the rows in that block. `None` for every other call.
    pub(crate) order: Option<(BlockId, Extent)>,
    pub(crate) desc: OpId,
    /// The reason why the call runs before, in or after the loop of its step block; `None` in the root block.
    pub(crate) why: Option<TimingReason>,
    /// The note about the operators that this call's operator replaces; `None` if it replaces none.
    pub(crate) stands_for: Option<Note>,
    /// The instruction's number in the plan.
    pub(crate) index: usize,
}

impl OpInstr {
    /// Adds the source position of this call to an error.
    pub(crate) fn err(&self, error: Error) -> Error {
        let name = |slot: &str| {
            let named = |(known, _): &&(&str, String)| *known == slot;
            self.names.iter().find(named).map(|(_, name)| name.as_str())
        };
        error.renamed(name).at(self.place.clone())
    }

    /// Returns the dtype in which the operator computes: bf16 for matrix products in bf16 by `unit`, i8 for products of 8-bit
    /// integers, else the dtype of its first float operand; `None` if it has no float operand.
    pub(crate) fn computes_in(&self, unit: MatrixUnit) -> Option<DType> {
        let hints = self.op.hints();
        if hints.multiplies_codes {
            return Some(DType::I8);
        }
        let mut dtypes = self.inputs.iter().chain(&self.outputs).flatten().map(|spec| spec.dtype);
        match dtypes.find(|dtype| dtype.is_float()) {
            Some(DType::F32) if unit != MatrixUnit::F32 && hints.multiplies => Some(DType::BF16),
            found => found,
        }
    }

    /// Returns the levels of sequences on which a sequence-wise call works, as the last level and the levels above it. The call
    /// works on the levels of the input with the most levels. `None` if no input has a LoD.
    pub(crate) fn sequences(&self) -> Option<(LevelId, &[LevelId])> {
        let lods = self.inputs.iter().flatten().map(|spec| &spec.lod);
        let (last, above) = lods.rev().max_by_key(|lod| lod.len())?.split_last()?;
        Some((*last, above))
    }

    /// Returns the inputs, and the outputs whose gradients, are stored as whole pairs of bf16 numbers.
    pub(crate) fn pairs(&self, slots: &[Slot]) -> Vec<CallSlot> {
        let whole = |position: &OperandPosition| {
            let &OperandPosition::Dense(at) = position else { return false };
            let Ref { access: Access::Slot(slot), width, column, .. } = self.reads[at] else { return false };
            slots[slot].dtype == DType::BF16 && (width | column | slots[slot].width).is_multiple_of(2)
        };
        let inputs = self.wiring.inputs.iter().enumerate().map(|(k, refs)| (CallSlot::Input(k), refs));
        let gradients =
            self.wiring.output_gradients.iter().enumerate().map(|(k, refs)| (CallSlot::Output(k), refs));
        let all = inputs.chain(gradients).filter(|(_, refs)| !refs.is_empty() && refs.iter().all(whole));
        all.map(|(slot, _)| slot).collect()
    }

    /// Returns whether the call reads or writes a value that is not dense, such as selected rows.
    pub(crate) fn selects(&self) -> bool {
        let wiring = &self.wiring;
        let places = wiring.inputs.iter().chain(&wiring.outputs).chain(&wiring.output_gradients);
        let places = places.chain(&wiring.results).flatten();
        let gradients = wiring.input_gradients.iter().flatten().map(|(position, _)| position);
        places.chain(gradients).any(|position| matches!(position, OperandPosition::Pooled(_)))
    }
}

pub(crate) enum Instr {
    Op(Box<OpInstr>),
    /// The call that computes the offsets of the levels that an operator makes; it runs before the call of the operator.
    Levels(Box<OpInstr>),
    /// A loop over the steps of a step block or of a gradient block.
    Loop(Box<Loop>),
    /// Sets the first value of a gradient to which a loop adds: zeros, or no rows for a gradient of selected rows. The
    /// second field of `Zero` is the number of the instruction in the plan.
    Zero(Ref, usize),
    /// Moves rows from a loop's step-major order into the batch's order.
    Reorder {
        from: Ref,
        to: Ref,
        block: BlockId,
        /// The extent that counts the rows in the step block.
        rows: Extent,
        role: Role,
        index: usize,
    },
}

impl Instr {
    /// Returns the estimated effort of the instruction in a batch of `rows` rows, summed over all steps of a loop.
    pub(crate) fn effort(&self, rows: usize) -> usize {
        match self {
            Instr::Op(op) => op.effort.of(op.effort.rows.known().unwrap_or(rows)),
            Instr::Loop(inner) => {
                let code = inner.before.iter().chain(&inner.body).chain(&inner.after);
                code.map(|instr| instr.effort(rows)).fold(0, usize::saturating_add)
            }
            Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => 0,
        }
    }

    /// Returns the rows of a step block on which the instruction runs.
    pub(crate) fn span(&self) -> LoopRows {
        match self {
            Instr::Op(op) | Instr::Levels(op) => op.span,
            Instr::Loop(inner) => inner.span,
            Instr::Zero(..) | Instr::Reorder { .. } => LoopRows::All,
        }
    }
}

/// A move of rows between the batch's order and the order of a step block, in either direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) outer: Ref,
    pub(crate) inner: Ref,
    pub(crate) assign: Assign,
}

/// A memory (state) of a forward loop: where its values are stored.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPlan {
    pub(crate) next: Ref,
    /// The slot that the first step reads as the memory's previous value.
    pub(crate) start: Ref,
    /// Whether calls in the loop read the memory's previous value.
    pub(crate) read: bool,
    pub(crate) initial: Option<Ref>,
    pub(crate) last: Option<Ref>,
    /// The array with the previous values of all steps, if an instruction outside the loop reads it; else `None`.
    pub(crate) all: Option<Ref>,
}

/// A memory (state) of a backward loop: where its gradients are stored.
#[derive(Debug, Clone)]
pub(crate) struct MemoryGradientPlan {
    pub(crate) memory: usize,
    pub(crate) next: Ref,
    /// The slot of the gradient that the first step passes to the memory's initial value.
    pub(crate) start: Ref,
    /// Whether a step writes or adds the gradient that it passes to the previous step; `None` if the memory passes no gradient.
    pub(crate) passes: Option<Assign>,
    /// Whether the gradient of the memory's next value already has a contribution before the loop.
    pub(crate) filled: bool,
    pub(crate) last: Option<Ref>,
    pub(crate) initial: Option<(Ref, Assign)>,
}

/// In a step block, a level of sequences that comes from a level outside the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerLevel {
    pub(crate) outer: LevelId,
    pub(crate) inner: LevelId,
    /// The index in `Loop::inner` of the level above this level. `None` for the top level, which has one sequence per entry
    /// (for a static input: one per sequence of the loop).
    pub(crate) above: Option<usize>,
    pub(crate) statics: bool,
}

/// A level that an operator of a step block makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeLevel {
    pub(crate) level: LevelId,
    /// The index of the level above this level, in the list of the inner levels and, after them, the made levels.
    /// `None` for a level with one sequence per entry.
    pub(crate) above: Option<usize>,
    /// Whether the rows of all steps together have a LoD with this level. The flag is false if a level above this level is
    /// static, because a static level has the same rows at every step.
    pub(crate) over_all: bool,
}

/// A recurrent loop over a step block (forward), or over its gradient block (backward).
pub(crate) struct Loop {
    pub(crate) desc: StepDesc,
    pub(crate) place: Place,
    /// The reason why this loop runs before, in or after an outer loop; `None` in the root block.
    pub(crate) why: Option<TimingReason>,
    /// The loop's instruction number in the plan; the instructions in the loop have higher numbers.
    pub(crate) index: usize,
    pub(crate) backward: bool,
    pub(crate) span: LoopRows,
    /// Moves of rows from the batch's order into the loop's order, before the first call.
    pub(crate) gather: Vec<Move>,
    /// Moves of the static inputs: one row or one sub-sequence per sequence.
    pub(crate) statics: Vec<Move>,
    pub(crate) memories: Vec<MemoryPlan>,
    pub(crate) gradients: Vec<MemoryGradientPlan>,
    /// The gradients that are set to zero before the loop: gradients of static inputs, and gradients of constants to which
    /// steps add.
    pub(crate) zero: Vec<Ref>,
    pub(crate) before: Vec<Instr>,
    pub(crate) body: Vec<Instr>,
    pub(crate) after: Vec<Instr>,
    /// The chains of the loop's instructions: groups of calls that run chunk by chunk.
    pub(crate) chains: Chains,
    /// The memories whose previous values are also copied into one array, because instructions outside the loop read
    /// this array. The values are copied after the steps, or before the steps if [`Self::spreads_first`] is true.
    pub(crate) spread: Vec<usize>,
    /// Moves of rows from the loop's order back into the batch's order.
    pub(crate) scatter: Vec<Move>,
    pub(crate) scatter_statics: Vec<Move>,
    /// The values that this loop passes to the next step of an outer loop. The very small numbers in `flush` are set to zero
    /// after the loop.
    pub(crate) flush: Vec<Ref>,
    /// The slots whose rows are in an order of this loop: step-major, or by the rank of the sequence.
    pub(crate) slots: Vec<usize>,
    /// The slots among `slots` that hold values during the steps. During the steps, the buffer of any other slot may
    /// hold a value of one of these slots.
    pub(crate) in_steps: Vec<usize>,
    /// Whether lanes (threads that each run some of the sequences) may run the loop: every row belongs to one lane, and no
    /// gradient is summed across sequences.
    pub(crate) in_lanes: bool,
    /// The size in bytes of the constants (weights) that the calls in the loop pack.
    pub(crate) weights: usize,
    /// The levels of sequences that operators of the step block make.
    pub(crate) levels: Vec<MadeLevel>,
    /// The levels of sequences that come from step inputs and static inputs.
    pub(crate) inner: Vec<InnerLevel>,
    /// The block that contains the forward loop's operator.
    pub(crate) parent: BlockId,
    /// The extent that counts the loop's sequences in the block that contains the loop.
    pub(crate) sequences: Extent,
    /// Whether an operator in the loop draws random numbers.
    pub(crate) random: bool,
}

impl Loop {
    /// Returns whether the previous values of memories are copied into one array before the steps, because an
    /// instruction before the loop reads this array.
    pub(crate) fn spreads_first(&self) -> bool {
        let previous = |read: &Ref| matches!(read.access, Access::Previous { .. });
        let reads = |instr: &Instr| match instr {
            Instr::Op(op) | Instr::Levels(op) => op.reads.iter().any(previous),
            Instr::Loop(_) => true,
            Instr::Zero(..) | Instr::Reorder { .. } => false,
        };
        self.backward && self.before.iter().any(reads)
    }
}

/// The chains of the instructions before, in and after a loop, each list separately.
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
    /// Whether another operator computes this operator's result in a run that computes gradients.
    pub(crate) superseded: bool,
    /// Whether the operator was made by fusion. A backward operator made by fusion also computes the results of forward
    /// operators.
    pub(crate) joint: bool,
}

/// For each variable that is columns of another variable: that other variable (which is not itself a view), and the column at
/// which it begins.
pub(crate) type Views = HashMap<VarId, (VarId, usize)>;

/// A compiled program: the slots, the buffers and the instructions.
pub(crate) struct Plan {
    pub(crate) slots: Vec<Slot>,
    pub(crate) code: Vec<Instr>,
    /// The chains of the root block: groups of calls that run chunk by chunk.
    pub(crate) chains: Vec<Chain>,
    /// For each variable, its slot in the batch's order; `None` if the variable has no such slot.
    pub(crate) of_var: Vec<Option<usize>>,
    pub(crate) buffers: Vec<DType>,
    /// The storage of each value that is not dense, by pool number.
    pub(crate) pools: Vec<StorageKind>,
    /// The number of stores for prepared states.
    pub(crate) prepared: usize,
    /// The number of instructions, including the instructions in loops.
    pub(crate) instructions: usize,
    /// The memory that a run takes, as terms over the counts of its batch.
    pub(crate) needs: Needs,
    /// The step blocks whose frames must provide row keys (for random numbers) to instructions outside the block.
    pub(crate) keyed: Vec<BlockId>,
    /// The slots of the losses, which the executor checks before the updates.
    pub(crate) losses: Vec<usize>,
    /// Variables that are stored as columns of another variable.
    pub(crate) views: Views,
    /// Pairs of equal gradients: a gradient, and the gradient whose memory it shares.
    pub(crate) same: Vec<(VarId, VarId)>,
    /// The program after rewriting: the given program with some operators fused or merged.
    pub(crate) program: Program,
    /// The variables that can be fetched after a run.
    pub(crate) wanted: Vec<VarId>,
    /// Messages about operators that were not fused although they declare a fusion, each with the reason.
    pub(crate) refused: Vec<String>,
}
