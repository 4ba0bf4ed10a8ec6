//! `rmsprop`: the update rule RMSProp, which divides each gradient by the root mean square or the standard deviation of the
//! gradients.
//!
//! The effect of k missed updates on a row without a gradient: `square` and `mean` are multiplied by alphaᵏ and `velocity`
//! by momentumᵏ, and the parameter moves along the velocity until the velocity is negligible.

use super::element::ElementRule;
use super::owed::{Moment, fading};
use super::rule::{ElementStep, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

/// The arithmetic of a step with N − 1 states: `square`, then `mean` if centred, then `velocity` with momentum.
#[derive(Clone, Copy)]
struct Spread<T> {
    rate: T,
    alpha: T,
    /// 1 − alpha, the weight of the new gradient in the averages.
    new: T,
    epsilon: T,
    /// The factor of the velocity; 0 without a velocity.
    momentum: T,
    centred: bool,
}

impl<T: Float, const N: usize> ElementStep<T, N> for Spread<T> {
    #[inline(always)]
    fn step(&self, mut fields: [T; N], grad: T) -> [T; N] {
        // Without a state or with all states, the compiler knows the branches.
        let (centred, rolls) = match N {
            3 => (self.centred, !self.centred),
            _ => (N > 3, N > 3),
        };
        let square = self.alpha * fields[1] + self.new * (grad * grad);
        fields[1] = square;
        let spread = if centred {
            let mean = fields[2] + self.new * (grad - fields[2]);
            fields[2] = mean;
            let variance = square - mean * mean;
            // If all gradients are almost equal, rounding may make the variance negative.
            if variance < T::ZERO { T::ZERO } else { variance }
        } else {
            square
        };
        let change = over(grad, spread.sqrt() + self.epsilon);
        let change = if rolls {
            fields[N - 1] = self.momentum * fields[N - 1] + change;
            fields[N - 1]
        } else {
            change
        };
        fields[0] -= self.rate * change;
        fields
    }
}

update_rule! {
    /// RMSProp: gradient descent with each gradient divided by a running root mean square of the gradients.
    ///
    /// The formulas, with d = grad + weight_decay · param, are:
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - change = d / (√square + epsilon); if `centred`, mean += (1 − alpha) · (d − mean), and
    ///   change = d / (√(square − mean²) + epsilon), the gradient divided by its standard deviation;
    /// - param −= rate · change; with `momentum`, velocity = momentum · velocity + change, and param −= rate · velocity.
    ///
    /// The state `mean` exists only if `centred`, the state `velocity` only with `momentum`.
    ///
    /// Sources: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012; if `centred`, Graves, "Generating
    /// sequences with recurrent neural networks", 2013, arXiv:1308.0850, equations 38 to 41; in the form of PyTorch's
    /// `torch.optim.RMSprop`. Weight decay works as in `sgd`.
    ///
    /// Each step multiplies the averages of a row without a gradient by alpha, and moves the row along its velocity. In the mode
    /// `exact`, this is done when the row is next read. In the mode `lazy`, only the rows of the gradient and their states
    /// change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0);
    /// let operands = |square| [
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", square),
    ///     Operand::constant("mean", array![[-2.0, 0.0]]),
    ///     Operand::constant("velocity", array![[2.0, 0.0]]),
    /// ];
    /// let out = ops::catalogue().parse("rmsprop", &plain)?.call(&operands(array![[4.0, 0.0]])[..4])?;
    /// // square = 4 in both columns.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.5 * 1.0, 1.0 + 0.5 * 2.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 4.0]);
    ///
    /// let both = plain.with("centred", true).with("momentum", 0.5);
    /// let out = ops::catalogue().parse("rmsprop", &both)?.call(&operands(array![[12.0, 8.0]]))?;
    /// // square = 10 and mean = −1 in both columns, so the divisor is 3.
    /// let velocity: [f64; 2] = [1.0 + 2.0 / 3.0, -4.0 / 3.0];
    /// assert_eq!(out[0].as_slice::<f64>()?, velocity.map(|v| 1.0 - 0.5 * v));
    /// assert_eq!(out[1].as_slice::<f64>()?, [10.0, 10.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [-1.0, -1.0]);
    /// assert_eq!(out[3].as_slice::<f64>()?, velocity);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct RmsProp = rmsprop {
        alpha: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
        /// Whether the divisor is the standard deviation of the gradients; false by default.
        centred: bool = false,
        /// The factor of the velocity; without it, the rule has no velocity.
        momentum: Option<f64> => settings::fraction_if_set,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square, MEAN = mean, VELOCITY = velocity }
    variants |rule| (rule.centred, rule.momentum.is_some()) => {
        (false, false) => [SQUARE],
        (false, true) => [SQUARE, VELOCITY],
        (true, false) => [SQUARE, MEAN],
        (true, true) => [SQUARE, MEAN, VELOCITY],
    }
    samples { alpha: 0.75, epsilon: 1e-8, centred: false, momentum: None, decoupled: false, }
        { alpha: 0.75, epsilon: 1e-8, centred: false, momentum: Some(0.75), decoupled: true, }
        { alpha: 0.75, epsilon: 1e-8, centred: true, momentum: None, decoupled: false, }
        { alpha: 0.75, epsilon: 1e-8, centred: true, momentum: Some(0.75), decoupled: true, }
}

impl<const N: usize> ElementRule<N> for RmsProp {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, N> {
        let rate = ElementRule::<N>::rate(self, moment);
        let numbers = [rate, self.alpha, 1.0 - self.alpha, self.epsilon, self.momentum.unwrap_or(0.0)];
        let [step, alpha, new, epsilon, momentum] = numbers.map(T::from_f64);
        self.decay().before(rate, Spread { rate: step, alpha, new, epsilon, momentum, centred: self.centred })
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; N]> {
        let mut fall = [self.alpha; N];
        fall[0] = 1.0;
        self.momentum.into_iter().for_each(|momentum| fall[N - 1] = momentum);
        Some(fall)
    }

    fn horizon(&self) -> usize {
        self.momentum.map_or(0, fading)
    }
}
