//! Thresholds from which threads share work: waking threads takes time, too.
//!
//! An idle thread sleeps after some twenty microseconds. Waking it costs the waking thread some ten microseconds, and it
//! begins thirty microseconds later; a run that enters the pool waits for one thread to wake, and is woken itself (measured
//! on two cores of a virtual machine). So a small amount of work stays on its thread.

/// The [effort](crate::executor::plan::Effort) from which work is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worth {
    /// Of a run: below it, the run is not divided and stays on the caller's thread. About a millisecond of one thread.
    pub(crate) run: usize,
    /// Of all steps of a loop, which are divided together.
    pub(crate) steps: usize,
    /// Of a call, or of moved rows.
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
