//! `rmsprop` and its forms: steps in units of the root mean square of the gradients, or of their standard deviation.
//!
//! Four operators, since each has states of its own. What an untouched row owes after k steps: `square` and `mean` times
//! alphaᵏ, `velocity` times momentumᵏ, and the moves along the velocity until it has faded.

use super::engine::apply_deferred;
use super::owed::{Decays, Falling, Falls, Moment, decays, fading};
use super::rule::{self, Rule, SparseMode, dense_or_rows, fraction, not_negative, or_one, or_zero, over};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Spread<T> {
    rate: T,
    alpha: T,
    /// 1 − alpha.
    new: T,
    epsilon: T,
    /// 0 where there is no velocity.
    momentum: T,
}

impl<T: Float> Spread<T> {
    fn new(rate: f64, alpha: f64, epsilon: f64, momentum: f64) -> Self {
        let [rate, alpha, new, epsilon, momentum] =
            [rate, alpha, 1.0 - alpha, epsilon, momentum].map(T::from_f64);
        Self { rate, alpha, new, epsilon, momentum }
    }

    /// The mean of the squares, and the step.
    #[inline(always)]
    fn change(&self, square: T, grad: T) -> [T; 2] {
        let square = self.alpha * square + self.new * (grad * grad);
        [square, over(grad, square.sqrt() + self.epsilon)]
    }
}

/// In units of the standard deviation.
#[derive(Clone, Copy)]
struct Centred<T>(Spread<T>);

impl<T: Float> Centred<T> {
    /// The mean of the squares, the mean, and the step.
    #[inline(always)]
    fn change(&self, square: T, mean: T, grad: T) -> [T; 3] {
        let square = self.0.alpha * square + self.0.new * (grad * grad);
        let mean = mean + self.0.new * (grad - mean);
        let variance = square - mean * mean;
        // Where gradients are alike, it is below 0 by rounding.
        let variance = if variance < T::ZERO { T::ZERO } else { variance };
        [square, mean, over(grad, variance.sqrt() + self.0.epsilon)]
    }
}

impl<T: Float> Rule<T, 2> for Spread<T> {
    #[inline(always)]
    fn step(&self, [param, square]: [T; 2], grad: T) -> [T; 2] {
        let [square, change] = self.change(square, grad);
        [param - self.rate * change, square]
    }
}

impl<T: Float> Rule<T, 3> for Spread<T> {
    #[inline(always)]
    fn step(&self, [param, square, velocity]: [T; 3], grad: T) -> [T; 3] {
        let [square, change] = self.change(square, grad);
        let velocity = self.momentum * velocity + change;
        [param - self.rate * velocity, square, velocity]
    }
}

impl<T: Float> Rule<T, 3> for Centred<T> {
    #[inline(always)]
    fn step(&self, [param, square, mean]: [T; 3], grad: T) -> [T; 3] {
        let [square, mean, change] = self.change(square, mean, grad);
        [param - self.0.rate * change, square, mean]
    }
}

impl<T: Float> Rule<T, 4> for Centred<T> {
    #[inline(always)]
    fn step(&self, [param, square, mean, velocity]: [T; 4], grad: T) -> [T; 4] {
        let [square, mean, change] = self.change(square, mean, grad);
        let velocity = self.0.momentum * velocity + change;
        [param - self.0.rate * velocity, square, mean, velocity]
    }
}

decays!(RmsProp, RmsPropMomentum, RmsPropCentred, RmsPropCentredMomentum);

operator! {
    /// RMSProp: steps in units of the root mean square of the gradients.
    ///
    /// With d = grad + weight_decay · param,
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - param −= rate · d / (√square + epsilon).
    ///
    /// Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012. The form is that of PyTorch's
    /// `torch.optim.RMSprop`. Decay as in `sgd`.
    ///
    /// A row without a gradient does not move, but its averages fall at every step: in the mode `exact` it owes that until it is
    /// read. In the mode `lazy` only the touched rows and their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("rmsprop", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[4.0, 0.0]]),
    /// ])?;
    /// // square = 4 in both places.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.5 * 1.0, 1.0 + 0.5 * 2.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct RmsProp = rmsprop {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        alpha: f64 => fraction,
        epsilon: f64 => not_negative,
        /// Adds so much of `param` to the gradient; 0 without it.
        weight_decay: f64 => or_zero,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SQUARE = square: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 2> for RmsProp {
    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 2> {
        let rate = rate * self.rate_factor;
        self.decay().before(rate, Spread::new(rate, self.alpha, self.epsilon, 0.0))
    }

    fn fall(&self) -> [f64; 2] {
        [1.0, self.alpha]
    }
}

impl Op for RmsProp {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 2, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 2, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| RmsProp {
            mode,
            storage: StorageKind::Dense,
            alpha: 0.75,
            epsilon: 1e-8,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: false,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "square"])
    }
}

