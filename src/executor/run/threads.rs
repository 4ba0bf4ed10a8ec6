//! The thread pool on which executors run.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{AtCaller, Error, ErrorKind, Result};

/// The maximum number of threads. No machine has more cores, so a larger number is a mistake.
pub(crate) const MOST_THREADS: usize = 1024;

/// A thread pool that several executors may share; each executor divides its work for all threads.
#[derive(Clone)]
pub(crate) struct Threads {
    /// The number of threads for which work is divided.
    pub(super) number: usize,
    /// The pool of system threads; `None` if all work runs on the caller's thread.
    pub(super) pool: Option<Arc<rayon::ThreadPool>>,
}

impl Threads {
    /// Starts a pool for `threads` threads (0: one per core), with at most one system thread per core.
    ///
    /// # Errors
    /// Fails if the threads cannot be started, or if `threads` is above [`MOST_THREADS`].
    #[track_caller]
    pub(crate) fn new(threads: usize) -> Result<Self> {
        if threads > MOST_THREADS {
            return Err(Error::new("threads", format!("at most {MOST_THREADS}"), threads.to_string()));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let number = if threads == 0 { cores } else { threads };
        // The work is divided for the requested number of threads, but more system threads than cores would only slow each
        // other down.
        let pool = (number > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(number.min(cores)).build())
            .transpose()
            .map_err(|e| Error::of(ErrorKind::Io, "thread pool", format!("{number} threads"), e.to_string()))
            .at_caller()?;
        Ok(Self { number, pool: pool.map(Arc::new) })
    }

    /// Runs a closure on these threads, and waits for its end.
    pub(super) fn run<T: Send>(&self, work: &mut (impl FnMut() -> T + Send)) -> T {
        let Some(pool) = &self.pool else { return work() };
        if rayon::current_thread_index().is_none() {
            return pool.install(work);
        }
        // If a thread of another pool waited here, it would run other tasks of that pool while waiting. The other tasks may
        // also call this function and wait, until the stack of the thread overflows. A new thread does nothing but wait.
        let done = std::thread::scope(|scope| scope.spawn(|| pool.install(work)).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Calls `each` with the index of every item, the item, and an element of `rooms` that no other call uses at the same time.
    /// The items are divided into one range per element of `rooms` (which must not be empty), and one thread handles each
    /// range. With one element, the caller's thread handles all items.
    pub(crate) fn divide<T: Send, R: Send>(
        &self,
        items: &mut [T],
        rooms: &mut [R],
        each: impl Fn(usize, &mut T, &mut R) + Sync,
    ) {
        let range = items.len().div_ceil(rooms.len().max(1)).max(1);
        let do_range = |(i, (items, room)): (usize, (&mut [T], &mut R))| {
            items.iter_mut().enumerate().for_each(|(j, item)| each(i * range + j, item, room));
        };
        if rooms.len() <= 1 || items.len() <= 1 || self.pool.is_none() {
            items.chunks_mut(range).zip(rooms).enumerate().for_each(do_range);
            return;
        }
        self.run(&mut || items.par_chunks_mut(range).zip(&mut *rooms).enumerate().for_each(do_range));
    }

    /// Returns the number of threads for which work is divided.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_reached_once_with_a_room_of_its_own() {
        let threads = Threads::new(2).unwrap();
        for (items, rooms) in [(0, 1), (0, 3), (1, 3), (7, 1), (7, 2), (7, 3), (7, 20)] {
            let (mut items, mut rooms) = (vec![0; items], vec![0; rooms]);
            threads.divide(&mut items, &mut rooms, |i, item, room| {
                *item += i + 1;
                *room += 1;
            });
            assert!(items.iter().enumerate().all(|(i, &item)| item == i + 1), "{items:?}");
            assert_eq!(rooms.iter().sum::<usize>(), items.len());
        }
    }
}
