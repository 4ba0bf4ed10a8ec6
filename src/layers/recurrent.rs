//! What the recurrent layers share: options, weights, the step block around a cell, and the builder's methods.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::layers::{init, wide};
use crate::program::{Builder, Initializer, Recurrence, Spec, Step, Var, Vars};

/// The weights of a recurrent layer, its gates side by side (G of them; LSTM: i, f, g, o; GRU: r, z, n). PyTorch's are
/// the transposes: [`from_torch`](crate::layers::from_torch).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecurrentWeights {
    /// `[in, G·H]`.
    pub w_ih: Var,
    /// `[H, G·H]`.
    pub w_hh: Var,
    /// `[G·H]`, added to the input's product.
    pub b_ih: Option<Var>,
    /// `[G·H]`, added to the state's product: in a GRU that resets after it the part of n is inside the reset.
    pub b_hh: Option<Var>,
}

/// A layer that runs over sequences with `STATES` variables passing from step to step, the first of which is its
/// output: [`Lstm`](crate::layers::Lstm), [`Gru`](crate::layers::Gru), [`Rnn`](crate::layers::Rnn),
/// [`Mgu`](crate::layers::Mgu), and any layer of one's own that shall be stacked or run in both directions
/// ([`Stacked`](crate::layers::Stacked)).
pub trait RecurrentLayer<const STATES: usize>: Clone {
    /// The variables that it multiplies by.
    type Weights: Copy;

    /// Makes its parameters for the input `x`.
    ///
    /// # Errors
    /// If `x` does not hold sequences of rows of floats.
    #[track_caller]
    fn weights(&self, net: &Builder, x: Var) -> Result<Self::Weights>;

    /// Runs it with weights that exist: the output after every step, in the rows and LoD of `x`, and the states after
    /// each sequence's last step, one row a sequence.
    ///
    /// # Errors
    /// If the input, a weight or an initial state does not fit.
    #[track_caller]
    fn states(&self, net: &Builder, x: Var, weights: Self::Weights) -> Result<(Var, [Var; STATES])>;

    /// The same layer in the other direction.
    #[must_use]
    fn reversed(self) -> Self;

    /// The same layer with these initial states, one row a sequence.
    #[must_use]
    fn starting_from(self, initial: [Var; STATES]) -> Self;
}

/// The options that every recurrent layer has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options<const STATES: usize> {
    pub(super) hidden: usize,
    pub(super) bias: bool,
    pub(super) reverse: bool,
    pub(super) initial: Option<[Var; STATES]>,
    pub(super) input: Initializer,
    pub(super) recurrent: Initializer,
    pub(super) zoneout: [f64; STATES],
    pub(super) recurrent_dropout: f64,
    pub(super) name: Option<String>,
}

impl<const STATES: usize> Options<STATES> {
    /// `hidden` numbers of state and `gates` gates.
    pub(super) fn new(hidden: usize, gates: usize) -> Self {
        Self {
            hidden,
            bias: true,
            reverse: false,
            initial: None,
            input: init::xavier_gates(gates),
            recurrent: init::orthogonal_gates(gates),
            zoneout: [0.0; STATES],
            recurrent_dropout: 0.0,
            name: None,
        }
    }
}

/// A recurrent layer of this crate: what of it is its own.
pub(super) trait Cell<const STATES: usize> {
    /// Begins the names of its parameters.
    const KIND: &'static str;
    const GATES: usize;
    /// What errors call the states; the first one is the layer's output.
    const STATE_NAMES: [&'static str; STATES];
    type Weights: Copy;

    fn options(&self) -> &Options<STATES>;

    /// The widths of the states.
    fn widths(&self) -> [usize; STATES] {
        [self.options().hidden; STATES]
    }

    /// Name and start of the biases of the input's and the state's product, where it has any.
    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2];

    /// Makes its parameters for the input `x`.
    fn make(&self, net: &Builder, x: Var) -> Result<Self::Weights>;

    /// Runs it; `wanted` says what comes out, of the output after every step and of the memories.
    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: Self::Weights,
        wanted: impl FnOnce(&Step, Var, [Var; STATES]) -> Result<O>,
    ) -> Result<O>;
}

