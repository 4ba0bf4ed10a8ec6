//! The state of a run in progress: the data that its threads share, and the memory region of each view.

use crate::error::Result;
use crate::executor::plan::{Access, Home, Loop, Plan, Ref};
use crate::executor::run::counts::CountSource;
use crate::executor::run::frame::{Frame, FrameRows};
use crate::executor::run::request::Run;
use crate::executor::run::worth::Worth;
use crate::kernels::arena::{Lane, OperandRoom, Region};
use crate::kernels::{Extent2, flush};
use crate::operator::context::{CallCache, RunFacts};
use crate::operator::entries::PooledStorage;
use crate::operator::levels::LevelTable;
use crate::operator::{BlockId, Extent};
use crate::program::Program;
use crate::tensor::{DType, with_element};

/// The data that all threads of a run share.
pub(crate) struct RunState<'p> {
    pub(crate) plan: &'p Plan,
    /// For each step block, the loop that runs the block now or ran it last; `None` if no loop has run the block yet.
    pub(crate) loops: Vec<Option<&'p Loop>>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) levels: LevelTable,
    pub(crate) spare: LevelTable,
    pub(crate) prepared: Vec<Preparation>,
    pub(crate) numbers: Vec<u64>,
    pub(crate) places: Vec<u64>,
    pub(crate) batch: usize,
    pub(crate) facts: RunFacts,
    pub(crate) worth: Worth,
}

/// A store for the values that an operator has prepared for its calls, such as packed weights.
#[derive(Default)]
pub(crate) struct Preparation {
    pub(super) made: CallCache,
    /// The number of the instruction whose constants were prepared last.
    pub(super) by: usize,
    /// The versions of the constants that were prepared; empty if the constants must be prepared again in every run.
    pub(super) of: Vec<u64>,
}

/// The parts of a [`RunState`] that are kept between runs: memory to reuse, and the data that
/// [`Executor::update`](crate::executor::Executor::update) needs after a run until the gradients.
#[derive(Default)]
pub(crate) struct RunMemory {
    loops: Vec<Option<&'static Loop>>,
    frames: Vec<Frame>,
    pub(super) levels: LevelTable,
    /// Old levels that operators of the root block have made; the next run reuses their memory.
    pub(super) spare: LevelTable,
    prepared: Vec<Preparation>,
    numbers: Vec<u64>,
    places: Vec<u64>,
    pub(super) batch: usize,
    /// For each variable that is a sparse feed, the number of its entries or rows.
    pub(super) entries: Vec<usize>,
    facts: RunFacts,
}

impl RunMemory {
    /// Returns the state before the first run, for a plan of a program with `blocks` blocks.
    pub(super) fn new(plan: &Plan, (blocks, variables): (usize, usize)) -> Self {
        let mut kept = Self::default();
        kept.frames.resize_with(blocks, Frame::default);
        kept.entries.resize(variables, 0);
        kept.prepared.resize_with(plan.prepared, Preparation::default);
        kept
    }

    /// Returns the LoDs of the batch before its run, from which counts are computed.
    pub(super) fn source_of_batch(&self) -> CountSource<'_> {
        CountSource { batch: self.batch, levels: &self.levels, frames: &[], fed: &self.entries }
    }

    /// Returns the LoDs of the last run, from which counts are computed.
    pub(super) fn source(&self) -> CountSource<'_> {
        CountSource { frames: &self.frames, ..self.source_of_batch() }
    }

    /// Begins a run: sets its batch, mode and step. The feeds of the run must be bound before this call.
    pub(super) fn begin(&mut self, run: &Run<'_>, program: &Program) {
        let Program { seed, unit, .. } = *program;
        self.facts = RunFacts { mode: run.mode, step: run.step, seed, threads: 1, unit };
        self.numbers.clear();
        self.numbers.extend_from_slice(run.numbers);
        self.places.clear();
        self.places.extend_from_slice(run.places);
        self.frames.iter_mut().for_each(Frame::restart);
    }

    /// Lends the kept parts to a run; [`Self::take_back`] takes them back after the run.
    pub(super) fn lend<'p>(&mut self, plan: &'p Plan, worth: Worth) -> RunState<'p> {
        let mut loops = emptied(std::mem::take(&mut self.loops));
        loops.resize(self.frames.len(), None);
        RunState {
            plan,
            loops,
            frames: std::mem::take(&mut self.frames),
            levels: std::mem::take(&mut self.levels),
            spare: std::mem::take(&mut self.spare),
            prepared: std::mem::take(&mut self.prepared),
            numbers: std::mem::take(&mut self.numbers),
            places: std::mem::take(&mut self.places),
            batch: self.batch,
            facts: self.facts,
            worth,
        }
    }

    /// Takes back the parts that [`Self::lend`] has lent to a run.
    pub(super) fn take_back(&mut self, state: RunState<'_>) {
        self.loops = emptied(state.loops);
        self.frames = state.frames;
        self.levels = state.levels;
        self.spare = state.spare;
        self.prepared = state.prepared;
        self.numbers = state.numbers;
        self.places = state.places;
    }
}

