//! `lion`: steps by the sign of a momentum.
//!
//! What an untouched row owes after k steps: moment · beta2ᵏ, whose sign stays, so the parameter moves by that sign times the
//! sum of the rates.

use super::decay::sign;
use super::engine::apply_deferred;
use super::owed::{Decays, Deferred, Moment, decays};
use super::rule::{self, Rule, SparseMode, dense_or_rows, fraction, or_one, or_zero};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Signs<T> {
    rate: T,
    beta1: T,
    /// 1 − beta1.
    new1: T,
    beta2: T,
    /// 1 − beta2.
    new2: T,
}

impl<T: Float> Rule<T, 2> for Signs<T> {
    #[inline(always)]
    fn step(&self, [param, moment]: [T; 2], grad: T) -> [T; 2] {
        let towards = self.beta1 * moment + self.new1 * grad;
        [param - self.rate * sign(towards), self.beta2 * moment + self.new2 * grad]
    }
}

decays!(Lion);

operator! {
    /// Lion: every step has the size of the rate, in the direction of a momentum's sign.
    ///
    /// With d = grad + weight_decay · param (Lion's own decay is `decoupled`),
    ///
    /// - param −= rate · sign(beta1 · moment + (1 − beta1) · d), with sign(0) = 0;
    /// - moment = beta2 · moment + (1 − beta2) · d.
    ///
    /// Chen et al., "Symbolic discovery of optimization algorithms", 2023, arXiv:2302.06675, algorithm 2. Decay as in `sgd`.
    ///
    /// A row without a gradient goes on along the sign of its moment: under a gradient of selected rows in the mode `exact` it owes
    /// that until it is read; in the mode `lazy` it and its moment stay.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
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
    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::ops) struct Lion = lion {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
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
    outputs { PARAM = param: one.updated().table(), MOMENT = moment: one.updated().table(), SETTLED = settled: optional.updated() }
}

/// What updates without a gradient do: the moment falls and keeps its sign, along which the parameter moves.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Along<T> {
    kept: T,
    moved: T,
    fall: T,
    least: T,
}

impl<T: Float> Rule<T, 2> for Along<T> {
    #[inline(always)]
    fn step(&self, [param, moment]: [T; 2], _: T) -> [T; 2] {
        let fallen = self.fall * moment;
        // It is never rounded to 0, update by update, and so keeps its sign.
        let fallen = if fallen.abs() < self.least { sign(moment) * self.least } else { fallen };
        [self.kept * param - self.moved * sign(moment), fallen]
    }
}

impl<T: Float> Deferred<T, 2> for Lion {
    /// What is left of the parameter, and how far it has moved.
    type Moves = [f64; 2];
    type Payment = Along<T>;

    fn rule(&self, Moment { rate, .. }: Moment) -> impl Rule<T, 2> {
        let rate = rate * self.rate_factor;
        let [step, beta1, new1, beta2, new2] =
            [rate, self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2].map(T::from_f64);
        self.decay().before(rate, Signs { rate: step, beta1, new1, beta2, new2 })
    }

    fn none(&self) -> [f64; 2] {
        [1.0, 0.0]
    }

    fn earlier(&self, &[kept, moved]: &[f64; 2], Moment { rate, .. }: Moment) -> [f64; 2] {
        let rate = rate * self.rate_factor;
        // With a beta1 of 0 the moment does not count.
        let along = if self.beta1 > 0.0 { rate } else { 0.0 };
        [kept * self.decay().kept(rate), moved + kept * along]
    }

    fn horizon(&self) -> usize {
        usize::MAX
    }

    fn payment(&self, &[kept, moved]: &[f64; 2], gap: usize, _: usize, _: f64) -> Along<T> {
        let fall = self.beta2.powi(gap as i32);
        let [kept, moved, fall, least] = [kept, moved, fall, f64::from(f32::MIN_POSITIVE)].map(T::from_f64);
        Along { kept, moved, fall, least }
    }
}

impl Op for Lion {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 2, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        if self.beta2 <= 0.5 {
            return Owes::AtOnce("Lion, whose moment is rounded to 0 early where beta2 is 0.5 or less,");
        }
        self.decay().owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 2, _>(run, self))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| Lion {
            mode,
            storage: StorageKind::Dense,
            beta1: 0.75,
            beta2: 0.875,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment"])
    }
}
