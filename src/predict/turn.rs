//! A lock that detects a thread that tries to take it twice.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::ThreadId;

use crate::error::{Error, ErrorKind, Result};

/// A lock that one thread at a time holds. If the thread that holds the lock asks for the lock again, it gets an error
/// instead of a deadlock. This happens if the thread waits for a thread pool and meanwhile runs another task that needs
/// the lock.
#[derive(Default)]
pub(super) struct Turns {
    taken: Mutex<Option<ThreadId>>,
    freed: Condvar,
}

/// The guard of a lock: dropping it releases the lock.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits until no other thread holds the lock, and takes it.
    ///
    /// # Errors
    /// If this thread already holds the lock.
    pub(super) fn wait(&self) -> Result<Turn<'_>> {
        let me = std::thread::current().id();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(thread) = *taken {
            if thread == me {
                let got = "a second call on the same thread, while the first call runs";
                let expected = "one call after the other; each clone has its own states";
                let what = "call that continues from the last call";
                return Err(Error::of(ErrorKind::Program, what, expected, got));
            }
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken = Some(me);
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
