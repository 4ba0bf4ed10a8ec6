//! The minimal gated unit: a GRU with one gate in place of the reset gate and the update gate.

use crate::layers::init;
use crate::layers::recurrent::{
    self, Cell, CellInputs, Options, RecurrentWeights, recurrent_layer, recurrent_methods,
};
use crate::program::{Builder, Initializer, Step, Var, Vars};

/// Options of the minimal gated unit ([`Builder::mgu`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Mgu {
    options: Options<1>,
}

/// The weights of a minimal gated unit: `w_ih` `[in, 2H]`, `w_hh` `[H, 2H]` and biases `[2H]`. The first H columns are for
/// the gate f, the last H columns for the candidate n.
pub type MguWeights = RecurrentWeights;

impl Mgu {
    /// Makes a minimal gated unit with a state of `hidden` numbers. The input weight is initialized by [`init::xavier_gates`],
    /// the recurrent weight by [`init::orthogonal_gates`], the bias with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { options: Options::new(hidden, Self::GATES) }
    }
}

recurrent_layer!(Mgu, MguWeights, 1, [h]);

impl Cell<1> for Mgu {
    const KIND: &'static str = "mgu";
    const GATES: usize = 2;
    const STATE_NAMES: [&'static str; 1] = ["h"];
    type Weights = MguWeights;

    fn options(&self) -> &Options<1> {
        &self.options
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        [Some(("bias", init::zeros())), None]
    }

    fn make(&self, net: &Builder, x: Var) -> Option<MguWeights> {
        recurrent::weights(net, x, self)
    }

    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: MguWeights,
        wanted: impl FnOnce(&Step, Var, [Var; 1]) -> O,
    ) -> Option<O> {
        recurrent::checked(net, x, weights, self)?;
        let hidden = self.options.hidden;
        let [gate, candidate] = [0..hidden, hidden..2 * hidden];
        // The weights are sliced into gate and candidate once, before the loop over steps.
        let [(w_f, b_f), (w_n, b_n)] = recurrent::sliced(net, weights, [gate.clone(), candidate.clone()]);
        let next = |step: &Step, CellInputs { from_input, h, states: [before] }: CellInputs<1>| {
            let f = (from_input.slice(gate) + step.product(h, w_f, b_f)).sigmoid();
            let kept = step.product(f * h, w_n, b_n);
            let n = (from_input.slice(candidate) + kept).tanh();
            [before + f * (n - before)]
        };
        recurrent::run(net, x, weights, self, next, wanted)
    }
}

recurrent_methods! {
    Mgu, [h: Var];
    /// Returns the state h of a minimal gated unit (Zhou et al., 2016) after every step, with the rows and the LoD of `x`. The
    /// formulas of a step are f = σ(x·W_f + h·U_f + b_f), n = tanh(x·W_n + (f ∘ h)·U_n + b_n) and h ← (1 − f) ∘ h + f ∘ n. The
    /// unit runs over the sequences of the last LoD level. Parameters: `weight_ih` `[in, 2H]`, `weight_hh` `[H, 2H]`, `bias`
    /// `[2H]`; the first H columns are for the gate f, the last H columns for the candidate n.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// assert_eq!(net.spec(x.mgu(16)).unwrap().dims(), [-1, 16]);
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    mgu, mgu_states
}
