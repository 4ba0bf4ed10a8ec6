//! `adamax`: the update rule Adamax, Adam with the first moment divided by the largest recent gradient.
//!
//! The effect of k missed updates on a row without a gradient: `moment` is multiplied by beta1ᵏ and `largest` by beta2ᵏ, and
//! the parameter moves until `moment` is negligible.

use super::element::ElementRule;
use super::owed::{Moment, fading, falling_by};
use super::rule::{ElementStep, KEPT, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Largest<T> {
    /// The learning rate with the bias correction of the moment: rate / (1 − beta1ᵗ).
    rate: T,
    /// 1 − beta1, the weight of the new gradient in the moment.
    new1: T,
    beta2: T,
    epsilon: T,
}

impl<T: Float> ElementStep<T, 3> for Largest<T> {
    #[inline(always)]
    fn step(&self, [param, moment, largest]: [T; 3], grad: T) -> [T; 3] {
        let moment = moment + self.new1 * (grad - moment);
        let (faded, here) = (self.beta2 * largest, grad.abs() + self.epsilon);
        let largest = if faded > here { faded } else { here };
        [param - self.rate * over(moment, largest), moment, largest]
    }
}

update_rule! {
    /// Adamax: Adam with a decaying maximum of the gradients as divisor, in place of the root of the second moment.
    ///
    /// The formulas of Adamax, with d = grad + weight_decay · param and the number t = 1, 2, … of the step, are:
    ///
    /// - moment += (1 − beta1) · (d − moment);
    /// - largest = max(beta2 · largest, |d| + epsilon);
    /// - param −= rate / (1 − beta1ᵗ) · moment / largest.
    ///
    /// Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, arXiv:1412.6980, section 7.1, in the form of
    /// PyTorch's `torch.optim.Adamax`. Weight decay works as in `sgd`.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient moves by its moment only when the row is
    /// next read. In the mode `lazy`, rows without a gradient and their state do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.5).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("adamax", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment", array![[0.0, 0.0]]),
    ///     Operand::constant("largest", array![[16.0, 2.0]]),
    /// ])?;
    /// // The bias correction, a division by 1 − 0.5¹, doubles the rate.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 1.0 / 8.0, 1.0 + 2.0 / 4.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [8.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Adamax = adamax {
        beta1: f64 => settings::fraction,
        beta2: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { MOMENT = moment, LARGEST = largest }
    samples { beta1: 0.75, beta2: 0.875, epsilon: 1e-8, decoupled: false, }
}

impl ElementRule<3> for Adamax {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let rate = self.rate(moment);
        let moved = rate / (1.0 - self.beta1.powf(moment.step));
        let [new1, beta2, epsilon] = [1.0 - self.beta1, self.beta2, self.epsilon].map(T::from_f64);
        self.decay().before(rate, Largest { rate: T::from_f64(moved), new1, beta2, epsilon })
    }

    fn owes(&self) -> Debt {
        if falling_by(self.beta1, self.beta2).is_none() {
            return Debt::AtOnce("Adamax, whose steps fade too slowly where beta1 is about beta2 or more,");
        }
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 3]> {
        // A value of `largest` below epsilon has no effect on later steps, so the value need not be exact.
        Some([1.0, self.beta1, self.beta2])
    }

    fn horizon(&self) -> usize {
        falling_by(self.beta1, self.beta2).map_or(KEPT, fading)
    }
}
