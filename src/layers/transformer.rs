//! The transformer block: attention, then a feed-forward network of two linear layers. By default, a norm precedes the
//! attention and the network; a residual connection surrounds each of them.

use super::layer::layer_name;
use crate::builder_methods;
use crate::layers::{Attention, Instance, Layer, Linear, Norm};
use crate::program::{Builder, Var};

/// Options of the transformer block ([`Builder::transformer_block`]).
#[derive(Debug, Clone, PartialEq)]
pub struct TransformerBlock {
    attention: Attention,
    over: Option<Attention>,
    hidden: Option<usize>,
    norm: Norm,
    norm_after: bool,
    dropout: f64,
    name: Option<String>,
}

/// The layers of a [`TransformerBlock`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransformerWeights {
    /// The norm of the self-attention, and the self-attention within each sequence.
    pub attention: (Instance<Norm>, Instance<Attention>),
    /// The norm of the cross-attention, and the cross-attention to the rows of a memory; `None` without
    /// [`TransformerBlock::over`].
    pub over: Option<(Instance<Norm>, Instance<Attention>)>,
    /// The norm of the feed-forward network, and the two linear layers of the network.
    pub feed_forward: (Instance<Norm>, Instance<Linear>, Instance<Linear>),
}

impl TransformerBlock {
    /// Makes a transformer block with the self-attention `attention`; a number n converts into an attention with n heads. The
    /// inner width is four times the width of the input. A layer norm precedes each attention and the feed-forward network.
    pub fn new(attention: impl Into<Attention>) -> Self {
        Self {
            attention: attention.into(),
            over: None,
            hidden: None,
            norm: Norm::layer(),
            norm_after: false,
            dropout: 0.0,
            name: None,
        }
    }

    /// Adds cross-attention after the self-attention, as in a decoder: `memory` is an attention with [`Attention::over`].
    #[must_use]
    pub fn over(self, memory: Attention) -> Self {
        Self { over: Some(memory), ..self }
    }

    /// Sets the inner width: the number of columns between the two linear layers (default: four times the width of the input).
    #[must_use]
    pub fn hidden(self, hidden: usize) -> Self {
        Self { hidden: Some(hidden), ..self }
    }

    /// Sets the kind of norm in the block (default: [`Norm::layer`]).
    #[must_use]
    pub fn norm(self, norm: Norm) -> Self {
        Self { norm, ..self }
    }

    /// Places each norm after the residual sum, as in Vaswani et al. (2017), instead of before the attention or the
    /// feed-forward network.
    #[must_use]
    pub fn norm_after(self) -> Self {
        Self { norm_after: true, ..self }
    }

    /// Sets the dropout rate for the outputs of the attention and of the feed-forward network, and between the two
    /// linear layers of the network.
    #[must_use]
    pub fn dropout(self, rate: f64) -> Self {
        Self { dropout: rate, ..self }
    }

    /// Returns x + part(norm(x)), or, with the norm after the sum, norm(x + part(x)).
    fn around(&self, x: Var, norm: &Instance<Norm>, part: impl FnOnce(Var) -> Var) -> Var {
        if self.norm_after {
            return norm.of(x + self.dropped(part(x)));
        }
        x + self.dropped(part(norm.of(x)))
    }

    fn dropped(&self, x: Var) -> Var {
        if self.dropout == 0.0 { x } else { x.dropout(self.dropout) }
    }
}

layer_name!(TransformerBlock, "transformer_block");

impl From<usize> for TransformerBlock {
    fn from(heads: usize) -> Self {
        Self::new(heads)
    }
}

impl Layer for TransformerBlock {
    type Weights = TransformerWeights;

    fn kind(&self) -> &str {
        "transformer_block"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<TransformerWeights> {
        let width = net.spec(x)?.width();
        let norm = |name: &str| net.layer(self.norm.clone().named(name));
        let attention = (norm("norm_attention"), net.layer(self.attention.clone().named("attention")));
        let over = self.over.clone().map(|over| (norm("norm_over"), net.layer(over.named("over"))));
        let inner = Linear::new(self.hidden.unwrap_or(4 * width)).named("inner");
        let feed_forward =
            (norm("norm_linear"), net.layer(inner), net.layer(Linear::new(width).named("outer")));
        Some(TransformerWeights { attention, over, feed_forward })
    }

    fn run(&self, _: &Builder, x: Var, weights: &TransformerWeights) -> Var {
        let TransformerWeights { attention: (norm, attention), over, feed_forward } = weights;
        let mut y = self.around(x, norm, |x| attention.of(x));
        if let Some((norm, over)) = over {
            y = self.around(y, norm, |x| over.of(x));
        }
        let (norm, inner, outer) = feed_forward;
        self.around(y, norm, |x| outer.of(self.dropped(inner.of(x).gelu())))
    }
}

builder_methods! { TransformerBlock, Builder, Var;
    /// Applies a transformer block (Vaswani et al., "Attention is all you need", 2017). The output has the rows and the LoD of
    /// `x`: y = x + attention(norm(x)), and out = y + gelu(norm(y)·W₁ + b₁)·W₂ + b₂. The norms are before the attention and the
    /// feed-forward network (Xiong et al., "On layer normalization in the transformer architecture", 2020). In a transformer
    /// block, only the [`Attention`] uses the positions of rows, if it is causal, rotary, relative or has a window.
    /// Parameters: the parameters of [`Attention`], with the prefix `attention` and, for a memory, also `over`; `inner`
    /// `[width, 4 · width]` and `outer` `[4 · width, width]`, each a weight and a bias. Each norm has a gain and a bias.
    ///
    /// ```
    /// use unpadded::layers::{Attention, TransformerBlock};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[64], 1);
    /// let encoded = x.transformer_block(TransformerBlock::new(Attention::new(8).rotary()).dropout(0.1)).transformer_block(8);
    /// let y = net.feed("y", DType::F32, &[64], 1);
    /// let decoder = TransformerBlock::new(Attention::new(8).causal().rotary()).over(Attention::new(8).over(encoded));
    /// assert_eq!(net.spec(y.transformer_block(decoder)), net.spec(y));
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`attention`](Self::attention).
    pub fn transformer_block(&self, x: Var, options: impl Into<TransformerBlock>) -> Var {
        self.layer(options.into()).run(self, x)
    }
}
