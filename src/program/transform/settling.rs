//! Settling programs: the part of a program that makes all moves that rows owe.

use std::collections::HashSet;

use crate::program::description::op_desc::Role;
use crate::program::description::program::{Block, Program};

impl Program {
    /// Returns a program without feeds that settles every row of every parameter whose update rule owes moves, as a training
    /// step. `None` if no row ever owes a move.
    ///
    /// Variables keep their numbers, so that both programs run on one scope.
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
