//! The effect of missed updates on a row under Adam: even without a gradient, each update multiplies the moments by the betas,
//! and the first moment moves the parameter.

use super::owed::{Moves, RowDebt};
use super::rule::ElementStep;
use crate::kernels::Float;

/// The combined effect of several Adam updates without a gradient on any row: the parameter moves by moment1 times a sum of w /
/// (√moment2 · c + epsilon), with a weight w and a value c per update.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Drift {
    spread: Spread,
    /// The factor by which weight decay multiplies the parameter over all the combined updates.
    kept: f64,
    /// Whether weight decay changed the sign of the parameter in any of the updates (rate · weight_decay above 1).
    turned: bool,
}

impl From<&Moves> for Drift {
    fn from(&[kept, turned, weight, mean, ref central @ ..]: &Moves) -> Self {
        Self { spread: Spread { weight, mean, central: *central }, kept, turned: turned != 0.0 }
    }
}

impl From<Drift> for Moves {
    fn from(
        Drift { spread: Spread { weight, mean, central: [m2, m3, m4, m5] }, kept, turned }: Drift,
    ) -> Self {
        [kept, f64::from(turned), weight, mean, m2, m3, m4, m5]
    }
}

/// The step that replaces all missed updates of one row under Adam.
#[derive(Clone, Copy)]
pub(in crate::ops) struct RowDrift<T> {
    spread: TypedSpread<T>,
    kept: T,
    /// The factor by which weight decay multiplies the parameter in the updates after the combined moves.
    rest: T,
    fall1: T,
    fall2: T,
    epsilon: T,
}

impl<T: Float> ElementStep<T, 3> for RowDrift<T> {
    #[inline(always)]
    fn step(&self, [param, moment1, moment2]: [T; 3], _: T) -> [T; 3] {
        let moved = moment1 * self.spread.sum(moment2.sqrt(), self.epsilon);
        [self.kept * param - self.rest * moved, self.fall1 * moment1, self.fall2 * moment2]
    }
}

pub(in crate::ops) fn power(beta: f64, step: f64) -> f64 {
    // The cast to i32 saturates only for steps at which the power is 0 anyway.
    beta.powi(step as i32)
}

impl Drift {
    /// Adds one update that precedes all combined updates. The added update, of step t = `step` = 1, 2, …, first multiplies the
    /// parameter by `kept` and then moves the parameter by `rate` · moment1 / (√(moment2 / (1 − beta2ᵗ)) + epsilon).
    pub(in crate::ops) fn earlier(&self, [beta1, beta2]: [f64; 2], step: f64, rate: f64, kept: f64) -> Self {
        let root2 = beta2.sqrt();
        let c = root2 / (1.0 - power(beta2, step)).sqrt();
        // In all later updates, the moments have been multiplied by the betas once more.
        let spread = self.spread.scaled(beta1, root2).with(self.kept * beta1 * rate, c);
        Self { spread, kept: self.kept * kept, turned: self.turned || kept < 0.0 }
    }

    /// Returns whether the combined step is accurate enough for any moments of a row.
    pub(in crate::ops) fn is_known(&self) -> bool {
        // If the weights w have both signs, the sum of the weights may be near 0 although the sum of the terms is not.
        !self.turned && self.spread.is_close()
    }

    /// Computes the step for a row that missed the updates in `owed`; each missed update multiplies moment1 by beta1 and
    /// moment2 by beta2.
    pub(in crate::ops) fn of<T: Float>(
        owed: &RowDebt<'_>,
        [beta1, beta2]: [f64; 2],
        epsilon: f64,
    ) -> RowDrift<T> {
        let Self { spread, kept, .. } = Self::from(owed.moves);
        let fallen = |beta: f64| T::from_f64(beta.powi((owed.updates + owed.rest) as i32));
        RowDrift {
            spread: spread.of(),
            kept: T::from_f64(kept * owed.kept),
            rest: T::from_f64(owed.kept),
            fall1: fallen(beta1),
            fall2: fallen(beta2),
            epsilon: T::from_f64(epsilon),
        }
    }
}

/// A weighted sum of 1 / (√v · c + ε) over many close values c, as a function of v. The sum is stored as the central moments of
/// the values c: one expansion around the mean of c instead of one term per value.
///
/// Let w be the weights, W = Σ w, a the weighted mean of the values c, and μ_p = Σ w (c − a)^p / W. The sum is then W /
/// D · (1 + μ_2 q² − μ_3 q³ + μ_4 q⁴ − μ_5 q⁵), where D = √v · a + ε and q = √v / D. This formula is the Taylor series
/// around c = a, up to the fifth power.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::ops) struct Spread {
    weight: f64,
    mean: f64,
    /// The central moments μ_2 to μ_5 of the values c.
    central: [f64; 4],
}

