//! The threads that executors run on.

use std::sync::Arc;

use crate::error::{AtCaller, Error, ErrorKind, Result};

/// More threads than any machine that this runs on has cores; a larger number is a mistake.
const MOST_THREADS: usize = 1024;

/// Threads that several executors may share: each divides its work for that many.
#[derive(Clone)]
pub(crate) struct Threads {
    /// For how many threads work is divided.
    pub(super) number: usize,
    /// None for one thread, which is the caller's.
    pub(super) pool: Option<Arc<rayon::ThreadPool>>,
}

impl Threads {
    /// So many threads (0: as many as the machine has cores), on no more threads of the system than there are cores.
    ///
    /// # Errors
    /// If they cannot be started, or are more than 1024.
    #[track_caller]
    pub(crate) fn new(threads: usize) -> Result<Self> {
        if threads > MOST_THREADS {
            return Err(Error::new("threads", format!("at most {MOST_THREADS}"), threads.to_string()));
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let number = if threads == 0 { cores } else { threads };
        // Work is divided for as many threads as were asked for; more than there are cores would only wake each other.
        let pool = (number > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(number.min(cores)).build())
            .transpose()
            .map_err(|e| Error::of(ErrorKind::Io, "thread pool", format!("{number} threads"), e.to_string()))
            .at_caller()?;
        Ok(Self { number, pool: pool.map(Arc::new) })
    }

    /// Does some work on these threads, and waits for it.
    pub(super) fn run<T: Send>(&self, work: &mut (impl FnMut() -> T + Send)) -> T {
        let Some(pool) = &self.pool else { return work() };
        if rayon::current_thread_index().is_none() {
            return pool.install(work);
        }
        // A thread of another pool would take up that pool's other tasks while it waits, which may come here again, and so on
        // until its stack is full. One that only waits does not.
        let done = std::thread::scope(|scope| scope.spawn(|| pool.install(work)).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
