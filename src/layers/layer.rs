//! Layers as values: the options of a layer, together with the weights of the layer in a program.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use crate::error::{Error, ErrorKind};
use crate::program::construction::vars::unknown_of;
use crate::program::{Builder, Var, Vars};

/// A layer: operators with parameters of their own, such as [`Linear`](crate::layers::Linear) or [`Lstm`](crate::layers::Lstm).
/// Implement this trait for a layer type of your own, which may contain other layers. [`Builder::layer`] makes an [`Instance`]
/// that can be called many times.
///
/// ```
/// use unpadded::layers::{Instance, Layer, Linear};
/// use unpadded::{Builder, DType, Var};
///
/// /// y = g ∘ tanh(W x + b) + (1 − g) ∘ x, with g = σ(W_g x + b_g) (Srivastava et al., 2015).
/// struct Highway;
///
/// impl Layer for Highway {
///     type Weights = [Instance<Linear>; 2];
///
///     fn kind(&self) -> &str {
///         "highway"
///     }
///
///     fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights> {
///         let width = net.spec(x)?.width();
///         Some([net.layer(Linear::new(width)), net.layer(Linear::new(width))])
///     }
///
///     fn run(&self, _: &Builder, x: Var, [gate, change]: &Self::Weights) -> Var {
///         let g = gate.of(x).sigmoid();
///         g * change.of(x).tanh() + (1.0 - g) * x
///     }
/// }
///
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let highway = net.layer(Highway);
/// let y = highway.of(highway.of(x)); // the same weights twice
/// assert_eq!(net.describe(y), "`add_2`: f32[rows0, 8] lod(0)");
/// let program = net.finish()?;
/// let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
/// assert_eq!(names[0], "highway_0.linear_0.weight");
/// assert_eq!(names.len(), 4);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub trait Layer {
    /// The parameters of the layer.
    type Weights: Clone;

    /// Returns the prefix of the parameters' names, before a count: `highway` in `highway_0.weight`. The prefix is empty if all
    /// parameters belong to layers inside this layer; the inner layers' parameters then have the names that they would have
    /// outside of this layer.
    fn kind(&self) -> &str;

    /// Returns the prefix of the parameters' names, if the options of the layer set a prefix; with `None`, the prefix is
    /// [`Self::kind`] and a count, such as `highway_0`.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Makes the layer's parameters for the input `x`. Returns `None` if `x` is unknown ([`Builder::spec`]). If the layer does
    /// not accept the shape or dtype of `x`, records an error ([`Builder::refuse`]) and returns `None`.
    fn weights(&self, net: &Builder, x: Var) -> Option<Self::Weights>;

    /// Appends the layer's operators to the program; returns the output for the input `x`.
    fn run(&self, net: &Builder, x: Var, weights: &Self::Weights) -> Var;
}

/// A layer that also returns the states of sequences after their last step.
pub trait Stateful: Layer {
    /// The variables of the states; each variable has one row per sequence.
    type States;

    /// Appends the layer's operators to the program. Returns the output after every step, with the rows and the LoD of `x`, and
    /// the states after the last step of each sequence.
    fn states(&self, net: &Builder, x: Var, weights: &Self::Weights) -> (Var, Self::States);

    /// Returns states in which every state is the variable `var`.
    fn all_states(&self, var: Var) -> Self::States;
}

/// A recurrent layer: its states pass from step to step of a sequence, and its output is the first state. The recurrent layers
/// of this crate are [`Lstm`](crate::layers::Lstm), [`Gru`](crate::layers::Gru), [`Rnn`](crate::layers::Rnn),
/// [`Mgu`](crate::layers::Mgu), [`Sru`](crate::layers::Sru), [`Qrnn`](crate::layers::Qrnn). Implement the trait for a layer of
/// your own to stack the layer or to run it in both directions ([`Stacked`](crate::layers::Stacked)).
pub trait RecurrentLayer: Stateful<States: Vars + Copy> + Clone {
    /// Returns this layer with the opposite direction.
    #[must_use]
    fn reversed(self) -> Self;

    /// Returns this layer with the initial states `initial`, which have one row per sequence.
    #[must_use]
    fn starting_from(self, initial: Self::States) -> Self;
}

