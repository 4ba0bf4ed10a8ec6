//! Rows that are computed once per distinct entry, such as a word with its characters, and kept for the next batches.

use std::collections::HashMap;

use crate::data::WordHashing;
use crate::error::{Error, Result};
use crate::executor::{Executor, Run, Scope, Threads};
use crate::lod::Lod;
use crate::operator::{Precision, Registry, VarId};
use crate::program::{LocalRows, Program};
use crate::reserve;
use crate::tensor::{DType, Dense, Variable};

/// The maximum size of the kept rows in bytes: 16,384 words for an LSTM of 128.
const MOST: usize = 1 << 25;
/// The maximum size of the ids of all entries in bytes.
const IDS: usize = 1 << 23;
/// The maximum number of entries that are computed at once, so that their rows need little memory beside the tables.
const CHUNK: usize = 1 << 10;
/// The number of entries after which it shows whether entries come again.
const ENOUGH: usize = 1 << 15;

/// A compiled program in two parts: the rows of distinct entries, and the rest of the program.
pub(super) struct KnownRows {
    feeds: Vec<VarId>,
    index: VarId,
    /// The variables of `first` whose rows are kept, each with the name and the width of its table in the scope.
    tables: Vec<(VarId, String, usize)>,
    /// The parameters and the tables.
    scope: Scope,
    /// The number of rows of each table.
    height: usize,
    first: Executor,
    rest: Executor,
    /// The row of each known entry in the tables, by the entry's ids.
    known: HashMap<Box<[i64]>, i64, WordHashing>,
    /// The number of ids of all known entries.
    ids: usize,
    /// The number of entries of all batches so far, and of those whose rows were computed.
    entries: [usize; 2],
}

impl KnownRows {
    /// The maximum size in bytes of the tables, and of the known entries with their hash table.
    pub(super) const BYTES: usize = MOST + 2 * IDS;

    /// Compiles both parts of a program, and adds the tables to a scope with the parameters; `None` if the program cannot be divided.
    pub(super) fn new(
        program: Program,
        registry: &Registry,
        outputs: &[VarId],
        threads: &Threads,
        mut scope: Scope,
    ) -> Result<Option<Self>> {
        let numbers = MOST / size_of::<f32>();
        let parts = match program.unit.precision() {
            Precision::F32 => program.local_rows(registry, outputs, numbers)?,
            _ => None,
        };
        let Some(LocalRows { feeds, first, rest, index, tables }) = parts else { return Ok(None) };
        let (mut named, mut height) = (Vec::new(), 0);
        for (id, table, width) in tables {
            height = rest.spec(table)?.rows().known().unwrap_or(0);
            let name = rest.var(table).name.clone();
            scope.set_of(&rest, &name, Dense::zeros(DType::F32, &[height, width])?.into())?;
            named.push((id, name, width));
        }
        let rows: Vec<VarId> = named.iter().map(|(id, ..)| *id).collect();
        let first = Executor::on(first, registry, &rows, threads.clone())?;
        let rest = Executor::on(rest, registry, outputs, threads.clone())?;
        Ok(Some(Self {
            feeds,
            index,
            tables: named,
            scope,
            height,
            first,
            rest,
            known: HashMap::default(),
            ids: 0,
            entries: [0; 2],
        }))
    }

    /// Returns the size of all buffers in bytes, without the tables, whose size is fixed.
    pub(super) fn bytes(&self) -> usize {
        self.first.bytes() + self.rest.bytes()
    }

    /// Returns whether at least half of the entries so far were known before, or too few were seen to tell.
    pub(super) fn saves(&self) -> bool {
        let [all, computed] = self.entries;
        all < ENOUGH || computed < all / 2
    }

    /// Forgets all entries but the first `count`.
    fn forget(&mut self, count: usize) {
        self.known.retain(|_, row| (*row as usize) < count);
        self.ids = self.known.keys().map(|ids| ids.len()).sum();
    }

    /// Returns the values of `wanted`; `None` if the batch has too many distinct entries.
    ///
    /// # Errors
    /// Fails if an operator rejects its data. The error may name a row of the distinct entries instead of a row of the batch.
    pub(super) fn run(
        &mut self,
        values: &[(VarId, &Variable)],
        wanted: &[VarId],
    ) -> Result<Option<Vec<Variable>>> {
        let before = self.known.len();
        let mut index = self.look_up(values).inspect_err(|_| self.forget(before))?;
        // If the tables are full, the first half of the entries is kept: frequent entries come early.
        for kept in [before / 2, 0] {
            if index.is_none() && kept < before {
                self.forget(kept);
                index = self.look_up(values).inspect_err(|_| self.forget(kept))?;
            }
        }
        let Some(index) = index else {
            self.forget(0);
            return Ok(None);
        };
        let values: Vec<_> = values.iter().copied().chain([(self.index, &index)]).collect();
        self.rest.run(&mut self.scope, &Run::infer(&values))?;
        wanted.iter().map(|&id| self.rest.fetch(id)).collect::<Result<_>>().map(Some)
    }

