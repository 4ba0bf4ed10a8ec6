//! Recurrent layers over one another, in one direction or both, with dropout between them and residual connections.

use std::panic::Location;

use crate::error::{Error, Result};
use crate::layers::recurrent::RecurrentLayer;
use crate::program::{Builder, Var};

/// Options of [`Builder::stacked`]: several layers like one.
#[derive(Debug, Clone, PartialEq)]
pub struct Stacked<L, const STATES: usize> {
    layer: L,
    layers: usize,
    bidirectional: bool,
    dropout: f64,
    variational_dropout: f64,
    residual: bool,
    initial: Option<Vec<[Var; STATES]>>,
}

impl<L: RecurrentLayer<STATES>, const STATES: usize> Stacked<L, STATES> {
    /// `layers` layers like `layer`, each with weights of its own, each over what the one before computed.
    pub fn new(layer: L, layers: usize) -> Self {
        let (bidirectional, dropout, variational_dropout, residual, initial) = (false, 0.0, 0.0, false, None);
        Self { layer, layers, bidirectional, dropout, variational_dropout, residual, initial }
    }

    /// Each layer runs in both directions, and puts the two outputs side by side.
    #[must_use]
    pub fn bidirectional(self) -> Self {
        Self { bidirectional: true, ..self }
    }

    /// Dropout after each layer but the last.
    #[must_use]
    pub fn dropout(self, rate: f64) -> Self {
        Self { dropout: rate, ..self }
    }

    /// Dropout with one mask for all steps of a sequence ([`Builder::variational_dropout`]) on the input of every layer.
    #[must_use]
    pub fn variational_dropout(self, rate: f64) -> Self {
        Self { variational_dropout: rate, ..self }
    }

    /// Adds to what each layer but the first computes what it was given. (The first one's input has a width of its own.)
    #[must_use]
    pub fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    /// Starts from these states, one row a sequence: for each layer, or for each layer first the forward and then
    /// the backward direction.
    #[must_use]
    pub fn initial(self, states: Vec<[Var; STATES]>) -> Self {
        Self { initial: Some(states), ..self }
    }
}

impl Builder {
    /// Recurrent layers over one another: the last one's output after every step, in the rows and LoD of `x`.
    ///
    /// ```
    /// use unpadded::layers::{Lstm, Stacked};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1)?;
    /// let y = net.stacked(x, Stacked::new(Lstm::new(16), 2).bidirectional().dropout(0.3))?;
    /// assert_eq!(net.spec(y)?.to_string(), "f32[rows0, 32] lod(0)");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no layer, `x` does not hold sequences of rows of floats, or the layer's options do not fit.
    #[track_caller]
    pub fn stacked<const STATES: usize, L: RecurrentLayer<STATES>>(
        &self,
        x: Var,
        options: Stacked<L, STATES>,
    ) -> Result<Var> {
        self.stacked_states(x, options).map(|(out, _)| out)
    }

    /// [`Self::stacked`], and the states of every layer after each sequence's last step, one row a sequence; with both
    /// directions those of the forward one before those of the backward one.
    ///
    /// # Errors
    /// As [`Self::stacked`].
    #[track_caller]
    pub fn stacked_states<const STATES: usize, L: RecurrentLayer<STATES>>(
        &self,
        x: Var,
        options: Stacked<L, STATES>,
    ) -> Result<(Var, Vec<[Var; STATES]>)> {
        let net = self.called_from(Location::caller());
        stack(&net, x, &options, |layer, input, _| layer.weights(&net, input))
    }

    /// [`Self::stacked_states`] with weights that exist, in the order of the states.
    ///
    /// # Errors
    /// As [`Self::stacked`], and if the weights do not fit.
    #[track_caller]
    pub fn stacked_with<const STATES: usize, L: RecurrentLayer<STATES>>(
        &self,
        x: Var,
        weights: &[L::Weights],
        options: Stacked<L, STATES>,
    ) -> Result<(Var, Vec<[Var; STATES]>)> {
        let net = self.called_from(Location::caller());
        count(&net, "weights of layers", &options, weights.len())?;
        stack(&net, x, &options, |_, _, k| Ok(weights[k]))
    }

    /// A layer in both directions, with weights of their own: the two outputs side by side.
    ///
    /// # Errors
    /// As [`Self::stacked`].
    #[track_caller]
    pub fn bidirectional<const STATES: usize, L: RecurrentLayer<STATES>>(
        &self,
        x: Var,
        layer: L,
    ) -> Result<Var> {
        self.stacked(x, Stacked::new(layer, 1).bidirectional())
    }
}

/// Checks how many there are of something of which every layer and direction has one.
fn count<L, const STATES: usize>(
    net: &Builder,
    what: &str,
    options: &Stacked<L, STATES>,
    got: usize,
) -> Result<()> {
    let expected = options.layers.saturating_mul(if options.bidirectional { 2 } else { 1 });
    if got == expected {
        return Ok(());
    }
    Err(net.located(Error::new(what, expected.to_string(), got.to_string())))
}

fn stack<L: RecurrentLayer<STATES>, const STATES: usize>(
    net: &Builder,
    x: Var,
    options: &Stacked<L, STATES>,
    weights: impl Fn(&L, Var, usize) -> Result<L::Weights>,
) -> Result<(Var, Vec<[Var; STATES]>)> {
    if options.layers == 0 {
        return Err(net.located(Error::new("layers", "at least one", "none")));
    }
    // With one layer no operator takes the first rate, but it is wrong all the same.
    let rates = [("dropout", options.dropout), ("variational_dropout", options.variational_dropout)];
    if let Some((name, rate)) = rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
        let (what, expected) = (format!("`{name}` of layers"), "a number from 0 to below 1");
        return Err(net.located(Error::new(what, expected, rate.to_string())));
    }
    if let Some(initial) = &options.initial {
        count(net, "initial states of layers", options, initial.len())?;
    }
    let (mut out, mut states) = (x, Vec::new());
    for k in 0..options.layers {
        let input = match options.variational_dropout {
            0.0 => out,
            rate => net.variational_dropout(out, rate)?,
        };
        let mut run = |layer: L| {
            let number = states.len();
            let layer = match &options.initial {
                Some(initial) => layer.starting_from(initial[number]),
                None => layer,
            };
            let (out, last) = layer.states(net, input, weights(&layer, input, number)?)?;
            states.push(last);
            Ok::<_, Error>(out)
        };
        let forward = run(options.layer.clone())?;
        let mut computed = match options.bidirectional {
            true => net.concat(&[forward, run(options.layer.clone().reversed())?])?,
            false => forward,
        };
        if options.dropout != 0.0 && k + 1 < options.layers {
            computed = net.dropout(computed, options.dropout)?;
        }
        out = if options.residual && k > 0 { net.add(computed, out)? } else { computed };
    }
    Ok((out, states))
}
