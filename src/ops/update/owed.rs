//! What rows owe: the moves that the dense rule would have made in updates in which they had no gradient.
//!
//! A row is settled up to an update, whose number stands beside it. When it is next read, all that it missed since is made up
//! for at once: what the missed updates did to any row that missed the same ones follows from their rates alone, and is found
//! by going back from the last of them, one recurrence for all gaps.
//!
//! Every row is settled after [`SWEEP`] updates at the latest, a part of the table in each, so that the rates of the last
//! [`KEPT`] are enough.

use std::ops::Range;

use super::decay::Decay;
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
    /// How many updates there were: a whole number that f64 has exactly, whatever a file says.
    pub(in crate::ops) fn count(&self) -> u64 {
        (self.0.row(0)[0] as u64).min(1 << 53)
    }

    /// What marks this history among all.
    fn mark(&self) -> f64 {
        self.0.row(0)[1]
    }

    /// Update number `update`, which is one of the last.
    pub(in crate::ops) fn at(&self, update: u64) -> Moment {
        let row = self.0.row(1 + (update % KEPT as u64) as usize);
        Moment { rate: row[0], step: row[1] }
    }
}

/// The mark of a history of mark `before` with an update more: whole numbers that follow from all updates, so that what was
/// found of one history is not used for another.
pub(in crate::ops) fn marked(before: f64, Moment { rate, step }: Moment) -> f64 {
    // The multiplier of the splitmix64 generator; 52 bits are whole in f64.
    let mix = |x: u64| (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mix(mix(before.to_bits() ^ rate.to_bits()) ^ step.to_bits()) >> 12) as f64
}

/// A rule whose moves can be made later. `FIELDS` are the parameter and the state.
/// Equal rules make equal moves: they follow from its settings alone.
pub(in crate::ops) trait Deferred<T: Float, const FIELDS: usize>:
    Clone + PartialEq + Send + Sync + 'static
{
    /// What some updates without a gradient do to any row.
    type Moves: Copy + Send + Sync + 'static;
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
    /// Where each part of the first updates starts.
    parts: Vec<u64>,
    /// What the updates of a part do, in the order of the parts; the inner `None` where they are made one by one.
    of_parts: Vec<Option<Option<M>>>,
    /// How many updates there were, and what marked them.
    count: u64,
    mark: f64,
}

impl<M: Clone> Default for Ledger<M> {
    fn default() -> Self {
        // A part is so short that what corrects the moments for their start hardly changes in it.
        let next = |at: &u64| Some(at + (at / 20).max(1)).filter(|&at| at <= KEPT as u64);
        let parts: Vec<u64> = std::iter::successors(Some(0), next).collect();
        let of_parts = vec![None; parts.len() - 1];
        Self { recent: vec![], kept: vec![], first: vec![], parts, of_parts, count: 0, mark: 0.0 }
    }
}

impl<M: Copy + Send + Sync> Ledger<M> {
    /// Forgets what was found of another history than this one as it was before.
    fn follow(&mut self, history: History<'_>) {
        let (before, count) = (self.count, history.count());
        let goes_on = before <= count
            && count - before <= KEPT as u64
            && (before..count).fold(self.mark, |mark, update| marked(mark, history.at(update)))
                == history.mark();
        if !goes_on {
            self.first.clear();
            self.of_parts.fill(None);
        }
        (self.count, self.mark) = (count, history.mark());
    }

    /// For gaps of at most `most` updates.
    pub(in crate::ops) fn prepare<T: Float, const N: usize>(
        &mut self,
        rule: &impl Deferred<T, N, Moves = M>,
        history: History<'_>,
        most: usize,
    ) {
        self.follow(history);
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
        let start = self.count - gap as u64;
        if gap >= self.recent.len() {
            if self.first.is_empty() {
                self.first.resize(KEPT, None);
            }
            let place = &mut self.first[(start % KEPT as u64) as usize];
            if place.is_none_or(|(of, _)| of != start) {
                let end = start + (self.recent.len() - 1) as u64;
                *place = Some((start, moves_of(rule, history, start..end)));
            }
        }
        if rule.is_known(&self.of(gap).0) {
            return;
        }
        for part in self.parts.partition_point(|&at| at < start)..self.of_parts.len() {
            let updates = self.parts[part]..self.parts[part + 1];
            if updates.end > self.count {
                break;
            }
            // Those whose updates are no longer remembered are asked for no more.
            if self.of_parts[part].is_none() {
                let moves = moves_of(rule, history, updates);
                self.of_parts[part] = Some(Some(moves).filter(|moves| rule.is_known(moves)));
            }
        }
    }

