//! Convolutions over sequences of any length that lie one after the other: nothing is padded.
//!
//! Row t of a sequence is a product of the rows that its [`Window`] reads, side by side, with the filter. A block of rows at a
//! time has these rows copied side by side into a tile that stays in the core's own cache, whatever sequences they belong to,
//! and is then multiplied like any other matrix. Each copied number is used in one multiply-add per column of the filter. A row
//! outside of a sequence reads as zeros, or as a padding row of the caller's.

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
