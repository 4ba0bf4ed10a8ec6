//! The description of one operator in a block, and of the step block that it may run.

use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, LevelId, VarId};
use crate::tensor::named::named;

/// The variables that are bound to one slot of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotVars {
    /// The name of the operator's slot.
    pub slot: String,
    /// The variables bound to the slot; more than one variable only if the slot takes several.
    pub vars: Vec<VarId>,
}

/// One operator of a block: its kind, the variables of each slot, and its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpDesc {
    /// The operator's kind in the registry, or [`RECURRENT`](crate::program::RECURRENT), which is in no registry.
    pub kind: String,
    /// The role of the operator: forward, backward, update or settle.
    pub role: Role,
    /// The variables that the operator reads, by input slot.
    pub inputs: Vec<SlotVars>,
    /// The variables that the operator writes, by output slot.
    pub outputs: Vec<SlotVars>,
    /// The operator's attributes.
    pub attributes: Attributes,
    /// The step block that the operator runs, if its kind is [`RECURRENT`](crate::program::RECURRENT); else `None`.
    pub step: Option<Box<StepDesc>>,
    /// The source line of the user's code that appended the operator.
    pub caller: String,
}

/// The role of an operator in the program. The role decides when the operator runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The operator computes its outputs from its inputs.
    Forward,
    /// The operator computes gradients. A backward operator reads the forward operator's slots and the gradients `SLOT@grad` of
    /// the output slots. The backward operator writes the gradients `SLOT@grad` of the input slots.
    Backward,
    /// The operator, such as weight decay, clipping or an update rule, runs after all gradients are known and checked.
    Update,
    /// The operator brings rows of a parameter up to date before a forward operator reads these rows. A row misses optimizer
    /// updates in steps in which it has no gradient: see [`Debt`](crate::operator::Debt).
    Settle,
}

named!(Role, "role", Forward = "forward", Backward = "backward", Update = "update", Settle = "settle");

/// A variable of the block around a step block, and the corresponding variable of the step block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VarPair {
    /// The variable of the block around the step block, which has the operator `recurrent`.
    pub(crate) outer: VarId,
    /// The corresponding variable of the step block.
    pub inner: VarId,
}

/// A memory of a step block: a value that passes from one step of a sequence to the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The variable that this step reads: the memory's value from the previous step.
    pub previous: VarId,
    /// The variable that this step computes: the memory's value for the next step.
    pub next: VarId,
    /// The outer variable that holds the memory's value before the first step, one row per sequence; `None` if the memory starts
    /// with zeros.
    pub(crate) initial: Option<VarId>,
    /// The outer variable that holds the memory's value after the last step, one row per sequence; `None` if no operator and no
    /// output needs that value.
    pub(crate) last: Option<VarId>,
}

/// The step block of an operator `recurrent`, with the variables that pass between the step block and the block around it. The
/// slots of the operator `recurrent` contain all outer variables, too.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepDesc {
    /// The number of the step block.
    pub block: BlockId,
    /// The LoD level whose sequences the steps run over: a step reads one entry of each sequence.
    pub(crate) level: LevelId,
    /// Whether the steps run over each sequence from the last entry to the first entry.
    pub(crate) reverse: bool,
    /// The step inputs: at each step, the inner variable holds one entry of each sequence of the outer variable.
    pub(crate) inputs: Vec<VarPair>,
    /// The static inputs: at every step, the inner variable holds the same row, or the same sub-sequence, of each sequence.
    pub(crate) statics: Vec<VarPair>,
    /// The memories of the step block.
    pub memories: Vec<Memory>,
    /// The outputs of the step block: the outer variable collects the inner variable's values of all steps.
    pub outputs: Vec<VarPair>,
    /// The LoD levels below `level`: each outer level with the corresponding level in the step block.
    pub(crate) levels: Vec<(LevelId, LevelId)>,
    /// The step block's gradients, if the operator is the backward operator of another `recurrent`; else `None`.
    pub gradient: Option<Box<StepGradient>>,
}