    /// All that is known at once of the updates from one on, where they end at `end`: the moves, and of how many.
    pub(in crate::ops) fn part<T: Float, const N: usize>(
        &self,
        rule: &impl Deferred<T, N, Moves = M>,
        update: u64,
        end: u64,
    ) -> Option<(M, usize)> {
        let part = self.parts.binary_search(&update).ok()?;
        let left = (self.count - update) as usize;
        let last = self.recent.get(left).filter(|moves| end == self.count && rule.is_known(moves));
        if let Some(&moves) = last {
            return Some((moves, left));
        }
        let next = *self.parts.get(part + 1).filter(|&&next| next <= end)?;
        let moves = self.of_parts[part].flatten()?;
        Some((moves, (next - update) as usize))
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

/// What a range of updates does.
fn moves_of<T: Float, const N: usize, R: Deferred<T, N>>(
    rule: &R,
    history: History<'_>,
    updates: Range<u64>,
) -> R::Moves {
    updates.rev().fold(rule.none(), |moves, update| rule.earlier(&moves, history.at(update)))
}

/// A rule with a [`Decay`] beside it, at a rate of its own.
pub(in crate::ops) trait Decays {
    fn decay(&self) -> Decay;

    /// The rate of an update for its parameter.
    fn rate(&self, moment: Moment) -> f64;
}

/// Rules whose attributes are `l1`, `weight_decay`, `decoupled` and `rate_factor`.
macro_rules! decays {
    ($($rule:ident),+) => {$(
        impl Decays for $rule {
            fn decay(&self) -> $crate::ops::update::decay::Decay {
                let (l1, weight_decay, decoupled) = (self.l1, self.weight_decay, self.decoupled);
                $crate::ops::update::decay::Decay { l1, weight_decay, decoupled }
            }

            fn rate(&self, moment: $crate::ops::update::owed::Moment) -> f64 {
                moment.rate * self.rate_factor
            }
        }
    )+};
}
pub(in crate::ops) use decays;

/// A rule whose states fall by themselves, and move the parameter no more after `horizon` updates.
pub(in crate::ops) trait Falls<T: Float, const FIELDS: usize>:
    Decays + Clone + PartialEq + Send + Sync + 'static
{
    /// What one update does.
    fn rule(&self, moment: Moment) -> impl Rule<T, FIELDS>;

    /// What one update leaves of each state, by its slot; that of the parameter, which comes first, is not asked for.
    fn fall(&self) -> [f64; FIELDS];

    /// After so many updates without a gradient the state moves the parameter no more.
    fn horizon(&self) -> usize {
        0
    }
}

/// Of updates by such a rule those within the horizon are made one by one, the others at once.
#[derive(Clone, PartialEq)]
pub(in crate::ops) struct Falling<R>(pub(in crate::ops) R);

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

impl<T: Float, R: Falls<T, FIELDS>, const FIELDS: usize> Deferred<T, FIELDS> for Falling<R> {
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
        kept * Deferred::<T, FIELDS>::kept(self, moment)
    }

    fn kept(&self, moment: Moment) -> f64 {
        self.0.decay().kept(self.0.rate(moment))
    }

    fn horizon(&self) -> usize {
        self.0.horizon()
    }

    fn is_known(&self, _: &f64) -> bool {
        self.0.horizon() == 0
    }

    fn payment(&self, kept: &f64, gap: usize, rest: usize, after: f64) -> Remains<T, FIELDS> {
        let mut parts = self.0.fall().map(|fall| fall.powi((gap + rest) as i32));
        parts[0] = kept * after;
        Remains(parts.map(T::from_f64))
    }
}

/// By what the quotient of a momentum and what divides it falls in an update without a gradient, where the divisor falls to `divisor`
/// of itself; `None` if that is not well below 1, as then the quotient hardly falls at all.
pub(in crate::ops) fn falling_by(momentum: f64, divisor: f64) -> Option<f64> {
    Some(momentum / divisor).filter(|&by| by < 0.999)
}

/// After so many updates a momentum has fallen to 1e-18 of itself.
pub(in crate::ops) fn fading(momentum: f64) -> usize {
    const NOTHING: f64 = 1e-18;
    if momentum == 0.0 { 1 } else { (NOTHING.ln() / momentum.ln()).ceil().max(1.0) as usize }
}
