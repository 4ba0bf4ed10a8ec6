//! Common code of the recurrent layers: options, weights, the step block around a cell, and the builder's methods.

use std::ops::Range;

use super::layer::{times, wide};
use crate::builder_methods;
use crate::error::Error;
use crate::layers::init;
use crate::operator::Spec;
use crate::program::{Builder, Initializer, Recurrence, Step, Var, Vars};

/// The weights of a recurrent layer, with the columns of its G gates side by side (LSTM: i, f, g, o; GRU: r, z, n). PyTorch
/// stores the transposed weights: [`from_torch`](crate::layers::from_torch) transposes a weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecurrentWeights {
    /// The weight `[in, G·H]` by which the input is multiplied.
    pub w_ih: Var,
    /// The weight `[H, G·H]` by which the state is multiplied.
    pub w_hh: Var,
    /// The bias `[G·H]` that is added to the product of the input and `w_ih`; `None` for a layer without biases.
    pub b_ih: Option<Var>,
    /// The bias `[G·H]` that is added to the product of the state and `w_hh`; `None` if the layer has one bias or none. In a
    /// GRU with [`Reset::After`](crate::layers::Reset::After), the reset gate also multiplies the last H numbers of this
    /// bias, which are for the candidate n.
    pub b_hh: Option<Var>,
}

/// The name of the width of a state in error messages.
pub(super) const STATE: &str = "numbers of state";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options<const STATES: usize> {
    pub(super) hidden: usize,
    pub(super) bias: bool,
    pub(super) reverse: bool,
    pub(super) initial: Option<[Var; STATES]>,
    pub(super) input: Initializer,
    pub(super) recurrent: Initializer,
    /// The initializer of the bias that is added to the product of the input and its weight; `None` for the default of the
    /// cell.
    pub(super) input_bias: Option<Initializer>,
    pub(super) zoneout: [f64; STATES],
    pub(super) recurrent_dropout: f64,
    pub(super) name: Option<String>,
}

impl<const STATES: usize> Options<STATES> {
    /// Makes the default options of a layer with a state of `hidden` numbers and `gates` gates.
    pub(super) fn new(hidden: usize, gates: usize) -> Self {
        Self {
            hidden,
            bias: true,
            reverse: false,
            initial: None,
            input: init::xavier_gates(gates),
            recurrent: init::orthogonal_gates(gates),
            input_bias: None,
            zoneout: [0.0; STATES],
            recurrent_dropout: 0.0,
            name: None,
        }
    }
}

/// The parts in which recurrent layers differ: names, weights and the arithmetic of a step (the cell).
pub(super) trait Cell<const STATES: usize> {
    /// The prefix of the parameters' names.
    const KIND: &'static str;
    const GATES: usize;
    /// The names of the states in errors; the first state is the layer's output.
    const STATE_NAMES: [&'static str; STATES];
    type Weights: Copy;

    fn options(&self) -> &Options<STATES>;

    fn widths(&self) -> [usize; STATES] {
        [self.options().hidden; STATES]
    }

    /// Returns the name and the initializer of each of the biases `b_ih` and `b_hh`; `None` for a bias that the cell
    /// does not have.
    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2];

    /// Makes the layer's parameters for the input `x`; `None` if `x` is unknown or does not fit.
    fn make(&self, net: &Builder, x: Var) -> Option<Self::Weights>;

    /// Appends the operators of the layer. `wanted` selects the results: the output after every step, the states after the last
    /// step, or both. Returns `None` if an input does not fit or is unknown.
    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: Self::Weights,
        wanted: impl FnOnce(&Step, Var, [Var; STATES]) -> O,
    ) -> Option<O>;
}

