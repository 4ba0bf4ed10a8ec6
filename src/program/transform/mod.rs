//! Programs made from programs: with gradients, for inference only, and for inference window by window.

pub mod backward;
pub(crate) mod decided;
mod inference;
mod settling;
pub mod streamed;
