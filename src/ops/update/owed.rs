//! What rows owe: the moves that the dense rule would have made in updates in which they had no gradient.
//!
//! A row is settled up to an update, whose number stands beside it. When it is next read, all that it missed since is made up
//! for at once: what the missed updates did to any row that missed the same ones follows from their rates alone, and is found
//! by going back from the last of them, one recurrence for all gaps.
//!
//! Every row is settled after [`SWEEP`] updates at the latest, a part of the table in each, so that the rates of the last
//! [`KEPT`] are enough.

use super::engine::Rule;
use crate::kernels::{Float, View};

/// So many updates are remembered.
pub(in crate::ops) const KEPT: usize = 1 << 14;
/// What they are written in.
pub(crate) const HISTORY_SHAPE: [usize; 2] = [KEPT + 1, 2];
/// In so many updates every row is settled once.
pub(in crate::ops) const SWEEP: usize = 1 << 13;

/// One update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ops) struct Moment {
    /// Its learning rate.
    pub(in crate::ops) rate: f64,
    /// The number of its step, from 1.
    pub(in crate::ops) step: f64,
}

/// The last updates, as [`update_history`](super::history) wrote them.
#[derive(Clone, Copy)]
pub(in crate::ops) struct History<'a>(pub(in crate::ops) View<'a, f64>);

impl History<'_> {
    /// How many updates there were.
    pub(in crate::ops) fn count(&self) -> u64 {
        self.0.row(0)[0] as u64
    }

    /// Update number `update`, which is one of the last.
    pub(in crate::ops) fn at(&self, update: u64) -> Moment {
        let row = self.0.row(1 + (update % KEPT as u64) as usize);
        Moment { rate: row[0], step: row[1] }
    }
}

/// A rule whose moves can be made later. `FIELDS` are the parameter and the state.
pub(in crate::ops) trait Deferred<T: Float, const FIELDS: usize>: Copy + Send + Sync {
    /// What some updates without a gradient do to any row.
    type Moves: Copy + Send + Sync;
    /// The same for one row.
    type Payment: Rule<T, FIELDS>;

    /// What one update does.
    fn rule(&self, moment: Moment) -> impl Rule<T, FIELDS>;

    /// Of no update.
    fn none(&self) -> Self::Moves;

    /// Of one more, which was before the others.
    fn earlier(&self, moves: &Self::Moves, moment: Moment) -> Self::Moves;

    /// What remains of a parameter after one update, by decay alone.
    fn kept(&self, _moment: Moment) -> f64 {
        1.0
    }

    /// After so many updates without a gradient the state moves the parameter no more.
    fn horizon(&self) -> usize;

    /// Whether the moves are known well enough; if not, they are made one by one.
    fn is_known(&self, _moves: &Self::Moves) -> bool {
        true
    }

    /// How a row makes `moves`, of `gap` updates, and then shrinks to `kept` in `rest` updates more. Its step ignores the
    /// gradient.
    fn payment(&self, moves: &Self::Moves, gap: usize, rest: usize, kept: f64) -> Self::Payment;
}

/// What is owed after any gap, at one update; used again at the next.
pub(in crate::ops) struct Ledger<M> {
    /// By the number of missed updates, up to the last one.
    recent: Vec<M>,
    /// What remains of a parameter after so many updates, up to the last one.
    kept: Vec<f64>,
    /// Where a gap is longer than the horizon, what was missed within it, by the first update that was missed.
    first: Vec<Option<(u64, M)>>,
    count: u64,
}

impl<M> Default for Ledger<M> {
    fn default() -> Self {
        Self { recent: vec![], kept: vec![], first: vec![], count: 0 }
    }
}

impl<M: Copy + Send + Sync> Ledger<M> {
    /// For gaps of at most `most` updates.
    pub(in crate::ops) fn prepare<T: Float, const N: usize>(
        &mut self,
        rule: &impl Deferred<T, N, Moves = M>,
        history: History<'_>,
        most: usize,
    ) {
        self.count = history.count();
        let horizon = rule.horizon().min(KEPT);
        self.recent.clear();
        self.recent.push(rule.none());
        let mut moves = rule.none();
        for back in 1..=most.min(horizon) as u64 {
            moves = rule.earlier(&moves, history.at(self.count - back));
            self.recent.push(moves);
        }
        self.kept.clear();
        self.kept.push(1.0);
        let mut kept = 1.0;
        for back in 1..=most.saturating_sub(horizon) as u64 {
            kept *= rule.kept(history.at(self.count - back));
            self.kept.push(kept);
        }
    }

