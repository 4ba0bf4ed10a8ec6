//! A store over the ranks of a world: each rank holds some rows of every value.

use std::collections::BTreeMap;
use std::path::Path;

use super::entry::{Entry, check_ids};
use super::key_value::{Key, KeyValueStore, OfKey};
use super::local::{checked_weight, find};
use super::meeting::{Letter, Letters, MessageReader, Request, id_size, meet};
use super::merge::{merge, parts};
use super::rows_by_part::{FillRow, RowsByPart, filled, part_dims, part_of, rows_of, spread, table_of};
use super::rule::Rule;
use super::saved;
use crate::checkpoint::shard_files;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::parallel::World;
use crate::tensor::{DType, Dense, SelectedRows, Storage};
use crate::with_float;

/// A key-value store over the ranks of a [`World`], in which each rank is a synchronous worker.
///
/// Row r of a value, with the rule's states of row r, is only on rank r modulo the number of ranks. All ranks make the same
/// calls in the same order. If a call fails on one rank, all ranks return an error, and the store is unchanged; the error of a
/// push may be returned by the next call. Ranks send only the rows that a call reads or updates, with their row numbers, even
/// if the value has many more rows.
pub struct WorldStore {
    world: World,
    registry: Registry,
    /// The rows of each value that this rank holds.
    entries: BTreeMap<Key, Entry>,
    shapes: BTreeMap<Key, Vec<usize>>,
    /// The merged gradient of the last push, for the rows of this rank, or the error of the merge. The gradient is
    /// applied once all ranks have merged their rows of the gradient.
    pushed: Option<(Key, Result<Storage>)>,
}

/// The code of a gradient's storage in a message: 0 is dense, 1 is selected rows.
const DENSE: u8 = 0;
const ROWS: u8 = 1;

impl WorldStore {
    /// Makes a store without keys; the operators of the rules must be in `registry`.
    pub fn new(registry: &Registry, world: World) -> Self {
        let (entries, shapes) = (BTreeMap::new(), BTreeMap::new());
        Self { world, registry: registry.clone(), entries, shapes, pushed: None }
    }

    fn part(&self) -> (usize, usize) {
        (self.world.rank(), self.world.size())
    }

    /// Exchanges the messages of a call with all ranks; applies the last pushed gradient if no rank has failed to merge
    /// this gradient.
    fn meet(&mut self, call: Request, key: Option<&Key>, letters: Result<Letters>) -> Result<Vec<Vec<u8>>> {
        let merged = self
            .pushed
            .as_ref()
            .map_or(Ok(()), |(_, merged)| merged.as_ref().map(drop).map_err(Error::clone));
        let (all, apply) = meet(&self.world, (call, key), merged, letters);
        if let Some((key, Ok(gradient))) = self.pushed.take().filter(|_| apply) {
            let entry = find(&self.entries, &key)?;
            if let Err(error) = entry.apply(gradient, entry.next_step()) {
                // The other ranks get this error in the next exchange of messages.
                self.pushed = Some((key.clone(), Err(error.variable(key.to_string()))));
            }
        }
        all
    }

    /// Applies the gradient that was pushed last, if any, after an exchange of messages with all ranks.
    fn settle(&mut self, call: Request) -> Result<()> {
        match self.pushed {
            None => Ok(()),
            Some(_) => self.meet(call, None, Ok(Letters::Same(Letter::new()))).map(drop),
        }
    }

    fn shape(&self, key: &Key) -> Result<&[usize]> {
        find(&self.shapes, key).map(Vec::as_slice)
    }

    fn made(&mut self, key: &Key, (dtype, dims): (DType, &[usize]), rows: Result<Dense>) -> Result<()> {
        let made = rows.and_then(|rows| {
            if self.shapes.contains_key(key) {
                let (expected, got) = ("a new key", "a key that exists");
                return Err(Error::of(ErrorKind::Program, "key of the store", expected, got));
            }
            Entry::new(rows.into(), None, &self.registry, 1)
        });
        self.agree(
            Request::Init,
            key,
            made.as_ref().map(|_| format!("{dtype}{dims:?}")).map_err(Error::clone),
        )?;
        self.entries.insert(key.clone(), made?);
        self.shapes.insert(key.clone(), dims.to_vec());
        Ok(())
    }

