//! `amsgrad`: Adam whose steps never grow by a second moment that falls.
//!
//! An operator beside `adam`, since it has one state more. What an untouched row owes after k steps: the moments times beta1ᵏ and
//! beta2ᵏ, and the moves of the parameter until the first has faded; `largest` stays.

use super::adam::Moments;
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
struct Bounded<T>(Moments<T>);

impl<T: Float> Rule<T, 4> for Bounded<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2, largest]: [T; 4], grad: T) -> [T; 4] {
        let [moment1, moment2] = self.0.next(moment1, moment2, grad);
        let largest = if largest > moment2 { largest } else { moment2 };
        [param - self.0.rate * over(moment1, self.0.scale(largest)), moment1, moment2, largest]
    }
}

decays!(AmsGrad);

operator! {
    /// AMSGrad: Adam whose second moment, where a step is divided by it, never falls.
    ///
    /// With d and t as in `adam`,
    ///
    /// - moment1 and moment2 as in `adam`;
    /// - largest = max(largest, moment2);
    /// - param −= rate / (1 − beta1ᵗ) · moment1 / (√(largest / (1 − beta2ᵗ)) + epsilon).
    ///
    /// Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018, arXiv:1904.09237, in the form of PyTorch's
    /// `torch.optim.Adam(amsgrad=True)`. Decay as in `sgd`.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe what their moments makes of them until they
    /// are read; in the mode `lazy` they and their state stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("amsgrad", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.125f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0]]),
    ///     Operand::constant("largest", array![[4.0, 1.0]]),
    /// ])?;
    /// // Under Adam both would move by 0.125.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.125 / 2.0, 1.0 + 0.125]);
    /// assert_eq!(out[2].as_slice::<f64>()?, [1.0, 4.0]);
    /// assert_eq!(out[3].as_slice::<f64>()?, [4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct AmsGrad = amsgrad {
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
    outputs { PARAM = param: one.updated().table(), MOMENT1 = moment1: one.updated().table(), MOMENT2 = moment2: one.updated().table(), LARGEST = largest: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl<T: Float> Falls<T, 4> for AmsGrad {
    fn rule(&self, Moment { rate, step }: Moment) -> impl Rule<T, 4> {
        let rate = rate * self.rate_factor;
        let moments = Moments::new([self.beta1, self.beta2], self.epsilon, rate, step);
        self.decay().before(rate, Bounded(moments))
    }

    fn fall(&self) -> [f64; 4] {
        [1.0, self.beta1, self.beta2, 1.0]
    }

    fn horizon(&self) -> usize {
        fading(self.beta1)
    }
}

impl Op for AmsGrad {
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
        let op = |mode| AmsGrad {
            mode,
            storage: StorageKind::Dense,
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 1e-8,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment1", "moment2", "largest"])
    }
}
