//! The buffers of a running program: operators borrow regions of the buffers. One call lends several regions, after a check
//! that no written region overlaps another lent region.
//!
//! An operator often reads and writes regions of one buffer: it writes step *t* of a memory and reads step *t − 1*. The
//! threads of a split step loop write disjoint rows of the same buffers. Rust's slices cannot express these two kinds of
//! borrows. Here, an [`Arena`] owns typed buffers, and a [`Lane`] is the right to use all buffers, or only the rows of some
//! sequences. [`Lane::operands`] lends regions after two checks: each region lies inside the lane, and no written region
//! overlaps another lent region. The code outside of `src/kernels` needs no `unsafe`.

mod memory;
mod share;

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

pub use share::{LanePart, Region, Share, StepRows};

use memory::Memory;

use super::fork::join;
use super::view::{Extent2, View, ViewMut};

/// The element types that a buffer may have: types for which a value of only zero bytes is valid. The trait is sealed:
/// a buffer of a type without valid zeros would be undefined behaviour.
///
/// ```compile_fail
/// impl unpadded::kernels::arena::Plain for &'static str {}
/// ```
pub trait Plain: Copy + Send + Sync + sealed::Sealed + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            impl sealed::Sealed for $type {}
            impl Plain for $type {}
        )*

        fn element_size(element: TypeId) -> usize {
            $(if element == TypeId::of::<$type>() {
                return size_of::<$type>();
            })*
            unreachable!("no other type is `Plain`")
        }
    };
}
plain!(f32, f64, i8, i16, i32, i64, bool, half::f16, half::bf16);

#[derive(Clone)]
struct Buffer {
    memory: Memory,
    element: TypeId,
    size: usize,
    /// The version of the buffer's values, as [`Lane::version`] returns it.
    version: u64,
}

/// The next version number; each number is given to only one buffer, across all arenas of the process.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

impl Buffer {
    fn try_reserve(&mut self, elements: usize) -> bool {
        self.memory.grow(elements.saturating_mul(self.size))
    }
}

/// A list of typed buffers that grow and never shrink. A clone of the arena copies the buffers, except for
/// [common](Self::make_common) buffers.
#[derive(Default, Clone)]
pub struct Arena {
    buffers: Vec<Buffer>,
}

/// The right to use the buffers of an arena: all buffers, or the rows of a [`LanePart`].
pub struct Lane<'a> {
    buffers: *mut Buffer,
    count: usize,
    part: Option<LanePart<'a>>,
    life: PhantomData<&'a mut Arena>,
}

// SAFETY: a lane borrows the arena exclusively, or borrows a part that no other lane reaches. The buffers hold `Plain`
// types, which are Send and Sync.
unsafe impl Send for Lane<'_> {}

/// The address, extent and element type of a lent region. Only a region in the `writes` of an [`OperandRoom`] may be
/// written: the address of a read region may come from a shared slice.
#[derive(Clone, Copy)]
struct Raw {
    start: *mut u8,
    extent: Extent2,
    element: TypeId,
    taken: bool,
}

/// Scratch for the lists of the regions that one call of an operator reads and writes. The caller keeps this scratch
/// between calls, so that lending regions allocates no memory.
#[derive(Default)]
pub struct OperandRoom {
    reads: Vec<Raw>,
    writes: Vec<Raw>,
}

// SAFETY: between calls the room holds stale addresses; nothing reads them, since every lending call clears the room first.
unsafe impl Send for OperandRoom {}

/// The regions that a call of an operator may read and write. [`Self::write`] returns each written region at most once.
pub struct Operands<'a> {
    reads: &'a [Raw],
    writes: &'a mut [Raw],
}

// SAFETY: regions are plain data; `Lane::operands` checked that each region is either shared for reading or written by one
// thread.
unsafe impl Send for Operands<'_> {}

impl Arena {
    /// Returns an arena without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an empty buffer with elements of type `T`, and returns the index of the buffer.
    pub fn add<T: Plain>(&mut self) -> usize {
        self.buffers.push(Buffer {
            memory: Memory::new(),
            element: TypeId::of::<T>(),
            size: size_of::<T>(),
            version: 0,
        });
        self.buffers.len() - 1
    }

    /// Grows a buffer to at least `elements` elements; the buffer keeps its existing elements, and new elements are zero.
    /// Returns `false` and leaves the buffer unchanged if the system refuses the memory.
    #[must_use]
    pub fn try_reserve(&mut self, buffer: usize, elements: usize) -> bool {
        self.buffers[buffer].try_reserve(elements)
    }

