//! `sgd` and `momentum`: stochastic gradient descent.

use super::decay::Decay;
use super::engine::apply_deferred;
use super::owed::{Decays, Deferred, Falling, Falls, Moment, decays};
use super::rule::{self, Rule, SparseMode, dense_or_rows, fraction, not_negative, or_one, or_zero};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
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

decays!(Sgd, Momentum);

operator! {
    /// Stochastic gradient descent: param −= rate · (grad + weight_decay · param).
    ///
    /// `l1` and `decoupled` are those of every rule that decays: with p = param, the gradient gets weight_decay · p + l1 ·
    /// sign(p); where they are `decoupled`, first p ← (1 − rate · weight_decay) · p, and p goes towards 0 by rate · l1, no
    /// further.
    ///
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe their weight decay until they are
    /// read; L1 cannot wait.
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
    #[derive(Clone, Copy, PartialEq)]
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
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl Op for Sgd {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 1, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        // In the gradient it is what it is beside it.
        Decay { decoupled: true, ..self.decay() }.owes(Owes::Nothing)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 1, _>(run, &Falling(*self)))
    }

    #[cfg(feature = "testing")]
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

impl<T: Float> Falls<T, 1> for Sgd {
    fn rule(&self, moment: Moment) -> impl Rule<T, 1> {
        let rate = moment.rate * self.rate_factor;
        self.decay().before(rate, Descend { rate: T::from_f64(rate) })
    }

    fn fall(&self) -> [f64; 1] {
        [1.0]
    }
}

/// What updates without a gradient make of a parameter and its velocity: a linear map of the two.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Coast<T> {
    param: [T; 2],
    velocity: [T; 2],
}

impl<T: Float> Rule<T, 2> for Coast<T> {
    #[inline(always)]
    fn step(&self, [param, velocity]: [T; 2], _: T) -> [T; 2] {
        [
            self.param[0] * param + self.param[1] * velocity,
            self.velocity[0] * param + self.velocity[1] * velocity,
        ]
    }
}

impl<T: Float> Deferred<T, 2> for Momentum {
    type Moves = Coast<f64>;
    type Payment = Coast<T>;

    fn rule(&self, moment: Moment) -> impl Rule<T, 2> {
        let (rate, (ahead, along)) = (moment.rate * self.rate_factor, self.parts());
        let [ahead, along, momentum] = [ahead, along, self.momentum].map(T::from_f64);
        self.decay().before(rate, Roll { rate: T::from_f64(rate), momentum, ahead, along })
    }

    fn none(&self) -> Coast<f64> {
        Coast { param: [1.0, 0.0], velocity: [0.0, 1.0] }
    }

    fn earlier(&self, after: &Coast<f64>, moment: Moment) -> Coast<f64> {
        let ((ahead, along), momentum) = (self.parts(), self.momentum);
        let rate = moment.rate * self.rate_factor;
        let (keep, decay) = match self.decoupled {
            true => (self.decay().kept(rate), 0.0),
            false => (1.0, self.weight_decay),
        };
        // Of a parameter of 1 without velocity, and of a velocity of 1 alone.
        let first = [[keep - rate * (ahead + along) * decay, decay], [-rate * along * momentum, momentum]];
        let then = |of: [f64; 2]| first.map(|[param, velocity]| of[0] * param + of[1] * velocity);
        Coast { param: then(after.param), velocity: then(after.velocity) }
    }

    fn horizon(&self) -> usize {
        usize::MAX
    }

    fn payment(&self, moves: &Coast<f64>, _: usize, _: usize, _: f64) -> Coast<T> {
        Coast { param: moves.param.map(T::from_f64), velocity: moves.velocity.map(T::from_f64) }
    }
}

impl Momentum {
    /// How much of a move is ahead of the velocity, and along it.
    fn parts(&self) -> (f64, f64) {
        if self.nesterov { (1.0, self.momentum) } else { (0.0, 1.0) }
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
    /// Under a gradient of selected rows in the mode `exact`, rows without a gradient owe their moves until they are read; in the
    /// mode `lazy` they and their velocity stay.
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
    #[derive(Clone, Copy, PartialEq)]
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
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), VELOCITY = velocity: one.updated().table(), SETTLED = settled: optional.updated() }
}

impl Op for Momentum {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 2, self.storage, self.owes())
    }

    fn owes(&self) -> Owes {
        Decay { decoupled: true, ..self.decay() }.owes(Owes::Later)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 2, _>(run, self))
    }

    #[cfg(feature = "testing")]
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
