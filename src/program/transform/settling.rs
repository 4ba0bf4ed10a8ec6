//! Settling programs, which bring the rows of parameters up to date: a row without a gradient misses optimizer updates, and a
//! settling program makes these updates.

use std::collections::{BTreeSet, HashSet};

use crate::error::Result;
use crate::operator::{Extent, Levels, Spec, VarId};
use crate::program::description::op_desc::{OpDesc, Role};
use crate::program::description::program::{Block, Program};
use crate::program::description::var_desc::{VarKind, VarRole};
use crate::tensor::DType;

impl Program {
    /// Returns a program that catches up on all missed updates of every parameter's rows. The program has no feeds and is run as
    /// a training step. Returns `None` if no row of this program can miss an update.
    ///
    /// Variables keep their ids, so that the settling program can run on the scope of the original program.
    pub(crate) fn settling(&self) -> Option<Self> {
        let mut settled = HashSet::new();
        let once = self.settles().filter(|op| settled.insert(op.writes().next()));
        let mut ops: Vec<OpDesc> = once.cloned().collect();
        ops.iter_mut().for_each(|op| op.inputs.retain(|bound| bound.slot != "ids"));
        (!ops.is_empty()).then(|| self.settling_by(ops))
    }

    /// Returns the variables whose numbers select the rows that the program reads of a parameter, if a row of the parameter
    /// can miss an update. A variable that is kept from run to run is left out.
    pub(crate) fn row_selections(&self) -> BTreeSet<VarId> {
        let ids = self.settles().flat_map(|op| op.input("ids")).copied();
        ids.filter(|&ids| !self.var(ids).persistable).collect()
    }

    /// Returns a program that catches up on the missed updates of the rows that the feed `ids` names, which is one of the
    /// [`row_selections`](Self::row_selections); and the parameters to which these rows belong. The feed takes any number
    /// of row numbers as i64, without LoD.
    ///
    /// # Errors
    /// Fails if the feed cannot be described.
    pub(crate) fn settling_rows(&self, ids: VarId) -> Result<(Self, Vec<VarId>)> {
        let ops: Vec<OpDesc> = self.settles().filter(|op| op.input("ids") == [ids]).cloned().collect();
        let params = ops.iter().flat_map(|op| op.output("param")).copied().collect();
        let mut kept = self.settling_by(ops);
        let feed = kept.var_mut(ids);
        feed.role = VarRole::Feed;
        feed.kind = VarKind::Tensor(Spec::rows_of(DType::I64, Extent::Batch, &[], Levels::new())?);
        Ok((kept, params))
    }

    fn settles(&self) -> impl Iterator<Item = &OpDesc> {
        self.root().ops.iter().filter(|op| op.role == Role::Settle)
    }

    /// Returns this program with only the operators `ops`, which run as updates: an update runs even if no later operator
    /// reads the rows that it writes.
    fn settling_by(&self, ops: Vec<OpDesc>) -> Self {
        let mut kept = self.clone();
        kept.blocks.iter_mut().for_each(|Block { ops, .. }| ops.clear());
        kept.blocks[0].ops = ops;
        kept.blocks[0].ops.iter_mut().for_each(|op| op.role = Role::Update);
        kept
    }
}
