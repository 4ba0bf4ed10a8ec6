//! Merging: operators of a step block that share an input become one operator, if the kind of the operators declares
//! the merge ([`Hints::merges`]). An example is the products of a cell that is written gate by gate. The outputs of the
//! merged operators become columns of one variable.
//!
//! To keep `x·W + h·U` in one array, three groups are merged: the products `x·W`, the products `h·U`, and the additions.
//! Merging additions is correct because the columns of a sum are the sums of columns.
//!
//! ```text
//! x·W0   h·U0      x·W1   h·U1            x·[W0 W1]   h·[U0 U1]
//!    \   /            \   /                      \     /
//!     s0               s1        become            s, whose columns are s0 and s1
//! ```
//!
//! Products and additions form trees, as in this example. Trees are merged only if they have equal shapes (the module `alike`).
//!
//! Only products that run at every step, and sums of these products, are merged. An operator that runs before or after
//! a loop already needs only one call for all steps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::alike::{Key, Node, groups, leaf};
use super::{BackwardOps, Draft, Origin};
use crate::error::Result;
use crate::executor::plan::Note;
use crate::executor::rewrite::classes::{Class, Classes};
use crate::executor::rewrite::needs::values_read;
use crate::operator::{Attributes, BlockId, Extent, Merge, Op, Reach, VarId};
use crate::program::{
    OpDesc, RECURRENT, Role, SlotVars, StepDesc, StepGradient, StopGradient, VarRole, grad_name,
};

/// Properties of a step block's variables that decide which operators may be merged.
struct StepFacts {
    classes: Classes,
    /// Variables that leave the step or enter an inner loop, and therefore cannot become columns of another variable.
    kept: HashSet<VarId>,
    /// Variables whose values the backward operators read.
    needed: HashSet<VarId>,
    /// Variables that depend on a memory.
    reached: HashSet<VarId>,
    /// Variables on which a memory depends.
    reaching: HashSet<VarId>,
}

/// A merged variable, whose columns are the results of several operators, and the gradient of the merged variable.
#[derive(Clone, Copy)]
struct Columns {
    whole: VarId,
    grad: Option<VarId>,
}

/// The operator that splits a merged variable into the results of the merged nodes, and the backward operator of the
/// split.
struct Division {
    forward: OpDesc,
    backward: OpDesc,
    instance: Arc<dyn Op>,
}

/// Edits of a block: the operators to insert, each with the number of the operator before which it is inserted, and the numbers
/// of the operators to remove.
#[derive(Default)]
struct Edits {
    new: Vec<(usize, OpDesc, Origin)>,
    gone: HashSet<usize>,
}

