//! Long sequences in windows: inference in memory that does not grow with their length.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::executor::{Executor, Run, Scope};
use crate::lod::Lod;
use crate::program::{Carried, Program, Registry, Streamed, VarId};
use crate::tensor::{Dense, Variable, with_element};

/// A program that infers in [windows](Program::streamed).
pub(super) struct Windows {
    streamed: Streamed,
    executor: Executor,
    /// Of what the first window is fed.
    starts: Option<Executor>,
}

impl Windows {
    /// Of the part of a program that computes `outputs`.
    ///
    /// # Errors
    /// If it cannot be run in windows.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        outputs: &[VarId],
        threads: usize,
    ) -> Result<Self> {
        let streamed = program.streamed(registry, outputs)?;
        let mut wanted: Vec<VarId> =
            outputs.iter().copied().chain(streamed.carried.iter().map(|c| c.left)).collect();
        wanted.sort();
        wanted.dedup();
        let executor = Executor::new(&streamed.program, registry, &wanted, threads)?;
        let first: Vec<VarId> = streamed.carried.iter().filter_map(|c| c.start).collect();
        let starts = (!first.is_empty())
            .then(|| Executor::new(&program.inference(&first)?, registry, &first, 1))
            .transpose()?;
        Ok(Self { streamed, executor, starts })
    }

    /// The values of `outputs` for a batch whose feeds are known to fit, with at most `most` rows at once (one of each
    /// sequence that has some left, where those are more).
    ///
    /// # Errors
    /// Data that an operator refuses.
    pub(super) fn run(
        &mut self,
        scope: &mut Scope,
        feeds: &[(VarId, &Variable)],
        outputs: &[VarId],
        most: usize,
    ) -> Result<Vec<Variable>> {
        let Self { streamed: Streamed { program, level, carried }, executor, starts } = self;
        let cut = |id: VarId| program.var(id).spec().is_some_and(|spec| spec.lod[..] == [*level]);
        let (rows, others): (Vec<_>, Vec<_>) = feeds.iter().copied().partition(|&(id, _)| cut(id));
        let Some(lod) = rows.first().and_then(|(_, value)| value.lod().cloned()) else {
            return Err(Error::new("feeds of windows", "sequences", "none"));
        };
        if let Some(starts) = starts {
            starts.run(scope, &Run::infer(feeds))?;
        }
        let first = |&Carried { fed, start, .. }: &Carried| match (start, starts.as_mut()) {
            (Some(start), Some(starts)) => starts.fetch(start),
            _ => zeros(program, fed, lod.sequences(), None),
        };
        let mut handed: Vec<Variable> = carried.iter().map(first).collect::<Result<_>>()?;
        let mut whole: Vec<Option<Variable>> = Vec::with_capacity(outputs.len());
        for &id in outputs {
            whole.push(if cut(id) { Some(zeros(program, id, lod.rows(), Some(lod.clone()))?) } else { None });
        }
        let mut windows = Cut::new(&lod);
        while let Some((places, numbers, part)) = windows.next(most)? {
            let mut fed: Vec<(VarId, Variable)> = Vec::with_capacity(rows.len());
            for &(id, value) in &rows {
                let dense = value.storage().as_dense()?.gather_rows(numbers)?;
                fed.push((id, Variable::new(dense, Some(part.clone()))?));
            }
            let own = fed.iter().map(|(id, value)| (*id, value));
            let before = carried.iter().map(|c| c.fed).zip(&handed);
            let all: Vec<(VarId, &Variable)> = own.chain(before).chain(others.iter().copied()).collect();
            executor.run(scope, &Run::infer(&all).places(places))?;
            handed = carried.iter().map(|c| executor.fetch(c.left)).collect::<Result<_>>()?;
            for (&id, whole) in outputs.iter().zip(&mut whole) {
                if let Some(whole) = whole {
                    put_rows(&executor.fetch(id)?, numbers, whole)?;
                }
            }
        }
        outputs.iter().zip(whole).map(|(&id, whole)| whole.map_or_else(|| executor.fetch(id), Ok)).collect()
    }
}

/// A value of a batched variable with so many rows.
fn zeros(program: &Program, id: VarId, rows: usize, lod: Option<Arc<Lod>>) -> Result<Variable> {
    let spec = program.spec(id)?;
    let mut shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(rows)).collect();
    if let Some(first) = shape.first_mut() {
        *first = rows;
    }
    Variable::new(Dense::zeros(spec.dtype, &shape)?, lod)
}

/// Puts the rows of a window where they are in the whole.
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

/// Sequences that are cut into windows.
struct Cut<'a> {
    offsets: &'a [usize],
    /// The first row of each sequence that is still to come.
    next: Vec<usize>,
    begun: bool,
    places: Vec<u64>,
    rows: Vec<usize>,
    lengths: Vec<usize>,
}

/// The place of each sequence's first row, the numbers of the rows in the whole, and their LoD.
type Window<'a> = (&'a [u64], &'a [usize], Arc<Lod>);

impl<'a> Cut<'a> {
    fn new(lod: &'a Lod) -> Self {
        let offsets = lod.offsets();
        let next = offsets[..lod.last_len()].to_vec();
        Self { offsets, next, begun: false, places: Vec::new(), rows: Vec::new(), lengths: Vec::new() }
    }

    /// The next window, the first one even of no row; `None` after the last row. Sequences share its rows evenly; one that has ended has none.
    fn next(&mut self, most: usize) -> Result<Option<Window<'_>>> {
        let ends = &self.offsets[1..];
        let running = self.next.iter().zip(ends).filter(|(next, end)| next < end).count();
        if std::mem::replace(&mut self.begun, true) && running == 0 {
            return Ok(None);
        }
        let share = (most / running.max(1)).max(1);
        self.places.clear();
        self.rows.clear();
        self.lengths.clear();
        for ((next, start), end) in self.next.iter_mut().zip(self.offsets).zip(ends) {
            let stop = next.saturating_add(share).min(*end);
            self.places.push((*next - start) as u64);
            self.lengths.push(stop - *next);
            self.rows.extend(*next..stop);
            *next = stop;
        }
        let lod = Lod::from_lengths1(&self.lengths)?;
        Ok(Some((&self.places, &self.rows, lod)))
    }
}
