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
    /// The variables bound to the slot; more than one only if the slot takes several.
    pub vars: Vec<VarId>,
}

/// One operator of a block: its kind by name, its variables by slot, its attributes by name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpDesc {
    /// The operator's kind in the registry, or [`RECURRENT`](crate::program::RECURRENT), which is in no registry.
    pub kind: String,
    /// The role of the operator: forward, backward, update or settle.
    pub role: Role,
    /// The variables that the operator reads.
    pub inputs: Vec<SlotVars>,
    /// The variables that the operator writes.
    pub outputs: Vec<SlotVars>,
    /// The operator's attributes.
    pub attributes: Attributes,
    /// The description of the step block, if the kind is [`RECURRENT`](crate::program::RECURRENT); else `None`.
    pub step: Option<Box<StepDesc>>,
    /// The line of the user's code that appended the operator.
    pub caller: String,
}

/// The role of an operator in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Computes its outputs from its inputs.
    Forward,
    /// Computes gradients: the operator reads the forward operator's slots and the gradients `SLOT@grad` of its output slots,
    /// and writes the gradients `SLOT@grad` of its input slots.
    Backward,
    /// Runs after all gradients are known and checked: decay, clipping, update rules.
    Update,
    /// Makes the moves that rows of a parameter have missed, before these rows are read: see [`Debt`](crate::operator::Debt).
    Settle,
}

named!(Role, "role", Forward = "forward", Backward = "backward", Update = "update", Settle = "settle");

/// A pair of variables: a variable of the block with the operator `recurrent`, and a variable of its step block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VarPair {
    /// The variable outside of the step block.
    pub outer: VarId,
    /// The variable of the step block.
    pub inner: VarId,
}

/// A memory of a step block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The value that the previous step computed; this step reads it.
    pub previous: VarId,
    /// The value that this step computes for the next step.
    pub next: VarId,
    /// The outer variable with the value before the first step, one row per sequence; `None` for zeros.
    pub initial: Option<VarId>,
    /// The outer variable with the value after the last step, one row per sequence; `None` if no operator or output needs it.
    pub last: Option<VarId>,
}

/// The description of an operator `recurrent`: its step block, and the variables that pass between the block and its
/// surroundings. All outer variables are in the operator's slots, too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepDesc {
    /// The step block.
    pub block: BlockId,
    /// The LoD level whose sequences the steps run over: each entry of a sequence is a step.
    pub level: LevelId,
    /// Whether each sequence runs from its last entry to its first.
    pub reverse: bool,
    /// The step inputs: at each step, the inner variable holds each sequence's entry of the outer variable.
    pub inputs: Vec<VarPair>,
    /// The static inputs: the inner variable holds one row, or one sub-sequence, per sequence, which is the same at every step.
    pub statics: Vec<VarPair>,
    /// The memories.
    pub memories: Vec<Memory>,
    /// The outputs: values of every step, which the outer variable collects.
    pub outputs: Vec<VarPair>,
    /// The levels below `level`: pairs of a level of outer variables and the corresponding level of one step's entries.
    pub levels: Vec<(LevelId, LevelId)>,
    /// The backward part, if the operator is the backward operator of another `recurrent`; else `None`.
    pub gradient: Option<Box<StepGradient>>,
}

/// The backward part of a `recurrent`: the operators in `block` compute the gradients of the step block. The block runs from
/// the last step to the first, and reads the step block's variables of the same step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepGradient {
    /// The block of gradient operators.
    pub block: BlockId,
    /// The gradients of the outputs, which the block reads: pairs of the outer gradient and the gradient of the inner variable.
    pub outputs: Vec<VarPair>,
    /// The gradients of the step inputs, which the block computes: pairs of the outer gradient and the gradient of the inner
    /// variable.
    pub inputs: Vec<VarPair>,
    /// The gradients of the static inputs, which the block computes, summed over the steps.
    pub statics: Vec<VarPair>,
    /// The gradients of constants that the steps read, such as parameters, summed over the steps.
    pub constants: Vec<VarId>,
    /// The memories through which gradients pass.
    pub memories: Vec<MemoryGradient>,
}

/// The variables of a memory's gradient, which passes from a step to the previous step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryGradient {
    /// The index of the memory in [`StepDesc::memories`].
    pub memory: u32,
    /// The gradient of the memory's previous value, which the gradient block computes; `None` if the block computes none.
    pub previous: Option<VarId>,
    /// The gradient of the memory's next value, which the gradient block reads.
    pub next: VarId,
    /// The outer gradient of the memory's last value; `None` if there is no such gradient.
    pub last: Option<VarId>,
    /// The outer gradient of the memory's initial value; `None` if it is not needed.
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
    /// Checks that every variable, block and level number in the description exists.
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
