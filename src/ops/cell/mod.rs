//! The elementwise part of one step of a recurrent cell: GRU and LSTM.

#[macro_use]
pub(super) mod gru;
#[macro_use]
pub(super) mod lstm;
