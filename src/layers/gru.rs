//! The GRU layer (gated recurrent unit). If the reset gate acts after the recurrent product (as in PyTorch), a step has two
//! products and the operator `gru_cell`. If the reset gate acts before the product (as in the paper), the cell is composed of
//! several plain operators.

use crate::layers::init;
use crate::layers::recurrent::{
    self, Cell, CellInputs, Options, RecurrentWeights, recurrent_layer, recurrent_methods,
};
use crate::ops::UpdateGate;
use crate::program::{Builder, Initializer, Step, Var, Vars};

/// Options of the GRU layer ([`Builder::gru`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Gru {
    options: Options<1>,
    reset: Reset,
    update: UpdateGate,
}

/// The place where the reset gate r of a GRU acts: after or before the product of the state with its weight.
#[doc(alias = "reset_after")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// The reset gate multiplies the product of the state with its weight, as in PyTorch: n = tanh(x·W_n + r ∘ (h·U_n +
    /// b)). The product h·U_n has its own bias b, the second bias of the layer.
    #[default]
    After,
    /// The reset gate multiplies the state, as in the paper of Cho et al. (2014): n = tanh(x·W_n + (r ∘ h)·U_n).
    Before,
}

/// The weights of a GRU with a state of H numbers: `w_ih` `[in, 3H]`, `w_hh` `[H, 3H]` and biases `[3H]`. The columns are for
/// the reset gate r, the update gate z and the candidate n, side by side.
pub type GruWeights = RecurrentWeights;

impl Gru {
    /// Makes a GRU with a state of `hidden` numbers. The input weight is initialized by [`init::xavier_gates`], the recurrent
    /// weight by [`init::orthogonal_gates`], both biases with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { options: Options::new(hidden, Self::GATES), reset: Reset::After, update: UpdateGate::Keeps }
    }

    /// Sets where the reset gate acts: before or after the recurrent product (default: [`Reset::After`]).
    #[must_use]
    pub fn reset(self, reset: Reset) -> Self {
        Self { reset, ..self }
    }

    /// Sets the effect of an open update gate: the gate keeps or replaces the state (default: [`UpdateGate::Keeps`]).
    #[must_use]
    pub fn update(self, update: UpdateGate) -> Self {
        Self { update, ..self }
    }
}

recurrent_layer!(Gru, GruWeights, 1, [h]);

impl Cell<1> for Gru {
    const KIND: &'static str = "gru";
    const GATES: usize = 3;
    const STATE_NAMES: [&'static str; 1] = ["h"];
    type Weights = GruWeights;

    fn options(&self) -> &Options<1> {
        &self.options
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        match self.reset {
            Reset::After => ["bias_ih", "bias_hh"].map(|part| Some((part, init::zeros()))),
            Reset::Before => [Some(("bias", init::zeros())), None],
        }
    }

    fn make(&self, net: &Builder, x: Var) -> Option<GruWeights> {
        recurrent::weights(net, x, self)
    }

    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: GruWeights,
        wanted: impl FnOnce(&Step, Var, [Var; 1]) -> O,
    ) -> Option<O> {
        if self.reset == Reset::After {
            let next = |step: &Step, CellInputs { from_input, h, states: [before] }: CellInputs<1>| {
                let from_state = step.product(h, weights.w_hh, weights.b_hh);
                [step.gru_cell(from_input, from_state, before, self.update)]
            };
            return recurrent::run(net, x, weights, self, next, wanted);
        }
        recurrent::checked(net, x, weights, self)?;
        let hidden = self.options.hidden;
        let [gates, candidate] = [0..2 * hidden, 2 * hidden..3 * hidden];
        // The weights are sliced into gates once, before the loop over steps.
        let [(w_rz, b_rz), (w_n, b_n)] = recurrent::sliced(net, weights, [gates.clone(), candidate.clone()]);
        let next = |step: &Step, CellInputs { from_input, h, states: [before] }: CellInputs<1>| {
            let gates = (from_input.slice(gates) + step.product(h, w_rz, b_rz)).sigmoid();
            let [r, z] = [gates.slice(0..hidden), gates.slice(hidden..2 * hidden)];
            let kept = step.product(r * h, w_n, b_n);
            let n = (from_input.slice(candidate) + kept).tanh();
            let (closed, open) = match self.update {
                UpdateGate::Keeps => (n, before),
                UpdateGate::Takes => (before, n),
            };
            [closed + z * (open - closed)]
        };
        recurrent::run(net, x, weights, self, next, wanted)
    }
}

recurrent_methods! {
    Gru, [h: Var];
    /// Returns the state of a GRU after every step, with the rows and the LoD of `x`. The GRU runs over the sequences of the
    /// last LoD level. Parameters: `weight_ih` `[in, 3H]`, `weight_hh` `[H, 3H]`, `bias_ih` and `bias_hh` `[3H]`, or one `bias`
    /// `[3H]` with [`Reset::Before`]; the columns are the gates r, z, n.
    ///
    /// The gates are r = σ(x_t·W_r + h_(t−1)·U_r + b_r) and z = σ(x_t·W_z + h_(t−1)·U_z + b_z); [`Reset`] has the formula of
    /// the candidate n. The new state is h_t = (1 − z) ∘ n + z ∘ h_(t−1), or h_t = z ∘ n + (1 − z) ∘ h_(t−1), as
    /// [`UpdateGate`](crate::ops::UpdateGate) selects.
    ///
    /// ```
    /// use unpadded::layers::{Gru, Reset};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let (h, last) = x.gru_states(Gru::new(16).reset(Reset::Before));
    /// assert_eq!(net.spec(h).unwrap().dims(), [-1, 16]); // after every step
    /// assert_eq!(net.describe(last), "`memory.last`: f32[batch, 16]"); // one row a sequence
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    gru, gru_states
}
