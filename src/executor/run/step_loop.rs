//! The step executor: runs any step block over sequences of any lengths, unpadded, forward and backward.
//!
//! The input is gathered once into step-major order; what no memory reaches runs over all steps at once, before or
//! after the loop; the loop runs each step on the rows that are alive, which lie at the front. Nothing is copied from
//! step to step: a memory's previous value *is* the rows that the step before wrote, and the gradient that a step
//! passes back is written into the gradient of those rows.

use crate::error::{Error, Result};
use crate::executor::plan::{Access, Instr, Loop, MemoryGradientPlan, Ref, Span};
use crate::executor::plan::{Chain, parts};
use crate::executor::run::frame::{At, step_parent};
use crate::executor::run::machine::{LaneAt, Shared, Worker, put};
use crate::executor::run::recording::Laps;
use crate::kernels::arena::{Lane, OperandRoom, Operands, Plain, Region, Share};
use crate::kernels::{Store, View, ViewMut, gather_rows};
use crate::program::contract::rows::RowBuffer;
use crate::program::{BlockId, Cost, Extent};
use crate::tensor::{DType, with_element};

/// A gather of fewer numbers is not divided over threads.
const WORTH_DIVIDING: usize = 1 << 16;

/// Memory of the loops that is kept from run to run.
#[derive(Default)]
pub(crate) struct LoopMemory {
    index: Vec<usize>,
    /// Offsets that an operator computes from data.
    pub(crate) offsets: Vec<Vec<usize>>,
    pub(crate) cuts: Vec<usize>,
    pub(crate) shares: Vec<Share>,
}

/// What a loop needs beside the shared state.
pub(crate) struct Tools<'a> {
    pub(crate) workers: &'a mut [Worker],
    pub(crate) pool: &'a mut [RowBuffer],
    pub(crate) memory: &'a mut LoopMemory,
}

