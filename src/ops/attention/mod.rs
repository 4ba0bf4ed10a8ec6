//! Attention between sequences, and position embeddings.

#[macro_use]
pub(super) mod additive;
#[macro_use]
pub(super) mod dot;
mod parts;
#[macro_use]
pub(super) mod rotary;
