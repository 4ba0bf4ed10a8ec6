//! Differentiation as a transformation of the program: a forward operator that the loss depends on gets a backward operator.
//! All backward operators are appended after the forward operators. Each step block that a gradient reaches gets a block of
//! gradient operators, even if the step block is nested in another step block.
//!
//! A variable has at most one gradient, which is named by [`grad_name`]. If several backward operators contribute to a gradient,
//! the operator that runs first writes the gradient, and the other operators add to the gradient. A variable that the loss does
//! not depend on has no gradient.

use std::collections::{HashMap, HashSet};

use crate::error::{AtCaller, Error, ErrorKind, Place, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, VarId};
use crate::operator::registry::Registry;
use crate::program::description::language::{FILL, RECURRENT};
use crate::program::description::op_desc::{
    MemoryGradient, OpDesc, Role, SlotVars, StepDesc, StepGradient, VarPair,
};
use crate::program::description::program::{Append, Program, malformed};
use crate::program::description::var_desc::{StopGradient, VarRole, grad_name};
use crate::tensor::StorageKind;

/// Appends the backward operators of a scalar `loss` to the program. Returns each trainable variable that `loss` depends on,
/// together with its gradient.
///
/// # Errors
/// Fails if `loss` is not a single float, if the program was differentiated before, or if `loss` depends on no trainable
/// variable.
#[track_caller]
pub fn append(program: &mut Program, registry: &Registry, loss: VarId) -> Result<Vec<(VarId, VarId)>> {
    let grads = differentiate(program, registry, loss)?;
    let pairs: Vec<(VarId, VarId)> =
        program.trained_parameters().filter_map(|p| Some((p, *grads.get(&p)?))).collect();
    if pairs.is_empty() {
        let name = &program.var(loss).name;
        return Err(
            Error::of(ErrorKind::Program, "loss", "to depend on a trainable variable", "none").variable(name)
        );
    }
    Ok(pairs)
}

/// Appends the backward operators of `loss` as [`append`] does; returns the gradient of every variable that has a gradient.
///
/// # Errors
/// Fails if `loss` is not a single float, if the program was differentiated before, or if no gradient can pass through `loss`.
#[track_caller]
pub fn differentiate(
    program: &mut Program,
    registry: &Registry,
    loss: VarId,
) -> Result<HashMap<VarId, VarId>> {
    if loss.0 as usize >= program.vars().len() {
        let expected = "a variable of the program";
        return Err(Error::of(ErrorKind::Program, "loss", expected, program.called(loss)));
    }
    let name = program.var(loss).name.clone();
    let spec = program.spec(loss)?.clone();
    let fail = |expected: &str, got: String| {
        Err(Error::of(ErrorKind::Program, "loss", expected, got).variable(&name))
    };
    if spec.batched() || spec.width() != 1 || !spec.dtype.is_float() || program.var(loss).block != BlockId(0)
    {
        return fail("one float in the root block: a sum or a mean", program.in_words(&spec.to_string()))
            .at_caller();
    }
    if program.root().ops.iter().any(|op| !matches!(op.role, Role::Forward | Role::Update)) {
        return fail(
            "a program without backward operators",
            "a program that was differentiated before".into(),
        )
        .at_caller();
    }
    if program.var(loss).stop_gradient {
        return fail("to depend on a trainable variable", "a loss that no gradient can pass".into())
            .at_caller();
    }
    let mark = program.mark();
    run(program, registry, loss).inspect_err(|_| program.rewind(&mark)).at_caller()
}