operator! {
    /// RMSProp along a velocity.
    ///
    /// With d = grad + weight_decay · param,
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - velocity = momentum · velocity + d / (√square + epsilon);
    /// - param −= rate · velocity.
    ///
    /// The form is that of PyTorch's
    /// `torch.optim.RMSprop` with momentum > 0. Decay as in `sgd`.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe what their velocity makes of them until they
    /// are read; in the mode `lazy` they and their state stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0).with("momentum", 0.5);
    /// let out = ops::catalogue().parse("rmsprop_momentum", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[4.0, 0.0]]),
    ///     Operand::constant("velocity", array![[2.0, 0.0]]),
    /// ])?;
    /// // square = 4 in both places.
    /// let velocity: [f64; 2] = [1.0 + 1.0, -2.0];
    /// assert_eq!(out[0].as_slice::<f64>()?, velocity.map(|v| 1.0 - 0.5 * v));
    /// assert_eq!(out[2].as_slice::<f64>()?, velocity);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct RmsPropMomentum = rmsprop_momentum {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        alpha: f64 => fraction,
        epsilon: f64 => not_negative,
        momentum: f64 => fraction,
        /// Adds so much of `param` to the gradient; 0 without it.
        weight_decay: f64 => or_zero,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SQUARE = square: one.updated().table(), VELOCITY = velocity: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 3> for RmsPropMomentum {
    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        self.decay().before(rate, Spread::new(rate, self.alpha, self.epsilon, self.momentum))
    }

    fn fall(&self) -> [f64; 3] {
        [1.0, self.alpha, self.momentum]
    }

    fn horizon(&self) -> usize {
        fading(self.momentum)
    }
}

impl Op for RmsPropMomentum {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| RmsPropMomentum {
            mode,
            storage: StorageKind::Dense,
            alpha: 0.75,
            epsilon: 1e-8,
            momentum: 0.75,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "square", "velocity"])
    }
}

operator! {
    /// RMSProp in units of the standard deviation of the gradients.
    ///
    /// With d = grad + weight_decay · param,
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - mean += (1 − alpha) · (d − mean);
    /// - param −= rate · d / (√(square − mean²) + epsilon).
    ///
    /// Graves, "Generating sequences with recurrent neural networks", 2013, arXiv:1308.0850, equations 38 to 41. The form is that of PyTorch's
    /// `torch.optim.RMSprop` with centered=True. Decay as in `sgd`.
    ///
    /// A row without a gradient does not move, but its averages fall at every step: in the mode `exact` it owes that until it is
    /// read. In the mode `lazy` only the touched rows and their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("rmsprop_centred", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[12.0, 8.0]]),
    ///     Operand::constant("mean", array![[-2.0, 0.0]]),
    /// ])?;
    /// // square = 10 and mean = −1 in both places, so that what is divided by is 3.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.5 * (2.0 / 3.0), 1.0 + 0.5 * (4.0 / 3.0)]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [10.0, 10.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [-1.0, -1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct RmsPropCentred = rmsprop_centred {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        alpha: f64 => fraction,
        epsilon: f64 => not_negative,
        /// Adds so much of `param` to the gradient; 0 without it.
        weight_decay: f64 => or_zero,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SQUARE = square: one.updated().table(), MEAN = mean: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 3> for RmsPropCentred {
    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        self.decay().before(rate, Centred(Spread::new(rate, self.alpha, self.epsilon, 0.0)))
    }

    fn fall(&self) -> [f64; 3] {
        [1.0, self.alpha, self.alpha]
    }
}

impl Op for RmsPropCentred {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| RmsPropCentred {
            mode,
            storage: StorageKind::Dense,
            alpha: 0.75,
            epsilon: 1e-8,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: false,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "square", "mean"])
    }
}

operator! {
    /// RMSProp in units of the standard deviation of the gradients, along a velocity.
    ///
    /// With d = grad + weight_decay · param,
    ///
    /// - square = alpha · square + (1 − alpha) · d²;
    /// - mean += (1 − alpha) · (d − mean);
    /// - velocity = momentum · velocity + d / (√(square − mean²) + epsilon);
    /// - param −= rate · velocity.
    ///
    /// Graves, "Generating sequences with recurrent neural networks", 2013, arXiv:1308.0850, equations 38 to 41. The form is that of PyTorch's
    /// `torch.optim.RMSprop` with centered=True, momentum > 0. Decay as in `sgd`.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe what their velocity makes of them until they
    /// are read; in the mode `lazy` they and their state stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("alpha", 0.75).with("epsilon", 0.0).with("momentum", 0.5);
    /// let out = ops::catalogue().parse("rmsprop_centred_momentum", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("square", array![[12.0, 8.0]]),
    ///     Operand::constant("mean", array![[-2.0, 0.0]]),
    ///     Operand::constant("velocity", array![[2.0, 0.0]]),
    /// ])?;
    /// // square = 10 and mean = −1 in both places, so that what is divided by is 3.
    /// let velocity: [f64; 2] = [1.0 + 2.0 / 3.0, -4.0 / 3.0];
    /// assert_eq!(out[0].as_slice::<f64>()?, velocity.map(|v| 1.0 - 0.5 * v));
    /// assert_eq!(out[3].as_slice::<f64>()?, velocity);
    /// assert_eq!(out[1].as_slice::<f64>()?, [10.0, 10.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [-1.0, -1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct RmsPropCentredMomentum = rmsprop_centred_momentum {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        alpha: f64 => fraction,
        epsilon: f64 => not_negative,
        momentum: f64 => fraction,
        /// Adds so much of `param` to the gradient; 0 without it.
        weight_decay: f64 => or_zero,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SQUARE = square: one.updated().table(), MEAN = mean: one.updated().table(), VELOCITY = velocity: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 4> for RmsPropCentredMomentum {
    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 4> {
        let rate = rate * self.rate_factor;
        self.decay().before(rate, Centred(Spread::new(rate, self.alpha, self.epsilon, self.momentum)))
    }

    fn fall(&self) -> [f64; 4] {
        [1.0, self.alpha, self.alpha, self.momentum]
    }

    fn horizon(&self) -> usize {
        fading(self.momentum)
    }
}

impl Op for RmsPropCentredMomentum {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 4, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 4, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| RmsPropCentredMomentum {
            mode,
            storage: StorageKind::Dense,
            alpha: 0.75,
            epsilon: 1e-8,
            momentum: 0.75,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "square", "mean", "velocity"])
    }
}
