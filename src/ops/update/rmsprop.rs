//! `rmsprop` and its variants: update rules that divide each gradient by the root mean square or the standard deviation of the
//! gradients.
//!
//! The variants of RMSProp are four operators, since the variants have different states. The effect of k missed updates
//! on a row without a gradient: `square` and `mean` are multiplied by alphaᵏ and `velocity` by momentumᵏ, and the
//! parameter moves along the velocity until the velocity is negligible.

use super::element::ElementRule;
use super::owed::{Moment, fading};
use super::rule::{ElementStep, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Spread<T> {
    rate: T,
    alpha: T,
    /// 1 − alpha, the weight of the new gradient in the averages.
    new: T,
    epsilon: T,
    /// The factor of the velocity; 0 for the rules without a velocity.
    momentum: T,
}

impl<T: Float> Spread<T> {
    fn new(rate: f64, alpha: f64, epsilon: f64, momentum: f64) -> Self {
        let [rate, alpha, new, epsilon, momentum] =
            [rate, alpha, 1.0 - alpha, epsilon, momentum].map(T::from_f64);
        Self { rate, alpha, new, epsilon, momentum }
    }

    /// Returns the new mean of the squared gradients, and the gradient divided by the root of this mean.
    #[inline(always)]
    fn change(&self, square: T, grad: T) -> [T; 2] {
        let square = self.alpha * square + self.new * (grad * grad);
        [square, over(grad, square.sqrt() + self.epsilon)]
    }
}

/// The step of centred RMSProp: the gradient divided by the standard deviation of the gradients.
#[derive(Clone, Copy)]
struct Centred<T>(Spread<T>);

impl<T: Float> Centred<T> {
    /// Returns the new mean of the squared gradients, the new mean of the gradients, and the gradient divided by the standard
    /// deviation.
    #[inline(always)]
    fn change(&self, square: T, mean: T, grad: T) -> [T; 3] {
        let square = self.0.alpha * square + self.0.new * (grad * grad);
        let mean = mean + self.0.new * (grad - mean);
        let variance = square - mean * mean;
        // If all gradients are almost equal, rounding may make the variance negative.
        let variance = if variance < T::ZERO { T::ZERO } else { variance };
        [square, mean, over(grad, variance.sqrt() + self.0.epsilon)]
    }
}

impl<T: Float> ElementStep<T, 2> for Spread<T> {
    #[inline(always)]
    fn step(&self, [param, square]: [T; 2], grad: T) -> [T; 2] {
        let [square, change] = self.change(square, grad);
        [param - self.rate * change, square]
    }
}

impl<T: Float> ElementStep<T, 3> for Spread<T> {
    #[inline(always)]
    fn step(&self, [param, square, velocity]: [T; 3], grad: T) -> [T; 3] {
        let [square, change] = self.change(square, grad);
        let velocity = self.momentum * velocity + change;
        [param - self.rate * velocity, square, velocity]
    }
}

impl<T: Float> ElementStep<T, 3> for Centred<T> {
    #[inline(always)]
    fn step(&self, [param, square, mean]: [T; 3], grad: T) -> [T; 3] {
        let [square, mean, change] = self.change(square, mean, grad);
        [param - self.0.rate * change, square, mean]
    }
}

impl<T: Float> ElementStep<T, 4> for Centred<T> {
    #[inline(always)]
    fn step(&self, [param, square, mean, velocity]: [T; 4], grad: T) -> [T; 4] {
        let [square, mean, change] = self.change(square, mean, grad);
        let velocity = self.0.momentum * velocity + change;
        [param - self.0.rate * velocity, square, mean, velocity]
    }
}

update_rule! {
    /// RMSProp: gradient descent with each gradient divided by a running root mean square of the gradients.
    ///
    /// The formulas, with d = grad + weight_decay · param, are:
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - param −= rate · d / (√square + epsilon).
    ///
    /// Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012, in the form of PyTorch's
    /// `torch.optim.RMSprop`. Weight decay works as in `sgd`.
    ///
    /// A row without a gradient does not move, but each step multiplies its averages by alpha. In the mode `exact`, the averages
    /// of a row without a gradient are multiplied when the row is next read. In the mode `lazy`, only the rows of the gradient
    /// and their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("rmsprop", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[4.0, 0.0]]),
    /// ])?;
    /// // square = 4 in both columns.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.5 * 1.0, 1.0 + 0.5 * 2.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct RmsProp = rmsprop {
        alpha: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square }
    samples { alpha: 0.75, epsilon: 1e-8, decoupled: false, }
}

impl ElementRule<2> for RmsProp {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        let rate = self.rate(moment);
        self.decay().before(rate, Spread::new(rate, self.alpha, self.epsilon, 0.0))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 2]> {
        Some([1.0, self.alpha])
    }
}

