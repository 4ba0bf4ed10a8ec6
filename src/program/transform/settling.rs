//! Settling programs, which bring the rows of parameters up to date: a row without a gradient misses optimizer updates, and a
//! settling program makes these updates.

use std::collections::HashSet;

use crate::program::description::op_desc::Role;
use crate::program::description::program::{Block, Program};

impl Program {
    /// Returns a program that catches up on all missed updates of every parameter's rows. The program has no feeds and is run as
    /// a training step. Returns `None` if no row of this program can miss an update.
    ///
    /// Variables keep their ids, so that the settling program can run on the scope of the original program.
    pub(crate) fn settling(&self) -> Option<Self> {
        let mut settled = HashSet::new();
        let once = self.root().ops.iter().filter(|op| op.role == Role::Settle);
        let ops: Vec<_> = once.filter(|op| settled.insert(op.writes().next())).cloned().collect();
        if ops.is_empty() {
            return None;
        }
        let mut kept = self.clone();
        kept.blocks.iter_mut().for_each(|Block { ops, .. }| ops.clear());
        kept.blocks[0].ops = ops;
        for op in &mut kept.blocks[0].ops {
            op.inputs.retain(|bound| bound.slot != "ids");
            op.role = Role::Update;
        }
        Some(kept)
    }
}
