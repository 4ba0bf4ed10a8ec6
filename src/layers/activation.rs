//! Which function a cell takes.

use crate::error::Result;
use crate::program::{Builder, Var};

/// A function of every number, by name, for the options of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// max(x, 0).
    Relu,
    /// x itself.
    Identity,
}

impl Activation {
    /// Its value at `x`.
    pub(super) fn of(self, net: &Builder, x: Var) -> Result<Var> {
        match self {
            Activation::Sigmoid => net.sigmoid(x),
            Activation::Tanh => net.tanh(x),
            Activation::Relu => net.relu(x),
            Activation::Identity => Ok(x),
        }
    }
}
