//! Convolutions over sequences of any length, stored one after the other without padding.
//!
//! Row t of the result is the product of a vector and the filter matrix. The vector consists of the rows in the
//! [`Window`] of row t, side by side. The kernel takes one block of rows at a time, possibly of several sequences. It
//! copies the vectors of the block into a tile that stays in the core's own cache, and multiplies the tile like any
//! other matrix. Each number in the tile is used in one multiply-add per column of the filter. If a window reaches
//! beyond its sequence, the missing rows count as zeros or as padding rows from the caller.

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
