//! Feeds: checks the fed values against their specs, binds the levels of sequences, copies the values, and counts a batch.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::Plan;
use crate::executor::run::counts::RowCounts;
use crate::executor::run::machine::Machine;
use crate::executor::run::request::{PlacedFeeds, Run};
use crate::lod::Lod;
use crate::operator::call::DuplicateRows;
use crate::operator::levels::LevelTable;
use crate::operator::{Extent, LevelId, Spec, VarId};
use crate::program::VarRole;
use crate::tensor::{Storage, Variable};

impl Machine {
    /// Checks the feeds of a run, binds their levels and copies their values, except feeds that [`Self::keep_feed`] has already
    /// copied.
    pub(crate) fn bind_feeds(
        &mut self,
        plan: &Plan,
        run: &Run<'_>,
        placed: Option<PlacedFeeds<'_>>,
    ) -> Result<()> {
        let batch = self.check_feeds(plan, run, placed)?;
        self.kept.batch = batch;
        for (what, of_each) in [("numbers", run.numbers), ("places", run.places)] {
            if !of_each.is_empty() && of_each.len() != batch {
                let what = format!("{what} of the sequences");
                return Err(Error::new(what, batch.to_string(), of_each.len().to_string()));
            }
        }
        for &(id, value) in run.feeds {
            if let Some(slot) = plan.of_var[id.0 as usize] {
                self.set_value(&plan.slots[slot], value.storage(), DuplicateRows::Added)?;
            }
        }
        Ok(())
    }

    /// Checks a feed and copies its value. Returns the number of sequences if the feed's rows are rows of the batch; else
    /// `None`.
    pub(crate) fn keep_feed(&mut self, plan: &Plan, id: VarId, value: &Variable) -> Result<Option<usize>> {
        let named = |e: Error| e.variable(&plan.program.var(id).name);
        let sequences = check_feed(plan.program.spec(id)?, value).map_err(named)?;
        self.kept.entries[id.0 as usize] = entries_of(value.storage());
        if let Some(slot) = plan.of_var[id.0 as usize] {
            self.set_value(&plan.slots[slot], value.storage(), DuplicateRows::Added)?;
        }
        Ok(sequences)
    }

    /// Checks the feeds of a batch and computes its counts.
    pub(crate) fn counts_for(
        &mut self,
        plan: &Plan,
        feeds: &[(VarId, &Variable)],
        counts: &mut RowCounts,
    ) -> Result<()> {
        self.kept.batch = self.check_feeds(plan, &Run::infer(feeds), None)?;
        self.kept.infer_levels(plan);
        counts.pools.clear();
        counts.known = self.kept.source_of_batch().fill(&plan.needs, &mut counts.values);
        self.kept.set_aside(plan);
        self.kept.levels.clear();
        Ok(())
    }

    /// Computes the counts of the last run.
    pub(crate) fn counts(&self, plan: &Plan) -> RowCounts {
        let mut counts = RowCounts::default();
        counts.known = self.kept.source().fill(&plan.needs, &mut counts.values);
        self.pool_bytes(&mut counts.pools);
        counts
    }

