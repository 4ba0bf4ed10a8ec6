//! Small cases of an operator, for the catalogue-wide test.

use super::attributes::{Attributes, Literal};
use crate::tensor::Variable;

/// An operand of a sample or of a direct call.
#[derive(Debug, Clone)]
pub struct Operand {
    /// The slot it goes to.
    pub slot: String,
    /// Its value; floats are f64 and cast where a test wants f32.
    pub value: Variable,
    /// Whether its rows are those of a batch; else it is a constant, like a parameter.
    pub batched: bool,
    /// A literal, for a slot that takes them; nobody reads `value` then.
    pub literal: Option<Literal>,
}

impl Operand {
    /// An operand whose rows are those of a batch.
    pub fn batch(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { slot: slot.to_owned(), value: value.into(), batched: true, literal: None }
    }

    /// A constant operand, like a parameter.
    pub fn constant(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { batched: false, ..Self::batch(slot, value) }
    }

    /// A literal.
    pub fn literal(slot: &str, value: impl Into<Literal>) -> Self {
        Operand { literal: Some(value.into()), ..Self::constant(slot, ndarray::arr0(false)) }
    }
}

/// One call of an operator: attributes and operands.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// What the case shows.
    pub name: String,
    /// The operator's attributes.
    pub attributes: Attributes,
    /// What it reads.
    pub operands: Vec<Operand>,
    /// No gradient is checked: the case stands on a kink or at a tie.
    pub forward_only: bool,
}

impl Sample {
    /// A case without operands.
    pub fn new(name: &str, attributes: Attributes) -> Self {
        Self { name: name.to_owned(), attributes, ..Self::default() }
    }

    /// Adds a batched operand: its rows are sequences, or the rows of sequences.
    #[must_use]
    pub fn batch(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::batch(slot, value));
        self
    }

    /// Adds a constant operand.
    #[must_use]
    pub fn constant(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::constant(slot, value));
        self
    }

    /// Adds a literal.
    #[must_use]
    pub fn literal(mut self, slot: &str, value: impl Into<Literal>) -> Self {
        self.operands.push(Operand::literal(slot, value));
        self
    }

    /// Leaves the gradients unchecked.
    #[must_use]
    pub fn without_gradient(mut self) -> Self {
        self.forward_only = true;
        self
    }
}
