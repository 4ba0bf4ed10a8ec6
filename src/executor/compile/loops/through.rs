//! Gradients that are another one, number for number: those of a sum's operands. They are not copied; both names
//! stand for one array.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::executor::compile::{Compiler, counts};
use crate::executor::rewrite::needs::wanted_slots;
use crate::program::{OpDesc, RECURRENT, Role, StepDesc, StepGradient, VarId, grad_name};

/// Gradient to the gradient that it is, which is no further one.
pub(crate) type Through = HashMap<VarId, VarId>;

/// The variable that holds the numbers of `var`.
pub(crate) fn resolve(through: &Through, var: VarId) -> VarId {
    through.get(&var).copied().unwrap_or(var)
}

impl Compiler<'_> {
    /// The gradients of a step block that are another gradient: an operator hands it on as it is, nothing else adds
    /// to it, and it stays inside the block.
    pub(crate) fn passed_through(&self, step: &StepDesc, gradient: &StepGradient) -> Result<Through> {
        let program = self.program;
        let ops = &program.block(gradient.block).ops;
        let mut leaves: HashSet<VarId> = HashSet::new();
        let pairs = gradient.inputs.iter().chain(&gradient.outputs).chain(&gradient.statics);
        leaves.extend(pairs.map(|p| p.inner));
        leaves.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        let written = counts(ops.iter().flat_map(OpDesc::writes));
        let mut through = Through::new();
        for op in ops.iter().filter(|op| op.role == Role::Backward && op.kind != RECURRENT) {
            let instance = self.parse(op)?;
            let signature = instance.signature();
            let inputs = program.input_specs(signature, op)?;
            let [of] = op.input(&grad_name(signature.outputs[0].name)) else { continue };
            for slot in wanted_slots(&*instance, op) {
                let [var] = op.output(&grad_name(signature.inputs[slot].name)) else { continue };
                let alike = program.spec(*var)? == program.spec(*of)?
                    && self.class(step, *var) == self.class(step, *of);
                let inside = program.var(*var).block == gradient.block && !leaves.contains(var);
                if instance.gradient(slot, &inputs).passes && alike && inside && written.get(var) == Some(&1)
                {
                    // What is read was written before, so that it is there already if it is another one itself.
                    through.insert(*var, resolve(&through, *of));
                }
            }
        }
        Ok(through)
    }
}
