//! The memory limit of predictions, which a predictor shares with its clones, sessions and generators.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::executor::MemoryUse;
use crate::memory::{excess_shown, limit_shown};

/// The maximum memory of a batch in bytes; `usize::MAX` means no limit.
#[derive(Clone)]
pub(super) struct MemoryLimit(Arc<AtomicUsize>);

impl Default for MemoryLimit {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(usize::MAX)))
    }
}

impl MemoryLimit {
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Returns the limit in bytes; `None` if there is no limit.
    pub(super) fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes < usize::MAX)
    }

    /// Checks that the memory of a run on `rows` rows is within the limit.
    ///
    /// # Errors
    /// Fails if the run takes more memory than the limit.
    pub(super) fn check(&self, memory: &MemoryUse, rows: usize) -> Result<()> {
        let (total, Some(limit)) = (memory.total(), self.get()) else { return Ok(()) };
        if total <= limit {
            return Ok(());
        }
        let (expected, got) =
            (format!("at most {}", limit_shown(limit as u128)), excess_shown(total as u128));
        let error =
            Error::of(ErrorKind::Memory, "memory of a batch", expected, format!("{got} for {rows} rows"));
        let note = format!("split the text, or raise the memory limit to at least {got}");
        Err(error.noted(note).over_limit())
    }
}
