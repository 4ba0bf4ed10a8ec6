//! Gradients that equal another gradient, number for number: the gradients of a sum's operands. They are not copied; both
//! names refer to one array.

use super::block::{EqualGradients, GradientBlock};
use super::views::counts;
use crate::error::Result;
use crate::program::{Role, grad_name};

/// The gradients of a step block that equal another gradient: a backward operator returns that gradient unchanged as the gradient
/// of an input, no other operator adds to it, and it stays inside the block.
pub(super) fn same(block: &GradientBlock<'_>) -> Result<EqualGradients> {
    let program = block.source.program;
    let written = counts(block.ops().flat_map(|(_, op)| op.writes()));
    let mut same = EqualGradients::default();
    for (id, op) in block.ops().filter(|(_, op)| op.role == Role::Backward) {
        let Some(parsed) = block.source.parsed(id) else { continue };
        let [of] = op.input(&grad_name(parsed.signature.outputs[0].name)) else { continue };
        for &slot in &parsed.wanted {
            let [var] = op.output(&grad_name(parsed.signature.inputs[slot].name)) else { continue };
            let alike = program.spec(*var)? == program.spec(*of)? && block.class(*var) == block.class(*of);
            let passes = parsed.op.gradient(slot, &parsed.inputs).passes;
            if passes && alike && block.is_inside(*var) && written.get(var) == Some(&1) {
                // A gradient that is read was written before, so it is in the map already if it equals another gradient.
                same.0.insert(*var, same.resolve(*of));
            }
        }
    }
    Ok(same)
}
