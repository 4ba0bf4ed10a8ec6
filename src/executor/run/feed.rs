//! Feeds: checked against their descriptions, their levels bound, their values copied; and what a batch will take.

use std::sync::Arc;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::executor::{Executor, Run};
use crate::executor::plan::Home;
use crate::kernels::Extent2;
use crate::kernels::arena::Region;
use crate::lod::Lod;
use crate::program::contract::call::row_buffer;
use crate::program::contract::levels::LevelTable;
use crate::program::{BlockId, Extent, LevelId, Spec, VarId, VarRole};
use crate::tensor::{Storage, Variable, with_element};

impl Executor {
    /// Bytes that the buffers will take for a batch, before it runs: a function of its numbers of sequences and rows.
    /// Buffers never shrink, so [`Self::bytes`] is the largest of these so far. Rows of sequences that operators make
    /// while they run are not known before and left out, as are packed weights and selected rows.
    ///
    /// # Errors
    /// As for the feeds of a run.
    #[track_caller]
    pub fn bytes_for(&mut self, feeds: &[(VarId, &Variable)]) -> Result<usize> {
        let batch = self.check_feeds(feeds, &[]).at_caller()?;
        let mut most = vec![0; self.plan.buffers.len()];
        for slot in self.plan.slots.iter().filter(|s| s.pool.is_none()) {
            let rows = match slot.home {
                Home::Sequence(block) => self.sequences(block, batch).max(self.rows_of(slot.rows, batch)),
                Home::Whole | Home::Stepped(_) => self.rows_of(slot.rows, batch),
            };
            let bytes = (rows * slot.width * slot.dtype.size_of()).next_multiple_of(64);
            most[slot.buffer] = most[slot.buffer].max(bytes);
        }
        self.kept.levels.clear();
        Ok(most.iter().sum())
    }

    /// How many rows an extent counts over a whole batch.
    fn rows_of(&self, extent: Extent, batch: usize) -> usize {
        match extent {
            Extent::Known(n) => n,
            Extent::Batch => batch,
            Extent::Data(_) => 0,
            Extent::Rows(level) => match self.kept.levels.get(level) {
                Some(lod) => lod.rows(),
                // A level of a step block has the rows of the outer one it is made from.
                None => self.steps().flat_map(|s| &s.levels).find(|(_, inner)| *inner == level).map_or(
                    0,
                    |(outer, _)| {
                        if *outer == level { 0 } else { self.rows_of(Extent::Rows(*outer), batch) }
                    },
                ),
            },
            Extent::Alive(block) => self
                .steps()
                .find(|s| s.block == block)
                .map_or(0, |s| self.rows_of(Extent::Rows(s.level), batch)),
        }
    }

    fn sequences(&self, block: BlockId, batch: usize) -> usize {
        let step = self.steps().find(|s| s.block == block);
        let above = step.and_then(|s| self.kept.levels.get(s.level)).map(|lod| lod.last_len());
        above.unwrap_or_else(|| step.map_or(batch, |s| self.rows_of(Extent::Rows(s.level), batch)))
    }

    fn steps(&self) -> impl Iterator<Item = &crate::program::StepDesc> {
        self.program.blocks().flat_map(|(_, b)| &b.ops).filter_map(|op| op.step.as_deref())
    }

