//! The GRU layer whose reset gate acts after the recurrent product: two products and the pointwise cell, in a step
//! block.

use std::panic::Location;

use crate::error::{Error, ErrorKind, Result};
use crate::layers::{init, sequence_input, state_width, weight_shape};
use crate::ops::Update;
use crate::program::{Builder, Initializer, Recurrence, Spec, Var};

/// Options of [`Builder::gru`].
#[derive(Debug, Clone, PartialEq)]
pub struct Gru {
    hidden: usize,
    bias: bool,
    reverse: bool,
    initial: Option<Var>,
    update: Update,
    input: Initializer,
    recurrent: Initializer,
    name: Option<String>,
}

impl Gru {
    /// `hidden` numbers of state. The input weight starts by [`init::xavier_gates`], the recurrent one by
    /// [`init::orthogonal_gates`], both biases at zero.
    pub fn new(hidden: usize) -> Self {
        Self {
            hidden,
            bias: true,
            reverse: false,
            initial: None,
            update: Update::Keeps,
            input: init::xavier_gates(3),
            recurrent: init::orthogonal_gates(3),
            name: None,
        }
    }

    /// No biases.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// Each sequence runs from its own end.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Starts from these hidden states, one row a sequence, instead of zeros.
    #[must_use]
    pub fn initial(self, h: Var) -> Self {
        Self { initial: Some(h), ..self }
    }

    /// What an open update gate does; [`Update::Keeps`] without it.
    #[must_use]
    pub fn update(self, update: Update) -> Self {
        Self { update, ..self }
    }

    /// How the weight `[in, 3H]` of the input starts.
    #[must_use]
    pub fn input_init(self, input: Initializer) -> Self {
        Self { input, ..self }
    }

    /// How the weight `[H, 3H]` of the state starts.
    #[must_use]
    pub fn recurrent_init(self, recurrent: Initializer) -> Self {
        Self { recurrent, ..self }
    }

    /// The first part of the parameters' names, instead of `gru_0` and so on.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

/// The weights of a GRU, gates r, z, n side by side. PyTorch's are the transposes:
/// [`from_torch`](crate::layers::from_torch).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GruWeights {
    /// `[in, 3H]`.
    pub w_ih: Var,
    /// `[H, 3H]`.
    pub w_hh: Var,
    /// `[3H]`, added to the input's product.
    pub b_ih: Option<Var>,
    /// `[3H]`, added to the state's product: the part of n is inside the reset.
    pub b_hh: Option<Var>,
}

impl Builder {
    /// The state of a GRU after every step, in the rows and LoD of `x`. Runs over the sequences of the last LoD
    /// level. Parameters: `weight_ih` `[in, 3H]`, `weight_hh` `[H, 3H]`, `bias_ih` and `bias_hh` `[3H]`; gates r, z, n.
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the initial state does not fit.
    #[track_caller]
    pub fn gru(&self, x: Var, options: Gru) -> Result<Var> {
        let caller = Location::caller();
        let weights = self.gru_weights(x, &options, caller)?;
        self.run_gru(x, weights, &options, false, caller).map(|(h, _)| h)
    }

    /// [`Self::gru`], and the state after each sequence's last step, one row a sequence. An empty sequence has its
    /// initial state.
    ///
    /// # Errors
    /// As [`Self::gru`].
    #[track_caller]
    pub fn gru_states(&self, x: Var, options: Gru) -> Result<(Var, Var)> {
        let caller = Location::caller();
        let weights = self.gru_weights(x, &options, caller)?;
        self.gru_all(x, weights, &options, caller)
    }

    /// [`Self::gru`] with weights that exist: shared, imported or under test.
    ///
    /// # Errors
    /// As [`Self::gru`], and if a weight does not fit.
    #[track_caller]
    pub fn gru_with(&self, x: Var, weights: GruWeights, options: Gru) -> Result<Var> {
        self.run_gru(x, weights, &options, false, Location::caller()).map(|(h, _)| h)
    }

