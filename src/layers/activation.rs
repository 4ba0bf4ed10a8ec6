//! The activation functions that the options of layers choose from.

use crate::program::Var;

/// An activation function, which a layer applies to every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// The sigmoid function, 1 / (1 + e^-x).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// max(x, 0).
    Relu,
    /// x itself.
    Identity,
}

impl Activation {
    /// Appends the operator that applies the activation function to `x`.
    pub(super) fn of(self, x: Var) -> Var {
        match self {
            Activation::Sigmoid => x.sigmoid(),
            Activation::Tanh => x.tanh(),
            Activation::Relu => x.relu(),
            Activation::Identity => x,
        }
    }
}
