//! What a model author calls: operators with their parameters and how these start.
//!
//! A layer is a plain struct of options and a method of [`Builder`] that appends ordinary
//! operators. The recurrent layers are ordinary [`Builder::recurrent`] blocks: a
//! cell of one's own, written the same way, is compiled the same way.
//!
//! Parameters are named by layer and count (`lstm_0.weight_ih`, `lstm_1.weight_ih`) or by the layer's own name
//! (`named("encoder")`), and start by [`init`].

pub mod init;

mod embedding;
mod gru;
mod linear;
mod lstm;

pub use embedding::Embedding;
pub use gru::{Gru, GruWeights};
pub use linear::Linear;
pub use lstm::{Lstm, LstmWeights};

use std::panic::Location;

use ndarray::{Array2, ArrayView2};

use crate::error::{Error, Result};
use crate::program::{Builder, Spec, Var};

/// A weight `[out, in]`, as PyTorch stores it, in this crate's layout `[in, out]`. The order of the gates is the same
/// (LSTM: i, f, g, o; GRU: r, z, n).
///
/// ```
/// use ndarray::array;
/// use unpadded::layers::from_torch;
/// let weight = from_torch(array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].view());
/// assert_eq!(weight, array![[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
/// assert!(weight.is_standard_layout());
/// ```
pub fn from_torch<T: Clone>(weight: ArrayView2<'_, T>) -> Array2<T> {
    weight.t().as_standard_layout().into_owned()
}

/// Names the line of the user's code in an error, and not the layer's.
fn called(error: Error, caller: &Location<'_>) -> Error {
    error.called_from(caller)
}

/// The spec of a recurrent layer's input, checked here so that an error names the user's line and not the layer's.
fn sequence_input(net: &Builder, layer: &str, x: Var, caller: &Location<'_>) -> Result<Spec> {
    let spec = net.spec(x).map_err(|e| called(e, caller))?;
    if spec.lod.is_empty() || !spec.dtype.is_float() || spec.shape.len() != 2 {
        let expected = "sequences of rows of floats, [rows, width] with a LoD";
        let error = Error::new(format!("input of layer `{layer}`"), expected, spec.to_string());
        return Err(called(error.variable(net.name_of(x)), caller));
    }
    Ok(spec)
}

/// Checks the shape of a weight that was given.
fn weight_shape(net: &Builder, slot: &str, weight: Var, like: &Spec, dims: &[usize]) -> Result<()> {
    let spec = net.spec(weight)?;
    if spec == Spec::fixed(like.dtype, dims)? {
        return Ok(());
    }
    Err(Error::new(format!("`{slot}`"), format!("{} {dims:?}", like.dtype), spec.to_string())
        .variable(net.name_of(weight)))
}

/// Checks the width of an initial state; that it has one row a sequence is checked by the memory that starts with it.
fn state_width(net: &Builder, slot: &str, state: Var, like: &Spec, hidden: usize) -> Result<()> {
    let spec = net.spec(state)?;
    if spec.dtype == like.dtype && spec.batched() && spec.width() == hidden {
        return Ok(());
    }
    let expected = format!("{} rows of {hidden} numbers, one a sequence", like.dtype);
    Err(Error::new(format!("initial `{slot}`"), expected, spec.to_string()).variable(net.name_of(state)))
}

#[cfg(test)]
mod tests;
