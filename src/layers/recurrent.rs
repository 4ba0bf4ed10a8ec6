//! What the recurrent layers share: options, weights, and the step block around a cell.

use crate::error::{Error, Result};
use crate::layers::init;
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
    /// `[G·H]`, added to the state's product: in a GRU the part of n is inside the reset.
    pub b_hh: Option<Var>,
}

/// The options that every recurrent layer has; `STATES` variables pass from step to step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options<const STATES: usize> {
    pub(super) hidden: usize,
    pub(super) bias: bool,
    pub(super) reverse: bool,
    pub(super) initial: Option<[Var; STATES]>,
    pub(super) input: Initializer,
    pub(super) recurrent: Initializer,
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
            name: None,
        }
    }
}

/// The methods that set [`Options`], for a layer that keeps them in its field `options`.
macro_rules! option_methods {
    ($layer:ident) => {
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

            /// The first part of the parameters' names, instead of the layer's kind and count.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.options.name = Some(name.to_owned());
                self
            }
        }
    };
}
pub(super) use option_methods;

/// A recurrent layer: what of it is its own.
pub(super) trait Cell<const STATES: usize> {
    /// Begins the names of its parameters.
    const KIND: &'static str;
    const GATES: usize;
    /// What errors call the states; the first one is the layer's output.
    const STATE_NAMES: [&'static str; STATES];

    fn options(&self) -> &Options<STATES>;

    /// Name and start of the biases of the input's and the state's product, where it has any.
    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2];

    /// The next states, from the input's product, the state's product, and the states before.
    fn step(
        &self,
        step: &Step,
        from_input: Var,
        from_state: Var,
        before: [Var; STATES],
    ) -> Result<[Var; STATES]>;
}

/// Makes the parameters of a layer over `x`.
///
/// # Errors
/// If `x` does not hold sequences of rows of floats.
pub(super) fn weights<const STATES: usize, C: Cell<STATES>>(
    net: &Builder,
    x: Var,
    cell: &C,
) -> Result<RecurrentWeights> {
    let spec = sequence_input(net, C::KIND, x)?;
    let Options { hidden, bias, input, recurrent, name, .. } = cell.options();
    let (name, gates) = (net.layer_name(C::KIND, name.as_deref()), C::GATES * hidden);
    let make = |part: &str, dims: &[usize], start: &Initializer| {
        net.parameter(&format!("{name}.{part}"), spec.dtype, dims, start.clone())
    };
    let w_ih = make("weight_ih", &[spec.width(), gates], input)?;
    let w_hh = make("weight_hh", &[*hidden, gates], recurrent)?;
    let [b_ih, b_hh] = cell.biases().map(|start| {
        let start = start.filter(|_| *bias);
        start.map(|(part, start)| make(part, &[gates], &start)).transpose()
    });
    Ok(RecurrentWeights { w_ih, w_hh, b_ih: b_ih?, b_hh: b_hh? })
}

/// Runs the cell over the sequences of `x`. `wanted` says what comes out: of the output after every step, and of the
/// memories that hold the states.
///
/// # Errors
/// If `x` does not hold sequences of rows of floats, or a weight or an initial state does not fit.
pub(super) fn run<const STATES: usize, C: Cell<STATES>, O: Vars>(
    net: &Builder,
    x: Var,
    weights: RecurrentWeights,
    cell: &C,
    wanted: impl FnOnce(&Step, Var, [Var; STATES]) -> Result<O>,
) -> Result<O> {
    let spec = sequence_input(net, C::KIND, x)?;
    let &Options { hidden, reverse, initial, .. } = cell.options();
    let gates = C::GATES * hidden;
    let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = weights;
    weight_shape(net, "w_ih", w_ih, &spec, &[spec.width(), gates])?;
    weight_shape(net, "w_hh", w_hh, &spec, &[hidden, gates])?;
    for (slot, bias) in [("b_ih", b_ih), ("b_hh", b_hh)] {
        bias.map_or(Ok(()), |bias| weight_shape(net, slot, bias, &spec, &[gates]))?;
    }
    for (slot, state) in C::STATE_NAMES.into_iter().zip(initial.iter().flatten()) {
        state_width(net, slot, *state, &spec, hidden)?;
    }
    net.recurrent_with(Recurrence { reverse, ..Recurrence::default() }, x, |step, x_t| {
        let memory = |k: usize| match initial {
            Some(states) => step.memory_from(states[k]),
            None => step.memory_of(spec.dtype, &[hidden]),
        };
        let before = each(memory)?;
        let from_input = step.product(x_t, w_ih, b_ih)?;
        let from_state = step.product(before[0], w_hh, b_hh)?;
        let after = cell.step(step, from_input, from_state, before)?;
        for (memory, next) in before.into_iter().zip(after) {
            step.update(memory, next)?;
        }
        wanted(step, after[0], before)
    })
}

/// An array of what `make` gives for each index, or its first error.
fn each<const N: usize>(make: impl Fn(usize) -> Result<Var>) -> Result<[Var; N]> {
    let made: Vec<Var> = (0..N).map(make).collect::<Result<_>>()?;
    made.try_into().map_err(|made: Vec<Var>| Error::new("states", N.to_string(), made.len().to_string()))
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
fn weight_shape(net: &Builder, slot: &str, weight: Var, like: &Spec, dims: &[usize]) -> Result<()> {
    let spec = net.spec(weight)?;
    if spec == Spec::fixed(like.dtype, dims)? {
        return Ok(());
    }
    let error = Error::new(format!("`{slot}`"), format!("{} {dims:?}", like.dtype), spec.to_string());
    Err(net.located(error.variable(net.name_of(weight))))
}

/// Checks the width of an initial state; that it has one row a sequence is checked by the memory that starts with it.
fn state_width(net: &Builder, slot: &str, state: Var, like: &Spec, hidden: usize) -> Result<()> {
    let spec = net.spec(state)?;
    if spec.dtype == like.dtype && spec.batched() && spec.width() == hidden {
        return Ok(());
    }
    let expected = format!("{} rows of {hidden} numbers, one a sequence", like.dtype);
    let error = Error::new(format!("initial `{slot}`"), expected, spec.to_string());
    Err(net.located(error.variable(net.name_of(state))))
}
