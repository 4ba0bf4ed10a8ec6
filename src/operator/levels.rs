//! The levels of a run by name, and those that an operator makes.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::lod::Lod;
use crate::operator::extent::{LevelId, Spec};

/// The levels of a run: for each level of the program, the LoD that ends with it.
#[derive(Debug, Default, Clone)]
pub struct LevelTable(Vec<Option<Arc<Lod>>>);

impl LevelTable {
    /// The LoD that ends with `level`, if it is bound.
    pub fn get(&self, level: LevelId) -> Option<&Arc<Lod>> {
        self.0.get(level.0 as usize)?.as_ref()
    }

    /// Binds or replaces one.
    pub(crate) fn set(&mut self, level: LevelId, lod: Option<Arc<Lod>>) {
        *self.slot(level) = lod;
    }

    /// The LoD of a variable with these levels.
    pub fn lod(&self, levels: &[LevelId]) -> Option<&Arc<Lod>> {
        self.get(*levels.last()?)
    }

    /// The rows of the level that has most of them; 0 if none is bound.
    pub(crate) fn most_rows(&self) -> usize {
        self.0.iter().flatten().map(|lod| lod.rows()).max().unwrap_or(0)
    }

    /// Unbinds all.
    pub(crate) fn clear(&mut self) {
        self.0.fill(None);
    }

    /// Where a level is bound; there is room for it from then on.
    pub(crate) fn slot(&mut self, level: LevelId) -> &mut Option<Arc<Lod>> {
        let index = level.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        &mut self.0[index]
    }
}

/// A level that an operator makes, and the one above it.
pub(crate) type MadeLevelIds = (LevelId, Option<LevelId>);

/// Levels of the outputs that no input has, in the order they were made.
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

/// Binds the levels that an operator makes from data to the offsets that it computed, and reuses the memory of the LoDs
/// that were bound before.
/// `top` is the number of sequences where there is no level above.
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
