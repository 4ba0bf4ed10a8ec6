//! Missed updates of a row: the updates in which the row has no gradient, although the dense rule would move the row. Missed
//! updates are applied later, when the row is read.
//!
//! For each row, the state `settled` stores the number of updates that have been applied to the row. When the row is
//! next read, the row is settled: all its missed updates are applied at once. The effect of missed updates depends on
//! their learning rates, not on the row. Therefore, one recurrence, backwards from the last update, computes the effect
//! for every number of missed updates (gap).
//!
//! Each step also settles one of every [`SWEEP`] rows, so that no row misses more than about [`SWEEP`] updates.
//! Therefore, the history needs only the rates of the last [`KEPT`] updates.

use std::any::Any;
use std::ops::Range;

use super::rule::{ElementStep, KEPT};
use crate::kernels::{Float, View};
use crate::operator::Debt;

/// The maximum number of updates between two settlements of a row: each update settles one of every `SWEEP` rows.
pub(in crate::ops) const SWEEP: usize = 1 << 13;

/// The learning rate and the step number of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// The learning rate of the step, not yet multiplied by the rate factor of a parameter.
    pub rate: f64,
    /// The number of the training step of the update, counted from 1.
    pub step: f64,
}

/// The combined effect of several updates without a gradient on any row, as eight numbers; each update rule defines the meaning
/// of its numbers.
pub(crate) type Moves = [f64; 8];

/// The combined effect of all missed updates of a row.
#[derive(Debug, Clone, Copy)]
pub struct RowDebt<'a> {
    /// The combined effect of the first `updates` missed updates.
    pub(crate) moves: &'a Moves,
    /// The number of updates that `moves` combines.
    pub(crate) updates: usize,
    /// The number of missed updates after the first `updates`; in the last `rest` updates, the state no longer moves
    /// the parameter.
    pub(crate) rest: usize,
    /// The factor by which decay multiplies the parameter in the last `rest` updates.
    pub(crate) kept: f64,
}

/// The table with the rates and step numbers of the last [`KEPT`] updates, which the operator
/// [`update_history`](super::history) writes.
#[derive(Clone, Copy)]
pub(in crate::ops) struct History<'a>(pub(in crate::ops) View<'a, f64>);

impl History<'_> {
    /// Returns the number of updates so far, at most 2⁵³: f64 holds the returned number exactly, even if a damaged file has a
    /// larger number.
    pub(in crate::ops) fn count(&self) -> u64 {
        (self.0.row(0)[0] as u64).min(1 << 53)
    }

    /// Returns the mark of this history: a hash of the rates and step numbers of all its updates.
    fn mark(&self) -> f64 {
        self.0.row(0)[1]
    }

    /// Returns the rate and step number of update `update`, counted from 0, which must be one of the last [`KEPT`] updates.
    pub(in crate::ops) fn at(&self, update: u64) -> Moment {
        let row = self.0.row(1 + (update % KEPT as u64) as usize);
        Moment { rate: row[0], step: row[1] }
    }
}

/// Returns the mark of a history after one more update. A mark is a hash of all updates, a whole number. A ledger compares
/// marks, so that it does not use combined effects that were computed for another history.
pub(in crate::ops) fn marked(before: f64, Moment { rate, step }: Moment) -> f64 {
    // The multiplier is from the splitmix64 generator. The shift by 12 leaves 52 bits, which f64 holds exactly.
    let mix = |x: u64| (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mix(mix(before.to_bits() ^ rate.to_bits()) ^ step.to_bits()) >> 12) as f64
}

/// The methods of an [`ElementRule`](super::element::ElementRule) that a ledger calls, as an object-safe trait.
pub(in crate::ops) trait DeferredRule: Send + Sync {
    fn owes(&self) -> Debt;
    fn none(&self) -> Moves;
    fn earlier(&self, moves: &Moves, moment: Moment) -> Moves;
    fn kept(&self, moment: Moment) -> f64;
    fn horizon(&self) -> usize;
    fn is_known(&self, moves: &Moves) -> bool;
    fn rests(&self) -> bool;
    /// Returns whether `other` is this rule with equal settings, so that missed updates have equal effects.
    fn is(&self, other: &dyn Any) -> bool;
    /// Returns a copy of this rule, which [`Self::is`] compares with the rule of a later update.
    fn copied(&self) -> Box<dyn Any + Send>;
}

/// An upper bound for the number of parts of a [`Ledger`], with room for the growth of their list.
const PARTS: usize = 256;

