//! What a call reads and makes, from an operator's declarations.

use crate::program::{LevelId, Needs, Op, OpDesc, Spec, VarId, grad_name};

/// The input slots whose gradients a backward operator computes.
pub(super) fn wanted_slots(op: &dyn Op, desc: &OpDesc) -> Vec<usize> {
    let inputs = op.signature().inputs;
    (0..inputs.len())
        .filter(|&s| desc.output(&grad_name(inputs[s].name)).iter().any(|&v| v != VarId::NONE))
        .collect()
}

/// The forward values that a backward operator reads for `needs`.
pub(super) fn needed_values(op: &dyn Op, desc: &OpDesc, needs: Needs) -> Vec<VarId> {
    let signature = op.signature();
    let inputs =
        signature.inputs.iter().enumerate().filter(|(i, _)| needs.has_input(*i)).map(|(_, s)| s.name);
    let outputs =
        signature.outputs.iter().enumerate().filter(|(i, _)| needs.has_output(*i)).map(|(_, s)| s.name);
    inputs.chain(outputs).flat_map(|name| desc.input(name).to_vec()).collect()
}

/// Levels of the outputs that no input has, in the order they were made.
pub(super) fn made_levels(inputs: &[Vec<Spec>], outputs: &[Vec<Spec>]) -> Vec<LevelId> {
    let mut made: Vec<LevelId> = Vec::new();
    for level in outputs.iter().flatten().flat_map(|s| s.lod.iter().copied()) {
        if !inputs.iter().flatten().any(|s| s.lod.contains(&level)) && !made.contains(&level) {
            made.push(level);
        }
    }
    made.sort();
    made
}
