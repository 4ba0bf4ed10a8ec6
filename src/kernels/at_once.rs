//! Measurements on several threads at once, one thread per core.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

/// The results of a measurement, each with its number of threads.
pub(super) type Measurements<T> = Mutex<Vec<(usize, T)>>;

/// Returns `threads`, but at least 1 and at most the number of cores.
pub(super) fn at_most_cores(threads: usize) -> usize {
    threads.clamp(1, std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the result for `threads` threads, but for at most one thread per core; calls `measure` if the result is not known.
pub(super) fn known<T: Copy>(known: &Measurements<T>, threads: usize, measure: impl FnOnce(usize) -> T) -> T {
    let threads = at_most_cores(threads);
    // A panic leaves the list of results valid, so the code ignores a poisoned lock. The measurement starts new threads
    // instead of using rayon's pool: a thread of rayon's pool that waits for other tasks may run a task that needs this
    // lock, which would be a deadlock.
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(count, _)| *count == threads) {
        return *found;
    }
    let found = measure(threads);
    known.push((threads, found));
    found
}

/// Runs each job on a thread of its own, all at once, and returns the results. If the system refuses to start a thread, its job
/// is left out.
pub(super) fn on_all<T: Send>(jobs: impl IntoIterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    let mut jobs = jobs.into_iter();
    let Some(first) = jobs.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        let start = |job| std::thread::Builder::new().spawn_scoped(scope, job).ok();
        let others: Vec<_> = jobs.filter_map(start).collect();
        let own = first();
        std::iter::once(own).chain(others.into_iter().filter_map(|other| other.join().ok())).collect()
    })
}
