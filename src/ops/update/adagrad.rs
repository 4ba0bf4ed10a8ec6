//! `adagrad`: the update rule Adagrad, which divides gradients by the root of the sum of all squared gradients.

use super::element::ElementRule;
use super::owed::Moment;
use super::rule::{ElementStep, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Shrink<T> {
    rate: T,
    epsilon: T,
}

impl<T: Float> ElementStep<T, 2> for Shrink<T> {
    #[inline(always)]
    fn step(&self, [param, sum]: [T; 2], grad: T) -> [T; 2] {
        let sum = sum + grad * grad;
        [param - self.rate * over(grad, sum.sqrt() + self.epsilon), sum]
    }
}

update_rule! {
    /// Adagrad: divides each gradient by the root of the sum of all squared gradients so far.
    ///
    /// The formulas of Adagrad, with d = grad + weight_decay · param and the number t = 0, 1, … of the step, are:
    ///
    /// - sum += d²;
    /// - param −= rate / (1 + t · rate_decay) · d / (√sum + epsilon).
    ///
    /// Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR
    /// 12, 2011, in the form of PyTorch's `torch.optim.Adagrad`.
    ///
    /// A row without a gradient does not move, so an update by selected rows is exact; duplicate rows are added up first. In
    /// the mode `exact`, a row without a gradient gets its decoupled weight decay when the row is next read. Weight decay that
    /// is added to the gradient cannot be deferred: with such decay, a gradient of selected rows is an error.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::ops;
    /// let plain = Attributes::new().with("mode", "exact").with("epsilon", 0.0).with("rate_decay", 0.0);
    /// let out = ops::catalogue().parse("adagrad", &plain.with("weight_decay", 0.0))?.call(&[
    ///     Operand::constant("grad", array![[3.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("sum", array![[16.0, 9.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.3, 1.0 + 0.4]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [25.0, 25.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Adagrad = adagrad {
        epsilon: f64 => settings::not_negative,
        rate_decay: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::not_negative, decoupled = false }
    states { SUM = sum }
    samples { epsilon: 1e-10, rate_decay: 0.25, decoupled: false, }
}

impl ElementRule<2> for Adagrad {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        let rate = self.rate(moment);
        self.decay().before(rate, Shrink { rate: T::from_f64(rate), epsilon: T::from_f64(self.epsilon) })
    }

    fn rate(&self, Moment { rate, step }: Moment) -> f64 {
        rate * RuleSettings::rate_factor(self, step) / (1.0 + (step - 1.0) * self.rate_decay)
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Nothing)
    }

    fn fall(&self) -> Option<[f64; 2]> {
        Some([1.0; 2])
    }
}
