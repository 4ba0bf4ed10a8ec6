//! What a model author calls: operators with their parameters and how these start.
//!
//! A layer is a plain struct of options and a method of [`Builder`](crate::Builder) that appends ordinary
//! operators. The recurrent layers are ordinary [`Builder::recurrent`](crate::Builder::recurrent) blocks: a
//! cell of one's own, written the same way, is compiled the same way.
//!
//! A layer's operators and errors name the line that called the layer: it is `#[track_caller]`, and appends by
//! [`Builder::called_from`](crate::Builder::called_from) what it appends in closures. A layer of one's own does the same.
//!
//! Parameters are named by layer and count (`lstm_0.weight_ih`, `lstm_1.weight_ih`) or by the layer's own name
//! (`named("encoder")`), and start by [`init`].

pub mod init;

mod embedding;
mod gru;
mod linear;
mod lstm;
mod recurrent;

pub use embedding::Embedding;
pub use gru::{Gru, GruWeights};
pub use linear::Linear;
pub use lstm::{Lstm, LstmWeights};
pub use recurrent::RecurrentWeights;

use ndarray::{Array2, ArrayView2};

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

#[cfg(test)]
mod tests;
