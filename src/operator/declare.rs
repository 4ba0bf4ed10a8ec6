//! The declaration of an operator: its kind, documentation, attributes and slots. [`operator!`](crate::operator!) writes it.

use super::signature::Signature;
use crate::error::Result;
use crate::operator::attributes::Attributes;

/// The declaration of an operator type, available without an instance of the type.
#[derive(Debug)]
pub struct Declaration {
    /// The name stored in programs. Kinds are unique in a registry.
    pub kind: &'static str,
    /// The documentation: the formula, the contents of the slots, a worked example.
    pub text: &'static str,
    /// The names of the operator's attributes.
    pub attributes: &'static [&'static str],
    /// The slots that the operator reads and writes.
    pub signature: Signature,
    /// The kinds whose kernels for other storages this type provides. If such a kind is appended to variables that only this type
    /// has a kernel for, this type is appended instead. Both types have the same slots and attributes.
    pub stands_for: &'static [&'static str],
}

/// An operator type with its [`Declaration`]. [`operator!`](crate::operator!) writes the implementation.
pub trait DeclaredOp: Send + Sync + 'static {
    /// The declaration of the type.
    fn declaration() -> &'static Declaration
    where
        Self: Sized;

    /// Reads the operator's attributes.
    ///
    /// # Errors
    /// If an attribute is missing, of the wrong type or out of range.
    fn parse(attributes: &Attributes) -> Result<Self>
    where
        Self: Sized;

    /// The name stored in programs.
    fn kind() -> &'static str
    where
        Self: Sized,
    {
        Self::declaration().kind
    }

    /// The declaration of this operator's type.
    fn declared(&self) -> &'static Declaration;

    /// The slots that the operator reads and writes.
    fn signature(&self) -> Signature {
        self.declared().signature
    }
}
