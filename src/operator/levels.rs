//! The LoD levels of a run by index, and the LoD levels that an operator makes.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::lod::Lod;
use crate::operator::extent::{LevelId, Spec};

/// The LoD levels of a run: for each level of the program, the LoD with this level as its last level.
#[derive(Debug, Default, Clone)]
pub struct LevelTable(Vec<Option<Arc<Lod>>>);

impl LevelTable {
    /// Returns the LoD with the last level `level`; `None` if the level is not bound.
    pub(crate) fn get(&self, level: LevelId) -> Option<&Arc<Lod>> {
        self.0.get(level.0 as usize)?.as_ref()
    }

    /// Binds `level` to a LoD, or unbinds `level` if the LoD is `None`.
    pub(crate) fn set(&mut self, level: LevelId, lod: Option<Arc<Lod>>) {
        *self.slot(level) = lod;
    }

    /// Returns the LoD of a variable with the levels `levels`; `None` if there are no levels or the last level is not bound.
    pub fn lod(&self, levels: &[LevelId]) -> Option<&Arc<Lod>> {
        self.get(*levels.last()?)
    }

    /// Returns the largest number of rows of a bound level; 0 if no level is bound.
    pub(crate) fn most_rows(&self) -> usize {
        self.0.iter().flatten().map(|lod| lod.rows()).max().unwrap_or(0)
    }

    /// Unbinds all levels of the table.
    pub(crate) fn clear(&mut self) {
        self.0.fill(None);
    }

    /// Returns the table's entry for `level`, which is created if it does not exist.
    pub(crate) fn slot(&mut self, level: LevelId) -> &mut Option<Arc<Lod>> {
        let index = level.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        &mut self.0[index]
    }
}

/// A LoD level that an operator makes, and the level above; a top level has `None` as the level above.
pub(crate) type MadeLevelIds = (LevelId, Option<LevelId>);

/// Returns the levels that the outputs of an operator have but its inputs do not, in the order in which the shape rule made
/// them.
pub(crate) fn made_levels(inputs: &[Vec<Spec>], outputs: &[Vec<Spec>]) -> Vec<MadeLevelIds> {
    let mut made: Vec<MadeLevelIds> = Vec::new();
    for lod in outputs.iter().flatten().map(|spec| &spec.lod) {
        for (k, &level) in lod.iter().enumerate() {
            let known = inputs.iter().flatten().any(|spec| spec.lod.contains(&level));
            if !known && !made.iter().any(|(other, _)| *other == level) {
                made.push((level, k.checked_sub(1).map(|above| lod[above])));
            }
        }
    }
    made.sort();
    made
}

/// Binds each level that an operator makes from data to the offsets that the operator computed. The memory of the previously
/// bound LoDs is reused. `top` is the number of top-level sequences, for a level without a level above it.
pub(crate) fn bind_made(
    table: &mut LevelTable,
    made: &[MadeLevelIds],
    offsets: &[Vec<usize>],
    top: usize,
) -> Result<()> {
    for (k, &(level, upper)) in made.iter().enumerate() {
        let offsets = offsets.get(k).map_or(&[][..], Vec::as_slice);
        if upper.is_none() && offsets.len() != top + 1 {
            return Err(Error::new("offsets from data", format!("{}", top + 1), offsets.len().to_string()));
        }
        let above = upper.and_then(|upper| table.get(upper).cloned());
        Lod::rebuild(table.slot(level), above, |out| out.extend_from_slice(offsets))?;
    }
    Ok(())
}
