//! Attention of sequences to sequences, and what tells their places.

#[macro_use]
pub(super) mod additive;
#[macro_use]
pub(super) mod dot;
mod parts;
#[macro_use]
pub(super) mod rotary;
