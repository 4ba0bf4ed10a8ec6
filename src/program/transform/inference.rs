//! Inference programs: the operators of a program that compute given outputs, without gradients and updates.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::{AtCaller, Result};
use crate::operator::extent::{BlockId, VarId};
use crate::program::description::op_desc::{OpDesc, Role};
use crate::program::description::program::{Block, Program, malformed};

impl Program {
    /// Returns a copy of the program with only the operators that compute `outputs`: no loss, no gradients, no updates. Variables
    /// keep their ids, so that random operators draw the same values as in the original program. The caller feeds only
    /// the variables that a remaining operator reads.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 0);
    /// let label = net.feed("label", DType::I64, &[], 0);
    /// let logits = x.linear(2);
    /// logits.cross_entropy(label).mean();
    /// let program = net.finish()?.inference(&[logits.id()])?;
    /// assert_eq!(program.root().ops.len(), 1);
    /// assert!(program.reads().contains(&x.id()) && !program.reads().contains(&label.id()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an output is no variable of the root block, or if no forward operator computes the output.
    #[track_caller]
    pub fn inference(&self, outputs: &[VarId]) -> Result<Self> {
        self.clone().into_inference(outputs).at_caller()
    }

    /// Removes all operators that do not compute `outputs`, as [`Self::inference`] does.
    pub(crate) fn into_inference(mut self, outputs: &[VarId]) -> Result<Self> {
        let mut needed: HashSet<VarId> = HashSet::new();
        // For each variable: whether a forward operator computes the variable, and whether an operator of another role computes
        // it.
        let mut made: HashMap<VarId, (bool, bool)> = HashMap::new();
        for op in &self.root().ops {
            for var in op.writes() {
                let (forward, other) = made.entry(var).or_default();
                *if op.role == Role::Forward { forward } else { other } = true;
            }
        }
        for &id in outputs {
            let desc = self.vars.get(id.0 as usize);
            let Some(desc) = desc.filter(|desc| desc.block == BlockId(0) && desc.spec().is_some()) else {
                return Err(malformed(
                    "output",
                    "a tensor of the root block",
                    format!("`{}`", self.shown(id)),
                ));
            };
            let forward = made.get(&id).map(|&(forward, _)| forward);
            if !desc.persistable && !forward.unwrap_or(!desc.role.is_computed()) {
                let got = if forward.is_some() {
                    "a value that training computes"
                } else {
                    "one that no operator computes"
                };
                return Err(malformed("output", "a forward value", got).variable(&desc.name));
            }
            needed.insert(id);
        }
        let mut kept: Vec<OpDesc> = std::mem::take(&mut self.blocks[0].ops);
        kept.reverse();
        kept.retain(|op| {
            let computes = op.role == Role::Forward && op.writes().any(|v| needed.contains(&v));
            needed.extend(op.reads().filter(|_| computes));
            computes
        });
        kept.reverse();
        self.blocks[0].ops = kept;
        // Blocks that no operator runs are emptied and not removed, so that block numbers do not change.
        let mut run = vec![false; self.blocks.len()];
        let mut open = vec![0];
        while let Some(block) = open.pop() {
            if std::mem::replace(&mut run[block], true) {
                continue;
            }
            let steps = self.blocks[block].ops.iter().filter_map(|op| op.step.as_deref());
            open.extend(steps.map(|step| step.block.0 as usize).filter(|&inner| inner < run.len()));
        }
        for (Block { ops, .. }, _) in self.blocks.iter_mut().zip(run).filter(|(_, run)| !run) {
            ops.clear();
        }
        Ok(self)
    }

    /// Drops the variables after the last variable in use, and the blocks after the last block in use: differentiation and the
    /// optimizer added these variables and blocks. The remaining variables and blocks keep their numbers.
    pub(crate) fn shortened(mut self, outputs: &[VarId]) -> Self {
        let (mut kept, mut blocks) = (0, 1);
        let mut keep = |id: VarId| kept = kept.max(id.0 as usize + 1);
        outputs.iter().for_each(|&id| keep(id));
        for op in self.ops() {
            op.reads().for_each(&mut keep);
            op.writes().for_each(&mut keep);
            let Some(step) = op.step.as_deref() else { continue };
            blocks = blocks.max(step.block.0 as usize + 1);
            for pairs in [&step.inputs, &step.statics, &step.outputs] {
                pairs.iter().for_each(|pair| keep(pair.inner));
            }
            for memory in &step.memories {
                keep(memory.previous);
                keep(memory.next);
            }
        }
        self.vars.truncate(kept);
        self.vars.iter().for_each(|var| blocks = blocks.max(var.block.0 as usize + 1));
        self.blocks.truncate(blocks);
        let Self { vars, blocks, levels, seed, .. } = self;
        let mut short = Self { vars, blocks, levels, seed, ..Self::default() };
        short.names.settle(&short.vars);
        short
    }

    /// Returns the variables that any operator of the program reads.
    pub fn reads(&self) -> BTreeSet<VarId> {
        self.ops().flat_map(OpDesc::reads).collect()
    }
}
