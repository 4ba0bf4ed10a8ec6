//! `nadam`: Adam that looks ahead.
//!
//! What an untouched row owes after k steps: the moments times beta1ᵏ and beta2ᵏ, and the moves of the parameter, which are
//! Adam's with another factor at each step.

use super::adam::Moments;
use super::drift::{Drift, DriftOf};
use super::engine::apply_deferred;
use super::owed::{Decays, Deferred, Moment, decays, fading, falling_by};
use super::rule::{
    self, KEPT, Rule, SparseMode, dense_or_rows, fraction, not_negative, or_one, or_zero, over,
};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Ahead<T> {
    moments: Moments<T>,
    /// Of the gradient in the step.
    by_grad: T,
    /// Of the first moment in the step.
    by_moment: T,
}

impl<T: Float> Rule<T, 3> for Ahead<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], grad: T) -> [T; 3] {
        let [moment1, moment2] = self.moments.next(moment1, moment2, grad);
        let change = self.by_grad * grad + self.by_moment * moment1;
        [param - over(change, self.moments.scale(moment2)), moment1, moment2]
    }
}

/// What multiplies the gradient and the moment at step t, but for the rate.
fn factors(beta1: f64, momentum_decay: f64, t: f64) -> [f64; 2] {
    // Of these the product is 0 beside 1.
    const NOTHING: f64 = 1e-18;
    let mu = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * momentum_decay));
    let (mut product, mut i) = (1.0, 1.0);
    while i <= t && product > NOTHING {
        product *= mu(i);
        i += 1.0;
    }
    let (here, next) = (mu(t), mu(t + 1.0));
    [(1.0 - here) / (1.0 - product), next / (1.0 - product * next)]
}

decays!(NAdam);

operator! {
    /// NAdam: Adam that looks ahead along its momentum.
    ///
    /// With d = grad + weight_decay · param, t = 1, 2, … the number of the step,
    /// μₜ = beta1 · (1 − 0.96^(t · momentum_decay) / 2) and Πₜ = μ₁ · … · μₜ,
    ///
    /// - moment1 and moment2 as in `adam`;
    /// - param −= rate · ((1 − μₜ) / (1 − Πₜ) · d + μₜ₊₁ / (1 − Πₜ₊₁) · moment1) / (√(moment2 / (1 − beta2ᵗ)) + epsilon).
    ///
    /// Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016, in the form of PyTorch's `torch.optim.NAdam`.
    /// Decay as in `sgd`.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe what their moments makes of them until they
    /// are read; in the mode `lazy` they and their state stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0).with("momentum_decay", 0.0);
    /// let out = ops::catalogue().parse("nadam", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.25f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    /// ])?;
    /// // Without a decay of the momentum μ is beta1 / 2: (1 − 1/4) / (1 − 1/4) · 2 + 1/4 / (1 − 1/16) · 1, over 2.
    /// let part = (1.0 + 4.0 / 30.0) / 4.0;
    /// for (param, expected) in out[0].as_slice::<f64>()?.iter().zip([1.0 - part, 1.0 + part]) {
    ///     assert!((param - expected).abs() < 1e-12);
    /// }
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct NAdam = nadam {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
        epsilon: f64 => not_negative,
        momentum_decay: f64 => not_negative,
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
    outputs { PARAM = param: one.updated().table(), MOMENT1 = moment1: one.updated().table(), MOMENT2 = moment2: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Deferred<T, 3> for NAdam {
    type Moves = Drift;
    type Payment = DriftOf<T>;

    fn rule(&self, Moment { rate, step }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        let [by_grad, by_moment] =
            factors(self.beta1, self.momentum_decay, step).map(|factor| T::from_f64(rate * factor));
        let moments = Moments::new([self.beta1, self.beta2], self.epsilon, rate, step);
        self.decay().before(rate, Ahead { moments, by_grad, by_moment })
    }

    fn none(&self) -> Drift {
        Drift::default()
    }

    fn earlier(&self, after: &Drift, Moment { rate, step }: Moment) -> Drift {
        let rate = rate * self.rate_factor;
        let [_, by_moment] = factors(self.beta1, self.momentum_decay, step);
        after.earlier([self.beta1, self.beta2], step, rate * by_moment, self.decay().kept(rate))
    }

    fn kept(&self, moment: Moment) -> f64 {
        self.decay().kept(self.rate(moment))
    }

    fn horizon(&self) -> usize {
        falling_by(self.beta1, self.beta2.sqrt()).map_or(KEPT, fading)
    }

    fn is_known(&self, moves: &Drift) -> bool {
        moves.is_known()
    }

    fn payment(&self, moves: &Drift, gap: usize, rest: usize, kept: f64) -> DriftOf<T> {
        moves.of([self.beta1, self.beta2], self.epsilon, gap + rest, kept)
    }
}

impl Op for NAdam {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        if falling_by(self.beta1, self.beta2.sqrt()).is_none() {
            return Owes::AtOnce("NAdam, whose steps fade too slowly where beta1² is about beta2 or more,");
        }
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, self))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| NAdam {
            mode,
            storage: StorageKind::Dense,
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 1e-8,
            momentum_decay: 0.25,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment1", "moment2"])
    }
}
