//! Frames: a step block in a run, with its rank table, its levels, and the rows that are being computed.

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

/// The rows of a step block that are being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FrameRows {
    /// The rows of all steps.
    #[default]
    All,
    /// One row per sequence.
    Sequences,
    /// The rows of step `t`, for the sequences `from..to` of the rank order that have such a step.
    Step { t: usize, from: usize, to: usize },
}

/// A level inside a step block.
#[derive(Debug, Default)]
pub(crate) struct FrameLevel {
    pub(crate) level: Option<LevelId>,
    /// Whether the level belongs to a static input, which has the same rows at every step.
    pub(crate) statics: bool,
    /// The number of the frame's level above this level; `None` if this level has one sequence per entry (of a static input: per
    /// sequence of the loop).
    pub(super) above: Option<usize>,
    /// Whether the offsets are known. The offsets of a level that an operator makes become known when the operator has computed
    /// them.
    known: bool,
    /// Whether the rows of all steps, or of all sequences, have a LoD.
    over_all: bool,
    /// For a made level: the length of each sequence, at the position of the entry or row from which it is made. Each visit (run
    /// of a loop inside a loop) has positions of its own, so that the backward pass finds the lengths again.
    lengths: Vec<usize>,
    /// The first row of step 0 in step-major buffers.
    pub(crate) base: usize,
    /// The start of each step's rows, relative to `base`, then the number of rows of all steps.
    pub(crate) starts: Vec<usize>,
    /// The offsets of all steps (of a static level: of all sequences, in rank order).
    pub(super) whole: Option<Arc<Lod>>,
    /// For a static level: the first row of each sequence, in rank order, then the number of rows.
    pub(crate) bounds: Vec<usize>,
    /// The offsets of the step that is being computed.
    pub(crate) step: Option<Arc<Lod>>,
    /// For each row of the level, in the frame's order (step-major; of a static level, by the ranks of the sequences): the number
    /// of its row around the block. Empty for a level that an operator makes.
    pub(crate) map: Vec<usize>,
    pub(super) keys: Vec<RowKey>,
}