/// Implements the methods that set [`Options`], for a layer with a field `options`, and [`RecurrentLayer`] with
/// `$states` states. The `$state` arguments are the names of these states.
macro_rules! recurrent_layer {
    ($layer:ident, $weights:ident, $states:literal, [$($state:ident),+]) => {
        impl $layer {
            /// Sets the initial states, one row per sequence (default: zeros).
            #[must_use]
            pub fn initial(mut self, $($state: Var),+) -> Self {
                self.options.initial = Some([$($state),+]);
                self
            }

            /// Omits the biases.
            #[must_use]
            pub fn without_bias(mut self) -> Self {
                self.options.bias = false;
                self
            }

            /// Reverses the direction: steps run from the end of each sequence to its start.
            #[must_use]
            pub fn backwards(mut self) -> Self {
                self.options.reverse = true;
                self
            }

            /// Sets the initializer of the weight `[in, G·H]` by which the input is multiplied, for G gates.
            #[must_use]
            pub fn input_init(mut self, input: Initializer) -> Self {
                self.options.input = input;
                self
            }

            /// Sets the initializer of the weight `[H, G·H]` by which the state is multiplied, for G gates.
            #[must_use]
            pub fn recurrent_init(mut self, recurrent: Initializer) -> Self {
                self.options.recurrent = recurrent;
                self
            }

            /// Sets the initial bias of each gate, in the order of the gates. If the layer has two biases, the numbers are
            /// for the bias that is added to the product of the input and its weight. The initial biases have no effect on a
            /// layer with given weights ([`Builder::layer_with`](crate::Builder::layer_with)).
            #[must_use]
            pub fn gate_biases(mut self, starts: [f64; <$layer as Cell<$states>>::GATES]) -> Self {
                self.options.input_bias = Some($crate::layers::init::gate_biases(&starts));
                self
            }

            /// Sets the zoneout rates, one per state: while training, each number of a state keeps its old value with the
            /// probability of the rate ([`Builder::zoneout`](crate::Builder::zoneout)).
            #[must_use]
            pub fn zoneout(mut self, rates: [f64; $states]) -> Self {
                self.options.zoneout = rates;
                self
            }

            /// Sets the rate of recurrent dropout: variational dropout of the state before the state is multiplied by its
            /// weight. While training, the same numbers of the state are dropped at every step of a sequence
            /// ([`Builder::variational_dropout`](crate::Builder::variational_dropout)).
            #[must_use]
            pub fn recurrent_dropout(mut self, rate: f64) -> Self {
                self.options.recurrent_dropout = rate;
                self
            }

            /// Sets the first part of the parameters' names (default: the layer's kind and count).
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.options.name = Some(name.to_owned());
                self
            }
        }

        impl $crate::layers::Layer for $layer {
            type Weights = $weights;

            fn kind(&self) -> &str {
                <$layer as Cell<$states>>::KIND
            }

            fn name(&self) -> Option<&str> {
                self.options.name.as_deref()
            }

            fn weights(&self, net: &Builder, x: Var) -> Option<$weights> {
                self.make(net, x)
            }

            fn run(&self, net: &Builder, x: Var, &weights: &$weights) -> Var {
                let out = Cell::run(self, net, x, weights, |_, out, _| out);
                out.unwrap_or_else(|| net.unknown())
            }
        }

        impl $crate::layers::Stateful for $layer {
            type States = [Var; $states];

            fn states(&self, net: &Builder, x: Var, &weights: &$weights) -> (Var, [Var; $states]) {
                let wanted = |step: &Step, out, memories: [Var; $states]| {
                    (out, memories.map(|memory| step.last(memory)))
                };
                let all = Cell::run(self, net, x, weights, wanted);
                all.unwrap_or_else(|| (net.unknown(), self.all_states(net.unknown())))
            }

            fn all_states(&self, var: Var) -> [Var; $states] {
                [var; $states]
            }
        }

        impl $crate::layers::RecurrentLayer for $layer {
            fn reversed(mut self) -> Self {
                self.options.reverse = !self.options.reverse;
                self
            }

            fn starting_from(mut self, initial: [Var; $states]) -> Self {
                self.options.initial = Some(initial);
                self
            }
        }

        impl From<usize> for $layer {
            fn from(hidden: usize) -> Self {
                Self::new(hidden)
            }
        }
    };
}
pub(super) use recurrent_layer;

/// Implements what the layers without a matrix product at each step have in common, for a layer with the fields `initial` and
/// `reverse` and a method `steps`.
macro_rules! elementwise_layer {
    ($layer:ident, $weights:ident) => {
        impl $layer {
            /// Sets the initial states, one row per sequence (default: zeros).
            #[must_use]
            pub fn initial(self, c: Var) -> Self {
                Self { initial: Some([c]), ..self }
            }
        }

        impl From<usize> for $layer {
            fn from(hidden: usize) -> Self {
                Self::new(hidden)
            }
        }

        impl $crate::layers::Stateful for $layer {
            type States = [Var; 1];

            fn states(&self, net: &Builder, x: Var, &weights: &$weights) -> (Var, [Var; 1]) {
                let all = self.steps(net, x, weights, |step, out, memory| (out, step.last(memory)));
                all.map_or_else(|| (net.unknown(), [net.unknown()]), |(out, last)| (out, [last]))
            }

            fn all_states(&self, var: Var) -> [Var; 1] {
                [var]
            }
        }

        impl $crate::layers::RecurrentLayer for $layer {
            fn reversed(self) -> Self {
                Self { reverse: !self.reverse, ..self }
            }

            fn starting_from(self, initial: [Var; 1]) -> Self {
                Self { initial: Some(initial), ..self }
            }
        }
    };
}
pub(super) use elementwise_layer;

