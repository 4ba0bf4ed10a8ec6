//! The counts of a batch, on which the sizes of a run's memory depend.

use arrayvec::ArrayVec;

use crate::executor::plan::{Needs, Quantity};
use crate::executor::run::frame::Frame;
use crate::lod::Lod;
use crate::operator::LevelId;
use crate::operator::extent::MAX_LEVELS;
use crate::operator::levels::LevelTable;

/// The counts of a batch for one compiled program: see [`Executor::counts`](crate::executor::Executor::counts).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCounts {
    /// For each of the plan's quantities, its value.
    pub(crate) values: Vec<usize>,
    /// Whether every value is exact; else some are upper bounds.
    pub(crate) exact: bool,
}

impl RowCounts {
    /// Returns whether every count is exact. Otherwise some sizes depend on values that only the run computes, such as the rows
    /// that `sequence_erase` keeps.
    pub fn is_exact(&self) -> bool {
        self.exact
    }
}

/// The LoDs of a batch, from which counts are computed.
pub(crate) struct CountSource<'a> {
    pub(crate) batch: usize,
    pub(crate) levels: &'a LevelTable,
    /// The frames of a run that has ended; empty before the run.
    pub(crate) frames: &'a [Frame],
}

impl CountSource<'_> {
    /// Computes the values of the quantities of a plan.
    pub(crate) fn counts(&self, needs: &Needs) -> RowCounts {
        let mut values = Vec::new();
        let exact = self.fill(needs, &mut values);
        RowCounts { values, exact }
    }

    /// Writes the value of each quantity of a plan to `values`; the value is 0 if only the run will know it. Returns whether
    /// all values are known.
    pub(crate) fn fill(&self, needs: &Needs, values: &mut Vec<usize>) -> bool {
        let mut exact = true;
        values.clear();
        values.extend(needs.quantities.iter().map(|quantity| {
            let value = self.value(quantity);
            exact &= value.is_some();
            value.unwrap_or(0)
        }));
        exact
    }

    /// The value of a quantity; `None` if only a run knows it.
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
                // A reversed loop has other steps; the bound for both is the larger one.
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
            Quantity::Product(factors) => self.value(&factors[0])?.saturating_mul(self.value(&factors[1])?),
            Quantity::Made(level) => self.frames.iter().find_map(|frame| frame.rows_of_all_visits(*level))?,
        })
    }

    fn chain(&self, levels: &[LevelId]) -> Option<ArrayVec<&Lod, MAX_LEVELS>> {
        levels.iter().map(|&level| self.levels.get(level).map(|lod| &**lod)).collect()
    }
}

/// The first row of the sequence with number `at` of the top level of `lods`.
fn first_row(lods: &[&Lod], at: usize) -> usize {
    lods.iter().fold(at, |at, lod| lod.offsets()[at])
}
