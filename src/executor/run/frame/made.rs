//! Levels that operators of a step block make: their lengths are told step by step, before the loop, and kept.

use super::{At, Frame};
use crate::error::{Error, Result};
use crate::lod::Lod;
use crate::program::contract::keys::RowKey;
use crate::program::{Extent, LevelId};

impl Frame {
    /// The levels behind those from outside, by their number.
    pub(in crate::executor) fn made(&self) -> std::ops::Range<usize> {
        self.used..self.levels.len()
    }

    /// The number of a level that is made in the step.
    pub(in crate::executor) fn made_index(&self, level: LevelId) -> Option<usize> {
        self.made().find(|&i| self.levels[i].level == Some(level))
    }

    /// Where the entries or rows that a made level's sequences are of begin in step-major order, and where those of each
    /// step do, counted from there.
    fn above(&self, i: usize) -> (usize, &[usize]) {
        match self.levels[i].above {
            Some(above) => (self.levels[above].base, &self.levels[above].starts),
            None => (self.base, self.rank.starts()),
        }
    }

    /// Writes down the sequences of step `t`, after those of the steps before.
    ///
    /// # Errors
    /// If there is not one for each entry or row above.
    pub(in crate::executor) fn add_made(&mut self, i: usize, t: usize, offsets: &[usize]) -> Result<()> {
        let (base, starts) = self.above(i);
        let (from, to) = (base + starts[t], base + starts[t + 1]);
        if offsets.len() != to - from + 1 {
            let (expected, got) = (to - from + 1, offsets.len());
            return Err(Error::new("offsets made in a step", expected.to_string(), got.to_string()));
        }
        let level = &mut self.levels[i];
        if level.lengths.len() < to {
            level.lengths.resize(to, 0);
        }
        for (length, pair) in level.lengths[from..to].iter_mut().zip(offsets.windows(2)) {
            *length = pair[1].saturating_sub(pair[0]);
        }
        // Rows of deeper levels that the same operator makes are counted from here.
        let rows: usize = level.lengths[from..to].iter().sum();
        level.starts[t + 1] = level.starts[t] + rows;
        Ok(())
    }

    /// Sets up a made level whose lengths are known for all steps.
    pub(in crate::executor) fn close_made(&mut self, i: usize) -> Result<()> {
        let (before, rest) = self.levels.split_at_mut(i);
        let level = &mut rest[0];
        let above = level.above.map(|above| &before[above]);
        let (base, starts, keys) = match above {
            Some(above) => (above.base, &above.starts[..], &above.keys),
            None => (self.base, self.rank.starts(), &self.keys),
        };
        let lengths = level.lengths.get(base..base + starts.last().copied().unwrap_or(0)).unwrap_or(&[]);
        level.starts.clear();
        level.starts.push(0);
        for step in starts.windows(2) {
            let rows: usize = lengths[step[0]..step[1]].iter().sum();
            level.starts.push(level.starts[level.starts.len() - 1] + rows);
        }
        let upper = above.and_then(|above| above.whole.clone()).filter(|_| level.over_all);
        Lod::rebuild(&mut level.whole, upper, |out| {
            out.push(0);
            for &length in lengths {
                out.push(out[out.len() - 1] + length);
            }
        })?;
        level.keys.clear();
        for (key, &length) in keys.iter().zip(lengths) {
            level.keys.extend((0..length).map(|row| RowKey::below(*key, row)));
        }
        level.known = true;
        self.place_rows(i);
        Ok(())
    }

    /// What a row of a made level is of: what counts the entries or rows above, over all steps, and which of them.
    pub(crate) fn above_made(&self, at: At, id: LevelId, row: usize) -> Option<(Extent, usize)> {
        let level = &self.levels[self.made_index(id)?];
        let place = self.stepped(at, Extent::Rows(id)).0 - level.base + row;
        let offsets = level.whole.as_ref()?.offsets();
        let sequence = offsets.partition_point(|&offset| offset <= place).checked_sub(1)?;
        let above = match level.above {
            Some(above) => Extent::Rows(self.levels[above].level?),
            None => Extent::Alive(Default::default()),
        };
        Some((above, sequence))
    }
}
