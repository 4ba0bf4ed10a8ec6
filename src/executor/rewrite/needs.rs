//! Determines, from the declarations of operators, which values each call reads. Also determines which operators run at
//! all.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, Result};
use crate::operator::{BlockId, Op, ReadSlots, Spec, VarId};
use crate::program::{OpDesc, Program, Role, grad_name};

/// Returns the input slots whose gradients a backward operator computes.
pub(crate) fn wanted_slots(op: &dyn Op, desc: &OpDesc) -> Vec<usize> {
    let inputs = op.signature().inputs;
    (0..inputs.len())
        .filter(|&s| desc.output(&grad_name(inputs[s].name)).iter().any(|&v| v != VarId::NONE))
        .collect()
}

/// Returns the forward values that are needed to compute the gradients of the input slots `wanted`.
pub(crate) fn gradient_reads(op: &dyn Op, wanted: &[usize], inputs: &[Vec<Spec>]) -> ReadSlots {
    wanted.iter().fold(ReadSlots::nothing(), |needs, &slot| needs.union(op.gradient(slot, inputs).reads))
}

/// Returns the variables in the slots `needs`, which a backward operator reads as forward values.
pub(crate) fn needed_values(op: &dyn Op, desc: &OpDesc, needs: ReadSlots) -> Vec<VarId> {
    let signature = op.signature();
    let inputs =
        signature.inputs.iter().enumerate().filter(|(i, _)| needs.has_input(*i)).map(|(_, s)| s.name);
    let outputs =
        signature.outputs.iter().enumerate().filter(|(i, _)| needs.has_output(*i)).map(|(_, s)| s.name);
    inputs.chain(outputs).flat_map(|name| desc.input(name).to_vec()).collect()
}

/// Returns all forward values that a backward operator reads.
pub(crate) fn values_read(program: &Program, op: &dyn Op, desc: &OpDesc) -> Result<Vec<VarId>> {
    let inputs = program.input_specs(op.signature(), desc)?;
    Ok(needed_values(op, desc, gradient_reads(op, &wanted_slots(op, desc), &inputs)))
}

/// Returns the variables whose gradients a forward operator writes. An example is the operator that fills the gradient of the
/// loss with 1.
pub(crate) fn started(program: &Program, op: usize) -> impl Iterator<Item = VarId> {
    let op = &program.root().ops[op];
    let gradients = op.writes().filter(|_| op.role == Role::Forward);
    gradients.filter_map(|v| program.var(v).gradient_of)
}

/// Returns whether an operator of the root block reads a variable.
pub(crate) fn reads(program: &Program, op: usize, var: VarId) -> bool {
    program.root().ops[op].reads().any(|v| v == var)
}

/// Returns the operators of the root block that are needed for the wanted variables and for the updates.
pub(crate) fn live(program: &Program, wanted: &[VarId]) -> Result<Vec<usize>> {
    let mut needed: HashSet<VarId> = HashSet::new();
    for &id in wanted {
        if id.0 as usize >= program.vars().len() {
            let expected = "a variable of the program";
            return Err(Error::of(ErrorKind::Program, "wanted variable", expected, program.called(id)));
        }
        let var = program.var(id);
        if var.block != BlockId(0) || var.spec().is_none() {
            let expected = "a tensor of the root block";
            return Err(Error::of(ErrorKind::Program, "wanted variable", expected, "another variable")
                .variable(&var.name));
        }
        needed.insert(id);
    }
    let (mut live, mut written) = (Vec::new(), HashSet::new());
    for (number, op) in program.root().ops.iter().enumerate().rev() {
        if op.role == Role::Update || op.writes().any(|v| needed.contains(&v)) {
            needed.extend(op.reads());
            written.extend(op.writes());
            live.push(number);
        }
    }
    if let Some(&id) = wanted.iter().find(|id| program.var(**id).role.is_computed() && !written.contains(id))
    {
        let error = Error::of(ErrorKind::Program, "wanted variable", "an operator that computes it", "none");
        return Err(error.variable(&program.var(id).name));
    }
    live.reverse();
    Ok(live)
}
