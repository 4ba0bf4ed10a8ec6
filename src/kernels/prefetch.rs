//! Prefetching: instructions that load memory into a cache before the memory is read or written. The functions do nothing on
//! CPUs other than x86-64, since stable Rust has no prefetch intrinsic for other CPUs.

macro_rules! prefetch {
    ($(#[$doc:meta])* $name:ident, $hint:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<T>(at: *const T) {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{$hint, _mm_prefetch};
                // SAFETY: a prefetch never faults, whatever its address is.
                unsafe { _mm_prefetch::<$hint>(at.cast::<i8>()) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = at;
        }
    };
}

prefetch! {
    /// Prefetches the cache line of this element into the nearest cache, for reading.
    to_read, _MM_HINT_T0
}
prefetch! {
    /// Prefetches the cache line of this element into the second-level cache, for reading.
    to_read_later, _MM_HINT_T1
}
prefetch! {
    /// Prefetches the cache line of this element into the nearest cache, for writing.
    to_write, _MM_HINT_ET0
}

/// The size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches all cache lines of a row into the nearest cache.
#[inline(always)]
pub fn ask<T>(row: &[T]) {
    let start = row.as_ptr();
    for byte in (0..size_of_val(row)).step_by(LINE) {
        to_read(start.wrapping_byte_add(byte));
    }
    // A row that does not begin at the start of a cache line may extend into one more line.
    if !start.addr().is_multiple_of(LINE) {
        to_read(start.wrapping_byte_add(size_of_val(row).saturating_sub(1)));
    }
}

/// Prefetches the cache lines of `N` elements into the nearest cache. If the elements do not begin at the start of a line,
/// they may extend into one more line, which is not prefetched. The address need not point to valid memory.
#[inline(always)]
pub(super) fn ask_some<T, const N: usize>(start: *const T) {
    for line in 0..(N * size_of::<T>()).div_ceil(LINE) {
        to_read(start.wrapping_byte_add(line * LINE));
    }
}