    /// Makes sure that [`Self::of`] knows a gap.
    pub(in crate::ops) fn learn<T: Float, const N: usize>(
        &mut self,
        rule: &impl Deferred<T, N, Moves = M>,
        history: History<'_>,
        gap: usize,
    ) {
        if gap < self.recent.len() {
            return;
        }
        if self.first.is_empty() {
            self.first.resize(KEPT, None);
        }
        let start = self.count - gap as u64;
        let place = &mut self.first[(start % KEPT as u64) as usize];
        if place.is_none_or(|(of, _)| of != start) {
            let within = (0..(self.recent.len() - 1) as u64).rev();
            let moves = within.fold(rule.none(), |m, k| rule.earlier(&m, history.at(start + k)));
            *place = Some((start, moves));
        }
    }

    /// What a row does that missed the last `gap` updates: its moves, of how many, how many after them, and what remains of
    /// the parameter in these.
    pub(in crate::ops) fn of(&self, gap: usize) -> (M, usize, usize, f64) {
        let horizon = self.recent.len() - 1;
        if gap <= horizon {
            return (self.recent[gap], gap, 0, 1.0);
        }
        let start = self.count - gap as u64;
        match self.first.get((start % KEPT as u64) as usize) {
            Some(&Some((of, moves))) if of == start => {
                let rest = gap - horizon;
                (moves, horizon, rest, self.kept[rest])
            }
            _ => unreachable!("a gap of {gap} that was not learnt"),
        }
    }
}

/// A weighted sum of 1 / (√v · c + ε) over many c that lie close together, as a function of v: by its moments, so that it is
/// one expansion around their mean instead of a term for each.
///
/// With weights w, W = Σ w, the mean a of c and μ_p = Σ w (c − a)^p / W, it is W / D · (1 + μ_2 q² − μ_3 q³ + μ_4 q⁴ − μ_5 q⁵)
/// with D = √v · a + ε and q = √v / D: Taylor's series around a, up to the fifth power.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::ops) struct Spread {
    weight: f64,
    mean: f64,
    /// μ_2 to μ_5.
    central: [f64; 4],
}

/// Deviations of more than so much of the mean are too many for five powers: then the sixth is no longer below 1e-8.
const CLOSE: f64 = 0.016;

impl Spread {
    /// All weights times `weight`, all c times `factor`.
    pub(in crate::ops) fn scaled(self, weight: f64, factor: f64) -> Self {
        let mut power = factor;
        let central = self.central.map(|moment| {
            power *= factor;
            moment * power
        });
        Self { weight: self.weight * weight, mean: self.mean * factor, central }
    }

    /// One term more. Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
    /// moments", 2008, for a set of one.
    pub(in crate::ops) fn with(self, weight: f64, c: f64) -> Self {
        let all = self.weight + weight;
        if self.weight == 0.0 || all == 0.0 {
            return Self { weight: all, mean: c, central: [0.0; 4] };
        }
        let (old, new) = (self.weight / all, weight / all);
        let delta = c - self.mean;
        // What the old ones and the new one lie from the new mean.
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

    /// Whether the expansion is good to 1e-8 of the sum.
    pub(in crate::ops) fn is_close(&self) -> bool {
        self.central[0] <= (CLOSE * self.mean).powi(2)
    }

    pub(in crate::ops) fn of<T: Float>(&self) -> SpreadOf<T> {
        SpreadOf {
            weight: T::from_f64(self.weight),
            mean: T::from_f64(self.mean),
            central: self.central.map(T::from_f64),
        }
    }
}

/// The same in the numbers of a parameter.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct SpreadOf<T> {
    weight: T,
    mean: T,
    central: [T; 4],
}

impl<T: Float> SpreadOf<T> {
    /// The sum for √v and ε; 0 where both are.
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
        // As Adam's: each new term is of an update before the others, which fall back by one.
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
