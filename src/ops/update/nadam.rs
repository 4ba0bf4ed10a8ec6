//! `nadam`: the update rule NAdam, Adam with Nesterov momentum.
//!
//! The effect of k missed updates on a row without a gradient: the moments are multiplied by beta1ᵏ and beta2ᵏ, and the parameter
//! moves as under Adam, with a different factor at each step.

use super::adam::Moments;
use super::drift::Drift;
use super::element::ElementRule;
use super::owed::{Moment, Moves, RowDebt, fading, falling_by};
use super::rule::{ElementStep, KEPT, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct NesterovStep<T> {
    moments: Moments<T>,
    /// The factor of the gradient in the step of NAdam, multiplied by the learning rate.
    by_grad: T,
    /// The factor of the first moment in the step of NAdam, multiplied by the learning rate.
    by_moment: T,
}

impl<T: Float> ElementStep<T, 3> for NesterovStep<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], grad: T) -> [T; 3] {
        let [moment1, moment2] = self.moments.next(moment1, moment2, grad);
        let change = self.by_grad * grad + self.by_moment * moment1;
        [param - over(change, self.moments.scale(moment2)), moment1, moment2]
    }
}

/// Returns the factors of the gradient and of the first moment at step t, for a learning rate of 1.
fn factors(beta1: f64, momentum_decay: f64, t: f64) -> [f64; 2] {
    // Below this number, the product Πₜ is negligible in 1 − Πₜ.
    const NOTHING: f64 = 1e-18;
    let mu = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * momentum_decay));
    let (mut product, mut i) = (1.0, 1.0);
    while i <= t && product > NOTHING {
        product *= mu(i);
        i += 1.0;
    }
    let (here, next) = (mu(t), mu(t + 1.0));
    [(1.0 - here) / (1.0 - product), next / (1.0 - product * next)]
}

update_rule! {
    /// NAdam: Adam with Nesterov momentum.
    ///
    /// The formulas of NAdam, with d = grad + weight_decay · param, the number t = 1, 2, … of the step, μₜ = beta1 · (1 −
    /// 0.96^(t · momentum_decay) / 2) and Πₜ = μ₁ · … · μₜ, are:
    ///
    /// - moment1 and moment2 are computed as in `adam`;
    /// - param −= rate · ((1 − μₜ) / (1 − Πₜ) · d + μₜ₊₁ / (1 − Πₜ₊₁) · moment1) / (√(moment2 / (1 − beta2ᵗ)) + epsilon).
    ///
    /// Source: Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016, in the form of PyTorch's
    /// `torch.optim.NAdam`. Weight decay works as in `sgd`.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient moves by its moments only when the row is
    /// next read. In the mode `lazy`, rows without a gradient and their state do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0).with("momentum_decay", 0.0);
    /// let out = ops::catalogue().parse("nadam", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.25f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    /// ])?;
    /// // With momentum_decay = 0, μ is beta1 / 2: (1 − 1/4) / (1 − 1/4) · 2 + 1/4 / (1 − 1/16) · 1, over 2.
    /// let part = (1.0 + 4.0 / 30.0) / 4.0;
    /// for (param, expected) in out[0].as_slice::<f64>()?.iter().zip([1.0 - part, 1.0 + part]) {
    ///     assert!((param - expected).abs() < 1e-12);
    /// }
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct NAdam = nadam {
        beta1: f64 => settings::fraction,
        beta2: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
        momentum_decay: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { MOMENT1 = moment1, MOMENT2 = moment2 }
    samples { beta1: 0.75, beta2: 0.875, epsilon: 1e-8, momentum_decay: 0.25, decoupled: true, }
}

impl ElementRule<3> for NAdam {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let (rate, step) = (self.rate(moment), moment.step);
        let [by_grad, by_moment] =
            factors(self.beta1, self.momentum_decay, step).map(|factor| T::from_f64(rate * factor));
        let moments = Moments::new([self.beta1, self.beta2], self.epsilon, rate, step);
        self.decay().before(rate, NesterovStep { moments, by_grad, by_moment })
    }

    fn owes(&self) -> Debt {
        if falling_by(self.beta1, self.beta2.sqrt()).is_none() {
            return Debt::AtOnce("NAdam, whose steps fade too slowly where beta1² is about beta2 or more,");
        }
        self.decay().owes(Debt::Later)
    }

    fn horizon(&self) -> usize {
        falling_by(self.beta1, self.beta2.sqrt()).map_or(KEPT, fading)
    }

    fn rests(&self) -> bool {
        true
    }

    fn earlier(&self, after: &Moves, moment: Moment) -> Moves {
        let Moment { step, .. } = moment;
        let [_, by_moment] = factors(self.beta1, self.momentum_decay, step);
        let moved = self.rate(moment) * by_moment;
        Drift::from(after).earlier([self.beta1, self.beta2], step, moved, self.kept(moment)).into()
    }

    fn is_known(&self, moves: &Moves) -> bool {
        Drift::from(moves).is_known()
    }

    fn settled<T: Float>(&self, owed: &RowDebt<'_>) -> impl ElementStep<T, 3> {
        Drift::of(owed, [self.beta1, self.beta2], self.epsilon)
    }
}