    /// Sends `ours`, a description of this rank's call for a key, to the other ranks; returns an error if another rank
    /// has a different description.
    fn agree(&mut self, call: Request, key: &Key, ours: Result<String>) -> Result<()> {
        let mut letter = Letter::new();
        letter.put(ours.as_deref().unwrap_or_default().as_bytes());
        let all =
            self.meet(call, Some(key), ours.as_ref().map(|_| Letters::Same(letter)).map_err(Error::clone))?;
        let ours = ours?;
        for (rank, message) in all.iter().enumerate() {
            let mut theirs = MessageReader::new(message);
            let theirs = theirs.take(theirs.left())?;
            if theirs != ours.as_bytes() {
                let what = format!("key on rank {rank}");
                let expected = format!("{ours}, as on rank {}", self.world.rank());
                return Err(Error::of(ErrorKind::Program, what, expected, String::from_utf8_lossy(theirs)));
            }
        }
        Ok(())
    }

    fn ruled(&mut self, key: &Key, rule: Rule) -> Result<()> {
        self.settle(Request::SetRule)?;
        let fits = find(&self.entries, key).and_then(|entry| {
            if let Some(known) = entry.rule() {
                let what = "rule of the key";
                return Err(Error::of(
                    ErrorKind::Program,
                    what,
                    "none yet",
                    format!("{} already", known.shown()),
                ));
            }
            entry.check_whole()?;
            // The rule is first checked with a value without rows, so that an error is detected before the rows are copied.
            let dims: Vec<usize> =
                entry.dims().iter().enumerate().map(|(i, &n)| if i == 0 { 0 } else { n }).collect();
            Entry::new(Dense::zeros(entry.dtype(), &dims)?.into(), Some(rule.clone()), &self.registry, 1)?;
            Ok(rule.shown())
        });
        self.agree(Request::SetRule, key, fits)?;
        let entry =
            self.entries.remove(key).ok_or_else(|| Error::new("key of the store", "a known key", "none"))?;
        // The old entry is dropped before the new entry is made, so that a large value is not in memory three times.
        let value = entry.whole(None)?;
        drop(entry);
        self.entries.insert(key.clone(), Entry::new(value.into(), Some(rule), &self.registry, 1)?);
        Ok(())
    }

    /// Divides a checked gradient over the ranks: returns the messages to the other ranks, and the rows of this rank.
    fn dealt(&self, gradient: Storage, weight: f64, dims: &[usize]) -> Result<(Vec<Letter>, Storage)> {
        let (rank, ranks) = self.part();
        let (height, _) = table_of(dims);
        let mut letters = vec![Letter::new(); ranks];
        let gradient = match gradient {
            // A single number counts as one row here.
            Storage::Dense(number) if dims.is_empty() && ranks > 1 => number.reshape(&[1])?.into(),
            other => other,
        };
        let others = |r: &usize| *r != rank;
        let Storage::SelectedRows(rows) = &gradient else {
            for r in (0..ranks).filter(others) {
                let letter = &mut letters[r];
                letter.put(&weight.to_le_bytes());
                letter.put(&[DENSE]);
                letter.put_numbers(&part_of(&gradient, r, ranks)?)?;
            }
            let own = if ranks == 1 { gradient } else { part_of(&gradient, rank, ranks)?.into() };
            return Ok((letters, own));
        };
        self.check_height(height)?;
        let dealt = RowsByPart::new(rows.row_ids(), ranks);
        let local = |r: usize| dealt.of(r).iter().map(|&index| rows.row_ids()[index] / ranks as i64);
        for r in (0..ranks).filter(others) {
            let letter = &mut letters[r];
            letter.put(&weight.to_le_bytes());
            letter.put(&[ROWS]);
            letter.put_rows(local(r), height);
            letter.put_numbers(&rows.value().gather_rows(dealt.of(r))?)?;
        }
        let own = SelectedRows::new(
            rows_of(height, rank, ranks),
            local(rank).collect(),
            rows.value().gather_rows(dealt.of(rank))?,
        )?;
        Ok((letters, own.into()))
    }