impl<'p> Shared<'p> {
    /// Runs an instruction on the rows where the run is now.
    pub(crate) fn instruction(
        &mut self,
        instr: &'p Instr,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        match instr {
            Instr::Zero(view, _) => {
                self.zero(view, lane, &mut tools.workers[0].room, tools.pool);
                Ok(())
            }
            Instr::Loop(inner) => self.run_loop(inner, lane, tools),
            Instr::Reorder { from, to, block, rows, index, .. } => {
                self.frames[block.0 as usize].inverse(*rows, false, &mut tools.memory.index);
                let (threads, regions) =
                    (tools.workers.len(), (self.region(from, None), self.region(to, None)));
                let clock = tools.workers[0].clock();
                let (room, inverse) = (&mut tools.workers[0].room, &tools.memory.index);
                with_element!(self.dtype(from), T => two::<T, _>(lane, room, regions.0, regions.1, |from, to| {
                    gather_on(from, inverse, to, threads);
                }));
                if let (Some(start), Some(recorder)) = (clock, &mut tools.workers[0].recorder) {
                    let rows = regions.1.extent.rows;
                    let bytes = (rows * to.width * self.dtype(to).size_of()) as u64;
                    recorder.call(*index, start, rows, Cost { flops: 0, read: bytes, written: bytes });
                }
                Ok(())
            }
            Instr::Levels(op) => self.make_levels(op, lane, tools),
            Instr::Op(op) => self.exec(op, lane, None, tools.workers, tools.pool),
        }
    }

    fn run_loop(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        let mut laps = Laps::start(&tools.workers[0]);
        self.enter(instr)?;
        self.make_room(block, &instr.slots, lane);
        self.go(block, At::All)?;
        for gather in &instr.gather {
            self.gather(block, &gather.outer, &gather.inner, false, lane, tools);
        }
        self.go(block, At::Sequences)?;
        for statics in &instr.statics {
            self.gather(block, &statics.outer, &statics.inner, true, lane, tools);
        }
        for memory in instr.memories.iter().filter(|m| m.read) {
            match &memory.initial {
                Some(initial) => self.gather(block, initial, &memory.start, true, lane, tools),
                None => self.zero(&memory.start, lane, &mut tools.workers[0].room, tools.pool),
            }
        }
        for view in &instr.zero {
            self.zero(view, lane, &mut tools.workers[0].room, tools.pool);
        }
        if instr.backward {
            self.spread(instr, lane, tools)?;
        }
        for plan in instr.gradients.iter().filter(|plan| plan.passes.is_none()) {
            self.begin_gradient(instr, plan, lane, tools)?;
        }
        laps.mark();
        self.outside(block, (&instr.before, &instr.chains.before), lane, tools)?;
        laps.mark();
        for plan in instr.gradients.iter().filter(|plan| plan.passes.is_some()) {
            self.begin_gradient(instr, plan, lane, tools)?;
        }
        laps.mark();
        self.body(instr, lane, tools)?;
        laps.mark();
        if !instr.backward {
            self.spread(instr, lane, tools)?;
        }
        laps.mark();
        self.outside(block, (&instr.after, &instr.chains.after), lane, tools)?;
        laps.mark();
        self.go(block, At::All)?;
        // In the order in which the compiler counted who writes a gradient first.
        for plan in &instr.gradients {
            self.end_gradient(block, plan, lane, tools);
        }
        for view in &instr.flush {
            self.flush(view, lane, None, &mut tools.workers[0].room);
        }
        for scatter in &instr.scatter {
            self.scatter(block, &scatter.inner, &scatter.outer, scatter.store, false, lane, tools);
        }
        self.go(block, At::Sequences)?;
        for scatter in &instr.scatter_statics {
            self.scatter(block, &scatter.inner, &scatter.outer, scatter.store, true, lane, tools);
        }
        if !instr.backward {
            for memory in &instr.memories {
                if let Some(last) = &memory.last {
                    self.last(block, &memory.next, &memory.start, last, lane, tools);
                }
            }
        }
        self.frames[block.0 as usize].at = At::All;
        laps.end(instr, || self.moved(instr), &mut tools.workers[0]);
        Ok(())
    }

    /// Builds the frame: rank table, levels, bases.
    fn enter(&mut self, instr: &'p Loop) -> Result<()> {
        let block = instr.desc.block;
        let index = block.0 as usize;
        self.loops[index] = Some(instr);
        let mut frame = std::mem::take(&mut self.frames[index]);
        let lod = self.levels.get(instr.desc.level).cloned();
        let built = match &lod {
            Some(lod) => frame.build(instr, lod, &mut self.levels),
            None => Err(Error::new("level of a recurrent", "to be bound", "nothing").at(instr.place.clone())),
        };
        let parent = step_parent(instr);
        let base = |this: &Self, rows: Extent| {
            parent.map_or(0, |p| {
                let outer = &this.frames[p.0 as usize];
                if outer.at == At::Sequences { 0 } else { outer.stepped(outer.at, rows).0 }
            })
        };
        frame.base = base(self, Extent::Rows(instr.desc.level));
        for (level, inner) in frame.levels.iter_mut().zip(&instr.inner) {
            level.base = if inner.statics { 0 } else { base(self, Extent::Rows(inner.outer)) };
        }
        if parent.is_some() && built.is_ok() {
            frame.place_statics();
        }
        if (instr.random || self.plan.keyed.contains(&block)) && built.is_ok() {
            frame.build_keys(instr, &|extent, row| self.key(parent, extent, row));
        }
        // The forward pass wrote down how long the sequences are that are made in the step.
        let known = frame.made().filter(|_| instr.backward && built.is_ok());
        let built = known.into_iter().try_for_each(|i| frame.close_made(i)).and(built);
        self.frames[index] = frame;
        built
    }

    pub(crate) fn go(&mut self, block: BlockId, at: At) -> Result<()> {
        let index = block.0 as usize;
        let mut frame = std::mem::take(&mut self.frames[index]);
        let outcome = frame.go(at, &mut self.levels);
        self.frames[index] = frame;
        outcome
    }

    /// Instructions that left the loop.
    fn outside(
        &mut self,
        block: BlockId,
        (code, chains): (&'p [Instr], &'p [Chain]),
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        for (calls, chain) in parts(code.len(), chains) {
            if let Some(chain) = chain {
                self.go(block, At::All)?;
                self.chain(block, &code[calls], chain, lane, tools)?;
                continue;
            }
            let instr = &code[calls.start];
            let span = instr.span();
            if span == Span::Steps && !matches!(instr, Instr::Levels(_)) {
                for t in 0..self.frames[block.0 as usize].rank.steps() {
                    self.go(block, At::Step { t, from: 0, to: usize::MAX })?;
                    self.instruction(instr, lane, tools)?;
                }
                continue;
            }
            self.go(block, Shared::span_at(span))?;
            self.instruction(instr, lane, tools)?;
        }
        self.go(block, At::All)
    }

    /// Copies the previous values of all steps into one array, for instructions that left the loop.
    fn spread(&mut self, instr: &Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        for &m in &instr.spread {
            let memory = &instr.memories[m];
            let (Some(all), dtype) = (memory.all, self.dtype(&memory.next)) else { continue };
            let previous = Ref { access: Access::Previous { block, memory: m }, ..all };
            for t in 0..self.frames[block.0 as usize].rank.steps() {
                let at = Some(LaneAt::new(block, At::Step { t, from: 0, to: usize::MAX }));
                let (from, to) = (self.region(&previous, at), self.region(&all, at));
                with_element!(dtype, T => two::<T, _>(lane, &mut tools.workers[0].room, from, to, |from, mut to| {
                    if let (Some(from), Some(to)) = (from.contiguous(), to.contiguous()) {
                        to.copy_from_slice(from);
                    }
                }));
            }
        }
        Ok(())
    }

    /// Rows of the batch into the block's order.
    fn gather(
        &self,
        block: BlockId,
        outer: &Ref,
        inner: &Ref,
        sequences: bool,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        let frame = &self.frames[block.0 as usize];
        let at = Some(LaneAt::new(block, if sequences { At::Sequences } else { At::All }));
        let map = frame.map(inner.rows, sequences);
        let (from, to) = (self.region(outer, None), self.region(inner, at));
        let threads = tools.workers.len();
        with_element!(self.dtype(inner), T => two::<T, _>(lane, &mut tools.workers[0].room, from, to, |from, to| {
            gather_on(from, map, to, threads);
        }));
    }

    /// Rows of the block's order back to the order of the batch, written or added.
    #[allow(clippy::too_many_arguments)]
    fn scatter(
        &self,
        block: BlockId,
        inner: &Ref,
        outer: &Ref,
        store: Store,
        sequences: bool,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        let frame = &self.frames[block.0 as usize];
        let at = Some(LaneAt::new(block, if sequences { At::Sequences } else { At::All }));
        frame.inverse(inner.rows, sequences, &mut tools.memory.index);
        let inverse = &tools.memory.index;
        let (from, to) = (self.region(inner, at), self.region(outer, None));
        let threads = tools.workers.len();
        let room = &mut tools.workers[0].room;
        match (store, self.dtype(inner)) {
            (Store::Add, DType::F32) => {
                two::<f32, _>(lane, room, from, to, |from, to| add(from, inverse, to))
            }
            (Store::Add, DType::F64) => {
                two::<f64, _>(lane, room, from, to, |from, to| add(from, inverse, to))
            }
            (_, dtype) => with_element!(dtype, T => two::<T, _>(lane, room, from, to, |from, to| {
                gather_on(from, inverse, to, threads);
            })),
        }
    }

    /// Each sequence's value after its last step; without a step, what it started with.
    fn last(
        &self,
        block: BlockId,
        next: &Ref,
        start: &Ref,
        last: &Ref,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        let frame = &self.frames[block.0 as usize];
        let all = Some(LaneAt::new(block, At::All));
        let each = Some(LaneAt::new(block, At::Sequences));
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

    /// What the gradient of a memory's next value holds before the loop: the gradient of the last value at each
    /// sequence's last step, and zero where nothing comes in.
    fn begin_gradient(
        &mut self,
        instr: &Loop,
        plan: &MemoryGradientPlan,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let block = instr.desc.block;
        self.go(block, At::All)?;
        if !plan.filled && plan.passes.is_none() {
            self.zero(&plan.next, lane, &mut tools.workers[0].room, tools.pool);
        }
        let each = Some(LaneAt::new(block, At::Sequences));
        let start = self.region(&plan.start, each);
        let next = self.region(&plan.next, Some(LaneAt::new(block, At::All)));
        let last = plan.last.as_ref().map(|l| self.region(l, None));
        let rank = &self.frames[block.0 as usize].rank;
        let room = &mut tools.workers[0].room;
        match self.dtype(&plan.next) {
            DType::F64 => begin::<f64>(lane, room, plan, rank, (next, start), last),
            _ => begin::<f32>(lane, room, plan, rank, (next, start), last),
        }
        Ok(())
    }

    /// Hands the gradient of a memory's initial value out.
    fn end_gradient(
        &self,
        block: BlockId,
        plan: &MemoryGradientPlan,
        lane: &mut Lane<'_>,
        tools: &mut Tools<'_>,
    ) {
        if let Some((initial, store)) = &plan.initial {
            self.scatter(block, &plan.start, initial, *store, true, lane, tools);
        }
    }
}

