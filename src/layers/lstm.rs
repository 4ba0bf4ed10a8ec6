//! The LSTM layer: two products, a sum and the pointwise cell, in a step block.

use std::panic::Location;

use crate::error::{Error, ErrorKind, Result};
use crate::layers::{init, sequence_input, state_width, weight_shape};
use crate::program::{Attributes, Builder, Initializer, Recurrence, Spec, Var};

/// Options of [`Builder::lstm`].
#[derive(Debug, Clone, PartialEq)]
pub struct Lstm {
    hidden: usize,
    forget_bias: f64,
    bias: bool,
    reverse: bool,
    initial: Option<(Var, Var)>,
    input: Initializer,
    recurrent: Initializer,
    name: Option<String>,
}

impl Lstm {
    /// `hidden` numbers of state. The input weight starts by [`init::xavier_gates`], the recurrent one by
    /// [`init::orthogonal_gates`], the bias at zero but for the forget gate's, which starts at 1.
    pub fn new(hidden: usize) -> Self {
        Self {
            hidden,
            forget_bias: 1.0,
            bias: true,
            reverse: false,
            initial: None,
            input: init::xavier_gates(4),
            recurrent: init::orthogonal_gates(4),
            name: None,
        }
    }

    /// What the forget gate's bias starts as. With weights that are given ([`Builder::lstm_with`]) it has no effect.
    #[must_use]
    pub fn forget_bias(self, forget_bias: f64) -> Self {
        Self { forget_bias, ..self }
    }

    /// No bias.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// Each sequence runs from its own end.
    #[must_use]
    pub fn backwards(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Starts from these hidden and cell states, one row a sequence, instead of zeros.
    #[must_use]
    pub fn initial(self, h: Var, c: Var) -> Self {
        Self { initial: Some((h, c)), ..self }
    }

    /// How the weight `[in, 4H]` of the input starts.
    #[must_use]
    pub fn input_init(self, input: Initializer) -> Self {
        Self { input, ..self }
    }

    /// How the weight `[H, 4H]` of the state starts.
    #[must_use]
    pub fn recurrent_init(self, recurrent: Initializer) -> Self {
        Self { recurrent, ..self }
    }

    /// The first part of the parameters' names, instead of `lstm_0` and so on.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

/// The weights of an LSTM, gates i, f, g, o side by side. PyTorch's are the transposes:
/// [`from_torch`](crate::layers::from_torch).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LstmWeights {
    /// `[in, 4H]`.
    pub w_ih: Var,
    /// `[H, 4H]`.
    pub w_hh: Var,
    /// `[4H]`, added to the input's product.
    pub b_ih: Option<Var>,
    /// `[4H]`, added to the state's product.
    pub b_hh: Option<Var>,
}

impl Builder {
    /// The hidden state of an LSTM after every step, in the rows and LoD of `x`. Runs over the sequences of the last
    /// LoD level. Parameters: `weight_ih` `[in, 4H]`, `weight_hh` `[H, 4H]`, `bias` `[4H]`; gates i, f, g, o.
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats, or the initial states do not fit.
    #[track_caller]
    pub fn lstm(&self, x: Var, options: Lstm) -> Result<Var> {
        let caller = Location::caller();
        let weights = self.lstm_weights(x, &options, caller)?;
        self.run_lstm(x, weights, &options, false, caller).map(|(h, _)| h)
    }

    /// [`Self::lstm`], and the hidden and cell state after each sequence's last step, one row a sequence. An empty
    /// sequence has its initial states.
    ///
    /// # Errors
    /// As [`Self::lstm`].
    #[track_caller]
    pub fn lstm_states(&self, x: Var, options: Lstm) -> Result<(Var, Var, Var)> {
        let caller = Location::caller();
        let weights = self.lstm_weights(x, &options, caller)?;
        self.lstm_all(x, weights, &options, caller)
    }

    /// [`Self::lstm`] with weights that exist: shared, imported or under test.
    ///
    /// # Errors
    /// As [`Self::lstm`], and if a weight does not fit.
    #[track_caller]
    pub fn lstm_with(&self, x: Var, weights: LstmWeights, options: Lstm) -> Result<Var> {
        self.run_lstm(x, weights, &options, false, Location::caller()).map(|(h, _)| h)
    }