    /// Swaps a buffer of this arena with a buffer of another arena, without copying.
    ///
    /// # Panics
    /// If the two buffers have different element types.
    pub fn exchange(&mut self, buffer: usize, other: &mut Arena, theirs: usize) {
        assert!(self.buffers[buffer].element == other.buffers[theirs].element, "buffers of different types");
        std::mem::swap(&mut self.buffers[buffer], &mut other.buffers[theirs]);
    }

    /// Makes later clones of this arena share the memory of its buffers instead of copying the memory. Such common buffers
    /// are read-only: [`Self::own`] must be called for a common buffer before the buffer is written.
    pub fn make_common(&mut self) {
        for buffer in &mut self.buffers {
            buffer.memory.make_common();
        }
    }

    /// Makes a buffer writable: copies the buffer if another arena shares its memory. The buffer gets a new
    /// [version](Lane::version).
    pub fn own(&mut self, buffer: usize) {
        let buffer = &mut self.buffers[buffer];
        buffer.memory.make_own();
        buffer.version = VERSIONS.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the size in bytes of all buffers, common buffers included.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(|b| b.memory.bytes()).sum()
    }

    /// Returns the size of a buffer in bytes.
    pub fn buffer_bytes(&self, buffer: usize) -> usize {
        self.buffers.get(buffer).map_or(0, |buffer| buffer.memory.bytes())
    }

    /// Returns a lane that may use every buffer.
    pub fn lane(&mut self) -> Lane<'_> {
        Lane { buffers: self.buffers.as_mut_ptr(), count: self.buffers.len(), part: None, life: PhantomData }
    }
}

impl<'a> Lane<'a> {
    /// The sequences of this lane, if the lane is a part of a split loop; `None` if the lane may use every buffer.
    pub fn part(&self) -> Option<LanePart<'a>> {
        self.part
    }

    /// Splits the lane into one lane per range of sequences: lane `i` has the sequences at the positions `cuts[i]..cuts[i + 1]`
    /// in the order of the loop. Calls `run` for each lane, on the threads of the current rayon pool.
    ///
    /// # Panics
    /// Panics in these cases:
    /// - This lane is already a part of a split loop.
    /// - `cuts` does not have one more entry than `states`, or its entries decrease.
    /// - The start rows of the steps, or the start rows of the runs, decrease.
    /// - The number of shares is not the number of buffers.
    pub fn split<S: Send, E: Send>(
        &mut self,
        cuts: &[usize],
        steps: StepRows<'_>,
        states: &mut [S],
        run: &(impl Fn(Lane<'_>, &mut S) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        assert!(self.part.is_none(), "a part of a split loop is not split again");
        assert!(
            cuts.is_sorted() && cuts.len() == states.len() + 1,
            "{} cuts for {} lanes",
            cuts.len(),
            states.len()
        );
        let sequences = cuts.last().copied().unwrap_or(0);
        assert!(steps.are_apart(sequences), "the start rows of the steps or of the runs decrease");
        let shares = steps.shares.len();
        assert!(shares == self.count, "{shares} shares for {} buffers", self.count);
        let buffers = Address(self.buffers);
        fork(buffers, self.count, cuts, steps, states, run)
    }

    /// Grows a buffer as [`Arena::try_reserve`] does, but through a lane.
    ///
    /// # Panics
    /// If this lane is a part of a split loop: only a lane of the whole arena may grow buffers.
    #[must_use]
    pub fn try_reserve(&mut self, buffer: usize, elements: usize) -> bool {
        assert!(
            self.part.is_none() && buffer < self.count,
            "only a lane of the whole arena may grow buffers"
        );
        // SAFETY: a lane that is no part of a split loop is the only borrow of the arena, and `&mut self` rules out lent
        // regions.
        let buffer = unsafe { &mut *self.buffers.add(buffer) };
        buffer.try_reserve(elements)
    }

    /// Lends the regions `reads` for reading and the regions `writes` for writing.
    ///
    /// # Panics
    /// If a region lies outside its buffer or outside this lane's part; or if a written region overlaps another lent region
    /// or belongs to a common buffer. Without this panic, a wrong region in the execution plan would cause a data race.
    pub fn operands<'b>(
        &'b mut self,
        room: &'b mut OperandRoom,
        reads: &[Region],
        writes: &[Region],
    ) -> Operands<'b> {
        for (i, write) in writes.iter().enumerate() {
            let clash = reads.iter().chain(&writes[..i]).find(|other| write.overlaps(other));
            assert!(clash.is_none(), "the written {write:?} overlaps {clash:?}");
        }
        room.reads.clear();
        room.reads.extend(reads.iter().map(|region| self.resolve(region, false)));
        room.writes.clear();
        room.writes.extend(writes.iter().map(|region| self.resolve(region, true)));
        Operands { reads: &room.reads, writes: &mut room.writes }
    }

    /// Returns the version of a buffer's values. Equal versions mean equal values if every writer calls [`own`](Arena::own)
    /// before it writes. The version is 0 if `own` was never called for the buffer.
    ///
    /// # Panics
    /// If the arena has no buffer with this index.
    pub fn version(&self, buffer: usize) -> u64 {
        self.buffer(buffer).version
    }

    fn buffer(&self, number: usize) -> &Buffer {
        assert!(number < self.count, "buffer {number} of {}", self.count);
        // SAFETY: the arena is borrowed while the lane lives, so the arena's list of buffers does not change.
        unsafe { &*self.buffers.add(number) }
    }

    #[inline]
    fn resolve(&self, region: &Region, write: bool) -> Raw {
        let (buffer, extent) = (self.buffer(region.buffer), region.extent);
        let start = buffer.memory.start();
        let raw = Raw { start, extent, element: buffer.element, taken: false };
        // A region without elements needs no memory, so even an empty buffer can lend such a region.
        if extent.rows == 0 || extent.width == 0 {
            return raw;
        }
        let (first, end) = (region.first(), region.end());
        let fits = region.column.saturating_add(extent.width) <= extent.stride
            && end.saturating_mul(buffer.size) <= buffer.memory.bytes()
            && !(write && buffer.memory.is_common());
        if !fits || !self.part.as_ref().is_none_or(|part| part.has(region, write)) {
            self.refuse(region, write);
        }
        // SAFETY: the checks above established that `end` is not beyond the buffer.
        Raw { start: unsafe { start.add(first * buffer.size) }, ..raw }
    }

    /// Panics with a message that gives the reason why [`Self::resolve`] refused a region.
    #[cold]
    fn refuse(&self, region: &Region, write: bool) -> ! {
        let buffer = self.buffer(region.buffer);
        let capacity = buffer.memory.bytes() / buffer.size;
        let beyond = region.column.saturating_add(region.extent.width) > region.extent.stride;
        assert!(!beyond, "columns beyond the row: {region:?}");
        assert!(region.end() <= capacity, "{region:?} beyond {capacity} elements");
        let common = write && buffer.memory.is_common();
        assert!(!common, "{region:?} of a common buffer is written");
        let (from, to) = self.part.as_ref().map_or((0, 0), |part| (part.from, part.to));
        panic!("{region:?} outside sequences {from}..{to}")
    }
}

