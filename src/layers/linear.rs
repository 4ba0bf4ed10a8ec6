//! A product with a weight matrix, and a bias.

use crate::builder_methods;
use crate::layers::{Layer, init, wide};
use crate::program::{Builder, Initializer, Var};

/// Options of [`Builder::linear`]. A width alone is one too.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    width: usize,
    bias: Option<Initializer>,
    weight: Initializer,
    name: Option<String>,
}

impl Linear {
    /// Rows of `width` numbers, with a bias that starts at zero; the weight starts by [`init::xavier`].
    pub fn new(width: usize) -> Self {
        Self { width, bias: Some(init::zeros()), weight: init::xavier(), name: None }
    }

    /// No bias.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }

    /// How the weight `[in, out]` starts.
    #[must_use]
    pub fn weight_init(self, weight: Initializer) -> Self {
        Self { weight, ..self }
    }

    /// With a bias that starts so.
    #[must_use]
    pub fn bias_init(self, bias: Initializer) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// The first part of the parameters' names, instead of `linear_0` and so on.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

impl From<usize> for Linear {
    fn from(width: usize) -> Self {
        Self::new(width)
    }
}

impl Layer for Linear {
    /// The weight `[in, out]` and the bias `[out]`.
    type Weights = (Var, Option<Var>);

    fn kind(&self) -> &str {
        "linear"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
        let (spec, width) = (net.spec(x)?, self.width);
        wide(net, "linear", width)?;
        let weight = net.parameter("weight", spec.dtype, &[spec.width(), width], self.weight.clone());
        let bias = self.bias.clone().map(|start| net.parameter("bias", spec.dtype, &[width], start));
        Some((weight, bias))
    }

    fn run(&self, net: &Builder, x: Var, &(weight, bias): &Self::Weights) -> Var {
        net.product(x, weight, bias)
    }
}

builder_methods! { Builder, Var;
    /// x · W + b, row by row: the LoD stays. Parameters: `weight` `[in, out]`, `bias` `[out]`.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// use unpadded::layers::Linear;
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.linear(16).linear(Linear::new(2).without_bias().named("out"));
    /// assert_eq!(net.describe(y), "`linear_2`: f32[rows0, 2] lod(0)");
    /// assert!(net.finish()?.find("out.weight").is_some());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold rows of floats, or the width is 0.
    pub fn linear(&self, x: Var, options: impl Into<Linear>) -> Var {
        self.layer(options.into()).run(self, x)
    }
}