/// The rows of the last steps and of the starts, before the loop. A sequence without a step passes the gradient of its
/// last value straight to its initial one.
fn begin<T: Plain + std::ops::AddAssign + Default>(
    lane: &mut Lane<'_>,
    room: &mut OperandRoom,
    plan: &MemoryGradientPlan,
    rank: &crate::executor::run::rank_table::RankTable,
    (next, start): (Region, Region),
    last: Option<Region>,
) {
    let reads: &[Region] = last.as_slice();
    let mut operands = lane.operands(room, reads, &[next, start]);
    let last = if reads.is_empty() { None } else { operands.read::<T>(0) };
    let (Some(mut next), Some(mut start)) = (operands.write::<T>(0), operands.write::<T>(1)) else { return };
    start.fill(T::default());
    // With earlier contributions, the last value's gradient is one more; else it is the only one at these rows.
    let store = if plan.filled { Store::Add } else { Store::Write };
    for (place, &sequence) in rank.order().iter().enumerate() {
        let row = match rank.length(place) {
            0 => start.row(place),
            steps => next.row(rank.starts()[steps - 1] + place),
        };
        match &last {
            Some(last) => put(last.row(sequence), row, store),
            None if !plan.filled => row.fill(T::default()),
            None => {}
        }
    }
}