    /// Returns an error if a table has fewer rows than there are ranks.
    fn check_height(&self, height: usize) -> Result<()> {
        let ranks = self.world.size();
        if height >= ranks {
            return Ok(());
        }
        let expected = format!(
            "at least {ranks} rows, one per rank: use fewer ranks, or dense gradients for a table as small as this one"
        );
        Err(Error::of(ErrorKind::Program, "value that is used row by row", expected, height.to_string()))
    }

    fn give(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()> {
        let dealt = checked_weight(weight).and_then(|()| {
            let (entry, dims) = (find(&self.entries, key)?, self.shape(key)?);
            entry.check_whole()?;
            entry.check_of(&gradient, dims)?;
            self.dealt(gradient, weight, dims)
        });
        let (letters, own) = match dealt {
            Ok((letters, own)) => (Ok(Letters::Each(letters)), Ok(own)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        let all = self.meet(Request::Push, Some(key), letters)?;
        let merged = own.and_then(|own| self.merged(key, &all, own, weight));
        // If the previous gradient could not be applied in this exchange, its error stays in `pushed`, and the other
        // ranks get that error in the next exchange.
        self.pushed.get_or_insert_with(|| (key.clone(), merged.map_err(|e| e.variable(key.to_string()))));
        Ok(())
    }

    /// Merges the gradients that all ranks pushed for the rows of this rank, in the order of the ranks.
    fn merged(&self, key: &Key, all: &[Vec<u8>], own: Storage, weight: f64) -> Result<Storage> {
        let (entry, (height, _)) = (find(&self.entries, key)?, table_of(self.shape(key)?));
        let (mut own, mut gradients) = (Some(own), Vec::with_capacity(all.len()));
        for (rank, message) in all.iter().enumerate() {
            let part = match own.take_if(|_| rank == self.world.rank()) {
                Some(own) => (own, weight),
                None => pushed_rows(MessageReader::new(message), entry, height)?,
            };
            gradients.push(part);
        }
        let merged = merge(parts(entry.merging(), gradients))?;
        entry.check(&merged)?;
        Ok(merged)
    }

    fn whole(&mut self, key: &Key) -> Result<Dense> {
        self.settle(Request::Pull)?;
        let (part, ranks) = (find(&self.entries, key).and_then(|entry| entry.whole(None)), self.world.size());
        let letter = part.as_ref().map_err(Error::clone).and_then(|part| {
            let mut letter = Letter::new();
            if ranks > 1 {
                letter.put_numbers(part)?;
            }
            Ok(Letters::Same(letter))
        });
        let all = self.meet(Request::Pull, Some(key), letter)?;
        let part = part?;
        if ranks == 1 {
            return Ok(part);
        }
        let dims = self.shape(key)?;
        let (mut whole, (_, width)) = (Dense::zeros(part.dtype(), dims)?, table_of(dims));
        with_float!(part.dtype(), T => {
            for (rank, message) in all.iter().enumerate() {
                let theirs;
                let rows = match rank == self.world.rank() {
                    true => &part,
                    false => {
                        theirs = MessageReader::new(message).numbers(part.dtype(), &part_dims(dims, rank, ranks))?;
                        &theirs
                    }
                };
                spread(rows.as_slice::<T>()?, (rank, ranks), width, whole.as_mut_slice::<T>()?);
            }
            Ok::<(), Error>(())
        })?;
        Ok(whole)
    }

    fn rows(&mut self, key: &Key, ids: &[i64]) -> Result<Dense> {
        let (rank, ranks) = self.part();
        let asked = self.shape(key).and_then(|dims| {
            find(&self.entries, key)?.check_whole()?;
            check_ids(ids, dims)?;
            self.check_height(table_of(dims).0)?;
            let (dealt, (height, _)) = (RowsByPart::new(ids, ranks), table_of(dims));
            let mut letters = vec![Letter::new(); ranks];
            for (r, letter) in letters.iter_mut().enumerate().filter(|(r, _)| *r != rank) {
                letter.put_rows(dealt.of(r).iter().map(|&index| ids[index] / ranks as i64), height);
            }
            Ok((dealt, Letters::Each(letters)))
        });
        let (dealt, letters) = match asked {
            Ok((dealt, letters)) => (Ok(dealt), Ok(letters)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        let all = self.meet(Request::AskRows, Some(key), letters)?;
        let (dealt, dims) = (dealt?, self.shape(key)?.to_vec());
        let own: Vec<i64> = dealt.of(rank).iter().map(|&index| ids[index] / ranks as i64).collect();
        let answered = self.answered(key, &all, &own);
        let (letters, own) = match answered {
            Ok((letters, own)) => (Ok(Letters::Each(letters)), Ok(own)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        let all = self.meet(Request::PullRows, Some(key), letters)?;
        let own = own?;
        let shape = |rows: usize| -> Vec<usize> {
            std::iter::once(rows).chain(dims.iter().skip(1).copied()).collect()
        };
        let mut rows = Dense::zeros(own.dtype(), &shape(ids.len()))?;
        let width = rows.width();
        with_float!(own.dtype(), T => {
            let out = rows.as_mut_slice::<T>()?;
            for (r, message) in all.iter().enumerate() {
                let theirs;
                let from = match r == rank {
                    true => &own,
                    false => {
                        theirs = MessageReader::new(message).numbers(own.dtype(), &shape(dealt.of(r).len()))?;
                        &theirs
                    }
                };
                for (&index, row) in dealt.of(r).iter().zip(from.as_slice::<T>()?.chunks_exact(width.max(1))) {
                    out[index * width..(index + 1) * width].copy_from_slice(row);
                }
            }
            Ok::<(), Error>(())
        })?;
        Ok(rows)
    }

    /// Answers the requests for rows that this rank holds: returns one message per rank, and the rows that this rank itself
    /// requested.
    fn answered(&self, key: &Key, all: &[Vec<u8>], own: &[i64]) -> Result<(Vec<Letter>, Dense)> {
        let (entry, (height, _)) = (find(&self.entries, key)?, table_of(self.shape(key)?));
        let mut letters = vec![Letter::new(); all.len()];
        for (rank, (letter, message)) in letters.iter_mut().zip(all).enumerate() {
            if rank != self.world.rank() {
                let mut message = MessageReader::new(message);
                let ids = message.rows(message.left() / id_size(height), height)?;
                letter.put_numbers(&entry.rows(&ids)?)?;
            }
        }
        Ok((letters, entry.rows(own)?))
    }

    fn sums(&mut self, numbers: &[f64]) -> Result<Vec<f64>> {
        let mut letter = Letter::new();
        numbers.iter().for_each(|number| letter.put(&number.to_le_bytes()));
        let all = self.meet(Request::Sum, None, Ok(Letters::Same(letter)))?;
        let mut sums = vec![0.0; numbers.len()];
        for (rank, message) in all.iter().enumerate() {
            let mut message = MessageReader::new(message);
            if message.left() != size_of_val(numbers) {
                let (what, count) =
                    (format!("numbers to add up of rank {rank}"), message.left() / size_of::<f64>());
                let expected = format!("{}, as on rank {}", numbers.len(), self.world.rank());
                return Err(Error::new(what, expected, count.to_string()));
            }
            for sum in &mut sums {
                *sum += f64::from_le_bytes(message.number()?);
            }
        }
        Ok(sums)
    }
}

/// Reads a message of another rank: returns the gradient that the other rank pushed for the rows of this rank, and
/// the weight of the gradient.
fn pushed_rows(mut message: MessageReader<'_>, entry: &Entry, height: usize) -> Result<(Storage, f64)> {
    let (weight, [kind]) = (f64::from_le_bytes(message.number()?), message.number()?);
    if kind == DENSE {
        return Ok((message.numbers(entry.dtype(), entry.dims())?.into(), weight));
    }
    let (rows, width) = table_of(entry.dims());
    let count = message.left() / (id_size(height) + width * entry.dtype().size_of());
    let ids = message.rows(count, height)?;
    let shape: Vec<usize> = std::iter::once(count).chain(entry.dims().iter().skip(1).copied()).collect();
    Ok((SelectedRows::new(rows, ids, message.numbers(entry.dtype(), &shape)?)?.into(), weight))
}

impl KeyValueStore for WorldStore {
    fn init(&mut self, key: &Key, value: Storage) -> Result<()> {
        let (dtype, dims, (rank, ranks)) = (value.dtype(), value.shape().to_vec(), self.part());
        let rows = Entry::check_value(&value).and_then(|()| {
            if ranks == 1 {
                return value.into_dense();
            }
            match value {
                Storage::Dense(number) if dims.is_empty() => {
                    part_of(&number.reshape(&[1])?.into(), rank, ranks)
                }
                other => part_of(&other, rank, ranks),
            }
        });
        self.made(key, (dtype, &dims), rows).of_key(key)
    }

    fn init_rows(&mut self, key: &Key, dtype: DType, shape: &[usize], fill: FillRow<'_>) -> Result<()> {
        let rows = filled((dtype, shape), self.part(), fill);
        self.made(key, (dtype, shape), rows).of_key(key)
    }

    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()> {
        self.ruled(key, rule).of_key(key)
    }

    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()> {
        self.give(key, gradient, weight).of_key(key)
    }

    fn pull(&mut self, key: &Key) -> Result<Dense> {
        self.whole(key).of_key(key)
    }

    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense> {
        self.rows(key, &ids).of_key(key)
    }

    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>> {
        self.sums(numbers).at_caller()
    }

    fn end_round(&mut self) -> Result<()> {
        self.settle(Request::EndRound).at_caller()
    }

    fn save(&mut self, path: &Path) -> Result<()> {
        self.saved(path).at_caller()
    }

    fn restore(&mut self, path: &Path) -> Result<()> {
        self.restored(path).at_caller()
    }
}

impl WorldStore {
    /// Writes the rows of this rank to a file beside `path`; rank 0 then writes the index file at `path`.
    fn saved(&mut self, path: &Path) -> Result<()> {
        self.settle(Request::Save)?;
        let (rank, ranks) = self.part();
        let (entries, registry) = (&self.entries, &self.registry);
        if ranks == 1 {
            saved::save(entries, registry, path)?;
            shard_files::clear(path, None);
            return Ok(());
        }
        // Rank 0 chooses one of two names for the new rank files, so that the rank files of the existing set stay until the new
        // set is complete.
        let letters = shard_files::next_name(path).map(|name| {
            let mut letter = Letter::new();
            letter.put(&[name]);
            Letters::Same(letter)
        });
        let all = self.meet(Request::Save, None, letters)?;
        let [name] = all.first().map_or(Ok([0]), |first| MessageReader::new(first).number())?;
        let shard = shard_files::path(path, name, (rank, ranks))?;
        let written = shard_files::check(&shard)
            .and_then(|()| saved::save(&self.entries, &self.registry, &shard))
            .and_then(|()| shard_files::checksum(&shard));
        let letters = written.map(|sum| {
            let mut letter = Letter::new();
            letter.put(&sum.to_le_bytes());
            Letters::Same(letter)
        });
        let all = self.meet(Request::Save, None, letters)?;
        let sums = all.iter().map(|one| MessageReader::new(one).number().map(u64::from_le_bytes));
        let done = sums.collect::<Result<Vec<u64>>>().and_then(|sums| match rank {
            0 => shard_files::write(path, name, sums),
            _ => Ok(()),
        });
        self.meet(Request::Save, None, done.map(|()| Letters::Same(Letter::new()))).map(drop)
    }

    fn restored(&mut self, path: &Path) -> Result<()> {
        // If all ranks can read their files, a gradient that was pushed but not applied is dropped together with the old
        // values.
        let pushed = self.pushed.take();
        let restored = saved::restore(&self.entries, &self.shapes, &self.registry, (1, self.part()), path);
        let (letters, restored) = match restored {
            Ok(entries) => (Ok(Letters::Same(Letter::new())), Ok(entries)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        if let Err(error) = self.meet(Request::Restore, None, letters) {
            self.pushed = pushed;
            return Err(error);
        }
        self.entries = restored?;
        Ok(())
    }
}
