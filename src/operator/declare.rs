//! The declaration of an operator: its kind, documentation, attributes and slots. The macro [`operator!`](crate::operator!)
//! writes the declaration.

use super::signature::Signature;
use crate::error::Result;
use crate::operator::attributes::Attributes;

/// The declaration of an operator type, which can be read without an instance of the type.
#[derive(Debug)]
pub struct Declaration {
    /// The kind: the name of the operator in programs. The kinds of a registry are unique.
    pub kind: &'static str,
    /// The documentation of the operator: the formula, the contents of the slots, and a worked example.
    pub text: &'static str,
    /// The names of the operator's attributes.
    pub attributes: &'static [&'static str],
    /// The slots that the operator reads and writes.
    pub signature: Signature,
    /// The kinds that this type replaces for other storages of the inputs: for example, `sparse_linear` replaces
    /// `linear`. If an operator of a listed kind is appended, but only this type has a kernel for the storages of the
    /// inputs, the builder appends an operator of this type instead. The listed kinds have the same slots and
    /// attributes as this type.
    pub stands_for: &'static [&'static str],
}

/// An operator type with a [`Declaration`]. The macro [`operator!`](crate::operator!) implements this trait.
pub trait DeclaredOp: Send + Sync + 'static {
    /// Returns the declaration of the operator type.
    fn declaration() -> &'static Declaration
    where
        Self: Sized;

    /// Makes an operator of this type from its attributes.
    ///
    /// # Errors
    /// Fails if an attribute is missing, has the wrong type or is out of range.
    fn parse(attributes: &Attributes) -> Result<Self>
    where
        Self: Sized;

    /// Returns the kind: the name of the operator in programs.
    fn kind() -> &'static str
    where
        Self: Sized,
    {
        Self::declaration().kind
    }

    /// Returns the declaration of the operator's type.
    fn declared(&self) -> &'static Declaration;

    /// Returns the slots that the operator reads and writes.
    fn signature(&self) -> Signature {
        self.declared().signature
    }
}
