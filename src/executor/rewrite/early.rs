//! Finds the operators that must move before a fused operator, because the fused operator reads gradients that these
//! operators compute.

use std::collections::{HashMap, HashSet};

use super::Draft;
use crate::error::Result;
use crate::executor::rewrite::needs::values_read;
use crate::operator::{BlockId, LevelId, VarId};
use crate::program::{OpDesc, RECURRENT, Role, grad_name};

impl Draft<'_> {
    /// Returns the operators of the root block, from `from` on, that must run before `joint`. These operators compute
    /// the gradients that `joint` reads. The inner error is the reason why these operators cannot move: they depend on
    /// the results of `forward` (which `joint` replaces), or on values or levels that are computed later.
    pub(crate) fn early(
        &self,
        joint: &OpDesc,
        forward: &OpDesc,
        from: usize,
        taken: &[Option<usize>],
    ) -> Result<std::result::Result<Vec<usize>, String>> {
        let ops = self.ops(BlockId(0));
        let results: Vec<VarId> = forward.writes().collect();
        let gradients = joint.inputs.iter().filter(|b| b.slot.ends_with(&grad_name("")));
        let mut due: Vec<VarId> =
            gradients.flat_map(|b| b.vars.clone()).filter(|&v| v != VarId::NONE).collect();
        if due.is_empty() {
            return Ok(Err("no gradient of its result is computed".to_owned()));
        }
        let mut writers: HashMap<VarId, Vec<usize>> = HashMap::new();
        for (i, op) in ops.iter().enumerate().skip(from) {
            op.writes().for_each(|var| writers.entry(var).or_default().push(i));
        }
        let mut known: HashSet<VarId> = due.iter().copied().collect();
        let mut early: Vec<usize> = Vec::new();
        let mut found: HashSet<usize> = HashSet::new();
        while let Some(var) = due.pop() {
            if results.contains(&var) {
                return Ok(Err(format!("the gradient of {} depends on its value", self.shown(var))));
            }
            for &i in writers.get(&var).into_iter().flatten() {
                let op = &ops[i];
                if found.contains(&i) {
                    continue;
                }
                let own = taken.contains(&Some(i));
                if own && op.role == Role::Forward {
                    // A separate forward operator computes this output too, and runs before all operators in `early`.
                    continue;
                }
                if own || op.role == Role::Update {
                    return Ok(Err(format!("{} is known only later", self.shown(var))));
                }
                early.push(i);
                found.insert(i);
                due.extend(self.values(i)?.into_iter().filter(|&read| known.insert(read)));
            }
        }
        let late = self.made_after(from, &found)?;
        for &i in &early {
            for var in self.program.tensors(ops[i].reads().chain(ops[i].writes())) {
                if self.program.spec(var)?.lod.iter().any(|level| late.contains(level)) {
                    return Ok(Err(format!("the sequences of {} are made later", self.shown(var))));
                }
            }
        }
        Ok(Ok(early))
    }

    /// Returns the variables whose numbers (not only their shapes) an operator of the root block reads.
    fn values(&self, number: usize) -> Result<Vec<VarId>> {
        let op = &self.ops(BlockId(0))[number];
        if op.kind == RECURRENT {
            return Ok(op.reads().collect());
        }
        let instance = self.instance(BlockId(0), number)?;
        let signature = instance.signature();
        let mut values = Vec::new();
        if op.role == Role::Backward {
            values = values_read(&self.program, &*instance, op)?;
            values.extend(signature.outputs.iter().flat_map(|s| op.input(&grad_name(s.name))));
        } else {
            values.extend(signature.inputs.iter().filter(|s| !s.shape_only).flat_map(|s| op.input(s.name)));
        }
        values.retain(|&v| v != VarId::NONE);
        Ok(values)
    }

    /// Returns the levels that the forward operators after `from` make. The operators in `early` are left out, since they move
    /// before the fused operator.
    fn made_after(&self, from: usize, early: &HashSet<usize>) -> Result<HashSet<LevelId>> {
        let mut made = HashSet::new();
        for (i, op) in self.ops(BlockId(0)).iter().enumerate().skip(from + 1) {
            if op.role != Role::Forward || early.contains(&i) {
                continue;
            }
            let mut known = Vec::new();
            for var in self.program.tensors(op.reads()) {
                known.extend(self.program.spec(var)?.lod.iter().copied());
            }
            for var in op.writes() {
                made.extend(self.program.spec(var)?.lod.iter().copied().filter(|l| !known.contains(l)));
            }
        }
        Ok(made)
    }
}
