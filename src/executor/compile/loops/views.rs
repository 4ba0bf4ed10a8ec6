//! Views: variables of a step block that are columns of another variable, as the parts of a split. They are not copied; a
//! part is read in the memory of the whole, and its gradient is written into its columns of the whole's gradient.

use std::collections::{HashMap, HashSet};

use super::block::{EqualGradients, GradientBlock, StepBlock};
use super::columns::Columns;
use crate::error::Result;
use crate::executor::compile::saved::SavedValues;
use crate::executor::plan::OpId;
use crate::executor::rewrite::classes::Class;
use crate::operator::VarId;
use crate::program::{Role, grad_name};

/// Makes the outputs of an operator of a step block views, if they are columns of its input; then the operator has no call.
/// A variable that leaves the step, or enters a loop inside it, has rows of its own.
pub(super) fn view_outputs(
    block: &StepBlock<'_>,
    id: OpId,
    columns: &mut Columns,
    saved: &mut SavedValues,
) -> bool {
    let op = block.source.desc(id);
    let Some(parsed) = block.source.parsed(id).filter(|_| op.role == Role::Forward) else { return false };
    let Some(parts_columns) = &parsed.hints.columns else { return false };
    let (inputs, outputs) = (parsed.signature.inputs, parsed.signature.outputs);
    let Some(&[x]) = inputs.first().map(|slot| op.input(slot.name)) else { return false };
    let parts = op.output(outputs[0].name);
    let (whole, first) = columns.place_of(x);
    let previous = block.step.memories.iter().any(|m| m.previous == whole);
    let inside =
        |var: &VarId| !block.leaving.contains(var) && !block.source.in_a_loop(block.step.block, *var);
    if previous || parts.len() != parts_columns.len() || !parts.iter().all(inside) {
        return false;
    }
    for (&part, of) in parts.iter().zip(parts_columns) {
        columns.view(part, (whole, first + of.start));
        if saved.contains(&part) {
            saved.insert(whole);
        }
    }
    true
}

/// Makes the gradients of columns views of the gradient of the whole variable, if no other operator writes that gradient and all
/// its columns are written. Returns the numbers of the operators that then have no call.
pub(super) fn view_gradients(
    block: &GradientBlock<'_>,
    same: &EqualGradients,
    columns: &mut Columns,
) -> Result<HashSet<usize>> {
    let written = counts(block.ops().flat_map(|(_, op)| op.writes()));
    let writers = |var: VarId| written.get(&var).copied().unwrap_or(0);
    let mut without_call = HashSet::new();
    // The last split first, so that a part that is split again finds its whole.
    for (id, op) in block.ops().rev() {
        let Some(parsed) = block.source.parsed(id).filter(|_| op.role == Role::Backward) else { continue };
        let Some(parts_columns) = &parsed.hints.columns else { continue };
        let parts = op.input(&grad_name(parsed.signature.outputs[0].name));
        let &[x] = op.output(&grad_name(parsed.signature.inputs[0].name)) else { continue };
        let free = |var: VarId| {
            block.is_inside(var)
                && !same.contains(var)
                && !columns.contains(var)
                && !block.source.in_a_loop(block.gradient.block, var)
                && block.class(var) == Class::Step
        };
        let width = block.source.program.spec(x)?.width();
        let ends = parts_columns.iter().try_fold(0, |end, c| (c.start == end).then_some(c.end));
        let distinct: HashSet<VarId> = parts.iter().copied().collect();
        let fits = ends == Some(width)
            && parts.len() == parts_columns.len()
            && distinct.len() == parts.len()
            && parts.iter().all(|&part| part != VarId::NONE && free(part) && writers(part) > 0);
        let alone = columns.contains(x) || free(x);
        if !fits || !alone || writers(x) != 1 {
            continue;
        }
        let (whole, first) = columns.place_of(x);
        for (&part, of) in parts.iter().zip(parts_columns) {
            columns.view(part, (whole, first + of.start));
        }
        without_call.insert(id.number);
    }
    Ok(without_call)
}

/// The number of occurrences of each variable.
pub(crate) fn counts(vars: impl Iterator<Item = VarId>) -> HashMap<VarId, usize> {
    let mut counts = HashMap::new();
    vars.for_each(|var| *counts.entry(var).or_default() += 1);
    counts
}
