//! Rounds: the synchronization of a store's workers, with an error for a worker that would wait for a worker that has left.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::key_value::Key;
use crate::error::{Error, Result};
use crate::tensor::Storage;

/// The consistency of a store's workers: whether the store merges the gradients of a round (synchronous) or applies each
/// gradient alone (asynchronous).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// The round of a key ends when each worker has pushed a gradient: the store merges the gradients in the order of the
    /// worker indices, and applies the rule once. After a push, a pull of the same worker waits for the end of the round.
    Synchronous,
    /// Each gradient is applied as soon as a worker pushes it, shard by shard. A pull during a push may return a value
    /// in which only some rows are updated, so a checkpoint of pulled values may have partly updated values, too. In a
    /// file that the store saves, each gradient was applied to all rows or to none.
    Asynchronous {
        /// The largest number of rounds by which a worker may be ahead of the slowest worker: if the worker is further ahead,
        /// [`end_round`](super::KeyValueStore::end_round) waits. With `None`, `end_round` never waits. Source: Ho et al., "More
        /// effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
        staleness: Option<u64>,
    },
}

/// The state that the workers of a store share, from the call that makes the workers until all workers have left.
pub(super) struct Rounds {
    mode: Consistency,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// For each worker, the number of rounds that the worker has ended; `left` is, for each worker, whether the worker has
    /// left.
    ended: Vec<u64>,
    left: Vec<bool>,
    keys: BTreeMap<Key, Round>,
    sums: Sums,
}

/// The sums of numbers over all workers, for `KeyValueStore::sum`.
#[derive(Default)]
struct Sums {
    /// The number of finished sums; `given` is, for each worker, the number of sums for which the worker has passed numbers.
    done: u64,
    given: Vec<u64>,
    waiting: Vec<Option<Vec<f64>>>,
    /// The result of the last finished sum. Every worker reads the last sum before the worker passes numbers for the next sum.
    last: Vec<f64>,
}

struct Round {
    /// The number of rounds of this key that were applied.
    done: u64,
    /// For each worker, the number of gradients that the worker has pushed for this key; `waiting` is, for each worker, the
    /// gradient of the current round with its weight.
    pushed: Vec<u64>,
    waiting: Vec<Option<(Storage, f64)>>,
    /// Whether all workers have pushed a gradient, and one worker is applying the rule now.
    merging: bool,
    /// The error of the round, if the round has failed.
    failed: Option<Error>,
}

/// All gradients of a complete round, in the order of the worker indices. If a `Merge` is dropped before it was
/// [ended](Self::end), because the worker panics, the other workers get an error.
pub(super) struct Merge<'a> {
    rounds: &'a Rounds,
    key: &'a Key,
    pub(super) gradients: Vec<(Storage, f64)>,
    ended: bool,
}

impl Merge<'_> {
    /// Ends the round, and reports `outcome` to the other workers.
    pub(super) fn end(mut self, outcome: Result<()>) -> Result<()> {
        self.ended = true;
        self.rounds.finish(self.key, outcome.clone());
        outcome
    }
}

impl Drop for Merge<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (expected, got) = ("a worker that applies the gradients", "a worker that died");
            self.rounds.finish(self.key, Err(Error::new("merged gradients", expected, got)));
        }
    }
}

