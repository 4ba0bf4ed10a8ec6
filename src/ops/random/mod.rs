//! What is drawn at random.

#[macro_use]
pub(super) mod dropout;
