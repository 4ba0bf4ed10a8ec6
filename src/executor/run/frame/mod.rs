//! A step block while it runs: its rank table, the levels inside it, and which rows it is at.

mod made;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Result;
use crate::executor::plan::{Loop, MadeLevel};
use crate::executor::run::rank_table::RankTable;
use crate::lod::Lod;
use crate::program::contract::keys::{Names, RowKey};
use crate::program::contract::levels::LevelTable;
use crate::program::{BlockId, Extent, LevelId};

/// Which rows of a step block are being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum At {
    /// Those of all steps.
    #[default]
    All,
    /// One for each sequence.
    Sequences,
    /// Those of sequences `from..to` of the rank order that are alive at step `t`.
    Step { t: usize, from: usize, to: usize },
}

/// A level inside a step block.
#[derive(Debug, Default)]
pub(crate) struct FrameLevel {
    pub(crate) level: Option<LevelId>,
    pub(crate) statics: bool,
    /// Which level of the frame is above it; none if it delimits the entries (or, of a static input, the sequences).
    above: Option<usize>,
    /// Its offsets are known: those of a level that an operator makes are once that was asked.
    known: bool,
    /// The rows of all steps, or of all sequences, have a LoD.
    over_all: bool,
    /// Of a level that an operator makes: the length of each sequence, by the places of the entries or rows above. The
    /// visits of a loop inside a loop have places of their own, so that the backward pass finds them again.
    lengths: Vec<usize>,
    /// The first row of step 0 in step-major buffers.
    pub(crate) base: usize,
    /// The first row of each step after that.
    pub(crate) starts: Vec<usize>,
    /// The offsets of all steps (of a static level: of all sequences, in rank order).
    whole: Option<Arc<Lod>>,
    pub(crate) step: Option<Arc<Lod>>,
    /// For each row in this order, its row outside.
    pub(crate) map: Vec<usize>,
    keys: Vec<RowKey>,
}

/// A step block's state; it keeps its memory from run to run.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) rank: RankTable,
    pub(crate) base: usize,
    pub(crate) at: At,
    pub(crate) levels: Vec<FrameLevel>,
    /// The place of each outer row in step-major order: the inverse of the rank table's rows.
    pub(crate) inverse: Vec<usize>,
    pub(crate) inverse_order: Vec<usize>,
    keys: Vec<RowKey>,
    sequence_keys: Vec<RowKey>,
    /// How many of the levels come from outside; those behind them are made in the step.
    used: usize,
    /// Of a loop inside a loop: where the rows of a static level begin, by level and by the base of this visit. Each
    /// visit has rows of its own, which the backward pass finds again.
    visits: HashMap<(usize, usize), usize>,
    taken: Vec<usize>,
}

fn invert(map: &[usize], inverse: &mut Vec<usize>) {
    inverse.clear();
    inverse.resize(map.len(), 0);
    for (place, &row) in map.iter().enumerate() {
        inverse[row] = place;
    }
}

impl Frame {
    /// Sets the frame up for a loop over the sequences of `lod`.
    pub(crate) fn build(&mut self, instr: &Loop, lod: &Lod, levels: &mut LevelTable) -> Result<()> {
        // The table lets go of last time's offsets, so that their memory can be used again.
        instr.inner.iter().for_each(|inner| levels.set(inner.inner, None));
        instr.levels.iter().for_each(|made| levels.set(made.level, None));
        self.rank.rebuild(lod.offsets(), instr.desc.reverse);
        invert(self.rank.rows(), &mut self.inverse);
        invert(self.rank.order(), &mut self.inverse_order);
        self.at = At::All;
        self.used = instr.inner.len();
        if self.levels.len() < instr.inner.len() + instr.levels.len() {
            self.levels.resize_with(instr.inner.len() + instr.levels.len(), FrameLevel::default);
        }
        // The levels below hold those above.
        for level in self.levels.iter_mut().rev() {
            Lod::release(&mut level.whole);
            Lod::release(&mut level.step);
        }
        let steps = self.rank.steps();
        for (i, inner) in instr.inner.iter().enumerate() {
            let (before, rest) = self.levels.split_at_mut(i);
            let this = &mut rest[0];
            this.level = Some(inner.inner);
            this.statics = inner.statics;
            (this.above, this.known, this.over_all) = (inner.above, true, true);
            let outer = levels.get(inner.outer);
            let offsets = outer.map_or(&[0][..], |lod| lod.offsets());
            let above = inner.above.map(|a| &before[a]);
            let order = match above {
                Some(level) => &level.map,
                None if inner.statics => self.rank.order(),
                None => self.rank.rows(),
            };
            this.map.clear();
            let upper = above.and_then(|a| a.whole.clone());
            Lod::rebuild(&mut this.whole, upper, |out| {
                out.push(0);
                for &row in order {
                    out.push(out[out.len() - 1] + offsets[row + 1] - offsets[row]);
                }
            })?;
            for &row in order {
                this.map.extend(offsets[row]..offsets[row + 1]);
            }
            this.starts.clear();
            this.starts.push(0);
            let whole = this.whole.as_ref().map_or(&[0][..], |lod| lod.offsets());
            for t in 0..steps {
                // A row of the level above, where there is one, or an entry.
                let end = |t: usize| above.map_or(self.rank.starts()[t], |a| a.starts[t]);
                let rows = if inner.statics {
                    let alive = above.map_or(self.rank.alive(t), |a| a.starts[t + 1] - a.starts[t]);
                    whole[alive]
                } else {
                    whole[end(t + 1)] - whole[end(t)]
                };
                this.starts.push(this.starts[t] + rows);
            }
        }
        for (this, made) in self.levels[self.used..].iter_mut().zip(&instr.levels) {
            let &MadeLevel { level, above, over_all } = made;
            (this.level, this.above, this.over_all) = (Some(level), above, over_all);
            (this.known, this.statics, this.base) = (false, false, 0);
            this.map.clear();
            this.keys.clear();
            this.starts.clear();
            this.starts.resize(steps + 1, 0);
        }
        Ok(())
    }

