//! The values of a block, as the reference interpreter computes them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::reference::rows::{add, add_stored, part};
use crate::lod::Lod;
use crate::operator::keys::RowKey;
use crate::operator::{BlockId, Extent, LevelId, VarId};
use crate::program::{Program, VarDesc};
use crate::tensor::{Storage, StorageKind, Variable};

/// The values of one block: of the root block, or of one step of a step block and its gradient block.
#[derive(Default)]
pub(super) struct BlockValues {
    pub(super) vars: HashMap<VarId, Variable>,
    /// For each level, the LoD whose last level is this level.
    pub(super) levels: HashMap<LevelId, Arc<Lod>>,
    /// The row keys for random operators, by extent; `None` in the root block, where the LoD determines the keys.
    pub(super) keys: Option<HashMap<Extent, Vec<RowKey>>>,
    /// For each step block whose loop ran in this block, the values of all its steps, for the backward pass.
    pub(super) loops: HashMap<BlockId, Vec<BlockValues>>,
    /// The sequences that take part in this step, in the batch's order.
    pub(super) alive: Vec<usize>,
    /// For each sequence in this step, the index of the entry that the step reads.
    pub(super) entries: Vec<usize>,
}

/// The values of the blocks that contain a block, innermost block first.
#[derive(Clone, Copy)]
pub(super) struct OuterValues<'a> {
    pub(super) values: &'a BlockValues,
    pub(super) around: Option<&'a OuterValues<'a>>,
}

impl BlockValues {
    /// Returns the value of a variable of this block, or of a block that contains this block.
    pub(super) fn value<'v>(
        &'v self,
        program: &Program,
        var: VarId,
        mut around: Option<&OuterValues<'v>>,
    ) -> Result<&'v Variable> {
        let mut found = self.vars.get(&var);
        while let (None, Some(outer)) = (found, around) {
            found = outer.values.vars.get(&var);
            around = outer.around;
        }
        found.ok_or_else(|| {
            Error::of(ErrorKind::Program, "value", "a value before an operator reads it", "none")
                .variable(&program.var(var).name)
        })
    }

    /// Returns the LoD that belongs to a variable's levels.
    pub(super) fn lod(&self, program: &Program, var: VarId) -> Result<Option<Arc<Lod>>> {
        Ok(program.spec(var)?.lod.last().and_then(|level| self.levels.get(level)).cloned())
    }

    /// Sets the value of a variable, and the LoD of each of its levels.
    pub(super) fn define(&mut self, program: &Program, var: VarId, value: Variable) -> Result<()> {
        for (k, &level) in program.spec(var)?.lod.iter().enumerate() {
            if let Some(lod) = part(value.lod(), k + 1) {
                self.levels.insert(level, lod);
            }
        }
        self.vars.insert(var, value);
        Ok(())
    }

    /// Adds `value` to a gradient; if the gradient has no value yet, sets it to `value`.
    pub(super) fn contribute(&mut self, program: &Program, var: VarId, value: Storage) -> Result<()> {
        let sum = match self.vars.get(&var) {
            Some(before) => sum(program, var, before.storage(), &value)?,
            None => value,
        };
        let value = Variable::new(sum, self.lod(program, var)?)?;
        self.vars.insert(var, value);
        Ok(())
    }
}

/// Returns the sum of two gradients of one variable. For a row-sparse parameter, the rows of both gradients are joined; for a
/// computed sparse value, both gradients have the same entries.
pub(super) fn sum(program: &Program, gradient: VarId, a: &Storage, b: &Storage) -> Result<Storage> {
    if computed_sparse(program, gradient).is_some() { add_stored(a, b) } else { add(a, b) }
}

/// Returns the variable to which a gradient belongs, if this variable is computed in the run and is sparse; else
/// `None`.
pub(super) fn computed_sparse(program: &Program, gradient: VarId) -> Option<VarId> {
    let original = program.var(gradient).gradient_of?;
    let computed = Some(program.var(original)).filter(|desc| !desc.is_row_sparse()).and_then(VarDesc::spec);
    computed.is_some_and(|spec| spec.storage != StorageKind::Dense).then_some(original)
}
