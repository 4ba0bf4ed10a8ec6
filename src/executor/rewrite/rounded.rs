//! Storage in bf16: in a program whose products compute in bf16, finds the values that only products read, and lets the executor
//! store them in bf16. The products would round these values anyway, so no result changes.
//!
//! A value that an operator computes is rounded by an operator `round_bf16` after it: the operator writes a new variable, so that
//! all readers stay as they are. A value that is moved is stored as
//! its source is: between the rows of a step block and the rows outside, from step to step (a memory), and by operators with the
//! hint [`copies`](crate::operator::Hints::copies).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::needs::{live, values_read};
use super::{Bf16Storage, Draft, Insertion, Origin};
use crate::error::Result;
use crate::executor::plan::Note;
use crate::operator::{Attributes, BlockId, MatrixUnit, Op, VarId};
use crate::program::{OpDesc, Role, SlotVars, StepDesc, StopGradient, VarRole};
use crate::tensor::{DType, StorageKind};

/// The kind of the operator that rounds.
const ROUNDS: &str = "round_bf16";

type RoundingOp = (Attributes, Arc<dyn Op>);

/// How the operators of a program use its variables.
#[derive(Default)]
struct Uses {
    /// The variables that a product rounds.
    multiplied: HashSet<VarId>,
    /// The variables that are used in any other way.
    refused: HashSet<VarId>,
    /// For each variable, the variables that are stored as it is stored, since numbers are moved between them.
    tied: HashMap<VarId, Vec<VarId>>,
    /// For each variable, the operators that compute its numbers. A variable that is only moved has none.
    writers: HashMap<VarId, Vec<(BlockId, usize)>>,
}

impl Uses {
    fn tie(&mut self, a: VarId, b: VarId) {
        self.tied.entry(a).or_default().push(b);
        self.tied.entry(b).or_default().push(a);
    }

    /// Returns all variables that are reached from `from` over moves.
    fn reached(&self, from: &HashSet<VarId>) -> HashSet<VarId> {
        let mut found = from.clone();
        let mut due: Vec<VarId> = from.iter().copied().collect();
        while let Some(var) = due.pop() {
            let beside = self.tied.get(&var).into_iter().flatten();
            due.extend(beside.copied().filter(|&var| found.insert(var)));
        }
        found
    }

    /// Adds the moves of a `recurrent`.
    fn step(&mut self, step: &StepDesc) {
        step.inputs.iter().chain(&step.outputs).for_each(|pair| self.tie(pair.outer, pair.inner));
        for pair in &step.statics {
            self.refused.extend([pair.outer, pair.inner]);
        }
        for memory in &step.memories {
            self.tie(memory.previous, memory.next);
            memory.initial.into_iter().chain(memory.last).for_each(|var| self.tie(memory.previous, var));
        }
    }
}