    /// Returns the row of each entry of a batch in the tables; computes the rows of entries that are not known yet. Returns `None`
    /// if the tables are full.
    fn look_up<'a>(&mut self, values: &[(VarId, &'a Variable)]) -> Result<Option<Variable>> {
        let wrong = || Error::new("entries of a batch", "an entry of each feed", "another number");
        let (what, mut fed, mut outer) = ("entries of a batch", Vec::new(), None);
        for id in &self.feeds {
            let (_, value) = values.iter().find(|(var, _)| var == id).ok_or_else(wrong)?;
            let lod = value.lod().ok_or_else(wrong)?;
            let inner = lod.upper().map(|_| lod.offsets());
            outer.get_or_insert_with(|| lod.upper().unwrap_or(lod).clone());
            fed.push((value.as_slice::<i64>()?, inner));
        }
        let outer = outer.ok_or_else(wrong)?;
        if fed.iter().any(|(ids, inner)| inner.map_or(ids.len(), |ends| ends.len() - 1) != outer.rows()) {
            return Err(wrong());
        }
        let (before, mut key) = (self.known.len(), Vec::new());
        let mut index = reserve::vector(outer.rows(), what)?;
        // For each feed: the ids of the new entries, and the length of each entry.
        let mut new = vec![(Vec::new(), Vec::new()); fed.len()];
        for entry in 0..outer.rows() {
            let ids = |(all, inner): &(&'a [i64], Option<&[usize]>)| match inner {
                Some(ends) => &all[ends[entry]..ends[entry + 1]],
                None => &all[entry..=entry],
            };
            key.clear();
            for ids in fed.iter().map(ids) {
                reserve::items(&mut key, 1 + ids.len(), what)?;
                key.push(ids.len() as i64);
                key.extend_from_slice(ids);
            }
            let next = self.known.len() as i64;
            let known = self.known.get(&key[..]).copied();
            if known.is_none() {
                self.ids += key.len();
                if self.known.len() == self.height || self.ids > IDS / size_of::<i64>() {
                    // The time of this look-up saves nothing.
                    self.entries.iter_mut().for_each(|count| *count += outer.rows());
                    return Ok(None);
                }
                for ((all, lengths), ids) in new.iter_mut().zip(fed.iter().map(ids)) {
                    reserve::items(all, ids.len(), what)?;
                    all.extend_from_slice(ids);
                    lengths.push(ids.len());
                }
                self.known.insert(key.as_slice().into(), next);
            }
            index.push(known.unwrap_or(next));
        }
        let count = self.known.len() - before;
        self.entries = [self.entries[0] + index.len(), self.entries[1] + count];
        let mut starts = vec![0; fed.len()];
        for at in (0..count).step_by(CHUNK) {
            let some = CHUNK.min(count - at);
            let entries =
                new.iter().zip(&fed).zip(&mut starts).map(|(((ids, lengths), (_, inner)), start)| {
                    let lengths = &lengths[at..at + some];
                    let ids = &ids[*start..*start + lengths.iter().sum::<usize>()];
                    *start += ids.len();
                    let inner = inner.map(|_| lengths.to_vec());
                    let lod = Lod::from_lengths(&[vec![some]].into_iter().chain(inner).collect::<Vec<_>>())?;
                    Variable::new(Dense::from_vec(&[ids.len()], ids.to_vec())?, Some(lod))
                });
            let entries = entries.collect::<Result<Vec<_>>>()?;
            let entries: Vec<_> = self.feeds.iter().copied().zip(&entries).collect();
            self.first.run(&mut self.scope, &Run::infer(&entries))?;
            for (id, table, width) in &self.tables {
                let (scope, first_row) = (&mut self.scope, (before + at) * width);
                self.first.numbers::<f32, _>(*id, |rows| {
                    scope.write::<f32, _>(table, |all| all[first_row..][..rows.len()].copy_from_slice(rows))
                })??;
            }
        }
        Variable::new(Dense::from_vec(&[index.len()], index)?, Some(outer)).map(Some)
    }
}
