//! Reservation of memory that may fail.

use super::Lane;

impl Lane<'_> {
    /// Reserves like [`Self::reserve`]; returns `false` and changes nothing if the allocation fails.
    ///
    /// # Panics
    /// As [`Self::reserve`].
    pub fn try_reserve(&mut self, buffer: usize, elements: usize) -> bool {
        assert!(self.part.is_none() && buffer < self.count, "only a whole lane makes room");
        // SAFETY: a lane that is no part is the only borrow of the arena, and `&mut self` says that nothing is lent.
        let buffer = unsafe { &mut *self.buffers.add(buffer) };
        buffer.memory.try_grow(elements.saturating_mul(buffer.size))
    }
}