impl Draft<'_> {
    /// Merges all operators that can be merged, in every step block.
    pub(crate) fn merge_all(&mut self) -> Result<()> {
        let mut steps: BTreeMap<BlockId, (StepDesc, Option<StepGradient>)> = BTreeMap::new();
        for step in self.program.ops().filter_map(|op| op.step.as_deref()) {
            let entry = steps.entry(step.block).or_insert_with(|| (step.clone(), None));
            if let Some(gradient) = &step.gradient {
                entry.1 = Some((**gradient).clone());
            }
        }
        for (step, gradient) in steps.values() {
            let nodes = self.nodes(step, gradient.as_ref())?;
            self.merge(&nodes, step.block, gradient.as_ref().map(|g| g.block))?;
        }
        Ok(())
    }

    /// Returns the operators of a step block that may be merged.
    fn nodes(&self, step: &StepDesc, gradient: Option<&StepGradient>) -> Result<Vec<Node>> {
        let ops = self.ops(step.block);
        let back_ops = gradient.map_or(&[][..], |g| self.ops(g.block));
        let mut nodes: Vec<Node> = Vec::new();
        // An operator that is not registered causes an error only if a wanted variable needs it.
        let known = |block: BlockId| {
            let mut operators = self.ops(block).iter().zip(&self.origins[block.0 as usize]);
            operators.all(|(op, origin)| op.kind == RECURRENT || origin.instance.is_some())
        };
        if !std::iter::once(step.block).chain(gradient.map(|g| g.block)).all(known) {
            return Ok(nodes);
        }
        let inside = self.inside(step, gradient)?;
        let usable = |var: VarId| {
            let spec = self.program.var(var).spec();
            spec.is_some_and(|s| {
                s.rows() == Extent::Alive(step.block) && s.shape.len() == 2 && s.lod.is_empty()
            }) && inside.classes.get(&self.program, var) == Class::Step
                && !inside.kept.contains(&var)
        };
        let mut reading: HashMap<VarId, usize> = HashMap::new();
        for op in ops {
            let once: HashSet<VarId> = op.reads().collect();
            once.into_iter().for_each(|var| *reading.entry(var).or_default() += 1);
        }
        let backwards = BackwardOps::of(back_ops);
        let mut of_out: HashMap<VarId, usize> = HashMap::new();
        for (number, op) in ops.iter().enumerate() {
            let &[out] = &op.writes().collect::<Vec<_>>()[..] else { continue };
            if op.role != Role::Forward || op.kind == RECURRENT || !usable(out) {
                continue;
            }
            let instance = self.instance(step.block, number)?;
            let signature = instance.signature();
            let back = backwards.of_forward(op);
            let gradient_of = |slot: &str| {
                let found = back.map_or(&[][..], |b| back_ops[b].output(&grad_name(slot)));
                found.first().copied().filter(|&v| v != VarId::NONE)
            };
            let grads = back.map_or(&[][..], |b| back_ops[b].input(&grad_name(signature.outputs[0].name)));
            let grad = grads.first().copied().filter(|&v| v != VarId::NONE);
            if grad.is_some() != back.is_some() || grad.is_some_and(|grad| inside.kept.contains(&grad)) {
                continue;
            }
            let mut key = Key {
                kind: op.kind.clone(),
                attributes: op.attributes.clone(),
                shared: Vec::new(),
                beside: Vec::new(),
                graded: grad.is_some(),
                reach: (inside.reached.contains(&out), inside.reaching.contains(&out)),
            };
            let operands = match instance.hints().merges {
                Some(merge) => {
                    if !self.mergeable(op, &*instance, &merge, step.block) {
                        continue;
                    }
                    let beside = |b: &&SlotVars| merge.beside.contains(&b.slot.as_str());
                    key.beside = merge.beside.iter().map(|slot| op.input(slot).len()).collect();
                    key.shared = op.inputs.iter().filter(|b| !beside(b)).cloned().collect();
                    Vec::new()
                }
                None => {
                    let specs = self.program.input_specs(signature, op)?;
                    let operators = |bound: &SlotVars| {
                        let &[var] = &bound.vars[..] else { return None };
                        of_out.get(&var).copied().filter(|&node| {
                            reading.get(&var) == Some(&1)
                                && !inside.needed.contains(&var)
                                && nodes[node].grad == gradient_of(&bound.slot)
                        })
                    };
                    let operands: Vec<usize> = op.inputs.iter().filter_map(operators).collect();
                    if operands.len() != 2
                        || op.reads().count() != 2
                        || operands[0] == operands[1]
                        || !instance.hints().sums
                        || specs[0] != specs[1]
                    {
                        continue;
                    }
                    operands
                }
            };
            let this = nodes.len();
            operands.iter().for_each(|&operand| nodes[operand].reader = Some(this));
            of_out.entry(out).or_insert(this);
            nodes.push(Node { instance, op: number, back, out, grad, key, operands, reader: None });
        }
        Ok(nodes)
    }

    /// Returns whether an operator fulfils the conditions of [`Hints::merges`], and has only constants in the slots
    /// `merge.beside`.
    fn mergeable(&self, op: &OpDesc, instance: &dyn Op, merge: &Merge, block: BlockId) -> bool {
        let constant = |&var: &VarId| {
            let desc = self.program.var(var);
            desc.block != block && desc.spec().is_some_and(|spec| !spec.batched())
        };
        let facts = instance.facts();
        facts.reach == Reach::Row
            && !facts.random
            && merge.beside.iter().flat_map(|slot| op.input(slot)).all(constant)
    }

    /// Collects the properties of a step block's variables.
    fn inside(&self, step: &StepDesc, gradient: Option<&StepGradient>) -> Result<StepFacts> {
        let ops = self.ops(step.block);
        let back_ops = gradient.map_or(&[][..], |g| self.ops(g.block));
        let mut inside = StepFacts {
            classes: Classes::new(step.statics.iter().map(|p| p.inner)),
            kept: step.memories.iter().map(|m| m.next).chain(step.outputs.iter().map(|p| p.inner)).collect(),
            needed: HashSet::new(),
            reached: step.memories.iter().map(|m| m.previous).collect(),
            reaching: step.memories.iter().map(|m| m.next).collect(),
        };
        if let Some(g) = gradient {
            let pairs = g.inputs.iter().chain(&g.outputs).chain(&g.statics);
            inside.kept.extend(pairs.map(|p| p.inner));
            inside.kept.extend(g.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        }
        for op in ops.iter().chain(back_ops).filter(|op| op.kind == RECURRENT) {
            inside.kept.extend(op.reads().chain(op.writes()));
        }
        for op in ops {
            let reads: Vec<VarId> = op.reads().collect();
            let (class, _) = inside.classes.of(&self.program, &reads);
            let reached = reads.iter().any(|v| inside.reached.contains(v));
            for var in op.writes() {
                inside.classes.set(var, class);
                if reached {
                    inside.reached.insert(var);
                }
            }
        }
        for op in ops.iter().rev() {
            if op.writes().any(|v| inside.reaching.contains(&v)) {
                inside.reaching.extend(op.reads());
            }
        }
        for (number, op) in back_ops.iter().enumerate() {
            if let (Role::Backward, Some(g), false) = (op.role, gradient, op.kind == RECURRENT) {
                let instance = self.instance(g.block, number)?;
                inside.needed.extend(values_read(&self.program, &*instance, op)?);
            }
        }
        Ok(inside)
    }

    fn merge(&mut self, nodes: &[Node], block: BlockId, there: Option<BlockId>) -> Result<()> {
        let (mut forward, mut backward) = (Edits::default(), Edits::default());
        // For each node that was merged: the merged variable and its gradient.
        let mut done: Vec<Option<Columns>> = vec![None; nodes.len()];
        for group in groups(nodes) {
            let members: Vec<&Node> = group.iter().map(|&node| &nodes[node]).collect();
            let Some((whole, grad)) = self.whole(&members, block, there)? else { return Ok(()) };
            for &node in &group {
                done[node] = Some(Columns { whole, grad });
            }
            let wholes = wholes(nodes, &group, &done);
            let at = members.iter().map(|node| node.op).min().unwrap_or_default();
            let last = members.iter().filter_map(|node| node.back).max().and_then(|at| Some((there?, at)));
            let descs: Vec<&OpDesc> = members.iter().map(|node| &self.ops(block)[node.op]).collect();
            let mut origin = self.stands_for(block, &members.iter().map(|node| node.op).collect::<Vec<_>>());
            if let (Some(note), [first, ..]) = (&mut origin.note, &members[0].key.shared[..]) {
                let shared: Vec<String> = first.vars.iter().map(|&v| self.shown(v)).collect();
                note.text += &format!(", since all read {}", shared.join(", "));
            }
            // The merged forward operator takes the first position, since the shared input is known there. The merged backward
            // operator takes the last position, since all gradients are known there.
            forward.new.push((at, merged(&*members[0].instance, &descs, &wholes), origin.clone()));
            if members[0].reader.is_none() {
                let parts = self.parts(leaf(nodes, group[0]), &members, (whole, grad), &descs[0].caller)?;
                let Some(parts_of_rows) = parts else { return Ok(()) };
                let origin = Origin { instance: Some(parts_of_rows.instance), ..origin };
                forward.new.push((at, parts_of_rows.forward, origin.clone()));
                if let Some((there, last)) = last {
                    let origin = Origin { block: there, number: last, ..origin };
                    backward.new.push((last, parts_of_rows.backward, origin));
                }
            }
            if let Some((there, last)) = last {
                let numbers: Vec<usize> = members.iter().filter_map(|node| node.back).collect();
                let descs: Vec<&OpDesc> = numbers.iter().map(|&n| &self.ops(there)[n]).collect();
                let desc = merged(&*members[0].instance, &descs, &wholes);
                backward.new.push((last, desc, self.stands_for(there, &numbers)));
                backward.gone.extend(numbers);
            }
            forward.gone.extend(members.iter().map(|node| node.op));
        }
        self.edit(block, forward);
        if let Some(there) = there {
            self.edit(there, backward);
        }
        Ok(())
    }

    /// Adds a variable whose columns are the results of some nodes, and the gradient of this variable.
    fn whole(
        &mut self,
        members: &[&Node],
        block: BlockId,
        there: Option<BlockId>,
    ) -> Result<Option<(VarId, Option<VarId>)>> {
        let mut width = 0usize;
        for node in members {
            let Some(sum) = width.checked_add(self.program.spec(node.out)?.width()) else { return Ok(None) };
            width = sum;
        }
        let desc = self.program.var(members[0].out);
        let (name, stop) = (format!("{}.merged", desc.name), desc.stop_gradient);
        let spec = self.program.spec(members[0].out)?.with_width(width);
        let whole = self.program.add_computed(&name, block, spec.clone(), VarRole::Computed, stop.into());
        let name = grad_name(&self.program.var(whole).name);
        let grad = there.filter(|_| members[0].grad.is_some()).map(|there| {
            let grad = self.program.add_computed(&name, there, spec, VarRole::Computed, StopGradient::Yes);
            self.program.set_gradient_of(grad, whole);
            grad
        });
        Ok(Some((whole, grad)))
    }

    /// Returns the operator that splits a merged variable into the results of some nodes, and the backward operator of the
    /// split. `None` if the split operator that the products declare cannot divide the columns into these results.
    fn parts(
        &self,
        product: &Node,
        members: &[&Node],
        (whole, grad): (VarId, Option<VarId>),
        caller: &str,
    ) -> Result<Option<Division>> {
        let Some(merge) = product.instance.hints().merges else { return Ok(None) };
        let mut sizes = Vec::new();
        for node in members {
            sizes.push(self.program.spec(node.out)?.width());
        }
        let attributes = Attributes::new().with("sizes", sizes.clone());
        let Ok(instance) = self.registry.parse(merge.parts, &attributes) else { return Ok(None) };
        let widths: Option<Vec<usize>> =
            instance.hints().columns.map(|c| c.iter().map(|c| c.len()).collect());
        let signature = instance.signature();
        let ([x], [out]) = (signature.inputs, signature.outputs) else { return Ok(None) };
        if widths != Some(sizes) {
            return Ok(None);
        }
        let bound = |slot: &str, vars: Vec<VarId>| SlotVars { slot: slot.to_owned(), vars };
        let divided = OpDesc {
            kind: merge.parts.to_owned(),
            role: Role::Forward,
            inputs: vec![bound(x.name, vec![whole])],
            outputs: vec![bound(out.name, members.iter().map(|node| node.out).collect())],
            attributes,
            step: None,
            caller: caller.to_owned(),
        };
        let grads: Vec<VarId> = members.iter().filter_map(|node| node.grad).collect();
        let mut inputs = [divided.inputs.clone(), divided.outputs.clone()].concat();
        inputs.push(bound(&grad_name(out.name), grads));
        let outputs = vec![bound(&grad_name(x.name), grad.into_iter().collect())];
        let paste = OpDesc { role: Role::Backward, inputs, outputs, ..divided.clone() };
        Ok(Some(Division { forward: divided, backward: paste, instance }))
    }

    /// Returns the origin for the operator that replaces some operators of a block.
    fn stands_for(&self, block: BlockId, numbers: &[usize]) -> Origin {
        let names: Vec<String> =
            numbers.iter().map(|&n| self.origins[block.0 as usize][n].name(block)).collect();
        let note = Note { text: format!("{} as one", names.join(", ")), superseded: false, joint: false };
        let first = &self.origins[block.0 as usize][numbers[0]];
        Origin { note: Some(note), ..first.clone() }
    }

    fn edit(&mut self, block: BlockId, edits: Edits) {
        let (ops, origins) =
            (&mut self.program.blocks[block.0 as usize].ops, &mut self.origins[block.0 as usize]);
        let mut new: BTreeMap<usize, Vec<(OpDesc, Origin)>> = BTreeMap::new();
        for (at, op, origin) in edits.new {
            new.entry(at).or_default().push((op, origin));
        }
        let old = std::mem::take(ops).into_iter().zip(std::mem::take(origins)).enumerate();
        let all = old.flat_map(|(number, kept)| {
            let before = new.remove(&number).unwrap_or_default();
            before.into_iter().chain((!edits.gone.contains(&number)).then_some(kept))
        });
        (*ops, *origins) = all.unzip();
    }
}

