//! Rewriting before compilation: one operator replaces several. Fusion replaces an operator and the producer of one of
//! its inputs, if the operator declares the fusion ([`Hints::fusions`]). Merging replaces several operators of one
//! kind, if the kind declares the merge ([`Hints::merges`]). If products compute in bf16, values that only products read are
//! rounded before they are stored (`rounded.rs`), and so are values that a backward operator may read in bf16 (`saved.rs`).
//!
//! [`Hints::fusions`]: crate::operator::Hints::fusions
//! [`Hints::merges`]: crate::operator::Hints::merges

mod alike;
pub(crate) mod classes;
mod early;
mod fuse;
mod merge;
pub(crate) mod needs;
mod rounded;
mod saved;
mod sink;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Place, Result};
use crate::executor::plan::Note;
use crate::operator::{BlockId, Op, Pass, Registry, VarId};
use crate::program::{OpDesc, Program, Role};

/// A program after rewriting, with its parsed operators.
pub(crate) struct Rewritten {
    pub(crate) program: Program,
    /// For each block, the origin of each of its operators in the given program.
    origins: Vec<Vec<Origin>>,
    /// Messages about operators that were not fused although they declare a fusion, each with the reason.
    pub(crate) refused: Vec<String>,
    pub(crate) bf16: Bf16Storage,
}

#[derive(Default)]
pub(crate) struct Bf16Storage {
    /// The variables of f32 numbers that are stored in bf16.
    pub(crate) stored: HashSet<VarId>,
    /// For each value that the given program has in another form, before or after it is rounded, the variable of the given program.
    pub(crate) given: HashMap<VarId, VarId>,
    /// The values of steps that are rounded in the step, and the terms of which they are sums.
    pub(crate) in_steps: HashSet<VarId>,
}

/// The operator of the given program from which a rewritten operator comes.
#[derive(Clone)]
struct Origin {
    kind: String,
    block: BlockId,
    number: usize,
    note: Option<Note>,
    /// The parsed operator after rewriting; `None` for a `recurrent`, or if the operator is not registered.
    instance: Option<Arc<dyn Op>>,
}

impl Rewritten {
    /// Returns the position of a rewritten operator in the given program, for messages.
    pub(crate) fn place(&self, block: BlockId, number: usize) -> Place {
        let (op, origin) = (&self.program.block(block).ops[number], self.origin(block, number));
        let backward = self.pass(block, number) == Pass::Backward;
        Place {
            operator: Some(format!("{}{}", origin.name(block), if backward { ", backward" } else { "" })),
            caller: Some(op.caller.clone()),
            ..self.program.inside(block)
        }
    }

    /// Returns the kind that an operator has in the given program.
    pub(crate) fn kind(&self, block: BlockId, number: usize) -> &str {
        &self.origin(block, number).kind
    }

    /// Returns the pass of an operator; a fused operator that does both passes counts as forward.
    pub(crate) fn pass(&self, block: BlockId, number: usize) -> Pass {
        let joint = self.origin(block, number).note.as_ref().is_some_and(|note| note.joint);
        match self.program.block(block).ops[number].role {
            Role::Backward if !joint => Pass::Backward,
            _ => Pass::Forward,
        }
    }

    /// Returns the note about an operator that replaces several operators; `None` for any other operator.
    pub(crate) fn note(&self, block: BlockId, number: usize) -> Option<Note> {
        self.origin(block, number).note.clone()
    }

    /// Returns the parsed operator; `None` if the operator is a `recurrent` or is not registered.
    pub(crate) fn instance(&self, block: BlockId, number: usize) -> Option<&Arc<dyn Op>> {
        self.origin(block, number).instance.as_ref()
    }

    fn origin(&self, block: BlockId, number: usize) -> &Origin {
        &self.origins[block.0 as usize][number]
    }
}

impl Origin {
    /// Returns the name of the operator in the given program, for messages. The name includes the block, unless the operator is
    /// in block `from`.
    fn name(&self, from: BlockId) -> String {
        let Self { kind, block, number, .. } = self;
        if *block == from {
            format!("{kind} #{number}")
        } else {
            format!("{kind} #{number} of block {}", block.0)
        }
    }
}

/// Rewrites a program by fusion, merging and storage in bf16, for a run that computes the variables `wanted`. `nexts` are
/// variables whose values the next run reads.
pub(crate) fn rewrite(
    program: Program,
    registry: &Registry,
    wanted: &[VarId],
    nexts: &[VarId],
) -> Result<Rewritten> {
    let mut draft = Draft::of(program, registry, wanted);
    let refused = draft.fuse_all()?;
    draft.merge_all()?;
    let mut bf16 = draft.store_rounded(nexts)?;
    draft.save_rounded(&mut bf16)?;
    Ok(Rewritten { program: draft.program, origins: draft.origins, refused, bf16 })
}

