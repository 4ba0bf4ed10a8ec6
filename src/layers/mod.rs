//! Layers: operators with parameters, and the initializers of the parameters.
//!
//! A layer is a plain struct of options, with a method of [`Builder`] and [`Var`] that appends ordinary operators:
//! `x.lstm(16)`, or `x.lstm(Lstm::new(16).peepholes())` with options. [`Builder::layer`](crate::Builder::layer) makes a value
//! that can be called several times with the same weights. The recurrent layers are ordinary
//! [`Builder::recurrent`](crate::Builder::recurrent) blocks: a recurrent block of your own is compiled in the same way.
//!
//! Write a layer of your own as a `#[track_caller]` function that appends operators in a
//! [`Builder::part`](crate::Builder::part). If the layer has to be a value with weights, write a type that implements
//! [`Layer`]. In both cases, the operators and errors of the layer name the source line that called the layer.
//!
//! The name of a parameter begins with the name of its layer: the layer's kind and a counter, such as `lstm_1` in
//! `lstm_1.weight_ih`, or the name that `named("encoder")` gives the layer. Initializers ([`init`]) compute the initial
//! values of parameters.

pub mod init;

mod activation;
mod adaptive_softmax;
#[macro_use]
mod attention;
#[macro_use]
mod conv;
mod crf;
#[macro_use]
mod embedding;
#[macro_use]
mod embedding_bag;
#[macro_use]
mod gru;
#[macro_use]
mod highway;
mod layer;
#[macro_use]
mod linear;
#[macro_use]
mod lstm;
#[macro_use]
mod mgu;
#[macro_use]
mod norm;
#[macro_use]
mod qrnn;
mod recurrent;
#[macro_use]
mod rnn;
#[macro_use]
mod sru;
#[macro_use]
mod stacked;
mod torch;
#[macro_use]
mod transformer;

pub use activation::Activation;
pub use adaptive_softmax::{AdaptiveSoftmax, AdaptiveWeights};
pub use attention::{Attention, AttentionWeights};
pub use conv::Conv;
pub use crf::Crf;
pub use embedding::Embedding;
pub use embedding_bag::EmbeddingBag;
pub use gru::{Gru, GruWeights, Reset};
pub use highway::Highway;
pub use layer::{Instance, Layer, RecurrentLayer, Stateful};
pub use linear::Linear;
pub use lstm::{Lstm, LstmWeights};
pub use mgu::{Mgu, MguWeights};
pub use norm::{Norm, NormWeights};
pub use qrnn::{Qrnn, QrnnPool, QrnnWeights};
pub use recurrent::RecurrentWeights;
pub use rnn::{Rnn, RnnWeights};
pub use sru::{Sru, SruWeights};
pub use stacked::Stacked;
#[cfg(feature = "safetensors")]
pub(crate) use torch::{added, turned};
pub use torch::{from_torch, load_torch};
pub use transformer::{TransformerBlock, TransformerWeights};

use crate::program::{Builder, Var};

/// Methods that append layers: operators with parameters of their own.
impl Builder {
    Attention!(Builder);
    Linear!(Builder);
    Norm!(Builder);
    Highway!(Builder);
    Conv!(Builder);
    Embedding!(Builder);
    EmbeddingBag!(Builder);
    Lstm!(Builder);
    Gru!(Builder);
    Rnn!(Builder);
    Mgu!(Builder);
    Qrnn!(Builder);
    Sru!(Builder);
    TransformerBlock!(Builder);
    Stacked!(Builder);
}

/// Methods that append layers: operators with parameters of their own.
impl Var {
    Attention!(Var);
    Linear!(Var);
    Norm!(Var);
    Highway!(Var);
    Conv!(Var);
    Embedding!(Var);
    EmbeddingBag!(Var);
    Lstm!(Var);
    Gru!(Var);
    Rnn!(Var);
    Mgu!(Var);
    Qrnn!(Var);
    Sru!(Var);
    TransformerBlock!(Var);
    Stacked!(Var);
}

#[cfg(test)]
mod tests;