/// Defines the methods of [`Builder`] and [`Var`] that append a recurrent layer. The `$state` arguments are the names
/// of the layer's states.
macro_rules! recurrent_methods {
    (
        $layer:ident, [$($state:ident: $var:ty),+];
        $(#[$doc:meta])* $run:ident, $run_states:ident
    ) => {
        $crate::builder_methods! { $layer, Builder, Var;
            $(#[$doc])*
            ///
            /// # Errors
            /// If `x` does not hold sequences of rows of floats, or an option or initial state does not fit.
            pub fn $run(&self, x: Var, options: impl Into<$layer>) -> Var {
                self.layer(options.into()).run(self, x)
            }

            #[doc = concat!("Returns the output of [`Builder::", stringify!($run), "`], and the states after each sequence's last step")]
            #[doc = concat!("(", stringify!($($state),+), "), one row per sequence. An empty sequence has its initial states.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Builder::", stringify!($run), "`].")]
            pub fn $run_states(&self, x: Var, options: impl Into<$layer>) -> (Var, $($var),+) {
                let (out, [$($state),+]) = self.layer(options.into()).run_states(self, x);
                (out, $($state),+)
            }
        }
    };
}
pub(super) use recurrent_methods;

/// Makes the weights of a recurrent layer for the input `x`; `None` if `x` is unknown or does not hold sequences of rows of
/// floats.
pub(super) fn weights<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    cell: &C,
) -> Option<RecurrentWeights> {
    let spec = sequence_input(net, C::KIND, x)?;
    let Options { bias, input, recurrent, input_bias, .. } = cell.options();
    let gates = gate_columns(net, cell)?;
    let make = |part: &str, dims: &[usize], start: Initializer| net.parameter(part, spec.dtype, dims, start);
    let w_ih = make("weight_ih", &[spec.width(), gates], input.clone());
    let w_hh = make("weight_hh", &[cell.widths()[0], gates], recurrent.clone());
    let [of_input, of_state] = cell.biases().map(|usual| usual.filter(|_| *bias));
    let b_ih = of_input.map(|(part, usual)| make(part, &[gates], input_bias.clone().unwrap_or(usual)));
    let b_hh = of_state.map(|(part, usual)| make(part, &[gates], usual));
    Some(RecurrentWeights { w_ih, w_hh, b_ih, b_hh })
}

/// Slices the weight and the bias of the state: returns, for each range in `columns`, these columns of `w_hh` and of `b_hh`.
pub(super) fn sliced<const N: usize>(
    net: &Builder,
    weights: RecurrentWeights,
    columns: [Range<usize>; N],
) -> [(Var, Option<Var>); N] {
    columns.map(|columns| {
        let bias = weights.b_hh.map(|bias| net.slice(bias, columns.clone()));
        (net.slice(weights.w_hh, columns), bias)
    })
}

/// The variables that a cell reads at one step.
pub(super) struct CellInputs<const STATES: usize> {
    /// The product of the input with its weight, plus the bias: G·H numbers per row.
    pub(super) from_input: Var,
    /// The first state after recurrent dropout, which the cell multiplies by the weight of the state.
    pub(super) h: Var,
    pub(super) states: [Var; STATES],
}

/// Appends a recurrent loop that runs a cell over the sequences of `x`. `next` appends the operators that compute the next
/// states. `wanted` gets the output after every step and the memories of the states, and returns the results of the loop.
/// Returns `None` if `x` does not hold sequences of rows of floats, or a weight, an option or an initial state does not fit.
pub(super) fn run<const STATES: usize, C: Cell<STATES>, O: Vars>(
    net: &Builder,
    x: Var,
    weights: RecurrentWeights,
    cell: &C,
    next: impl FnOnce(&Step, CellInputs<STATES>) -> [Var; STATES],
    wanted: impl FnOnce(&Step, Var, [Var; STATES]) -> O,
) -> Option<O> {
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
    let options = Recurrence { reverse, ..Recurrence::default() };
    Some(net.recurrent_with(options, x, |step, x_t| {
        let states: [Var; STATES] = std::array::from_fn(|k| match initial {
            Some(states) => step.memory_from(states[k]),
            None => step.memory_of(spec.dtype, &[widths[k]]),
        });
        let from_input = step.product(x_t, w_ih, b_ih);
        let h = match recurrent_dropout {
            0.0 => states[0],
            rate => states[0].variational_dropout(rate),
        };
        let next = next(step, CellInputs { from_input, h, states });
        let after: [Var; STATES] = std::array::from_fn(|k| match zoneout[k] {
            0.0 => next[k],
            rate => step.zoneout(states[k], next[k], rate),
        });
        for (memory, next) in states.into_iter().zip(after) {
            step.update(memory, next);
        }
        wanted(step, after[0], states)
    }))
}

builder_methods! { Builder;
    /// Zoneout of a state (Krueger et al., 2016): while training, each number of the result is the number in `before` with the
    /// probability `rate`, else the number in `after`. At inference, the result is the expected value: rate · before + (1 −
    /// rate) · after. The formula for training and inference is before + (1 − rate) · dropout(after − before).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::executor::{Run, Scope, interpret};
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new();
    /// let [before, after] = ["before", "after"].map(|name| net.feed(name, DType::F32, &[1], 0));
    /// let state = net.zoneout(before, after, 0.25);
    /// let (registry, program) = (net.registry(), net.finish()?);
    /// let (old, new) = (Variable::dense(array![[1.0f32]]), Variable::dense(array![[5.0f32]]));
    /// let fed = [(before.id(), &old), (after.id(), &new)];
    /// let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    /// assert_eq!(values[&state.id()].as_slice::<f32>()?, [4.0]); // 0.25 · 1 + 0.75 · 5
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `before` and `after` do not have the same rows of floats, or `rate` is not in [0, 1).
    pub fn zoneout(&self, before: Var, after: Var, rate: f64) -> Var {
        let change = self.sub(after, before);
        if self.spec_of_tensor(change).is_none() {
            return self.unknown();
        }
        let change = self.dropout(change, rate);
        self.add(before, self.scale(change, 1.0 - rate, 0.0))
    }
}

/// Checks the input and the weights of a recurrent layer; returns the spec of the input. A cell that slices its weights calls
/// this function before it slices them, so that an error names the weight, not a slice.
pub(super) fn checked<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    weights: RecurrentWeights,
    cell: &C,
) -> Option<Spec> {
    let (spec, gates) = (sequence_input(net, C::KIND, x)?, gate_columns(net, cell)?);
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = weights;
    weight_shape(net, "w_ih", w_ih, &spec, &[spec.width(), gates])?;
    weight_shape(net, "w_hh", w_hh, &spec, &[cell.widths()[0], gates])?;
    for (slot, bias) in [("b_ih", b_ih), ("b_hh", b_hh)] {
        bias.map_or(Some(()), |bias| weight_shape(net, slot, bias, &spec, &[gates]))?;
    }
    Some(spec)
}