fn run(program: &mut Program, registry: &Registry, loss: VarId) -> Result<HashMap<VarId, VarId>> {
    // Update operators that layers appended are moved behind the backward operators, because updates run after all gradients
    // are computed.
    program.blocks[0].ops.sort_by_key(|op| op.role == Role::Update);
    let count = program.root().ops.iter().filter(|op| op.role != Role::Update).count();
    let forward = program.root().ops[..count].to_vec();
    let updates = program.root().ops.len() - count;
    let mut pass = Pass {
        registry,
        grads: HashMap::new(),
        storages: HashMap::new(),
        blocks: HashMap::from([(BlockId(0), BlockId(0))]),
    };
    let made = forward.iter().find(|op| op.writes().any(|var| var == loss));
    let one = Append {
        inputs: vec![(FILL.inputs[0], vec![loss])],
        attributes: Attributes::new().with(FILL.attributes[0], 1.0),
        role: Role::Backward,
        name: Some(&grad_name(&program.var(loss).name)),
        caller: made.map_or_else(String::new, |op| op.caller.clone()),
        ..Append::forward(FILL.kind)
    };
    let seed = program.append(registry, BlockId(0), one)?[0][0];
    // The appended operator fills the gradient of the loss with 1. No forward operator belongs to it, so its role is forward.
    if let Some(op) = program.blocks[0].ops.last_mut() {
        op.role = Role::Forward;
    }
    program.set_gradient_of(seed, loss);
    pass.grads.insert(loss, seed);
    pass.block(program, BlockId(0), &forward)?;
    program.blocks[0].ops[count..].rotate_left(updates);
    // A gradient may be stored as selected rows only if no operator computes its variable. Otherwise, the backward operator of
    // that operator reads the gradient, and needs all rows.
    let computed: HashSet<VarId> = program.ops().flat_map(OpDesc::writes).collect();
    for (&grad, kinds) in &pass.storages {
        let leaf = program.var(grad).gradient_of.is_some_and(|original| !computed.contains(&original));
        if leaf
            && kinds.iter().all(|&k| k == StorageKind::SelectedRows)
            && let crate::program::description::var_desc::VarKind::Tensor(spec) =
                &mut program.vars[grad.0 as usize].kind
        {
            spec.storage = StorageKind::SelectedRows;
        }
    }
    Ok(pass.grads)
}

struct Pass<'a> {
    registry: &'a Registry,
    /// The gradient of each variable of the forward operators.
    grads: HashMap<VarId, VarId>,
    /// The storages of all contributions to each gradient.
    storages: HashMap<VarId, Vec<StorageKind>>,
    /// The gradient block of each block of forward operators.
    blocks: HashMap<BlockId, BlockId>,
}

