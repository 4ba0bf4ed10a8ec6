//! A compiled program: names have become slot numbers, and every slot has a buffer.

use std::ops::Range;
use std::sync::Arc;

use super::chain::Chain;
use super::rewrite::Note;
use super::split::Why;
use super::views::Views;
use crate::error::{Error, Place};
use crate::kernels::Store;
use crate::program::contract::context::Wiring;
use crate::program::contract::levels::Made;
use crate::program::{
    BlockId, Extent, LevelId, Literal, Op, Pass, Program, Reach, Role, Spec, StepDesc, VarId,
};
use crate::tensor::DType;

/// How the rows of a slot lie in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In the order of the batch (or, for a constant, its own).
    Whole,
    /// The rows of all steps of a block, in step-major order.
    Stepped(BlockId),
    /// One row (or sub-sequence) for each sequence of a block, in rank order.
    Sequence(BlockId),
}

/// A variable's memory.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) var: VarId,
    pub(super) dtype: DType,
    pub(super) width: usize,
    pub(super) rows: Extent,
    pub(super) home: Home,
    pub(super) buffer: usize,
    /// The first and the last top-level instruction that touch it.
    pub(super) life: (usize, usize),
    /// Kept in the scope from run to run.
    pub(super) persistent: bool,
    /// Another slot, whose buffer it shares.
    pub(super) alias: Option<usize>,
    /// Selected rows: its number in the pool, instead of a buffer.
    pub(super) pool: Option<usize>,
}

/// What a view of a call refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Access {
    /// A slot.
    Slot(usize),
    /// A memory's value of the step before: the initial rows, or a part of the next value's slot.
    Previous { block: BlockId, memory: usize },
    /// The gradient that a step passes to the step before it.
    Passed { block: BlockId, memory: usize },
}

/// An access with its rows and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ref {
    pub(super) access: Access,
    pub(super) rows: Extent,
    pub(super) width: usize,
    /// The first column, where it is a part of the slot's.
    pub(super) column: usize,
}

/// Over which rows of a step block an instruction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// All steps at once.
    All,
    /// Once for each sequence.
    Sequences,
    /// One step after the other, before the loop: what a level is made from must be known for all of them.
    Steps,
}

/// One call of an operator.
pub(super) struct OpInstr {
    pub(super) op: Arc<dyn Op>,
    pub(super) place: Place,
    /// The name of the variable in each input slot that has one variable.
    pub(super) names: Vec<(&'static str, String)>,
    pub(super) pass: Pass,
    pub(super) role: Role,
    pub(super) reach: Reach,
    pub(super) wiring: Wiring,
    pub(super) reads: Vec<Ref>,
    pub(super) writes: Vec<Ref>,
    pub(super) inputs: Vec<Vec<Spec>>,
    /// The literals of each input slot.
    pub(super) literals: Vec<Vec<Literal>>,
    pub(super) outputs: Vec<Vec<Spec>>,
    /// Levels that the operator makes, where it is called for their offsets.
    pub(super) made: Vec<Made>,
    /// The block's count of top-level sequences.
    pub(super) top: Extent,
    pub(super) stream: u64,
    pub(super) random: bool,
    /// Its place among the prepared states, if it prepares; the reads that are constant, by input slot.
    pub(super) prepared: Option<usize>,
    pub(super) constants: Vec<Range<usize>>,
    pub(super) wanted: Vec<bool>,
    /// Flushed after the call: what passes from step to step.
    pub(super) flush: Vec<Ref>,
    pub(super) span: Span,
    /// The block whose order its rows lie in, and what counts them there.
    pub(super) order: Option<(BlockId, Extent)>,
    /// Its block and its number there.
    pub(super) desc: (BlockId, usize),
    /// Why it is in that part of a step block.
    pub(super) why: Option<Why>,
    /// What it stands for, if for several.
    pub(super) stands_for: Option<Note>,
    /// Its number in the plan: see [`Plan::number`].
    pub(super) index: usize,
}

impl OpInstr {
    /// An error of this call with its place.
    pub(super) fn err(&self, error: Error) -> Error {
        let name = |slot: &str| {
            let named = |(known, _): &&(&str, String)| *known == slot;
            self.names.iter().find(named).map(|(_, name)| name.as_str())
        };
        error.renamed(name).at(self.place.clone())
    }
}

/// An instruction.
pub(super) enum Instr {
    /// A call.
    Op(Box<OpInstr>),
    /// Offsets of levels that an operator makes, before its call.
    Levels(Box<OpInstr>),
    /// A step loop.
    Loop(Box<Loop>),
    /// Sets a gradient that a loop adds to: zero, or no rows. With its number in the plan.
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
    /// Over which rows of a step block it runs.
    pub(super) fn span(&self) -> Span {
        match self {
            Instr::Op(op) | Instr::Levels(op) => op.span,
            Instr::Loop(inner) => inner.span,
            Instr::Zero(..) | Instr::Reorder { .. } => Span::All,
        }
    }
}

/// Rows that are moved between the order of the batch and a step block's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub(super) outer: Ref,
    pub(super) inner: Ref,
    pub(super) store: Store,
}

/// A memory of a forward loop.
#[derive(Debug, Clone)]
pub(super) struct MemoryPlan {
    pub(super) next: Ref,
    /// Slot of the first step's previous value.
    pub(super) start: Ref,
    /// Whether this loop reads previous values at all.
    pub(super) read: bool,
    pub(super) initial: Option<Ref>,
    pub(super) last: Option<Ref>,
    /// The previous values of all steps as one array, where an instruction outside the loop reads them.
    pub(super) all: Option<Ref>,
}