/// Returns an empty list that reuses the memory of a list of references with another lifetime.
fn emptied<'p>(mut loops: Vec<Option<&Loop>>) -> Vec<Option<&'p Loop>> {
    loops.clear();
    // `collect` reuses the memory of a `Vec`, because the two element types have equal layouts.
    loops.into_iter().map(|_| None).collect()
}

/// The rows of a step block on which one call works. A call without a `CallRows` works on the rows that the block's frame
/// computes now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRows {
    pub(crate) block: BlockId,
    pub(crate) at: FrameRows,
    /// The number of threads that the call may use; above 1 only if one lane has all sequences.
    pub(crate) threads: usize,
    /// Restricts the call to some of the rows `at`: the first row, and the row after the last one; `None` for all rows.
    pub(crate) only: Option<(usize, usize)>,
}

impl CallRows {
    /// Returns the rows `at`, without restriction, for one thread.
    pub(crate) fn new(block: BlockId, at: FrameRows) -> Self {
        Self { block, at, threads: 1, only: None }
    }
}

/// The three views with which a call reads the values of the previous step.
struct Neighbour<'a> {
    /// The view for the first step: it contains the initial values.
    start: &'a Ref,
    /// The view for a later step: it contains the next values, from which the rows of the previous step are read.
    next: &'a Ref,
    /// The view for a call on all steps at once: it contains the previous values of all steps.
    all: &'a Ref,
}

