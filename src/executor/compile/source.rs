//! The input of the compiler: the rewritten program, and its parsed operators. Operators are parsed during rewriting, and all
//! later code uses these parsed operators.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Place, Result};
use crate::executor::plan::{Note, OpId};
use crate::executor::rewrite::Rewritten;
use crate::executor::rewrite::needs::{live, wanted_slots};
use crate::operator::levels::{MadeLevelIds, made_levels};
use crate::operator::{BlockId, Facts, Hints, LodEffect, Op, Pass, Registry, Signature, Spec, VarId};
use crate::program::{OpDesc, Program, RECURRENT, Role, StepDesc, StepGradient};
use crate::tensor::DType;

pub(crate) struct ParsedOp {
    pub(crate) op: Arc<dyn Op>,
    pub(crate) signature: Signature,
    pub(crate) facts: Facts,
    pub(crate) hints: Hints,
    /// For a backward operator, the input slots whose gradients it computes.
    pub(crate) wanted: Vec<usize>,
    /// The specs (dtype and shape) of the operator's inputs; a backward operator has the input specs of its forward operator.
    pub(crate) inputs: Vec<Vec<Spec>>,
    pub(crate) outputs: Vec<Vec<Spec>>,
    /// The levels that a forward operator makes; empty if it makes none.
    pub(crate) made: Vec<MadeLevelIds>,
}

/// The data that every analysis reads and no analysis changes.
pub(crate) struct Source<'a> {
    pub(crate) program: &'a Program,
    rewritten: &'a Rewritten,
    /// The numbers of the operators of the root block that run.
    pub(crate) live: Vec<usize>,
    wanted: HashSet<VarId>,
    /// The parsed operators of the blocks that run; a `recurrent` has no entry.
    parsed: HashMap<OpId, ParsedOp>,
    /// The step block of each gradient block.
    forward_of: HashMap<BlockId, BlockId>,
    /// The variables that an inner loop reads or writes, each with the block that contains the inner loop.
    looped: HashSet<(BlockId, VarId)>,
    /// The variables that are the next values of memories.
    nexts: HashSet<VarId>,
}

impl<'a> Source<'a> {
    /// Parses the operators that run in a rewritten program. `nexts` are variables of the root block. The next run
    /// reads their values, as a step reads the values that the previous step computed.
    ///
    /// # Errors
    /// Fails if the registry does not contain an operator that runs, or if the program has no tensor for a variable.
    pub(crate) fn new(
        rewritten: &'a Rewritten,
        registry: &Registry,
        wanted: &[VarId],
        nexts: &[VarId],
    ) -> Result<Self> {
        let program = &rewritten.program;
        let mut source = Source {
            program,
            rewritten,
            live: live(program, wanted)?,
            wanted: wanted.iter().copied().collect(),
            parsed: HashMap::new(),
            forward_of: HashMap::new(),
            looped: HashSet::new(),
            nexts: nexts.iter().copied().collect(),
        };
        debug_assert_eq!(program.check_shapes(registry, &source.live), Ok(()), "a rewritten program");
        let mut due: Vec<OpId> =
            source.live.iter().map(|&number| OpId { block: BlockId(0), number }).collect();
        while let Some(id) = due.pop() {
            let desc = source.desc(id);
            if let Some(step) = desc.step.as_deref() {
                let block = step.gradient.as_ref().map_or(step.block, |gradient| gradient.block);
                due.extend((0..program.block(block).ops.len()).map(|number| OpId { block, number }));
                continue;
            }
            let parsed = source.parse(id, desc, registry).map_err(|e| e.at(source.place(id)))?;
            source.parsed.insert(id, parsed);
        }
        for (block, op) in program.blocks().flat_map(|(id, b)| b.ops.iter().map(move |op| (id, op))) {
            let Some(step) = op.step.as_deref() else { continue };
            source.looped.extend(op.reads().chain(op.writes()).map(|var| (block, var)));
            source.nexts.extend(step.memories.iter().map(|m| m.next));
            if let Some(gradient) = &step.gradient {
                source.forward_of.entry(gradient.block).or_insert(step.block);
            }
        }
        Ok(source)
    }