    /// [`Self::gru_states`] with weights that exist.
    ///
    /// # Errors
    /// As [`Self::gru_with`].
    #[track_caller]
    pub fn gru_states_with(&self, x: Var, weights: GruWeights, options: Gru) -> Result<(Var, Var)> {
        self.gru_all(x, weights, &options, Location::caller())
    }

    fn gru_all(
        &self,
        x: Var,
        weights: GruWeights,
        options: &Gru,
        caller: &'static Location<'static>,
    ) -> Result<(Var, Var)> {
        match self.run_gru(x, weights, options, true, caller)? {
            (h, Some(last)) => Ok((h, last)),
            (_, None) => Err(Error::of(ErrorKind::Program, "gru", "a final state", "none")),
        }
    }

    fn gru_weights(&self, x: Var, options: &Gru, caller: &'static Location<'static>) -> Result<GruWeights> {
        let net = self.called_from(caller);
        let Spec { dtype, shape, .. } = sequence_input(&net, "gru", x)?;
        let inputs = shape[1].known().unwrap_or(0);
        let Gru { hidden, bias, input, recurrent, name, .. } = options;
        let (hidden, name) = (*hidden, net.layer_name("gru", name.as_deref()));
        let make =
            |part: &str, dims: &[usize], start| net.parameter(&format!("{name}.{part}"), dtype, dims, start);
        let offset = |part| if *bias { make(part, &[3 * hidden], init::zeros()).map(Some) } else { Ok(None) };
        Ok(GruWeights {
            w_ih: make("weight_ih", &[inputs, 3 * hidden], input.clone())?,
            w_hh: make("weight_hh", &[hidden, 3 * hidden], recurrent.clone())?,
            b_ih: offset("bias_ih")?,
            b_hh: offset("bias_hh")?,
        })
    }

    fn run_gru(
        &self,
        x: Var,
        weights: GruWeights,
        options: &Gru,
        states: bool,
        caller: &'static Location<'static>,
    ) -> Result<(Var, Option<Var>)> {
        let net = self.called_from(caller);
        let spec = sequence_input(&net, "gru", x)?;
        let (hidden, gates) = (options.hidden, 3 * options.hidden);
        let GruWeights { w_ih, w_hh, b_ih, b_hh } = weights;
        let fits = |slot, var, dims: &[usize]| weight_shape(&net, slot, var, &spec, dims);
        fits("w_ih", w_ih, &[spec.shape[1].known().unwrap_or(0), gates])?;
        fits("w_hh", w_hh, &[hidden, gates])?;
        b_ih.map_or(Ok(()), |b| fits("b_ih", b, &[gates]))?;
        b_hh.map_or(Ok(()), |b| fits("b_hh", b, &[gates]))?;
        let initial = |slot, var| state_width(&net, slot, var, &spec, hidden);
        options.initial.map_or(Ok(()), |h| initial("h", h))?;

        let recurrence = Recurrence { reverse: options.reverse, ..Recurrence::default() };
        let outputs = net.recurrent_with(recurrence, x, |step, x_t| {
            let h_prev = match options.initial {
                Some(h) => step.memory_from(h)?,
                None => step.memory_of(spec.dtype, &[hidden])?,
            };
            let from_input = step.product(x_t, w_ih, b_ih)?;
            let from_state = step.product(h_prev, w_hh, b_hh)?;
            let h = step.gru_cell(from_input, from_state, h_prev, options.update)?;
            step.update(h_prev, h)?;
            Ok(if states { vec![h, step.last(h_prev)?] } else { vec![h] })
        });
        match outputs?.as_slice() {
            &[h] => Ok((h, None)),
            &[h, last] => Ok((h, Some(last))),
            other => Err(Error::of(ErrorKind::Program, "gru", "1 or 2 outputs", other.len().to_string())),
        }
    }
}
