//! The pointwise part of recurrent cells: one step of them.

#[macro_use]
pub(super) mod gru;
#[macro_use]
pub(super) mod lstm;
