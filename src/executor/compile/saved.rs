//! Saved values: the forward values that backward operators read.

use std::collections::HashSet;

use super::source::Source;
use crate::error::Result;
use crate::executor::plan::OpId;
use crate::executor::rewrite::needs::values_read;
use crate::operator::{BlockId, VarId};
use crate::program::Role;

/// The forward values that must be kept until the backward pass.
pub(crate) type SavedValues = HashSet<VarId>;

/// Finds the forward values that backward operators read, in the root block and in step blocks.
pub(crate) fn saved(source: &Source<'_>) -> Result<SavedValues> {
    let mut saved = SavedValues::new();
    let root = source.live.iter().map(|&number| OpId { block: BlockId(0), number });
    let mut due: Vec<OpId> = root.collect();
    while let Some(id) = due.pop() {
        let op = source.desc(id);
        if op.role != Role::Backward {
            continue;
        }
        if let Some(gradient) = op.step.as_ref().and_then(|step| step.gradient.as_ref()) {
            saved.extend(op.input("static"));
            saved.extend(op.input("initial"));
            due.extend(source.ops(gradient.block).map(|(id, _)| id));
        } else if let Some(parsed) = source.parsed(id) {
            saved.extend(values_read(source.program, &*parsed.op, op)?);
        }
    }
    Ok(saved)
}
