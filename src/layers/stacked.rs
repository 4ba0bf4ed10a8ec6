//! Stacked recurrent layers, unidirectional or bidirectional, with optional dropout between the layers and residual
//! connections.

use crate::builder_methods;
use crate::error::Error;
use crate::layers::layer::{Instance, Layer, RecurrentLayer, Stateful};
use crate::program::construction::vars::unknown_of;
use crate::program::{Builder, Var};

/// Options of [`Builder::stacked`]: a stack of recurrent layers of one kind. Each layer reads the output of the previous layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Stacked<L: RecurrentLayer> {
    layer: L,
    layers: usize,
    bidirectional: bool,
    dropout: f64,
    variational_dropout: f64,
    residual: bool,
    initial: Option<Vec<L::States>>,
}

impl<L: RecurrentLayer> Stacked<L> {
    /// Makes a stack of `layers` layers with the options of `layer`. Each layer has weights of its own, and reads the output of
    /// the previous layer.
    pub fn new(layer: L, layers: usize) -> Self {
        let (bidirectional, dropout, variational_dropout, residual, initial) = (false, 0.0, 0.0, false, None);
        Self { layer, layers, bidirectional, dropout, variational_dropout, residual, initial }
    }

    /// Makes each layer bidirectional: a layer runs in both directions and concatenates the outputs of the two directions.
    #[must_use]
    pub fn bidirectional(self) -> Self {
        Self { bidirectional: true, ..self }
    }

    /// Sets the dropout rate of the outputs of all layers except the last layer.
    #[must_use]
    pub fn dropout(self, rate: f64) -> Self {
        Self { dropout: rate, ..self }
    }

    /// Sets the rate of variational dropout on the input of every layer: all steps of a sequence have one dropout mask
    /// ([`Builder::variational_dropout`]).
    #[must_use]
    pub fn variational_dropout(self, rate: f64) -> Self {
        Self { variational_dropout: rate, ..self }
    }

    /// Adds residual connections: each layer except the first layer adds its input to its output. (In the first layer, input
    /// and output may have different widths.)
    #[must_use]
    pub fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    /// Sets the initial states, one row per sequence (default: zeros). `states` has one entry per layer. For bidirectional
    /// layers, `states` has two entries per layer: the forward direction, then the backward direction.
    #[must_use]
    pub fn initial(self, states: Vec<L::States>) -> Self {
        Self { initial: Some(states), ..self }
    }
}

/// The maximum number of layers; a larger number is an error.
const MOST: usize = 1 << 16;

impl<L: RecurrentLayer> Stacked<L> {
    /// Returns the number of layers; a bidirectional layer counts as two layers.
    fn count(&self) -> usize {
        self.layers.saturating_mul(if self.bidirectional { 2 } else { 1 })
    }

    /// Checks that `got`, the length of a list, is the number of layers; a bidirectional layer counts as two layers.
    fn counted(&self, net: &Builder, what: &str, got: usize) -> Option<()> {
        if got == self.count() {
            return Some(());
        }
        net.refuse(Error::new(what, self.count().to_string(), got.to_string()));
        None
    }

    fn checked(&self, net: &Builder) -> Option<()> {
        if self.layers == 0 || self.layers > MOST {
            let (expected, got) = match self.layers {
                0 => ("at least one".to_owned(), "none".to_owned()),
                many => (format!("at most {MOST}"), many.to_string()),
            };
            net.refuse(Error::new("layers", expected, got));
            return None;
        }
        // In a stack of one layer, no operator reads the dropout rate, but an invalid rate is an error all the same.
        let rates = [("dropout", self.dropout), ("variational_dropout", self.variational_dropout)];
        if let Some((name, rate)) = rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            let (what, expected) = (format!("`{name}` of layers"), "a number from 0 to below 1");
            net.refuse(Error::new(what, expected, rate.to_string()));
            return None;
        }
        match &self.initial {
            Some(initial) => self.counted(net, "initial states of layers", initial.len()),
            None => Some(()),
        }
    }
}

impl<L: RecurrentLayer> Layer for Stacked<L> {
    /// The instances of the layer, from the first layer to the last; in a bidirectional layer, the forward direction is before
    /// the backward direction.
    type Weights = Vec<Instance<L>>;

    fn kind(&self) -> &str {
        ""
    }

    fn weights(&self, net: &Builder, _: Var) -> Option<Self::Weights> {
        self.checked(net)?;
        Some((0..self.count()).map(|_| net.layer(self.layer.clone())).collect())
    }

    fn run(&self, net: &Builder, x: Var, layers: &Self::Weights) -> Var {
        self.states(net, x, layers).0
    }
}

impl<L: RecurrentLayer> Stateful for Stacked<L> {
    /// The states of the layers, from the first layer to the last; in a bidirectional layer, the states of the forward
    /// direction are before the states of the backward direction.
    type States = Vec<L::States>;

