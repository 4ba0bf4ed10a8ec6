//! The literals (constants of the program) in an operator's input slots, and the methods by which the operator reads
//! them.

use super::signature::{Signature, Slot};
use super::slots::{missing_slot, name_of};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::attributes::{Literal, LiteralRef};

/// The literals in the input slots of a call; empty for a slot that takes tensors.
#[derive(Clone, Copy)]
pub(crate) struct Literals<'a> {
    pub(crate) signature: Signature,
    pub(crate) values: &'a [Vec<Literal>],
}

impl<'a> Literals<'a> {
    pub(super) fn all(self, slot: usize) -> impl ExactSizeIterator<Item = LiteralRef<'a>> + use<'a> {
        let name = name_of(self.signature.inputs, slot);
        let values: &'a [Literal] = self.values.get(slot).map_or(&[], Vec::as_slice);
        values.iter().map(move |value| LiteralRef::input(name, value))
    }

    #[track_caller]
    pub(super) fn one(self, slot: usize) -> Result<LiteralRef<'a>> {
        let Some(&Slot { name, literal, .. }) = self.signature.inputs.get(slot) else {
            return Err(missing_slot(self.signature, slot)).at_caller();
        };
        let got = if literal { "none" } else { "a slot for tensors" };
        let none = || Error::of(ErrorKind::Program, format!("input `{name}`"), "a literal", got);
        self.all(slot).next().ok_or_else(none).at_caller()
    }
}

/// Defines the methods by which a context reads the literals of its call.
macro_rules! literal_methods {
    ($context:ident: $literals:expr) => {
        impl<'a> $context<'a> {
            /// Returns the literal in input slot `slot`, which takes one literal.
            ///
            /// # Errors
            /// Fails if no literal is bound, or if the slot takes tensors.
            #[track_caller]
            pub fn literal(&self, slot: usize) -> $crate::error::Result<$crate::operator::LiteralRef<'a>> {
                let literals: $crate::operator::literals::Literals<'a> = $literals(self);
                $crate::error::AtCaller::at_caller(literals.one(slot))
            }

            /// Iterates over the literals in input slot `slot`, in order.
            pub fn literals(
                &self,
                slot: usize,
            ) -> impl ExactSizeIterator<Item = $crate::operator::LiteralRef<'a>> + use<'a> {
                let literals: $crate::operator::literals::Literals<'a> = $literals(self);
                literals.all(slot)
            }
        }
    };
}
pub(super) use literal_methods;