/// The combined effect of the last n updates, for each possible gap n (number of missed updates of a row). The memory is used
/// again at the next update.
pub(in crate::ops) struct Ledger {
    /// At index n, the combined effect of the last n updates, for n up to the horizon of the rule.
    recent: Vec<Moves>,
    /// At index n, the factor by which weight decay multiplies a parameter over the last n updates.
    kept: Vec<f64>,
    /// For gaps longer than the horizon h: the index u of the first missed update, and the combined effect of the h updates
    /// from u on.
    first: Vec<(u64, Moves)>,
    /// At index u mod [`KEPT`]: one more than the position in `first` of the entry for u; 0 if there is none.
    places: Vec<u16>,
    /// The number of rows of the highest table of the rule, at most [`SWEEP`].
    height: usize,
    /// The index of the first update of each part; the parts are ranges that together cover the first [`KEPT`] updates.
    parts: Vec<u64>,
    /// The combined effect of the updates of each part. The outer `None` means that the effect is not computed yet. The
    /// inner `None` means that the effect is not accurate enough; the updates of the part are then made one by one.
    of_parts: Vec<Option<Option<Moves>>>,
    /// The number of updates of the history for which the ledger was computed, and the mark of this history.
    count: u64,
    mark: f64,
}

impl Default for Ledger {
    fn default() -> Self {
        // The number of updates in a part is small relative to the index of the part's first update, so that the bias
        // correction of the moments hardly changes within a part.
        let next = |at: &u64| Some(at + (at / 20).max(1)).filter(|&at| at <= KEPT as u64);
        let parts: Vec<u64> = std::iter::successors(Some(0), next).collect();
        debug_assert!(parts.len() <= PARTS, "{} parts", parts.len());
        let of_parts = vec![None; parts.len() - 1];
        let (recent, kept, first, places) = (vec![], vec![], vec![], vec![]);
        Self { recent, kept, first, places, height: 0, parts, of_parts, count: 0, mark: 0.0 }
    }
}

impl Ledger {
    /// Returns the maximum size in bytes of the ledger of a rule with a horizon of `horizon`, for a table of `height` rows.
    pub(in crate::ops) fn bytes(horizon: usize, height: usize) -> usize {
        let horizon = horizon.min(SWEEP);
        let starts = if (1..SWEEP).contains(&horizon) { 2 * height.min(SWEEP) } else { 0 };
        let grown =
            [grown::<Moves>(horizon + 1), grown::<f64>(SWEEP - horizon + 1), grown::<(u64, Moves)>(starts)];
        // A vector that grows exists twice, until its values are copied; only one grows at a time.
        let twice = grown.iter().max().map_or(0, |largest| largest / 2);
        let of_parts = PARTS * (size_of::<u64>() + size_of::<Option<Option<Moves>>>());
        grown.iter().sum::<usize>() + twice + KEPT * size_of::<u16>() + of_parts
    }

    /// Clears the combined effects, unless they were computed for this history at an earlier update.
    fn follow(&mut self, history: History<'_>) {
        let (before, count) = (self.count, history.count());
        let goes_on = before <= count
            && count - before <= KEPT as u64
            && (before..count).fold(self.mark, |mark, update| marked(mark, history.at(update)))
                == history.mark();
        if !goes_on {
            self.forget();
            self.of_parts.fill(None);
        }
        (self.count, self.mark) = (count, history.mark());
    }

    fn forget(&mut self) {
        self.first.clear();
        self.places.fill(0);
    }

    /// Returns the combined effect of the updates from `start` on, if `first` has it.
    fn since(&self, start: u64) -> Option<&Moves> {
        let index = *self.places.get((start % KEPT as u64) as usize)?;
        let (start_step, moves) = self.first.get(usize::from(index).checked_sub(1)?)?;
        (*start_step == start).then_some(moves)
    }