    /// Checks all feeds against their specs, binds their levels, and returns the number of sequences in the batch.
    fn check_feeds(&mut self, plan: &Plan, run: &Run<'_>, placed: Option<PlacedFeeds<'_>>) -> Result<usize> {
        let (program, &Run { feeds, numbers, .. }) = (&plan.program, run);
        self.fed.fill(false);
        self.kept.set_aside(plan);
        self.kept.levels.clear();
        let mut batch: Option<(usize, VarId)> = None;
        for (index, &(id, value)) in feeds.iter().enumerate() {
            let known = (id.0 as usize) < self.fed.len() && program.var(id).role == VarRole::Feed;
            if !known {
                let got = program.called(id);
                return Err(Error::of(ErrorKind::Program, "feed", "a feed of the program", got));
            }
            let var = program.var(id);
            let wrong = |e: Error| e.variable(&var.name);
            if std::mem::replace(&mut self.fed[id.0 as usize], true) {
                return Err(wrong(Error::of(
                    ErrorKind::Program,
                    "feed",
                    "each feed once",
                    "this feed twice",
                )));
            }
            let spec = program.spec(id)?;
            let sequences = check_feed(spec, value).map_err(wrong)?;
            self.kept.entries[id.0 as usize] = entries_of(value.storage());
            let Some(sequences) = sequences else { continue };
            match batch {
                None => batch = Some((sequences, id)),
                Some((n, first)) if n != sequences => {
                    let expected = format!("{n}, as `{}` has", program.var(first).name);
                    return Err(wrong(Error::new("sequences of a feed", expected, sequences.to_string())));
                }
                _ => {}
            }
            let before = |level| {
                let mut before = feeds[..index].iter().map(|&(id, _)| id);
                let name = before.find(|&id| program.spec(id).is_ok_and(|spec| spec.lod.contains(&level)));
                name.map_or("another feed", |id| &program.var(id).name)
            };
            bind_levels(&mut self.kept.levels, spec, value.lod(), numbers, before).map_err(wrong)?;
        }
        for (id, lod) in placed.iter().flat_map(|placed| placed.feeds) {
            self.fed[id.0 as usize] = true;
            let bound =
                bind_levels(&mut self.kept.levels, program.spec(*id)?, lod.as_ref(), numbers, |_| "another");
            bound.map_err(|e| e.variable(&program.var(*id).name))?;
        }
        let mut slots = plan.slots.iter().map(|s| s.var);
        let missing = slots.find(|&v| program.var(v).role == VarRole::Feed && !self.fed[v.0 as usize]);
        if let Some(var) = missing {
            let name = &program.var(var).name;
            return Err(
                Error::of(ErrorKind::Program, "feeds", "a value for this variable", "none").variable(name)
            );
        }
        Ok(placed.map_or_else(|| batch.map_or(0, |(n, _)| n), |placed| placed.batch))
    }
}

/// Returns the number of entries, or of selected rows, that a value stores; 0 for a dense value.
fn entries_of(value: &Storage) -> usize {
    match value {
        Storage::Dense(_) => 0,
        Storage::SelectedRows(rows) => rows.row_ids().len(),
        Storage::Csr(csr) => csr.indices().len(),
        Storage::Coo(coo) => coo.coordinates().nrows(),
    }
}

/// Checks a feed. If the rows of the feed are rows of the batch, returns the number of the feed's top-level sequences; else
/// `None`.
fn check_feed(spec: &Spec, value: &Variable) -> Result<Option<usize>> {
    if value.storage().kind() != spec.storage || value.dtype() != spec.dtype {
        let got = format!("{} {}", value.dtype(), value.storage().kind());
        return Err(Error::new("feed", format!("{} {}", spec.dtype, spec.storage), got));
    }
    let shape = value.shape();
    let fits = |(&n, extent): (&usize, &Extent)| extent.known().is_none_or(|known| known == n);
    let alike = shape.len() == spec.shape.len() && shape.iter().zip(&spec.shape).all(fits);
    // A feed with one number per row may have shape `[rows]` instead of `[rows, 1]`.
    let one_a_row =
        spec.batched() && spec.width() == 1 && matches!(shape, [_] | [_, 1]) && spec.shape.len() <= 2;
    if !alike && !one_a_row {
        return Err(Error::new("shape of a feed", spec.to_string(), format!("{shape:?}")));
    }
    let levels = value.lod().map_or(0, |lod| lod.levels());
    if levels != spec.lod.len() {
        return Err(Error::new("levels of LoD of a feed", spec.lod.len().to_string(), levels.to_string()));
    }
    Ok(spec.batched().then(|| value.lod().map_or(shape[0], |lod| lod.sequences())))
}

/// Binds the levels of a feed; a level that an earlier feed has bound must have equal offsets. `before` returns the
/// name of the earlier feed.
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

/// Returns the error about a feed whose offsets differ from the offsets of the feed `first`. The two feeds must have
/// equal offsets, because they share their levels. The message names the first sequence whose lengths differ.
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