/// Returns the number of columns of all gates together. If the number overflows, records an error and returns `None`.
fn gate_columns<const STATES: usize, C: Cell<STATES>>(net: &Builder, cell: &C) -> Option<usize> {
    let hidden = cell.options().hidden;
    cell.widths().into_iter().try_for_each(|width| wide(net, C::KIND, width))?;
    times(net, C::GATES, STATE, C::KIND, hidden)
}

/// Returns the spec of a recurrent layer's input; records an error if the input does not hold sequences of rows of floats.
pub(super) fn sequence_input(net: &Builder, layer: &str, x: Var) -> Option<Spec> {
    let spec = net.spec(x)?;
    if spec.lod.is_empty() || !spec.dtype.is_float() || spec.shape.len() != 2 {
        let expected = "sequences of rows of floats, [rows, width] with a LoD";
        let error = Error::new(format!("input of layer `{layer}`"), expected, spec.to_string());
        net.refuse(error.variable(net.name_of(x)));
        return None;
    }
    Some(spec)
}

/// Checks that the weight `weight` has the shape `dims` and the dtype of `like`; records an error if not.
pub(super) fn weight_shape(
    net: &Builder,
    slot: &str,
    weight: Var,
    like: &Spec,
    dims: &[usize],
) -> Option<()> {
    let spec = net.spec(weight)?;
    if spec == net.fitting(Spec::fixed(like.dtype, dims))? {
        return Some(());
    }
    let error = Error::new(format!("`{slot}`"), format!("{} {dims:?}", like.dtype), spec.to_string());
    net.refuse(error.variable(net.name_of(weight)));
    None
}

/// Checks that a rate among the options of a layer is in [0, 1). Without this check, the error would name the operator that
/// reads the rate, such as `dropout`, which the user did not call.
fn chance(net: &Builder, layer: &str, option: &str, rate: f64) -> Option<()> {
    if (0.0..1.0).contains(&rate) {
        return Some(());
    }
    let what = format!("`{option}` of layer `{layer}`");
    net.refuse(Error::new(what, "a number from 0 to below 1", rate.to_string()));
    None
}

/// Checks the dtype and the width of an initial state. The number of rows, one per sequence, is checked when the memory of the
/// state is made.
pub(super) fn state_width(net: &Builder, slot: &str, state: Var, like: &Spec, width: usize) -> Option<()> {
    let spec = net.spec(state)?;
    if spec.dtype == like.dtype && spec.batched() && spec.width() == width {
        return Some(());
    }
    let expected = format!("{} rows of {width} numbers, one for each sequence", like.dtype);
    let error = Error::new(format!("initial `{slot}`"), expected, spec.to_string());
    net.refuse(error.variable(net.name_of(state)));
    None
}