/// The maximum standard deviation of the values c, relative to their mean, for which the expansion is accurate: above
/// this maximum, the term of the sixth power, which the expansion leaves out, may exceed 1e-8.
const CLOSE: f64 = 0.016;

impl Spread {
    /// Multiplies all weights w by `weight` and all values c by `factor`.
    pub(in crate::ops) fn scaled(self, weight: f64, factor: f64) -> Self {
        let mut power = factor;
        let central = self.central.map(|moment| {
            power *= factor;
            moment * power
        });
        Self { weight: self.weight * weight, mean: self.mean * factor, central }
    }

    /// Adds a term with value `c` and weight `weight`, as in Pébay, "Formulas for robust, one-pass parallel computation of
    /// covariances and arbitrary-order statistical moments", 2008, for a set with one value.
    pub(in crate::ops) fn with(self, weight: f64, c: f64) -> Self {
        let all = self.weight + weight;
        if self.weight == 0.0 || all == 0.0 {
            return Self { weight: all, mean: c, central: [0.0; 4] };
        }
        let (old, new) = (self.weight / all, weight / all);
        let delta = c - self.mean;
        // The distances of the old mean and of the new value c from the new mean.
        let (back, ahead) = (-new * delta, old * delta);
        let [m2, m3, m4, m5] = self.central;
        let (b2, a2) = (back * back, ahead * ahead);
        let central = [
            old * (m2 + b2) + new * a2,
            old * (m3 + 3.0 * m2 * back + b2 * back) + new * a2 * ahead,
            old * (m4 + 4.0 * m3 * back + 6.0 * m2 * b2 + b2 * b2) + new * a2 * a2,
            old * (m5 + 5.0 * m4 * back + 10.0 * m3 * b2 + 10.0 * m2 * b2 * back + b2 * b2 * back)
                + new * a2 * a2 * ahead,
        ];
        Self { weight: all, mean: self.mean + new * delta, central }
    }

    /// Returns whether the values c are so close that the relative error of the expansion is at most 1e-8.
    pub(in crate::ops) fn is_close(&self) -> bool {
        self.central[0] <= (CLOSE * self.mean).powi(2)
    }

    pub(in crate::ops) fn of<T: Float>(&self) -> TypedSpread<T> {
        TypedSpread {
            weight: T::from_f64(self.weight),
            mean: T::from_f64(self.mean),
            central: self.central.map(T::from_f64),
        }
    }
}

/// The expansion of a [`Spread`], in the float type of the parameter.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct TypedSpread<T> {
    weight: T,
    mean: T,
    central: [T; 4],
}

impl<T: Float> TypedSpread<T> {
    /// Returns the sum for `root` = √v and `epsilon` = ε; 0 if √v and ε are both 0.
    #[inline(always)]
    pub(in crate::ops) fn sum(&self, root: T, epsilon: T) -> T {
        let scale = root * self.mean + epsilon;
        if scale == T::ZERO {
            return T::ZERO;
        }
        let q = root / scale;
        let [m2, m3, m4, m5] = self.central;
        self.weight / scale * (T::ONE + q * q * (m2 - q * (m3 - q * (m4 - q * m5))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expansion_is_the_sum_of_its_terms() {
        let (mut spread, mut terms) = (Spread::default(), vec![]);
        // Each new term belongs to an Adam update before the updates of all other terms, so the moments in the other
        // terms are multiplied by the betas once more.
        for k in 0..400u32 {
            let step = f64::from(3000 - k);
            let (fall, slow) = (0.9, 0.999f64.sqrt());
            terms.iter_mut().for_each(|(w, c): &mut (f64, f64)| (*w, *c) = (*w * fall, *c * slow));
            let term = (0.01 * fall * (1.0 + f64::from(k % 7)), slow / (1.0 - 0.999f64.powf(step)).sqrt());
            terms.push(term);
            spread = spread.scaled(fall, slow).with(term.0, term.1);
        }
        assert!(spread.is_close());
        for (root, epsilon) in [(0.0, 1e-8), (1e-9, 1e-8), (1e-4, 1e-8), (1.0, 1e-8), (30.0, 0.0), (0.0, 0.0)]
        {
            let sum: f64 =
                terms.iter().map(|(w, c)| w / (root * c + epsilon)).filter(|x| x.is_finite()).sum();
            let found = spread.of::<f64>().sum(root, epsilon);
            assert!((found - sum).abs() <= 1e-9 * sum.abs(), "{found} is not {sum} at {root}, {epsilon}");
        }
    }

    #[test]
    fn what_lies_far_apart_is_told() {
        assert!(!Spread::default().with(1.0, 1.0).with(1.0, 1.5).is_close());
        assert!(Spread::default().with(0.0, 3.0).with(0.0, 1.0).is_close());
    }
}
