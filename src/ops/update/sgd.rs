//! `sgd`: the update rule of stochastic gradient descent, without or with momentum.

use super::decay::Decay;
use super::element::ElementRule;
use super::owed::{Moment, Moves, RowDebt};
use super::rule::ElementStep;
use super::settings;
use crate::kernels::Float;
use crate::operator::Debt;
use crate::ops::update::element::RuleSettings;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Descend<T> {
    rate: T,
}

impl<T: Float> ElementStep<T, 1> for Descend<T> {
    #[inline(always)]
    fn step(&self, [param]: [T; 1], grad: T) -> [T; 1] {
        [param - self.rate * grad]
    }
}

/// The arithmetic of a step with momentum: the parameter moves by −rate · (ahead · grad + along · velocity). Without
/// Nesterov momentum, ahead = 0 and along = 1; with Nesterov momentum, ahead = 1 and along = momentum.
#[derive(Clone, Copy)]
struct Roll<T> {
    rate: T,
    momentum: T,
    ahead: T,
    along: T,
}

impl<T: Float> ElementStep<T, 2> for Roll<T> {
    #[inline(always)]
    fn step(&self, [param, velocity]: [T; 2], grad: T) -> [T; 2] {
        let velocity = self.momentum * velocity + grad;
        [param - self.rate * (self.ahead * grad + self.along * velocity), velocity]
    }
}

update_rule! {
    /// Stochastic gradient descent: param −= rate · d, with d = grad + weight_decay · param; with `momentum`, descent along a
    /// velocity. The formulas with momentum are:
    ///
    /// - velocity = momentum · velocity + d,
    /// - param −= rate · velocity, or, with `nesterov`, param −= rate · (d + momentum · velocity).
    ///
    /// The velocity, which exists only with `momentum`, starts at zero, so it is d after the first step. The formulas equal the
    /// formulas of PyTorch's `torch.optim.SGD` without dampening; the Nesterov form follows Sutskever et al., "On the importance
    /// of initialization and momentum in deep learning", 2013, with `param` at the point where the gradient is computed.
    ///
    /// `l1` and `decoupled` work as in every rule with weight decay. With p = param, weight_decay · p + l1 · sign(p) is added
    /// to the gradient. With `decoupled`, the gradient does not change: first p ← (1 − rate · weight_decay) · p, then p moves
    /// by rate · l1 towards 0 but not past 0.
    ///
    /// With a gradient of selected rows in the mode `exact`, a row without a gradient gets its weight decay and the moves along
    /// its velocity when the row is next read. L1 decay cannot be deferred: with L1 decay, a gradient of selected rows is an
    /// error in this mode. In the mode `lazy`, rows without a gradient and their velocity do not change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::SelectedRows;
    /// use unpadded::{Variable, ops};
    /// let plain = Attributes::new().with("mode", "exact").with("weight_decay", 0.0);
    /// let grad = SelectedRows::new(3, vec![2, 0, 2], array![[1.0], [4.0], [1.0]])?;
    /// let out = ops::catalogue().parse("sgd", &plain)?.call(&[
    ///     Operand::constant("grad", Variable::new(grad, None)?),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[10.0], [20.0], [30.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [8.0, 20.0, 29.0]);
    ///
    /// let out = ops::catalogue().parse("sgd", &plain.with("momentum", 0.5))?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[10.0, 10.0]]),
    ///     Operand::constant("velocity", array![[4.0, 0.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [8.0, 12.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, -4.0]); // the velocities
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Sgd = sgd {
        /// The factor of the velocity; without it, the rule has no velocity.
        momentum: Option<f64> => settings::fraction_if_set,
        /// Whether the step is along the gradient and the new velocity; false by default, and ignored without momentum.
        nesterov: bool = false,
    }
    decay { weight_decay => settings::not_negative, decoupled = false }
    states { VELOCITY = velocity }
    variants |rule| rule.momentum.is_some() => { false => [], true => [VELOCITY] }
    samples { momentum: None, nesterov: false, decoupled: false, } { momentum: Some(0.75), nesterov: true, decoupled: true, }
}

impl ElementRule<1> for Sgd {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 1> {
        let rate = ElementRule::<1>::rate(self, moment);
        self.decay().before(rate, Descend { rate: T::from_f64(rate) })
    }

    fn owes(&self) -> Debt {
        // In plain SGD, a decay that is added to the gradient has the effect of a decoupled decay.
        Decay { decoupled: true, ..self.decay() }.owes(Debt::Nothing)
    }

    fn fall(&self) -> Option<[f64; 1]> {
        Some([1.0])
    }
}

/// The combined effect of several momentum updates without a gradient: a linear map from the old parameter and velocity
/// to the new parameter and velocity.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Coast<T> {
    param: [T; 2],
    velocity: [T; 2],
}

impl<T: Float> ElementStep<T, 2> for Coast<T> {
    #[inline(always)]
    fn step(&self, [param, velocity]: [T; 2], _: T) -> [T; 2] {
        [
            self.param[0] * param + self.param[1] * velocity,
            self.velocity[0] * param + self.velocity[1] * velocity,
        ]
    }
}

impl Sgd {
    /// Returns the momentum, and the factors (ahead, along) of the gradient and of the velocity in a move: (1, momentum) with
    /// Nesterov momentum, else (0, 1).
    fn parts(&self) -> (f64, (f64, f64)) {
        let momentum = self.momentum.unwrap_or(0.0);
        (momentum, if self.nesterov { (1.0, momentum) } else { (0.0, 1.0) })
    }
}

impl ElementRule<2> for Sgd {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        let (rate, (momentum, (ahead, along))) = (ElementRule::<2>::rate(self, moment), self.parts());
        let [ahead, along, momentum] = [ahead, along, momentum].map(T::from_f64);
        self.decay().before(rate, Roll { rate: T::from_f64(rate), momentum, ahead, along })
    }

    fn owes(&self) -> Debt {
        Decay { decoupled: true, ..self.decay() }.owes(Debt::Later)
    }

    fn none(&self) -> Moves {
        [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    }

    /// In the moves of momentum, the first four numbers are the two rows of a [`Coast`].
    fn earlier(&self, &[param, by_velocity, by_param, velocity, ..]: &Moves, moment: Moment) -> Moves {
        let (momentum, (ahead, along)) = self.parts();
        let rate = ElementRule::<2>::rate(self, moment);
        let (keep, decay) = match self.decoupled {
            true => (self.decay().kept(rate), 0.0),
            false => (1.0, self.weight_decay),
        };
        // The new parameter and velocity after one update without a gradient, from (parameter 1, velocity 0) and from
        // (parameter 0, velocity 1).
        let first = [[keep - rate * (ahead + along) * decay, decay], [-rate * along * momentum, momentum]];
        let then =
            |factors: [f64; 2]| first.map(|[param, velocity]| factors[0] * param + factors[1] * velocity);
        let ([a, b], [c, d]) = (then([param, by_velocity]), then([by_param, velocity]));
        [a, b, c, d, 0.0, 0.0, 0.0, 0.0]
    }

    fn is_known(&self, _: &Moves) -> bool {
        true
    }

    fn settled<T: Float>(&self, owed: &RowDebt<'_>) -> impl ElementStep<T, 2> {
        let [a, b, c, d, ..] = owed.moves.map(T::from_f64);
        Coast { param: [a, b], velocity: [c, d] }
    }
}
