//! The simple recurrent unit (SRU): only the input is multiplied by matrices, so the loop over steps has no matrix products.

use super::layer::{layer_name, times, wide};
use super::recurrent::{STATE, elementwise_layer, sequence_input, state_width};
use crate::builder_methods;
use crate::layers::{Layer, init};
use crate::operator::Spec;
use crate::program::{Builder, Recurrence, Step, Var, Vars};

/// Options of the simple recurrent unit ([`Builder::sru`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Sru {
    hidden: usize,
    reverse: bool,
    initial: Option<[Var; 1]>,
    name: Option<String>,
}

/// The parameters of an [`Sru`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SruWeights {
    /// The weights `[in, 3H]` of the candidate, the forget gate and the reset gate, side by side. If the input does not
    /// have H numbers per row, the weight has the shape `[in, 4H]`, and its last H columns W_x project the input to H
    /// numbers.
    pub weight: Var,
    /// The weights v_f and v_r of the state in the forget gate and in the reset gate, `[2H]`.
    pub of_state: Var,
    /// The biases of the forget gate and of the reset gate, `[2H]`.
    pub bias: Var,
}

impl Sru {
    /// Makes an SRU with a state of `hidden` numbers. The weight is initialized by [`init::xavier`], the weights of the state
    /// and the biases with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { hidden, reverse: false, initial: None, name: None }
    }

    /// Reverses the direction: steps run from the end of each sequence to its start.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Returns the number of matrices in the weight (3 or 4), and the number of columns of all matrices together. If the number
    /// of columns overflows, records an error and returns `None`.
    fn columns(&self, net: &Builder, input: &Spec) -> Option<(usize, usize)> {
        wide(net, "sru", self.hidden)?;
        let parts = if input.width() == self.hidden { 3 } else { 4 };
        Some((parts, times(net, parts, STATE, "sru", self.hidden)?))
    }

    fn steps<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: SruWeights,
        wanted: impl FnOnce(&Step, Var, Var) -> O,
    ) -> Option<O> {
        let (spec, h) = (sequence_input(net, "sru", x)?, self.hidden);
        self.columns(net, &spec)?;
        if let Some([state]) = self.initial {
            state_width(net, "c", state, &spec, h)?;
        }
        let [of_forget, of_reset] = [0..h, h..2 * h].map(|part| {
            let sliced = |var: Var| net.slice(var, part.clone());
            (sliced(weights.of_state), sliced(weights.bias))
        });
        let options = Recurrence { reverse: self.reverse, ..Recurrence::default() };
        Some(net.recurrent_with(options, x, |step, x_t| {
            let before = match self.initial {
                Some([state]) => step.memory_from(state),
                None => step.memory_of(spec.dtype, &[h]),
            };
            let all = step.product(x_t, weights.weight, None);
            let part = |k: usize| all.slice(k * h..(k + 1) * h);
            let gate =
                |k: usize, (of_state, bias): (Var, Var)| (part(k) + before * of_state + bias).sigmoid();
            let (forget, reset) = (gate(1, of_forget), gate(2, of_reset));
            let candidate = part(0);
            let c = candidate + forget * (before - candidate);
            let skip = if spec.width() == h { x_t } else { part(3) };
            let out = skip + reset * (c - skip);
            step.update(before, c);
            wanted(step, out, before)
        }))
    }
}

layer_name!(Sru, "sru");
elementwise_layer!(Sru, SruWeights);

impl Layer for Sru {
    type Weights = SruWeights;

    fn kind(&self) -> &str {
        "sru"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<SruWeights> {
        let (spec, h) = (sequence_input(net, "sru", x)?, self.hidden);
        let (parts, columns) = self.columns(net, &spec)?;
        let make = |name: &str, dims: &[usize], start| net.parameter(name, spec.dtype, dims, start);
        Some(SruWeights {
            weight: make("weight", &[spec.width(), columns], init::xavier_gates(parts)),
            of_state: make("weight_state", &[2 * h], init::zeros()),
            bias: make("bias", &[2 * h], init::zeros()),
        })
    }

    fn run(&self, net: &Builder, x: Var, &weights: &SruWeights) -> Var {
        self.steps(net, x, weights, |_, out, _| out).unwrap_or_else(|| net.unknown())
    }
}

builder_methods! { Sru, Builder, Var;
    /// Returns the output h of a simple recurrent unit after every step, with the rows and the LoD of `x` (Lei et al., "Simple
    /// recurrent units for highly parallelizable recurrence", 2018). With the previous state c, the formulas are f = σ(x·W_f +
    /// v_f ∘ c + b_f), r = σ(x·W_r + v_r ∘ c + b_r), c' = f ∘ c + (1 − f) ∘ x·W and h = r ∘ c' + (1 − r) ∘ x. If x is not as
    /// wide as the state, x·W_x replaces x in the formula of h. The unit runs over the sequences of the last LoD level, without
    /// a matrix product at each step. Parameters: `weight` `[in, 3H]` or `[in, 4H]`, `weight_state` `[2H]`, `bias` `[2H]`.
    ///
    /// ```
    /// use unpadded::layers::{Sru, Stacked};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.stacked(Stacked::new(Sru::new(16), 3).bidirectional());
    /// assert_eq!(net.spec(y).unwrap().dims(), [-1, 32]);
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the width or the initial state does not fit.
    pub fn sru(&self, x: Var, options: impl Into<Sru>) -> Var {
        self.layer(options.into()).run(self, x)
    }
}
