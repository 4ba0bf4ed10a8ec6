//! Initializers by name: the values that a parameter starts with. They are data in the program,
//! and [`evaluate`] computes the numbers.
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

/// Zeros.
pub fn zeros() -> Initializer {
    Initializer::new(initialize::ZEROS, Attributes::new())
}

/// The number `value` everywhere.
pub fn constant(value: f64) -> Initializer {
    Initializer::new(initialize::CONSTANT, Attributes::new().with("value", value))
}

/// Uniformly distributed in `low..high`.
pub fn uniform(low: f64, high: f64) -> Initializer {
    Initializer::new(initialize::UNIFORM, Attributes::new().with("low", low).with("high", high))
}

/// Normally distributed around 0, with standard deviation `std`.
pub fn normal(std: f64) -> Initializer {
    Initializer::new(initialize::NORMAL, Attributes::new().with("std", std))
}

/// Xavier (Glorot) initialization: uniform in ±√(6 / (in + out)), so that outputs have about the variance of inputs, in every
/// layer.
#[doc(alias = "glorot")]
pub fn xavier() -> Initializer {
    xavier_gates(1)
}

/// [`xavier`] for the weights of `gates` gates side by side; `out` is the width of one gate.
pub fn xavier_gates(gates: usize) -> Initializer {
    Initializer::new(initialize::XAVIER_UNIFORM, Attributes::new().with("blocks", gates))
}

/// An orthogonal matrix: multiplying a vector by a square orthogonal matrix does not change the vector's norm.
pub fn orthogonal() -> Initializer {
    orthogonal_gates(1)
}

/// [`orthogonal`] for `gates` matrices side by side.
pub fn orthogonal_gates(gates: usize) -> Initializer {
    Initializer::new(initialize::ORTHOGONAL, Attributes::new().with("blocks", gates))
}

/// The bias `[4H]` of an LSTM: `forget` for the forget gate, 0 for the others.
pub fn lstm_bias(forget: f64) -> Initializer {
    Initializer::new(initialize::LSTM_BIAS, Attributes::new().with("forget", forget))
}

/// The bias `[GH]` of a cell with G gates: `values` has one number per gate, in the gates' order, at which the H biases of the
/// gate start.
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
/// For each of the H numbers, a number u is drawn uniformly in 1..`t_max` − 1. The forget gate's bias starts at ln u and the
/// input gate's bias at −ln u, so that a number of the cell state is kept for about u steps; the other biases start at 0.
/// `t_max` must be at least 2; at 2 all biases start at 0.
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

/// A table of embeddings: normally distributed around 0 with standard deviation `std`, and zeros in the row of the padding id,
/// if there is a padding id.
pub fn embedding(std: f64, padding: Option<usize>) -> Initializer {
    let attributes = Attributes::new().with("std", std);
    Initializer::new(
        initialize::EMBEDDING,
        padding.into_iter().fold(attributes, |a, id| a.with("padding", id)),
    )
}
