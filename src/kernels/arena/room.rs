//! Room that there may be no memory for.

use super::{Buffer, Lane, Line};

impl Lane<'_> {
    /// [`Self::reserve`], unless there is no memory for it: then nothing changes, and it is `false`.
    ///
    /// # Panics
    /// As [`Self::reserve`].
    pub fn try_reserve(&mut self, buffer: usize, elements: usize) -> bool {
        assert!(self.part.is_none() && buffer < self.count, "only a whole lane makes room");
        // SAFETY: a lane that is no part is the only borrow of the arena, and `&mut self` says that nothing is lent.
        let found: &mut Buffer = unsafe { &mut *self.buffers.cast_mut().add(buffer) };
        let lines = elements.saturating_mul(found.size).div_ceil(size_of::<Line>());
        let more = lines.saturating_sub(found.lines.len());
        let room = more == 0 || found.lines.own().try_reserve_exact(more).is_ok();
        if room {
            found.reserve(elements);
        }
        room
    }
}
