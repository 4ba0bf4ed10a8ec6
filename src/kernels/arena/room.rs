//! Reservation of buffer memory that returns `false` instead of aborting when the allocation fails.

use super::Lane;

impl Lane<'_> {
    /// Grows a buffer like [`Self::reserve`]; returns `false` and leaves the buffer unchanged if the allocation fails.
    ///
    /// # Panics
    /// As [`Self::reserve`].
    pub fn try_reserve(&mut self, buffer: usize, elements: usize) -> bool {
        assert!(self.part.is_none() && buffer < self.count, "only a whole lane makes room");
        // SAFETY: a lane that is no part of a split loop is the only borrow of the arena, and `&mut self` rules out lent
        // regions.
        let buffer = unsafe { &mut *self.buffers.add(buffer) };
        buffer.memory.try_grow(elements.saturating_mul(buffer.size))
    }
}