    fn states(&self, net: &Builder, x: Var, layers: &Self::Weights) -> (Var, Vec<L::States>) {
        let unknown = || (net.unknown(), self.all_states(net.unknown()));
        let counted = self.checked(net).and_then(|()| self.counted(net, "weights of layers", layers.len()));
        if counted.is_none() {
            return unknown();
        }
        let (mut out, mut states) = (x, Vec::new());
        for (k, directions) in layers.chunks(if self.bidirectional { 2 } else { 1 }).enumerate() {
            let input = match self.variational_dropout {
                0.0 => out,
                rate => net.variational_dropout(out, rate),
            };
            let mut outputs = Vec::new();
            let before = net.errors();
            for layer in directions {
                let mut options = self.layer.clone();
                if let Some(initial) = &self.initial {
                    options = options.starting_from(initial[states.len()]);
                }
                if !outputs.is_empty() {
                    options = options.reversed();
                }
                let (out, last) = layer.with(|_| options).run_states(net, input);
                if net.errors() > before {
                    // Building stops after an error, because the other direction and the later layers would report the error
                    // again.
                    return unknown();
                }
                outputs.push(out);
                states.push(last);
            }
            let mut computed = match outputs[..] {
                [one] => one,
                _ => net.concat(&outputs),
            };
            if self.dropout != 0.0 && k + 1 < self.layers {
                computed = net.dropout(computed, self.dropout);
            }
            out = if self.residual && k > 0 { net.add(computed, out) } else { computed };
        }
        (out, states)
    }

    fn all_states(&self, var: Var) -> Vec<L::States> {
        vec![self.layer.all_states(var); self.count().min(2 * MOST)]
    }
}

builder_methods! { Stacked, Builder, Var;
    /// Runs stacked recurrent layers; returns the output of the last layer after every step, with the rows and the LoD of `x`.
    ///
    /// ```
    /// use unpadded::layers::{Lstm, Stacked};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.stacked(Stacked::new(Lstm::new(16), 2).bidirectional().dropout(0.3));
    /// assert_eq!(net.describe(y), "`concat_2`: f32[rows0, 32] lod(0)");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the stack has no layer, `x` does not hold sequences of rows of floats, or the options of the layer are invalid.
    pub fn stacked[L: RecurrentLayer](&self, x: Var, options: Stacked<L>) -> Var {
        self.layer(options).run(self, x)
    }

    /// Runs a layer in both directions, with weights of its own for each direction, and concatenates the outputs of the two
    /// directions.
    ///
    /// # Errors
    /// As [`Builder::stacked`].
    pub fn bidirectional[L: RecurrentLayer](&self, x: Var, layer: L) -> Var {
        self.stacked(x, Stacked::new(layer, 1).bidirectional())
    }
}

impl Builder {
    /// Returns the output of [`Builder::stacked`], and the states of every layer after the last step of each sequence, one row
    /// per sequence. In a bidirectional layer, the states of the forward direction are before the states of the backward
    /// direction.
    ///
    /// # Errors
    /// As [`Builder::stacked`].
    #[track_caller]
    pub fn stacked_states<L: RecurrentLayer>(&self, x: Var, options: Stacked<L>) -> (Var, Vec<L::States>) {
        self.layer(options).run_states(self, x)
    }

    /// Returns the output of [`Builder::bidirectional`], and the states of the forward and of the backward direction after the
    /// last step of each sequence, one row per sequence.
    ///
    /// # Errors
    /// As [`Builder::stacked`].
    #[track_caller]
    pub fn bidirectional_states<L: RecurrentLayer>(&self, x: Var, layer: L) -> (Var, [L::States; 2]) {
        let options = Stacked::new(layer, 1).bidirectional();
        let unknown = options.layer.all_states(self.unknown());
        let (out, states) = self.stacked_states(x, options);
        (out, states.try_into().unwrap_or([unknown; 2]))
    }
}

impl Var {
    /// Calls [`Builder::stacked_states`] with this variable as the input.
    #[track_caller]
    pub fn stacked_states<L: RecurrentLayer>(self, options: Stacked<L>) -> (Var, Vec<L::States>) {
        match Builder::of(self) {
            Some(net) => net.stacked_states(self, options),
            None => (unknown_of(self), options.all_states(unknown_of(self))),
        }
    }

    /// Calls [`Builder::bidirectional_states`] with this variable as the input.
    #[track_caller]
    pub fn bidirectional_states<L: RecurrentLayer>(self, layer: L) -> (Var, [L::States; 2]) {
        match Builder::of(self) {
            Some(net) => net.bidirectional_states(self, layer),
            None => (unknown_of(self), [layer.all_states(unknown_of(self)); 2]),
        }
    }
}
