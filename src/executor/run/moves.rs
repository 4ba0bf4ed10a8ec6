//! Moves the rows of a loop: from the batch's order to the loop's order and back. Also moves the first and last values
//! of memories.

use std::ops::AddAssign;

use crate::error::Result;
use crate::executor::plan::{Access, Loop, MemoryGradientPlan, Move, Ref};
use crate::executor::run::frame::FrameRows;
use crate::executor::run::rank_table::RankTable;
use crate::executor::run::state::{CallRows, RunState};
use crate::executor::run::worker::Tools;
use crate::kernels::arena::{Lane, OperandRoom, Plain, Region};
use crate::kernels::{Assign, View, ViewMut, boundary, gather_rows, helpers, join};
use crate::operator::{BlockId, Extent};
use crate::tensor::{DType, with_element};

impl RunState<'_> {
    /// Gathers rows from the batch's order into the block's order: the rows of all steps, or one row (or sub-sequence) per
    /// sequence.
    pub(super) fn gather(
        &self,
        block: BlockId,
        rows: &Move,
        at: FrameRows,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        let map = self.frames[block.0 as usize].map(rows.inner.rows, at);
        let here = Some(CallRows::new(block, at));
        let (from, to) = (self.region(&rows.outer, None), self.region(&rows.inner, here));
        let threads = self.movers(to, tools);
        with_element!(self.dtype(&rows.inner), T => two::<T, _>(lane, &mut tools.workers[0].room, from, to, |from, to| {
            gather_on(from, map, to, threads);
        }));
    }

    /// Scatters rows from the block's order back to the batch's order: each row replaces the row at its position in
    /// the batch, or is added to it.
    pub(super) fn scatter(
        &self,
        block: BlockId,
        rows: &Move,
        at: FrameRows,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let here = Some(CallRows::new(block, at));
        let (from, to) = (self.region(&rows.inner, here), self.region(&rows.outer, None));
        let threads = self.movers(to, tools);
        let inverse = self.frames[block.0 as usize].inverse(rows.inner.rows, at, &mut tools.lists.index)?;
        let room = &mut tools.workers[0].room;
        match (rows.assign, self.dtype(&rows.inner)) {
            (Assign::Add, DType::F32) => {
                two::<f32, _>(lane, room, from, to, |from, to| add_rows(from, inverse, to))
            }
            (Assign::Add, DType::F64) => {
                two::<f64, _>(lane, room, from, to, |from, to| add_rows(from, inverse, to))
            }
            (_, dtype) => with_element!(dtype, T => two::<T, _>(lane, room, from, to, |from, to| {
                gather_on(from, inverse, to, threads);
            })),
        }
        Ok(())
    }

    /// Moves rows of the root block from the order of a step block into the batch's order. `rows` is the extent that
    /// counts these rows in the step block.
    pub(super) fn reorder(
        &self,
        block: BlockId,
        rows: Extent,
        from: &Ref,
        to: &Ref,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let (read, written) = (self.region(from, None), self.region(to, None));
        let threads = self.movers(written, tools);
        let frame = &self.frames[block.0 as usize];
        let inverse = frame.inverse(rows, FrameRows::All, &mut tools.lists.index)?;
        let room = &mut tools.workers[0].room;
        with_element!(self.dtype(from), T => two::<T, _>(lane, room, read, written, |from, to| {
            gather_on(from, inverse, to, threads);
        }));
        Ok(())
    }

    /// Returns the number of threads that move the rows of a region.
    fn movers(&self, to: Region, tools: &Tools<'_>) -> usize {
        helpers(to.extent.rows * to.extent.width, self.worth.call, tools.workers.len())
    }

    /// Copies the previous values of memories at all steps into one array, which instructions outside the loop read.
    pub(super) fn spread(&mut self, instr: &Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) {
        let block = instr.desc.block;
        for &m in &instr.spread {
            let memory = &instr.memories[m];
            let (Some(all), dtype) = (memory.all, self.dtype(&memory.next)) else { continue };
            let previous = Ref { access: Access::Previous { block, memory: m }, ..all };
            for t in 0..self.frames[block.0 as usize].rank.steps() {
                let here = Some(CallRows::new(block, FrameRows::Step { t, from: 0, to: usize::MAX }));
                let (from, to) = (self.region(&previous, here), self.region(&all, here));
                with_element!(dtype, T => two::<T, _>(lane, &mut tools.workers[0].room, from, to, |from, mut to| {
                    if let (Some(from), Some(to)) = (from.contiguous(), to.contiguous()) {
                        to.copy_from_slice(from);
                    }
                }));
            }
        }
    }

    /// Copies, for each sequence, the memory's value after the last step; for a sequence without steps, the initial
    /// value.
    pub(super) fn last_values(
        &self,
        block: BlockId,
        next: &Ref,
        start: &Ref,
        last: &Ref,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        let frame = &self.frames[block.0 as usize];
        let all = Some(CallRows::new(block, FrameRows::All));
        let each = Some(CallRows::new(block, FrameRows::Sequences));
        let reads = [self.region(next, all), self.region(start, each)];
        let mut operands = lane.operands(&mut tools.workers[0].room, &reads, &[self.region(last, None)]);
        with_element!(self.dtype(next), T => {
            if let (Some(next), Some(start), Some(mut last)) =
                (operands.read::<T>(0), operands.read::<T>(1), operands.write::<T>(0))
            {
                for (rank, &sequence) in frame.rank.order().iter().enumerate() {
                    let row = match frame.rank.length(rank) {
                        0 => start.row(rank),
                        steps => next.row(frame.rank.starts()[steps - 1] + rank),
                    };
                    last.row(sequence).copy_from_slice(row);
                }
            }
        });
    }

    /// Prepares the gradient of a memory's next value, before the loop. The row of each sequence's last step gets the
    /// gradient of the memory's last value. All other rows are set to zero, unless they already have contributions or a
    /// later step writes them.
    pub(super) fn begin_gradient(
        &mut self,
        instr: &Loop,
        plan: &MemoryGradientPlan,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let block = instr.desc.block;
        self.go(block, FrameRows::All)?;
        let room = &mut tools.workers[0].room;
        if !plan.filled && plan.passes.is_none() {
            self.zero(&plan.next, lane, room, tools.pool);
        }
        let ends = Ends {
            next: self.region(&plan.next, Some(CallRows::new(block, FrameRows::All))),
            start: self.region(&plan.start, Some(CallRows::new(block, FrameRows::Sequences))),
            last: plan.last.as_ref().map(|last| self.region(last, None)),
            // If the gradient already has contributions, the last value's gradient is added; otherwise it is written.
            assign: if plan.filled { Assign::Add } else { Assign::Write },
        };
        let rank = &self.frames[block.0 as usize].rank;
        match self.dtype(&plan.next) {
            DType::F64 => ends.fill::<f64>(rank, lane, room),
            _ => ends.fill::<f32>(rank, lane, room),
        }
        Ok(())
    }

    /// Moves the gradient of a memory's initial value out of the loop.
    pub(super) fn end_gradient(
        &self,
        block: BlockId,
        plan: &MemoryGradientPlan,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let Some((initial, assign)) = plan.initial else { return Ok(()) };
        let rows = Move { outer: initial, inner: plan.start, assign };
        self.scatter(block, &rows, FrameRows::Sequences, lane, tools)
    }
}