/// The methods that set [`Options`], for a layer that keeps them in its field `options`, and what makes it a
/// [`RecurrentLayer`] of `$states` states.
macro_rules! recurrent_layer {
    ($layer:ident, $weights:ident, $states:literal) => {
        impl $layer {
            /// No biases.
            #[must_use]
            pub fn without_bias(mut self) -> Self {
                self.options.bias = false;
                self
            }

            /// Each sequence runs from its own end.
            #[must_use]
            pub fn backwards(mut self) -> Self {
                self.options.reverse = true;
                self
            }

            /// How the weight `[in, G·H]` of the input starts, for G gates.
            #[must_use]
            pub fn input_init(mut self, input: Initializer) -> Self {
                self.options.input = input;
                self
            }

            /// How the weight `[H, G·H]` of the state starts, for G gates.
            #[must_use]
            pub fn recurrent_init(mut self, recurrent: Initializer) -> Self {
                self.options.recurrent = recurrent;
                self
            }

            /// While training, each number of the states keeps its old value with these probabilities, one for each
            /// state: [`Builder::zoneout`](crate::Builder::zoneout).
            #[must_use]
            pub fn zoneout(mut self, rates: [f64; $states]) -> Self {
                self.options.zoneout = rates;
                self
            }

            /// Variational dropout of the state where it is multiplied by its weight: while training, the same numbers
            /// of it are left out at every step of a sequence
            /// ([`Builder::variational_dropout`](crate::Builder::variational_dropout)).
            #[must_use]
            pub fn recurrent_dropout(mut self, rate: f64) -> Self {
                self.options.recurrent_dropout = rate;
                self
            }

            /// The first part of the parameters' names, instead of the layer's kind and count.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.options.name = Some(name.to_owned());
                self
            }
        }

        impl $crate::layers::RecurrentLayer<$states> for $layer {
            type Weights = $weights;

            #[track_caller]
            fn weights(&self, net: &Builder, x: Var) -> Result<$weights> {
                self.make(&net.called_from(Location::caller()), x)
            }

            #[track_caller]
            fn states(&self, net: &Builder, x: Var, weights: $weights) -> Result<(Var, [Var; $states])> {
                let net = net.called_from(Location::caller());
                let all = self.run(&net, x, weights, |step, out, memories| {
                    let last = memories.into_iter().map(|memory| step.last(memory));
                    std::iter::once(Ok(out)).chain(last).collect::<Result<Vec<Var>>>()
                })?;
                $crate::layers::recurrent::output_and_states(&all)
            }

            fn reversed(mut self) -> Self {
                self.options.reverse = !self.options.reverse;
                self
            }

            fn starting_from(mut self, initial: [Var; $states]) -> Self {
                self.options.initial = Some(initial);
                self
            }
        }
    };
}
pub(super) use recurrent_layer;

/// The four methods of [`Builder`] that a layer has. `$state` are its states' names.
macro_rules! builder_methods {
    (
        $layer:ident, $weights:ident, [$($state:ident: $var:ty),+];
        $(#[$doc:meta])* $run:ident, $run_states:ident, $run_with:ident, $run_states_with:ident
    ) => {
        impl Builder {
            $(#[$doc])*
            ///
            /// # Errors
            /// If `x` does not hold sequences of rows of floats, or an option or initial state does not fit.
            #[track_caller]
            pub fn $run(&self, x: Var, options: $layer) -> Result<Var> {
                let weights = options.make(&self.called_from(Location::caller()), x)?;
                self.$run_with(x, weights, options)
            }

            #[doc = concat!("[`Self::", stringify!($run), "`], and the states after each sequence's last step")]
            #[doc = concat!("(", stringify!($($state),+), "), one row a sequence. An empty sequence has its initial ones.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($run), "`].")]
            #[track_caller]
            pub fn $run_states(&self, x: Var, options: $layer) -> Result<(Var, $($var),+)> {
                let weights = options.make(&self.called_from(Location::caller()), x)?;
                self.$run_states_with(x, weights, options)
            }

            #[doc = concat!("[`Self::", stringify!($run), "`] with weights that exist: shared, imported or under test.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($run), "`], and if a weight does not fit.")]
            #[track_caller]
            pub fn $run_with(&self, x: Var, weights: impl Into<$weights>, options: $layer) -> Result<Var> {
                options.run(&self.called_from(Location::caller()), x, weights.into(), |_, out, _| Ok(out))
            }

            #[doc = concat!("[`Self::", stringify!($run_states), "`] with weights that exist.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Self::", stringify!($run_with), "`].")]
            #[track_caller]
            pub fn $run_states_with(
                &self,
                x: Var,
                weights: impl Into<$weights>,
                options: $layer,
            ) -> Result<(Var, $($var),+)> {
                let net = self.called_from(Location::caller());
                options.run(&net, x, weights.into(), |step, out, [$($state),+]| {
                    Ok((out, $(step.last($state)?),+))
                })
            }
        }
    };
}
pub(super) use builder_methods;

/// The first variable and the `N` others.
pub(super) fn output_and_states<const N: usize>(all: &[Var]) -> Result<(Var, [Var; N])> {
    match all {
        [out, states @ ..] if states.len() == N => Ok((*out, each(|k| Ok(states[k]))?)),
        _ => Err(Error::new("variables of a layer", (N + 1).to_string(), all.len().to_string())),
    }
}

/// Makes the weights of a layer over `x`.
///
/// # Errors
/// If `x` does not hold sequences of rows of floats.
pub(super) fn weights<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    cell: &C,
) -> Result<RecurrentWeights> {
    named_weights(net, x, cell).map(|(_, weights)| weights)
}

/// [`weights`], and the first part of their names.
pub(super) fn named_weights<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    cell: &C,
) -> Result<(String, RecurrentWeights)> {
    let spec = sequence_input(net, C::KIND, x)?;
    let Options { bias, input, recurrent, name, .. } = cell.options();
    let gates = gate_columns(net, cell)?;
    let name = net.layer_name(C::KIND, name.as_deref());
    let make = |part: &str, dims: &[usize], start: &Initializer| {
        net.parameter(&format!("{name}.{part}"), spec.dtype, dims, start.clone())
    };
    let w_ih = make("weight_ih", &[spec.width(), gates], input)?;
    let w_hh = make("weight_hh", &[cell.widths()[0], gates], recurrent)?;
    let [b_ih, b_hh] = cell.biases().map(|start| {
        let start = start.filter(|_| *bias);
        start.map(|(part, start)| make(part, &[gates], &start)).transpose()
    });
    Ok((name, RecurrentWeights { w_ih, w_hh, b_ih: b_ih?, b_hh: b_hh? }))
}

