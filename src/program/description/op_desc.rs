//! The description of an operator in a block.

use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, LevelId, VarId};
use crate::tensor::named::named;

/// The variables of one slot of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotVars {
    /// The slot's name.
    pub slot: String,
    /// Its variables; more than one only where the slot takes many.
    pub vars: Vec<VarId>,
}

/// One operator of a block: its kind by name, its variables by slot, its attributes by name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpDesc {
    /// The operator's kind in the registry; [`RECURRENT`](crate::program::RECURRENT) is the language's own.
    pub kind: String,
    /// The role of the operator: forward, backward or an update.
    pub role: Role,
    /// The variables that the operator reads.
    pub inputs: Vec<SlotVars>,
    /// The variables that the operator writes.
    pub outputs: Vec<SlotVars>,
    /// Its attributes.
    pub attributes: Attributes,
    /// The step block, for a [`RECURRENT`](crate::program::RECURRENT).
    pub step: Option<Box<StepDesc>>,
    /// The line of the user's code that appended it.
    pub caller: String,
}

/// The role of an operator in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Computes its outputs from its inputs.
    Forward,
    /// Computes gradients: it reads the forward operator's slots, `SLOT@grad` of its outputs, and writes `SLOT@grad`
    /// of its inputs.
    Backward,
    /// Runs after all gradients are known and checked: decay, clipping, update rules.
    Update,
    /// Makes the moves that rows of a parameter owe, before these rows are read: see [`Debt`](crate::operator::Debt).
    Settle,
}

named!(Role, "role", Forward = "forward", Backward = "backward", Update = "update", Settle = "settle");

/// A pair of variables: one of the block that holds the `recurrent`, one of its step block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VarPair {
    /// The outer variable.
    pub outer: VarId,
    /// The step block's.
    pub inner: VarId,
}

/// A memory of a step block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The value of the step before, read in the step.
    pub previous: VarId,
    /// The value that this step computes for the next step.
    pub next: VarId,
    /// The variable to start from (outer), one row per sequence; zero without it.
    pub initial: Option<VarId>,
    /// The value after the last step (outer), one row per sequence, if it is wanted.
    pub last: Option<VarId>,
}

/// The description of how a `recurrent` runs its step block. All outer variables are listed in the operator's slots too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepDesc {
    /// The step block.
    pub block: BlockId,
    /// The level whose sequences are run: the entries of a sequence are its steps.
    pub level: LevelId,
    /// Each sequence runs from its own end.
    pub reverse: bool,
    /// Step inputs: the entry of each sequence at this step.
    pub inputs: Vec<VarPair>,
    /// Static inputs: one row, or one sub-sequence, per sequence, the same at every step.
    pub statics: Vec<VarPair>,
    /// The memories.
    pub memories: Vec<Memory>,
    /// Values of every step that are wanted outside the block.
    pub outputs: Vec<VarPair>,
    /// Deeper levels of the step inputs: (outer level, level of one step's entries).
    pub levels: Vec<(LevelId, LevelId)>,
    /// The backward part, if this is the backward pass of another `recurrent`.
    pub gradient: Option<Box<StepGradient>>,
}

/// The backward part of a `recurrent`: its step block is differentiated into `block`, run from the last step to the
/// first beside the forward variables of the same step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepGradient {
    /// The block of gradient operators.
    pub block: BlockId,
    /// Gradients that enter for the outputs (outer gradient, gradient of the inner variable).
    pub outputs: Vec<VarPair>,
    /// Gradients that leave for the step inputs (outer gradient, gradient of the inner variable).
    pub inputs: Vec<VarPair>,
    /// Gradients that leave for the static inputs, added over the steps.
    pub statics: Vec<VarPair>,
    /// Gradients of constants that the steps use, added over the steps: parameters and the like.
    pub constants: Vec<VarId>,
    /// The memories that gradients pass.
    pub memories: Vec<MemoryGradient>,
}

/// The path of a memory's gradient from step to step, backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryGradient {
    /// The number of the memory.
    pub memory: u32,
    /// Gradient of the memory's previous value, which the gradient block computes, if a step passes one on.
    pub previous: Option<VarId>,
    /// Gradient of the memory's next value, which it reads.
    pub next: VarId,
    /// Gradient of the last value (outer), if it is used.
    pub last: Option<VarId>,
    /// Gradient of the initial value (outer), if it is wanted.
    pub initial: Option<VarId>,
}

impl OpDesc {
    /// The variables of an input slot.
    pub fn input(&self, slot: &str) -> &[VarId] {
        find(&self.inputs, slot)
    }

    /// The variables of an output slot.
    pub fn output(&self, slot: &str) -> &[VarId] {
        find(&self.outputs, slot)
    }

    /// The variables that the operator reads, in order.
    pub fn reads(&self) -> impl Iterator<Item = VarId> {
        self.inputs.iter().flat_map(|b| b.vars.iter().copied()).filter(|&v| v != VarId::NONE)
    }

    /// The variables that the operator writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = VarId> {
        self.outputs.iter().flat_map(|b| b.vars.iter().copied()).filter(|&v| v != VarId::NONE)
    }
}

fn find<'a>(bound: &'a [SlotVars], slot: &str) -> &'a [VarId] {
    bound.iter().find(|b| b.slot == slot).map_or(&[], |b| &b.vars)
}

impl StepDesc {
    /// Checks that every number in the description exists.
    pub(crate) fn validate(
        &self,
        var: &impl Fn(VarId) -> Result<()>,
        block: &impl Fn(BlockId) -> Result<()>,
        level: &impl Fn(LevelId) -> Result<()>,
    ) -> Result<()> {
        block(self.block)?;
        level(self.level)?;
        let pairs = |pairs: &[VarPair]| pairs.iter().try_for_each(|p| var(p.outer).and(var(p.inner)));
        pairs(&self.inputs)?;
        pairs(&self.statics)?;
        pairs(&self.outputs)?;
        for (outer, inner) in &self.levels {
            level(*outer)?;
            level(*inner)?;
        }
        for memory in &self.memories {
            [Some(memory.previous), Some(memory.next), memory.initial, memory.last]
                .into_iter()
                .flatten()
                .try_for_each(var)?;
        }
        let Some(gradient) = &self.gradient else { return Ok(()) };
        block(gradient.block)?;
        pairs(&gradient.outputs)?;
        pairs(&gradient.inputs)?;
        pairs(&gradient.statics)?;
        gradient.constants.iter().copied().try_for_each(var)?;
        for m in &gradient.memories {
            if m.memory as usize >= self.memories.len() {
                return Err(Error::of(
                    ErrorKind::Program,
                    "memory number",
                    "one of the step's",
                    m.memory.to_string(),
                ));
            }
            [m.previous, Some(m.next), m.last, m.initial].into_iter().flatten().try_for_each(var)?;
        }
        Ok(())
    }
}