/// An operator to insert into a block, after the operator with the given number.
type Insertion = (BlockId, usize, OpDesc, Origin);

/// A program while it is rewritten, with the origin of each operator.
struct Draft<'a> {
    program: Program,
    origins: Vec<Vec<Origin>>,
    registry: &'a Registry,
    wanted: &'a [VarId],
}

impl<'a> Draft<'a> {
    fn of(program: Program, registry: &'a Registry, wanted: &'a [VarId]) -> Self {
        let origin = |block, (number, op): (usize, &OpDesc)| Origin {
            kind: op.kind.clone(),
            block,
            number,
            note: None,
            // An operator that is not registered causes an error only if a wanted variable needs it.
            instance: registry.parse(&op.kind, &op.attributes).ok(),
        };
        let origins = program
            .blocks()
            .map(|(id, block)| block.ops.iter().enumerate().map(|op| origin(id, op)).collect())
            .collect();
        Self { program, origins, registry, wanted }
    }

    fn ops(&self, block: BlockId) -> &[OpDesc] {
        &self.program.block(block).ops
    }

    /// Returns a parsed operator of a block.
    ///
    /// # Errors
    /// Fails if the operator is not registered.
    fn instance(&self, block: BlockId, number: usize) -> Result<Arc<dyn Op>> {
        match &self.origins[block.0 as usize][number].instance {
            Some(instance) => Ok(instance.clone()),
            None => {
                let op = &self.ops(block)[number];
                self.registry.parse(&op.kind, &op.attributes)
            }
        }
    }

    fn name(&self, block: BlockId, number: usize) -> String {
        self.origins[block.0 as usize][number].name(BlockId(0))
    }

    fn shown(&self, var: VarId) -> String {
        format!("`{}`", self.program.shown(var))
    }

    fn remove(&mut self, block: BlockId, number: usize) -> (OpDesc, Origin) {
        let at = block.0 as usize;
        (self.program.blocks[at].ops.remove(number), self.origins[at].remove(number))
    }

    fn insert(&mut self, block: BlockId, number: usize, (op, origin): (OpDesc, Origin)) {
        let at = block.0 as usize;
        self.program.blocks[at].ops.insert(number, op);
        self.origins[at].insert(number, origin);
    }

    fn insert_after(&mut self, mut new: Vec<Insertion>) {
        // From the last operator to the first, so that the numbers of the operators before stay.
        new.sort_by_key(|&(block, number, ..)| (block, number));
        for (block, number, desc, origin) in new.into_iter().rev() {
            self.insert(block, number + 1, (desc, origin));
        }
    }

    /// Returns the forward operator of a block that writes a variable.
    fn writer(&self, block: BlockId, var: VarId) -> Option<usize> {
        self.ops(block).iter().position(|op| op.role == Role::Forward && op.writes().any(|v| v == var))
    }

    /// Returns the number of the backward operator that belongs to a forward operator, in block `there`; `None` if the block
    /// has none.
    fn backward(&self, forward: &OpDesc, there: BlockId) -> Option<usize> {
        self.ops(there).iter().position(|op| is_backward(op, forward))
    }
}

fn is_backward(op: &OpDesc, forward: &OpDesc) -> bool {
    let slots = || forward.inputs.iter().chain(&forward.outputs);
    op.role == Role::Backward
        && op.kind == forward.kind
        && op.attributes == forward.attributes
        && op.inputs.len() >= slots().count()
        && op.inputs.iter().zip(slots()).all(|(a, b)| a == b)
}

/// The operators of a gradient block, indexed by the variables that they read.
struct BackwardOps<'a> {
    ops: &'a [OpDesc],
    naming: HashMap<VarId, Vec<usize>>,
}

impl<'a> BackwardOps<'a> {
    fn of(ops: &'a [OpDesc]) -> Self {
        let mut naming: HashMap<VarId, Vec<usize>> = HashMap::new();
        for (number, op) in ops.iter().enumerate() {
            op.reads().for_each(|var| naming.entry(var).or_default().push(number));
        }
        Self { ops, naming }
    }

    /// Returns the number of the first backward operator that belongs to a forward operator; `None` if there is none.
    fn of_forward(&self, forward: &OpDesc) -> Option<usize> {
        let naming = self.naming.get(&forward.writes().next()?)?;
        naming.iter().copied().find(|&number| is_backward(&self.ops[number], forward))
    }
}