    fn parse(&self, id: OpId, desc: &OpDesc, registry: &Registry) -> Result<ParsedOp> {
        let op = match self.rewritten.instance(id.block, id.number) {
            Some(op) => op.clone(),
            // The operator is not registered, so this second attempt returns the registry's error.
            None => registry.parse(&desc.kind, &desc.attributes)?,
        };
        let signature = op.signature();
        let wanted = if desc.role == Role::Backward { wanted_slots(&*op, desc) } else { Vec::new() };
        let inputs = self.program.input_specs(signature, desc)?;
        let of_forward = if desc.role == Role::Backward { &desc.inputs } else { &desc.outputs };
        let outputs = self.program.specs(&Program::slots_of(signature.outputs, of_forward, ""))?;
        let facts = op.facts();
        let makes = matches!(facts.lod, LodEffect::Replaces | LodEffect::FromData(_));
        let made = match makes && desc.role != Role::Backward {
            true => made_levels(&inputs, &outputs),
            false => Vec::new(),
        };
        Ok(ParsedOp { signature, facts, hints: op.hints(), wanted, inputs, outputs, made, op })
    }

    pub(crate) fn desc(&self, id: OpId) -> &'a OpDesc {
        &self.program.block(id.block).ops[id.number]
    }

    /// Returns a parsed operator; `None` if the operator does not run or is a `recurrent`.
    pub(crate) fn parsed(&self, id: OpId) -> Option<&ParsedOp> {
        self.parsed.get(&id)
    }

    pub(crate) fn ops(&self, block: BlockId) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        let ops = self.program.block(block).ops.iter().enumerate();
        ops.map(move |(number, op)| (OpId { block, number }, op))
    }

    /// Returns the kind and the pass of an operator, as in the given program (before rewriting).
    pub(crate) fn named(&self, id: OpId) -> (String, Pass) {
        let rewritten = self.rewritten;
        (rewritten.kind(id.block, id.number).to_owned(), rewritten.pass(id.block, id.number))
    }

    /// Returns the position of an operator in the given program, for error messages.
    pub(crate) fn place(&self, id: OpId) -> Place {
        self.rewritten.place(id.block, id.number)
    }

    /// Returns the variable of the given program whose numbers a variable has: another variable only if these numbers are rounded
    /// later, or have been rounded.
    pub(crate) fn given(&self, var: VarId) -> VarId {
        self.rewritten.bf16.given.get(&var).copied().unwrap_or(var)
    }

    /// Returns whether a value is rounded at each step, or is a term of such a value.
    pub(crate) fn is_rounded_in_steps(&self, var: VarId) -> bool {
        self.rewritten.bf16.in_steps.contains(&var)
    }

    /// Returns the dtype in which a variable is stored. It differs from the variable's dtype for f32 numbers that are stored in
    /// bf16.
    pub(crate) fn stored_dtype(&self, var: VarId, spec: &Spec) -> DType {
        if self.rewritten.bf16.stored.contains(&var) { DType::BF16 } else { spec.dtype }
    }

    /// Returns the note about an operator that replaces several operators; `None` for any other operator.
    pub(crate) fn note(&self, id: OpId) -> Option<Note> {
        self.rewritten.note(id.block, id.number)
    }

    pub(crate) fn is_wanted(&self, var: VarId) -> bool {
        self.wanted.contains(&var)
    }

    /// Returns whether an inner loop of a block reads or writes a variable. A variable of an inner loop cannot be columns of
    /// another variable, since the inner loop moves whole rows.
    pub(crate) fn in_a_loop(&self, block: BlockId, var: VarId) -> bool {
        self.looped.contains(&(block, var))
    }

    /// Returns whether a variable is the next value of a memory.
    pub(crate) fn is_next(&self, var: VarId) -> bool {
        self.nexts.contains(&var)
    }

    pub(crate) fn is_gradient(&self, var: VarId) -> bool {
        self.program.var(var).gradient_of.is_some()
    }

    #[cfg(test)]
    pub(crate) fn is_backward(&self, id: OpId) -> bool {
        self.desc(id).role == Role::Backward
    }

    /// Returns the step block of a gradient block; for a step block, the block itself.
    pub(crate) fn forward_block(&self, block: BlockId) -> BlockId {
        self.forward_of.get(&block).copied().unwrap_or(block)
    }

    /// Returns the step block of a `recurrent`, and for a backward `recurrent` also its gradient block.
    ///
    /// # Errors
    /// Fails if the `recurrent` has no step block.
    pub(crate) fn step(&self, id: OpId) -> Result<(&'a StepDesc, Option<&'a StepGradient>)> {
        let step = self.desc(id).step.as_deref();
        let none = || Error::of(ErrorKind::Program, RECURRENT, "a step block", "none");
        step.map(|step| (step, step.gradient.as_deref())).ok_or_else(none)
    }
}
