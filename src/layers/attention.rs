//! Multi-head attention: the projections before and after [`dot_attention`](Builder::dot_attention).

use super::layer::{layer_name, wide};
use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Instance, Layer, Linear, init};
use crate::ops::DotAttention;
use crate::program::{Builder, Var};

/// Options of the attention layer ([`Builder::attention`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    heads: usize,
    width: Option<usize>,
    memory: Option<Var>,
    scores: DotAttention,
    rotary: bool,
    relative: Option<usize>,
    bias: bool,
    name: Option<String>,
}

/// The parameters of an [`Attention`]: the layers that project to queries, keys, values and output, and the table of relative
/// position biases.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionWeights {
    /// The linear layer that projects the input to the queries.
    pub query: Instance<Linear>,
    /// The linear layer that projects the input, or the memory, to the keys.
    pub key: Instance<Linear>,
    /// The linear layer that projects the input, or the memory, to the values.
    pub value: Instance<Linear>,
    /// The linear layer that projects the weighted sums of the values to the output.
    pub out: Instance<Linear>,
    /// The relative position biases `[heads, 2r + 1]`: for each head and each distance from −r to r, a number that is added to
    /// the scores; `None` without [`Attention::relative`].
    pub relative: Option<Var>,
}

impl Attention {
    /// Makes self-attention within each sequence, with `heads` heads and with biases; the output is as wide as the input.
    pub fn new(heads: usize) -> Self {
        let scores = DotAttention::heads(heads);
        Self {
            heads,
            width: None,
            memory: None,
            scores,
            rotary: false,
            relative: None,
            bias: true,
            name: None,
        }
    }

    /// Sets the width of the output, which is also the width of all heads together (default: the width of the input).
    #[must_use]
    pub fn width(self, width: usize) -> Self {
        Self { width: Some(width), ..self }
    }

    /// Makes cross-attention: the layer attends to the rows of `memory`, such as an encoder's output. The input of the
    /// layer has as many sequences as `memory`, of any lengths, or has one row per sequence of `memory`.
    #[must_use]
    pub fn over(self, memory: Var) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Makes attention causal: a row does not attend to later rows.
    #[must_use]
    pub fn causal(self) -> Self {
        Self { scores: self.scores.causal(), ..self }
    }

    /// Limits attention to a window: a row attends to itself, to `rows` earlier rows and, unless attention is causal, to `rows`
    /// later rows.
    #[must_use]
    pub fn window(self, rows: usize) -> Self {
        Self { scores: self.scores.window(rows), ..self }
    }

    /// Applies rotary position embeddings: each query and each key is [rotated](Builder::rotary) by angles that depend on its
    /// position.
    #[must_use]
    pub fn rotary(self) -> Self {
        Self { rotary: true, ..self }
    }

    /// Adds relative position biases: for each head and each distance from query to key, a learned number is added to the
    /// score. Distances are clipped to ±`radius` rows. The relative position biases start at zero.
    #[must_use]
    pub fn relative(self, radius: usize) -> Self {
        Self { relative: Some(radius), ..self }
    }

    /// Omits the biases of the projections.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }
}

layer_name!(Attention, "attention");

impl From<usize> for Attention {
    fn from(heads: usize) -> Self {
        Self::new(heads)
    }
}

impl Layer for Attention {
    type Weights = AttentionWeights;

    fn kind(&self) -> &str {
        "attention"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<AttentionWeights> {
        let spec = net.spec(x)?;
        let width = self.width.unwrap_or(spec.width());
        wide(net, "attention", width)?;
        if self.heads == 0 || !width.is_multiple_of(self.heads) {
            let (expected, got) = (format!("a divisor of the width {width}"), self.heads.to_string());
            net.refuse(Error::new("heads of layer `attention`", expected, got));
            return None;
        }
        let linear = |name: &str| {
            let linear = Linear::new(width).named(name);
            net.layer(if self.bias { linear } else { linear.without_bias() })
        };
        let distances = |radius: usize| {
            let count = radius.checked_mul(2).and_then(|both| both.checked_add(1));
            if count.is_none() {
                let expected = format!("at most {}", (usize::MAX - 1) / 2);
                net.refuse(Error::new("`relative` of layer `attention`", expected, radius.to_string()));
            }
            count
        };
        let relative = match self.relative {
            Some(radius) => {
                let dims = [self.heads, distances(radius)?];
                Some(net.parameter("relative", spec.dtype, &dims, init::zeros()))
            }
            None => None,
        };
        Some(AttentionWeights {
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            out: linear("out"),
            relative,
        })
    }

    fn run(&self, net: &Builder, x: Var, weights: &AttentionWeights) -> Var {
        let AttentionWeights { query, key, value, out, relative } = weights;
        let memory = self.memory.unwrap_or(x);
        let (mut q, mut k) = (query.run(net, x), key.run(net, memory));
        if self.rotary {
            (q, k) = (net.rotary(q, self.heads), net.rotary(k, self.heads));
        }
        let scores = DotAttention { bias: *relative, ..self.scores };
        let attended = net.dot_attention(q, k, value.run(net, memory), scores);
        out.run(net, attended)
    }
}

builder_methods! { Attention, Builder, Var;
    /// Multi-head attention (Vaswani et al., 2017) within each sequence of `x`, or to the rows of a memory m: out =
    /// attend(x·W_q, m·W_k, m·W_v)·W_o, where attend is [`dot_attention`](Self::dot_attention), and m = x without a memory.
    /// Parameters: `query.weight`, `key.weight` and `value.weight` `[in, width]`, `out.weight` `[width, width]`, each with a
    /// `bias` `[width]`, and `relative` if [`Attention::relative`](crate::layers::Attention::relative) is set. The output has
    /// the rows and the LoD of `x`. A row without any key to attend to gets the bias of the output projection.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// use unpadded::layers::Attention;
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[64], 1);
    /// let y = x.attention(Attention::new(8).causal().rotary());
    /// let words = net.feed("words", DType::F32, &[32], 1);
    /// let z = y.attention(Attention::new(4).over(words)); // as many sequences, of other lengths
    /// assert_eq!(net.spec(z), net.spec(x));
    /// assert!(net.finish()?.find("attention_0.query.weight").is_some());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats; if the width is not a multiple of the number of heads; if `x` and the
    /// memory have different numbers of sequences; if an option needs positions (causal, window, rotary, relative) and `x` has
    /// one row per sequence.
    pub fn attention(&self, x: Var, options: impl Into<Attention>) -> Var {
        self.layer(options.into()).run(self, x)
    }
}
