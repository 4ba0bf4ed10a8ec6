//! A diagonal state-space layer: a linear system in continuous time with real eigenvalues, sampled at learned steps.
//!
//! ḣ = A h + B x with A = −diag(e^α), sampled every Δ = e^δ with x held between (zero-order hold):
//! Ā = e^(ΔA), h_t = Ā ∘ h_{t−1} + A⁻¹(Ā − 1) ∘ B x_t, y_t = gelu(C h_t + D x_t).
//!
//! Gu, Gupta, Goel, Ré: On the Parameterization and Initialization of Diagonal State Space Models (2022),
//! arXiv:2206.11893 (S4D-Real: the eigenvalues −1 … −N); one system with all inputs and outputs, as in Smith, Warrington,
//! Linderman: Simplified State Space Layers for Sequence Modeling (S5, 2022), arXiv:2208.04933.

use std::panic::Location;

use unpadded::layers::{Linear, init};
use unpadded::{Builder, Result, Var};

/// The output after every step, `width` numbers; the state has as many.
#[track_caller]
pub(crate) fn diagonal_ssm(net: &Builder, x: Var, width: usize) -> Var {
    let net = net.called_from(Location::caller());
    let dtype = net.spec(x)?.dtype;
    let name = net.layer_name("diagonal_ssm", None);
    // Spread over the logarithms of 1 … N, and steps over those of 0.001 … 0.1, as is usual.
    let part = |part: &str, low: f64, high: f64| {
        net.parameter(&format!("{name}.{part}"), dtype, &[width], init::uniform(low, high))
    };
    let alpha = part("alpha", 0.0, (width as f64).ln())?;
    let delta = part("delta", 0.001f64.ln(), 0.1f64.ln())?;
    let a = net.scale(net.exp(alpha)?, -1.0, 0.0)?;
    let a_bar = net.exp(net.mul(net.exp(delta)?, a)?)?;
    let b_scale = net.div(net.scale(a_bar, 1.0, -1.0)?, a)?;
    net.recurrent(x, |step, x_t| {
        let h_prev = step.memory_of(dtype, &[width])?;
        // The inputs' products leave the loop before it, the outputs' behind it.
        let added = step.mul(step.linear(x_t, Linear::new(width).without_bias())?, b_scale)?;
        let h = step.add(step.mul(h_prev, a_bar)?, added)?;
        step.update(h_prev, h)?;
        let direct = step.linear(x_t, Linear::new(width).without_bias())?;
        step.gelu(step.add(step.linear(h, width)?, direct)?)
    })
}

#[test]
fn gradients_are_central_differences() {
    crate::trial::gradients(diagonal_ssm);
}

#[test]
fn it_learns() {
    crate::trial::learns(diagonal_ssm);
}
