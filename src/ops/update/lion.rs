//! `lion`: the update rule Lion, with steps of the size of the learning rate, in the direction of the sign of a momentum.
//!
//! The effect of k missed updates on a row without a gradient: `moment` is multiplied by beta2ᵏ and keeps its sign, so
//! the parameter moves by −sign(`moment`) times the sum of the rates.

use super::decay::sign;
use super::element::ElementRule;
use super::owed::{Moment, Moves, RowDebt};
use super::rule::ElementStep;
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Signs<T> {
    rate: T,
    beta1: T,
    /// 1 − beta1, the weight of the new gradient in the direction of the step.
    new1: T,
    beta2: T,
    /// 1 − beta2, the weight of the new gradient in the moment.
    new2: T,
}

impl<T: Float> ElementStep<T, 2> for Signs<T> {
    #[inline(always)]
    fn step(&self, [param, moment]: [T; 2], grad: T) -> [T; 2] {
        let towards = self.beta1 * moment + self.new1 * grad;
        [param - self.rate * sign(towards), self.beta2 * moment + self.new2 * grad]
    }
}

update_rule! {
    /// Lion: every step has the size of the learning rate, and the direction of the sign of a momentum.
    ///
    /// The formulas of Lion, with d = grad + weight_decay · param (d = grad with `decoupled`, as in the paper), are:
    ///
    /// - param −= rate · sign(beta1 · moment + (1 − beta1) · d), with sign(0) = 0;
    /// - moment = beta2 · moment + (1 − beta2) · d.
    ///
    /// Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, arXiv:2302.06675, algorithm 2. Weight decay
    /// works as in `sgd`.
    ///
    /// A row without a gradient continues to move by the sign of its moment: with a gradient of selected rows in the mode
    /// `exact`, these moves are made when the row is next read. In the mode `lazy`, a row without a gradient and its moment do
    /// not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75);
    /// let out = ops::catalogue().parse("lion", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0, 0.0]]),
    ///     Operand::constant("rate", arr0(0.25f32)),
    ///     Operand::constant("param", array![[1.0, 1.0, 1.0]]),
    ///     Operand::constant("moment", array![[-4.0, 0.0, 0.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.25, 1.25, 1.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [-2.5, -1.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Lion = lion {
        beta1: f64 => settings::fraction,
        beta2: f64 => settings::fraction,
    }
    decay { weight_decay => settings::or_zero, decoupled = false }
    states { MOMENT = moment }
    samples { beta1: 0.75, beta2: 0.875, decoupled: true, }
}

/// The combined effect of several Lion updates without a gradient: the moment becomes smaller but keeps its sign, and this sign
/// gives the direction in which the parameter moves.
#[derive(Clone, Copy)]
pub(in crate::ops) struct MomentCoast<T> {
    kept: T,
    moved: T,
    fall: T,
    least: T,
}

impl<T: Float> ElementStep<T, 2> for MomentCoast<T> {
    #[inline(always)]
    fn step(&self, [param, moment]: [T; 2], _: T) -> [T; 2] {
        let fallen = self.fall * moment;
        // Single updates never round the moment to 0, so this step must not round the moment to 0: the sign must remain.
        let fallen = if fallen.abs() < self.least { sign(moment) * self.least } else { fallen };
        [self.kept * param - self.moved * sign(moment), fallen]
    }
}

impl ElementRule<2> for Lion {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        let rate = self.rate(moment);
        let [step, beta1, new1, beta2, new2] =
            [rate, self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2].map(T::from_f64);
        self.decay().before(rate, Signs { rate: step, beta1, new1, beta2, new2 })
    }

    fn owes(&self) -> Debt {
        if self.beta2 <= 0.5 {
            return Debt::AtOnce("Lion, whose moment is rounded to 0 early where beta2 is 0.5 or less,");
        }
        self.decay().owes(Debt::Later)
    }

    /// In the moves of Lion, the first number is the decay factor of the parameter, and the second number is the distance that
    /// the parameter has moved along the sign of the moment.
    fn earlier(&self, &[kept, moved, ..]: &Moves, moment: Moment) -> Moves {
        // With beta1 = 0, the moment does not move the parameter.
        let along = if self.beta1 > 0.0 { self.rate(moment) } else { 0.0 };
        [kept * self.kept(moment), moved + kept * along, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    fn is_known(&self, _: &Moves) -> bool {
        true
    }

    fn settled<T: Float>(&self, owed: &RowDebt<'_>) -> impl ElementStep<T, 2> {
        let [kept, moved, ..] = *owed.moves;
        let fall = self.beta2.powi(owed.updates as i32);
        let [kept, moved, fall, least] = [kept, moved, fall, f64::from(f32::MIN_POSITIVE)].map(T::from_f64);
        MomentCoast { kept, moved, fall, least }
    }
}
