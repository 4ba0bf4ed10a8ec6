//! Views: variables of a step block that are columns of another variable, such as the parts of a split. A part is not copied:
//! operators read it in the memory of the whole variable, and write its gradient into columns of the whole variable's gradient.

use std::collections::{HashMap, HashSet};

use super::block::{EqualGradients, GradientBlock, StepBlock};
use super::columns::Columns;
use crate::error::Result;
use crate::executor::compile::saved::SavedValues;
use crate::executor::plan::OpId;
use crate::executor::rewrite::classes::Class;
use crate::operator::VarId;
use crate::program::{Role, grad_name};

/// Makes the outputs of an operator views of its input, if the outputs are columns of the input; the operator then has no call.
/// A variable that leaves the step, or that a loop inside the step reads, cannot be a view.
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
    let (whole, first) = columns.position_of(x);
    let previous = block.step.memories.iter().any(|m| m.previous == whole);
    let inside =
        |var: &VarId| !block.leaving.contains(var) && !block.source.in_a_loop(block.step.block, *var);
    if previous || parts.len() != parts_columns.len() || !parts.iter().all(inside) {
        return false;
    }
    for (&part, range) in parts.iter().zip(parts_columns) {
        columns.view(part, (whole, first + range.start));
        if saved.contains(&part) {
            saved.insert(whole);
        }
    }
    true
}

/// Makes the gradients of a split's parts views of the gradient of the whole variable. For this, the backward operator of the
/// split must be the only writer of the whole gradient, and the parts must cover all columns. Returns the numbers of the
/// backward operators that then have no call.
pub(super) fn view_gradients(
    block: &GradientBlock<'_>,
    same: &EqualGradients,
    columns: &mut Columns,
) -> Result<HashSet<usize>> {
    let written = counts(block.ops().flat_map(|(_, op)| op.writes()));
    let writers = |var: VarId| written.get(&var).copied().unwrap_or(0);
    let mut without_call = HashSet::new();
    // The backward operators are visited from the last to the first, so a split comes before the splits of its parts.
    // The parts of a part then become columns of the first split's variable.
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
        let (whole, first) = columns.position_of(x);
        for (&part, range) in parts.iter().zip(parts_columns) {
            columns.view(part, (whole, first + range.start));
        }
        without_call.insert(id.number);
    }
    Ok(without_call)
}

/// Returns how often each variable occurs in `vars`.
pub(crate) fn counts(vars: impl Iterator<Item = VarId>) -> HashMap<VarId, usize> {
    let mut counts = HashMap::new();
    vars.for_each(|var| *counts.entry(var).or_default() += 1);
    counts
}
