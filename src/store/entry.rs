//! The entry of a key in a store: a value whose rows are divided over shards, each of which has a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::merge::{Merging, checked_finite};
use super::rows_by_part::{RowsByPart, part_of, rows_of, spread};
use super::rule::Rule;
use super::shard::Shard;
use crate::error::{Error, Result};
use crate::operator::Registry;
use crate::tensor::{DType, Dense, SelectedRows, Storage, StorageKind};
use crate::with_float;

/// The value of a key, with its update rule, divided into shards.
///
/// With n shards, row r of the value is row r / n of shard r mod n. Rows with close indices, such as the rows of the most
/// frequent words, are therefore in different shards, which threads lock separately. A value that is a vector or a single
/// number has only one shard.
pub(super) struct Entry {
    dtype: DType,
    dims: Vec<usize>,
    rule: Option<Rule>,
    /// The number of gradients that were applied to the value.
    steps: AtomicU64,
    /// The error for a gradient of selected rows; `None` if the rule accepts selected rows.
    no_rows: Option<Error>,
    /// Whether the rows that a gradient does not select get pending moves: changes that are applied later.
    owes: bool,
    shards: Vec<Mutex<Shard>>,
    /// Whether some gradient was applied only to a part of the rows, because the update failed.
    broken: AtomicBool,
}

/// A guard that marks an entry as broken when the guard is dropped, after an error or a panic in an update.
struct BreakMark<'a>(&'a AtomicBool);

