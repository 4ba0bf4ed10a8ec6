//! The memory of the process, and the memory that is counted for a request.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;

/// The unit in which the memory of requests is counted, in bytes.
const UNIT: u64 = 1024;

/// The memory of all requests in work.
#[derive(Clone)]
pub(crate) struct RequestMemory {
    free: Arc<Semaphore>,
    all: u64,
}

/// The counted memory of a request; it is free again when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct MemoryPermit {
    memory: RequestMemory,
    permit: Arc<Mutex<OwnedSemaphorePermit>>,
}

impl RequestMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(units)), all: units as u64 * UNIT }
    }

    fn acquire(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Failure> {
        let needed = unpadded::memory::shown(bytes.into());
        if bytes > self.all {
            let all = unpadded::memory::shown(self.all.into());
            return Err(Failure::too_large(format!(
                "memory of a request: expected at most {all}, got {needed}"
            )));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.free.clone().try_acquire_many_owned(units).map_err(|_| {
            Failure::overloaded(format!(
                "the requests in work leave less memory than this one needs, {needed}"
            ))
        })
    }

    pub(crate) fn permit(&self) -> Result<MemoryPermit, Failure> {
        Ok(MemoryPermit { memory: self.clone(), permit: Arc::new(Mutex::new(self.acquire(UNIT)?)) })
    }
}

impl MemoryPermit {
    /// Counts more memory.
    pub(crate) fn add(&self, bytes: u64) -> Result<(), Failure> {
        let more = self.memory.acquire(bytes)?;
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).merge(more);
        Ok(())
    }
}

pub(crate) fn resident() -> u64 {
    unpadded::memory::resident().unwrap_or_default()
}

/// Sets the peak of the resident memory to its present value where the system can, and returns this value.
pub(crate) fn reset_peak() -> u64 {
    let _ = std::fs::write("/proc/self/clear_refs", "5"); // only Linux has it
    resident()
}

/// Returns the peak of the resident memory in bytes, or its present value where the system does not count it.
pub(crate) fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.map_or_else(resident, |kilobytes| kilobytes * 1024)
}
