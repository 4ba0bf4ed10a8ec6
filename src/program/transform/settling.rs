//! The part of a program that makes all moves that rows owe.

use std::collections::HashSet;

use crate::program::description::op_desc::Role;
use crate::program::description::program::{Block, Program};

impl Program {
    /// A program without feeds that settles every row of every parameter that an update rule leaves moves to, as a training
    /// step. `None` if nothing is ever owed.
    ///
    /// A variable is as before by number, so that both programs run on one scope.
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
