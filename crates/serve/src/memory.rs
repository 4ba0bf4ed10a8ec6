//! The memory of the process, and the memory that is counted for a request.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// The counted memory of a request; it is free again when the last clone is dropped.
pub(crate) type MemoryPermit = Arc<OwnedSemaphorePermit>;

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