/// The columns of the state's weight and bias for each range of gates.
pub(super) fn sliced<const N: usize>(
    net: &Builder,
    weights: RecurrentWeights,
    columns: [Range<usize>; N],
) -> Result<[(Var, Option<Var>); N]> {
    let part = |columns: Range<usize>| {
        let bias = weights.b_hh.map(|bias| net.slice(bias, columns.clone())).transpose();
        Ok((net.slice(weights.w_hh, columns)?, bias?))
    };
    let parts: Vec<_> = columns.into_iter().map(part).collect::<Result<_>>()?;
    parts.try_into().map_err(|_| Error::new("columns", N.to_string(), "others"))
}

/// What a cell makes its next states of, at one step.
pub(super) struct Before<const STATES: usize> {
    /// The input's product.
    pub(super) from_input: Var,
    /// The first state, to be multiplied by its weight: without what recurrent dropout left out.
    pub(super) h: Var,
    /// The states.
    pub(super) states: [Var; STATES],
}

/// Runs a cell over the sequences of `x`. `next` gives the next states, and `wanted` says what comes out: of the output
/// after every step, and of the memories that hold the states.
///
/// # Errors
/// If `x` does not hold sequences of rows of floats, or a weight or an initial state does not fit.
pub(super) fn run<const STATES: usize, C: Cell<STATES>, O: Vars>(
    net: &Builder,
    x: Var,
    weights: RecurrentWeights,
    cell: &C,
    next: impl FnOnce(&Step, Before<STATES>) -> Result<[Var; STATES]>,
    wanted: impl FnOnce(&Step, Var, [Var; STATES]) -> Result<O>,
) -> Result<O> {
    let spec = checked(net, x, weights, cell)?;
    let &Options { reverse, initial, zoneout, recurrent_dropout, .. } = cell.options();
    let (widths, RecurrentWeights { w_ih, b_ih, .. }) = (cell.widths(), weights);
    chance(net, C::KIND, "recurrent_dropout", recurrent_dropout)?;
    for (rate, state) in zoneout.into_iter().zip(C::STATE_NAMES) {
        chance(net, C::KIND, &format!("zoneout` of `{state}"), rate)?;
    }
    for ((slot, width), state) in C::STATE_NAMES.into_iter().zip(widths).zip(initial.iter().flatten()) {
        state_width(net, slot, *state, &spec, width)?;
    }
    net.recurrent_with(Recurrence { reverse, ..Recurrence::default() }, x, |step, x_t| {
        let states = each(|k| match initial {
            Some(states) => step.memory_from(states[k]),
            None => step.memory_of(spec.dtype, &[widths[k]]),
        })?;
        let from_input = step.product(x_t, w_ih, b_ih)?;
        let h = match recurrent_dropout {
            0.0 => states[0],
            rate => step.variational_dropout(states[0], rate)?,
        };
        let next = next(step, Before { from_input, h, states })?;
        let after: [Var; STATES] = each(|k| match zoneout[k] {
            0.0 => Ok(next[k]),
            rate => step.zoneout(states[k], next[k], rate),
        })?;
        for (memory, next) in states.into_iter().zip(after) {
            step.update(memory, next)?;
        }
        wanted(step, after[0], states)
    })
}

