//! From where on threads share work: what wakes them takes time, too.
//!
//! A thread that has nothing to do sleeps after some twenty microseconds. To wake it takes the one that divides some ten
//! microseconds, and it begins thirty later; a run that enters the pool waits for one thread to wake, and is woken itself
//! (measured on two cores of a virtual machine). So a little work is done where it is.

/// From how much [effort](crate::executor::plan::Effort) on work is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worth {
    /// Of a run: below it, nothing of it is divided, and it does not leave the caller's thread. About a millisecond of
    /// one thread.
    pub(crate) run: usize,
    /// Of all steps of a loop. They are divided once for all steps.
    pub(crate) steps: usize,
    /// Of one call, or of rows that are moved.
    pub(crate) call: usize,
    /// The most rows of a chunk, whatever else they may be by the sizes of caches.
    pub(crate) chunk: usize,
}

impl Worth {
    /// However small, so that tests of small programs divide them.
    pub(crate) const EVERYTHING: Self = Self { run: 0, steps: 1, call: 1, chunk: 4 };
}

impl Default for Worth {
    fn default() -> Self {
        Self { run: 1 << 21, steps: 1 << 17, call: 1 << 16, chunk: usize::MAX }
    }
}
