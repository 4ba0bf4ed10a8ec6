//! `adam`: the update rule Adam, with steps along a running mean of the gradients, divided by the root of a running mean of the
//! squared gradients; and AMSGrad, which divides by the root of the largest second moment so far.

use super::drift::{Drift, power};
use super::element::ElementRule;
use super::owed::{Moment, Moves, RowDebt, fading, falling_by};
use super::rule::{ElementStep, KEPT, over};
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

/// The factors of Adam's moments and of its step, for Adam and its variants.
#[derive(Clone, Copy)]
pub(super) struct Moments<T> {
    /// 1 − beta1, the weight of the new gradient in the first moment.
    new1: T,
    beta2: T,
    /// 1 − beta2, the weight of the new squared gradient in the second moment.
    new2: T,
    /// The learning rate with the bias correction of the first moment: rate / (1 − beta1ᵗ).
    pub(super) rate: T,
    /// The bias correction of the root of the second moment: 1 / √(1 − beta2ᵗ).
    spread: T,
    epsilon: T,
}

impl<T: Float> Moments<T> {
    /// Computes the factors of step t = 1, 2, … at the learning rate `rate`.
    pub(super) fn new([beta1, beta2]: [f64; 2], epsilon: f64, rate: f64, t: f64) -> Self {
        Self {
            new1: T::from_f64(1.0 - beta1),
            beta2: T::from_f64(beta2),
            new2: T::from_f64(1.0 - beta2),
            rate: T::from_f64(rate / (1.0 - beta1.powf(t))),
            spread: T::from_f64(1.0 / (1.0 - beta2.powf(t)).sqrt()),
            epsilon: T::from_f64(epsilon),
        }
    }

    /// Returns the first and the second moment after an update with the gradient `grad`.
    #[inline(always)]
    pub(super) fn next(&self, moment1: T, moment2: T, grad: T) -> [T; 2] {
        let moment1 = moment1 + self.new1 * (grad - moment1);
        [moment1, self.beta2 * moment2 + self.new2 * (grad * grad)]
    }

    /// Returns the divisor of a step: the bias-corrected root of the second moment, plus epsilon.
    #[inline(always)]
    pub(super) fn scale(&self, moment2: T) -> T {
        moment2.sqrt() * self.spread + self.epsilon
    }
}

impl<T: Float> ElementStep<T, 3> for Moments<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], grad: T) -> [T; 3] {
        let [moment1, moment2] = self.next(moment1, moment2, grad);
        [param - self.rate * over(moment1, self.scale(moment2)), moment1, moment2]
    }
}

/// The step of AMSGrad, whose divisor never falls.
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
    /// Adam, or AdamW if `decoupled`: steps along the mean of the gradients, divided by the root of the mean of the squared
    /// gradients.
    ///
    /// The number of the step is t = 1, 2, …. In Adam, d = grad + weight_decay · param. In AdamW (`decoupled`), d =
    /// grad, and each step begins with param −= rate · weight_decay · param. The formulas are:
    ///
    /// - moment1 += (1 − beta1) · (d − moment1);
    /// - moment2 = beta2 · moment2 + (1 − beta2) · d²;
    /// - param −= rate / (1 − beta1ᵗ) · moment1 / (√(moment2 / (1 − beta2ᵗ)) + epsilon). With `amsgrad`, the state
    ///   largest = max(largest, moment2) takes the place of moment2 in this formula.
    ///
    /// Sources: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, arXiv:1412.6980; Loshchilov and Hutter,
    /// "Decoupled weight decay regularization", 2019, arXiv:1711.05101; Reddi, Kale and Kumar, "On the convergence of Adam and
    /// beyond", 2018, arXiv:1904.09237; in the form of PyTorch's `torch.optim.Adam` and `AdamW`.
    ///
    /// Every step changes the moments of every row, and therefore every row of the parameter. With a gradient of
    /// selected rows in the mode `exact`, the steps of a row without a gradient are made when the row is next read: one
    /// formula replaces the k missed steps, with a relative error of about 1e-8. Weight decay that is added to the
    /// gradient cannot be deferred: with such decay, a gradient of selected rows is an error. In the mode `lazy`, only
    /// the rows of the gradient and their moments change, as in PyTorch's `SparseAdam`. `SparseAdam` adds epsilon
    /// before the bias correction of moment2; this operator adds epsilon after the bias correction, in both modes. The
    /// number t counts all steps of the program, including steps with an empty gradient.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::ops;
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0);
    /// let operands = [
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.125f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    ///     Operand::constant("largest", array![[4.0, 1.0]]),
    /// ];
    /// let out = ops::catalogue().parse("adam", &plain)?.call(&operands[..5])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.875, 1.125]); // the first step is the sign of the gradient
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// let out = ops::catalogue().parse("adam", &plain.with("amsgrad", true))?.call(&operands)?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.125 / 2.0, 1.0 + 0.125]);
    /// assert_eq!(out[3].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Adam = adam {
        beta1: f64 => settings::fraction,
        beta2: f64 => settings::fraction,
        epsilon: f64 => settings::not_negative,
        /// Whether the divisor is the root of the largest second moment so far; false by default.
        amsgrad: bool = false,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { MOMENT1 = moment1, MOMENT2 = moment2, LARGEST = largest }
    variants |rule| rule.amsgrad => { false => [MOMENT1, MOMENT2], true => [MOMENT1, MOMENT2, LARGEST] }
    samples { beta1: 0.75, beta2: 0.875, epsilon: 1e-8, amsgrad: false, decoupled: true, }
        { beta1: 0.75, beta2: 0.875, epsilon: 1e-8, amsgrad: true, decoupled: true, }
}

impl Adam {
    fn moments<T: Float>(&self, rate: f64, step: f64) -> Moments<T> {
        Moments::new([self.beta1, self.beta2], self.epsilon, rate, step)
    }
}

impl ElementRule<3> for Adam {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        let rate = ElementRule::<3>::rate(self, moment);
        self.decay().before(rate, self.moments(rate, moment.step))
    }

    fn owes(&self) -> Debt {
        if falling_by(self.beta1, self.beta2.sqrt()).is_none() {
            return Debt::AtOnce("Adam, whose steps fade too slowly where beta1² is about beta2 or more,");
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
        let moved = ElementRule::<3>::rate(self, moment) / (1.0 - power(self.beta1, step));
        let kept = ElementRule::<3>::kept(self, moment);
        Drift::from(after).earlier([self.beta1, self.beta2], step, moved, kept).into()
    }

    fn is_known(&self, moves: &Moves) -> bool {
        Drift::from(moves).is_known()
    }

    fn settled<T: Float>(&self, owed: &RowDebt<'_>) -> impl ElementStep<T, 3> {
        Drift::of(owed, [self.beta1, self.beta2], self.epsilon)
    }
}

/// AMSGrad. The effect of k missed updates on a row without a gradient: the moments are multiplied by beta1ᵏ and beta2ᵏ, the
/// parameter moves until the first moment is negligible, and `largest` does not change.
impl ElementRule<4> for Adam {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 4> {
        let rate = ElementRule::<4>::rate(self, moment);
        self.decay().before(rate, Bounded(self.moments(rate, moment.step)))
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
