//! `adadelta`: steps in units of the steps before.
//!
//! What an untouched row owes: its two averages, rhoᵏ of what they were after k steps; the parameter stays, but for decay.

use super::engine::apply_deferred;
use super::owed::{Decays, Falling, Falls, Moment, decays};
use super::rule::{self, Rule, SparseMode, dense_or_rows, fraction, not_negative, or_one, or_zero, over};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Units<T> {
    rate: T,
    rho: T,
    /// 1 − rho.
    new: T,
    epsilon: T,
}

impl<T: Float> Rule<T, 3> for Units<T> {
    #[inline(always)]
    fn step(&self, [param, square, moved]: [T; 3], grad: T) -> [T; 3] {
        let square = self.rho * square + self.new * (grad * grad);
        let change = over((moved + self.epsilon).sqrt() * grad, (square + self.epsilon).sqrt());
        let moved = self.rho * moved + self.new * (change * change);
        [param - self.rate * change, square, moved]
    }
}

decays!(Adadelta);

operator! {
    /// Adadelta: steps in units of the spread of the steps before, over that of the gradients.
    ///
    /// With d = grad + weight_decay · param,
    ///
    /// - square = rho · square + (1 − rho) · d²;
    /// - change = √(moved + epsilon) / √(square + epsilon) · d;
    /// - moved = rho · moved + (1 − rho) · change²;
    /// - param −= rate · change.
    ///
    /// Zeiler, "ADADELTA: an adaptive learning rate method", 2012, arXiv:1212.5701, in the form of PyTorch's
    /// `torch.optim.Adadelta`. Decay as in `sgd`.
    ///
    /// A row without a gradient does not move, but its averages fall at every step: in the mode `exact` it owes that until it is
    /// read. In the mode `lazy` only the touched rows and their averages change.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
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
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct Adadelta = adadelta {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        rho: f64 => fraction,
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
    outputs { PARAM = param: one.updated().table(), SQUARE = square: one.updated().table(), MOVED = moved: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 3> for Adadelta {
    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        let [step, rho, new, epsilon] = [rate, self.rho, 1.0 - self.rho, self.epsilon].map(T::from_f64);
        self.decay().before(rate, Units { rate: step, rho, new, epsilon })
    }

    fn fall(&self) -> [f64; 3] {
        [1.0, self.rho, self.rho]
    }
}

impl Op for Adadelta {
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
        let op = |mode| Adadelta {
            mode,
            storage: StorageKind::Dense,
            rho: 0.75,
            epsilon: 1e-6,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: false,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "square", "moved"])
    }
}
