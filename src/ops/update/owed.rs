//! What rows owe: the moves that the dense rule would have made in updates in which they had no gradient.
//!
//! A row is settled up to an update, whose number stands beside it. When it is next read, all that it missed since is made up
//! for at once: what the missed updates did to any row that missed the same ones follows from their rates alone, and is found
//! by going back from the last of them, one recurrence for all gaps.
//!
//! Every row is settled after [`SWEEP`] updates at the latest, a part of the table in each, so that the rates of the last
//! [`KEPT`] are enough.

use super::rule::{KEPT, Rule};
use crate::kernels::{Float, View};

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
pub(in crate::ops) trait Deferred<T: Float, const FIELDS: usize>: Send + Sync {
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

/// A rule whose states fall by themselves, and move the parameter no more after `horizon` updates.
pub(in crate::ops) trait Falls<T: Float, const FIELDS: usize>: Send + Sync {
    /// What one update does.
    fn rule(&self, moment: Moment) -> impl Rule<T, FIELDS>;

    /// What remains of a parameter after one update, by decay alone.
    fn kept(&self, moment: Moment) -> f64;

    /// What one update leaves of each state, by its slot; that of the parameter, which comes first, is not asked for.
    fn fall(&self) -> [f64; FIELDS];

    /// After so many updates without a gradient the state moves the parameter no more.
    fn horizon(&self) -> usize {
        0
    }
}

/// Of updates by such a rule those within the horizon are made one by one, the others at once.
pub(in crate::ops) struct Falling<'a, R>(pub(in crate::ops) &'a R);

/// What remains of a parameter and of its state.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Remains<T, const FIELDS: usize>([T; FIELDS]);

impl<T: Float, const FIELDS: usize> Rule<T, FIELDS> for Remains<T, FIELDS> {
    #[inline(always)]
    fn step(&self, mut fields: [T; FIELDS], _: T) -> [T; FIELDS] {
        for (field, part) in fields.iter_mut().zip(self.0) {
            *field = part * *field;
        }
        fields
    }
}

impl<T: Float, R: Falls<T, FIELDS>, const FIELDS: usize> Deferred<T, FIELDS> for Falling<'_, R> {
    /// What is left of the parameter.
    type Moves = f64;
    type Payment = Remains<T, FIELDS>;

    fn rule(&self, moment: Moment) -> impl Rule<T, FIELDS> {
        self.0.rule(moment)
    }

    fn none(&self) -> f64 {
        1.0
    }

    fn earlier(&self, kept: &f64, moment: Moment) -> f64 {
        kept * self.0.kept(moment)
    }

    fn kept(&self, moment: Moment) -> f64 {
        self.0.kept(moment)
    }

    fn horizon(&self) -> usize {
        self.0.horizon()
    }

    fn is_known(&self, _: &f64) -> bool {
        self.0.horizon() == 0
    }

    fn payment(&self, kept: &f64, gap: usize, rest: usize, after: f64) -> Remains<T, FIELDS> {
        let mut parts = self.0.fall().map(|fall| fall.powf((gap + rest) as f64));
        parts[0] = kept * after;
        Remains(parts.map(T::from_f64))
    }
}

/// After so many updates a momentum has fallen to 1e-18 of itself.
pub(in crate::ops) fn fading(momentum: f64) -> usize {
    const NOTHING: f64 = 1e-18;
    if momentum == 0.0 { 1 } else { (NOTHING.ln() / momentum.ln()).ceil().max(1.0) as usize }
}
