//! The peak memory of a process, for the last line of a workload.

/// Returns the peak memory of this process so far, in MB of 1,000,000 bytes, where the operating system reports it.
pub(crate) fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    // What the kernel calls kB are KiB.
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
}
