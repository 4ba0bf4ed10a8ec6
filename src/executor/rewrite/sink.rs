//! Sinking: moves an operator out of a step block into the root block, if no memory depends on the operator. The moved
//! operator runs over all steps at once.

use std::collections::HashMap;

use super::Draft;
use crate::error::Result;
use crate::operator::{BlockId, Extent, Reach, Spec, VarId};
use crate::program::{
    OpDesc, Role, SlotVars, StepDesc, StepGradient, StopGradient, VarPair, VarRole, grad_name,
};

const ROOT: BlockId = BlockId(0);

/// Maps each variable of a step block to the variable of the root block with the rows of all steps.
type RootVars = HashMap<VarId, VarId>;
/// A result, or the reason (as text) why an operator cannot be moved.
type SinkResult<T> = std::result::Result<T, String>;

impl Draft<'_> {
    /// Moves an operator of a step block, and its backward operator, to the root block. Returns the first output of the moved
    /// operator, or the reason why it cannot be moved.
    pub(crate) fn sink(&mut self, block: BlockId, number: usize) -> Result<SinkResult<VarId>> {
        let op = self.ops(block)[number].clone();
        let run = |role: Role| {
            let mut ops = self.ops(ROOT).iter();
            ops.position(|op| op.role == role && op.step.as_ref().is_some_and(|step| step.block == block))
        };
        let (Some(forward), backward) = (run(Role::Forward), run(Role::Backward)) else {
            return Ok(Err(format!("block {} is inside another block", block.0)));
        };
        let facts = self.instance(block, number)?.facts();
        if facts.reach != Reach::Row || facts.random {
            return Ok(Err(format!(
                "{} is not row-wise, and stays in block {}",
                self.name(block, number),
                block.0
            )));
        }
        let Some(mut step) = self.ops(ROOT)[forward].step.as_deref().cloned() else {
            return Ok(Err("there is no step block".to_owned()));
        };
        let mut gradient =
            backward.and_then(|b| self.ops(ROOT)[b].step.as_ref()?.gradient.as_deref().cloned());
        let back = gradient.as_ref().and_then(|g| Some((g.block, self.backward(&op, g.block)?)));
        if let Some(why) = self.stays(&op, (block, number), &step, back) {
            return Ok(Err(why));
        }
        let mut outside = RootVars::new();
        for var in op.reads() {
            if self.program.var(var).spec().is_some_and(Spec::batched) {
                let outer = self.outside(&mut step, var)?;
                outside.insert(var, outer);
            }
        }
        for var in op.writes() {
            let outer = self.outside(&mut step, var)?;
            step.outputs.retain(|pair| pair.inner != var);
            outside.insert(var, outer);
        }
        if let (Some(gradient), Some(back), Some(at)) = (&mut gradient, back, backward)
            && let Err(why) = self.sink_backward(gradient, back, at, &mut outside)?
        {
            return Ok(Err(why));
        }
        let (mut desc, origin) = self.remove(block, number);
        moved(&mut desc, &outside);
        let first = desc.writes().next().unwrap_or(VarId::NONE);
        for op in &mut self.program.blocks[0].ops {
            if op.step.as_ref().is_some_and(|s| s.block == block) {
                let inner = gradient.clone().filter(|_| op.role == Role::Backward).map(Box::new);
                op.step = Some(Box::new(StepDesc { gradient: inner, ..step.clone() }));
                bind(op);
            }
        }
        self.insert(ROOT, forward + 1, (desc, origin));
        Ok(Ok(first))
    }

    /// Moves the backward operator `number` of the gradient block `there` to the root block, before operator `at`. `outside` has the
    /// variables of the root block by the variables of the step block.
    fn sink_backward(
        &mut self,
        gradient: &mut StepGradient,
        (there, number): (BlockId, usize),
        at: usize,
        outside: &mut RootVars,
    ) -> Result<SinkResult<()>> {
        let (mut desc, origin) = self.remove(there, number);
        let written =
            |this: &Self, var: VarId| this.ops(there).iter().any(|op| op.writes().any(|v| v == var));
        for bound in desc.inputs.iter().filter(|b| b.slot.ends_with(&grad_name(""))) {
            for &var in bound.vars.iter().filter(|&&v| v != VarId::NONE) {
                let Some(pair) = gradient.outputs.iter().find(|pair| pair.inner == var) else {
                    return Ok(Err(format!("{} is not a gradient from outside", self.shown(var))));
                };
                outside.insert(var, pair.outer);
                gradient.outputs.retain(|pair| pair.inner != var);
            }
        }
        for var in desc.writes() {
            let Some(original) =
                self.program.var(var).gradient_of.and_then(|original| outside.get(&original).copied())
            else {
                continue;
            };
            if let Some(pair) = gradient.inputs.iter().find(|pair| pair.inner == var).copied() {
                outside.insert(var, pair.outer);
                if !written(self, var) {
                    gradient.inputs.retain(|pair| pair.inner != var);
                }
                continue;
            }
            let known = gradient.outputs.iter().find(|pair| pair.inner == var).map(|pair| pair.outer);
            let outer = match known {
                Some(outer) => outer,
                None => {
                    let (name, spec) =
                        (grad_name(&self.program.var(original).name), self.program.spec(original)?.clone());
                    let outer =
                        self.program.add_computed(&name, ROOT, spec, VarRole::Computed, StopGradient::Yes);
                    self.program.set_gradient_of(outer, original);
                    gradient.outputs.push(VarPair { outer, inner: var });
                    outer
                }
            };
            outside.insert(var, outer);
        }
        gradient.constants.retain(|&var| written(self, var));
        moved(&mut desc, outside);
        self.insert(ROOT, at, (desc, origin));
        Ok(Ok(()))
    }

    /// Returns the reason why an operator must stay in its step block; `None` if it can be moved.
    fn stays(
        &self,
        op: &OpDesc,
        (block, number): (BlockId, usize),
        step: &StepDesc,
        back: Option<(BlockId, usize)>,
    ) -> Option<String> {
        let rows = |var: VarId| self.program.var(var).spec().map(Spec::rows) == Some(Extent::Alive(block));
        for var in op.writes() {
            if step.memories.iter().any(|m| m.next == var) {
                return Some(format!("a memory keeps {}", self.shown(var)));
            }
            if !rows(var) {
                return Some(format!("{} does not have one row per step", self.shown(var)));
            }
            let others = std::iter::once((block, Some(number)));
            let theirs = self.gradient_block(block).map(|there| (there, back.map(|(_, at)| at)));
            for (there, own) in others.chain(theirs) {
                let mut ops = self.ops(there).iter().enumerate();
                if let Some((i, _)) = ops.find(|(i, op)| Some(*i) != own && op.reads().any(|v| v == var)) {
                    return Some(format!("{} reads {} too", self.name(there, i), self.shown(var)));
                }
            }
        }
        op.reads().find_map(|var| {
            let desc = self.program.var(var);
            let batched = desc.spec().is_some_and(Spec::batched);
            let input = step.inputs.iter().any(|pair| pair.inner == var);
            let fine = match batched {
                false => desc.block != block,
                true => input || (rows(var) && self.writer(block, var).is_some()),
            };
            (!fine).then(|| format!("{} has a value only within one step", self.shown(var)))
        })
    }

    fn gradient_block(&self, block: BlockId) -> Option<BlockId> {
        let original =
            |op: &OpDesc| op.step.as_ref().filter(|s| s.block == block)?.gradient.as_ref().map(|g| g.block);
        self.ops(ROOT).iter().find_map(original)
    }

    /// Returns the variable of the root block that has the rows of `inner` at all steps: an input or output of the loop, or
    /// else a new output.
    fn outside(&mut self, step: &mut StepDesc, inner: VarId) -> Result<VarId> {
        let pairs = step.inputs.iter().chain(&step.outputs);
        if let Some(pair) = pairs.into_iter().find(|pair| pair.inner == inner) {
            return Ok(pair.outer);
        }
        let around = match step.inputs.first() {
            Some(pair) => self.program.spec(pair.outer)?.lod.clone(),
            None => Default::default(),
        };
        let depth = around.iter().position(|&level| level == step.level).map_or(0, |at| at + 1);
        let mut spec = self.program.spec(inner)?.clone();
        spec.lod = around[..depth].iter().copied().collect();
        spec.shape[0] = Extent::Rows(step.level);
        let desc = self.program.var(inner);
        let (name, stop) = (format!("{}.steps", desc.name), desc.stop_gradient);
        let outer = self.program.add_computed(&name, ROOT, spec, VarRole::Computed, stop.into());
        step.outputs.push(VarPair { outer, inner });
        Ok(outer)
    }
}