/// The address of the list of buffers; the address is sent to the threads of the lanes.
#[derive(Clone, Copy)]
struct Address(*mut Buffer);
// SAFETY: as for `Lane`, the lanes that use this address reach disjoint parts of the buffers.
unsafe impl Send for Address {}
// SAFETY: threads share this address only to copy it.
unsafe impl Sync for Address {}

/// Halves the list of lanes recursively until one lane is left, then calls `run` for that lane. A recursion over
/// `rayon::join` needs no allocation.
fn fork<S: Send, E: Send>(
    buffers: Address,
    count: usize,
    cuts: &[usize],
    steps: StepRows<'_>,
    states: &mut [S],
    run: &(impl Fn(Lane<'_>, &mut S) -> Result<(), E> + Sync),
) -> Result<(), E> {
    match states {
        [] => Ok(()),
        [state] => {
            let part = LanePart { from: cuts[0], to: cuts[1], steps };
            run(Lane { buffers: buffers.0, count, part: Some(part), life: PhantomData }, state)
        }
        _ => {
            let middle = states.len() / 2;
            let (left, right) = states.split_at_mut(middle);
            let (a, b) = join(
                || fork(buffers, count, &cuts[..=middle], steps, left, run),
                || fork(buffers, count, &cuts[middle..], steps, right, run),
            );
            a.and(b)
        }
    }
}

impl<'a> Operands<'a> {
    /// Starts a list of operands over slices of the caller, without an arena.
    pub fn lent(room: &'a mut OperandRoom) -> Lender<'a> {
        room.reads.clear();
        room.writes.clear();
        Lender { room, life: PhantomData }
    }

    /// Returns whether the elements of read region `i` have type `T`.
    pub fn read_is<T: Plain>(&self, i: usize) -> bool {
        self.reads[i].element == TypeId::of::<T>()
    }

    /// Returns whether the elements of written region `i` have type `T`.
    pub fn write_is<T: Plain>(&self, i: usize) -> bool {
        self.writes[i].element == TypeId::of::<T>()
    }

    /// Returns read region `i`; `None` if its elements do not have type `T`.
    pub fn read<T: Plain>(&self, i: usize) -> Option<View<'a, T>> {
        let raw = &self.reads[i];
        // SAFETY: lending checked that the region lies in its buffer of `T`, and that no written region overlaps it.
        self.read_is::<T>(i).then(|| unsafe { View::from_raw(raw.start.cast::<T>(), raw.extent) })
    }

    /// Returns written region `i`, at most once; `None` if its elements do not have type `T`.
    ///
    /// # Panics
    /// If written region `i` was already returned.
    pub fn write<T: Plain>(&mut self, i: usize) -> Option<ViewMut<'a, T>> {
        if !self.write_is::<T>(i) {
            return None;
        }
        let raw = &mut self.writes[i];
        assert!(!raw.taken, "written region {i} was handed out before");
        raw.taken = true;
        // SAFETY: lending checked that the region lies in its buffer of `T` and overlaps no other region; this method
        // returns it only once.
        Some(unsafe { ViewMut::from_raw(raw.start.cast::<T>(), raw.extent) })
    }

    /// Splits the operands by rows into two parts: operand `i` is cut at row `cut(i)`, where `i` counts the reads first,
    /// then the writes. If `cut(i)` is `None`, both parts get the whole operand, which must be a read.
    ///
    /// # Panics
    /// If a write has no cut or was already returned, or if a cut lies beyond the rows of its operand.
    pub fn split<'b>(
        &'b mut self,
        split_at: impl Fn(usize) -> Option<usize>,
        rooms: (&'b mut OperandRoom, &'b mut OperandRoom),
    ) -> (Operands<'b>, Operands<'b>) {
        let (left, right) = rooms;
        for room in [&mut *left, &mut *right] {
            room.reads.clear();
            room.writes.clear();
        }
        for (i, raw) in self.reads.iter().enumerate() {
            let (a, b) = split_at(i).map_or((*raw, *raw), |at| raw.halves(at));
            left.reads.push(a);
            right.reads.push(b);
        }
        for (i, raw) in self.writes.iter_mut().enumerate() {
            assert!(!raw.taken, "written region {i} was handed out before");
            raw.taken = true;
            let Some(at) = split_at(self.reads.len() + i) else {
                panic!("a write that is shared by two ranges of rows");
            };
            let (a, b) = Raw { taken: false, ..*raw }.halves(at);
            left.writes.push(a);
            right.writes.push(b);
        }
        (
            Operands { reads: &left.reads, writes: &mut left.writes },
            Operands { reads: &right.reads, writes: &mut right.writes },
        )
    }
}