impl Rounds {
    pub(super) fn new(workers: usize, mode: Consistency) -> Self {
        let sums = Sums { given: vec![0; workers], waiting: vec![None; workers], ..Sums::default() };
        let (ended, left) = (vec![0; workers], vec![false; workers]);
        let state = State { ended, left, keys: BTreeMap::new(), sums };
        Self { mode, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn mode(&self) -> Consistency {
        self.mode
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No panic can occur while the state is changed, so the state is consistent even in a poisoned lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the gradient of a worker to a round; first waits until the worker's gradient of the previous round is applied. If
    /// the gradient completes the round, the method returns all gradients of the round, and this worker must apply them.
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left, or the previous round failed.
    pub(super) fn push<'a>(
        &'a self,
        worker: usize,
        key: &'a Key,
        gradient: Storage,
        weight: f64,
    ) -> Result<Option<Merge<'a>>> {
        let mut state = self.state();
        let workers = state.left.len();
        if !state.keys.contains_key(key) {
            state.keys.insert(key.clone(), Round::new(workers));
        }
        loop {
            let State { keys, left, .. } = &mut *state;
            let Some(round) = keys.get_mut(key) else { return Ok(None) };
            if let Some(failed) = &round.failed {
                return Err(failed.clone());
            }
            if !round.merging && round.waiting[worker].is_none() {
                round.waiting[worker] = Some((gradient, weight));
                round.pushed[worker] += 1;
                if round.waiting.iter().any(Option::is_none) {
                    return Ok(None);
                }
                round.merging = true;
                let gradients = round.waiting.iter_mut().filter_map(Option::take).collect();
                return Ok(Some(Merge { rounds: self, key, gradients, ended: false }));
            }
            round.check(left)?;
            state = self.wait(state);
        }
    }

    fn finish(&self, key: &Key, outcome: Result<()>) {
        if let Some(round) = self.state().keys.get_mut(key) {
            round.merging = false;
            match outcome {
                Ok(()) => round.done += 1,
                Err(error) => round.failed = Some(error),
            }
        }
        self.changed.notify_all();
    }

    /// Waits until all gradients that a worker has pushed to a key are applied.
    ///
    /// # Errors
    /// The errors are the errors of [`Self::push`].
    pub(super) fn settle(&self, worker: usize, key: &Key) -> Result<()> {
        let mut state = self.state();
        loop {
            let State { keys, left, .. } = &mut *state;
            let Some(round) = keys.get(key).filter(|round| round.done < round.pushed[worker]) else {
                return Ok(());
            };
            if let Some(failed) = &round.failed {
                return Err(failed.clone());
            }
            round.check(left)?;
            state = self.wait(state);
        }
    }

    /// Sums `numbers` over all workers, in the order of the worker indices.
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left, or another worker passes more or fewer numbers.
    pub(super) fn sum(&self, worker: usize, numbers: &[f64]) -> Result<Vec<f64>> {
        let mut state = self.state();
        let sums = &mut state.sums;
        if let Some(other) = sums.waiting.iter().flatten().find(|other| other.len() != numbers.len()) {
            let (expected, got) = (format!("{}, as another worker gives", other.len()), numbers.len());
            return Err(Error::new("numbers to add up", expected, got.to_string()));
        }
        sums.waiting[worker] = Some(numbers.to_vec());
        sums.given[worker] += 1;
        if sums.waiting.iter().all(Option::is_some) {
            let mut all = vec![0.0; numbers.len()];
            for given in sums.waiting.iter_mut().filter_map(Option::take) {
                all.iter_mut().zip(given).for_each(|(sum, x)| *sum += x);
            }
            (sums.last, sums.done) = (all, sums.done + 1);
            self.changed.notify_all();
        }
        loop {
            let State { sums, left, .. } = &*state;
            if sums.done >= sums.given[worker] {
                return Ok(sums.last.clone());
            }
            if let Some(gone) = (0..left.len()).find(|&other| left[other] && sums.waiting[other].is_none()) {
                let expected = format!("the numbers of all {} workers", left.len());
                return Err(Error::new(
                    "sum over workers",
                    expected,
                    format!("none of worker {gone}, which has left"),
                ));
            }
            state = self.wait(state);
        }
    }

    /// Ends the round of a worker; then waits while the worker is more than `staleness` rounds ahead of the slowest worker.
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left.
    pub(super) fn end_round(&self, worker: usize) -> Result<()> {
        let mut state = self.state();
        state.ended[worker] += 1;
        self.changed.notify_all();
        let Consistency::Asynchronous { staleness: Some(staleness) } = self.mode else { return Ok(()) };
        loop {
            let State { ended, left, .. } = &*state;
            let own = ended[worker];
            let behind = |other: &usize| own - ended[*other].min(own) > staleness;
            if !(0..ended.len()).any(|other| behind(&other)) {
                return Ok(());
            }
            if let Some(gone) = (0..ended.len()).filter(behind).find(|&other| left[other]) {
                let what = format!("round {}", own + 1);
                let expected = format!("every worker to have ended round {}", own - staleness);
                return Err(Error::new(
                    what,
                    expected,
                    format!("worker {gone}, which left after {}", ended[gone]),
                ));
            }
            state = self.wait(state);
        }
    }

    /// Removes failed rounds, after the values of the store were restored. The caller ensures that no round is under way.
    pub(super) fn forget(&self) {
        self.state().keys.clear();
    }

    /// Marks a worker as left, and wakes the workers that wait for this worker.
    pub(super) fn leave(&self, worker: usize) {
        self.state().left[worker] = true;
        self.changed.notify_all();
    }

    /// Checks that no round of `key` is under way; `None` checks the rounds of all keys.
    ///
    /// # Errors
    /// Returns an error if only some workers have pushed a gradient of a round, or a round is being applied.
    pub(super) fn check_idle(&self, key: Option<&Key>) -> Result<()> {
        let state = self.state();
        for (name, round) in state.keys.iter().filter(|(name, _)| key.is_none_or(|key| key == *name)) {
            let pushed: Vec<String> = (0..)
                .zip(&round.waiting)
                .filter(|(_, w)| w.is_some())
                .map(|(i, _)| i32::to_string(&i))
                .collect();
            if round.merging || !pushed.is_empty() {
                let got = match round.merging {
                    true => "a round that is being applied".to_owned(),
                    false => format!("only the gradients of workers {}", pushed.join(", ")),
                };
                return Err(
                    Error::new("round of the key", "no round in progress", got).variable(name.to_string())
                );
            }
        }
        Ok(())
    }
}

impl Round {
    fn new(workers: usize) -> Self {
        let waiting = (0..workers).map(|_| None).collect();
        Self { done: 0, pushed: vec![0; workers], waiting, merging: false, failed: None }
    }

    /// Checks that no worker whose gradient is missing in the round has left.
    fn check(&self, left: &[bool]) -> Result<()> {
        let missing = |&worker: &usize| !self.merging && self.waiting[worker].is_none() && left[worker];
        match (0..left.len()).find(missing) {
            None => Ok(()),
            Some(gone) => {
                let expected = format!("the gradients of all {} workers", left.len());
                let got = format!("none of worker {gone}, which has left");
                Err(Error::new(format!("round {}", self.done + 1), expected, got))
            }
        }
    }
}
