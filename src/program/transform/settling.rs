//! Settling programs: programs that make all moves that rows of parameters have missed.

use std::collections::HashSet;

use crate::program::description::op_desc::Role;
use crate::program::description::program::{Block, Program};

impl Program {
    /// Returns a program without feeds, to be run as a training step, that makes all missed moves of every parameter's rows.
    /// `None` if rows of this program never miss moves.
    ///
    /// Variables keep their numbers, so that both programs run on the same scope.
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
