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

/// The values of a block: of the root block, or of one step of a step block together with the gradient block.
#[derive(Default)]
pub(super) struct BlockValues {
    pub(super) vars: HashMap<VarId, Variable>,
    /// The LoD that ends with each level.
    pub(super) levels: HashMap<LevelId, Arc<Lod>>,
    /// The keys of the rows by extent, for random operators; `None` in the root block, where the keys follow from the LoD.
    pub(super) keys: Option<HashMap<Extent, Vec<RowKey>>>,
    /// The values of all steps of each step block whose loop ran in this block, for the backward pass.
    pub(super) loops: HashMap<BlockId, Vec<BlockValues>>,
    /// The sequences that run at this step, in the order of the batch.
    pub(super) alive: Vec<usize>,
    /// The number of the entry that the step reads from each of these sequences.
    pub(super) entries: Vec<usize>,
}

/// The values of the blocks around a block, from the innermost outwards.
#[derive(Clone, Copy)]
pub(super) struct OuterValues<'a> {
    pub(super) values: &'a BlockValues,
    pub(super) around: Option<&'a OuterValues<'a>>,
}

impl BlockValues {
    /// The value of a variable of this block, or of a block around it.
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
            Error::of(ErrorKind::Program, "value", "one before the operator that reads it", "none")
                .variable(&program.var(var).name)
        })
    }

    /// The LoD of a variable's levels.
    pub(super) fn lod(&self, program: &Program, var: VarId) -> Result<Option<Arc<Lod>>> {
        Ok(program.spec(var)?.lod.last().and_then(|level| self.levels.get(level)).cloned())
    }

    /// Sets the value of a variable, and the levels of its LoD.
    pub(super) fn define(&mut self, program: &Program, var: VarId, value: Variable) -> Result<()> {
        for (k, &level) in program.spec(var)?.lod.iter().enumerate() {
            if let Some(lod) = part(value.lod(), k + 1) {
                self.levels.insert(level, lod);
            }
        }
        self.vars.insert(var, value);
        Ok(())
    }

    /// Adds `value` to a gradient, or sets the gradient if it has no value yet.
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

/// The sum of two gradients of a variable. For a row-sparse parameter the rows are joined; for a sparse value that a run
/// computes both gradients have the entries of the value.
pub(super) fn sum(program: &Program, gradient: VarId, a: &Storage, b: &Storage) -> Result<Storage> {
    if computed_sparse(program, gradient).is_some() { add_stored(a, b) } else { add(a, b) }
}

/// The variable of a gradient, if a run computes the variable and does not store all of its elements; else `None`.
pub(super) fn computed_sparse(program: &Program, gradient: VarId) -> Option<VarId> {
    let of = program.var(gradient).gradient_of?;
    let computed = Some(program.var(of)).filter(|desc| !desc.is_row_sparse()).and_then(VarDesc::spec);
    computed.is_some_and(|spec| spec.storage != StorageKind::Dense).then_some(of)
}
