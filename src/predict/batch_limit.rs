//! The limits of a batch, in rows and in bytes, which a predictor gives to its sessions and generators.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::executor::MemoryUse;
use crate::memory::{excess_shown, limit_shown};
use crate::operator::VarId;
use crate::tensor::Variable;

/// The maximum number of rows of sequences and the maximum memory of a batch.
#[derive(Clone)]
pub(super) struct BatchLimit {
    rows: usize,
    /// The maximum memory in bytes, which clones share; `usize::MAX` means no limit.
    bytes: Arc<AtomicUsize>,
    /// The memory of the last batch in bytes, which clones share; 0 without a limit.
    last: Arc<AtomicUsize>,
}

/// How a batch runs within the limits.
pub(super) struct BatchFit {
    /// Whether the batch fits as a whole.
    pub(super) whole: Result<()>,
    /// The maximum number of rows of a window; `None` if the batch cannot or need not run in windows.
    pub(super) window: Option<usize>,
}

impl Default for BatchLimit {
    /// The number of rows is enough for full speed, and a model of usual width then needs some tens of megabytes.
    fn default() -> Self {
        Self { rows: 16_384, bytes: Arc::new(AtomicUsize::new(usize::MAX)), last: Arc::default() }
    }
}

impl BatchLimit {
    pub(super) fn with_rows(self, rows: usize) -> Self {
        Self { rows: rows.max(1), ..self }
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes; `None` if there is no limit.
    pub(super) fn bytes(&self) -> Option<usize> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes < usize::MAX)
    }

    /// Decides how a batch runs; `memory` is the memory of its run as a whole if there is a limit in bytes.
    pub(super) fn fit(&self, values: &[(VarId, &Variable)], memory: Option<MemoryUse>) -> BatchFit {
        let rows = values.iter().filter(|(_, value)| value.lod().is_some()).map(|(_, value)| value.rows());
        let (rows, mut whole, mut share) = (rows.max().unwrap_or(0), Ok(()), usize::MAX);
        if let (Some(bytes), Some(memory)) = (self.bytes(), memory) {
            whole = self.check(&memory, rows);
            // The memory of a window beside the packed weights is about proportional to its number of rows. Half of the memory
            // that is left is a margin.
            let fixed = [memory.batch, memory.packed, memory.lists];
            let fixed = fixed.into_iter().fold(memory.parameters, usize::saturating_add);
            let left = bytes.saturating_sub(fixed) / 2;
            share = (rows as u128 * left as u128 / (memory.total() - fixed).max(1) as u128) as usize;
        }
        self.last.store(memory.map_or(0, |memory| memory.total()), Ordering::Relaxed);
        // A window has at least one row of each sequence. If a batch has more sequences than the limit has room for, its
        // windows would not fit either. If the whole batch does not fit, the caller must then divide it.
        let sequences = values.iter().map(|(_, value)| value.batch_size()).max().unwrap_or(0);
        let windowed = (rows > self.rows || whole.is_err()) && sequences <= share;
        BatchFit { window: windowed.then_some(share.min(self.rows)), whole }
    }

    /// Checks that the memory of a run on `rows` rows is within the limit.
    ///
    /// # Errors
    /// Fails if the run takes more memory than the limit.
    pub(super) fn check(&self, memory: &MemoryUse, rows: usize) -> Result<()> {
        let (total, Some(limit)) = (memory.total(), self.bytes()) else { return Ok(()) };
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