/// A memory of a backward loop.
#[derive(Debug, Clone)]
pub(super) struct MemoryGradientPlan {
    pub(super) memory: usize,
    pub(super) next: Ref,
    /// Slot of the gradient that the first step passes back.
    pub(super) start: Ref,
    /// Whether a step writes what it passes back, or adds to what is there.
    pub(super) passes: Option<Store>,
    /// Whether the next value's gradient holds anything before the loop.
    pub(super) filled: bool,
    pub(super) last: Option<Ref>,
    pub(super) initial: Option<(Ref, Store)>,
}

/// A level inside a step block, made from one around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct InnerLevel {
    pub(super) outer: LevelId,
    pub(super) inner: LevelId,
    /// Which inner level is above it; none if it delimits the entries (or, of a static input, the sequences).
    pub(super) above: Option<usize>,
    pub(super) statics: bool,
}

/// A level that an operator of a step block makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MadeLevel {
    pub(super) level: LevelId,
    /// Which of the frame's levels is above it; none if it delimits the entries.
    pub(super) above: Option<usize>,
    /// The rows of all steps have a LoD: nothing above it is static, and so the same at every step.
    pub(super) over_all: bool,
}

/// A step loop, forward or backward.
pub(super) struct Loop {
    pub(super) desc: StepDesc,
    pub(super) place: Place,
    /// Why it is in its part of a step block around it.
    pub(super) why: Option<Why>,
    /// Its number in the plan, before those of its instructions: see [`Plan::number`].
    pub(super) index: usize,
    pub(super) backward: bool,
    pub(super) span: Span,
    /// Into the block's order, before anything runs.
    pub(super) gather: Vec<Move>,
    /// Static inputs: one row or sub-sequence a sequence.
    pub(super) statics: Vec<Move>,
    pub(super) memories: Vec<MemoryPlan>,
    pub(super) gradients: Vec<MemoryGradientPlan>,
    /// Set to zero before the loop: gradients of static inputs, and of constants of the block that steps add to.
    pub(super) zero: Vec<Ref>,
    pub(super) before: Vec<Instr>,
    pub(super) body: Vec<Instr>,
    pub(super) after: Vec<Instr>,
    /// Which of these run chunk by chunk.
    pub(super) chains: Chains,
    /// Memories whose previous values the instructions after the loop (in `before`: never) read as one array.
    pub(super) spread: Vec<usize>,
    /// Back to the order of the batch.
    pub(super) scatter: Vec<Move>,
    pub(super) scatter_statics: Vec<Move>,
    /// Flushed after the loop: what it hands to a step of the loop around it.
    pub(super) flush: Vec<Ref>,
    /// Slots that live in this block's orders.
    pub(super) slots: Vec<usize>,
    /// Every row belongs to one sequence and no gradient is added across them, so that lanes may split the loop.
    pub(super) splits: bool,
    /// Bytes of constants that calls of every step prepare: weights.
    pub(super) weights: usize,
    /// Levels that operators of the forward block make.
    pub(super) levels: Vec<MadeLevel>,
    /// Levels of step inputs and static inputs.
    pub(super) inner: Vec<InnerLevel>,
    /// The block that holds the forward loop.
    pub(super) parent: BlockId,
    /// What counts the sequences, outside.
    pub(super) sequences: Extent,
    /// Some operator in it draws random numbers.
    pub(super) random: bool,
}

/// The chains of each part of a loop.
#[derive(Default)]
pub(super) struct Chains {
    pub(super) before: Vec<Chain>,
    pub(super) body: Vec<Chain>,
    pub(super) after: Vec<Chain>,
}

/// A compiled program.
pub(super) struct Plan {
    pub(super) slots: Vec<Slot>,
    pub(super) code: Vec<Instr>,
    /// Which slot holds a variable in the order of the batch.
    pub(super) of_var: Vec<Option<usize>>,
    pub(super) buffers: Vec<DType>,
    pub(super) pools: usize,
    pub(super) prepared: usize,
    /// How many instructions there are, those of loops included.
    pub(super) instructions: usize,
    /// Blocks whose frames know the keys of their rows for instructions outside.
    pub(super) keyed: Vec<BlockId>,
    /// The slots of what is minimised.
    pub(super) losses: Vec<usize>,
    /// Variables of step blocks that are columns of another one.
    pub(super) views: Views,
    /// Gradients that are another one, with that one.
    pub(super) same: Vec<(VarId, VarId)>,
    /// What was compiled: the program that was given, with some operators fused or merged.
    pub(super) program: Program,
    /// Operators that could have been fused, and why they are not.
    pub(super) refused: Vec<String>,
}

impl Plan {
    /// Numbers all instructions in the order of the listing, which is that of the first calls, and returns how many
    /// there are.
    pub(super) fn number(&mut self) -> usize {
        fn all(code: &mut [Instr], next: &mut usize) {
            for instr in code {
                let index = *next;
                *next += 1;
                match instr {
                    Instr::Op(op) | Instr::Levels(op) => op.index = index,
                    Instr::Reorder { index: i, .. } | Instr::Zero(_, i) => *i = index,
                    Instr::Loop(inner) => {
                        inner.index = index;
                        [&mut inner.before, &mut inner.body, &mut inner.after]
                            .into_iter()
                            .for_each(|part| all(part, next));
                    }
                }
            }
        }
        let mut next = 0;
        all(&mut self.code, &mut next);
        next
    }
}
