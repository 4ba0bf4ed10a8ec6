//! The memory of the machine and of the process, as far as the operating system reports it, and sizes in messages. A program
//! that reads data measures the memory to return an error before the operating system kills the process.

use std::fs;

/// Finds the line `NAME: 123 kB` in a text, and returns the size in bytes; `None` if there is no such line.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the number of bytes that this process may still allocate; `None` if the operating system reports nothing.
/// The number is the minimum of the machine's available memory, the unused part of the control group's limit, and the
/// unused part of the process's limit (`ulimit -v`).
pub fn available() -> Option<u64> {
    let of_machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| kilobytes(&text, "MemAvailable"));
    let unused = |GroupMemory { limit, used }: GroupMemory| limit.saturating_sub(used);
    [of_machine, of_groups(unused), of_process()].into_iter().flatten().min()
}

/// Returns the memory of the machine in bytes, or the limit of the process's control group if this limit is smaller;
/// `None` if the operating system reports neither.
pub fn total() -> Option<u64> {
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

/// Returns the smallest number that `field` returns for a control group of this process.
fn of_groups(field: fn(GroupMemory) -> u64) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = |folder: String, [limit, usage, dropped]: [&str; 3]| {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let stat = read("memory.stat").unwrap_or_default();
        let mut stat = stat.lines().filter_map(|line| line.split_once(' '));
        let dropped =
            stat.find(|(name, _)| *name == dropped).and_then(|(_, field)| field.trim().parse().ok());
        let used = number(usage)?.saturating_sub(dropped.unwrap_or(0));
        Some(field(GroupMemory { limit: number(limit)?, used }))
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

/// Returns the memory that this process uses, in bytes; `None` if the operating system does not report it.
pub fn resident() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// Formats bytes as kilobytes (1,000 bytes), megabytes or gigabytes for messages.
pub fn shown(bytes: u128) -> String {
    rounded(bytes, f64::round)
}

/// Formats, rounded up, a number of bytes that exceeds a limit. In a message, the number is therefore larger than the
/// limit, which [`limit_shown`] rounds down.
pub(crate) fn excess_shown(bytes: u128) -> String {
    rounded(bytes, f64::ceil)
}

/// Formats a limit, rounded down.
pub fn limit_shown(bytes: u128) -> String {
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
}
