//! `sgd` and `momentum`: stochastic gradient descent.

use super::decay::Decay;
use super::engine::{Rule, apply};
use super::rule::{self, SparseMode, dense_or_rows, fraction, not_negative, or_one, or_zero};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, RowValue, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Descend<T> {
    rate: T,
}

impl<T: Float> Rule<T, 1> for Descend<T> {
    #[inline(always)]
    fn step(&self, [param]: [T; 1], grad: T) -> [T; 1] {
        [param - self.rate * grad]
    }
}

/// The move is rate · (ahead · d + along · velocity): along the velocity alone, or looking ahead of it.
#[derive(Clone, Copy)]
struct Roll<T> {
    rate: T,
    momentum: T,
    ahead: T,
    along: T,
}

impl<T: Float> Rule<T, 2> for Roll<T> {
    #[inline(always)]
    fn step(&self, [param, velocity]: [T; 2], grad: T) -> [T; 2] {
        let velocity = self.momentum * velocity + grad;
        [param - self.rate * (self.ahead * grad + self.along * velocity), velocity]
    }
}

operator! {
    /// Stochastic gradient descent: param −= rate · (grad + weight_decay · param).
    ///
    /// `l1` and `decoupled` are those of every rule that decays: with p = param, the gradient gets weight_decay · p + l1 ·
    /// sign(p); where they are `decoupled`, first p ← (1 − rate · weight_decay) · p, and p goes towards 0 by rate · l1, no
    /// further.
    ///
    /// Under a gradient of selected rows it is exact without decay, which would move every row and so asks for the mode
    /// `lazy`.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::program::{Attributes, Operand};
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
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Sgd = sgd {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        weight_decay: f64 => not_negative,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table() }
}

impl Sgd {
    fn decay(&self) -> Decay {
        Decay { l1: self.l1, weight_decay: self.weight_decay, decoupled: self.decoupled }
    }
}

impl Op for Sgd {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 1, self.storage, self.decay().moves_all())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(op: &Sgd, run: &mut Forward<'_>) -> Result<()> {
            let rate = rule::rate(run, op.rate_factor)?;
            apply(run, op.decay().before(rate, Descend { rate: T::from_f64(rate) }))
        }
        with_float!(run.dtype(rule::GRAD), T => forward::<T>(self, run))
    }

    fn samples() -> Result<Vec<Sample>> {
        rule::samples(
            |mode| {
                Sgd {
                    mode,
                    storage: StorageKind::Dense,
                    weight_decay: 0.5,
                    l1: 0.25,
                    decoupled: false,
                    rate_factor: 0.5,
                }
                .attributes()
            },
            &["param"],
        )
    }
}

operator! {
    /// Gradient descent along a velocity. With d = grad + weight_decay · param,
    ///
    /// - velocity = momentum · velocity + d,
    /// - param −= rate · velocity, or, with `nesterov`, param −= rate · (d + momentum · velocity).
    ///
    /// The velocity starts at zero, so that it is d after the first step. These are the formulas of PyTorch's
    /// `torch.optim.SGD` without dampening; the Nesterov form is that of Sutskever et al., "On the importance of
    /// initialization and momentum in deep learning", 2013, with the parameter read where the gradient is taken.
    ///
    /// Momentum moves every row, so under a gradient of selected rows it asks for the mode `lazy`.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Operand};
    /// let half = Attributes::new().with("mode", "exact").with("momentum", 0.5).with("nesterov", false);
    /// let out = ops::catalogue().parse("momentum", &half.with("weight_decay", 0.0))?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0]]),
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("param", array![[10.0, 10.0]]),
    ///     Operand::constant("velocity", array![[4.0, 0.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [8.0, 12.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, -4.0]); // the velocities
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Momentum = momentum {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        momentum: f64 => fraction,
        nesterov: bool,
        weight_decay: f64 => not_negative,
        /// Adds so much of the sign of `param` to the gradient; 0 without it.
        l1: f64 => or_zero,
        /// `weight_decay` and `l1` move `param` before the step, and leave the gradient alone; false without it.
        decoupled: bool = false,
        /// Multiplies `rate`; 1 without it.
        rate_factor: f64 => or_one,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), VELOCITY = velocity: one.updated().table() }
}

impl Momentum {
    fn decay(&self) -> Decay {
        Decay { l1: self.l1, weight_decay: self.weight_decay, decoupled: self.decoupled }
    }
}

impl Op for Momentum {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 2, self.storage, Some("momentum"))
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(op: &Momentum, run: &mut Forward<'_>) -> Result<()> {
            let rate = rule::rate(run, op.rate_factor)?;
            let (ahead, along) = if op.nesterov { (1.0, op.momentum) } else { (0.0, 1.0) };
            let roll = Roll {
                rate: T::from_f64(rate),
                momentum: T::from_f64(op.momentum),
                ahead: T::from_f64(ahead),
                along: T::from_f64(along),
            };
            apply(run, op.decay().before(rate, roll))
        }
        with_float!(run.dtype(rule::GRAD), T => forward::<T>(self, run))
    }

    fn samples() -> Result<Vec<Sample>> {
        let op = |mode| Momentum {
            mode,
            storage: StorageKind::Dense,
            momentum: 0.75,
            nesterov: true,
            weight_decay: 0.5,
            l1: 0.25,
            decoupled: true,
            rate_factor: 0.5,
        };
        rule::samples(|mode| op(mode).attributes(), &["param", "velocity"])
    }
}
