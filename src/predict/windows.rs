//! Inference of long sequences in windows of rows: the memory of intermediate values does not grow with the length of
//! the sequences.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::executor::{Executor, Run, Scope, Threads};
use crate::lod::Lod;
use crate::on_data::zeros;
use crate::operator::{LevelId, Registry, VarId};
use crate::program::{Program, WindowPass, WindowProgram, WindowState};
use crate::tensor::{Variable, with_element};

/// A compiled program that infers in [windows](Program::streamed).
pub(super) struct Windows {
    level: LevelId,
    passes: Vec<Pass>,
    /// The program that computes the initial states before the first window; `None` if all states start from zeros.
    starts: Option<Executor>,
    /// The program that runs after all passes, and its outputs; `None` if the passes compute all requested outputs.
    rest: Option<(Executor, Vec<VarId>)>,
}

/// A compiled pass, which runs over all windows, forward or from the end.
struct Pass {
    windowed: WindowPass,
    executor: Executor,
}

impl Windows {
    /// Compiles the parts of a program that compute `outputs` in windows.
    ///
    /// # Errors
    /// If the program cannot run in windows.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        outputs: &[VarId],
        threads: &Threads,
    ) -> Result<Self> {
        let WindowProgram { level, passes, rest } = program.streamed(registry, outputs)?;
        let first = passes.iter().flat_map(|pass| &pass.carried).filter_map(|c| c.start);
        let first: Vec<VarId> = unique(first);
        let starts = (!first.is_empty())
            .then(|| Executor::on(program.inference(&first)?, registry, &first, Threads::new(1)?))
            .transpose()?;
        let of_rows = |id: &VarId| passes.iter().any(|pass| pass.rows.contains(id));
        let at_last = unique(outputs.iter().copied().filter(|id| !of_rows(id)));
        let rest = match at_last.is_empty() {
            true => None,
            false => Some((Executor::on(rest, registry, &at_last, threads.clone())?, at_last)),
        };
        let compiled = |windowed: WindowPass| {
            let left = windowed.carried.iter().map(|c| c.left);
            let wanted = unique(windowed.rows.iter().chain(&windowed.reached).copied().chain(left));
            let executor = Executor::on(windowed.program.clone(), registry, &wanted, threads.clone())?;
            Ok(Pass { executor, windowed })
        };
        Ok(Self { level, passes: passes.into_iter().map(compiled).collect::<Result<_>>()?, starts, rest })
    }

    pub(super) fn bytes(&self) -> usize {
        let passes = self.passes.iter().map(|pass| pass.executor.bytes());
        let others = self.starts.iter().chain(self.rest.iter().map(|(executor, _)| executor));
        passes.sum::<usize>() + others.map(Executor::bytes).sum::<usize>()
    }

    /// Returns the values of `outputs` for a batch of checked feeds; a window has at most `most` rows. However, a
    /// window has at least one row of each sequence that has rows left, even if there are more than `most` such
    /// sequences.
    ///
    /// # Errors
    /// If an operator rejects its data.
    #[track_caller]
    pub(super) fn run(
        &mut self,
        scope: &mut Scope,
        feeds: &[(VarId, &Variable)],
        outputs: &[VarId],
        most: usize,
    ) -> Result<Vec<Variable>> {
        let Self { level, passes, starts, rest } = self;
        if let Some(starts) = starts {
            starts.run(scope, &Run::infer(feeds))?;
        }
        let mut known: Vec<(VarId, Variable)> = Vec::new();
        for pass in passes {
            known.extend(pass.run(scope, feeds, *level, starts.as_mut(), most)?);
        }
        if let Some((executor, at_last)) = rest {
            let of_rows = |id: VarId| executor.program().spec(id).is_ok_and(|s| s.lod[..] == [*level]);
            let reached = known.iter().map(|(id, value)| (*id, value));
            let all: Vec<_> = feeds.iter().copied().chain(reached).filter(|&(id, _)| !of_rows(id)).collect();
            executor.run(scope, &Run::infer(&all))?;
            let values = at_last.iter().map(|&id| Ok((id, executor.fetch(id)?)));
            let values: Vec<(VarId, Variable)> = values.collect::<Result<_>>()?;
            known.retain(|(id, _)| !at_last.contains(id));
            known.extend(values);
        }
        let mut left = outputs;
        let mut values = Vec::with_capacity(outputs.len());
        while let Some((id, later)) = left.split_first() {
            let at = known.iter().position(|(known, _)| known == id);
            let at = at.ok_or_else(|| {
                Error::new("output of windows", "an output that the windows compute", "another output")
            })?;
            // An output that is requested twice is returned twice.
            values.push(if later.contains(id) { known[at].1.clone() } else { known.swap_remove(at).1 });
            left = later;
        }
        Ok(values)
    }
}

