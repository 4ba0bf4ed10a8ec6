//! The counts of a batch, on which the sizes of a run's memory depend.

use arrayvec::ArrayVec;

use crate::executor::plan::{Needs, Quantity};
use crate::executor::run::frame::Frame;
use crate::lod::Lod;
use crate::operator::LevelId;
use crate::operator::extent::MAX_LEVELS;
use crate::operator::levels::LevelTable;

/// The counts of a batch for one compiled program: see [`Executor::counts`](crate::executor::Executor::counts).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowCounts {
    /// For each of the plan's quantities, its value.
    pub(crate) values: Vec<usize>,
    /// After a run, the bytes of each pool number; empty before the run.
    pub(crate) pools: Vec<usize>,
    pub(crate) known: Certainty,
}

/// How far the counts of a batch are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Certainty {
    /// Every count is exact.
    #[default]
    Exactly,
    /// Some counts are upper bounds.
    AtMost,
    /// Some counts have no known bound, and are 0.
    Partly,
}

impl RowCounts {
    /// Returns whether every count is exact. Otherwise some sizes depend on values that only the run computes, such as
    /// the rows that `sequence_erase` keeps, and some counts are upper bounds or unknown.
    pub fn is_exact(&self) -> bool {
        self.known == Certainty::Exactly
    }

    /// Returns whether every count is exact or an upper bound. Otherwise an operator makes sequences from values without a
    /// declared bound ([`Op::most_rows`](crate::op::Op::most_rows)), and these sequences are not counted.
    pub fn is_bounded(&self) -> bool {
        self.known <= Certainty::AtMost
    }
}

/// The LoDs of a batch, from which counts are computed.
pub(crate) struct CountSource<'a> {
    pub(crate) batch: usize,
    pub(crate) levels: &'a LevelTable,
    /// The frames of a run that has ended; empty before the run.
    pub(crate) frames: &'a [Frame],
    /// For each variable that is a sparse feed, the number of its entries or rows.
    pub(crate) fed: &'a [usize],
}

impl CountSource<'_> {
    /// Writes the value of each quantity of a plan to `values`. If only the run knows the value, writes an upper bound,
    /// or 0 if there is no bound. Returns how far the values are known.
    pub(crate) fn fill(&self, needs: &Needs, values: &mut Vec<usize>) -> Certainty {
        let mut known = Certainty::Exactly;
        values.clear();
        values.extend(needs.quantities.iter().map(|quantity| self.count(quantity, needs, &mut known)));
        known
    }

    /// Writes the value of each quantity to `values`; the value is 0 if only the run will know it.
    pub(crate) fn fill_exactly(&self, needs: &Needs, values: &mut Vec<usize>) {
        values.clear();
        values.extend(needs.quantities.iter().map(|quantity| self.value(quantity).unwrap_or(0)));
    }

    /// Returns the value of a quantity, or an upper bound (0 without a bound). If the result is not exact, lowers the
    /// certainty in `known`.
    fn count(&self, quantity: &Quantity, needs: &Needs, known: &mut Certainty) -> usize {
        if let Some(value) = self.value(quantity) {
            // The plan does not show which of the two quantities the calls have, so the larger one is an upper bound.
            if let Quantity::Larger(two) = quantity
                && self.value(&two[0]) != self.value(&two[1])
            {
                *known = (*known).max(Certainty::AtMost);
            }
            return value;
        }
        *known = (*known).max(Certainty::AtMost);
        let mut sum = |terms: &[(Quantity, usize)]| {
            let terms = terms
                .iter()
                .map(|(quantities, factor)| self.count(quantities, needs, known).saturating_mul(*factor));
            terms.fold(0, usize::saturating_add)
        };
        let bound = |level: LevelId| needs.bounds.iter().find(|bound| bound.level == level);
        let rows = |level: LevelId| (Quantity::Rows(level), 1);
        let bounded = match quantity {
            Quantity::Rows(level) | Quantity::Made(level) | Quantity::LargestMade(level) => {
                bound(*level).map(|bound| sum(&bound.rows))
            }
            Quantity::Longest(level) => bound(*level).map(|bound| sum(&bound.longest)),
            Quantity::Repeated { over, rows: levels } => levels.last().map(|&last| {
                let longest = sum(&[(Quantity::Longest(*over), 1)]);
                sum(&[rows(last)]).saturating_mul(longest)
            }),
            Quantity::LargestStep { rows: levels, .. } => levels.last().map(|&last| sum(&[rows(last)])),
            Quantity::Larger(two) => {
                let [a, b] = &**two;
                Some(self.count(a, needs, known).max(self.count(b, needs, known)))
            }
            Quantity::Visits { most, .. } => {
                let [a, b] = &**most;
                Some(self.count(a, needs, known).saturating_mul(self.count(b, needs, known)))
            }
            Quantity::One | Quantity::Batch | Quantity::Fed(_) => None,
        };
        bounded.unwrap_or_else(|| {
            *known = Certainty::Partly;
            0
        })
    }

    /// Returns the value of a quantity; `None` if only a run knows the value.
    fn value(&self, quantity: &Quantity) -> Option<usize> {
        Some(match quantity {
            Quantity::One => 1,
            Quantity::Batch => self.batch,
            Quantity::Rows(level) => self.levels.get(*level)?.rows(),
            Quantity::Longest(level) => {
                self.levels.get(*level)?.offsets().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
            }
            Quantity::Repeated { over, rows } => {
                let over = self.levels.get(*over)?.offsets();
                let lods = self.chain(rows)?;
                let rows = |i: usize| first_row(&lods, i + 1) - first_row(&lods, i);
                over.windows(2).enumerate().map(|(i, w)| (w[1] - w[0]).saturating_mul(rows(i))).sum()
            }
            Quantity::LargestStep { over, rows } => {
                let over = self.levels.get(*over)?.offsets();
                let lods = self.chain(rows)?;
                let steps = over.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
                // The steps of a reversed loop have other rows. The larger of the two results is a bound for both
                // directions.
                let largest = |reverse: bool| {
                    let rows = |t: usize| {
                        let entries = over.windows(2).filter(|w| w[1] - w[0] > t);
                        let entries = entries.map(|w| if reverse { w[1] - 1 - t } else { w[0] + t });
                        entries
                            .map(|entry| first_row(&lods, entry + 1) - first_row(&lods, entry))
                            .sum::<usize>()
                    };
                    (0..steps).map(rows).max().unwrap_or(0)
                };
                largest(false).max(largest(true))
            }
            Quantity::Larger(two) => self.value(&two[0])?.max(self.value(&two[1])?),
            Quantity::Fed(var) => self.fed.get(var.0 as usize).copied().unwrap_or(0),
            Quantity::Made(level) | Quantity::Visits { level, .. } => {
                self.frames.iter().find_map(|frame| frame.rows_of_all_visits(*level))?
            }
            Quantity::LargestMade(level) => {
                self.frames.iter().find_map(|frame| frame.largest_made(*level))?
            }
        })
    }

    fn chain(&self, levels: &[LevelId]) -> Option<ArrayVec<&Lod, MAX_LEVELS>> {
        levels.iter().map(|&level| self.levels.get(level).map(|lod| &**lod)).collect()
    }
}

/// Returns the first row of the sequence with number `at` of the top level of `lods`.
fn first_row(lods: &[&Lod], at: usize) -> usize {
    lods.iter().fold(at, |at, lod| lod.offsets()[at])
}
