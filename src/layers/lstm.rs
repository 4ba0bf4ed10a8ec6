//! The LSTM layer: two products, a sum and the pointwise cell, in a step block.

use std::panic::Location;

use crate::error::Result;
use crate::layers::init;
use crate::layers::recurrent::{self, Cell, Options, RecurrentWeights, option_methods};
use crate::program::{Attributes, Builder, Initializer, Step, Var};

/// Options of [`Builder::lstm`].
#[derive(Debug, Clone, PartialEq)]
pub struct Lstm {
    options: Options<2>,
    forget_bias: f64,
}

/// The weights of an LSTM: `w_ih` `[in, 4H]`, `w_hh` `[H, 4H]` and biases `[4H]`, gates i, f, g, o side by side.
pub type LstmWeights = RecurrentWeights;

impl Lstm {
    /// `hidden` numbers of state. The input weight starts by [`init::xavier_gates`], the recurrent one by
    /// [`init::orthogonal_gates`], the bias at zero but for the forget gate's, which starts at 1.
    pub fn new(hidden: usize) -> Self {
        Self { options: Options::new(hidden, Self::GATES), forget_bias: 1.0 }
    }

    /// What the forget gate's bias starts as. With weights that are given ([`Builder::lstm_with`]) it has no effect.
    #[must_use]
    pub fn forget_bias(self, forget_bias: f64) -> Self {
        Self { forget_bias, ..self }
    }

    /// Starts from these hidden and cell states, one row a sequence, instead of zeros.
    #[must_use]
    pub fn initial(mut self, h: Var, c: Var) -> Self {
        self.options.initial = Some([h, c]);
        self
    }
}

option_methods!(Lstm);

impl Cell<2> for Lstm {
    const KIND: &'static str = "lstm";
    const GATES: usize = 4;
    const STATE_NAMES: [&'static str; 2] = ["h", "c"];

    fn options(&self) -> &Options<2> {
        &self.options
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        [Some(("bias", init::lstm_bias(self.forget_bias))), None]
    }

    fn step(&self, step: &Step, from_input: Var, from_state: Var, [_, c]: [Var; 2]) -> Result<[Var; 2]> {
        let pre = step.append1("add", &[("x", &[from_input]), ("y", &[from_state])], Attributes::new())?;
        step.lstm_cell(pre, c).map(|(h, c)| [h, c])
    }
}

impl Builder {
    /// The hidden state of an LSTM after every step, in the rows and LoD of `x`. Runs over the sequences of the last
    /// LoD level. Parameters: `weight_ih` `[in, 4H]`, `weight_hh` `[H, 4H]`, `bias` `[4H]`; gates i, f, g, o.
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the initial states do not fit.
    #[track_caller]
    pub fn lstm(&self, x: Var, options: Lstm) -> Result<Var> {
        let weights = recurrent::weights(&self.called_from(Location::caller()), x, &options)?;
        self.lstm_with(x, weights, options)
    }

    /// [`Self::lstm`], and the hidden and cell state after each sequence's last step, one row a sequence. An empty
    /// sequence has its initial states.
    ///
    /// # Errors
    /// As [`Self::lstm`].
    #[track_caller]
    pub fn lstm_states(&self, x: Var, options: Lstm) -> Result<(Var, Var, Var)> {
        let weights = recurrent::weights(&self.called_from(Location::caller()), x, &options)?;
        self.lstm_states_with(x, weights, options)
    }

    /// [`Self::lstm`] with weights that exist: shared, imported or under test.
    ///
    /// # Errors
    /// As [`Self::lstm`], and if a weight does not fit.
    #[track_caller]
    pub fn lstm_with(&self, x: Var, weights: LstmWeights, options: Lstm) -> Result<Var> {
        let net = self.called_from(Location::caller());
        recurrent::run(&net, x, weights, &options, |_, h, _| Ok(h))
    }

    /// [`Self::lstm_states`] with weights that exist.
    ///
    /// # Errors
    /// As [`Self::lstm_with`].
    #[track_caller]
    pub fn lstm_states_with(&self, x: Var, weights: LstmWeights, options: Lstm) -> Result<(Var, Var, Var)> {
        let net = self.called_from(Location::caller());
        recurrent::run(&net, x, weights, &options, |step, out, [h, c]| {
            Ok((out, step.last(h)?, step.last(c)?))
        })
    }
}