/// Replaces the operator's variables of the step block by the corresponding variables of the root block.
fn moved(op: &mut OpDesc, outside: &RootVars) {
    for var in op.inputs.iter_mut().chain(&mut op.outputs).flat_map(|bound| &mut bound.vars) {
        *var = outside.get(var).copied().unwrap_or(*var);
    }
}

/// Updates the slots of a `recurrent` after the inputs or outputs of its step block changed.
fn bind(op: &mut OpDesc) {
    let Some(step) = op.step.as_deref() else { return };
    let outers = |pairs: &[VarPair]| pairs.iter().map(|p| p.outer).collect::<Vec<_>>();
    let put = |bound: &mut Vec<SlotVars>, slot: String, vars: Vec<VarId>| match bound
        .iter_mut()
        .find(|b| b.slot == slot)
    {
        Some(known) => known.vars = vars,
        None => bound.push(SlotVars { slot, vars }),
    };
    match &step.gradient {
        None => put(&mut op.outputs, "out".to_owned(), outers(&step.outputs)),
        Some(gradient) => {
            put(&mut op.inputs, grad_name("out"), outers(&gradient.outputs));
            put(&mut op.outputs, grad_name("x"), outers(&gradient.inputs));
            put(&mut op.outputs, grad_name("constant"), gradient.constants.clone());
        }
    }
    op.inputs.retain(|b| !b.vars.is_empty());
    op.outputs.retain(|b| !b.vars.is_empty());
}