    /// Checks the feeds against their descriptions and binds their levels; `numbers` are those of the sequences in the
    /// data, for messages.
    fn check_feeds(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<usize> {
        self.fed.fill(false);
        self.set_aside();
        self.kept.levels.clear();
        let mut batch = None;
        for (place, &(id, value)) in feeds.iter().enumerate() {
            let known = (id.0 as usize) < self.fed.len() && self.program.var(id).role == VarRole::Feed;
            if !known {
                let got = self.program.called(id);
                return Err(Error::of(ErrorKind::Program, "feed", "a feed of the program", got));
            }
            let var = self.program.var(id);
            let wrong = |e: Error| e.variable(&var.name);
            if std::mem::replace(&mut self.fed[id.0 as usize], true) {
                return Err(wrong(Error::of(ErrorKind::Program, "feed", "each once", "the same twice")));
            }
            let spec = self.program.spec(id)?;
            let Some(sequences) = check_feed(spec, value).map_err(wrong)? else { continue };
            match batch {
                None => batch = Some((sequences, id)),
                Some((n, first)) if n != sequences => {
                    let first = &self.program.var(first).name;
                    return Err(wrong(Error::new(
                        "sequences of a feed",
                        format!("{n}, as `{first}` has"),
                        sequences.to_string(),
                    )));
                }
                _ => {}
            }
            let before = |level| {
                let mut before = feeds[..place].iter().map(|&(id, _)| id);
                let name =
                    before.find(|&id| self.program.spec(id).is_ok_and(|spec| spec.lod.contains(&level)));
                name.map_or("another feed", |id| &self.program.var(id).name)
            };
            bind_levels(&mut self.kept.levels, spec, value.lod(), numbers, before).map_err(wrong)?;
        }
        let missing = self
            .plan
            .slots
            .iter()
            .map(|s| s.var)
            .find(|&v| self.plan.program.var(v).role == VarRole::Feed && !self.fed[v.0 as usize]);
        if let Some(var) = missing {
            let name = &self.program.var(var).name;
            return Err(Error::of(ErrorKind::Program, "feeds", "a value for each", "none for this one")
                .variable(name));
        }
        Ok(batch.map_or(0, |(n, _)| n))
    }

    /// Checks and binds the feeds of a run and copies their values; returns the number of sequences.
    pub(crate) fn bind_feeds(&mut self, run: &Run<'_>) -> Result<usize> {
        let batch = self.check_feeds(run.feeds, run.numbers)?;
        self.kept.batch = batch;
        for (what, of_each) in [("numbers", run.numbers), ("places", run.places)] {
            if !of_each.is_empty() && of_each.len() != batch {
                let what = format!("{what} of the sequences");
                return Err(Error::new(what, batch.to_string(), of_each.len().to_string()));
            }
        }
        for &(id, value) in run.feeds {
            let Some(slot) = self.plan.of_var[id.0 as usize] else { continue };
            let slot = &self.plan.slots[slot];
            let dense = match value.storage() {
                Storage::Dense(dense) => dense,
                Storage::SelectedRows(rows) => {
                    if let Some(pool) = slot.pool {
                        self.pool[pool] = row_buffer(rows)?;
                    }
                    continue;
                }
                // Described and checked; no operator has a kernel for them yet, so nothing reads them.
                Storage::Csr(_) | Storage::Coo(_) => continue,
            };
            self.arena.reserve(slot.buffer, dense.len());
            let extent = Extent2 { rows: 1, width: dense.len(), stride: dense.len() };
            let region = Region { buffer: slot.buffer, extent, ..Default::default() };
            let room = &mut self.workers[0].room;
            let mut lane = self.arena.lane();
            let mut operands = lane.operands(room, &[], &[region]);
            with_element!(dense.dtype(), T => {
                if let Some(to) = operands.write::<T>(0).as_mut().and_then(|v| v.contiguous()) {
                    to.copy_from_slice(dense.as_slice::<T>()?);
                }
            });
        }
        Ok(batch)
    }
}

/// Checks one feed; returns its number of top-level sequences, if its rows are those of the batch.
fn check_feed(spec: &Spec, value: &Variable) -> Result<Option<usize>> {
    if value.storage().kind() != spec.storage || value.dtype() != spec.dtype {
        let got = format!("{} {}", value.dtype(), value.storage().kind());
        return Err(Error::new("feed", format!("{} {}", spec.dtype, spec.storage), got));
    }
    let shape = value.shape();
    let alike = shape.len() == spec.shape.len()
        && shape.iter().zip(&spec.shape).all(|(&n, e)| e.known().is_none_or(|known| known == n));
    if !alike {
        return Err(Error::new("shape of a feed", spec.to_string(), format!("{shape:?}")));
    }
    let levels = value.lod().map_or(0, |lod| lod.levels());
    if levels != spec.lod.len() {
        return Err(Error::new("levels of LoD of a feed", spec.lod.len().to_string(), levels.to_string()));
    }
    Ok(spec.batched().then(|| value.lod().map_or(shape[0], |lod| lod.sequences())))
}

/// Binds the levels of a feed, and checks those that an earlier feed has bound, whose name `before` tells.
fn bind_levels<'a>(
    table: &mut LevelTable,
    spec: &Spec,
    lod: Option<&Arc<Lod>>,
    numbers: &[u64],
    before: impl Fn(LevelId) -> &'a str,
) -> Result<()> {
    let mut part = lod;
    for &level in spec.lod.iter().rev() {
        let Some(lod) = part else { break };
        match table.get(level) {
            Some(known) if Lod::same(Some(known), Some(lod)) => {}
            Some(known) => {
                return Err(other_lengths(known, lod, numbers, before(level)));
            }
            None => table.set(level, Some(lod.clone())),
        }
        part = lod.upper();
    }
    Ok(())
}

/// The error of a feed whose offsets are others than those of the feed `first`, with which it shares its levels: it names
/// the first sequence of another length.
fn other_lengths(known: &Lod, lod: &Lod, numbers: &[u64], first: &str) -> Error {
    let Some((level, i, [expected, got])) = known.first_difference(lod) else {
        return Error::new("LoD of a feed", format!("{known:.8}, as `{first}` has"), format!("{lod:.8}"));
    };
    let top = known.top_of(level, i);
    let part = if level == 0 { String::new() } else { format!("{i} of LoD level {level}, in sequence ") };
    let number = numbers.get(top).map_or_else(String::new, |number| format!(", number {number} in the data"));
    let what = format!("length of sequence {part}{top} of the batch{number}");
    Error::new(what, format!("{expected}, as in `{first}`"), got.to_string())
}
