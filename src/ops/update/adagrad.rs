//! `adagrad`: steps that shrink where gradients were large.

use super::decay::Decay;
use super::engine::apply_deferred;
use super::owed::{Decays, Falling, Falls, Moment};
use super::rule::{self, Rule, SparseMode, dense_or_rows, not_negative, or_one, or_zero, over};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Shrink<T> {
    rate: T,
    epsilon: T,
}

impl<T: Float> Rule<T, 2> for Shrink<T> {
    #[inline(always)]
    fn step(&self, [param, sum]: [T; 2], grad: T) -> [T; 2] {
        let sum = sum + grad * grad;
        [param - self.rate * over(grad, sum.sqrt() + self.epsilon), sum]
    }
}

operator! {
    /// Adagrad: steps that shrink where gradients were large.
    ///
    /// With d = grad + weight_decay · param and t = 0, 1, … the number of the step,
    ///
    /// - sum += d²;
    /// - param −= rate / (1 + t · rate_decay) · d / (√sum + epsilon).
    ///
    /// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR 12,
    /// 2011, in the form of PyTorch's `torch.optim.Adagrad`.
    ///
    /// A row without a gradient does not move, so a gradient of selected rows is exact once its duplicate rows are added
    /// up. In the mode `exact` a decay that is decoupled is owed until the row is read; one in the gradient cannot wait.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::program::{Attributes, Operand};
    /// use unpadded::ops;
    /// let plain = Attributes::new().with("mode", "exact").with("epsilon", 0.0).with("rate_decay", 0.0);
    /// let out = ops::catalogue().parse("adagrad", &plain.with("weight_decay", 0.0))?.call(&[
    ///     Operand::constant("grad", array![[3.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[1.0, 1.0]]),
    ///     Operand::constant("sum", array![[16.0, 9.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0 - 0.3, 1.0 + 0.4]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [25.0, 25.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct Adagrad = adagrad {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        epsilon: f64 => not_negative,
        rate_decay: f64 => not_negative,
        weight_decay: f64 => not_negative,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SUM = sum: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl Op for Adagrad {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 2, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        self.decay().owes(Owes::Nothing)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 2, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| Adagrad {
            mode,
            storage: StorageKind::Dense,
            epsilon: 1e-10,
            rate_decay: 0.25,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: false,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "sum"])
    }
}

impl Decays for Adagrad {
    fn decay(&self) -> Decay {
        Decay { l1: self.l1, weight_decay: self.weight_decay, decoupled: self.decoupled }
    }

    fn rate(&self, Moment { rate, step }: Moment) -> f64 {
        rate * self.rate_factor / (1.0 + (step - 1.0) * self.rate_decay)
    }
}

impl<T: Float> Falls<T, 2> for Adagrad {
    fn rule(&self, moment: Moment) -> impl Rule<T, 2> {
        let rate = self.rate(moment);
        self.decay().before(rate, Shrink { rate: T::from_f64(rate), epsilon: T::from_f64(self.epsilon) })
    }

    fn fall(&self) -> [f64; 2] {
        [1.0; 2]
    }
}