/// Maps the results of a group's nodes (and, for sums, their operands) to the merged variables that replace them. A product
/// still reads its own input; if this input is columns of another merged variable, the columns are split off first.
fn wholes(nodes: &[Node], group: &[usize], done: &[Option<Columns>]) -> HashMap<VarId, VarId> {
    let mut wholes = HashMap::new();
    for &number in group.iter().flat_map(|node| std::iter::once(node).chain(&nodes[*node].operands)) {
        let (Node { out, grad, .. }, Some(columns)) = (&nodes[number], done[number]) else { continue };
        wholes.insert(*out, columns.whole);
        wholes.extend(grad.zip(columns.grad));
    }
    wholes
}

/// Returns the forward or backward operator that replaces the operators `descs`.
fn merged(instance: &dyn Op, descs: &[&OpDesc], wholes: &HashMap<VarId, VarId>) -> OpDesc {
    let mut op = descs[0].clone();
    let slots = instance.hints().merges.map_or(&[][..], |merge| merge.beside);
    for &slot in slots {
        let input_vars = |desc: &OpDesc| desc.input(slot).to_vec();
        put(&mut op.inputs, slot, descs.iter().flat_map(|desc| input_vars(desc)).collect());
        if op.role == Role::Backward {
            let name = grad_name(slot);
            let gradients = descs.iter().flat_map(|desc| match desc.output(&name) {
                [] => vec![VarId::NONE; desc.input(slot).len()],
                given => given.to_vec(),
            });
            put(&mut op.outputs, &name, gradients.collect());
        }
    }
    for var in op.inputs.iter_mut().chain(&mut op.outputs).flat_map(|bound| &mut bound.vars) {
        *var = wholes.get(var).copied().unwrap_or(*var);
    }
    op
}

/// Binds variables to a slot; if there are no variables, the slot is removed or not added.
fn put(bound: &mut Vec<SlotVars>, slot: &str, vars: Vec<VarId>) {
    let at = bound.iter().position(|b| b.slot == slot);
    let new = SlotVars { slot: slot.to_owned(), vars };
    match (at, new.vars.iter().all(|&v| v == VarId::NONE)) {
        (Some(at), true) => drop(bound.remove(at)),
        (Some(at), false) => bound[at] = new,
        (None, true) => {}
        (None, false) => bound.push(new),
    }
}
