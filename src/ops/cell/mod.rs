//! The pointwise part of one step of recurrent cells.

#[macro_use]
pub(super) mod gru;
#[macro_use]
pub(super) mod lstm;
