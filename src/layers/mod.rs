//! What a model author calls: operators with their parameters and how these start.
//!
//! A layer is a plain struct of options and a method of [`Builder`] that appends ordinary
//! operators. The recurrent layers are ordinary [`Builder::recurrent`](crate::Builder::recurrent) blocks: a
//! cell of one's own, written the same way, is compiled the same way.
//!
//! A layer's operators and errors name the line that called the layer: it is `#[track_caller]`, and appends by
//! [`Builder::called_from`](crate::Builder::called_from) what it appends in closures. A layer of one's own does the same.
//!
//! Parameters are named by layer and count (`lstm_0.weight_ih`, `lstm_1.weight_ih`) or by the layer's own name
//! (`named("encoder")`), and start by [`init`].

pub mod init;

mod activation;
mod embedding;
mod gru;
mod layer;
mod linear;
mod lstm;
mod mgu;
mod recurrent;
mod rnn;
mod stacked;
mod torch;

pub use activation::Activation;
pub use embedding::Embedding;
pub use gru::{Gru, GruWeights, Reset};
pub use layer::{Instance, Layer, RecurrentLayer, Stateful};
pub use linear::Linear;
pub use lstm::{Lstm, LstmWeights};
pub use mgu::{Mgu, MguWeights};
pub use recurrent::RecurrentWeights;
pub use rnn::{Rnn, RnnWeights};
pub use stacked::Stacked;
pub use torch::{from_torch, load_torch};

use crate::error::Error;
use crate::program::Builder;

/// Checks the width of what a layer gives.
#[track_caller]
fn wide(net: &Builder, layer: &str, width: usize) -> Option<()> {
    if width > 0 {
        return Some(());
    }
    net.refuse(Error::new(format!("width of layer `{layer}`"), "at least 1", "0"));
    None
}

#[cfg(test)]
mod tests;
