//! The quasi-recurrent network: gates made by a convolution, and a loop without products.

use super::layer::{at_least_one, times, wide};
use super::recurrent::{STATE, sequence_input, state_width};
use crate::builder_methods;
use crate::layers::{Layer, RecurrentLayer, Stateful, init};
use crate::ops::Context;
use crate::program::{Builder, Recurrence, Step, Var, Vars};

/// The pooling of a [`Qrnn`]: how the gates combine candidate z and state c (section 2.1 of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QrnnPool {
    /// h = f ∘ h_prev + (1 − f) ∘ z: a forget gate f only.
    F,
    /// c = f ∘ c_prev + (1 − f) ∘ z, h = o ∘ c: a forget gate f and an output gate o.
    Fo,
    /// c = f ∘ c_prev + i ∘ z, h = o ∘ c: a forget gate f, an output gate o and an input gate i.
    Ifo,
}

impl QrnnPool {
    /// The number of convolutions: the candidate and the gates.
    fn parts(self) -> usize {
        match self {
            QrnnPool::F => 2,
            QrnnPool::Fo => 3,
            QrnnPool::Ifo => 4,
        }
    }
}

/// Options of [`Builder::qrnn`].
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
    /// `[window · in, parts · H]`: the filters of the candidate z and of the pooling's gates among f, o and i, side by side; from top
    /// to bottom the rows of the window, the current row last.
    pub weight: Var,
    /// The biases `[parts · H]` of the candidate and the gates, in the order of the weight's columns.
    pub bias: Var,
}

impl Qrnn {
    /// A QRNN with `hidden` numbers of state, a window of two rows and [`QrnnPool::Fo`]. The weight is initialized by
    /// [`init::xavier`], the bias with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { hidden, window: 2, pool: QrnnPool::Fo, reverse: false, initial: None, name: None }
    }

    /// Sets the window of the convolutions: the row itself and `window` − 1 rows before it, zeros before the start of a sequence.
    #[must_use]
    pub fn window(self, window: usize) -> Self {
        Self { window, ..self }
    }

    /// Sets the pooling (default: [`QrnnPool::Fo`]).
    #[must_use]
    pub fn pool(self, pool: QrnnPool) -> Self {
        Self { pool, ..self }
    }

    /// Sets the initial states, one row per sequence (default: zeros).
    #[must_use]
    pub fn initial(self, c: Var) -> Self {
        Self { initial: Some([c]), ..self }
    }

    /// Reverses the direction: each sequence runs from its own end, and the window reaches to later rows.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Sets the first part of the parameters' names (default: `qrnn_0` and so on).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// The number of columns of the candidate and the gates together; records an error if it overflows.
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
        // The reverse direction convolves the reversed sequence, so that the filter's rows keep their order.
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

impl From<usize> for Qrnn {
    fn from(hidden: usize) -> Self {
        Self::new(hidden)
    }
}

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

impl Stateful for Qrnn {
    type States = [Var; 1];

    fn states(&self, net: &Builder, x: Var, &weights: &QrnnWeights) -> (Var, [Var; 1]) {
        let all = self.steps(net, x, weights, |step, out, memory| (out, step.last(memory)));
        all.map_or_else(|| (net.unknown(), [net.unknown()]), |(out, last)| (out, [last]))
    }

    fn all_states(&self, var: Var) -> [Var; 1] {
        [var]
    }
}

impl RecurrentLayer for Qrnn {
    fn reversed(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }

    fn starting_from(self, initial: [Var; 1]) -> Self {
        Self { initial: Some(initial), ..self }
    }
}

builder_methods! { Qrnn, Builder, Var;
    /// The output of a quasi-recurrent network after every step, in the rows and LoD of `x` (Bradbury et al., "Quasi-recurrent
    /// neural networks", 2017): candidate z = tanh(W_z ∗ x), gates f = σ(W_f ∗ x) and o = σ(W_o ∗ x), where ∗ is a convolution
    /// over the row itself and earlier rows; then c = f ∘ c_prev + (1 − f) ∘ z and h = o ∘ c, or another formula of
    /// [`QrnnPool`](crate::layers::QrnnPool). Runs over the sequences of the last LoD level, without a product at each step.
    /// Parameters: `weight` `[window · in, 3H]`, `bias` `[3H]`.
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
