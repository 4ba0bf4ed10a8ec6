//! `ftrl`: the update rule FTRL-Proximal (follow the regularised leader), with one learning rate per element.
//!
//! A row without a gradient misses no update: an element with a gradient of 0 does not change at any learning rate. So an
//! update by selected rows gives the result of an update by the dense gradient.

use super::element::ElementRule;
use super::owed::Moment;
use super::rule::ElementStep;
use super::settings;
use crate::kernels::Float;
use crate::update_rule;

#[derive(Clone, Copy)]
struct Leader<T> {
    rate: T,
    beta: T,
    l1: T,
    l2: T,
}

impl<T: Float> ElementStep<T, 4> for Leader<T> {
    #[inline(always)]
    fn step(&self, [param, sum, linear, strength]: [T; 4], grad: T) -> [T; 4] {
        let more = sum + grad * grad;
        let stronger = (self.beta + more.sqrt()) / self.rate;
        let before = if sum == T::ZERO { self.beta / self.rate } else { strength };
        let next = linear + grad - (stronger - before) * param;
        let beyond = if next > self.l1 {
            next - self.l1
        } else if next < -self.l1 {
            next + self.l1
        } else {
            T::ZERO
        };
        let scale = stronger + self.l2;
        let moved = -beyond / scale;
        // An element does not change if its gradient is 0, if the rate is 0, or if its squared gradient underflows.
        let stays = grad == T::ZERO || self.rate == T::ZERO || scale == T::ZERO;
        if stays { [param, sum, linear, strength] } else { [moved, more, next, stronger] }
    }
}

update_rule! {
    /// FTRL-Proximal: follow the regularised leader; L1 makes parameters exactly 0.
    ///
    /// The formulas of FTRL-Proximal for every element with a gradient g other than 0 are:
    ///
    /// - sum += g²;
    /// - σ = (beta + √sum) / rate − strength;
    /// - linear += g − σ · param;
    /// - strength += σ;
    /// - param = 0 if |linear| ≤ l1, else −(linear − sign(linear) · l1) / (strength + l2).
    ///
    /// McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013, algorithm 1: `rate` is α in the
    /// paper, and `strength` is 1 / η in the paper. `strength` starts at beta / rate in the paper, and at 0 in this
    /// operator. L1 and L2 regularise the sum of all losses so far, not the loss of one step. This rule has no other
    /// weight decay. If the learning rate changes, σ contains the change: a lower rate makes the steps of an element
    /// smaller, but does not move the element by itself. As in the paper, an element without a gradient does not
    /// change. No element changes at a rate of 0. A parameter that does not start at 0 loses its initial value during
    /// training, faster if `beta` is large relative to the gradients.
    ///
    /// A gradient of selected rows gives results that are bit-identical to the results of an equal dense gradient.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta", 1.0).with("l1", 1.0).with("l2", 2.0);
    /// let out = ops::catalogue().parse("ftrl", &plain)?.call(&[
    ///     Operand::constant("grad", array![[3.0, 1.0, 0.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 0.0, 7.0]]),
    ///     Operand::constant("sum", array![[16.0, 0.0, 1.0]]),
    ///     Operand::constant("linear", array![[2.0, 0.0, 1.0]]),
    ///     Operand::constant("strength", array![[10.0, 0.0, 4.0]]),
    /// ])?;
    /// // σ = (1 + 5) / 0.5 − 10 = 2, linear = 2 + 3 − 2 · 1 = 3, param = −(3 − 1) / ((1 + 5) / 0.5 + 2).
    /// assert_eq!(out[0].as_slice::<f64>()?, [-1.0 / 7.0, 0.0, 7.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [25.0, 1.0, 1.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [3.0, 1.0, 1.0]);
    /// assert_eq!(out[3].as_slice::<f64>()?, [12.0, 4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Ftrl = ftrl {
        beta: f64 => settings::not_negative,
        l1: f64 => settings::or_zero,
        l2: f64 => settings::or_zero,
    }
    states { SUM = sum, LINEAR = linear, STRENGTH = strength }
    samples { beta: 1.0, l1: 0.25, l2: 0.5, }
}

impl ElementRule<4> for Ftrl {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 4> {
        let [rate, beta, l1, l2] = [self.rate(moment), self.beta, self.l1, self.l2].map(T::from_f64);
        Leader { rate, beta, l1, l2 }
    }
}
