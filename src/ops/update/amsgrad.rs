//! `amsgrad`: the update rule AMSGrad, Adam with the root of the largest second moment so far as divisor.
//!
//! AMSGrad is an operator of its own, since it has one state more than `adam`. The effect of k missed updates on a row without
//! a gradient: the moments are multiplied by beta1ᵏ and beta2ᵏ, the parameter moves until the first moment is negligible, and
//! `largest` does not change.

use super::adam::Moments;
use super::element::ElementRule;
use super::owed::{Moment, fading};
use super::rule::{ElementStep, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Bounded<T>(Moments<T>);

impl<T: Float> ElementStep<T, 4> for Bounded<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2, largest]: [T; 4], grad: T) -> [T; 4] {
        let [moment1, moment2] = self.0.next(moment1, moment2, grad);
        let largest = if largest > moment2 { largest } else { moment2 };
        [param - self.0.rate * over(moment1, self.0.scale(largest)), moment1, moment2, largest]
    }
}

update_rule! {
    /// AMSGrad: Adam with the root of the largest second moment so far, which never falls, as divisor.
    ///
    /// The formulas of AMSGrad, with d and t as in `adam`, are:
    ///
    /// - moment1 and moment2 are computed as in `adam`;
    /// - largest = max(largest, moment2);
    /// - param −= rate / (1 − beta1ᵗ) · moment1 / (√(largest / (1 − beta2ᵗ)) + epsilon).
    ///
    /// Source: Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018, arXiv:1904.09237, in the form of PyTorch's
    /// `torch.optim.Adam(amsgrad=True)`. Weight decay works as in `sgd`.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient moves by its moments only when the row is
    /// next read. In the mode `lazy`, rows without a gradient and their state do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("amsgrad", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.125f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    ///     Operand::constant("largest", array![[4.0, 1.0]]),
    /// ])?;
    /// // With Adam, both numbers would move by 0.125.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.125 / 2.0, 1.0 + 0.125]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// assert_eq!(out[3].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct AmsGrad = amsgrad {
        beta1: f64 => settings::fraction,
        beta2: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { MOMENT1 = moment1, MOMENT2 = moment2, LARGEST = largest }
    samples { beta1: 0.75, beta2: 0.875, epsilon: 1e-8, decoupled: true, }
}

impl ElementRule<4> for AmsGrad {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 4> {
        let rate = self.rate(moment);
        let moments = Moments::new([self.beta1, self.beta2], self.epsilon, rate, moment.step);
        self.decay().before(rate, Bounded(moments))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 4]> {
        Some([1.0, self.beta1, self.beta2, 1.0])
    }

    fn horizon(&self) -> usize {
        fading(self.beta1)
    }
}
