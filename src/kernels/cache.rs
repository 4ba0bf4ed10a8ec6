//! How much memory a core has to itself.

use std::sync::OnceLock;

/// Where the CPU does not say.
const USUAL: usize = 1 << 20;

/// Bytes of a core's own cache, the second level. What would fill it comes, in part at least, from memory
/// that the cores share.
pub fn own_cache() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| asked().filter(|&bytes| bytes > 0).unwrap_or(USUAL))
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "older compilers call it unsafe")]
fn asked() -> Option<usize> {
    use std::arch::x86_64::__cpuid;
    const CACHES: u32 = 0x8000_0006;
    // SAFETY: every x86-64 has the instruction.
    let known = unsafe { __cpuid(0x8000_0000) }.eax >= CACHES;
    // The upper half of ECX is the size of the second level in KiB, on Intel's CPUs and on AMD's.
    // SAFETY: as above.
    known.then(|| (unsafe { __cpuid(CACHES) }.ecx >> 16) as usize * 1024)
}

#[cfg(not(target_arch = "x86_64"))]
fn asked() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_a_likely_size() {
        assert!((1 << 16..=1 << 28).contains(&own_cache()), "{}", own_cache());
    }
}
