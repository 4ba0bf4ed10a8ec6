//! Frames: the state of a step block in a run, with its rank table, its levels, and the rows that it computes now.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::executor::plan::{Home, InnerLevel, Loop, MadeLevel};
use crate::executor::run::rank_table::RankTable;
use crate::lod::Lod;
use crate::operator::keys::RowKey;
use crate::operator::levels::LevelTable;
use crate::operator::{Extent, LevelId};
use crate::reserve;

/// The rows of a step block that the current calls compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FrameRows {
    /// The calls work on the rows of all steps.
    #[default]
    All,
    /// The calls work on one row per sequence.
    Sequences,
    /// The calls work on the rows of step `t`, for the sequences at positions `from..to` of the rank order that have a step
    /// `t`.
    Step { t: usize, from: usize, to: usize },
}

/// The state of one level of sequences in a step block.
#[derive(Debug, Default)]
pub(crate) struct FrameLevel {
    pub(crate) level: Option<LevelId>,
    /// Whether the level belongs to a static input, which has the same rows at every step.
    pub(crate) statics: bool,
    /// The index in `Frame::levels` of the level above this level. `None` for a top level, which has one sequence per entry
    /// (for a static input: one per sequence of the loop).
    pub(super) above: Option<usize>,
    /// Whether the offsets of the level are known. The offsets of a level that an operator makes are known only after the
    /// operator has computed them for all steps.
    known: bool,
    /// Whether the rows of all steps together (of a static level: of all sequences) have a LoD with this level.
    over_all: bool,
    /// For a level that an operator makes: the length of each sequence. The index is the position of the entry or row
    /// from which the sequence is made. In a loop inside a loop, each visit (run of the inner loop) uses other
    /// positions, so that the backward pass finds the lengths of every visit.
    lengths: Vec<usize>,
    /// The row in step-major buffers at which step 0 of this level begins.
    pub(crate) base: usize,
    /// The first row of each step, relative to `base`, followed by the number of rows of all steps.
    pub(crate) starts: Vec<usize>,
    /// For a level that an operator makes: the largest number of rows of a step, in all visits so far.
    largest: usize,
    /// The offsets over all steps; for a static level, over all sequences in rank order.
    pub(super) whole: Option<Arc<Lod>>,
    /// For a static level: the first row of each sequence, in rank order, followed by the number of rows.
    pub(crate) bounds: Vec<usize>,
    /// The offsets in the step that is computed now.
    pub(crate) step: Option<Arc<Lod>>,
    /// For each row of the level, in step-major order (for a static level, in rank order of the sequences): the number of the
    /// corresponding row outside the block. The list is empty for a level that an operator makes.
    pub(crate) map: Vec<usize>,
    pub(super) keys: Vec<RowKey>,
}

/// The state of a step block in a run: the order of its sequences, and its levels. The memory of a frame is reused from run to
/// run.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) rank: RankTable,
    /// The row in step-major buffers at which step 0 begins. In a loop inside a loop, this row can be above 0, because
    /// the buffers hold the rows of all visits (runs of the inner loop), one after another.
    pub(crate) base: usize,
    pub(crate) at: FrameRows,
    pub(crate) levels: Vec<FrameLevel>,
    /// For each row outside the block, its position in step-major order (the inverse of the rank table's rows).
    inverse_rows: Vec<usize>,
    /// For each sequence, its position in rank order (the inverse of the rank table's order).
    inverse_order: Vec<usize>,
    /// The row keys of the entries, in step-major order.
    pub(super) keys: Vec<RowKey>,
    /// The row keys of the sequences, in rank order.
    pub(super) sequence_keys: Vec<RowKey>,
    /// The number of levels that come from outside the block; in `levels`, these levels come before the levels that
    /// operators of the block make.
    given: usize,
    /// For a loop inside a loop: the first row of a level in a visit (run of the inner loop). The key is the index of the level
    /// and the frame's `base` in that visit. Each visit has its own rows, so that the backward pass finds the values of the
    /// visit.
    visits: HashMap<(usize, usize), usize>,
    /// For each level, the number of rows in all visits so far.
    taken: Vec<usize>,
}

fn invert(map: &[usize], inverse: &mut Vec<usize>) -> Result<()> {
    reserve::emptied(inverse, map.len(), "order of rows")?;
    inverse.resize(map.len(), 0);
    for (index, &row) in map.iter().enumerate() {
        inverse[row] = index;
    }
    Ok(())
}