/// The memory regions of the gradients with which a backward loop starts.
struct Ends {
    /// The gradients of the memory's next values at all steps.
    next: Region,
    /// The gradients of the memory's initial values, one row per sequence.
    start: Region,
    /// The gradients of the memory's last values, one row per sequence; `None` if the last values have no gradient.
    last: Option<Region>,
    /// Whether the gradient of the last values is written to the rows of the last steps, or added.
    assign: Assign,
}

impl Ends {
    /// Fills the gradient rows of each sequence's last step, and the gradients of the initial values. For a sequence
    /// without steps, the initial value is the last value, so the initial value gets the last value's gradient.
    fn fill<T: Plain + AddAssign + Default>(
        &self,
        rank: &RankTable,
        lane: &mut Lane<'_>,
        room: &mut OperandRoom,
    ) {
        let mut operands = lane.operands(room, self.last.as_slice(), &[self.next, self.start]);
        let last = if self.last.is_some() { operands.read::<T>(0) } else { None };
        let (Some(mut next), Some(mut start)) = (operands.write::<T>(0), operands.write::<T>(1)) else {
            return;
        };
        start.fill(T::default());
        for (index, &sequence) in rank.order().iter().enumerate() {
            let row = match rank.length(index) {
                0 => start.row(index),
                steps => next.row(rank.starts()[steps - 1] + index),
            };
            match (&last, self.assign) {
                (Some(last), Assign::Write) => row.copy_from_slice(last.row(sequence)),
                (Some(last), Assign::Add) => add(last.row(sequence), row),
                (None, Assign::Write) => row.fill(T::default()),
                (None, Assign::Add) => {}
            }
        }
    }
}

/// Calls a function with the view of a region to read and the view of a region to write.
fn two<T: Plain, R: Default>(
    lane: &mut Lane<'_>,
    room: &mut OperandRoom,
    from: Region,
    to: Region,
    body: impl FnOnce(View<'_, T>, ViewMut<'_, T>) -> R,
) -> R {
    let mut operands = lane.operands(room, &[from], &[to]);
    match (operands.read::<T>(0), operands.write::<T>(0)) {
        (Some(from), Some(to)) => body(from, to),
        _ => R::default(),
    }
}

/// Gathers the rows `map` of `from` into `to`, on several threads.
fn gather_on<T: Plain>(from: View<'_, T>, map: &[usize], to: ViewMut<'_, T>, threads: usize) {
    let rows = to.rows().min(map.len());
    if threads < 2 || rows < 2 {
        return gather_rows(from, map, to);
    }
    let left = threads / 2;
    let middle = boundary(rows, left, threads);
    let (a, b) = to.split_rows(middle);
    join(|| gather_on(from, &map[..middle], a, left), || gather_on(from, &map[middle..], b, threads - left));
}

/// Adds row `map[i]` of `from` to row `i` of `to`, for each row.
fn add_rows<T: Plain + AddAssign>(from: View<'_, T>, map: &[usize], mut to: ViewMut<'_, T>) {
    for (row, &index) in to.iter_mut().zip(map) {
        add(from.row(index), row);
    }
}

fn add<T: Copy + AddAssign>(from: &[T], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t += *f);
}
