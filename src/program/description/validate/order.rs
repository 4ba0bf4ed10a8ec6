//! Checks the order of operators: every variable is written before it is read, and only one operator writes it.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::operator::extent::{BlockId, VarId};
use crate::program::description::op_desc::{OpDesc, Role, SlotVars, StepDesc, VarPair};
use crate::program::description::program::{Program, malformed};
use crate::program::description::var_desc::VarRole;

/// The forward operators of a program, indexed so that a backward operator finds its forward operator. A `recurrent` is found by
/// its step block. Any other operator is found by its last output, or by its last input if it has no output.
struct ForwardOps<'a> {
    of_var: HashMap<VarId, Vec<&'a OpDesc>>,
    of_step: HashMap<BlockId, Vec<&'a OpDesc>>,
}

impl<'a> ForwardOps<'a> {
    fn of(program: &'a Program) -> Self {
        let mut forwards = Self { of_var: HashMap::new(), of_step: HashMap::new() };
        let ops = program.ops().filter(|op| op.role == Role::Forward);
        for op in ops {
            match op.step.as_deref() {
                Some(step) => forwards.of_step.entry(step.block).or_default().push(op),
                None => {
                    let last = op.inputs.iter().chain(&op.outputs).flat_map(|bound| &bound.vars).next_back();
                    forwards.of_var.entry(last.copied().unwrap_or(VarId::NONE)).or_default().push(op);
                }
            }
        }
        forwards
    }

    /// Returns whether the program contains the forward operator that belongs to a backward operator.
    fn has_that_of(&self, backward: &OpDesc) -> bool {
        let alone = |step: &StepDesc| StepDesc { gradient: None, ..step.clone() };
        let step = backward.step.as_deref().map(alone);
        let fits = |forward: &&OpDesc| {
            // The backward operator of a `recurrent` does not read the outputs and final values of the `recurrent`.
            let outputs: &[SlotVars] = if step.is_some() { &[] } else { &forward.outputs };
            forward.kind == backward.kind
                && forward.attributes == backward.attributes
                && backward.inputs.iter().zip(forward.inputs.iter().chain(outputs)).all(|(a, b)| a == b)
                && backward.inputs.len() >= forward.inputs.len() + outputs.len()
                && forward.step.as_deref() == step.as_ref()
        };
        if let Some(step) = &step {
            return self.of_step.get(&step.block).into_iter().flatten().any(fits);
        }
        let named = backward.inputs.iter().flat_map(|bound| &bound.vars).chain([&VarId::NONE]);
        named.filter_map(|var| self.of_var.get(var)).flatten().any(fits)
    }
}

impl Program {
    /// Returns the variables that a run computes, in all blocks. Operators must read only variables that were written before, each
    /// variable must be computed once, and no operator may write a variable that it reads.
    ///
    /// # Errors
    /// Fails with an error that names the first operator that breaks a rule.
    pub(crate) fn computed(&self) -> Result<HashSet<VarId>> {
        let mut known = HashSet::new();
        self.order(&self.root().ops, &ForwardOps::of(self), &mut known)?;
        Ok(known)
    }

    fn order(&self, ops: &[OpDesc], forwards: &ForwardOps<'_>, known: &mut HashSet<VarId>) -> Result<()> {
        for op in ops {
            if op.role == Role::Backward && !forwards.has_that_of(op) {
                let expected = "a forward operator with the same slots, attributes and step";
                return Err(malformed(format!("backward operator `{}`", op.kind), expected, "none"));
            }
            let wrong = |expected: &str, id: VarId| {
                let name = self.shown(id);
                Err(malformed(format!("operator `{}`", op.kind), expected, "another variable").variable(name))
            };
            for id in op.reads() {
                let role = self.has_var(id)?.role;
                let made = role.is_computed() || role == VarRole::Step;
                if made && !known.contains(&id) {
                    return wrong("to read only variables that are written before", id);
                }
            }
            if let Some(step) = op.step.as_deref() {
                self.step_order(step, forwards, known)?;
            }
            let mut own: HashSet<VarId> = op.reads().collect();
            for id in op.writes() {
                let fresh = known.insert(id);
                if op.role == Role::Forward && !(fresh && self.has_var(id)?.role.is_computed()) {
                    return wrong("to write a variable of its own", id);
                }
                // The backward operator of `mul(x, x)` has the gradient of `x` in two output slots, which is allowed.
                if !own.insert(id) && (op.role != Role::Backward || op.reads().any(|read| read == id)) {
                    return wrong("to write no variable that it reads", id);
                }
            }
        }
        Ok(())
    }

    fn step_order(
        &self,
        step: &StepDesc,
        forwards: &ForwardOps<'_>,
        known: &mut HashSet<VarId>,
    ) -> Result<()> {
        let inner = |pair: &VarPair| pair.inner;
        let (run, left): (BlockId, Vec<VarId>) = match step.gradient.as_deref() {
            None => {
                known.extend(step.inputs.iter().chain(&step.statics).map(inner));
                known.extend(step.memories.iter().map(|m| m.previous));
                let nexts = step.memories.iter().map(|m| m.next);
                (step.block, step.outputs.iter().map(inner).chain(nexts).collect())
            }
            Some(gradient) => {
                known.extend(gradient.outputs.iter().map(inner));
                known.extend(gradient.memories.iter().map(|m| m.next));
                let passed = gradient.memories.iter().filter_map(|m| m.previous);
                let out = gradient.inputs.iter().chain(&gradient.statics).map(inner);
                (gradient.block, out.chain(passed).collect())
            }
        };
        self.order(&self.has_block(run)?.ops, forwards, known)?;
        match left.into_iter().find(|id| !known.contains(id)) {
            None => Ok(()),
            Some(id) => {
                let what = format!("step block {}", run.0);
                Err(malformed(what, "to compute all its results", "no value").variable(self.shown(id)))
            }
        }
    }
}
