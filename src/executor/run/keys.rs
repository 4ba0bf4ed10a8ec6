//! Row keys: a row key identifies a row of the data. Random operators derive random numbers from the key, and messages
//! name a sample by the key. A row in a step block has the key of the corresponding row outside the block.

use crate::error::Error;
use crate::executor::plan::{Loop, OpInstr};
use crate::executor::run::frame::{Frame, FrameRows};
use crate::executor::run::state::{CallRows, RunState, step_parent};
use crate::operator::keys::{Keys, Names, RowKey};
use crate::operator::levels::LevelTable;
use crate::operator::{BlockId, Extent, LevelId};

impl Frame {
    /// Computes the keys of all rows of the frame; `outside` returns the key of a row outside the block.
    pub(super) fn build_keys(&mut self, instr: &Loop, outside: &dyn Fn(Extent, usize) -> RowKey) {
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
            // A static sub-sequence has the same rows at every step, so the step becomes part of the key.
            level.keys.reserve_exact(level.starts[self.rank.steps()]);
            for t in 0..self.rank.steps() {
                let count = level.starts[t + 1] - level.starts[t];
                level.keys.extend(level.map[..count].iter().map(|&row| {
                    let key = outside(rows, row);
                    RowKey { position: key.position + ((t as u64 + 1) << 32), ..key }
                }));
            }
        }
    }

    /// Returns the keys of the rows of a call that works on the rows `at`.
    pub(super) fn keys(&self, at: FrameRows, rows: Extent) -> &[RowKey] {
        if at == FrameRows::Sequences && !matches!(rows, Extent::Rows(_)) {
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

    /// Returns the row outside the step block that corresponds to row `row` of a call on `at`: the extent that counts the outer
    /// rows, and the index of the outer row.
    fn outside(&self, instr: &Loop, at: FrameRows, rows: Extent, row: usize) -> Option<(Extent, usize)> {
        if let Extent::Rows(id) = rows
            && let Some((above, row)) = self.above_made(at, id, row)
        {
            // If an operator of the step made the sequence of a row, the row belongs to the same outer row as the entry
            // or row from which the sequence was made.
            return self.outside(instr, FrameRows::All, above, row);
        }
        let Extent::Rows(id) = rows else {
            if at == FrameRows::Sequences {
                return Some((instr.sequences, *self.rank.order().get(row)?));
            }
            let index = self.stepped(at, rows).0 - self.base + row;
            return Some((Extent::Rows(instr.desc.level), *self.rank.rows().get(index)?));
        };
        let (level, inner) =
            self.levels.iter().zip(&instr.inner).find(|(level, _)| level.level == Some(id))?;
        let index = self.stepped(at, rows).0 - level.base + row;
        // A static sub-sequence has the same rows at every step, so the position is counted from the start of the step.
        let step = level.starts.partition_point(|&start| start <= index).saturating_sub(1);
        let index = if inner.statics { index - level.starts.get(step)? } else { index };
        Some((Extent::Rows(inner.outer), *level.map.get(index)?))
    }

    /// Returns the entry or row from which an operator of the step made a sequence: the sequence that contains row
    /// `row` of level `id`. The result is the extent that counts these entries or rows, and the index of the entry or
    /// row over all steps. `None` if no operator of the step makes the level.
    fn above_made(&self, at: FrameRows, id: LevelId, row: usize) -> Option<(Extent, usize)> {
        let level = &self.levels[self.made_index(id)?];
        let index = self.stepped(at, Extent::Rows(id)).0 - level.base + row;
        let offsets = level.whole.as_ref()?.offsets();
        let sequence = offsets.partition_point(|&offset| offset <= index).checked_sub(1)?;
        let above = match level.above {
            Some(above) => Extent::Rows(self.levels[above].level?),
            // `Frame::outside` does not read the block id in this extent, so any id is correct.
            None => Extent::Alive(BlockId::default()),
        };
        Some((above, sequence))
    }
}

impl RunState<'_> {
    /// Returns, for each sequence of the batch, its index in the data and the position of its first row.
    fn names(&self) -> Names<'_> {
        Names { numbers: &self.numbers, places: &self.places }
    }

    /// Returns the key of the row with the index `row` in `extent`. With a `block`, the index counts the rows of the
    /// current step of this step block; without a `block`, the index counts the rows of the root block.
    pub(super) fn key(&self, block: Option<BlockId>, extent: Extent, row: usize) -> RowKey {
        match block {
            None => root_key(&self.levels, self.names(), extent, row),
            Some(block) => {
                let frame = &self.frames[block.0 as usize];
                frame.keys(frame.at, extent).get(row).copied().unwrap_or_default()
            }
        }
    }

    /// Returns the keys of the rows of a call, for random operators.
    pub(super) fn keys(&self, instr: &OpInstr, here: Option<CallRows>) -> Keys<'_> {
        let spec = instr.outputs.first().and_then(|s| s.first());
        let block = instr.place.block.map(|_| instr.top);
        if let (Some((block, rows)), true) = (instr.order, instr.random) {
            return listed(self.frames[block.0 as usize].keys(FrameRows::All, rows), here);
        }
        match (block, spec) {
            // The rows of a constant do not belong to sequences, so their keys do not depend on the batch.
            (_, Some(spec)) if !spec.batched() => {
                Keys::Natural { names: Names::default(), lod: None, first: 0 }
            }
            (Some(Extent::Alive(block)), Some(spec)) if instr.random => {
                let frame = &self.frames[block.0 as usize];
                listed(frame.keys(self.at(block, here), spec.rows()), here)
            }
            (_, spec) => {
                let lod = spec.and_then(|s| self.levels.lod(&s.lod));
                let first = here.and_then(|here| here.only).map_or(0, |(from, _)| from);
                Keys::Natural { names: self.names(), lod, first }
            }
        }
    }

    /// Adds the row's sample to an error that names a row of a call.
    pub(super) fn named(&self, instr: &OpInstr, here: Option<CallRows>, error: Error) -> Error {
        error.of_sample(|row| {
            let row = row + here.and_then(|here| here.only).map_or(0, |(from, _)| from);
            let spec = instr.inputs.iter().flatten().find(|spec| spec.batched())?;
            let (mut block, mut at, mut extent) = match (instr.order, instr.top) {
                (Some((block, rows)), _) => (Some(block), FrameRows::All, rows),
                (None, Extent::Alive(block)) => (Some(block), self.at(block, here), spec.rows()),
                _ => (None, FrameRows::All, spec.rows()),
            };
            let mut row = row;
            while let Some(inner) = block {
                let (instr, frame) = (self.loops[inner.0 as usize]?, &self.frames[inner.0 as usize]);
                (extent, row) = frame.outside(instr, at, extent, row)?;
                block = step_parent(instr);
                at = block.map_or(FrameRows::All, |block| self.frames[block.0 as usize].at);
            }
            let RowKey { sequence, position } = root_key(&self.levels, self.names(), extent, row);
            Some((sequence, matches!(extent, Extent::Rows(_)).then_some(position as usize)))
        })
    }
}

fn root_key(levels: &LevelTable, names: Names<'_>, rows: Extent, row: usize) -> RowKey {
    let lod = if let Extent::Rows(level) = rows { levels.get(level) } else { None };
    names.key(lod, row)
}

fn listed(keys: &[RowKey], here: Option<CallRows>) -> Keys<'_> {
    let (from, to) = here.and_then(|here| here.only).unwrap_or((0, keys.len()));
    Keys::Listed(keys.get(from..to.min(keys.len())).unwrap_or(&[]))
}