    /// Forgets the visits of the last run.
    pub(crate) fn restart(&mut self) {
        self.visits.clear();
        self.taken.clear();
    }

    /// Sets where the rows of static levels begin in this visit, once the frame's own base is known.
    pub(crate) fn place_statics(&mut self) {
        for i in 0..self.used {
            if self.levels[i].statics {
                self.place_rows(i);
            }
        }
    }

    /// The same of one level.
    fn place_rows(&mut self, i: usize) {
        self.taken.resize(self.taken.len().max(self.levels.len()), 0);
        let (level, taken) = (&mut self.levels[i], &mut self.taken[i]);
        let rows = level.starts.last().copied().unwrap_or(0);
        // A visit without rows may have the base of the next one.
        level.base = match rows {
            0 => 0,
            _ => *self.visits.entry((i, self.base)).or_insert_with(|| {
                let base = *taken;
                *taken += rows;
                base
            }),
        };
    }

    /// The inner level of the frame by its name.
    fn level(&self, level: LevelId) -> Option<&FrameLevel> {
        self.levels.iter().find(|l| l.level == Some(level))
    }

    /// Where a level's rows of step 0 start, and where each step's do.
    fn rows(&self, rows: Extent) -> (usize, &[usize]) {
        match rows {
            Extent::Rows(level) => self.level(level).map_or((0, &[0][..]), |l| (l.base, &l.starts)),
            _ => (self.base, self.rank.starts()),
        }
    }

    /// First row and number of rows in a step-major buffer.
    pub(crate) fn stepped(&self, at: At, rows: Extent) -> (usize, usize) {
        let (base, starts) = self.rows(rows);
        match (at, rows) {
            (At::Step { t, from, to }, Extent::Alive(_)) => {
                (base + starts[t] + from, (starts[t + 1] - starts[t]).min(to).saturating_sub(from))
            }
            (At::Step { t, .. }, _) => (base + starts[t], starts[t + 1] - starts[t]),
            _ => (base, starts.last().copied().unwrap_or(0)),
        }
    }

    /// First row and number of rows in a buffer with the rows of each sequence, or of one step.
    pub(crate) fn sequence(&self, at: At, rows: Extent) -> (usize, usize) {
        match (at, rows) {
            (At::Step { from, .. }, Extent::Alive(_)) => (from, self.stepped(at, rows).1),
            (At::Step { .. }, _) => (0, self.stepped(at, rows).1),
            (_, Extent::Rows(level)) => (0, self.level(level).map_or(0, |l| l.map.len())),
            _ => (0, self.rank.sequences()),
        }
    }

    /// Rows that a buffer needs: for all steps, or for the largest one and for all sequences.
    pub(crate) fn room(&self, rows: Extent, stepped: bool) -> usize {
        let (base, starts) = self.rows(rows);
        if stepped {
            return base + starts.last().copied().unwrap_or(0);
        }
        let largest = starts.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        match rows {
            Extent::Rows(level) => {
                largest.max(self.level(level).filter(|l| l.statics).map_or(0, |l| l.map.len()))
            }
            _ => self.rank.sequences(),
        }
    }

    /// The rows outside of the rows inside: of all steps, or of all sequences.
    pub(crate) fn map(&self, rows: Extent, sequences: bool) -> &[usize] {
        match rows {
            Extent::Rows(level) => self.level(level).map_or(&[], |l| &l.map),
            _ if sequences => self.rank.order(),
            _ => self.rank.rows(),
        }
    }

