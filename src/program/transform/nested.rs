//! Nested sequences: the part of an inference program that computes one row per inner sequence, such as the spelling of a word,
//! from this inner sequence alone.

use std::collections::HashSet;

use crate::error::Result;
use crate::operator::extent::{LevelId, VarId};
use crate::operator::facts::Reach;
use crate::operator::registry::Registry;
use crate::program::description::op_desc::OpDesc;
use crate::program::description::program::Program;
use crate::program::description::var_desc::VarRole;
use crate::tensor::{DType, StorageKind};

/// An inference program in two parts: see [`Program::nested`]. Both parts have the variables of the original program.
#[derive(Debug)]
pub(crate) struct NestedProgram {
    /// The feed of nested sequences.
    pub(crate) feed: VarId,
    /// The variables with one row per inner sequence of `feed`: the first part computes them, and the second part is fed them.
    pub(crate) made: Vec<VarId>,
    pub(crate) first: Program,
    pub(crate) rest: Program,
}

impl Program {
    /// Divides an inference program into the operators on the inner sequences of a feed, and the other operators. Equal inner
    /// sequences have equal rows of [`NestedProgram::made`], whatever the other sequences of the batch are. Returns `None` if the
    /// program has no such feed, or if an operator combines several inner sequences.
    pub(crate) fn nested(&self, registry: &Registry, outputs: &[VarId]) -> Result<Option<NestedProgram>> {
        let is_nested = |id: &VarId| {
            let desc = self.var(*id);
            let spec = desc.spec().filter(|spec| (spec.dtype, spec.shape.len()) == (DType::I64, 1));
            desc.role == VarRole::Feed && spec.is_some_and(|spec| spec.lod.len() == 2)
        };
        let feeds: Vec<VarId> = self.reads().into_iter().filter(is_nested).collect();
        let &[feed] = &feeds[..] else { return Ok(None) };
        let lod = self.spec(feed)?.lod.clone();
        let (mut inner, mut made) = (HashSet::from([feed]), Vec::new());
        let is_constant = |id: VarId| matches!(self.var(id).role, VarRole::Parameter | VarRole::Literal);
        for op in self.root().ops.iter() {
            if !op.reads().any(|id| inner.contains(&id)) {
                continue;
            }
            if !op.reads().all(|id| inner.contains(&id) || is_constant(id))
                || !self.is_within(op, lod[1], registry)?
            {
                return Ok(None);
            }
            for id in op.writes() {
                let spec = self.spec(id)?;
                let is_row =
                    (spec.dtype, spec.storage, spec.shape.len()) == (DType::F32, StorageKind::Dense, 2);
                match spec.lod == lod {
                    true => drop(inner.insert(id)),
                    false if is_row && spec.lod[..] == lod[..1] => made.push(id),
                    false => return Ok(None),
                }
            }
        }
        let mut rest = self.clone();
        rest.blocks[0].ops.retain(|op| !op.writes().any(|id| inner.contains(&id) || made.contains(&id)));
        made.iter().for_each(|id| rest.vars[id.0 as usize].role = VarRole::Feed);
        if outputs.iter().any(|id| inner.contains(id)) {
            return Ok(None);
        }
        let (rest, first) = (rest.inference(outputs)?, self.inference(&made)?);
        let is_divided = !made.is_empty() && rest.reads().is_disjoint(&inner.into_iter().collect());
        Ok(is_divided.then_some(NestedProgram { feed, made, first, rest }))
    }

    /// Returns whether each row that an operator writes depends on one sequence of the level only.
    fn is_within(&self, op: &OpDesc, level: LevelId, registry: &Registry) -> Result<bool> {
        if let Some(step) = &op.step {
            let mut is_within = step.level == level && step.gradient.is_none();
            for op in &self.block(step.block).ops {
                is_within = is_within && self.is_within(op, level, registry)?;
            }
            return Ok(is_within);
        }
        let parsed = registry.parse(&op.kind, &op.attributes)?;
        let facts = parsed.facts();
        let draws = facts.random && !parsed.hints().draws_in_training;
        Ok(facts.reach != Reach::Batch && !facts.batch_dependent && !draws)
    }
}