impl Pass {
    /// Runs this pass over all windows; returns the outputs with one row per input row ([`WindowPass::rows`]), and the values
    /// after the last window ([`WindowPass::reached`]).
    #[track_caller]
    fn run(
        &mut self,
        scope: &mut Scope,
        feeds: &[(VarId, &Variable)],
        level: LevelId,
        mut starts: Option<&mut Executor>,
        most: usize,
    ) -> Result<Vec<(VarId, Variable)>> {
        let Self { windowed: WindowPass { program, from_end, carried, rows, reached }, executor } = self;
        let is_windowed = |id: VarId| program.spec(id).is_ok_and(|spec| spec.lod[..] == [level]);
        let (sequences, others): (Vec<_>, Vec<_>) =
            feeds.iter().copied().partition(|&(id, _)| is_windowed(id));
        let Some(lod) = sequences.first().and_then(|(_, value)| value.lod().cloned()) else {
            return Err(Error::new("feeds of windows", "sequences", "none"));
        };
        let first = |&WindowState { fed, start, .. }: &WindowState| match (start, starts.as_deref_mut()) {
            (Some(start), Some(starts)) => starts.fetch(start),
            _ => zeros(program, fed, lod.sequences(), None),
        };
        let mut handed: Vec<Variable> = carried.iter().map(first).collect::<Result<_>>()?;
        let room = |&id: &VarId| Ok((id, zeros(program, id, lod.rows(), Some(lod.clone()))?));
        let mut whole: Vec<(VarId, Variable)> = rows.iter().map(room).collect::<Result<_>>()?;
        let mut windows = Windowing::new(&lod, *from_end);
        while let Some((places, numbers, part)) = windows.next(most)? {
            let mut fed: Vec<(VarId, Variable)> = Vec::with_capacity(sequences.len());
            for &(id, value) in &sequences {
                let dense = value.storage().as_dense()?.gather_rows(numbers)?;
                fed.push((id, Variable::new(dense, Some(part.clone()))?));
            }
            let own = fed.iter().map(|(id, value)| (*id, value));
            let before = carried.iter().map(|c| c.fed).zip(&handed);
            let all: Vec<(VarId, &Variable)> = own.chain(before).chain(others.iter().copied()).collect();
            executor.run(scope, &Run::infer(&all).places(places))?;
            handed = carried.iter().map(|c| executor.fetch(c.left)).collect::<Result<_>>()?;
            for (id, whole) in &mut whole {
                put_rows(&executor.fetch(*id)?, numbers, whole)?;
            }
        }
        for &id in &*reached {
            whole.push((id, executor.fetch(id)?));
        }
        Ok(whole)
    }
}

/// Returns each id once, in ascending order.
pub(super) fn unique(ids: impl Iterator<Item = VarId>) -> Vec<VarId> {
    ids.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Copies the rows of a window to their positions in the value of the whole batch.
fn put_rows(part: &Variable, numbers: &[usize], whole: &mut Variable) -> Result<()> {
    with_element!(part.dtype(), T => {
        let (from, to) = (part.as_slice::<T>()?, whole.as_mut_slice::<T>()?);
        let width = from.len().checked_div(numbers.len()).unwrap_or(0);
        for (from, &row) in from.chunks_exact(width.max(1)).zip(numbers) {
            to[row * width..(row + 1) * width].copy_from_slice(from);
        }
    });
    Ok(())
}

/// An iterator over the windows of a batch of sequences.
struct Windowing<'a> {
    offsets: &'a [usize],
    from_end: bool,
    /// For each sequence, the range of the rows that no window had yet.
    left: Vec<Range<usize>>,
    begun: bool,
    places: Vec<u64>,
    rows: Vec<usize>,
    lengths: Vec<usize>,
}

/// A window: its start position in each sequence, the batch index of each of its rows, and its LoD.
type Window<'a> = (&'a [u64], &'a [usize], Arc<Lod>);

impl<'a> Windowing<'a> {
    fn new(lod: &'a Lod, from_end: bool) -> Self {
        let offsets = lod.offsets();
        let left = offsets.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let (places, rows, lengths) = (Vec::new(), Vec::new(), Vec::new());
        Self { offsets, from_end, left, begun: false, places, rows, lengths }
    }

    /// Returns the next window; `None` after the last row. For a batch without rows, the first window is empty. The rows of a
    /// window are divided evenly among the sequences; a sequence without rows left has no row in the window.
    fn next(&mut self, most: usize) -> Result<Option<Window<'_>>> {
        let running = self.left.iter().filter(|left| !left.is_empty()).count();
        if std::mem::replace(&mut self.begun, true) && running == 0 {
            return Ok(None);
        }
        let share = (most / running.max(1)).max(1);
        self.places.clear();
        self.rows.clear();
        self.lengths.clear();
        for (left, start) in self.left.iter_mut().zip(self.offsets) {
            let count = left.len().min(share);
            let part =
                if self.from_end { left.end - count..left.end } else { left.start..left.start + count };
            *left = if self.from_end { left.start..part.start } else { part.end..left.end };
            self.places.push((part.start - start) as u64);
            self.lengths.push(count);
            self.rows.extend(part);
        }
        let lod = Lod::from_lengths1(&self.lengths)?;
        Ok(Some((&self.places, &self.rows, lod)))
    }
}
