//! `adam`: steps along the mean of the gradients, in units of their spread.

use super::engine::{Rule, apply_deferred};
use super::owed::{Deferred, Moment, Spread, SpreadOf};
use super::rule::{self, RATE, SparseMode, dense_or_rows, fraction, not_negative};
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::program::contract::signature::{DENSE, ROWS};
use crate::program::{Facts, Forward, InferShape, LodEffect, Op, Owes, Sample};
use crate::tensor::StorageKind;
use crate::with_float;

#[derive(Clone, Copy)]
struct Moments<T> {
    /// What remains of the parameter after a decoupled decay.
    keep: T,
    /// A decay that is added to the gradient.
    decay: T,
    /// 1 − beta1.
    new1: T,
    beta2: T,
    /// 1 − beta2.
    new2: T,
    /// rate / (1 − beta1ᵗ).
    rate: T,
    /// 1 / √(1 − beta2ᵗ).
    spread: T,
    epsilon: T,
}

impl<T: Float> Rule<T, 3> for Moments<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], grad: T) -> [T; 3] {
        let grad = grad + self.decay * param;
        let moment1 = moment1 + self.new1 * (grad - moment1);
        let moment2 = self.beta2 * moment2 + self.new2 * (grad * grad);
        let scale = moment2.sqrt() * self.spread + self.epsilon;
        // No gradient was ever seen here; with an epsilon of 0 the quotient would be 0 / 0.
        let change = if scale == T::ZERO { T::ZERO } else { moment1 / scale };
        [self.keep * param - self.rate * change, moment1, moment2]
    }
}

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
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct Adam = adam {
        mode: SparseMode,
        /// How `param` and its state are stored: `dense`, as without it, or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
        epsilon: f64 => not_negative,
        weight_decay: f64 => not_negative,
        decoupled: bool,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), MOMENT1 = moment1: one.updated().table(), MOMENT2 = moment2: one.updated().table(), SETTLED = settled: optional.updated() }
}

/// What updates without a gradient do: moment1 and moment2 fall, and the parameter moves by moment1 times a sum over the
/// updates of w / (√moment2 · c + epsilon).
#[derive(Clone, Copy)]
pub(in crate::ops) struct Drift {
    spread: Spread,
    /// What decay leaves of the parameter.
    kept: f64,
}

/// The same for one row.
#[derive(Clone, Copy)]
pub(in crate::ops) struct DriftOf<T> {
    spread: SpreadOf<T>,
    kept: T,
    /// What remains of the parameter after the moves.
    rest: T,
    fall1: T,
    fall2: T,
    epsilon: T,
}

impl<T: Float> Rule<T, 3> for DriftOf<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], _: T) -> [T; 3] {
        let moved = moment1 * self.spread.sum(moment2.sqrt(), self.epsilon);
        [self.kept * param - self.rest * moved, self.fall1 * moment1, self.fall2 * moment2]
    }
}

impl<T: Float> Deferred<T, 3> for Adam {
    type Moves = Drift;
    type Payment = DriftOf<T>;

    fn rule(&self, Moment { rate, step }: Moment) -> impl Rule<T, 3> {
        let (keep, decay) = match self.decoupled {
            true => (1.0 - rate * self.weight_decay, 0.0),
            false => (1.0, self.weight_decay),
        };
        Moments {
            keep: T::from_f64(keep),
            decay: T::from_f64(decay),
            new1: T::from_f64(1.0 - self.beta1),
            beta2: T::from_f64(self.beta2),
            new2: T::from_f64(1.0 - self.beta2),
            rate: T::from_f64(rate / (1.0 - self.beta1.powf(step))),
            spread: T::from_f64(1.0 / (1.0 - self.beta2.powf(step)).sqrt()),
            epsilon: T::from_f64(self.epsilon),
        }
    }

    fn none(&self) -> Drift {
        Drift { spread: Spread::default(), kept: 1.0 }
    }

    fn earlier(&self, after: &Drift, Moment { rate, step }: Moment) -> Drift {
        let (beta1, root2) = (self.beta1, self.beta2.sqrt());
        // Updates after it find moments that have fallen once more.
        let weight = after.kept * beta1 * rate / (1.0 - beta1.powf(step));
        let c = root2 / (1.0 - self.beta2.powf(step)).sqrt();
        let spread = after.spread.scaled(beta1, root2).with(weight, c);
        let moment = Moment { rate, step };
        Drift { spread, kept: after.kept * Deferred::<T, 3>::kept(self, moment) }
    }

    fn kept(&self, moment: Moment) -> f64 {
        1.0 - moment.rate * self.weight_decay
    }

    fn horizon(&self) -> usize {
        // The first moment has fallen to 1e-18 of itself.
        const NOTHING: f64 = 1e-18;
        if self.beta1 == 0.0 { 1 } else { (NOTHING.ln() / self.beta1.ln()).ceil().max(1.0) as usize }
    }

    fn is_known(&self, moves: &Drift) -> bool {
        moves.spread.is_close()
    }

    fn payment(&self, moves: &Drift, gap: usize, rest: usize, kept: f64) -> DriftOf<T> {
        let fallen = |beta: f64| T::from_f64(beta.powf((gap + rest) as f64));
        DriftOf {
            spread: moves.spread.of(),
            kept: T::from_f64(moves.kept * kept),
            rest: T::from_f64(kept),
            fall1: fallen(self.beta1),
            fall2: fallen(self.beta2),
            epsilon: T::from_f64(self.epsilon),
        }
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
        match self.decoupled || self.weight_decay == 0.0 {
            true => Owes::Later,
            false => Owes::AtOnce("weight decay, which is added to the gradient (`AdamW` decouples it),"),
        }
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let rate = rule::scalar(run, RATE)?;
        with_float!(run.dtype(rule::GRAD), T => apply_deferred::<T, 3, _>(run, self, rate))
    }

    fn samples() -> Result<Vec<Sample>> {
        let (beta1, beta2, epsilon) = (0.75, 0.875, 1e-8);
        let (storage, weight_decay, decoupled) = (StorageKind::Dense, 0.5, true);
        let op = |mode| Adam { mode, storage, beta1, beta2, epsilon, weight_decay, decoupled };
        rule::samples(|mode| op(mode).attributes(), &["param", "moment1", "moment2"])
    }
}
