//! The LSTM layer: a step block with two products, a sum and the operator `lstm_cell`. With peepholes, a clipped cell state or
//! activations other than sigmoid and tanh, the cell is composed of several plain operators instead.

use crate::error::Error;
use crate::layers::activation::Activation;
use crate::layers::init;
use crate::layers::recurrent::{
    self, Cell, CellInputs, Options, RecurrentWeights, recurrent_layer, recurrent_methods,
};
use crate::operator::Spec;
use crate::program::{Builder, Initializer, Step, Var, Vars};

/// Options of the LSTM layer ([`Builder::lstm`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Lstm {
    options: Options<2>,
    forget_bias: f64,
    peepholes: bool,
    projection: Option<usize>,
    cell_clip: Option<f64>,
    activations: [Activation; 3],
}

/// The weights of an LSTM with a state of H numbers: the weights of the input gate i, the forget gate f, the candidate
/// g and the output gate o, side by side, and further weights that options add.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LstmWeights {
    /// The weights of the gates: `w_ih` `[in, 4H]`, `w_hh` `[H, 4H]` (`[P, 4H]` with a projection to P numbers) and biases
    /// `[4H]`.
    pub gates: RecurrentWeights,
    /// The peephole weights `[3H]` of the gates i, f, o; `None` without [`Lstm::peepholes`].
    pub peepholes: Option<Var>,
    /// The weight `[H, P]` that projects the hidden state to P numbers; `None` without [`Lstm::projection`].
    pub projection: Option<Var>,
}

impl From<RecurrentWeights> for LstmWeights {
    fn from(gates: RecurrentWeights) -> Self {
        Self { gates, peepholes: None, projection: None }
    }
}

const USUAL: [Activation; 3] = [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];

impl Lstm {
    /// Makes an LSTM with a state of `hidden` numbers. The input weight is initialized by [`init::xavier_gates`], the recurrent
    /// weight by [`init::orthogonal_gates`], the bias of the forget gate with 1, the other biases with 0.
    pub fn new(hidden: usize) -> Self {
        let options = Options::new(hidden, Self::GATES);
        let (peepholes, projection, cell_clip, activations) = (false, None, None, USUAL);
        Self { options, forget_bias: 1.0, peepholes, projection, cell_clip, activations }
    }

    /// Sets the initial bias of the forget gate (default: 1). The initial bias has no effect on a layer with given weights
    /// ([`Builder::layer_with`]).
    #[must_use]
    pub fn forget_bias(self, forget_bias: f64) -> Self {
        Self { forget_bias, ..self }
    }

    /// Chrono initialization ([`init::chrono`]): the biases start so that the cell state remembers for up to `t_max` steps
    /// (Tallec & Ollivier 2018); `t_max` must be at least 2. `chrono` and [`Self::gate_biases`] override each other: the last
    /// call counts. After either call, [`Self::forget_bias`] has no effect.
    ///
    /// ```
    /// # use unpadded::layers::Lstm;
    /// # use unpadded::{Builder, DType};
    /// # let net = Builder::new();
    /// # let x = net.feed("x", DType::F32, &[8], 1);
    /// let h = x.lstm(Lstm::new(16).chrono(500)); // what matters may be 500 steps back
    /// # assert_eq!(net.spec(h).unwrap().dims(), [-1, 16]);
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn chrono(mut self, t_max: usize) -> Self {
        self.options.input_bias = Some(init::chrono(t_max));
        self
    }

    /// Adds peepholes: each number of the cell state, times a weight, is added to the same number of each gate. The
    /// gates i and f read the old cell state, the gate o reads the new cell state (Gers and Schmidhuber, 2000). The
    /// weights of peepholes are the parameter `peephole` `[3H]`, which starts at zero.
    #[must_use]
    pub fn peepholes(self) -> Self {
        Self { peepholes: true, ..self }
    }

    /// Projects the hidden state to `width` numbers by a product at the end of each step (Sak et al., 2014). The projection
    /// adds the parameter `weight_hr` `[H, width]`.
    #[must_use]
    pub fn projection(self, width: usize) -> Self {
        Self { projection: Some(width), ..self }
    }

    /// Clips the new cell state to the range from −`bound` to `bound`. The gate o (with peepholes), the output and the next
    /// step read the clipped state.
    #[must_use]
    pub fn cell_clip(self, bound: f64) -> Self {
        Self { cell_clip: Some(bound), ..self }
    }

    /// Sets the activations of the gates i, f, o (default: sigmoid), of the candidate g (default: tanh), and of the cell state
    /// before the output gate multiplies it (default: tanh).
    #[must_use]
    pub fn activations(self, gates: Activation, candidate: Activation, output: Activation) -> Self {
        Self { activations: [gates, candidate, output], ..self }
    }

    /// Appends the cell of a step as plain operators; returns the next hidden state, before any projection, and the next cell
    /// state. `pre` holds the inputs of the four gates' activations, and `peepholes` the peephole weights of the gates i, f and
    /// o.
    fn composed(&self, pre: Var, c: Var, peepholes: Option<[Var; 3]>) -> [Var; 2] {
        let [gate, candidate, output] = self.activations;
        let [i, f, g, o] = pre.split([self.options.hidden; 4]);
        let open = |gate_input: Var, which: usize, c: Var| {
            gate.of(peepholes.map_or(gate_input, |weights| gate_input + c * weights[which]))
        };
        let added = open(i, 0, c) * candidate.of(g);
        let mut c = open(f, 1, c) * c + added;
        if let Some(bound) = self.cell_clip {
            c = c.clamp(-bound, bound);
        }
        [open(o, 2, c) * output.of(c), c]
    }

