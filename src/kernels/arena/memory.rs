//! The memory of a buffer, and the address through which lanes write it.

use std::sync::Arc;

/// 64 bytes, so that a buffer starts on a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

#[derive(Clone)]
enum Lines {
    /// Memory that belongs to one buffer.
    Own(Vec<Line>),
    /// Memory that the buffers of several arenas share and only read.
    Common(Arc<Vec<Line>>),
}

/// Lines of memory with their address. While a lane exists, no reference to the lines is made, not even a shared reference: it
/// would be a read beside the writes of other threads, and would invalidate lent addresses for writing.
pub(super) struct Memory {
    lines: Lines,
    /// The start of the lines. For own lines the address comes from `Vec::as_mut_ptr`, called after the last operation that
    /// moved the lines.
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the address points to lines that this memory owns, which are `Send`, or that it has in common and never writes.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` reads these fields and, to clone them, the lines; a lane that writes them has the arena borrowed.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns empty memory.
    pub(super) fn new() -> Self {
        Self::of(Lines::Own(Vec::new()))
    }

    fn of(lines: Lines) -> Self {
        let mut memory = Self { lines, start: std::ptr::null_mut(), bytes: 0 };
        memory.settle();
        memory
    }

    /// Updates `start`; must be called after the lines were moved or replaced.
    fn settle(&mut self) {
        let count;
        (self.start, count) = match &mut self.lines {
            Lines::Own(lines) => (lines.as_mut_ptr().cast(), lines.len()),
            // This address is never written through, since `is_common` is true.
            Lines::Common(lines) => (lines.as_ptr().cast::<u8>().cast_mut(), lines.len()),
        };
        self.bytes = count * size_of::<Line>();
    }

    /// Returns the first byte's address, on a cache line. If the memory is not in common, the address may be written through.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Returns the number of bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether other buffers may have the same memory; the memory must then not be written.
    #[inline]
    pub(super) fn is_common(&self) -> bool {
        matches!(self.lines, Lines::Common(_))
    }

    /// Makes the memory common, so that clones share it.
    pub(super) fn make_common(&mut self) {
        if let Lines::Own(lines) = &mut self.lines {
            *self = Self::of(Lines::Common(Arc::new(std::mem::take(lines))));
        }
    }

    /// Makes common memory the buffer's own: copies it, unless no other buffer shares it any more.
    pub(super) fn make_own(&mut self) {
        if let Lines::Common(lines) = &mut self.lines {
            *self = Self::of(Lines::Own(Arc::unwrap_or_clone(std::mem::take(lines))));
        }
    }

    /// Grows the memory to `bytes` bytes; its contents stay, new bytes are zero.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.grow_by(bytes, |_, _| true);
    }

    /// Grows like [`Self::grow`]; returns `false` and changes nothing if the allocation fails.
    pub(super) fn try_grow(&mut self, bytes: usize) -> bool {
        self.grow_by(bytes, |lines, more| lines.try_reserve_exact(more).is_ok())
    }

    fn grow_by(&mut self, bytes: usize, reserve: fn(&mut Vec<Line>, usize) -> bool) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        self.make_own();
        let Lines::Own(lines) = &mut self.lines else { unreachable!("it was just made its own") };
        let count = bytes.div_ceil(size_of::<Line>());
        let room = reserve(lines, count - lines.len());
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
