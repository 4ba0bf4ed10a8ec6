//! The GRU layer whose reset gate acts after the recurrent product: two products and the pointwise cell, in a step
//! block.

use std::panic::Location;

use crate::error::Result;
use crate::layers::init;
use crate::layers::recurrent::{self, Cell, Options, RecurrentWeights, option_methods};
use crate::ops::Update;
use crate::program::{Builder, Initializer, Step, Var};

/// Options of [`Builder::gru`].
#[derive(Debug, Clone, PartialEq)]
pub struct Gru {
    options: Options<1>,
    update: Update,
}

/// The weights of a GRU: `w_ih` `[in, 3H]`, `w_hh` `[H, 3H]` and biases `[3H]`, gates r, z, n side by side.
pub type GruWeights = RecurrentWeights;

impl Gru {
    /// `hidden` numbers of state. The input weight starts by [`init::xavier_gates`], the recurrent one by
    /// [`init::orthogonal_gates`], both biases at zero.
    pub fn new(hidden: usize) -> Self {
        Self { options: Options::new(hidden, Self::GATES), update: Update::Keeps }
    }

    /// Starts from these hidden states, one row a sequence, instead of zeros.
    #[must_use]
    pub fn initial(mut self, h: Var) -> Self {
        self.options.initial = Some([h]);
        self
    }

    /// What an open update gate does; [`Update::Keeps`] without it.
    #[must_use]
    pub fn update(self, update: Update) -> Self {
        Self { update, ..self }
    }
}

option_methods!(Gru);

impl Cell<1> for Gru {
    const KIND: &'static str = "gru";
    const GATES: usize = 3;
    const STATE_NAMES: [&'static str; 1] = ["h"];

    fn options(&self) -> &Options<1> {
        &self.options
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        ["bias_ih", "bias_hh"].map(|part| Some((part, init::zeros())))
    }

    fn step(&self, step: &Step, from_input: Var, from_state: Var, [h]: [Var; 1]) -> Result<[Var; 1]> {
        step.gru_cell(from_input, from_state, h, self.update).map(|h| [h])
    }
}

impl Builder {
    /// The state of a GRU after every step, in the rows and LoD of `x`. Runs over the sequences of the last LoD
    /// level. Parameters: `weight_ih` `[in, 3H]`, `weight_hh` `[H, 3H]`, `bias_ih` and `bias_hh` `[3H]`; gates r, z, n.
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the initial state does not fit.
    #[track_caller]
    pub fn gru(&self, x: Var, options: Gru) -> Result<Var> {
        let weights = recurrent::weights(&self.called_from(Location::caller()), x, &options)?;
        self.gru_with(x, weights, options)
    }

    /// [`Self::gru`], and the state after each sequence's last step, one row a sequence. An empty sequence has its
    /// initial state.
    ///
    /// # Errors
    /// As [`Self::gru`].
    #[track_caller]
    pub fn gru_states(&self, x: Var, options: Gru) -> Result<(Var, Var)> {
        let weights = recurrent::weights(&self.called_from(Location::caller()), x, &options)?;
        self.gru_states_with(x, weights, options)
    }

    /// [`Self::gru`] with weights that exist: shared, imported or under test.
    ///
    /// # Errors
    /// As [`Self::gru`], and if a weight does not fit.
    #[track_caller]
    pub fn gru_with(&self, x: Var, weights: GruWeights, options: Gru) -> Result<Var> {
        let net = self.called_from(Location::caller());
        recurrent::run(&net, x, weights, &options, |_, h, _| Ok(h))
    }

    /// [`Self::gru_states`] with weights that exist.
    ///
    /// # Errors
    /// As [`Self::gru_with`].
    #[track_caller]
    pub fn gru_states_with(&self, x: Var, weights: GruWeights, options: Gru) -> Result<(Var, Var)> {
        let net = self.called_from(Location::caller());
        recurrent::run(&net, x, weights, &options, |step, out, [h]| Ok((out, step.last(h)?)))
    }
}
