//! The declaration of an operator: its kind, documentation, attributes and slots. [`operator!`](crate::operator!) writes it.

use super::signature::Signature;
use crate::error::Result;
use crate::operator::attributes::Attributes;

/// What an operator type says of itself before there is one.
#[derive(Debug)]
pub struct Declaration {
    /// The name stored in programs. Two operators of one registry cannot share it.
    pub kind: &'static str,
    /// The documentation: the formula, what the slots hold, a worked example.
    pub text: &'static str,
    /// The names of its attributes.
    pub attributes: &'static [&'static str],
    /// The slots it reads and writes.
    pub signature: Signature,
    /// The kinds whose kernels for other storages it has: where one of them is appended to variables that it has no kernel for
    /// itself, and this one has, this one is appended. It has the same slots and attributes.
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
    /// If one is missing, of the wrong type or out of range.
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

    /// The slots it reads and writes.
    fn signature(&self) -> Signature {
        self.declared().signature
    }
}
