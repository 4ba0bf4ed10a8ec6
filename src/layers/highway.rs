//! The highway layer: for each number of a row, a gate mixes the transformed number with the unchanged number.

use super::layer::layer_name;
use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Activation, Instance, Layer, Linear, init};
use crate::program::{Builder, Var};

/// Options of [`Builder::highway`] (Srivastava et al., "Training very deep networks", 2015):
/// y = g ∘ f(x · W + b) + (1 − g) ∘ x, with g = σ(x · W_g + b_g).
#[derive(Debug, Clone, PartialEq)]
pub struct Highway {
    activation: Activation,
    gate_bias: f64,
    name: Option<String>,
}

impl Default for Highway {
    fn default() -> Self {
        Self::new()
    }
}

impl Highway {
    /// Makes a highway layer with ReLU as f; its output is as wide as its input. The bias of the gates starts at −1, so that g
    /// starts around σ(−1) ≈ 0.27 and most of x passes unchanged.
    pub fn new() -> Self {
        Self { activation: Activation::Relu, gate_bias: -1.0, name: None }
    }

    /// Sets the activation f (default: ReLU).
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Sets the initial bias of the gates, a finite number.
    #[must_use]
    pub fn gate_bias(self, gate_bias: f64) -> Self {
        Self { gate_bias, ..self }
    }
}

layer_name!(Highway, "highway");

impl Layer for Highway {
    /// The linear layer of the gates (W_g, b_g), and the linear layer inside f (W, b).
    type Weights = [Instance<Linear>; 2];

    fn kind(&self) -> &str {
        "highway"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
        let width = net.spec(x)?.width();
        if !self.gate_bias.is_finite() {
            let got = self.gate_bias.to_string();
            net.refuse(Error::new("gate bias of layer `highway`", "a finite number", got));
            return None;
        }
        let gate = Linear::new(width).named("gate").bias_init(init::constant(self.gate_bias));
        Some([net.layer(gate), net.layer(Linear::new(width).named("change"))])
    }

    fn run(&self, _: &Builder, x: Var, [gate, change]: &Self::Weights) -> Var {
        let g = gate.of(x).sigmoid();
        // x + g · (f − x) has one product less than g · f + (1 − g) · x.
        x + g * (self.activation.of(change.of(x)) - x)
    }
}

builder_methods! { Highway, Builder, Var;
    /// Applies a highway layer to each row: y = g ∘ f(x · W + b) + (1 − g) ∘ x, with g = σ(x · W_g + b_g). The output has the
    /// LoD of `x`. Parameters: `gate.weight` and `change.weight` `[width, width]`, `gate.bias` and `change.bias` `[width]`.
    ///
    /// ```
    /// use unpadded::layers::Highway;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.highway(Highway::new()).highway(Highway::new().gate_bias(-2.0));
    /// assert!(net.describe(y).ends_with("f32[rows0, 8] lod(0)"));
    /// assert_eq!(net.finish()?.parameters().count(), 8);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold rows of floats, or the initial bias of the gates is not finite.
    pub fn highway(&self, x: Var, options: Highway) -> Var {
        self.layer(options).run(self, x)
    }
}
