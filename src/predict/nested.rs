//! Nested sequences that occur again: the rows that depend on one inner sequence alone, such as the states of a word's
//! characters, are computed once per distinct sequence and kept for the next batches.

use std::collections::HashMap;

use crate::error::Result;
use crate::executor::{Executor, Run, Scope, Threads};
use crate::lod::Lod;
use crate::operator::{Registry, VarId};
use crate::program::{NestedProgram, Program};
use crate::reserve;
use crate::tensor::{Dense, Variable};

/// The maximum size in bytes of the rows that are kept from batch to batch.
const MOST: usize = 1 << 22;
/// The memory of a map's entry beside its ids: a pointer, a length, an index, and the header of the allocation.
const ENTRY: usize = 48;

/// A compiled program in two parts: the rows of distinct inner sequences, and the rest of the program.
pub(super) struct KnownSequences {
    feed: VarId,
    /// The variables with one row per inner sequence, and the width of each.
    made: Vec<(VarId, usize)>,
    first: Executor,
    rest: Executor,
    /// The index of each known sequence, by its ids.
    known: HashMap<Box<[i64]>, usize>,
    /// The rows of the known sequences, for each variable of `made`.
    rows: Vec<Vec<f32>>,
    /// The number of ids in `known`.
    ids: usize,
}

impl KnownSequences {
    /// Compiles both parts of a program; `None` if the program has no nested feed, or cannot be divided.
    pub(super) fn new(
        program: &Program,
        registry: &Registry,
        outputs: &[VarId],
        threads: &Threads,
    ) -> Result<Option<Self>> {
        let Some(NestedProgram { feed, made, first, rest }) = program.nested(registry, outputs)? else {
            return Ok(None);
        };
        let first = Executor::on(&first, registry, &made, threads.clone())?;
        let rest = Executor::on(&rest, registry, outputs, threads.clone())?;
        let rows = vec![Vec::new(); made.len()];
        let made = made.into_iter().map(|id| Ok((id, program.spec(id)?.width()))).collect::<Result<_>>()?;
        Ok(Some(Self { feed, made, first, rest, known: HashMap::new(), rows, ids: 0 }))
    }

    /// Returns the size of all buffers in bytes, without the known rows: their number does not depend on the next batch.
    pub(super) fn bytes(&self) -> usize {
        self.first.bytes() + self.rest.bytes()
    }

    fn known_bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(|rows| size_of::<f32>() * rows.capacity()).sum();
        rows + self.ids * size_of::<i64>() + self.known.capacity() * ENTRY
    }

    /// Gives the memory of all buffers back to the system, and forgets the known sequences.
    pub(super) fn release(&mut self) {
        self.first.release();
        self.rest.release();
        self.forget();
    }

    fn forget(&mut self) {
        (self.known, self.ids) = (HashMap::new(), 0);
        self.rows.fill(Vec::new());
    }

    /// Returns the values of `wanted`; `None` if the batch lacks the nested feed.
    ///
    /// # Errors
    /// Fails if an operator rejects its data. The error may name a row of the distinct sequences instead of a row of the batch.
    pub(super) fn run(
        &mut self,
        weights: &mut Scope,
        values: &[(VarId, &Variable)],
        wanted: &[VarId],
    ) -> Result<Option<Vec<Variable>>> {
        let Some((_, fed)) = values.iter().find(|(id, _)| *id == self.feed) else { return Ok(None) };
        if self.known_bytes() > MOST {
            self.forget();
        }
        let made = self.rows_of(weights, fed).inspect_err(|_| self.forget())?;
        let made = self.made.iter().zip(&made).map(|((id, _), value)| (*id, value));
        let values: Vec<(VarId, &Variable)> = values.iter().copied().chain(made).collect();
        self.rest.run(weights, &Run::infer(&values))?;
        wanted.iter().map(|&id| self.rest.fetch(id)).collect::<Result<_>>().map(Some)
    }

    /// Returns the value of each variable of `made` for a batch; computes the rows of sequences that are not known yet.
    fn rows_of(&mut self, weights: &mut Scope, fed: &Variable) -> Result<Vec<Variable>> {
        let Some(lod) = fed.lod() else { return Ok(Vec::new()) };
        let (all, what) = (fed.as_slice::<i64>()?, "inner sequences");
        let mut indices = reserve::vector(lod.last_len(), what)?;
        let (mut new, mut lengths) = (Vec::new(), Vec::new());
        for ends in lod.offsets().windows(2) {
            let ids = &all[ends[0]..ends[1]];
            if let Some(&index) = self.known.get(ids) {
                indices.push(index);
                continue;
            }
            reserve::items(&mut new, ids.len(), what)?;
            reserve::entries(&mut self.known, 1, what)?;
            (new.extend_from_slice(ids), lengths.push(ids.len()));
            indices.push(self.known.len());
            self.known.insert(ids.into(), self.known.len());
            self.ids += ids.len();
        }
        if !lengths.is_empty() {
            let distinct = Lod::from_lengths(&[vec![lengths.len()], lengths])?;
            let fed = Variable::new(Dense::from_vec(&[new.len()], new)?, Some(distinct))?;
            self.first.run(weights, &Run::infer(&[(self.feed, &fed)]))?;
            for ((id, _), rows) in self.made.iter().zip(&mut self.rows) {
                let value = self.first.fetch(*id)?;
                let more = value.as_slice::<f32>()?;
                reserve::items(rows, more.len(), what)?;
                rows.extend_from_slice(more);
            }
        }
        let value = |((_, width), rows): (&(VarId, usize), &Vec<f32>)| {
            let mut numbers = reserve::vector(indices.len() * width, what)?;
            indices.iter().for_each(|at| numbers.extend_from_slice(&rows[at * width..][..*width]));
            Variable::new(Dense::from_vec(&[indices.len(), *width], numbers)?, lod.upper().cloned())
        };
        self.made.iter().zip(&self.rows).map(value).collect()
    }
}
