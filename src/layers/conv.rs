//! The convolution layer, which convolves the rows of each sequence with a learned filter.

use super::layer::{layer_name, wide};
use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Layer, init};
use crate::ops::Context;
use crate::program::{Builder, Initializer, Var};

/// Options of the convolution layer ([`Builder::conv`]): window, groups and initializers.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv {
    context: Context,
    channels: usize,
    bias: Option<Initializer>,
    weight: Option<Initializer>,
    padding: Option<Initializer>,
    name: Option<String>,
}

impl Conv {
    /// Makes a convolution to `channels` columns, with a window of `length` rows around each row. The weight is initialized by
    /// [`init::xavier`], the bias with zeros. Rows of the window beyond the ends of a sequence are zeros.
    pub fn new(length: usize, channels: usize) -> Self {
        let context = Context::new(length);
        Self { context, channels, bias: Some(init::zeros()), weight: None, padding: None, name: None }
    }

    /// Makes the convolution causal: the window has the current row and earlier rows, so no row of the output depends on a
    /// later row.
    #[must_use]
    pub fn causal(self) -> Self {
        Self { context: self.context.causal(), ..self }
    }

    /// Sets the first row of the window, relative to the current row (negative: earlier).
    #[must_use]
    pub fn starting_at(self, start: i64) -> Self {
        Self { context: self.context.starting_at(start), ..self }
    }

    /// Sets the dilation: the window has every `dilation`-th row around the current row (default: 1, every row).
    #[must_use]
    pub fn dilation(self, dilation: usize) -> Self {
        Self { context: self.context.dilation(dilation), ..self }
    }

    /// Divides the columns into `groups` groups of equal width; each group of output columns depends on one group of input
    /// columns. With one group per column, the convolution is depthwise.
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        Self { context: self.context.groups(groups), ..self }
    }

    /// Omits the bias.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }

    /// Makes the rows beyond the ends of a sequence a learned parameter, `padding`, with the given initializer (default: the
    /// rows are zeros).
    #[must_use]
    pub fn padding_init(self, padding: Initializer) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// Sets the initializer of the weight `[length · in / groups, channels]`.
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

layer_name!(Conv, "conv");

impl Layer for Conv {
    /// The weight `[length · in / groups, channels]`, the bias `[channels]` and the padding rows `[above + below, in]`. `above`
    /// and `below` are the numbers of rows by which the window reaches beyond the start and the end of a sequence.
    type Weights = (Var, Option<Var>, Option<Var>);

    fn kind(&self) -> &str {
        "conv"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
        let spec = net.spec(x)?;
        wide(net, "conv", self.channels)?;
        let (width, groups) = (spec.width(), self.context.divides().1);
        let each = width.checked_div(groups).filter(|_| width.is_multiple_of(groups));
        let Some(each) = each else {
            let expected = format!("a divisor of {width}, the width of its input");
            net.refuse(Error::new("groups of layer `conv`", expected, groups.to_string()));
            return None;
        };
        let length = self.context.length();
        let Some(height) = each.checked_mul(length) else {
            let expected = format!("at most {}, of rows of {each} columns", usize::MAX / each);
            net.refuse(Error::new("length of layer `conv`", expected, length.to_string()));
            return None;
        };
        let start = |given: &Option<Initializer>| given.clone().unwrap_or_else(init::xavier);
        let weight = net.parameter("weight", spec.dtype, &[height, self.channels], start(&self.weight));
        let bias = self.bias.clone().map(|start| net.parameter("bias", spec.dtype, &[self.channels], start));
        let (above, below) = self.context.padding_rows();
        let padding = self.padding.clone();
        let padding =
            padding.map(|start| net.parameter("padding", spec.dtype, &[above + below, width], start));
        Some((weight, bias, padding))
    }

    fn run(&self, net: &Builder, x: Var, &(weight, bias, padding): &Self::Weights) -> Var {
        net.sequence_conv_with(x, weight, bias, padding, self.context)
    }
}

builder_methods! { Conv, Builder, Var;
    /// Convolution over the rows of each sequence of the last level: row t of the output is Σ_j x_(t + start + j · dilation) ·
    /// W_j + b, for j from 0 to `length` − 1. The window is around row t, or, if causal, ends at row t. The output has the LoD
    /// of `x`; rows beyond the ends of a sequence are zeros, unless they are learned. Parameters: `weight`
    /// `[length · in / groups, channels]`, `bias` `[channels]`, and `padding` if the rows beyond the ends of a sequence are
    /// learned. [`sequence_conv_with`](Self::sequence_conv_with) has the whole formula.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// use unpadded::layers::Conv;
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.conv(Conv::new(5, 16)).relu().conv(Conv::new(2, 32).dilation(4).causal().named("wide"));
    /// assert!(net.describe(y).ends_with("f32[rows0, 32] lod(0)"));
    /// assert!(net.finish()?.find("wide.weight").is_some());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` has no LoD or does not hold rows of floats, an option is 0, or the number of groups does not divide the
    /// number of columns of the input and of the output.
    #[doc(alias("conv1d", "tcn"))]
    pub fn conv(&self, x: Var, options: Conv) -> Var {
        self.layer(options).run(self, x)
    }
}