impl RunState<'_> {
    pub(super) fn at(&self, block: BlockId, here: Option<CallRows>) -> FrameRows {
        match here {
            Some(here) if here.block == block => here.at,
            _ => self.frames[block.0 as usize].at,
        }
    }

    pub(crate) fn count(&self, extent: Extent, here: Option<CallRows>) -> usize {
        match extent {
            Extent::Known(n) => n,
            Extent::Batch => self.batch,
            Extent::Rows(level) => {
                let in_lane = |here: CallRows| self.frames[here.block.0 as usize].static_rows(here.at, level);
                let bound = || self.levels.get(level).map_or(0, |lod| lod.rows());
                here.and_then(in_lane).unwrap_or_else(bound)
            }
            Extent::Alive(block) => {
                let (frame, at) = (&self.frames[block.0 as usize], self.at(block, here));
                if at == FrameRows::Sequences { frame.rank.sequences() } else { frame.stepped(at, extent).1 }
            }
            Extent::Data(_) => 0,
        }
    }

    /// Returns the memory region that a call reads or writes through a view: the rows of the view on which the call works.
    pub(crate) fn region(&self, view: &Ref, here: Option<CallRows>) -> Region {
        match view.access {
            Access::Slot(slot) => self.slot_region(slot, view, here),
            Access::Previous { block, memory } => {
                let at = self.at(block, here);
                let Some(instr) = self.loops[block.0 as usize] else { return Region::default() };
                let plan = &instr.memories[memory];
                let all = plan.all.as_ref().unwrap_or(&plan.next);
                let side = Neighbour { start: &plan.start, next: &plan.next, all };
                self.neighbour(block, at, &side, here)
            }
            Access::Passed { block, memory } => {
                let at = self.at(block, here);
                let gradients = self.loops[block.0 as usize].map_or(&[][..], |l| &l.gradients);
                let Some(plan) = gradients.iter().find(|g| g.memory == memory) else {
                    return Region::default();
                };
                let side = Neighbour { start: &plan.start, next: &plan.next, all: &plan.next };
                self.neighbour(block, at, &side, here)
            }
        }
    }

    /// Returns the region of the previous step's values; at the first step, the region of the initial values.
    fn neighbour(
        &self,
        block: BlockId,
        at: FrameRows,
        side: &Neighbour<'_>,
        here: Option<CallRows>,
    ) -> Region {
        match at {
            FrameRows::Step { t: 0, .. } => self.region(side.start, here),
            FrameRows::Step { t, from, to } => {
                let alive = self.frames[block.0 as usize].rank.alive(t);
                let before = FrameRows::Step { t: t - 1, from, to: to.min(alive) };
                self.region(side.next, Some(CallRows::new(block, before)))
            }
            _ => self.region(side.all, here),
        }
    }

    fn slot_region(&self, slot: usize, view: &Ref, here: Option<CallRows>) -> Region {
        let slot = &self.plan.slots[slot];
        let step = |at: FrameRows| if let FrameRows::Step { t, .. } = at { t } else { 0 };
        let (row, rows, step) = match slot.home {
            Home::Whole => (0, self.count(view.rows, here), 0),
            Home::Stepped(block) => {
                let at = self.at(block, here);
                let (row, rows) = self.frames[block.0 as usize].stepped(at, view.rows);
                (row, rows, step(at))
            }
            Home::Sequence(block) => {
                let at = self.at(block, here);
                let (row, rows) = self.frames[block.0 as usize].sequence(at, view.rows);
                (row, rows, step(at))
            }
        };
        let (row, rows) = match here.and_then(|here| here.only) {
            Some((from, to)) if view.rows.known().is_none() => {
                (row + from, rows.min(to).saturating_sub(from))
            }
            _ => (row, rows),
        };
        let extent = Extent2 { rows, width: view.width, stride: slot.width };
        Region { buffer: slot.buffer, row, column: view.column, extent, step }
    }

    pub(crate) fn dtype(&self, view: &Ref) -> DType {
        let slot = match view.access {
            Access::Slot(slot) => Some(slot),
            Access::Previous { block, memory } => {
                let next = self.loops[block.0 as usize].map(|l| l.memories[memory].next.access);
                if let Some(Access::Slot(s)) = next { Some(s) } else { None }
            }
            Access::Passed { block, memory } => {
                let plan = self.loops[block.0 as usize]
                    .and_then(|l| l.gradients.iter().find(|g| g.memory == memory));
                if let Some(Access::Slot(s)) = plan.map(|g| g.next.access) { Some(s) } else { None }
            }
        };
        slot.map_or(DType::F32, |s| self.plan.slots[s].dtype)
    }

    /// Sets the rows that a block computes now, and binds the block's levels to the offsets of these rows.
    pub(crate) fn go(&mut self, block: BlockId, at: FrameRows) -> Result<()> {
        self.frames[block.0 as usize].go(at, &mut self.levels)
    }

    /// Reserves memory for the slots of a loop, once the numbers of rows are known.
    ///
    /// # Errors
    /// Fails if there is not enough memory for a slot.
    pub(crate) fn make_room(&self, block: BlockId, slots: &[usize], lane: &mut Lane<'_>) -> Result<()> {
        let frame = &self.frames[block.0 as usize];
        for &s in slots {
            let slot = &self.plan.slots[s];
            self.room_for(slot, frame.room(slot.home, slot.rows), lane)?;
        }
        Ok(())
    }

    /// Sets very small numbers to zero in a value that is passed from step to step.
    pub(crate) fn flush(&self, view: &Ref, lane: &mut Lane<'_>, room: &mut OperandRoom) {
        let region = self.region(view, None);
        let mut operands = lane.operands(room, &[], &[region]);
        if let Some(rows) = operands.write::<f32>(0) {
            flush(rows);
        }
    }

    pub(crate) fn zero(
        &self,
        view: &Ref,
        lane: &mut Lane<'_>,
        room: &mut OperandRoom,
        pool: &mut [PooledStorage],
    ) {
        if let Access::Slot(s) = view.access
            && let Some(p) = self.plan.slots[s].pool
        {
            // A gradient of selected rows is empty at first: contributions append their rows.
            let height = self.plan.slots[s].rows.known().unwrap_or(0);
            match self.plan.slots[s].dtype {
                DType::F64 => pool[p].reset::<f64>(height, view.width),
                _ => pool[p].reset::<f32>(height, view.width),
            }
            return;
        }
        let region = self.region(view, None);
        let mut operands = lane.operands(room, &[], &[region]);
        with_element!(self.dtype(view), T => {
            if let Some(mut rows) = operands.write::<T>(0) {
                rows.fill(T::default());
            }
        });
    }
}

/// Returns the step block that contains a loop; `None` if the loop is in the root block.
pub(crate) fn step_parent(instr: &Loop) -> Option<BlockId> {
    (instr.parent.0 > 0).then_some(instr.parent)
}