/// The backward part of a `recurrent`: the operators of `block` compute the gradients of the step block's variables. The
/// gradient block runs from the last step to the first step. At each step, the gradient block reads the values that the step
/// block's variables had at that step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepGradient {
    /// The number of the gradient block.
    pub block: BlockId,
    /// For each output of the step block: the gradient of the outer variable, and the gradient of the inner variable, which the
    /// gradient block reads.
    pub(crate) outputs: Vec<VarPair>,
    /// For each step input: the gradient of the outer variable, and the gradient of the inner variable, which the gradient block
    /// computes.
    pub(crate) inputs: Vec<VarPair>,
    /// For each static input: the gradient of the outer variable, and the gradient of the inner variable, which is summed over
    /// the steps.
    pub(crate) statics: Vec<VarPair>,
    /// The gradients of the constants that the steps read, such as parameters, summed over the steps.
    pub(crate) constants: Vec<VarId>,
    /// The memories through which gradients pass from a step to the previous step.
    pub(crate) memories: Vec<MemoryGradient>,
}

/// The gradients of one memory, which pass from a step to the previous step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct MemoryGradient {
    /// The memory's index in [`StepDesc::memories`], counted from 0.
    pub(crate) memory: u32,
    /// The gradient of the memory's previous value, which the gradient block computes; `None` if no operator computes it.
    pub(crate) previous: Option<VarId>,
    /// The gradient of the memory's next value, which the gradient block reads.
    pub(crate) next: VarId,
    /// The outer variable with the gradient of the memory's last value; `None` if the last value has no gradient.
    pub(crate) last: Option<VarId>,
    /// The outer variable with the gradient of the memory's initial value; `None` if no gradient is computed for the initial
    /// value.
    pub(crate) initial: Option<VarId>,
}

impl OpDesc {
    /// Returns the variables that are bound to the input slot `slot`.
    pub fn input(&self, slot: &str) -> &[VarId] {
        find(&self.inputs, slot)
    }

    /// Returns the variables that are bound to the output slot `slot`.
    pub fn output(&self, slot: &str) -> &[VarId] {
        find(&self.outputs, slot)
    }

    /// Iterates over the variables that the operator reads, in the order of the slots.
    pub fn reads(&self) -> BoundVars<'_> {
        BoundVars { slots: &self.inputs, vars: &[] }
    }

    /// Iterates over the variables that the operator writes, in the order of the slots.
    pub fn writes(&self) -> BoundVars<'_> {
        BoundVars { slots: &self.outputs, vars: &[] }
    }
}

/// An iterator over the variables of the slots of an operator, without the slots that have no variable.
///
/// Adapters over one type with `next` compile faster than over a chain of adapters.
#[derive(Debug, Clone)]
pub struct BoundVars<'a> {
    slots: &'a [SlotVars],
    /// The remaining variables of the current slot.
    vars: &'a [VarId],
}

impl Iterator for BoundVars<'_> {
    type Item = VarId;

    fn next(&mut self) -> Option<VarId> {
        loop {
            match self.vars.split_first() {
                Some((&var, rest)) => {
                    self.vars = rest;
                    if var != VarId::NONE {
                        return Some(var);
                    }
                }
                None => {
                    let (slot, rest) = self.slots.split_first()?;
                    (self.slots, self.vars) = (rest, &slot.vars);
                }
            }
        }
    }
}

fn find<'a>(bound: &'a [SlotVars], slot: &str) -> &'a [VarId] {
    bound.iter().find(|b| b.slot == slot).map_or(&[], |b| &b.vars)
}

impl StepDesc {
    /// Checks that every variable, block and level number in the step block's description exists.
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
                    "a memory of the step",
                    m.memory.to_string(),
                ));
            }
            [m.previous, Some(m.next), m.last, m.initial].into_iter().flatten().try_for_each(var)?;
        }
        Ok(())
    }
}