/// Lends one region to read and one to write.
fn two<T: Plain, R: Default>(
    lane: &mut Lane<'_>,
    room: &mut OperandRoom,
    from: Region,
    to: Region,
    body: impl FnOnce(View<'_, T>, ViewMut<'_, T>) -> R,
) -> R {
    let mut operands: Operands<'_> = lane.operands(room, &[from], &[to]);
    match (operands.read::<T>(0), operands.write::<T>(0)) {
        (Some(from), Some(to)) => body(from, to),
        _ => R::default(),
    }
}

/// Gathers rows, on several threads where it is worth it.
fn gather_on<T: Plain>(from: View<'_, T>, map: &[usize], to: ViewMut<'_, T>, threads: usize) {
    let rows = to.rows().min(map.len());
    if threads < 2 || rows < 2 || rows * to.width() < WORTH_DIVIDING {
        return gather_rows(from, map, to);
    }
    let left = threads / 2;
    let middle = rows * left / threads;
    let (a, b) = to.split_rows(middle);
    rayon::join(
        || gather_on(from, &map[..middle], a, left),
        || gather_on(from, &map[middle..], b, threads - left),
    );
}

fn add<T: Plain + std::ops::AddAssign>(from: View<'_, T>, map: &[usize], mut to: ViewMut<'_, T>) {
    for (row, &place) in to.iter_mut().zip(map) {
        put(from.row(place), row, Store::Add);
    }
}
