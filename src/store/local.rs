//! A key-value store in the memory of this process, with workers on several threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::entry::Entry;
use super::key_value::{Key, KeyValueStore, OfKey};
use super::merge::{merge, parts};
use super::rounds::{Consistency, Rounds};
use super::rule::Rule;
use super::saved;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::tensor::{Dense, Storage};

/// The largest number of workers and of shards: no machine has more threads, so a larger number is a mistake.
const MOST: usize = 1024;

/// A key-value store in the memory of this process.
///
/// The rows of a value are divided over shards: row r is in shard r modulo the number of shards. Each shard has a lock, so that
/// many workers push and pull at the same time. A clone of a `LocalStore` refers to the same store.
#[derive(Clone)]
pub struct LocalStore(Arc<StoreState>);

struct StoreState {
    registry: Registry,
    shards: usize,
    /// The write lock is held while keys are added or replaced. The write lock is also held while a file is saved, so
    /// that no key changes until the file has all keys.
    keys: RwLock<BTreeMap<Key, Entry>>,
    /// The rounds of the current workers; the weak reference is empty after all workers have left.
    rounds: Mutex<Weak<Rounds>>,
}

impl LocalStore {
    /// Makes a store without keys; the operators of the rules must be in `registry`. The store divides the rows of a value over
    /// at most `shards` shards.
    ///
    /// # Errors
    /// Returns an error if there are no shards, or more than 1024.
    #[track_caller]
    pub fn new(registry: &Registry, shards: usize) -> Result<Self> {
        if !(1..=MOST).contains(&shards) {
            return Err(Error::new("shards", format!("1 to {MOST}"), shards.to_string()));
        }
        let (registry, keys) = (registry.clone(), RwLock::new(BTreeMap::new()));
        Ok(Self(Arc::new(StoreState { registry, shards, keys, rounds: Mutex::new(Weak::new()) })))
    }

    /// Makes `workers` workers of the store, numbered from 0, which synchronize according to `mode`. A worker that is
    /// dropped, for example because its thread panics, has left the store: workers that would wait for this worker get
    /// an error.
    ///
    /// # Errors
    /// Returns an error if `workers` is 0 or more than 1024, or if some worker of an earlier call has not left.
    #[track_caller]
    pub fn workers(&self, workers: usize, mode: Consistency) -> Result<Vec<LocalWorker>> {
        if !(1..=MOST).contains(&workers) {
            return Err(Error::new("workers", format!("1 to {MOST}"), workers.to_string()));
        }
        let mut known = self.0.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if known.strong_count() > 0 {
            let got = format!("{} workers that still exist", known.strong_count());
            return Err(Error::of(
                ErrorKind::Program,
                "workers of the store",
                "no workers of an earlier call",
                got,
            ));
        }
        let rounds = Arc::new(Rounds::new(workers, mode));
        *known = Arc::downgrade(&rounds);
        let worker = |number| LocalWorker { store: self.0.clone(), rounds: rounds.clone(), number };
        Ok((0..workers).map(worker).collect())
    }
}

impl StoreState {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, Entry>> {
        // The map is consistent even after a panic, since each write is one insertion into the map or one exchange of
        // the map.
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Key, Entry>> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Merges the gradients of a key and applies the key's rule.
    fn apply(&self, key: &Key, gradients: Vec<(Storage, f64)>) -> Result<()> {
        let keys = self.read();
        let entry = find(&keys, key)?;
        let merged = merge(parts(entry.merging(), gradients))?;
        // The key may have received a rule after the gradient was pushed.
        entry.check(&merged)?;
        entry.apply(merged, entry.next_step())
    }
}

/// The handle that one worker has of a [`LocalStore`].
pub struct LocalWorker {
    store: Arc<StoreState>,
    rounds: Arc<Rounds>,
    number: usize,
}

impl Drop for LocalWorker {
    fn drop(&mut self) {
        self.rounds.leave(self.number);
    }
}

/// Returns the entry of a key.
///
/// # Errors
/// Returns an error if the key does not exist.
pub(super) fn find<'a, T>(keys: &'a BTreeMap<Key, T>, key: &Key) -> Result<&'a T> {
    keys.get(key)
        .ok_or_else(|| Error::of(ErrorKind::Program, "key of the store", "a key that `init` made", "none"))
}