impl Draft<'_> {
    /// Stores values in bf16 that only products read. `nexts` are variables whose values the next run reads; like fetched variables,
    /// they are not stored in bf16. Nothing is stored in bf16 if the products compute in f32, or if the registry has no operator
    /// that rounds.
    pub(crate) fn store_rounded(&mut self, nexts: &[VarId]) -> Result<Bf16Storage> {
        let mut storage = Bf16Storage::default();
        let (Some(plain), Some(flushing)) = (self.rounding(false), self.rounding(true)) else {
            return Ok(storage);
        };
        let uses = self.uses(nexts)?;
        let multiplied = uses.reached(&uses.multiplied);
        let refused = multiplied.iter().copied().filter(|&v| !self.fits(&uses, v));
        let refused = uses.reached(&refused.chain(uses.refused.iter().copied()).collect());
        let mut vars: Vec<VarId> = multiplied.difference(&refused).copied().collect();
        vars.sort_unstable();
        let passed = self.memory_nexts();
        // For each value that is computed: the block and the number of the operator that computes it, and the operator that rounds.
        let mut new = Vec::new();
        for var in vars {
            storage.stored.insert(var);
            let writer = uses.writers.get(&var).and_then(|writers| writers.first());
            let Some(&(block, number)) = writer else { continue };
            let (name, spec) =
                (format!("{}.f32", self.program.var(var).name), self.program.spec(var)?.clone());
            let full = self.program.add_computed(&name, block, spec, VarRole::Computed, StopGradient::Yes);
            storage.given.insert(full, var);
            let outputs = &mut self.program.blocks[block.0 as usize].ops[number].outputs;
            let written =
                outputs.iter_mut().flat_map(|bound| &mut bound.vars).filter(|written| **written == var);
            written.for_each(|written| *written = full);
            let by = if passed.contains(&var) { &flushing } else { &plain };
            let text = format!("stores {} in bf16, since only products read it", self.shown(var));
            new.push(self.rounds_after((block, number), [full, var], by, text));
        }
        self.insert_after(new);
        Ok(storage)
    }

    /// Returns the operator that rounds; `None` if the products compute in f32, or if the registry has no such operator.
    pub(super) fn rounding(&self, flushes: bool) -> Option<RoundingOp> {
        let attributes = Attributes::new().with("flushes", flushes);
        let instance = self.registry.parse(ROUNDS, &attributes).ok();
        instance.filter(|_| self.program.unit != MatrixUnit::F32).map(|op| (attributes, op))
    }

    /// Returns an operator for [`Self::insert_after`] that rounds the variable `x`, which the operator `number` of a block writes,
    /// and its note.
    pub(super) fn rounds_after(
        &self,
        (block, number): (BlockId, usize),
        [x, out]: [VarId; 2],
        (attributes, instance): &RoundingOp,
        text: String,
    ) -> Insertion {
        let bound = |slot: &str, var| vec![SlotVars { slot: slot.to_owned(), vars: vec![var] }];
        let desc = OpDesc {
            kind: ROUNDS.to_owned(),
            role: Role::Forward,
            inputs: bound("x", x),
            outputs: bound("out", out),
            attributes: attributes.clone(),
            step: None,
            caller: self.ops(block)[number].caller.clone(),
        };
        let origin = Origin {
            kind: ROUNDS.to_owned(),
            note: Some(Note { text, superseded: false, joint: false }),
            instance: Some(instance.clone()),
            ..self.origins[block.0 as usize][number].clone()
        };
        (block, number, desc, origin)
    }

    fn memory_nexts(&self) -> HashSet<VarId> {
        let steps = self.program.ops().filter_map(|op| op.step.as_ref());
        steps.flat_map(|step| step.memories.iter().map(|m| m.next)).collect()
    }

    /// Returns whether a variable can be stored in bf16, apart from its readers: it has rows of f32 numbers, and is computed by one
    /// forward operator or moved.
    fn fits(&self, uses: &Uses, var: VarId) -> bool {
        let desc = self.program.var(var);
        let rows = desc.spec().is_some_and(|spec| {
            spec.dtype == DType::F32 && spec.storage == StorageKind::Dense && spec.batched()
        });
        let writers = uses.writers.get(&var).map_or(&[][..], Vec::as_slice);
        let forward = |&(block, number): &(BlockId, usize)| self.ops(block)[number].role == Role::Forward;
        let moved = uses.tied.contains_key(&var);
        rows && matches!(desc.role, VarRole::Computed | VarRole::Step)
            && !desc.persistable
            && desc.gradient_of.is_none()
            && writers.iter().all(forward)
            && (writers.len() == 1 || writers.is_empty() && moved)
    }

    /// Finds how the operators that run use the variables.
    fn uses(&self, nexts: &[VarId]) -> Result<Uses> {
        let mut uses = Uses::default();
        uses.refused.extend(self.wanted.iter().chain(nexts));
        let root = BlockId(0);
        let mut due: Vec<(BlockId, usize)> =
            live(&self.program, self.wanted)?.into_iter().map(|number| (root, number)).collect();
        // The variables that an operator writes without computing numbers.
        let mut moved: HashSet<VarId> = HashSet::new();
        let mut entered = HashSet::new();
        while let Some((block, number)) = due.pop() {
            let op = &self.ops(block)[number];
            if let Some(step) = op.step.as_deref() {
                uses.step(step);
                moved.extend(step.outputs.iter().map(|pair| pair.outer));
                moved.extend(step.memories.iter().filter_map(|memory| memory.last));
                let runs = step.gradient.as_ref().map_or(step.block, |gradient| gradient.block);
                if entered.insert(runs) {
                    due.extend((0..self.ops(runs).len()).map(|number| (runs, number)));
                }
                continue;
            }
            let instance = self.instance(block, number)?;
            let (hints, signature) = (instance.hints(), instance.signature());
            if op.role == Role::Forward && hints.copies {
                let (inputs, out) =
                    (op.input(signature.inputs[0].name), op.output(signature.outputs[0].name));
                let pairs = inputs.iter().flat_map(|&x| out.iter().map(move |&out| (x, out)));
                pairs.for_each(|(x, out)| uses.tie(x, out));
                moved.extend(out);
                let others = signature.inputs[1..].iter().filter(|slot| !slot.shape_only);
                uses.refused.extend(others.flat_map(|slot| op.input(slot.name).to_vec()));
                continue;
            }
            for var in op.writes() {
                uses.writers.entry(var).or_default().push((block, number));
            }
            let backward = op.role == Role::Backward;
            let mut values = if backward { values_read(&self.program, &*instance, op)? } else { Vec::new() };
            // A backward operator that was made by fusion also computes outputs.
            if !backward || hints.joins {
                let read = signature.inputs.iter().filter(|slot| !slot.shape_only);
                values.extend(read.flat_map(|slot| op.input(slot.name).to_vec()));
            }
            let multiplied: HashSet<VarId> =
                hints.takes_bf16.iter().flat_map(|slot| op.input(slot).to_vec()).collect();
            let elsewhere: HashSet<VarId> = (op.inputs.iter())
                .filter(|bound| !hints.takes_bf16.contains(&bound.slot.as_str()))
                .flat_map(|bound| bound.vars.iter().copied())
                .collect();
            for var in values {
                match multiplied.contains(&var) && !elsewhere.contains(&var) {
                    true => uses.multiplied.insert(var),
                    false => uses.refused.insert(var),
                };
            }
        }
        // The executor sets very small f32 numbers that pass from step to step to zero where they are written. A value that is
        // rounded gets the same treatment before it is rounded; a value that is only moved would not.
        uses.refused.extend(self.memory_nexts().intersection(&moved));
        Ok(uses)
    }
}