impl Frame {
    /// Sets up the frame for a loop over the sequences of `lod`.
    pub(crate) fn build(&mut self, instr: &Loop, lod: &Lod, levels: &mut LevelTable) -> Result<()> {
        // The level table drops its references to the old offsets first, so that their memory can be reused.
        instr.inner.iter().for_each(|inner| levels.set(inner.inner, None));
        instr.levels.iter().for_each(|made| levels.set(made.level, None));
        self.rank.rebuild(lod.offsets(), instr.desc.reverse)?;
        invert(self.rank.rows(), &mut self.inverse_rows)?;
        invert(self.rank.order(), &mut self.inverse_order)?;
        self.at = FrameRows::All;
        self.given = instr.inner.len();
        if self.levels.len() < instr.inner.len() + instr.levels.len() {
            self.levels.resize_with(instr.inner.len() + instr.levels.len(), FrameLevel::default);
        }
        // Lower levels are released first, since they refer to the levels above.
        for level in self.levels.iter_mut().rev() {
            Lod::release(&mut level.whole);
            Lod::release(&mut level.step);
        }
        for (i, inner) in instr.inner.iter().enumerate() {
            self.build_inner(i, inner, levels.get(inner.outer))?;
        }
        let steps = self.rank.steps();
        for (this, made) in self.levels[self.given..].iter_mut().zip(&instr.levels) {
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

    /// Sets up level `i` of the frame from the level `outer` outside the block.
    fn build_inner(&mut self, i: usize, inner: &InnerLevel, outer: Option<&Arc<Lod>>) -> Result<()> {
        let (before, rest) = self.levels.split_at_mut(i);
        let this = &mut rest[0];
        this.level = Some(inner.inner);
        this.statics = inner.statics;
        (this.above, this.known, this.over_all) = (inner.above, true, true);
        let offsets = outer.map_or(&[0][..], |lod| lod.offsets());
        let above = inner.above.map(|a| &before[a]);
        let order = match above {
            Some(level) => &level.map,
            None if inner.statics => self.rank.order(),
            None => self.rank.rows(),
        };
        let upper = above.and_then(|a| a.whole.clone());
        Lod::rebuild(&mut this.whole, upper, |out| {
            out.reserve_exact(order.len() + 1);
            out.push(0);
            for &row in order {
                out.push(out[out.len() - 1] + offsets[row + 1] - offsets[row]);
            }
        })?;
        reserve::emptied(&mut this.map, this.whole.as_ref().map_or(0, |lod| lod.rows()), "order of rows")?;
        for &row in order {
            this.map.extend(offsets[row]..offsets[row + 1]);
        }
        reserve::emptied(&mut this.starts, self.rank.steps() + 1, "steps of a loop")?;
        this.starts.push(0);
        let whole = this.whole.as_ref().map_or(&[0][..], |lod| lod.offsets());
        this.bounds.clear();
        if inner.statics {
            match above {
                Some(above) => this.bounds.extend(above.bounds.iter().map(|&row| whole[row])),
                None => this.bounds.extend_from_slice(whole),
            }
        }
        for t in 0..self.rank.steps() {
            // Returns the position at which step `t` starts: a row of the level above, or an entry if there is no level above.
            let end = |t: usize| above.map_or(self.rank.starts()[t], |a| a.starts[t]);
            let rows = if inner.statics {
                this.bounds[self.rank.alive(t)]
            } else {
                whole[end(t + 1)] - whole[end(t)]
            };
            this.starts.push(this.starts[t] + rows);
        }
        Ok(())
    }

    /// Forgets the visits (runs of inner loops) of the last run.
    pub(crate) fn restart(&mut self) {
        self.visits.clear();
        self.taken.clear();
    }

    /// Sets the first row of each static level in this visit, once the `base` of the frame is known.
    pub(crate) fn place_statics(&mut self) {
        for i in 0..self.given {
            if self.levels[i].statics {
                self.place_rows(i);
            }
        }
    }

    /// Sets the first row of level `i` in this visit.
    fn place_rows(&mut self, i: usize) {
        self.taken.resize(self.taken.len().max(self.levels.len()), 0);
        let (level, taken) = (&mut self.levels[i], &mut self.taken[i]);
        let rows = level.starts.last().copied().unwrap_or(0);
        // Two visits can have the same `base` if the first has no rows, so a visit without rows is not recorded.
        level.base = match rows {
            0 => 0,
            _ => *self.visits.entry((i, self.base)).or_insert_with(|| {
                let base = *taken;
                *taken += rows;
                base
            }),
        };
    }

    /// Returns the level with this id; `None` if the frame does not have the level.
    pub(super) fn level(&self, level: LevelId) -> Option<&FrameLevel> {
        self.levels.iter().find(|l| l.level == Some(level))
    }

    /// Returns the row at which step 0 of the extent `rows` begins in step-major buffers, and the first row of each step
    /// relative to that row.
    pub(super) fn rows(&self, rows: Extent) -> (usize, &[usize]) {
        match rows {
            Extent::Rows(level) => self.level(level).map_or((0, &[0][..]), |l| (l.base, &l.starts)),
            _ => (self.base, self.rank.starts()),
        }
    }

    /// For a static level, returns the first row of step 0, and two positions in the joint list of the bounds of all
    /// static levels. The level's sequence bounds begin at the first position, and its step bounds at the second.
    /// `None` for any other level.
    pub(super) fn runs(&self, level: LevelId) -> Option<(usize, usize, usize)> {
        let mut first = 0;
        for this in self.levels.iter().filter(|this| this.statics) {
            if this.level == Some(level) {
                return Some((this.base, first, first + this.bounds.len()));
            }
            first += this.bounds.len() + this.starts.len();
        }
        None
    }

    /// Returns the rows of a static level that belong to the sequences of a step. A static level has the same rows at
    /// every step. `None` if the level is not static, or if `at` is not a step.
    fn run(&self, at: FrameRows, rows: Extent) -> Option<Range<usize>> {
        let (FrameRows::Step { t, from, to }, Extent::Rows(level)) = (at, rows) else { return None };
        let level = self.level(level).filter(|level| level.statics)?;
        let end = to.min(self.rank.alive(t));
        Some(level.bounds[from.min(end)]..level.bounds[end])
    }

    /// Returns how many rows a static level has in a step; `None` for any other level.
    pub(super) fn static_rows(&self, at: FrameRows, level: LevelId) -> Option<usize> {
        self.run(at, Extent::Rows(level)).map(|run| run.len())
    }

    /// Returns the range of sequences on which a call works at a step. With a static level `above`, the range counts
    /// the rows of this level; without `above`, the range counts positions in rank order. `None` means that the call
    /// works on all sequences.
    pub(super) fn sequences_at(&self, at: FrameRows, above: Option<LevelId>) -> Option<Range<usize>> {
        match (at, above) {
            (_, Some(level)) => self.run(at, Extent::Rows(level)),
            (FrameRows::Step { t, from, to }, None) => {
                let end = to.min(self.rank.alive(t));
                Some(from.min(end)..end)
            }
            _ => None,
        }
    }

    /// Returns the range of the rows `at`, as first row and row count. The range is in a buffer that holds the rows of
    /// all steps.
    pub(crate) fn stepped(&self, at: FrameRows, rows: Extent) -> (usize, usize) {
        let (base, starts) = self.rows(rows);
        if let (FrameRows::Step { t, .. }, Some(run)) = (at, self.run(at, rows)) {
            return (base + starts[t] + run.start, run.len());
        }
        match (at, rows) {
            (FrameRows::Step { t, from, to }, Extent::Alive(_)) => {
                (base + starts[t] + from, (starts[t + 1] - starts[t]).min(to).saturating_sub(from))
            }
            (FrameRows::Step { t, .. }, _) => (base + starts[t], starts[t + 1] - starts[t]),
            _ => (base, starts.last().copied().unwrap_or(0)),
        }
    }

    /// Returns the range of the rows `at`, as first row and row count. The range is in a buffer that holds one row per
    /// sequence, or the rows of one step at a time.
    pub(crate) fn sequence(&self, at: FrameRows, rows: Extent) -> (usize, usize) {
        if let Some(run) = self.run(at, rows) {
            return (run.start, run.len());
        }
        match (at, rows) {
            (FrameRows::Step { from, .. }, Extent::Alive(_)) => (from, self.stepped(at, rows).1),
            (FrameRows::Step { .. }, _) => (0, self.stepped(at, rows).1),
            (_, Extent::Rows(level)) => (0, self.level(level).map_or(0, |l| l.map.len())),
            _ => (0, self.rank.sequences()),
        }
    }

    /// Returns the number of rows that a buffer needs: the rows of all steps, of the largest step, or of all sequences.
    pub(crate) fn room(&self, home: Home, rows: Extent) -> usize {
        let (base, starts) = self.rows(rows);
        if let Home::Stepped(_) = home {
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

    /// Returns, for each row in the frame's order, the number of the corresponding row outside the block. The rows are the rows
    /// of all steps, or one row per sequence.
    pub(crate) fn map(&self, rows: Extent, at: FrameRows) -> &[usize] {
        match rows {
            Extent::Rows(level) => self.level(level).map_or(&[], |l| &l.map),
            _ if at == FrameRows::Sequences => self.rank.order(),
            _ => self.rank.rows(),
        }
    }

    /// Sets the rows that the block computes now, and binds its levels to the offsets of these rows.
    pub(crate) fn go(&mut self, at: FrameRows, table: &mut LevelTable) -> Result<()> {
        self.at = at;
        if let FrameRows::Step { .. } = at {
            for this in self.levels.iter_mut().rev().filter(|this| this.known) {
                this.level.into_iter().for_each(|level| table.set(level, None));
                Lod::release(&mut this.step);
            }
        }
        for i in 0..self.levels.len() {
            let (before, rest) = self.levels.split_at_mut(i);
            let this = &mut rest[0];
            let Some(level) = this.level.filter(|_| this.known) else { continue };
            let FrameRows::Step { t, .. } = at else {
                table.set(level, this.whole.clone().filter(|_| this.over_all));
                continue;
            };
            let whole = this.whole.as_ref().map_or(&[0][..], |lod| lod.offsets());
            // A level above has a lower index, so it is already bound.
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

    /// Returns the inverse of [`Self::map`]: for each row outside the block, its position in the frame's order. The inverse for
    /// the rows of a level is computed in `room`.
    ///
    /// # Errors
    /// Fails if the system refuses the memory.
    pub(crate) fn inverse<'a>(
        &'a self,
        rows: Extent,
        at: FrameRows,
        room: &'a mut Vec<usize>,
    ) -> Result<&'a [usize]> {
        if let Extent::Rows(level) = rows {
            return invert(self.level(level).map_or(&[], |l| &l.map), room).map(|()| &room[..]);
        }
        Ok(if at == FrameRows::Sequences { &self.inverse_order } else { &self.inverse_rows })
    }

    /// Returns the indices of the levels that operators of the step block make.
    pub(crate) fn made(&self) -> Range<usize> {
        self.given..self.levels.len()
    }

    /// Returns the index of a level that an operator of the step block makes; `None` for any other level.
    pub(crate) fn made_index(&self, level: LevelId) -> Option<usize> {
        self.made().find(|&i| self.levels[i].level == Some(level))
    }

    /// Returns the number of rows of a level in all visits so far; `None` if the frame does not have the level.
    pub(crate) fn rows_of_all_visits(&self, level: LevelId) -> Option<usize> {
        let i = self.levels.iter().position(|known| known.level == Some(level))?;
        let last = self.levels[i].base + self.levels[i].starts.last().copied().unwrap_or(0);
        Some(self.taken.get(i).copied().unwrap_or(0).max(last))
    }

    /// Returns the largest number of rows that one step of any visit so far has in a level that an operator makes.
    /// `None` if the frame does not have the level.
    pub(crate) fn largest_made(&self, level: LevelId) -> Option<usize> {
        self.levels.iter().find(|known| known.level == Some(level)).map(|level| level.largest)
    }

    /// Returns where the steps of the level above level `i` start: the position of step 0 in the buffers, and the start of each
    /// step relative to that position. If no level is above, the result is for the loop's entries.
    fn above(&self, i: usize) -> (usize, &[usize]) {
        match self.levels[i].above {
            Some(above) => (self.levels[above].base, &self.levels[above].starts),
            None => (self.base, self.rank.starts()),
        }
    }

    /// Records the lengths of the sequences that an operator makes in step `t`; the previous steps must be recorded before.
    ///
    /// # Errors
    /// Fails if the operator did not make exactly one sequence for each entry or row above the level.
    pub(crate) fn add_made(&mut self, i: usize, t: usize, offsets: &[usize]) -> Result<()> {
        let (base, starts) = self.above(i);
        let (from, to) = (base + starts[t], base + starts[t + 1]);
        if offsets.len() != to - from + 1 {
            let (expected, got) = (to - from + 1, offsets.len());
            return Err(Error::new("offsets made in a step", expected.to_string(), got.to_string()));
        }
        let all = base + starts.last().copied().unwrap_or(0);
        let level = &mut self.levels[i];
        if level.lengths.len() < to {
            // If no operator of the loop makes the level above, the sequences of all steps are known, and the list
            // grows to their number at once.
            level.lengths.reserve_exact(all.max(to) - level.lengths.len());
            level.lengths.resize(to, 0);
        }
        for (length, pair) in level.lengths[from..to].iter_mut().zip(offsets.windows(2)) {
            *length = pair[1].saturating_sub(pair[0]);
        }
        // The starts are updated at once, since the same operator may make a deeper level below these rows.
        let rows: usize = level.lengths[from..to].iter().sum();
        level.starts[t + 1] = level.starts[t] + rows;
        Ok(())
    }

    /// Completes a level that an operator makes, once the lengths of its sequences are known for all steps.
    pub(crate) fn close_made(&mut self, i: usize) -> Result<()> {
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
            out.reserve_exact(lengths.len() + 1);
            out.push(0);
            for &length in lengths {
                out.push(out[out.len() - 1] + length);
            }
        })?;
        level.keys.clear();
        level.keys.reserve_exact(keys.iter().zip(lengths).map(|(_, &length)| length).sum());
        for (key, &length) in keys.iter().zip(lengths) {
            level.keys.extend((0..length).map(|row| RowKey::below(*key, row)));
        }
        level.known = true;
        let largest = level.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        self.place_rows(i);
        let level = &mut self.levels[i];
        level.largest = if level.base == 0 { largest } else { level.largest.max(largest) };
        Ok(())
    }
}