/// Checks that the weight of a gradient is finite and not negative.
pub(super) fn checked_weight(weight: f64) -> Result<()> {
    match weight.is_finite() && weight >= 0.0 {
        true => Ok(()),
        false => Err(Error::new("weight of a gradient", "a finite number from 0", weight.to_string())),
    }
}

impl LocalWorker {
    fn pushed(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()> {
        checked_weight(weight)?;
        // The whole gradient is checked before the worker waits, and before any part of the gradient is applied.
        let keys = self.store.read();
        let entry = find(&keys, key)?;
        entry.check_whole()?;
        entry.check(&gradient)?;
        drop(keys);
        match self.rounds.mode() {
            Consistency::Asynchronous { .. } => self.store.apply(key, vec![(gradient, weight)]),
            Consistency::Synchronous => match self.rounds.push(self.number, key, gradient, weight)? {
                None => Ok(()),
                Some(mut merge) => {
                    let gradients = std::mem::take(&mut merge.gradients);
                    merge.end(self.store.apply(key, gradients))
                }
            },
        }
    }

    fn ruled(&mut self, key: &Key, rule: Rule) -> Result<()> {
        let mut keys = self.store.write();
        let entry = find(&keys, key)?;
        self.rounds.check_idle(Some(key))?;
        if let Some(known) = entry.rule() {
            let what = "rule of the key";
            return Err(Error::of(
                ErrorKind::Program,
                what,
                "none yet",
                format!("{} already", known.shown()),
            ));
        }
        let value = entry.whole(None)?.into();
        let entry = Entry::new(value, Some(rule), &self.store.registry, self.store.shards)?;
        keys.insert(key.clone(), entry);
        Ok(())
    }

    fn made(&mut self, key: &Key, value: Storage) -> Result<()> {
        let mut keys = self.store.write();
        if keys.contains_key(key) {
            return Err(Error::of(ErrorKind::Program, "key of the store", "a new key", "a key that exists"));
        }
        keys.insert(key.clone(), Entry::new(value, None, &self.store.registry, self.store.shards)?);
        Ok(())
    }
}

impl KeyValueStore for LocalWorker {
    fn init(&mut self, key: &Key, value: Storage) -> Result<()> {
        self.made(key, value).of_key(key)
    }

    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()> {
        self.ruled(key, rule).of_key(key)
    }

    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()> {
        self.pushed(key, gradient, weight).of_key(key)
    }

    fn pull(&mut self, key: &Key) -> Result<Dense> {
        let settled = self.rounds.settle(self.number, key);
        settled.and_then(|()| find(&self.store.read(), key)?.whole(None)).of_key(key)
    }

    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense> {
        let settled = self.rounds.settle(self.number, key);
        settled.and_then(|()| find(&self.store.read(), key)?.rows(&ids)).of_key(key)
    }

    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>> {
        match self.rounds.mode() {
            Consistency::Synchronous => self.rounds.sum(self.number, numbers).at_caller(),
            Consistency::Asynchronous { .. } => Ok(numbers.to_vec()),
        }
    }

    fn end_round(&mut self) -> Result<()> {
        self.rounds.end_round(self.number).at_caller()
    }

    fn save(&mut self, path: &Path) -> Result<()> {
        let keys = self.store.write();
        self.rounds.check_idle(None).and_then(|()| saved::save(&keys, &self.store.registry, path)).at_caller()
    }

    fn restore(&mut self, path: &Path) -> Result<()> {
        let mut keys = self.store.write();
        let (registry, shards) = (&self.store.registry, self.store.shards);
        let restored = self.rounds.check_idle(None);
        *keys = restored.and_then(|()| saved::restore(&keys, registry, shards, path)).at_caller()?;
        self.rounds.forget();
        Ok(())
    }
}
