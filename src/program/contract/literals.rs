//! Literals in an operator's input slots: how they are bound, and how the operator reads them.

use super::context::{Backward, Forward, NewLevels, Prepare};
use super::infer::InferShape;
use super::signature::{Signature, Slot};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::description::program::{Program, malformed};
use crate::program::description::var_desc::{VarDesc, VarKind};
use crate::program::spec::attributes::{Literal, LiteralRef};
use crate::program::spec::extent::VarId;

/// The literals of a call's input slots; of a slot for tensors, and of a call without any, none.
#[derive(Clone, Copy)]
pub(crate) struct Literals<'a> {
    pub(crate) signature: Signature,
    pub(crate) values: &'a [Vec<Literal>],
}

impl<'a> Literals<'a> {
    fn all(self, slot: usize) -> impl ExactSizeIterator<Item = LiteralRef<'a>> + use<'a> {
        let name = self.signature.inputs[slot].name;
        let values: &'a [Literal] = self.values.get(slot).map_or(&[], Vec::as_slice);
        values.iter().map(move |value| LiteralRef::input(name, value))
    }

    #[track_caller]
    fn one(self, slot: usize) -> Result<LiteralRef<'a>> {
        let Slot { name, literal, .. } = self.signature.inputs[slot];
        let got = if literal { "none" } else { "a slot for tensors" };
        let none = || Error::of(ErrorKind::Program, format!("input `{name}`"), "a literal", got);
        self.all(slot).next().ok_or_else(none).at_caller()
    }
}

macro_rules! literal_methods {
    ($($context:ident: $literals:expr),*) => {$(
        impl<'a> $context<'a> {
            /// The literal of input slot `slot`, which takes one.
            ///
            /// # Errors
            /// If none is bound, or the slot is one for tensors.
            #[track_caller]
            pub fn literal(&self, slot: usize) -> Result<LiteralRef<'a>> {
                let literals: Literals<'a> = $literals(self);
                literals.one(slot).at_caller()
            }

            /// The literals of input slot `slot`, in order.
            pub fn literals(&self, slot: usize) -> impl ExactSizeIterator<Item = LiteralRef<'a>> + use<'a> {
                let literals: Literals<'a> = $literals(self);
                literals.all(slot)
            }
        }
    )*};
}
literal_methods!(
    InferShape: |s: &InferShape<'a>| s.bound(),
    NewLevels: |run: &NewLevels<'a>| run.call.literals,
    Forward: |run: &Forward<'a>| run.call.literals,
    Backward: |run: &Backward<'a>| run.call.literals,
    Prepare: |prepare: &Prepare<'a>| prepare.literals
);

/// What a slot takes.
pub(in crate::program) fn taken(slot: &Slot) -> &'static str {
    if slot.literal { "a literal" } else { "a tensor" }
}

impl Program {
    /// The literals among the variables of each slot; nothing at all if there is none.
    pub(crate) fn literals(&self, groups: &[Vec<VarId>]) -> Vec<Vec<Literal>> {
        let literal = |&var: &VarId| match &self.vars.get(var.0 as usize)?.kind {
            VarKind::Literal(literal) => Some(literal.clone()),
            VarKind::Tensor(_) => None,
        };
        let found: Vec<Vec<Literal>> =
            groups.iter().map(|vars| vars.iter().filter_map(literal).collect()).collect();
        if found.iter().all(Vec::is_empty) { Vec::new() } else { found }
    }

    /// Checks that a variable may be bound to a slot: a literal only to a slot for literals, and no tensor.
    pub(in crate::program) fn check_kind(&self, desc: &VarDesc, slot: &Slot) -> Result<()> {
        let got = match &desc.kind {
            VarKind::Tensor(_) if !slot.literal => return Ok(()),
            VarKind::Literal(_) if slot.literal => return Ok(()),
            VarKind::Tensor(spec) => format!("a tensor, {spec}"),
            VarKind::Literal(literal) => format!("a literal, {}", literal.told()),
        };
        Err(malformed(format!("input `{}`", slot.name), taken(slot), got).variable(&desc.name))
    }

    /// Checks how many variables are bound to each slot, and that each is of the slot's kind.
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

    /// The tensors among the variables that an operator reads, in order.
    pub(crate) fn tensors(&self, reads: impl Iterator<Item = VarId>) -> impl Iterator<Item = VarId> {
        reads.filter(|&var| self.var(var).spec().is_some())
    }
}