impl Pass<'_> {
    /// Appends the backward operators of `ops` to the gradient block of `block`, starting with the last operator of `ops`.
    fn block(&mut self, program: &mut Program, block: BlockId, ops: &[OpDesc]) -> Result<()> {
        for (number, op) in ops.iter().enumerate().rev() {
            let place = Place {
                operator: Some(format!("{} #{number}, backward", op.kind)),
                caller: Some(op.caller.clone()),
                ..program.inside(block)
            };
            let backward = match &op.step {
                Some(step) => self.recurrent(program, op, step),
                None => self.operator(program, op),
            };
            if let Some(desc) = backward.map_err(|e| e.at(place))? {
                let to = self.blocks[&block];
                program.blocks[to.0 as usize].ops.push(desc);
            }
        }
        Ok(())
    }

    fn operator(&mut self, program: &mut Program, op: &OpDesc) -> Result<Option<OpDesc>> {
        if !op.writes().any(|v| self.grads.contains_key(&v)) {
            return Ok(None);
        }
        let instance = self.registry.parse(&op.kind, &op.attributes)?;
        let signature = instance.signature();
        if instance.hints().multiplies_codes && op.reads().any(|v| wants_gradient(program, v)) {
            let (expected, got) =
                ("weights in f32", "weights of 8-bit integers, which are only for prediction");
            return Err(malformed("operator to differentiate", expected, got));
        }
        let specs = program.input_specs(signature, op)?;
        let mut outputs = Vec::new();
        for (index, slot) in signature.inputs.iter().enumerate() {
            let vars = op.input(slot.name);
            if !slot.gradient || !vars.iter().any(|&v| wants_gradient(program, v)) {
                continue;
            }
            let mut grads = Vec::new();
            for &var in vars {
                grads.push(if wants_gradient(program, var) {
                    self.contribute(program, var, instance.gradient(index, &specs).storage)?
                } else {
                    VarId::NONE
                });
            }
            outputs.push(SlotVars { slot: grad_name(slot.name), vars: grads });
        }
        if outputs.is_empty() {
            return Ok(None);
        }
        let mut inputs = op.inputs.clone();
        inputs.extend(op.outputs.iter().cloned());
        for bound in &op.outputs {
            let vars: Vec<VarId> =
                bound.vars.iter().map(|v| self.grads.get(v).copied().unwrap_or(VarId::NONE)).collect();
            if vars.iter().any(|&v| v != VarId::NONE) {
                inputs.push(SlotVars { slot: grad_name(&bound.slot), vars });
            }
        }
        Ok(Some(OpDesc { role: Role::Backward, inputs, outputs, ..op.clone() }))
    }

    /// Returns the gradient of `var`; adds the gradient to the program if it does not exist. Records the storage of the new
    /// contribution.
    fn contribute(&mut self, program: &mut Program, var: VarId, storage: StorageKind) -> Result<VarId> {
        let grad = match self.grads.get(&var) {
            Some(&grad) => grad,
            None => {
                let desc = program.var(var);
                // The gradient of a sparse variable has the variable's storage: entries that are not stored have no gradient.
                let spec = program.spec(var)?.clone();
                let block = self.blocks.get(&desc.block).copied().unwrap_or(BlockId(0));
                let name = grad_name(&desc.name);
                let grad = program.add_computed(&name, block, spec, VarRole::Computed, StopGradient::Yes);
                program.set_gradient_of(grad, var);
                self.grads.insert(var, grad);
                grad
            }
        };
        self.storages.entry(grad).or_default().push(storage);
        Ok(grad)
    }

    fn recurrent(&mut self, program: &mut Program, op: &OpDesc, step: &StepDesc) -> Result<Option<OpDesc>> {
        if !op.writes().any(|v| self.grads.contains_key(&v)) {
            return Ok(None);
        }
        let forward = program.block(step.block).ops.clone();
        let parent = self.blocks[&program.block(step.block).parent.unwrap_or_default()];
        let block = program.add_block(parent);
        self.blocks.insert(step.block, block);
        let reached = self.reach(program, step, &forward)?;

        // The gradients of outputs and of next values of memories are made first, because the backward operators of the step
        // block read them and add to them.
        let mut gradient = StepGradient {
            block,
            outputs: Vec::new(),
            inputs: Vec::new(),
            statics: Vec::new(),
            constants: Vec::new(),
            memories: Vec::new(),
        };
        for pair in &step.outputs {
            if let Some(&outer) = self.grads.get(&pair.outer) {
                let inner = self.contribute(program, pair.inner, StorageKind::Dense)?;
                gradient.outputs.push(VarPair { outer, inner });
            }
        }
        let mut active = Vec::new();
        for (number, memory) in step.memories.iter().enumerate() {
            if reached.contains(&memory.next) {
                self.contribute(program, memory.next, StorageKind::Dense)?;
                active.push(number);
            }
        }
        self.block(program, step.block, &forward)?;

        for pair in &step.inputs {
            if let (Some(&inner), true) = (self.grads.get(&pair.inner), wants_gradient(program, pair.outer)) {
                let outer = self.contribute(program, pair.outer, StorageKind::Dense)?;
                gradient.inputs.push(VarPair { outer, inner });
            }
        }
        for pair in &step.statics {
            if let (Some(&inner), true) = (self.grads.get(&pair.inner), wants_gradient(program, pair.outer)) {
                let outer = self.contribute(program, pair.outer, StorageKind::Dense)?;
                gradient.statics.push(VarPair { outer, inner });
            }
        }
        for number in active {
            let memory = step.memories[number];
            let initial = match memory.initial {
                Some(var) if wants_gradient(program, var) => {
                    Some(self.contribute(program, var, StorageKind::Dense)?)
                }
                _ => None,
            };
            gradient.memories.push(MemoryGradient {
                memory: number as u32,
                previous: self.grads.get(&memory.previous).copied(),
                next: self.grads[&memory.next],
                last: memory.last.and_then(|v| self.grads.get(&v).copied()),
                initial,
            });
        }
        gradient.constants = constants_of(program, block);
        Ok(Some(self.describe(op, step, gradient)))
    }

    /// Returns the variables of a step block that a gradient reaches. The search starts at the outputs and final memories that
    /// have a gradient. From there, the search follows the operators backwards, and each memory from its previous value to its
    /// next value.
    fn reach(&self, program: &Program, step: &StepDesc, ops: &[OpDesc]) -> Result<HashSet<VarId>> {
        let mut reached: HashSet<VarId> = HashSet::new();
        let has = |outer: VarId| self.grads.contains_key(&outer);
        reached.extend(step.outputs.iter().filter(|p| has(p.outer)).map(|p| p.inner));
        reached.extend(step.memories.iter().filter(|m| m.last.is_some_and(has)).map(|m| m.next));
        let mut writers: HashMap<VarId, Vec<usize>> = HashMap::new();
        for (number, op) in ops.iter().enumerate() {
            op.writes().for_each(|var| writers.entry(var).or_default().push(number));
        }
        let mut nexts: HashMap<VarId, Vec<VarId>> = HashMap::new();
        for memory in &step.memories {
            nexts.entry(memory.previous).or_default().push(memory.next);
        }
        let mut passed = vec![false; ops.len()];
        let mut due: Vec<VarId> = reached.iter().copied().collect();
        while let Some(var) = due.pop() {
            let next = nexts.get(&var).into_iter().flatten().copied();
            due.extend(next.filter(|&next| reached.insert(next)));
            for &number in writers.get(&var).into_iter().flatten() {
                if std::mem::replace(&mut passed[number], true) {
                    continue;
                }
                let op = &ops[number];
                let passes: Vec<VarId> = if op.kind == RECURRENT {
                    op.reads().collect()
                } else {
                    let signature = self.registry.parse(&op.kind, &op.attributes)?.signature();
                    signature
                        .inputs
                        .iter()
                        .filter(|s| s.gradient)
                        .flat_map(|s| op.input(s.name))
                        .copied()
                        .collect()
                };
                due.extend(passes.into_iter().filter(|&v| wants_gradient(program, v) && reached.insert(v)));
            }
        }
        Ok(reached)
    }

    fn describe(&self, op: &OpDesc, step: &StepDesc, gradient: StepGradient) -> OpDesc {
        let outers = |pairs: &[VarPair]| pairs.iter().map(|p| p.outer).collect::<Vec<_>>();
        let bound = |slot: &str, vars: Vec<VarId>| SlotVars { slot: grad_name(slot), vars };
        let mut inputs = op.inputs.clone();
        inputs.push(bound("out", outers(&gradient.outputs)));
        inputs.push(bound("last", gradient.memories.iter().filter_map(|m| m.last).collect()));
        let mut outputs = vec![
            bound("x", outers(&gradient.inputs)),
            bound("static", outers(&gradient.statics)),
            bound("initial", gradient.memories.iter().filter_map(|m| m.initial).collect()),
            bound("constant", gradient.constants.clone()),
        ];
        inputs.retain(|b| !b.vars.is_empty());
        outputs.retain(|b| !b.vars.is_empty());
        let step = StepDesc { gradient: Some(Box::new(gradient)), ..step.clone() };
        OpDesc { role: Role::Backward, inputs, outputs, step: Some(Box::new(step)), ..op.clone() }
    }
}

/// Returns whether a variable can have a gradient: it holds floats and does not stop gradients.
fn wants_gradient(program: &Program, var: VarId) -> bool {
    let desc = program.var(var);
    !desc.stop_gradient && desc.spec().is_some_and(|spec| spec.dtype.is_float())
}

/// Returns the gradients that a gradient block writes and that belong to variables of outer blocks.
fn constants_of(program: &Program, block: BlockId) -> Vec<VarId> {
    let mut seen = HashSet::new();
    let written = program.block(block).ops.iter().flat_map(OpDesc::writes);
    written.filter(|&var| !program.encloses(block, program.var(var).block) && seen.insert(var)).collect()
}
