//! Values of a step that are saved in bf16 for the backward pass: in a program whose products compute in bf16, the gates of a cell.
//!
//! The forward operator reads the value as it is; an operator `round_bf16` after it writes the copy that the backward operator
//! reads ([`saves_bf16`](crate::operator::Hints::saves_bf16)). The gradient of the value is stored in bf16, too, if only products
//! read it. Forward results do not change. The operators that compute the value stay in the loop, so that the value is in memory
//! for one step only.

use std::collections::HashSet;

use super::classes::{Class, Classes};
use super::needs::{live, values_read};
use super::{Bf16Storage, Draft};
use crate::error::Result;
use crate::operator::{BlockId, VarId};
use crate::program::{OpDesc, Role, StepDesc, StepGradient, StopGradient, VarRole, grad_name};
use crate::tensor::{DType, StorageKind};

/// A value that a backward operator reads in bf16.
struct SavedValue {
    var: VarId,
    writer: (BlockId, usize),
    /// The gradient block whose backward operator reads the value.
    reader: BlockId,
    terms: Vec<VarId>,
    gradients: Vec<VarId>,
}

impl Draft<'_> {
    /// Saves values in bf16 for the backward pass. Nothing is saved in bf16 if the products compute in f32, or if the registry has
    /// no operator that rounds.
    pub(super) fn save_rounded(&mut self, storage: &mut Bf16Storage) -> Result<()> {
        let Some(plain) = self.rounding(false) else { return Ok(()) };
        let mut found: Vec<SavedValue> = Vec::new();
        let root = &self.program.root().ops;
        let mut due: Vec<&OpDesc> =
            live(&self.program, self.wanted)?.into_iter().map(|number| &root[number]).collect();
        while let Some(op) = due.pop() {
            let Some(step) = op.step.as_deref() else { continue };
            due.extend(self.ops(step.gradient.as_ref().map_or(step.block, |gradient| gradient.block)));
            if let Some(gradient) = &step.gradient {
                self.saved_values(step, gradient, &mut found)?;
            }
        }
        let mut new = Vec::new();
        for SavedValue { var, writer, reader, terms, gradients } in found {
            let (name, spec) =
                (format!("{}.bf16", self.program.var(var).name), self.program.spec(var)?.clone());
            let saved =
                self.program.add_computed(&name, writer.0, spec, VarRole::Computed, StopGradient::Yes);
            storage.stored.insert(saved);
            storage.given.insert(saved, var);
            storage.in_steps.extend(terms);
            // One backward operator reads the value; others name it.
            let ops = self.program.blocks[reader.0 as usize].ops.iter_mut();
            let inputs = ops.filter(|op| op.role == Role::Backward).flat_map(|op| &mut op.inputs);
            let named = inputs.flat_map(|bound| &mut bound.vars).filter(|named| **named == var);
            named.for_each(|named| *named = saved);
            self.program.set_gradient_of(gradients[0], saved);
            storage.stored.extend(gradients);
            let text = format!("saves {} in bf16 for the backward pass", self.shown(var));
            new.push(self.rounds_after(writer, [var, saved], &plain, text));
        }
        self.insert_after(new);
        Ok(())
    }

    /// Finds the values of a step block that its gradient block can read in bf16.
    fn saved_values(
        &self,
        step: &StepDesc,
        gradient: &StepGradient,
        found: &mut Vec<SavedValue>,
    ) -> Result<()> {
        let mut classes = Classes::new(step.statics.iter().map(|pair| pair.inner));
        for op in self.ops(step.block) {
            let (class, _) = classes.of(&self.program, &op.reads().collect::<Vec<_>>());
            op.writes().for_each(|var| classes.set(var, class));
        }
        for (number, op) in self.ops(gradient.block).iter().enumerate() {
            if op.role != Role::Backward || op.step.is_some() {
                continue;
            }
            let instance = self.instance(gradient.block, number)?;
            let values = values_read(&self.program, &*instance, op)?;
            for &slot in instance.hints().saves_bf16 {
                let (&[var], &[first]) = (op.input(slot), op.output(&grad_name(slot))) else { continue };
                let known = found.iter().any(|saved| saved.var == var);
                let twice = op.reads().filter(|&read| read == var).count() != 1;
                if known || twice || !values.contains(&var) || !self.is_inside(step, &classes, var) {
                    continue;
                }
                let Some((writer, terms)) = self.sum_of(step, var)? else { continue };
                let alone = !self.is_read_elsewhere(var, (gradient.block, number), step.block)?;
                let Some(gradients) = self.equal_gradients(gradient, &classes, first)?.filter(|_| alone)
                else {
                    continue;
                };
                let (writer, reader) = ((step.block, writer), gradient.block);
                found.push(SavedValue { var, writer, reader, terms, gradients });
            }
        }
        Ok(())
    }

    /// Returns whether a variable of a step block has rows of f32 numbers for each step, and does not leave the step.
    fn is_inside(&self, step: &StepDesc, classes: &Classes, var: VarId) -> bool {
        let desc = self.program.var(var);
        let leaves = step.outputs.iter().any(|pair| pair.inner == var)
            || step.inputs.iter().chain(&step.statics).any(|pair| pair.inner == var)
            || step.memories.iter().any(|memory| [memory.previous, memory.next].contains(&var));
        let rows = desc.spec().is_some_and(|spec| {
            spec.dtype == DType::F32 && spec.storage == StorageKind::Dense && spec.batched()
        });
        desc.block == step.block && rows && !leaves && classes.get(&self.program, var) == Class::Step
    }

    /// Returns the operator that computes a value of a step block as a product, or as a sum of products and other values, and the
    /// value with all terms that are computed in the block; `None` if the value is computed in another way.
    fn sum_of(&self, step: &StepDesc, var: VarId) -> Result<Option<(usize, Vec<VarId>)>> {
        let (mut terms, mut due, mut seen) = (Vec::new(), vec![var], HashSet::from([var]));
        while let Some(term) = due.pop() {
            let Some(number) = self.writer(step.block, term) else { continue };
            let op = &self.ops(step.block)[number];
            if op.step.is_some() {
                return Ok(None);
            }
            let hints = self.instance(step.block, number)?.hints();
            match hints.sums {
                true => due.extend(op.reads().filter(|&term| seen.insert(term))),
                false if hints.accumulates => {}
                false => return Ok(None),
            }
            terms.push(term);
        }
        Ok(self.writer(step.block, var).map(|number| (number, terms)))
    }

    /// Returns whether the backward pass reads a value in another operator than `reader`, or a loop or a split reads the value.
    fn is_read_elsewhere(&self, var: VarId, reader: (BlockId, usize), block: BlockId) -> Result<bool> {
        for (other, desc) in self.program.blocks() {
            for (number, op) in desc.ops.iter().enumerate() {
                if (other, number) == reader || !op.reads().any(|read| read == var) {
                    continue;
                }
                let Ok(instance) = self.instance(other, number) else { return Ok(true) };
                let hints = instance.hints();
                let reads = match op.role {
                    Role::Backward if !hints.joins => {
                        values_read(&self.program, &*instance, op)?.contains(&var)
                    }
                    // The parts of a value lie in its memory.
                    _ => other != block || hints.columns.is_some(),
                };
                if reads {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns a gradient and the gradients that equal it, if each is computed by one operator and stays in its step, and if only
    /// operators read them that take gradients in bf16; else `None`.
    fn equal_gradients(
        &self,
        gradient: &StepGradient,
        classes: &Classes,
        first: VarId,
    ) -> Result<Option<Vec<VarId>>> {
        let pairs = gradient.inputs.iter().chain(&gradient.outputs).chain(&gradient.statics);
        let mut leaving: HashSet<VarId> = pairs.map(|pair| pair.inner).collect();
        leaving.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        let ops = self.ops(gradient.block);
        let spec = if first == VarId::NONE { None } else { self.program.var(first).spec() };
        let (mut equal, mut at) = (vec![first], 0);
        while let Some(&var) = equal.get(at) {
            at += 1;
            let original = if var == VarId::NONE { None } else { self.program.var(var).gradient_of };
            let inside = original.is_some_and(|original| classes.get(&self.program, original) == Class::Step)
                && self.program.var(var).block == gradient.block
                && self.program.var(var).spec() == spec
                && !leaving.contains(&var)
                && ops.iter().flat_map(OpDesc::writes).filter(|&written| written == var).count() == 1;
            if !inside {
                return Ok(None);
            }
            for (number, op) in ops.iter().enumerate().filter(|(_, op)| op.reads().any(|read| read == var)) {
                let instance = match op.role == Role::Backward && op.step.is_none() {
                    true => self.instance(gradient.block, number)?,
                    false => return Ok(None),
                };
                let signature = instance.signature();
                let given = op.input(&grad_name(signature.outputs[0].name));
                if given != [var] || op.reads().filter(|&read| read == var).count() != 1 {
                    return Ok(None);
                }
                if instance.hints().takes_bf16_gradient {
                    continue;
                }
                let inputs = self.program.input_specs(signature, op)?;
                for (slot, input) in signature.inputs.iter().enumerate() {
                    let passes = || instance.gradient(slot, &inputs).passes;
                    match op.output(&grad_name(input.name)) {
                        [] => {}
                        &[to] if to == VarId::NONE => {}
                        &[to] if passes() => equal.push(to),
                        _ => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(equal))
    }
}
