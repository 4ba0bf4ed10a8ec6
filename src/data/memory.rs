//! Measures the available memory, as far as the operating system reports it. If data does not fit into memory, reading
//! returns an error before the operating system kills the process.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

const MIB: u64 = 1 << 20;
/// The number of bytes of memory that must stay free while data is read, for the rest of the program and for other
/// processes.
const FLOOR: u64 = 64 * MIB;
/// Number of bytes that are read from files between two checks of the available memory.
const EACH: u64 = 16 * MIB;

/// Finds the line `NAME: 123 kB` in a text, and returns the size in bytes; `None` if there is no such line.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the number of bytes that this process may still allocate; `None` if the operating system reports nothing.
/// The number is the minimum of the machine's available memory, the unused part of the control group's limit, and the
/// unused part of the process's limit (`ulimit -v`).
pub(crate) fn available() -> Option<u64> {
    let of_machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemAvailable"));
    let unused = |GroupMemory { limit, used }: GroupMemory| limit.saturating_sub(used);
    [of_machine, of_groups(unused), of_process()].into_iter().flatten().min()
}

/// Returns the memory of the machine in bytes, or the limit of the process's control group if this limit is smaller;
/// `None` if the operating system reports neither.
pub(crate) fn total() -> Option<u64> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemTotal"));
    [of_machine, of_groups(|group| group.limit)].into_iter().flatten().min()
}

fn of_process() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(kilobytes(&status, "VmSize")?))
}

/// The memory limit of a control group, and the memory that the group uses, in bytes. Cached pages of files do not
/// count as used, because the system can drop them.
struct GroupMemory {
    limit: u64,
    used: u64,
}

/// Returns the smallest number that `of` returns for a control group of this process.
fn of_groups(of: fn(GroupMemory) -> u64) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = |folder: String, [limit, usage, dropped]: [&str; 3]| {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let stat = read("memory.stat").unwrap_or_default();
        let mut stat = stat.lines().filter_map(|line| line.split_once(' '));
        let dropped = stat.find(|(name, _)| *name == dropped).and_then(|(_, of)| of.trim().parse().ok());
        let used = number(usage)?.saturating_sub(dropped.unwrap_or(0));
        Some(of(GroupMemory { limit: number(limit)?, used }))
    };
    let least = |group: &str| {
        let mut parts = group.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", ["memory.max", "memory.current", "inactive_file"]),
            "memory" => {
                let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
                ("/sys/fs/cgroup/memory", names)
            }
            _ => return None,
        };
        // Both folders are tried: in a container, the root folder of the control groups is the folder of the
        // container's own group.
        [format!("{root}{path}"), root.to_owned()].into_iter().filter_map(|folder| left(folder, names)).min()
    };
    groups.lines().filter_map(least).min()
}

fn resident() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// Formats bytes as kilobytes (1,000 bytes), megabytes or gigabytes for messages.
pub(crate) fn shown(bytes: u128) -> String {
    rounded(bytes, f64::round)
}

/// Formats, rounded up, a number of bytes that exceeds a limit. In a message, the number is therefore larger than the
/// limit, which [`limit_shown`] rounds down.
pub(crate) fn excess_shown(bytes: u128) -> String {
    rounded(bytes, f64::ceil)
}

/// Formats a limit, rounded down.
pub(crate) fn limit_shown(bytes: u128) -> String {
    rounded(bytes, f64::floor)
}

fn rounded(bytes: u128, round: fn(f64) -> f64) -> String {
    let (unit, name, digits) = if bytes < 99_500 {
        (1e3, "kB", 0)
    } else if bytes < 9_950_000 {
        (1e6, "MB", 1)
    } else if bytes < 999_500_000 {
        (1e6, "MB", 0)
    } else {
        (1e9, "GB", 1)
    };
    let scale = 10f64.powi(digits);
    format!("{:.*} {name}", digits as usize, round(bytes as f64 / unit * scale) / scale)
}

/// The first number counts the data sets that are being read into memory now. The second number is the memory of the
/// process, in bytes, at the time when the reading of the first of these data sets began.
static WHOLE: Mutex<(usize, Option<u64>)> = Mutex::new((0, None));

fn whole() -> MutexGuard<'static, (usize, Option<u64>)> {
    WHOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that counts a data set as being read into memory, until the guard is dropped.
#[derive(Debug)]
pub(super) struct Whole(());

impl Whole {
    /// Marks the start of reading a data set into memory. The memory of the data set is the growth of the process from
    /// now on.
    pub(super) fn begin() -> Self {
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
pub(super) struct Usage {
    read: u64,
    /// The memory of the process, in bytes, at the first check; `None` before the first check.
    before: Option<u64>,
}

/// The number of bytes that were read from all files together. One counter for all files makes sure that many small
/// files are checked, too.
static READ: AtomicU64 = AtomicU64::new(0);

impl Usage {
    /// Counts `bytes` more bytes that were read, and checks the available memory every 16 MiB. The check compares the
    /// available memory with the growth of the process since the reading of the data set ([`Whole`]) or of this file
    /// began. One and a half times the growth must be available, because the token ids of the texts need about this
    /// much memory.
    ///
    /// # Errors
    /// Fails if less memory is available than needed; `what` returns the place, such as `FILE:LINE`, for the message.
    pub(super) fn read(&mut self, bytes: usize, what: impl FnOnce() -> String) -> Result<()> {
        let bytes = bytes as u64;
        self.read += bytes;
        let before = READ.fetch_add(bytes, Ordering::Relaxed);
        if before / EACH == (before + bytes) / EACH {
            return Ok(());
        }
        self.look(what)
    }

    fn look(&mut self, what: impl FnOnce() -> String) -> Result<()> {
        let (Some(resident), Some(available)) = (resident(), available()) else { return Ok(()) };
        let held = resident.saturating_sub(self.baseline(resident));
        if available >= FLOOR.max(held + held / 2) { Ok(()) } else { Err(self.full(what(), available)) }
    }

    /// Returns the memory of the process, in bytes, before the data set or the file was read. `resident` is the present
    /// memory of the process.
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
    fn memory_is_read_where_linux_says_it() {
        assert_eq!(kilobytes("MemTotal: 5 kB\nMemAvailable:   12 kB\n", "MemAvailable"), Some(12 << 10));
        assert_eq!(kilobytes("x", "MemAvailable"), None);
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|bytes| bytes > 0) && resident().is_some_and(|bytes| bytes > 0));
        }
        assert_eq!((shown(5 << 20), shown(3 << 30)), ("5.2 MB".into(), "3.2 GB".into()));
    }

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
        let said = Usage::default().full("big.tsv:7".into(), 0).to_string();
        assert!(
            said.starts_with("big.tsv:7: expected data that fit into memory, got 0 kB of memory left"),
            "{said}"
        );
        assert!(said.contains("`data.window`"), "{said}");
    }
}
