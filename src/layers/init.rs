//! Initializers: descriptions of the values that a parameter starts with. An initializer is stored in the program by name and
//! attributes, and [`evaluate`] computes the values.
//!
//! ```
//! use unpadded::DType;
//! use unpadded::layers::init;
//! let weight = init::evaluate(&init::xavier(), &[4, 2], DType::F32, 0, "fc.weight")?;
//! assert!(weight.as_slice::<f32>()?.iter().all(|x| x.abs() <= 1.0));
//! # Ok::<(), unpadded::Error>(())
//! ```

use crate::operator::Attributes;
use crate::program::Initializer;
use crate::program::description::initialize;
pub use crate::program::description::initialize::evaluate;

/// Zero initialization: every number is 0.
pub fn zeros() -> Initializer {
    Initializer::new(initialize::ZEROS, Attributes::new())
}

/// Constant initialization: every number is `value`.
pub fn constant(value: f64) -> Initializer {
    Initializer::new(initialize::CONSTANT, Attributes::new().with("value", value))
}

/// Uniform initialization: numbers are uniformly distributed in `low..high`.
pub fn uniform(low: f64, high: f64) -> Initializer {
    Initializer::new(initialize::UNIFORM, Attributes::new().with("low", low).with("high", high))
}

/// Normal initialization: numbers are normally distributed around 0, with the standard deviation `std`.
pub fn normal(std: f64) -> Initializer {
    Initializer::new(initialize::NORMAL, Attributes::new().with("std", std))
}

/// Xavier (Glorot) initialization: numbers are uniformly distributed in ±√(6 / (in + out)), so that a layer's outputs
/// have about the same variance as its inputs.
#[doc(alias = "glorot")]
pub fn xavier() -> Initializer {
    xavier_gates(1)
}

/// Xavier initialization ([`xavier`]) of the weights of `gates` gates side by side; `out` is the width of one gate.
pub fn xavier_gates(gates: usize) -> Initializer {
    Initializer::new(initialize::XAVIER_UNIFORM, Attributes::new().with("blocks", gates))
}

/// Orthogonal initialization: the values are an orthogonal matrix. A product with a square orthogonal matrix does not change
/// the norm of a vector.
pub fn orthogonal() -> Initializer {
    orthogonal_gates(1)
}

/// Orthogonal initialization ([`orthogonal`]) of `gates` matrices side by side.
pub fn orthogonal_gates(gates: usize) -> Initializer {
    Initializer::new(initialize::ORTHOGONAL, Attributes::new().with("blocks", gates))
}

/// Initialization of the bias `[4H]` of an LSTM: `forget` for the forget gate, 0 for all other gates.
pub fn lstm_bias(forget: f64) -> Initializer {
    Initializer::new(initialize::LSTM_BIAS, Attributes::new().with("forget", forget))
}

/// Initialization of the bias `[GH]` of a cell with G gates: `values` has one number per gate, in the order of the gates. All H
/// biases of a gate start at the entry of `values` for this gate.
///
/// ```
/// use unpadded::DType;
/// use unpadded::layers::init;
/// let bias = init::evaluate(&init::gate_biases(&[0.0, 1.5, -1.0]), &[6], DType::F64, 0, "bias")?;
/// assert_eq!(bias.as_slice::<f64>()?, [0.0, 0.0, 1.5, 1.5, -1.0, -1.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub fn gate_biases(values: &[f64]) -> Initializer {
    Initializer::new(initialize::GATE_BIASES, Attributes::new().with("values", values.to_vec()))
}

/// Chrono initialization: the bias `[4H]` of an LSTM that remembers for up to `t_max` steps (Tallec & Ollivier 2018, "Can
/// recurrent neural networks warp time?").
///
/// For each of the H numbers of the cell state, a number u is drawn uniformly in 1..`t_max` − 1. The bias of the forget gate
/// starts at ln u and the bias of the input gate at −ln u, so that this number of the cell state is kept for about u steps. All
/// other biases start at 0. `t_max` must be at least 2; at `t_max` = 2, all biases start at 0.
///
/// ```
/// use unpadded::DType;
/// use unpadded::layers::init;
/// let bias = init::evaluate(&init::chrono(100), &[12], DType::F64, 0, "bias")?; // gates i, f, g, o
/// let (input, forget) = bias.as_slice::<f64>()?[..6].split_at(3);
/// assert!(forget.iter().all(|&b| (0.0..=99f64.ln()).contains(&b)));
/// assert!(input.iter().zip(forget).all(|(i, f)| *i == -f));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub fn chrono(t_max: usize) -> Initializer {
    Initializer::new(initialize::CHRONO, Attributes::new().with("t_max", t_max))
}

/// Initialization of an embedding table: numbers are normally distributed around 0 with the standard deviation `std`; the row
/// of the padding id `padding` is zeros.
pub fn embedding(std: f64, padding: Option<usize>) -> Initializer {
    let attributes = Attributes::new().with("std", std);
    Initializer::new(
        initialize::EMBEDDING,
        padding.into_iter().fold(attributes, |a, id| a.with("padding", id)),
    )
}