/// An instance of a layer: the layer's options, and its weights in a program. The first call makes the weights, with shapes for
/// the width of its input. Later calls, and calls of copies of the instance, use these weights.
///
/// ```
/// use unpadded::layers::Lstm;
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let [question, answer] = ["question", "answer"].map(|name| net.feed(name, DType::F32, &[8], 1));
/// let reader = net.layer(Lstm::new(16));
/// let (_, [h, c]) = reader.states(question);
/// let read = reader.with(|lstm| lstm.initial(h, c)).of(answer); // the same weights, from where the question ended
/// assert_eq!(net.program()?.parameters().count(), 3);
/// # let _ = read;
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Instance<L: Layer> {
    layer: L,
    shared: Rc<LayerWeights<L::Weights>>,
}

impl<L: Layer + Clone> Clone for Instance<L> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), shared: Rc::clone(&self.shared) }
    }
}

/// Two instances are equal if they have equal options and share their weights.
impl<L: Layer + PartialEq> PartialEq for Instance<L> {
    fn eq(&self, other: &Self) -> bool {
        self.layer == other.layer && Rc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<L: Layer + fmt::Debug> fmt::Debug for Instance<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} as `{}`", self.layer, self.shared.scope)
    }
}

struct LayerWeights<W> {
    /// The unique id of the builder that made the instance.
    builder: u64,
    /// The scope of the parameters' names: the part of a name before the last point.
    scope: String,
    weights: RefCell<Weights<W>>,
}

enum Weights<W> {
    /// The layer has no weights yet: the first call makes the weights.
    None,
    Made(W),
    /// The layer has no weights, because the first call recorded an error.
    Refused,
}

impl Builder {
    /// Makes an instance of a layer. The instance has its own weights and can be called many times.
    pub fn layer<L: Layer>(&self, layer: L) -> Instance<L> {
        let scope = match (layer.kind(), layer.name()) {
            ("", None) => self.scope_name(),
            (kind, name) => self.layer_name(kind, name),
        };
        let shared = LayerWeights { builder: self.number(), scope, weights: RefCell::new(Weights::None) };
        Instance { layer, shared: Rc::new(shared) }
    }

    /// Makes an instance of a layer with existing weights, such as imported weights or the weights of another layer.
    pub fn layer_with<L: Layer>(&self, layer: L, weights: impl Into<L::Weights>) -> Instance<L> {
        let weights = RefCell::new(Weights::Made(weights.into()));
        let shared = LayerWeights { builder: self.number(), scope: self.scope_name(), weights };
        Instance { layer, shared: Rc::new(shared) }
    }
}

impl<L: Layer> Instance<L> {
    /// Appends the layer's operators to the innermost open step block; returns the output for `x`.
    ///
    /// # Errors
    /// If the layer does not accept the shape or dtype of `x`, or if an option of the layer is invalid.
    #[track_caller]
    pub fn of(&self, x: Var) -> Var {
        match Builder::of(x) {
            Some(net) => self.run(&net, x),
            None => unknown_of(x),
        }
    }

    /// Returns an instance with options changed by `change`, and with the weights of this instance.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(L) -> L) -> Instance<L>
    where
        L: Clone,
    {
        Instance { layer: change(self.layer.clone()), shared: Rc::clone(&self.shared) }
    }

    /// Returns the weights; `None` before the first call, or if the first call recorded an error.
    pub fn weights(&self) -> Option<L::Weights> {
        match &*self.shared.weights.borrow() {
            Weights::Made(weights) => Some(weights.clone()),
            Weights::None | Weights::Refused => None,
        }
    }

    /// Returns the output for `x`, as [`Self::of`] does, but appends the operators to the block of `net`.
    #[track_caller]
    pub(super) fn run(&self, net: &Builder, x: Var) -> Var {
        self.append(net, x, |layer, weights| layer.run(net, x, weights))
    }

    /// Calls `make` with the layer's options and weights. `make` appends operators of its own to the block of `net`.
    #[track_caller]
    pub(super) fn append(&self, net: &Builder, x: Var, make: impl FnOnce(&L, &L::Weights) -> Var) -> Var {
        let _line = net.called_from(Location::caller());
        let weights = net.reachable(x).and_then(|_| self.ready(net, x));
        weights.map_or_else(|| net.unknown(), |weights| make(&self.layer, &weights))
    }