    /// Computes the combined effect of the last n updates, for every n up to `most`. The table has `height` rows.
    pub(in crate::ops) fn prepare(
        &mut self,
        rule: &dyn DeferredRule,
        history: History<'_>,
        (most, height): (usize, usize),
    ) {
        self.follow(history);
        self.height = self.height.max(height.min(SWEEP));
        // The rows of a table have at most as many first missed updates, so most further entries belong to no row any more.
        if self.first.len() > self.height {
            self.forget();
        }
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

    /// Computes the numbers that [`Self::of`] reads for the gap `gap`; returns whether the combined effect is accurate enough
    /// to replace the missed updates.
    pub(in crate::ops) fn learn(
        &mut self,
        rule: &dyn DeferredRule,
        history: History<'_>,
        gap: usize,
    ) -> bool {
        let start = self.count - gap as u64;
        // With a horizon of 0, the state never moves the parameter, so no updates are combined.
        if gap >= self.recent.len() && self.recent.len() > 1 && self.since(start).is_none() {
            let end = start + (self.recent.len() - 1) as u64;
            let entry = (start, moves_of(rule, history, start..end));
            self.places.resize(KEPT, 0);
            let index = &mut self.places[(start % KEPT as u64) as usize];
            match usize::from(*index) {
                0 => {
                    self.first.push(entry);
                    // `KEPT` is below the largest u16.
                    *index = self.first.len() as u16;
                }
                known => self.first[known - 1] = entry,
            }
        }
        if rule.is_known(self.of(gap).moves) {
            return true;
        }
        for part in self.parts.partition_point(|&at| at < start)..self.of_parts.len() {
            let updates = self.parts[part]..self.parts[part + 1];
            if updates.end > self.count {
                break;
            }
            // The loop begins with the first part at or after `start`, so all updates of the visited parts are still in
            // the history.
            if self.of_parts[part].is_none() {
                let moves = moves_of(rule, history, updates);
                self.of_parts[part] = Some(Some(moves).filter(|moves| rule.is_known(moves)));
            }
        }
        false
    }

    /// Returns the combined effect of several updates from `update` on, and the number of these updates. The last of
    /// these updates is before `end`. Returns `None` if no accurate effect is known.
    pub(in crate::ops) fn part(
        &self,
        rule: &dyn DeferredRule,
        update: u64,
        end: u64,
    ) -> Option<(Moves, usize)> {
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

    /// Returns the combined effect of the missed updates of a row that missed the last `gap` updates.
    pub(in crate::ops) fn of(&self, gap: usize) -> RowDebt<'_> {
        let horizon = self.recent.len() - 1;
        if gap <= horizon {
            return RowDebt { moves: &self.recent[gap], updates: gap, rest: 0, kept: 1.0 };
        }
        let rest = gap - horizon;
        let owed = |moves| RowDebt { moves, updates: horizon, rest, kept: self.kept[rest] };
        let start = self.count - gap as u64;
        match self.since(start) {
            _ if horizon == 0 => owed(&self.recent[0]),
            Some(moves) => owed(moves),
            None => unreachable!("a gap of {gap} that was not learnt"),
        }
    }
}

/// Returns the maximum size in bytes of a vector that has grown to `count` values.
pub(in crate::ops) fn grown<T>(count: usize) -> usize {
    count.checked_next_power_of_two().unwrap_or(count).saturating_mul(size_of::<T>())
}

/// Returns the combined effect of the updates in a range.
fn moves_of(rule: &dyn DeferredRule, history: History<'_>, updates: Range<u64>) -> Moves {
    updates.rev().fold(rule.none(), |moves, update| rule.earlier(&moves, history.at(update)))
}

/// A step that multiplies the parameter and each state by a constant factor.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Remains<T, const FIELDS: usize>([T; FIELDS]);

impl<T: Float, const FIELDS: usize> Remains<T, FIELDS> {
    /// Computes the factors for the missed updates in `owed`, if each missed update multiplies the states by the factors
    /// `fall`.
    pub(in crate::ops) fn of(fall: [f64; FIELDS], owed: &RowDebt<'_>) -> Self {
        let mut parts = [T::ZERO; FIELDS];
        for (part, fall) in parts.iter_mut().zip(fall) {
            *part = T::from_f64(fall.powi((owed.updates + owed.rest) as i32));
        }
        parts[0] = T::from_f64(owed.moves[0] * owed.kept);
        Self(parts)
    }
}

impl<T: Float, const FIELDS: usize> ElementStep<T, FIELDS> for Remains<T, FIELDS> {
    #[inline(always)]
    fn step(&self, mut fields: [T; FIELDS], _: T) -> [T; FIELDS] {
        for (field, part) in fields.iter_mut().zip(self.0) {
            *field = part * *field;
        }
        fields
    }
}

/// Returns momentum / divisor: the factor by which an update multiplies the quotient of two states, if the update
/// multiplies the first state by `momentum` and the second state by `divisor`. Returns `None` if the factor is 0.999 or
/// more, because then the quotient hardly falls.
pub(in crate::ops) fn falling_by(momentum: f64, divisor: f64) -> Option<f64> {
    Some(momentum / divisor).filter(|&by| by < 0.999)
}

/// Returns the number of updates after which a state has fallen to 1e-18 of its value, if each update multiplies the state by
/// `momentum`.
pub(in crate::ops) fn fading(momentum: f64) -> usize {
    const NOTHING: f64 = 1e-18;
    if momentum == 0.0 { 1 } else { (NOTHING.ln() / momentum.ln()).ceil().max(1.0) as usize }
}
