//! The elementwise part of one step of a recurrent cell: GRU and LSTM.

pub(super) mod gru;
pub(super) mod lstm;

operators! {
    gru::GruCell,
    lstm::LstmCell,
}
