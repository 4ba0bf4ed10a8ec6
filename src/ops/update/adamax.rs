//! `adamax`: Adam in units of the largest gradient.
//!
//! What an untouched row owes after k steps: moment · beta1ᵏ, largest · beta2ᵏ, and the moves of the parameter until the moment
//! has faded.

use super::engine::apply_deferred;
use super::owed::{Decays, Falling, Falls, Moment, decays, fading, falling_by};
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
struct Largest<T> {
    /// rate / (1 − beta1ᵗ).
    rate: T,
    /// 1 − beta1.
    new1: T,
    beta2: T,
    epsilon: T,
}

impl<T: Float> Rule<T, 3> for Largest<T> {
    #[inline(always)]
    fn step(&self, [param, moment, largest]: [T; 3], grad: T) -> [T; 3] {
        let moment = moment + self.new1 * (grad - moment);
        let (faded, here) = (self.beta2 * largest, grad.abs() + self.epsilon);
        let largest = if faded > here { faded } else { here };
        [param - self.rate * over(moment, largest), moment, largest]
    }
}

decays!(Adamax);

operator! {
    /// Adamax: Adam with the largest gradient, which fades, in place of the root of the second moment.
    ///
    /// With d = grad + weight_decay · param and t = 1, 2, … the number of the step,
    ///
    /// - moment += (1 − beta1) · (d − moment);
    /// - largest = max(beta2 · largest, |d| + epsilon);
    /// - param −= rate / (1 − beta1ᵗ) · moment / largest.
    ///
    /// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, arXiv:1412.6980, section 7.1, in the form of
    /// PyTorch's `torch.optim.Adamax`. Decay as in `sgd`.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe what their moment makes of them until they
    /// are read; in the mode `lazy` they and their state stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.5).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("adamax", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment", array![[0.0, 0.0]]),
    ///     Operand::constant("largest", array![[16.0, 2.0]]),
    /// ])?;
    /// // The rate is doubled by the correction: 1 − 0.5¹.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 1.0 / 8.0, 1.0 + 2.0 / 4.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [8.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct Adamax = adamax {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
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
    outputs { PARAM = param: one.updated().table(), MOMENT = moment: one.updated().table(), LARGEST = largest: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 3> for Adamax {
    fn rule(&self, Moment { rate, step }: Moment) -> impl Rule<T, 3> {
        let rate = rate * self.rate_factor;
        let moved = rate / (1.0 - self.beta1.powf(step));
        let [new1, beta2, epsilon] = [1.0 - self.beta1, self.beta2, self.epsilon].map(T::from_f64);
        self.decay().before(rate, Largest { rate: T::from_f64(moved), new1, beta2, epsilon })
    }

    fn fall(&self) -> [f64; 3] {
        // What `largest` is below epsilon, no later step asks for.
        [1.0, self.beta1, self.beta2]
    }

    fn horizon(&self) -> usize {
        falling_by(self.beta1, self.beta2).map_or(KEPT, fading)
    }
}

impl Op for Adamax {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        if falling_by(self.beta1, self.beta2).is_none() {
            return Owes::AtOnce("Adamax, whose steps fade too slowly where beta1 is about beta2 or more,");
        }
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| Adamax {
            mode,
            storage: StorageKind::Dense,
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 1e-8,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: false,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment", "largest"])
    }
}
