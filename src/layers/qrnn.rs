//! The quasi-recurrent network (QRNN): a convolution computes the gates, and the loop over steps has no matrix products.

use super::layer::{at_least_one, layer_name, times, wide};
use super::recurrent::{STATE, elementwise_layer, sequence_input, state_width};
use crate::builder_methods;
use crate::layers::{Layer, init};
use crate::ops::Context;
use crate::program::{Builder, Recurrence, Step, Var, Vars};

/// The pooling of a [`Qrnn`]: the formula by which the gates combine the candidate z with the state (section 2.1 of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QrnnPool {
    /// Pooling with a forget gate f only: h = f ∘ h_prev + (1 − f) ∘ z.
    F,
    /// Pooling with a forget gate f and an output gate o: c = f ∘ c_prev + (1 − f) ∘ z, h = o ∘ c.
    Fo,
    /// Pooling with a forget gate f, an output gate o and an input gate i: c = f ∘ c_prev + i ∘ z, h = o ∘ c.
    Ifo,
}

impl QrnnPool {
    /// Returns the number of convolutions: one for the candidate, and one per gate.
    fn parts(self) -> usize {
        match self {
            QrnnPool::F => 2,
            QrnnPool::Fo => 3,
            QrnnPool::Ifo => 4,
        }
    }
}

/// Options of the quasi-recurrent network ([`Builder::qrnn`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Qrnn {
    hidden: usize,
    window: usize,
    pool: QrnnPool,
    reverse: bool,
    initial: Option<[Var; 1]>,
    name: Option<String>,
}

/// The parameters of a [`Qrnn`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct QrnnWeights {
    /// The filters `[window · in, parts · H]` of the candidate z and of the gates (f, o, i) that the pooling has, side by side.
    /// The rows of a filter are in the order of the window; the last `in` rows are for the current row.
    pub weight: Var,
    /// The biases `[parts · H]` of the candidate and the gates, in the order of the columns of `weight`.
    pub bias: Var,
}

impl Qrnn {
    /// Makes a QRNN with a state of `hidden` numbers, a window of two rows and [`QrnnPool::Fo`]. The weight is initialized by
    /// [`init::xavier`], the bias with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { hidden, window: 2, pool: QrnnPool::Fo, reverse: false, initial: None, name: None }
    }

    /// Sets the window of the convolutions: the current row and the `window` − 1 rows before it. Rows before the start of a
    /// sequence are zeros.
    #[must_use]
    pub fn window(self, window: usize) -> Self {
        Self { window, ..self }
    }

    /// Sets the pooling (default: [`QrnnPool::Fo`]).
    #[must_use]
    pub fn pool(self, pool: QrnnPool) -> Self {
        Self { pool, ..self }
    }

    /// Reverses the direction: steps run from the end of each sequence to its start, and the window has the current row and
    /// the rows after it.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Returns the number of columns of the candidate and the gates together; records an error if the number overflows.
    fn columns(&self, net: &Builder) -> Option<usize> {
        wide(net, "qrnn", self.hidden)?;
        times(net, self.pool.parts(), STATE, "qrnn", self.hidden)
    }

    fn steps<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: QrnnWeights,
        wanted: impl FnOnce(&Step, Var, Var) -> O,
    ) -> Option<O> {
        let (spec, h) = (sequence_input(net, "qrnn", x)?, self.hidden);
        self.columns(net)?;
        if let Some([state]) = self.initial {
            state_width(net, "c", state, &spec, h)?;
        }
        // In the reverse direction, the sequence is reversed before the convolution, so that the rows of the filter keep their
        // order.
        let turned = |x: Var| if self.reverse { net.sequence_reverse(x) } else { x };
        let context = Context::new(self.window).causal();
        let gates = net.sequence_conv_with(turned(x), weights.weight, Some(weights.bias), None, context);
        let options = Recurrence { reverse: self.reverse, ..Recurrence::default() };
        Some(net.recurrent_with(options, turned(gates), |step, gates| {
            let before = match self.initial {
                Some([state]) => step.memory_from(state),
                None => step.memory_of(spec.dtype, &[h]),
            };
            let part = |k: usize| gates.slice(k * h..(k + 1) * h);
            let (z, f) = (part(0).tanh(), part(1).sigmoid());
            let c = match self.pool {
                QrnnPool::Ifo => f * before + part(3).sigmoid() * z,
                // z + f · (before − z) has one product less than f · before + (1 − f) · z.
                QrnnPool::F | QrnnPool::Fo => z + f * (before - z),
            };
            let out = if self.pool == QrnnPool::F { c } else { part(2).sigmoid() * c };
            step.update(before, c);
            wanted(step, out, before)
        }))
    }
}

layer_name!(Qrnn, "qrnn");
elementwise_layer!(Qrnn, QrnnWeights);

impl Layer for Qrnn {
    type Weights = QrnnWeights;

    fn kind(&self) -> &str {
        "qrnn"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<QrnnWeights> {
        let (spec, columns) = (sequence_input(net, "qrnn", x)?, self.columns(net)?);
        at_least_one(net, "window", "qrnn", self.window)?;
        let height = times(net, spec.width(), "window", "qrnn", self.window)?;
        let make = |name: &str, dims: &[usize], start| net.parameter(name, spec.dtype, dims, start);
        let weight = make("weight", &[height, columns], init::xavier_gates(self.pool.parts()));
        Some(QrnnWeights { weight, bias: make("bias", &[columns], init::zeros()) })
    }

    fn run(&self, net: &Builder, x: Var, &weights: &QrnnWeights) -> Var {
        self.steps(net, x, weights, |_, out, _| out).unwrap_or_else(|| net.unknown())
    }
}

builder_methods! { Qrnn, Builder, Var;
    /// Returns the output h of a quasi-recurrent network after every step, with the rows and the LoD of `x` (Bradbury et al.,
    /// "Quasi-recurrent neural networks", 2017). The candidate is z = tanh(W_z ∗ x), and the gates are f = σ(W_f ∗ x) and o =
    /// σ(W_o ∗ x), where ∗ is a convolution over the current row and earlier rows. Then c = f ∘ c_prev + (1 − f) ∘ z and h = o
    /// ∘ c, or another formula of [`QrnnPool`](crate::layers::QrnnPool). The network runs over the sequences of the last LoD
    /// level, without a matrix product at each step. Parameters: `weight` `[window · in, 3H]`, `bias` `[3H]` (2H or 4H with
    /// another pooling).
    ///
    /// ```
    /// use unpadded::layers::{Qrnn, Stacked};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.stacked(Stacked::new(Qrnn::new(16).window(3), 2).bidirectional());
    /// assert_eq!(net.spec(y).unwrap().dims(), [-1, 32]);
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the width, the window or the initial state does not fit.
    pub fn qrnn(&self, x: Var, options: impl Into<Qrnn>) -> Var {
        self.layer(options.into()).run(self, x)
    }
}