/// A step block in a run. Its memory is reused from run to run.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) rank: RankTable,
    /// The first row of step 0 in step-major buffers. It is not 0 in a loop inside a loop: the buffers have the rows of all
    /// visits, one visit after the other.
    pub(crate) base: usize,
    pub(crate) at: FrameRows,
    pub(crate) levels: Vec<FrameLevel>,
    /// The position of each outer row in step-major order: the inverse of the rank table's rows.
    inverse_rows: Vec<usize>,
    /// The position of each sequence in rank order: the inverse of the rank table's order.
    inverse_order: Vec<usize>,
    /// The keys of the entries, in step-major order.
    pub(super) keys: Vec<RowKey>,
    /// The keys of the sequences, in rank order.
    pub(super) sequence_keys: Vec<RowKey>,
    /// The number of levels that come from around the block; in `levels`, the levels that operators of the block make come after
    /// them.
    given: usize,
    /// For a loop inside a loop: the start of a level's rows, by the number of the level and the frame's base in this visit. Each
    /// visit has rows of its own, which the backward pass finds again.
    visits: HashMap<(usize, usize), usize>,
    /// The number of rows in all visits so far, by level.
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
        // The table drops the old offsets first, so that their memory can be reused.
        instr.inner.iter().for_each(|inner| levels.set(inner.inner, None));
        instr.levels.iter().for_each(|made| levels.set(made.level, None));
        self.rank.rebuild(lod.offsets(), instr.desc.reverse);
        invert(self.rank.rows(), &mut self.inverse_rows);
        invert(self.rank.order(), &mut self.inverse_order);
        self.at = FrameRows::All;
        self.given = instr.inner.len();
        if self.levels.len() < instr.inner.len() + instr.levels.len() {
            self.levels.resize_with(instr.inner.len() + instr.levels.len(), FrameLevel::default);
        }
        // Release lower levels first: they refer to the levels above them.
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

    /// Sets up the level `i`, which is made from the level `outer` around the block.
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
        this.bounds.clear();
        if inner.statics {
            match above {
                Some(above) => this.bounds.extend(above.bounds.iter().map(|&row| whole[row])),
                None => this.bounds.extend_from_slice(whole),
            }
        }
        for t in 0..self.rank.steps() {
            // The position at which step `t` starts: a row of the level above, or an entry if no level is above.
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

    /// Forgets the visits of the last run.
    pub(crate) fn restart(&mut self) {
        self.visits.clear();
        self.taken.clear();
    }

    /// Sets the starts of static levels' rows in this visit, once the frame's own base is known.
    pub(crate) fn place_statics(&mut self) {
        for i in 0..self.given {
            if self.levels[i].statics {
                self.place_rows(i);
            }
        }
    }

    /// Sets the start of a level's rows in this visit.
    fn place_rows(&mut self, i: usize) {
        self.taken.resize(self.taken.len().max(self.levels.len()), 0);
        let (level, taken) = (&mut self.levels[i], &mut self.taken[i]);
        let rows = level.starts.last().copied().unwrap_or(0);
        // A visit without rows may have the same base as the next visit.
        level.base = match rows {
            0 => 0,
            _ => *self.visits.entry((i, self.base)).or_insert_with(|| {
                let base = *taken;
                *taken += rows;
                base
            }),
        };
    }

    /// The frame's level of this id; `None` if the frame does not have the level.
    pub(super) fn level(&self, level: LevelId) -> Option<&FrameLevel> {
        self.levels.iter().find(|l| l.level == Some(level))
    }

    /// The start of a level's rows of step 0, and the starts of its rows of each step relative to it.
    pub(super) fn rows(&self, rows: Extent) -> (usize, &[usize]) {
        match rows {
            Extent::Rows(level) => self.level(level).map_or((0, &[0][..]), |l| (l.base, &l.starts)),
            _ => (self.base, self.rank.starts()),
        }
    }

    /// For a static level: the first row of step 0, and the positions of the level's sequence bounds and step bounds in the joint
    /// list of the bounds of all static levels; `None` for any other level.
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

    /// The range of a static level's rows in the sequences of a step; `None` for other levels, and if `at` is no step.
    fn run(&self, at: FrameRows, rows: Extent) -> Option<Range<usize>> {
        let (FrameRows::Step { t, from, to }, Extent::Rows(level)) = (at, rows) else { return None };
        let level = self.level(level).filter(|level| level.statics)?;
        let end = to.min(self.rank.alive(t));
        Some(level.bounds[from.min(end)]..level.bounds[end])
    }

    /// The number of a static level's rows in a step; `None` for any other level.
    pub(super) fn static_rows(&self, at: FrameRows, level: LevelId) -> Option<usize> {
        self.run(at, Extent::Rows(level)).map(|run| run.len())
    }

    /// The range of sequences on which a call works at a step: counted by the rows of the static level `above`, or by the block's
    /// own rank order. `None` means all.
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

    /// The first row and the number of rows of `at`, in a buffer with the rows of all steps.
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

    /// The first row and the number of rows of `at`, in a buffer with the rows of all sequences or of one step at a time.
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

    /// The number of rows that a buffer needs: the rows of all steps, of the largest step, or of all sequences.
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

    /// For each row in the frame's order, the number of its row around the block: for the rows of all steps, or for one row per
    /// sequence.
    pub(crate) fn map(&self, rows: Extent, at: FrameRows) -> &[usize] {
        match rows {
            Extent::Rows(level) => self.level(level).map_or(&[], |l| &l.map),
            _ if at == FrameRows::Sequences => self.rank.order(),
            _ => self.rank.rows(),
        }
    }

    /// Sets the rows that are being computed, and binds the frame's levels to the offsets of these rows.
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
            // If this level is below another level of the frame, that level was bound just before.
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

    /// The inverse of [`Self::map`]: for each row around the block, its position in the frame's order.
    pub(crate) fn inverse(&self, rows: Extent, at: FrameRows, out: &mut Vec<usize>) {
        if let Extent::Rows(level) = rows {
            return invert(self.level(level).map_or(&[], |l| &l.map), out);
        }
        out.clear();
        out.extend_from_slice(if at == FrameRows::Sequences {
            &self.inverse_order
        } else {
            &self.inverse_rows
        });
    }

    /// The numbers of the levels that are made in the step.
    pub(crate) fn made(&self) -> Range<usize> {
        self.given..self.levels.len()
    }

    /// The number of a level that is made in the step; `None` if the level comes from around the block.
    pub(crate) fn made_index(&self, level: LevelId) -> Option<usize> {
        self.made().find(|&i| self.levels[i].level == Some(level))
    }

    /// For the entries or rows above a made level: the start of step 0 in step-major order, and the starts of all steps relative
    /// to it.
    fn above(&self, i: usize) -> (usize, &[usize]) {
        match self.levels[i].above {
            Some(above) => (self.levels[above].base, &self.levels[above].starts),
            None => (self.base, self.rank.starts()),
        }
    }

    /// Records the sequences that an operator makes in step `t`, after the sequences of the previous steps.
    ///
    /// # Errors
    /// If there is not exactly one sequence for each entry or row above the level.
    pub(crate) fn add_made(&mut self, i: usize, t: usize, offsets: &[usize]) -> Result<()> {
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
        // The same operator may make deeper levels, whose sequences these starts count.
        let rows: usize = level.lengths[from..to].iter().sum();
        level.starts[t + 1] = level.starts[t] + rows;
        Ok(())
    }

    /// Completes a made level whose lengths are known for all steps.
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
}
