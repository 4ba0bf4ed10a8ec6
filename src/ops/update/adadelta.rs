//! `adadelta`: the update rule Adadelta, with steps scaled by the root mean square of earlier steps.
//!
//! The effect of k missed updates on a row without a gradient: both averages of the row are multiplied by rhoᵏ, and only
//! decoupled weight decay changes the parameter.

use super::element::ElementRule;
use super::owed::Moment;
use super::rule::{ElementStep, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Units<T> {
    rate: T,
    rho: T,
    /// 1 − rho, the weight of the newest squared value in a running average.
    new: T,
    epsilon: T,
}

impl<T: Float> ElementStep<T, 3> for Units<T> {
    #[inline(always)]
    fn step(&self, [param, square, moved]: [T; 3], grad: T) -> [T; 3] {
        let square = self.rho * square + self.new * (grad * grad);
        let change = over((moved + self.epsilon).sqrt() * grad, (square + self.epsilon).sqrt());
        let moved = self.rho * moved + self.new * (change * change);
        [param - self.rate * change, square, moved]
    }
}

update_rule! {
    /// Adadelta: each gradient is multiplied by the root mean square of earlier steps, and divided by the root mean square of the
    /// gradients.
    ///
    /// The formulas of Adadelta, with d = grad + weight_decay · param, are:
    ///
    /// - square = rho · square + (1 − rho) · d²;
    /// - change = √(moved + epsilon) / √(square + epsilon) · d;
    /// - moved = rho · moved + (1 − rho) · change²;
    /// - param −= rate · change.
    ///
    /// Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012, arXiv:1212.5701, in the form of PyTorch's
    /// `torch.optim.Adadelta`. Weight decay works as in `sgd`.
    ///
    /// A row without a gradient does not move, but each step multiplies its averages by rho. In the mode `exact`, the averages of
    /// a row without a gradient are multiplied when the row is next read. In the mode `lazy`, only the rows of the gradient and
    /// their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("rho", 0.5).with("epsilon", 1.0);
    /// let out = ops::catalogue().parse("adadelta", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -2.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[2.0, 2.0]]),
    ///     Operand::constant("moved", array![[3.0, 3.0]]),
    /// ])?;
    /// // square = 3, and the change is √4 / √4 · grad.
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [3.5, 3.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Adadelta = adadelta {
        rho: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { SQUARE = square, MOVED = moved }
    samples { rho: 0.75, epsilon: 1e-6, decoupled: false, }
}

impl ElementRule<3> for Adadelta {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let rate = self.rate(moment);
        let [step, rho, new, epsilon] = [rate, self.rho, 1.0 - self.rho, self.epsilon].map(T::from_f64);
        self.decay().before(rate, Units { rate: step, rho, new, epsilon })
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 3]> {
        Some([1.0, self.rho, self.rho])
    }
}