    /// Moves the frame, and binds its levels to the rows it is at.
    pub(crate) fn go(&mut self, at: At, table: &mut LevelTable) -> Result<()> {
        self.at = at;
        if let At::Step { .. } = at {
            for this in self.levels.iter_mut().rev().filter(|this| this.known) {
                this.level.into_iter().for_each(|level| table.set(level, None));
                Lod::release(&mut this.step);
            }
        }
        for i in 0..self.levels.len() {
            let (before, rest) = self.levels.split_at_mut(i);
            let this = &mut rest[0];
            let Some(level) = this.level.filter(|_| this.known) else { continue };
            let At::Step { t, .. } = at else {
                table.set(level, this.whole.clone().filter(|_| this.over_all));
                continue;
            };
            let whole = this.whole.as_ref().map_or(&[0][..], |lod| lod.offsets());
            // The LoD above is the one that was just bound, if this one hangs below an inner level.
            let above = this.above.map(|a| &before[a]);
            let (first, last) = if this.statics {
                (0, above.map_or(self.rank.alive(t), |a| a.starts[t + 1] - a.starts[t]))
            } else {
                match above {
                    Some(a) => (a.starts[t], a.starts[t + 1]),
                    None => (self.rank.starts()[t], self.rank.starts()[t + 1]),
                }
            };
            let upper = above.and_then(|a| a.step.clone());
            Lod::rebuild(&mut this.step, upper, |out| {
                out.extend(whole[first..=last].iter().map(|o| o - whole[first]));
            })?;
            table.set(level, this.step.clone());
        }
        Ok(())
    }

    /// Makes the keys of all rows, from those of the rows outside.
    pub(crate) fn build_keys(&mut self, instr: &Loop, outside: &dyn Fn(Extent, usize) -> RowKey) {
        self.keys.clear();
        self.keys.extend(self.rank.rows().iter().map(|&row| outside(Extent::Rows(instr.desc.level), row)));
        self.sequence_keys.clear();
        self.sequence_keys.extend(self.rank.order().iter().map(|&row| outside(instr.sequences, row)));
        for (level, inner) in self.levels.iter_mut().zip(&instr.inner) {
            level.keys.clear();
            let rows = Extent::Rows(inner.outer);
            if !inner.statics {
                level.keys.extend(level.map.iter().map(|&row| outside(rows, row)));
                continue;
            }
            // The rows of a static sub-sequence come again at every step: the step tells them apart.
            for t in 0..self.rank.steps() {
                let count = level.starts[t + 1] - level.starts[t];
                level.keys.extend(level.map[..count].iter().map(|&row| {
                    let key = outside(rows, row);
                    RowKey { position: key.position + ((t as u64 + 1) << 32), ..key }
                }));
            }
        }
    }

    /// The keys of the rows that a call at `at` has.
    pub(crate) fn keys(&self, at: At, rows: Extent) -> &[RowKey] {
        if at == At::Sequences && !matches!(rows, Extent::Rows(_)) {
            return &self.sequence_keys;
        }
        let (base, _) = self.rows(rows);
        let (first, count) = self.stepped(at, rows);
        let keys = match rows {
            Extent::Rows(level) => self.level(level).map_or(&[][..], |l| &l.keys),
            _ => &self.keys,
        };
        keys.get(first - base..first - base + count).unwrap_or(&[])
    }

    /// Of a row of a call at `at`, the row outside: what counts it there, and its number.
    pub(crate) fn outside(&self, instr: &Loop, at: At, rows: Extent, row: usize) -> Option<(Extent, usize)> {
        if let Extent::Rows(id) = rows
            && let Some((above, row)) = self.above_made(at, id, row)
        {
            // A row of sequences that are made in the step is named by what its sequence is of.
            return self.outside(instr, At::All, above, row);
        }
        let Extent::Rows(id) = rows else {
            if at == At::Sequences {
                return Some((instr.sequences, *self.rank.order().get(row)?));
            }
            let place = self.stepped(at, rows).0 - self.base + row;
            return Some((Extent::Rows(instr.desc.level), *self.rank.rows().get(place)?));
        };
        let (level, inner) =
            self.levels.iter().zip(&instr.inner).find(|(level, _)| level.level == Some(id))?;
        let place = self.stepped(at, rows).0 - level.base + row;
        // The rows of a static sub-sequence come again at every step.
        let step = level.starts.partition_point(|&start| start <= place).saturating_sub(1);
        let place = if inner.statics { place - level.starts.get(step)? } else { place };
        Some((Extent::Rows(inner.outer), *level.map.get(place)?))
    }

    /// The place of each outer row in this order.
    pub(crate) fn inverse(&self, rows: Extent, sequences: bool, out: &mut Vec<usize>) {
        match rows {
            Extent::Rows(level) => invert(self.level(level).map_or(&[], |l| &l.map), out),
            _ => {
                out.clear();
                out.extend_from_slice(if sequences { &self.inverse_order } else { &self.inverse });
            }
        }
    }
}

/// The key of a row of the root block.
pub(crate) fn root_key(levels: &LevelTable, names: Names<'_>, rows: Extent, row: usize) -> RowKey {
    let lod = if let Extent::Rows(level) = rows { levels.get(level) } else { None };
    names.key(lod, row)
}

/// The block around a loop, if it is a step block.
pub(crate) fn step_parent(instr: &Loop) -> Option<BlockId> {
    (instr.parent.0 > 0).then_some(instr.parent)
}