update_rule! {
    /// RMSProp with momentum: the parameter moves along a velocity.
    ///
    /// The formulas, with d = grad + weight_decay · param, are:
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - velocity = momentum · velocity + d / (√square + epsilon);
    /// - param −= rate · velocity.
    ///
    /// `rmsprop` with a velocity corresponds to PyTorch's `torch.optim.RMSprop` with momentum > 0. Weight decay works as in
    /// `sgd`.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient moves along its velocity only when the row
    /// is next read. In the mode `lazy`, rows without a gradient and their state do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0).with("momentum", 0.5);
    /// let out = ops::catalogue().parse("rmsprop_momentum", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[4.0, 0.0]]),
    ///     Operand::constant("velocity", array![[2.0, 0.0]]),
    /// ])?;
    /// // square = 4 in both columns.
    /// let velocity: [f64; 2] = [1.0 + 1.0, -2.0];
    /// assert_eq!(out[0].as_slice::<f64>()?, velocity.map(|v| 1.0 - 0.5 * v));
    /// assert_eq!(out[2].as_slice::<f64>()?, velocity);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct RmsPropMomentum = rmsprop_momentum {
        alpha: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
        momentum: f64 => settings::fraction,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square, VELOCITY = velocity }
    samples { alpha: 0.75, epsilon: 1e-8, momentum: 0.75, decoupled: true, }
}

impl ElementRule<3> for RmsPropMomentum {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let rate = self.rate(moment);
        self.decay().before(rate, Spread::new(rate, self.alpha, self.epsilon, self.momentum))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 3]> {
        Some([1.0, self.alpha, self.momentum])
    }

    fn horizon(&self) -> usize {
        fading(self.momentum)
    }
}

update_rule! {
    /// Centred RMSProp: gradient descent with each gradient divided by the standard deviation of the gradients.
    ///
    /// The formulas, with d = grad + weight_decay · param, are:
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - mean += (1 − alpha) · (d − mean);
    /// - param −= rate · d / (√(square − mean²) + epsilon).
    ///
    /// Source: Graves, "Generating sequences with recurrent neural networks", 2013, arXiv:1308.0850, equations 38 to 41, in the
    /// form of PyTorch's `torch.optim.RMSprop` with centered=True. Weight decay works as in `sgd`.
    ///
    /// A row without a gradient does not move, but each step multiplies its averages by alpha. In the mode `exact`, the averages
    /// of a row without a gradient are multiplied when the row is next read. In the mode `lazy`, only the rows of the gradient
    /// and their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("rmsprop_centred", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[12.0, 8.0]]),
    ///     Operand::constant("mean", array![[-2.0, 0.0]]),
    /// ])?;
    /// // square = 10 and mean = −1 in both columns, so the divisor is 3.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.5 * (2.0 / 3.0), 1.0 + 0.5 * (4.0 / 3.0)]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [10.0, 10.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [-1.0, -1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct RmsPropCentred = rmsprop_centred {
        alpha: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square, MEAN = mean }
    samples { alpha: 0.75, epsilon: 1e-8, decoupled: false, }
}

impl ElementRule<3> for RmsPropCentred {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let rate = self.rate(moment);
        self.decay().before(rate, Centred(Spread::new(rate, self.alpha, self.epsilon, 0.0)))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 3]> {
        Some([1.0, self.alpha, self.alpha])
    }
}

update_rule! {
    /// Centred RMSProp with momentum: divides each gradient by the standard deviation of the gradients, and moves along a
    /// velocity.
    ///
    /// The formulas, with d = grad + weight_decay · param, are:
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - mean += (1 − alpha) · (d − mean);
    /// - velocity = momentum · velocity + d / (√(square − mean²) + epsilon);
    /// - param −= rate · velocity.
    ///
    /// Source: Graves, "Generating sequences with recurrent neural networks", 2013, arXiv:1308.0850, equations 38 to 41, in the
    /// form of PyTorch's `torch.optim.RMSprop` with centered=True, momentum > 0. Weight decay works as in `sgd`.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient moves along its velocity only when the row
    /// is next read. In the mode `lazy`, rows without a gradient and their state do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0).with("momentum", 0.5);
    /// let out = ops::catalogue().parse("rmsprop_centred_momentum", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[12.0, 8.0]]),
    ///     Operand::constant("mean", array![[-2.0, 0.0]]),
    ///     Operand::constant("velocity", array![[2.0, 0.0]]),
    /// ])?;
    /// // square = 10 and mean = −1 in both columns, so the divisor is 3.
    /// let velocity: [f64; 2] = [1.0 + 2.0 / 3.0, -4.0 / 3.0];
    /// assert_eq!(out[0].as_slice::<f64>()?, velocity.map(|v| 1.0 - 0.5 * v));
    /// assert_eq!(out[3].as_slice::<f64>()?, velocity);
    /// assert_eq!(out[1].as_slice::<f64>()?, [10.0, 10.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [-1.0, -1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct RmsPropCentredMomentum = rmsprop_centred_momentum {
        alpha: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
        momentum: f64 => settings::fraction,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square, MEAN = mean, VELOCITY = velocity }
    samples { alpha: 0.75, epsilon: 1e-8, momentum: 0.75, decoupled: true, }
}

impl ElementRule<4> for RmsPropCentredMomentum {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 4> {
        let rate = self.rate(moment);
        self.decay().before(rate, Centred(Spread::new(rate, self.alpha, self.epsilon, self.momentum)))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 4]> {
        Some([1.0, self.alpha, self.alpha, self.momentum])
    }

    fn horizon(&self) -> usize {
        fading(self.momentum)
    }
}