    /// [`Self::lstm_states`] with weights that exist.
    ///
    /// # Errors
    /// As [`Self::lstm_with`].
    #[track_caller]
    pub fn lstm_states_with(&self, x: Var, weights: LstmWeights, options: Lstm) -> Result<(Var, Var, Var)> {
        self.lstm_all(x, weights, &options, Location::caller())
    }

    fn lstm_all(
        &self,
        x: Var,
        weights: LstmWeights,
        options: &Lstm,
        caller: &'static Location<'static>,
    ) -> Result<(Var, Var, Var)> {
        match self.run_lstm(x, weights, options, true, caller)? {
            (h, Some((h_last, c_last))) => Ok((h, h_last, c_last)),
            (_, None) => Err(Error::of(ErrorKind::Program, "lstm", "final states", "none")),
        }
    }

    fn lstm_weights(
        &self,
        x: Var,
        options: &Lstm,
        caller: &'static Location<'static>,
    ) -> Result<LstmWeights> {
        let net = self.called_from(caller);
        let Spec { dtype, shape, .. } = sequence_input(&net, "lstm", x)?;
        let inputs = shape[1].known().unwrap_or(0);
        let Lstm { hidden, forget_bias, bias, input, recurrent, name, .. } = options;
        let (hidden, name) = (*hidden, net.layer_name("lstm", name.as_deref()));
        let make =
            |part: &str, dims: &[usize], start| net.parameter(&format!("{name}.{part}"), dtype, dims, start);
        Ok(LstmWeights {
            w_ih: make("weight_ih", &[inputs, 4 * hidden], input.clone())?,
            w_hh: make("weight_hh", &[hidden, 4 * hidden], recurrent.clone())?,
            b_ih: if *bias {
                Some(make("bias", &[4 * hidden], init::lstm_bias(*forget_bias))?)
            } else {
                None
            },
            b_hh: None,
        })
    }

    fn run_lstm(
        &self,
        x: Var,
        weights: LstmWeights,
        options: &Lstm,
        states: bool,
        caller: &'static Location<'static>,
    ) -> Result<(Var, Option<(Var, Var)>)> {
        let net = self.called_from(caller);
        let spec = sequence_input(&net, "lstm", x)?;
        let (hidden, gates) = (options.hidden, 4 * options.hidden);
        let LstmWeights { w_ih, w_hh, b_ih, b_hh } = weights;
        let fits = |slot, var, dims: &[usize]| weight_shape(&net, slot, var, &spec, dims);
        fits("w_ih", w_ih, &[spec.shape[1].known().unwrap_or(0), gates])?;
        fits("w_hh", w_hh, &[hidden, gates])?;
        b_ih.map_or(Ok(()), |b| fits("b_ih", b, &[gates]))?;
        b_hh.map_or(Ok(()), |b| fits("b_hh", b, &[gates]))?;
        let initial = |slot, var| state_width(&net, slot, var, &spec, hidden);
        options.initial.map_or(Ok(()), |(h, c)| initial("h", h).and_then(|()| initial("c", c)))?;

        let recurrence = Recurrence { reverse: options.reverse, ..Recurrence::default() };
        let outputs = net.recurrent_with(recurrence, x, |step, x_t| {
            let (h_prev, c_prev) = match options.initial {
                Some((h, c)) => (step.memory_from(h)?, step.memory_from(c)?),
                None => (step.memory_of(spec.dtype, &[hidden])?, step.memory_of(spec.dtype, &[hidden])?),
            };
            let from_input = step.product(x_t, w_ih, b_ih)?;
            let from_state = step.product(h_prev, w_hh, b_hh)?;
            let pre =
                step.append1("add", &[("x", &[from_input]), ("y", &[from_state])], Attributes::new())?;
            let (h, c) = step.lstm_cell(pre, c_prev)?;
            step.update(h_prev, h)?;
            step.update(c_prev, c)?;
            Ok(if states { vec![h, step.last(h_prev)?, step.last(c_prev)?] } else { vec![h] })
        });
        match outputs?.as_slice() {
            &[h] => Ok((h, None)),
            &[h, h_last, c_last] => Ok((h, Some((h_last, c_last)))),
            other => Err(Error::of(ErrorKind::Program, "lstm", "1 or 3 outputs", other.len().to_string())),
        }
    }
}
