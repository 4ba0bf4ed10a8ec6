//! An allocator that knows how much memory there ever was at once. A binary that has this module counts.

// A global allocator is `unsafe` by its trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

/// Gets the bytes of each allocation, if it is set.
pub(crate) static OBSERVER: OnceLock<fn(usize)> = OnceLock::new();

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it hands everything to the system's allocator and counts bytes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(observe) = OBSERVER.get() {
            observe(layout.size());
        }
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the peak of bytes allocated while `body` runs, beyond the bytes before, and the result of `body`.
pub(crate) fn of<T>(body: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let returned = body();
    (MOST.load(Relaxed) - before, returned)
}
