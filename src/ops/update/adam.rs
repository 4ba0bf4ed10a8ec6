//! `adam`: steps along the mean of the gradients, in units of their spread.

use super::drift::{Drift, DriftOf, power};
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

/// What Adam and the rules beside it share: the moments of the gradients, and the step that they make.
#[derive(Clone, Copy)]
pub(super) struct Moments<T> {
    /// 1 − beta1.
    new1: T,
    beta2: T,
    /// 1 − beta2.
    new2: T,
    /// rate / (1 − beta1ᵗ).
    pub(super) rate: T,
    /// 1 / √(1 − beta2ᵗ).
    spread: T,
    epsilon: T,
}

impl<T: Float> Moments<T> {
    /// Of step t = 1, 2, … at a rate.
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

    /// Both with a gradient more.
    #[inline(always)]
    pub(super) fn next(&self, moment1: T, moment2: T, grad: T) -> [T; 2] {
        let moment1 = moment1 + self.new1 * (grad - moment1);
        [moment1, self.beta2 * moment2 + self.new2 * (grad * grad)]
    }

    /// What a step is divided by.
    #[inline(always)]
    pub(super) fn scale(&self, moment2: T) -> T {
        moment2.sqrt() * self.spread + self.epsilon
    }
}

impl<T: Float> Rule<T, 3> for Moments<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], grad: T) -> [T; 3] {
        let [moment1, moment2] = self.next(moment1, moment2, grad);
        [param - self.rate * over(moment1, self.scale(moment2)), moment1, moment2]
    }
}

decays!(Adam);

operator! {
    /// Adam, and AdamW where the decay is `decoupled`: steps along the mean of the gradients, in units of their spread.
    ///
    /// With t = 1, 2, … the number of the step and d = grad + weight_decay · param (d = grad, and first
    /// param −= rate · weight_decay · param, where the decay is `decoupled`: AdamW),
    ///
    /// - moment1 += (1 − beta1) · (d − moment1);
    /// - moment2 = beta2 · moment2 + (1 − beta2) · d²;
    /// - param −= rate / (1 − beta1ᵗ) · moment1 / (√(moment2 / (1 − beta2ᵗ)) + epsilon).
    ///
    /// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, arXiv:1412.6980; Loshchilov and Hutter,
    /// "Decoupled weight decay regularization", 2019, arXiv:1711.05101; in the form of PyTorch's `torch.optim.Adam` and
    /// `AdamW`.
    ///
    /// The moments of every row move at every step, and the parameter with them. Under a gradient of selected rows in the mode
    /// `exact`, rows without a gradient owe these moves until they are read: k missed steps are a sum over k terms of the same
    /// form, which is known by its moments, to about 1e-8 of it. A decay that is added to the gradient cannot wait. In the mode
    /// `lazy` only the touched rows and their moments move, as in PyTorch's `SparseAdam` (whose epsilon, unlike Adam's, is added
    /// before the correction of moment2; here it is Adam's in both). t counts the steps of the program, also those
    /// whose gradient was empty.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::program::{Attributes, Operand};
    /// use unpadded::ops;
    /// let betas = Attributes::new().with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0);
    /// let plain = betas.with("mode", "exact").with("weight_decay", 0.0).with("decoupled", false);
    /// let out = ops::catalogue().parse("adam", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.125f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.875, 1.125]); // the first step is the sign of the gradient
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct Adam = adam {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
        epsilon: f64 => not_negative,
        weight_decay: f64 => not_negative,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone.
        decoupled: bool,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), MOMENT1 = moment1: one.updated().table(), MOMENT2 = moment2: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Deferred<T, 3> for Adam {
    type Moves = Drift;
    type Payment = DriftOf<T>;

    fn rule(&self, Moment { rate, step }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        self.decay().before(rate, Moments::new([self.beta1, self.beta2], self.epsilon, rate, step))
    }

    fn none(&self) -> Drift {
        Drift::default()
    }

    fn earlier(&self, after: &Drift, Moment { rate, step }: Moment) -> Drift {
        let rate = rate * self.rate_factor;
        after.earlier(
            [self.beta1, self.beta2],
            step,
            rate / (1.0 - power(self.beta1, step)),
            self.decay().kept(rate),
        )
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

impl Op for Adam {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        if falling_by(self.beta1, self.beta2.sqrt()).is_none() {
            return Owes::AtOnce("Adam, whose steps fade too slowly where beta1² is about beta2 or more,");
        }
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, self))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let (beta1, beta2, epsilon) = (0.75, 0.875, 1e-8);
        let (storage, weight_decay, decoupled) = (StorageKind::Dense, 0.5, true);
        let (l1, rate_factor) = (0.25, 0.5);
        let op =
            |mode| Adam { mode, storage, beta1, beta2, epsilon, weight_decay, l1, decoupled, rate_factor };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment1", "moment2"])
    }
}
