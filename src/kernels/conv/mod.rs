//! Convolutions over sequences of any length, stored one after the other without padding.
//!
//! Row t of the result is the product of a matrix, the filter, with a vector: the rows that the [`Window`] of row t reads, side
//! by side. For a block of rows at a time, which may belong to several sequences, these vectors are copied into a tile that
//! stays in the core's own cache; the tile is then multiplied like any other matrix. Each copied number is used in one
//! multiply-add per column of the filter. A row outside of a sequence counts as zeros, or as a padding row that the caller
//! gives.

mod depthwise;
mod forward;
mod gradient;
mod rows;
mod window;

pub use depthwise::{depthwise_forward, depthwise_gradient, depthwise_padding_gradient};
pub use forward::{ConvRoom, conv_forward};
pub use gradient::{ConvGradient, conv_gradient, conv_padding_gradient};
pub use rows::ConvRows;
pub use window::Window;

#[cfg(test)]
mod tests;
