//! Literals in an operator's input slots, as the operator reads them.

use super::signature::{Signature, Slot};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::attributes::{Literal, LiteralRef};

/// The literals of a call's input slots; empty for a slot for tensors, and for a call without literals.
#[derive(Clone, Copy)]
pub(crate) struct Literals<'a> {
    pub(crate) signature: Signature,
    pub(crate) values: &'a [Vec<Literal>],
}

impl<'a> Literals<'a> {
    pub(super) fn all(self, slot: usize) -> impl ExactSizeIterator<Item = LiteralRef<'a>> + use<'a> {
        let name = self.signature.inputs[slot].name;
        let values: &'a [Literal] = self.values.get(slot).map_or(&[], Vec::as_slice);
        values.iter().map(move |value| LiteralRef::input(name, value))
    }

    #[track_caller]
    pub(super) fn one(self, slot: usize) -> Result<LiteralRef<'a>> {
        let Slot { name, literal, .. } = self.signature.inputs[slot];
        let got = if literal { "none" } else { "a slot for tensors" };
        let none = || Error::of(ErrorKind::Program, format!("input `{name}`"), "a literal", got);
        self.all(slot).next().ok_or_else(none).at_caller()
    }
}

/// The methods of a context that read the literals of its call.
macro_rules! literal_methods {
    ($context:ident: $literals:expr) => {
        impl<'a> $context<'a> {
            /// The literal of input slot `slot`, which takes one literal.
            ///
            /// # Errors
            /// If none is bound, or the slot takes tensors.
            #[track_caller]
            pub fn literal(&self, slot: usize) -> $crate::error::Result<$crate::operator::LiteralRef<'a>> {
                let literals: $crate::operator::literals::Literals<'a> = $literals(self);
                $crate::error::AtCaller::at_caller(literals.one(slot))
            }

            /// The literals of input slot `slot`, in order.
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
