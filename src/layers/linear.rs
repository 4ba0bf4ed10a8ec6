//! The linear layer: x · W + b.

use super::layer::{layer_name, wide};
use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Embedding, Instance, Layer, init};
use crate::operator::Extent;
use crate::program::{Builder, Initializer, Var};

/// Options of the linear layer ([`Builder::linear`]). A number n converts into the options of a layer with n output columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    to: LinearTarget,
    bias: Option<Initializer>,
    weight: Option<Initializer>,
    name: Option<String>,
}

/// The output columns of a linear layer, and the source of its weight.
#[derive(Debug, Clone, PartialEq)]
enum LinearTarget {
    /// The layer has a given number of output columns, and a weight of its own.
    Width(usize),
    /// The layer has one output column for each row of an embedding's table; its weight is the transposed table.
    Words(Instance<Embedding>),
}

impl Linear {
    /// Makes a linear layer with `width` output columns. The weight is initialized by [`init::xavier`], the bias with zeros.
    pub fn new(width: usize) -> Self {
        Self { to: LinearTarget::Width(width), bias: Some(init::zeros()), weight: None, name: None }
    }

    /// Makes a linear layer with tied weights: x · Wᵀ + b, where W `[vocabulary, width]` is the table of the embedding. The
    /// output has one column per word: the logits of a language model with tied input and output weights (Press and Wolf,
    /// 2017). The table is not copied. The gradient of the table is dense: the sum of its gradient as an embedding and its
    /// gradient as a weight.
    ///
    /// ```
    /// use unpadded::layers::{Embedding, Linear};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let words = net.feed("words", DType::I64, &[], 1);
    /// let embedding = net.layer(Embedding::new(1000, 64));
    /// let logits = embedding.of(words).lstm(64).linear(Linear::tied(&embedding));
    /// assert_eq!(net.describe(logits), "`linear_3`: f32[rows0, 1000] lod(0)");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn tied(embedding: &Instance<Embedding>) -> Self {
        Self { to: LinearTarget::Words(embedding.clone()), ..Self::new(0) }
    }

    /// Omits the bias.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }

    /// Sets the initializer of the weight `[in, out]`. For a layer with tied weights, a weight initializer is an error: the
    /// embedding initializes the table.
    #[must_use]
    pub fn weight_init(self, weight: Initializer) -> Self {
        Self { weight: Some(weight), ..self }
    }

    /// Sets the initializer of the bias.
    #[must_use]
    pub fn bias_init(self, bias: Initializer) -> Self {
        Self { bias: Some(bias), ..self }
    }
}

layer_name!(Linear, "linear");

impl From<usize> for Linear {
    fn from(width: usize) -> Self {
        Self::new(width)
    }
}

impl Layer for Linear {
    /// The weight `[in, out]`, or `[out, in]` if it is tied to an embedding, and the bias `[out]`.
    type Weights = (Var, Option<Var>);

    fn kind(&self) -> &str {
        "linear"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
        let spec = net.spec(x)?;
        let (weight, width) = match &self.to {
            &LinearTarget::Width(width) => {
                wide(net, "linear", width)?;
                let start = self.weight.clone().unwrap_or_else(init::xavier);
                (net.parameter("weight", spec.dtype, &[spec.width(), width], start), width)
            }
            LinearTarget::Words(embedding) => {
                if self.weight.is_some() {
                    let (what, expected) =
                        ("initialiser of the weight of layer `linear`", "none, since the weight is tied");
                    net.refuse(Error::new(what, expected, "an initialiser"));
                    return None;
                }
                let table = embedding.ready(net, x)?;
                let spec = net.spec(table)?;
                let &[Extent::Known(words), Extent::Known(_)] = spec.shape.as_slice() else {
                    let expected = "a table [vocabulary, width]";
                    let error =
                        Error::new("embedding that layer `linear` is tied to", expected, spec.to_string());
                    net.refuse(error.variable(net.name_of(table)));
                    return None;
                };
                (table, words)
            }
        };
        let bias = self.bias.clone().map(|start| net.parameter("bias", spec.dtype, &[width], start));
        Some((weight, bias))
    }

    fn run(&self, net: &Builder, x: Var, &(weight, bias): &Self::Weights) -> Var {
        // Weights from `Builder::layer_with`, or weights that were made with other options, may have a bias that the options
        // omit, or lack a bias that the options require.
        if bias.is_some() != self.bias.is_some() {
            let named = |there: bool| if there { "a bias" } else { "no bias" };
            let expected = format!("{}, as the options say", named(self.bias.is_some()));
            return net.refuse(Error::new("bias of layer `linear`", expected, named(bias.is_some())));
        }
        if let (&LinearTarget::Width(width), Some(spec)) = (&self.to, net.spec_of_tensor(weight))
            && spec.width() != width
        {
            let error = Error::new("weight of layer `linear`", format!("{width} columns"), spec.to_string());
            return net.refuse(error.variable(net.name_of(weight)));
        }
        match self.to {
            LinearTarget::Width(_) => net.product(x, weight, bias),
            LinearTarget::Words(_) => net.product_transposed(x, weight, bias),
        }
    }
}

builder_methods! { Linear, Builder, Var;
    /// Returns x · W + b, computed row by row. The output has the LoD of `x`. Parameters: `weight` `[in, out]`, `bias` `[out]`.
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
