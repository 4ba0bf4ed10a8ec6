//! minGRU: a GRU whose gates see only the input, so that its recurrence is linear.
//!
//! z_t = σ(W_z x_t + b_z), h̃_t = W_h x_t + b_h, h_t = (1 − z_t) ∘ h_{t−1} + z_t ∘ h̃_t.
//!
//! Feng, Tung, Ahmed, Bengio, Hajimirsadeghi: Were RNNs All We Needed? (2024), arXiv:2410.01201, section 3.1.

use unpadded::{Builder, Var};

/// The state after every step, `hidden` numbers.
#[track_caller]
pub(crate) fn min_gru(net: &Builder, x: Var, hidden: usize) -> Var {
    net.part("min_gru", |net| {
        net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(hidden);
            // Neither gate sees the state: both leave the loop and are one product each over all steps of all sequences.
            let z = x_t.linear(hidden).sigmoid();
            let candidate = x_t.linear(hidden);
            let h = h_prev + z * (candidate - h_prev);
            step.update(h_prev, h);
            h
        })
    })
}

#[test]
fn gradients_are_central_differences() {
    crate::trial::gradients(min_gru);
}

#[test]
fn it_learns() {
    crate::trial::learns(min_gru);
}
