//! Checks the available memory while files are read. If data does not fit into memory, reading returns an error before the
//! operating system kills the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use unpadded::memory::{available, resident, shown};
use unpadded::{Error, ErrorKind, Result};

const MIB: u64 = 1 << 20;
/// The bytes of memory that must stay free, for the rest of the program and for other processes.
const FLOOR: u64 = 64 * MIB;
/// Number of bytes that are read from files between two checks of the available memory.
const EACH: u64 = 16 * MIB;

/// The number of data sets that are being read, and the bytes of the process before the first of them.
static WHOLE: Mutex<(usize, Option<u64>)> = Mutex::new((0, None));

fn whole() -> MutexGuard<'static, (usize, Option<u64>)> {
    WHOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that counts a data set as being read into memory, until the guard is dropped.
#[derive(Debug)]
pub(crate) struct Whole(());

impl Whole {
    /// Marks the start of reading a data set, whose memory is the growth of the process from now on.
    pub(crate) fn begin() -> Self {
        let mut whole = whole();
        if whole.0 == 0 {
            whole.1 = resident();
        }
        whole.0 += 1;
        Self(())
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let mut whole = whole();
        whole.0 = whole.0.saturating_sub(1);
        if whole.0 == 0 {
            whole.1 = None;
        }
    }
}

/// Checks the available memory while a file is read, because the caller may keep the whole file in memory.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    read: u64,
    /// The memory of the process, in bytes, at the first check; `None` before the first check.
    before: Option<u64>,
}

/// The bytes that were read from all files: many small files are checked, too.
static READ: AtomicU64 = AtomicU64::new(0);

impl Usage {
    /// Counts `bytes` more bytes that were read, and checks the available memory every 16 MiB: one and a half times the growth
    /// of the process since the reading of the data set ([`Whole`]) or of this file began must be available, because the token
    /// ids of the texts need about this much memory.
    ///
    /// # Errors
    /// Fails if less memory is available than needed; `what` returns the place, such as `FILE:LINE`, for the message.
    pub(crate) fn read(&mut self, bytes: usize, what: impl FnOnce() -> String) -> Result<()> {
        let bytes = bytes as u64;
        self.read += bytes;
        let before = READ.fetch_add(bytes, Ordering::Relaxed);
        if before / EACH == (before + bytes) / EACH {
            return Ok(());
        }
        let (Some(resident), Some(available)) = (resident(), available()) else { return Ok(()) };
        let held = resident.saturating_sub(self.baseline(resident));
        if available >= FLOOR.max(held + held / 2) { Ok(()) } else { Err(self.full(what(), available)) }
    }

    /// Returns the memory of the process before the data set or the file was read; `resident` is the present one.
    fn baseline(&mut self, resident: u64) -> u64 {
        let own = *self.before.get_or_insert(resident);
        whole().1.unwrap_or(own)
    }

    fn full(&self, what: String, available: u64) -> Error {
        let (left, read) = (shown(available.into()), shown(self.read.into()));
        let got = format!(
            "{left} of memory left after {read}: the setting `data.window` (in Rust `LabelledFiles`, `TaggedFiles`, `PairFiles` or \
             `PlainFiles`) reads files anew in each epoch and holds a window of their texts; rows of features need more memory"
        );
        Error::of(ErrorKind::Memory, what, "data that fit into memory", got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_of_a_data_set_count_together() {
        let reading = Whole::begin();
        let Some(began) = whole().1 else { return };
        // Each file has its own `Usage`. Another test may have begun to read a data set earlier.
        let bases = [1, 2].map(|more| Usage::default().baseline(began + more * MIB));
        assert!(bases[0] == bases[1] && bases[0] <= began, "{bases:?}");
        let inner = Whole::begin();
        drop(reading);
        assert!(Usage::default().baseline(u64::MAX) < u64::MAX);
        drop(inner);
    }

    #[test]
    fn what_is_full_names_the_window() {
        let shown = Usage::default().full("big.tsv:7".into(), 0).to_string();
        assert!(
            shown.starts_with("big.tsv:7: expected data that fit into memory, got 0 kB of memory left"),
            "{shown}"
        );
        assert!(shown.contains("`data.window`"), "{shown}");
    }
}
