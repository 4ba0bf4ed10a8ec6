//! RG-LRU, the real-gated linear recurrent unit of Griffin: a diagonal decay that the input switches off.
//!
//! r_t = σ(W_a x_t + b_a), i_t = σ(W_x x_t + b_x), a_t = σ(Λ)^(c·r_t) with c = 8,
//! h_t = a_t ∘ h_{t−1} + √(1 − a_t²) ∘ (i_t ∘ x_t).
//!
//! De et al.: Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language Models (2024),
//! arXiv:2402.19427, section 2.4. There x has the width of the state; here a product brings it to that width.

use unpadded::layers::init;
use unpadded::{Builder, Var};

/// The state after every step, `width` numbers.
#[track_caller]
pub(crate) fn rg_lru(net: &Builder, x: Var, width: usize) -> Var {
    net.part("rg_lru", |net| {
        // σ(Λ)^c between 0.9 and 0.999: the state forgets over ten to a thousand steps.
        let lambda = net.parameter("lambda", x, &[width], init::uniform(4.323, 8.987));
        // log σ(Λ)^c = −c · log(1 + e^−Λ): as a logarithm, a power is a product.
        let log_a = -8.0 * (-lambda).softplus();
        net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(width);
            let x_t = x_t.linear(width);
            let r = x_t.linear(width).sigmoid();
            let i = x_t.linear(width).sigmoid();
            let a = (r * log_a).exp();
            // The slope of the root is infinite at 0, where a is 1.
            let rest = (1.0 - a.square()).clamp(1e-6, 1.0);
            let added = rest.sqrt() * (i * x_t);
            // Only this line is left in the loop.
            let h = h_prev * a + added;
            step.update(h_prev, h);
            h
        })
    })
}

#[test]
fn gradients_are_central_differences() {
    crate::trial::gradients(rg_lru);
}

#[test]
fn it_learns() {
    crate::trial::learns(rg_lru);
}
