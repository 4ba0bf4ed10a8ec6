//! Finds gradients that equal another gradient, number for number: for example, the gradients of a sum's operands. Equal
//! gradients are not copied: the variables of two equal gradients refer to one array.

use super::block::{EqualGradients, GradientBlock};
use super::views::counts;
use crate::error::Result;
use crate::program::{Role, grad_name};

/// Finds the gradients of a step block that equal another gradient. A gradient equals the gradient that its backward
/// operator receives if the operator returns the received gradient unchanged. In addition, no other operator may add to
/// the returned gradient, and the returned gradient must not leave its step.
pub(super) fn same(block: &GradientBlock<'_>) -> Result<EqualGradients> {
    let program = block.source.program;
    let written = counts(block.ops().flat_map(|(_, op)| op.writes()));
    let mut same = EqualGradients::default();
    for (id, op) in block.ops().filter(|(_, op)| op.role == Role::Backward) {
        let Some(parsed) = block.source.parsed(id) else { continue };
        let [gradient] = op.input(&grad_name(parsed.signature.outputs[0].name)) else { continue };
        for &slot in &parsed.wanted {
            let [var] = op.output(&grad_name(parsed.signature.inputs[slot].name)) else { continue };
            let alike = program.spec(*var)? == program.spec(*gradient)?
                && block.class(*var) == block.class(*gradient);
            let passes = parsed.op.gradient(slot, &parsed.inputs).passes;
            if passes && alike && block.is_inside(*var) && written.get(var) == Some(&1) {
                // The operators are visited in the order of the run. If the received gradient equals another gradient,
                // it is therefore already in the map.
                same.0.insert(*var, same.resolve(*gradient));
            }
        }
    }
    Ok(same)
}
