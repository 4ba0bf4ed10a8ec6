//! The plain recurrent layer: a step block with two products, a sum and an activation.

use crate::layers::activation::Activation;
use crate::layers::init;
use crate::layers::recurrent::{
    self, Cell, CellInputs, Options, RecurrentWeights, recurrent_layer, recurrent_methods,
};
use crate::program::{Builder, Initializer, Step, Var, Vars};

/// Options of the plain recurrent layer ([`Builder::rnn`]).
#[doc(alias = "Elman")]
#[derive(Debug, Clone, PartialEq)]
pub struct Rnn {
    options: Options<1>,
    activation: Activation,
}

/// The weights of a plain recurrent layer with a state of H numbers: `w_ih` `[in, H]`, `w_hh` `[H, H]` and biases `[H]`.
pub type RnnWeights = RecurrentWeights;

impl Rnn {
    /// Makes a plain recurrent layer with a state of `hidden` numbers and the activation tanh. The input weight is initialized
    /// by [`init::xavier`], the recurrent weight by [`init::orthogonal`], the bias with zeros.
    pub fn new(hidden: usize) -> Self {
        Self { options: Options::new(hidden, Self::GATES), activation: Activation::Tanh }
    }

    /// Sets the activation (default: tanh).
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }
}

recurrent_layer!(Rnn, RnnWeights, 1, [h]);

impl Cell<1> for Rnn {
    const KIND: &'static str = "rnn";
    const GATES: usize = 1;
    const STATE_NAMES: [&'static str; 1] = ["h"];
    type Weights = RnnWeights;

    fn options(&self) -> &Options<1> {
        &self.options
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        [Some(("bias", init::zeros())), None]
    }

    fn make(&self, net: &Builder, x: Var) -> Option<RnnWeights> {
        recurrent::weights(net, x, self)
    }

    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: RnnWeights,
        wanted: impl FnOnce(&Step, Var, [Var; 1]) -> O,
    ) -> Option<O> {
        let next = |step: &Step, CellInputs { from_input, h, .. }: CellInputs<1>| {
            [self.activation.of(from_input + step.product(h, weights.w_hh, weights.b_hh))]
        };
        recurrent::run(net, x, weights, self, next, wanted)
    }
}

recurrent_methods! {
    Rnn, [h: Var];
    /// Returns the state of a plain recurrent layer after every step, h ← f(x·W_ih + h·W_hh + b), with the rows and the LoD of
    /// `x`. The layer runs over the sequences of the last LoD level. Parameters: `weight_ih` `[in, H]`, `weight_hh` `[H, H]`,
    /// `bias` `[H]`.
    ///
    /// ```
    /// use unpadded::layers::{Activation, Rnn};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let h = x.rnn(Rnn::new(16).activation(Activation::Relu));
    /// assert_eq!(net.describe(h), "`relu.steps`: f32[rows0, 16] lod(0)");
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    rnn, rnn_states
}
