//! The memory of one buffer, and the address through which lanes read and write the memory.

use std::sync::Arc;

use crate::reserve;

/// A block of 64 bytes, the unit of allocation: a buffer starts on a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

#[derive(Clone)]
enum Lines {
    /// Memory that belongs to one buffer.
    Own(Vec<Line>),
    /// Memory that buffers of several arenas share. No arena writes this memory.
    Common(Arc<Vec<Line>>),
}

/// The memory of a buffer: cache lines and the address of the first line. No reference to the lines, not even a shared one,
/// may be made while a lane exists. Such a reference would count as a read while other threads write, and would invalidate
/// the addresses that lanes lent for writing.
pub(super) struct Memory {
    lines: Lines,
    /// The address of the first line. For lines that the buffer owns, `Vec::as_mut_ptr` returned this address after the last
    /// operation that moved the lines.
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the address points to lines that this memory owns, which are `Send`, or to common lines, which are never written.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` only reads the fields, and reads the lines to clone them; a lane that writes the lines borrows the arena
// mutably.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new() -> Self {
        Self::of(Lines::Own(Vec::new()))
    }

    fn of(lines: Lines) -> Self {
        let mut memory = Self { lines, start: std::ptr::null_mut(), bytes: 0 };
        memory.settle();
        memory
    }

    /// Updates `start` and `bytes`; must be called after the lines were moved or replaced.
    fn settle(&mut self) {
        let count;
        (self.start, count) = match &mut self.lines {
            Lines::Own(lines) => (lines.as_mut_ptr().cast(), lines.len()),
            // Nothing writes through this address, since `is_common` returns true for the memory.
            Lines::Common(lines) => (lines.as_ptr().cast::<u8>().cast_mut(), lines.len()),
        };
        self.bytes = count * size_of::<Line>();
    }

    /// Returns the address of the first byte, which lies at the start of a cache line. The address may be used for writing
    /// only if the memory is not common.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether other buffers may share this memory; shared memory must not be written.
    #[inline]
    pub(super) fn is_common(&self) -> bool {
        matches!(self.lines, Lines::Common(_))
    }

    /// Makes the memory common, so that clones share the memory instead of copying it.
    pub(super) fn make_common(&mut self) {
        if let Lines::Own(lines) = &mut self.lines {
            *self = Self::of(Lines::Common(Arc::new(std::mem::take(lines))));
        }
    }

    /// Makes common memory the buffer's own: copies the memory if another buffer still shares it.
    pub(super) fn make_own(&mut self) {
        if let Lines::Common(lines) = &mut self.lines {
            *self = Self::of(Lines::Own(Arc::unwrap_or_clone(std::mem::take(lines))));
        }
    }

    /// Grows the memory to at least `bytes` bytes; existing bytes keep their values, and new bytes are zero. Returns
    /// `false` and leaves the memory unchanged if the system refuses more memory.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        self.make_own();
        let Lines::Own(lines) = &mut self.lines else { unreachable!("it was just made its own") };
        let count = bytes.div_ceil(size_of::<Line>());
        let room = reserve::fits_exactly(lines, count - lines.len());
        if room {
            lines.resize(count, Line([0; 64]));
        }
        self.settle();
        room
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::of(self.lines.clone())
    }
}