impl Drop for BreakMark<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Entry {
    /// Makes the entry of a value, with the initial state of the rule.
    ///
    /// # Errors
    /// Returns an error if the value is not finite, not f32 or f64, or neither dense nor selected rows; if the rule refuses the
    /// value; if memory is exhausted.
    pub(super) fn new(
        value: Storage,
        rule: Option<Rule>,
        registry: &Registry,
        shards: usize,
    ) -> Result<Self> {
        let (dtype, dims) = (value.dtype(), value.shape().to_vec());
        Self::check_value(&value)?;
        let adding = Rule::adding();
        let applied = rule.as_ref().unwrap_or(&adding);
        // A single number has no rows, so a gradient of the number is never selected rows.
        let (mut no_rows, mut owes) = (None, false);
        if !dims.is_empty() {
            match applied.program(registry, (dtype, &dims), StorageKind::SelectedRows) {
                Ok((update, _)) => owes = applied.settling(&update, registry)?.is_some(),
                Err(error) => no_rows = Some(error),
            }
        }
        let count = if dims.len() < 2 { 1 } else { shards.min(dims[0]).max(1) };
        let shards = match count {
            1 => vec![Mutex::new(Shard::new(value.into_dense()?, applied, registry)?)],
            _ => {
                let shard = |s| Shard::new(part_of(&value, s, count)?, applied, registry).map(Mutex::new);
                (0..count).map(shard).collect::<Result<_>>()?
            }
        };
        let (steps, broken) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { dtype, dims, rule, steps, no_rows, owes, shards, broken })
    }

    /// Checks that a value is dense or selected rows of finite f32 or f64.
    pub(super) fn check_value(value: &Storage) -> Result<()> {
        if !matches!(value.kind(), StorageKind::Dense | StorageKind::SelectedRows)
            || !matches!(value.dtype(), DType::F32 | DType::F64)
        {
            let (expected, got) =
                ("f32 or f64, dense or selected rows", format!("{} {}", value.dtype(), value.kind()));
            return Err(Error::new("value of a key", expected, got));
        }
        checked_finite(value, "value of a key")
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn dims(&self) -> &[usize] {
        &self.dims
    }

    pub(super) fn rule(&self) -> Option<&Rule> {
        self.rule.as_ref()
    }

    /// Returns how the gradients of several workers are merged: by their weighted mean if the key has a rule, else by their
    /// negated sum.
    pub(super) fn merging(&self) -> Merging {
        if self.rule.is_some() { Merging::Mean } else { Merging::Descended }
    }

    /// Returns the step number of the next gradient, and increments the counter of applied gradients.
    pub(super) fn next_step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Returns an error if a gradient was applied only to a part of the rows.
    pub(super) fn check_whole(&self) -> Result<()> {
        if !self.broken.load(Ordering::SeqCst) {
            return Ok(());
        }
        let got = "a value that a push left half updated, since its update failed or its worker died: restore the store";
        Err(Error::new("value of a key", "a complete value", got))
    }

    /// Checks a gradient of the entry's rows before any part of the gradient is applied.
    ///
    /// # Errors
    /// Returns an error if the gradient is neither dense nor selected rows, does not have the dtype and shape of the value, or
    /// is not finite.
    pub(super) fn check(&self, gradient: &Storage) -> Result<()> {
        let (kind, dtype, shape) = (gradient.kind(), gradient.dtype(), gradient.shape());
        let stored = matches!(kind, StorageKind::Dense | StorageKind::SelectedRows);
        if !stored || (dtype, shape) != (self.dtype, &*self.dims) {
            let expected = format!("dense or selected rows, {}{:?}", self.dtype, self.dims);
            return Err(Error::new("gradient", expected, format!("{kind} {dtype}{shape:?}")));
        }
        if kind == StorageKind::SelectedRows
            && let Some(refused) = &self.no_rows
        {
            return Err(refused.clone());
        }
        checked_finite(gradient, "gradient")
    }

    fn shard(&self, s: usize) -> MutexGuard<'_, Shard> {
        // A poisoned lock does not mean that a shard is inconsistent; the field `broken` records an inconsistent shard.
        self.shards[s].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks shard `s` and applies pending moves of its rows by calling `settle`; returns the locked shard.
    fn settled(
        &self,
        s: usize,
        settle: impl FnOnce(&mut Shard) -> Result<()>,
    ) -> Result<MutexGuard<'_, Shard>> {
        let mut shard = self.shard(s);
        let breaks = BreakMark(&self.broken);
        settle(&mut shard)?;
        std::mem::forget(breaks);
        Ok(shard)
    }

    /// Updates the value by a gradient that was checked, and in which each row number occurs once.
    ///
    /// # Errors
    /// Returns an error if the rule's operator fails; the value is then half updated, and the entry is marked as broken.
    pub(super) fn apply(&self, gradient: Storage, step: u64) -> Result<()> {
        self.check_whole()?;
        let breaks = BreakMark(&self.broken);
        self.apply_to_shards(gradient, step)?;
        std::mem::forget(breaks);
        Ok(())
    }

    fn apply_to_shards(&self, gradient: Storage, step: u64) -> Result<()> {
        let (count, height) = (self.shards.len(), self.dims.first().copied().unwrap_or(1));
        if count == 1 {
            return self.shard(0).apply(gradient, step);
        }
        let dealt = match &gradient {
            Storage::SelectedRows(rows) => Some(RowsByPart::new(rows.row_ids(), count)),
            _ => None,
        };
        // Consecutive pushes begin at different shards, so that simultaneous pushes do not all wait for the first shard.
        for s in (0..count).map(|i| (step as usize + i) % count) {
            let part = match (&dealt, &gradient) {
                (Some(dealt), Storage::SelectedRows(rows)) => {
                    let places = dealt.of(s);
                    if places.is_empty() && !self.owes {
                        continue;
                    }
                    let ids = places.iter().map(|&index| rows.row_ids()[index] / count as i64).collect();
                    SelectedRows::new(rows_of(height, s, count), ids, rows.value().gather_rows(places)?)?
                        .into()
                }
                _ => part_of(&gradient, s, count)?.into(),
            };
            self.shard(s).apply(part, step)?;
        }
        Ok(())
    }

    /// Returns the whole value or, if `state` is a slot of the rule, the whole state in this slot.
    ///
    /// # Errors
    /// Returns an error if the entry is broken, or memory is exhausted.
    pub(super) fn whole(&self, state: Option<&str>) -> Result<Dense> {
        self.check_whole()?;
        let mut whole = Dense::zeros(self.dtype, &self.dims)?;
        let (width, count) = (whole.width(), self.shards.len());
        with_float!(self.dtype, T => {
            let out = whole.as_mut_slice::<T>()?;
            for s in 0..count {
                let mut shard = self.settled(s, Shard::settle_all)?;
                shard.read::<T, _>(state, |numbers| match count {
                    1 => out.copy_from_slice(numbers),
                    _ => spread(numbers, (s, count), width, out),
                })?;
            }
            Ok(())
        })?;
        Ok(whole)
    }

    /// Returns the rows of the value with the row numbers `ids`, one row per number.
    ///
    /// # Errors
    /// Returns an error if a number is not a row number of the value, or the entry is broken.
    pub(super) fn rows(&self, ids: &[i64]) -> Result<Dense> {
        self.check_whole()?;
        check_ids(ids, &self.dims)?;
        let mut shape = self.dims.clone();
        shape[0] = ids.len();
        let mut rows = Dense::zeros(self.dtype, &shape)?;
        let (width, count) = (rows.width(), self.shards.len());
        let dealt = RowsByPart::new(ids, count);
        with_float!(self.dtype, T => {
            let out = rows.as_mut_slice::<T>()?;
            for s in (0..count).filter(|&s| !dealt.of(s).is_empty()) {
                let own: Vec<i64> = dealt.of(s).iter().map(|&index| ids[index] / count as i64).collect();
                let mut shard = self.settled(s, |shard| shard.settle(&own))?;
                shard.read::<T, _>(None, |numbers| for &index in dealt.of(s) {
                    let start = ids[index] as usize / count * width;
                    out[index * width..(index + 1) * width].copy_from_slice(&numbers[start..start + width]);
                })?;
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Sets the data that a saved file has besides the value: the states of the rule, each with its slot, and the number of
    /// applied gradients.
    ///
    /// # Errors
    /// Returns an error if the data of a state are not valid for this entry.
    pub(super) fn resume(&mut self, states: Vec<(String, Dense)>, steps: u64) -> Result<()> {
        let count = self.shards.len();
        for (slot, value) in states {
            let value = Storage::from(value);
            for s in 0..count {
                self.shard(s).set(&slot, part_of(&value, s, count)?)?;
            }
        }
        self.steps = AtomicU64::new(steps);
        Ok(())
    }
}

/// Checks that all numbers in `ids` are row numbers of a value with the shape `dims`.
///
/// # Errors
/// Returns an error if a number is not a row number of the value, or if the value is a single number.
fn check_ids(ids: &[i64], dims: &[usize]) -> Result<()> {
    let Some(&height) = dims.first() else {
        return Err(Error::new("rows of a key", "a value that has rows", "a single number"));
    };
    let outside = |id: i64| usize::try_from(id).map_or(true, |id| id >= height);
    match ids.iter().enumerate().find(|(_, id)| outside(**id)) {
        None => Ok(()),
        Some((index, id)) => {
            let expected = format!("0 or more and below the height of {height}");
            Err(Error::new(format!("row at place {index}"), expected, id.to_string()))
        }
    }
}
