//! The variables that are bound to an operator's slots: the specs of tensors, and the values of literals.

use super::op_desc::{OpDesc, SlotVars};
use super::program::{Program, malformed};
use super::var_desc::{VarDesc, VarKind};
use crate::error::Result;
use crate::operator::attributes::Literal;
use crate::operator::extent::{Spec, VarId};
use crate::operator::signature::{Signature, Slot};

impl Program {
    /// Returns the literals among the variables of each slot; an empty list if there are no literals at all.
    pub(crate) fn literals(&self, groups: &[Vec<VarId>]) -> Vec<Vec<Literal>> {
        let literal = |&var: &VarId| match &self.vars.get(var.0 as usize)?.kind {
            VarKind::Literal(literal) => Some(literal.clone()),
            VarKind::Tensor(_) => None,
        };
        let found: Vec<Vec<Literal>> =
            groups.iter().map(|vars| vars.iter().filter_map(literal).collect()).collect();
        if found.iter().all(Vec::is_empty) { Vec::new() } else { found }
    }

    /// Checks that a variable may be bound to a slot: a slot for literals accepts only literals, and any other slot accepts only
    /// tensors.
    pub(in crate::program) fn check_kind(&self, desc: &VarDesc, slot: &Slot) -> Result<()> {
        let got = match &desc.kind {
            VarKind::Tensor(_) if !slot.literal => return Ok(()),
            VarKind::Literal(_) if slot.literal => return Ok(()),
            VarKind::Tensor(spec) => format!("a tensor, {spec}"),
            VarKind::Literal(literal) => format!("a literal, {}", literal.shown()),
        };
        Err(malformed(format!("input `{}`", slot.name), slot.wanted(), got).variable(&desc.name))
    }

    /// Checks the number of variables bound to each slot, and the kind of each variable (tensor or literal).
    pub(in crate::program) fn check_bound(&self, slots: &[Slot], groups: &[Vec<VarId>]) -> Result<()> {
        for (slot, vars) in slots.iter().zip(groups) {
            if !slot.arity.takes(vars.len()) {
                let (expected, got) = (slot.arity.to_string(), format!("{} variables", vars.len()));
                return Err(malformed(format!("slot `{}`", slot.name), expected, got));
            }
            vars.iter().try_for_each(|&var| self.check_kind(self.has_var(var)?, slot))?;
        }
        Ok(())
    }

    /// Iterates over the tensors among the variables that an operator reads, in the given order.
    pub(crate) fn tensors(&self, reads: impl Iterator<Item = VarId>) -> impl Iterator<Item = VarId> {
        reads.filter(|&var| self.var(var).spec().is_some())
    }

    /// Returns the specs of the tensors of each slot; a slot for literals has no specs.
    pub(crate) fn specs(&self, groups: &[Vec<VarId>]) -> Result<Vec<Vec<Spec>>> {
        let specs = |vars: &Vec<VarId>| {
            self.tensors(vars.iter().copied()).map(|var| self.spec(var).cloned()).collect()
        };
        groups.iter().map(specs).collect()
    }

    /// Returns the specs of an operator's input slots; `op` may also be the backward operator.
    pub(crate) fn input_specs(&self, signature: Signature, op: &OpDesc) -> Result<Vec<Vec<Spec>>> {
        self.specs(&Self::slots_of(signature.inputs, &op.inputs, ""))
    }

    /// Returns the variables of each slot of an operator, in the order of the slots; with the suffix `"@grad"`, the gradients of
    /// the slots.
    pub(crate) fn slots_of(slots: &[Slot], bound: &[SlotVars], suffix: &str) -> Vec<Vec<VarId>> {
        let group = |slot: &Slot| {
            let found = bound.iter().find(|b| b.slot.strip_suffix(suffix) == Some(slot.name));
            found.map_or_else(Vec::new, |b| b.vars.clone())
        };
        slots.iter().map(group).collect()
    }
}