impl Raw {
    fn halves(self, at: usize) -> (Raw, Raw) {
        let Extent2 { rows, width, stride } = self.extent;
        assert!(at <= rows, "cut at row {at} of {rows}");
        let size = element_size(self.element);
        let offset = if at == rows || width == 0 { 0 } else { at * stride * size };
        // SAFETY: the address is the start of a row inside the region, and lending checked the region.
        let second = unsafe { self.start.add(offset) };
        (
            Raw { extent: Extent2 { rows: at, ..self.extent }, ..self },
            Raw { start: second, extent: Extent2 { rows: rows - at, ..self.extent }, ..self },
        )
    }
}

/// Collects slices of the caller into [`Operands`].
pub struct Lender<'a> {
    room: &'a mut OperandRoom,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Lender<'a> {
    /// Adds a view as the next region to read.
    pub fn read<T: Plain>(&mut self, view: View<'a, T>) {
        let extent = Extent2 { rows: view.rows(), width: view.width(), stride: view.stride() };
        let start = view.as_ptr().cast::<u8>().cast_mut();
        self.room.reads.push(Raw { start, extent, element: TypeId::of::<T>(), taken: false });
    }

    /// Adds a view as the next region to write.
    pub fn write<T: Plain>(&mut self, mut view: ViewMut<'a, T>) {
        let extent = Extent2 { rows: view.rows(), width: view.width(), stride: view.stride() };
        let start = view.as_mut_ptr().cast::<u8>();
        self.room.writes.push(Raw { start, extent, element: TypeId::of::<T>(), taken: false });
    }

    /// Returns the added views as operands.
    pub fn finish(self) -> Operands<'a> {
        Operands { reads: &self.room.reads, writes: &mut self.room.writes }
    }
}

#[cfg(test)]
mod tests;