impl Builder {
    /// The state after a step with zoneout (Krueger et al., 2016): while training each number of `before` stays with
    /// probability `rate`, else it becomes that of `after`; without training the mean of the two cases. Composed as
    /// before + (1 − rate) · dropout(after − before).
    ///
    /// # Errors
    /// If the two do not have the same rows of floats, or `rate` is not in [0, 1).
    #[track_caller]
    pub fn zoneout(&self, before: Var, after: Var, rate: f64) -> Result<Var> {
        let change = self.dropout(self.sub(after, before)?, rate)?;
        self.add(before, self.scale(change, 1.0 - rate, 0.0)?)
    }
}

/// An array of what `make` gives for each index, or its first error.
fn each<const N: usize>(make: impl Fn(usize) -> Result<Var>) -> Result<[Var; N]> {
    let made: Vec<Var> = (0..N).map(make).collect::<Result<_>>()?;
    made.try_into().map_err(|made: Vec<Var>| Error::new("states", N.to_string(), made.len().to_string()))
}

/// The spec of the input, after it and the weights were found to fit. A cell that takes its weights apart calls it
/// before, so that an error names the weight.
///
/// # Errors
/// If `x` does not hold sequences of rows of floats, or a weight does not fit.
pub(super) fn checked<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    weights: RecurrentWeights,
    cell: &C,
) -> Result<Spec> {
    let (spec, gates) = (sequence_input(net, C::KIND, x)?, gate_columns(net, cell)?);
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = weights;
    weight_shape(net, "w_ih", w_ih, &spec, &[spec.width(), gates])?;
    weight_shape(net, "w_hh", w_hh, &spec, &[cell.widths()[0], gates])?;
    for (slot, bias) in [("b_ih", b_ih), ("b_hh", b_hh)] {
        bias.map_or(Ok(()), |bias| weight_shape(net, slot, bias, &spec, &[gates]))?;
    }
    Ok(spec)
}

/// The columns of all gates side by side; the columns of fewer of them are a number too, then.
fn gate_columns<const STATES: usize, C: Cell<STATES>>(net: &Builder, cell: &C) -> Result<usize> {
    let hidden = cell.options().hidden;
    cell.widths().into_iter().try_for_each(|width| wide(net, C::KIND, width))?;
    C::GATES.checked_mul(hidden).ok_or_else(|| {
        let what = format!("numbers of state of layer `{}`", C::KIND);
        net.located(Error::new(what, format!("at most {}", usize::MAX / C::GATES), hidden.to_string()))
    })
}

/// The spec of a recurrent layer's input.
fn sequence_input(net: &Builder, layer: &str, x: Var) -> Result<Spec> {
    let spec = net.spec(x)?;
    if spec.lod.is_empty() || !spec.dtype.is_float() || spec.shape.len() != 2 {
        let expected = "sequences of rows of floats, [rows, width] with a LoD";
        let error = Error::new(format!("input of layer `{layer}`"), expected, spec.to_string());
        return Err(net.located(error.variable(net.name_of(x))));
    }
    Ok(spec)
}

/// Checks the shape of a weight that was given.
pub(super) fn weight_shape(
    net: &Builder,
    slot: &str,
    weight: Var,
    like: &Spec,
    dims: &[usize],
) -> Result<()> {
    let spec = net.spec(weight)?;
    if spec == Spec::fixed(like.dtype, dims)? {
        return Ok(());
    }
    let error = Error::new(format!("`{slot}`"), format!("{} {dims:?}", like.dtype), spec.to_string());
    Err(net.located(error.variable(net.name_of(weight))))
}

/// Checks a rate of the layer's options: the operator that takes it would name itself, which the user did not write.
fn chance(net: &Builder, layer: &str, option: &str, rate: f64) -> Result<()> {
    if (0.0..1.0).contains(&rate) {
        return Ok(());
    }
    let what = format!("`{option}` of layer `{layer}`");
    Err(net.located(Error::new(what, "a number from 0 to below 1", rate.to_string())))
}

/// Checks the width of an initial state; that it has one row a sequence is checked by the memory that starts with it.
fn state_width(net: &Builder, slot: &str, state: Var, like: &Spec, width: usize) -> Result<()> {
    let spec = net.spec(state)?;
    if spec.dtype == like.dtype && spec.batched() && spec.width() == width {
        return Ok(());
    }
    let expected = format!("{} rows of {width} numbers, one a sequence", like.dtype);
    let error = Error::new(format!("initial `{slot}`"), expected, spec.to_string());
    Err(net.located(error.variable(net.name_of(state))))
}