    /// Checks that a weight is present if and only if the options of the layer require the weight, and checks its shape. `dims`
    /// is the required shape; `None` if no weight is required.
    fn asked(
        &self,
        net: &Builder,
        slot: &str,
        weight: Option<Var>,
        like: &Spec,
        dims: Option<&[usize]>,
    ) -> Option<()> {
        match (weight, dims) {
            (Some(weight), Some(dims)) => recurrent::weight_shape(net, slot, weight, like, dims),
            (None, None) => Some(()),
            (given, asked) => {
                let count = |there: bool| if there { "a weight" } else { "none" };
                let expected = format!("{}, as the options say", count(asked.is_some()));
                net.refuse(Error::new(format!("`{slot}`"), expected, count(given.is_some())));
                None
            }
        }
    }
}

recurrent_layer!(Lstm, LstmWeights, 2, [h, c]);

impl Cell<2> for Lstm {
    const KIND: &'static str = "lstm";
    const GATES: usize = 4;
    const STATE_NAMES: [&'static str; 2] = ["h", "c"];
    type Weights = LstmWeights;

    fn options(&self) -> &Options<2> {
        &self.options
    }

    fn widths(&self) -> [usize; 2] {
        [self.projection.unwrap_or(self.options.hidden), self.options.hidden]
    }

    fn biases(&self) -> [Option<(&'static str, Initializer)>; 2] {
        [Some(("bias", init::lstm_bias(self.forget_bias))), None]
    }

    fn make(&self, net: &Builder, x: Var) -> Option<LstmWeights> {
        let gates = recurrent::weights(net, x, self)?;
        let (dtype, hidden) = (net.spec(x)?.dtype, self.options.hidden);
        let peepholes =
            self.peepholes.then(|| net.parameter("peephole", dtype, &[3 * hidden], init::zeros()));
        let projection = self.projection;
        let projection =
            projection.map(|width| net.parameter("weight_hr", dtype, &[hidden, width], init::xavier()));
        Some(LstmWeights { gates, peepholes, projection })
    }

    fn run<O: Vars>(
        &self,
        net: &Builder,
        x: Var,
        weights: LstmWeights,
        wanted: impl FnOnce(&Step, Var, [Var; 2]) -> O,
    ) -> Option<O> {
        let (LstmWeights { gates, peepholes, projection }, hidden) = (weights, self.options.hidden);
        let like = recurrent::checked(net, x, gates, self)?;
        let dims = self.peepholes.then_some([3 * hidden]);
        self.asked(net, "peepholes", peepholes, &like, dims.as_ref().map(|dims| &dims[..]))?;
        let dims = self.projection.map(|width| [hidden, width]);
        self.asked(net, "projection", projection, &like, dims.as_ref().map(|dims| &dims[..]))?;
        if let Some(bound) = self.cell_clip.filter(|&bound| bound.is_nan() || bound <= 0.0) {
            net.refuse(Error::new("`cell_clip` of layer `lstm`", "a number above 0", bound.to_string()));
            return None;
        }
        let part = |all: Var, k: usize| net.slice(all, k * hidden..(k + 1) * hidden);
        let peepholes = peepholes.map(|all| [part(all, 0), part(all, 1), part(all, 2)]);
        let plain = peepholes.is_none() && self.cell_clip.is_none() && self.activations == USUAL;
        let next = |step: &Step, CellInputs { from_input, h, states: [_, c] }: CellInputs<2>| {
            let pre = from_input + step.product(h, gates.w_hh, gates.b_hh);
            let [h, c] = match plain {
                true => <[Var; 2]>::from(step.lstm_cell(pre, c)),
                false => self.composed(pre, c, peepholes),
            };
            [projection.map_or(h, |weight| step.product(h, weight, None)), c]
        };
        recurrent::run(net, x, gates, self, next, wanted)
    }
}

recurrent_methods! {
    Lstm, [h: Var, c: Var];
    /// Returns the hidden state of an LSTM after every step, with the rows and the LoD of `x`. The LSTM runs over the sequences
    /// of the last LoD level. Parameters: `weight_ih` `[in, 4H]`, `weight_hh` `[H, 4H]`, `bias` `[4H]`; the columns are the
    /// gates i, f, g, o.
    ///
    /// The formulas of a step are \[i, f, g, o\] = x_t·W_ih + h_(t−1)·W_hh + b, c_t = σ(f) ∘ c_(t−1) + σ(i) ∘ tanh(g) and h_t =
    /// σ(o) ∘ tanh(c_t).
    ///
    /// ```
    /// use unpadded::layers::Lstm;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let h = x.lstm(16).lstm(Lstm::new(4).peepholes().named("second"));
    /// assert_eq!(net.spec(h).unwrap().dims(), [-1, 4]);
    /// assert!(net.finish()?.find("second.peephole").is_some());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    lstm, lstm_states
}
