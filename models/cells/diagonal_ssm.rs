//! A diagonal state-space layer: a linear system in continuous time with real eigenvalues, sampled at learned steps.
//!
//! ḣ = A h + B x with A = −diag(e^α), sampled every Δ = e^δ with x held between (zero-order hold):
//! Ā = e^(ΔA), h_t = Ā ∘ h_{t−1} + A⁻¹(Ā − 1) ∘ B x_t, y_t = gelu(C h_t + D x_t).
//!
//! Gu, Gupta, Goel, Ré: On the Parameterization and Initialization of Diagonal State Space Models (2022),
//! arXiv:2206.11893 (S4D-Real: the eigenvalues −1 … −N); one system with all inputs and outputs, as in Smith, Warrington,
//! Linderman: Simplified State Space Layers for Sequence Modeling (S5, 2022), arXiv:2208.04933.

use unpadded::layers::{Linear, init};
use unpadded::{Builder, Var};

/// Returns the output after every step, `width` numbers; the state has the same width.
#[track_caller]
pub(crate) fn diagonal_ssm(net: &Builder, x: Var, width: usize) -> Var {
    net.part("diagonal_ssm", |net| {
        // Usual starts: eigenvalues spread over the logarithms of 1 … N, steps over the logarithms of 0.001 … 0.1.
        let part =
            |name: &str, low: f64, high: f64| net.parameter(name, x, &[width], init::uniform(low, high));
        let alpha = part("alpha", 0.0, (width as f64).ln());
        let delta = part("delta", 0.001f64.ln(), 0.1f64.ln());
        let a = -alpha.exp();
        let a_bar = (delta.exp() * a).exp();
        let b_scale = (a_bar - 1.0) / a;
        net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(width);
            // The inputs' products leave the loop before it, the outputs' behind it.
            let added = x_t.linear(Linear::new(width).without_bias()) * b_scale;
            let h = h_prev * a_bar + added;
            step.update(h_prev, h);
            let direct = x_t.linear(Linear::new(width).without_bias());
            (h.linear(width) + direct).gelu()
        })
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
