//! Rounds: synchronization of the workers of a store, and errors instead of waiting for workers that have left.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::key_value::Key;
use crate::error::{Error, Result};
use crate::tensor::Storage;

/// The consistency of a store's workers: synchronous or asynchronous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// A round of a key ends when each worker has pushed its gradient: the store then merges the gradients, in the order of the workers'
    /// numbers, and applies the rule once. A worker's pull after its push waits for the end of the round.
    Synchronous,
    /// Each gradient is applied when it is pushed, shard by shard. A value that is pulled meanwhile may have the gradient in
    /// some rows and not yet in others, and so may a checkpoint of pulled values; a file that the store saves has no such
    /// value.
    Asynchronous {
        /// The most rounds that a worker may be ahead of the slowest worker: [`end_round`](super::KeyValueStore::end_round)
        /// waits while the worker is further ahead. With `None`, it never waits. Ho et al., "More effective distributed ML via
        /// a stale synchronous parallel parameter server", NIPS 2013.
        staleness: Option<u64>,
    },
}

/// The workers of a store, from when they join until all have left.
pub(super) struct Rounds {
    mode: Consistency,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// For each worker, the number of rounds that it has ended; in `left`, whether it has left.
    ended: Vec<u64>,
    left: Vec<bool>,
    keys: BTreeMap<Key, Round>,
    sums: Sums,
}

/// Sums of numbers over the workers.
#[derive(Default)]
struct Sums {
    /// The number of finished sums; in `given`, for each worker, the number of sums that it has passed numbers for.
    done: u64,
    given: Vec<u64>,
    waiting: Vec<Option<Vec<f64>>>,
    /// The last sum. Every worker reads it before it passes numbers for the next sum.
    last: Vec<f64>,
}

/// The round of a key.
struct Round {
    /// The number of applied rounds.
    done: u64,
    /// For each worker, the number of gradients that it has pushed; in `waiting`, its gradient of this round with its weight.
    pushed: Vec<u64>,
    waiting: Vec<Option<(Storage, f64)>>,
    /// Whether all workers have pushed, and a worker is applying the rule.
    merging: bool,
    /// The error by which the round failed.
    failed: Option<Error>,
}

/// All gradients of a round, in the order of the workers' numbers. If it is dropped before it was [ended](Self::end), because a
/// worker panics, the other workers get an error.
pub(super) struct Merge<'a> {
    rounds: &'a Rounds,
    key: &'a Key,
    pub(super) gradients: Vec<(Storage, f64)>,
    ended: bool,
}

impl Merge<'_> {
    /// Ends the round, and reports its outcome to the other workers.
    pub(super) fn end(mut self, outcome: Result<()>) -> Result<()> {
        self.ended = true;
        self.rounds.finish(self.key, outcome.clone());
        outcome
    }
}

impl Drop for Merge<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (expected, got) = ("a worker that applies them", "one that died meanwhile");
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
        // No panic can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker's gradient to a round, after waiting until the worker's gradient of the previous round is applied. If this
    /// gradient completes the round, returns all gradients, for this worker to apply.
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
    /// As [`Self::push`].
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

    /// Sums these numbers over all workers, in the order of the workers' numbers.
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

    /// Ends a worker's round, and waits while the worker is more than `staleness` rounds ahead of the slowest worker.
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

    /// Removes failed rounds after the values were replaced. No round is under way.
    pub(super) fn forget(&self) {
        self.state().keys.clear();
    }

    /// Marks a worker as left.
    pub(super) fn leave(&self, worker: usize) {
        self.state().left[worker] = true;
        self.changed.notify_all();
    }

    /// Checks that no round of `key` is under way; with `None`, no round of any key.
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
                    true => "one that is being applied".to_owned(),
                    false => format!("the gradients of workers {} alone", pushed.join(", ")),
                };
                return Err(
                    Error::new("round of the key", "none that is under way", got).variable(name.to_string())
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

    /// Checks that no worker with a missing gradient has left.
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