    /// Returns the weights; the first call makes them for the input `x`. Returns `None` if `x` is unknown, if the layer does
    /// not accept the shape or dtype of `x`, or if another builder made the layer.
    #[track_caller]
    pub(super) fn ready(&self, net: &Builder, x: Var) -> Option<L::Weights> {
        if self.shared.builder != net.number() {
            let name =
                [self.shared.scope.as_str(), self.layer.kind()].into_iter().find(|name| !name.is_empty());
            let what = format!("input of layer `{}`", name.unwrap_or("layer"));
            let expected = "a variable of the builder that made the layer";
            let error = Error::of(ErrorKind::Program, what, expected, "a variable of another builder");
            let error = error
                .noted("`Builder::layer` of the variable's builder makes a layer that accepts the variable");
            net.refuse(error.variable(net.name_of(x)));
            return None;
        }
        if !matches!(*self.shared.weights.borrow(), Weights::None) {
            return self.weights();
        }
        let before = net.errors();
        let made = {
            let _scope = net.open_scope(self.shared.scope.clone());
            self.layer.weights(net, x)
        };
        if made.is_none() && net.is_without_errors() {
            let what = format!("weights of layer `{}`", self.layer.kind());
            net.refuse(Error::new(what, "weights, or an error with the reason", "none"));
        }
        *self.shared.weights.borrow_mut() = match &made {
            Some(weights) => Weights::Made(weights.clone()),
            None if net.errors() > before => Weights::Refused,
            None => Weights::None,
        };
        made
    }
}

impl<L: Stateful> Instance<L> {
    /// Returns the output for `x` after every step, and the states after the last step of each sequence, one row per sequence.
    /// The states of an empty sequence are the initial states of the sequence.
    ///
    /// # Errors
    /// As [`Self::of`].
    #[track_caller]
    pub fn states(&self, x: Var) -> (Var, L::States) {
        match Builder::of(x) {
            Some(net) => self.run_states(&net, x),
            None => (unknown_of(x), self.layer.all_states(unknown_of(x))),
        }
    }

    #[track_caller]
    pub(super) fn run_states(&self, net: &Builder, x: Var) -> (Var, L::States) {
        let _line = net.called_from(Location::caller());
        match net.reachable(x).and_then(|_| self.ready(net, x)) {
            Some(weights) => self.layer.states(net, x, &weights),
            None => (net.unknown(), self.layer.all_states(net.unknown())),
        }
    }
}

/// Checks that the width of a layer's output is at least 1; records an error if not.
#[track_caller]
pub(super) fn wide(net: &Builder, layer: &str, width: usize) -> Option<()> {
    at_least_one(net, "width", layer, width)
}

/// Checks that the option `option` of a layer is at least 1; records an error if not.
#[track_caller]
pub(super) fn at_least_one(net: &Builder, option: &str, layer: &str, number: usize) -> Option<()> {
    if number > 0 {
        return Some(());
    }
    net.refuse(Error::new(format!("{option} of layer `{layer}`"), "at least 1", "0"));
    None
}

/// Returns `number` times `value`, the value of a layer's option; records an error if the product overflows.
#[track_caller]
pub(super) fn times(net: &Builder, number: usize, option: &str, layer: &str, value: usize) -> Option<usize> {
    let product = number.checked_mul(value);
    if product.is_none() {
        let what = format!("{option} of layer `{layer}`");
        net.refuse(Error::new(what, format!("at most {}", usize::MAX / number), value.to_string()));
    }
    product
}

/// Implements the method that names a layer with a field `name`; `$kind` is the layer's kind.
macro_rules! layer_name {
    ($layer:ident, $kind:literal) => {
        impl $layer {
            #[doc = concat!("Sets the first part of the parameters' names (default: `", $kind, "_0` and so on).")]
            #[must_use]
            pub fn named(self, name: &str) -> Self {
                Self { name: Some(name.to_owned()), ..self }
            }
        }
    };
}
pub(super) use layer_name;
