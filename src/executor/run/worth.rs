//! Thresholds from which threads share work: waking threads takes time, too.
//!
//! An idle thread sleeps after some twenty microseconds. Waking it costs the waking thread some ten microseconds, and the woken
//! thread begins thirty microseconds later. A run that enters the pool waits until one thread wakes, and is woken itself at its
//! end (measured on two cores of a virtual machine). So a small amount of work stays on its thread.

/// The [effort](crate::executor::plan::Effort) from which work is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worth {
    /// The least effort of a run that is divided: a smaller run stays on the caller's thread. About a millisecond of one thread.
    pub(crate) run: usize,
    /// The least effort of all steps of a loop together for which threads share the steps.
    pub(crate) steps: usize,
    /// The least effort of a call, or of a move of rows, that is divided.
    pub(crate) call: usize,
    /// The maximum number of rows of a chunk, even if the caches could hold more.
    pub(crate) chunk: usize,
}

impl Worth {
    /// Divides work of any size, so that tests of small programs cover divided runs.
    pub(crate) const EVERYTHING: Self = Self { run: 0, steps: 1, call: 1, chunk: 4 };
}

impl Default for Worth {
    fn default() -> Self {
        Self { run: 1 << 21, steps: 1 << 17, call: 1 << 16, chunk: usize::MAX }
    }
}
