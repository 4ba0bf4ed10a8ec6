//! The step executor: runs any step block over sequences of any lengths, unpadded, forward and backward.
//!
//! The input is gathered once into step-major order; what no memory reaches runs over all steps at once, before or
//! after the loop; the loop runs each step on the rows that are alive, which lie at the front. Nothing is copied from
//! step to step: a memory's previous value *is* the rows that the step before wrote, and the gradient that a step
//! passes back is written into the gradient of those rows.

use std::ops::Range;

use super::chain::{Chain, parts};
use super::frame::{At, step_parent};
use super::machine::{LaneAt, Shared, Worker, put};
use super::plan::{Access, Home, Instr, Loop, MemoryGradientPlan, Ref};
use super::recording::Laps;
use crate::error::{Error, Result};
use crate::kernels::arena::{Lane, OperandRoom, Operands, Part, Plain, Region, Share};
use crate::kernels::{Store, View, ViewMut, gather_rows, own_cache};
use crate::program::rows::RowBuffer;
use crate::program::{BlockId, Cost, Extent};
use crate::tensor::{DType, with_element};

/// A loop with fewer numbers to compute than this, over all its steps, is not split over threads.
const WORTH_SPLITTING: usize = 1 << 15;
/// The rows for each thread up to which threads share columns where weights are larger than a core's own cache.
const COLUMN_ROWS: usize = 8;
/// A gather of fewer numbers is not divided over threads.
const WORTH_DIVIDING: usize = 1 << 16;

/// Memory of the loops that is kept from run to run.
#[derive(Default)]
pub(super) struct LoopMemory {
    index: Vec<usize>,
    pub(super) cuts: Vec<usize>,
    pub(super) shares: Vec<Share>,
}

/// What a loop needs beside the shared state.
pub(super) struct Tools<'a> {
    pub(super) workers: &'a mut [Worker],
    pub(super) pool: &'a mut [RowBuffer],
    pub(super) memory: &'a mut LoopMemory,
}

/// Steps of a loop that some lanes run, each for its own sequences.
struct LanePart<'p> {
    instr: &'p Loop,
    steps: Range<usize>,
    lanes: usize,
    /// Threads of each lane.
    threads: usize,
}

impl<'p> Shared<'p> {
    /// Runs an instruction on the rows where the run is now.
    pub(super) fn instruction(
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
            Instr::Op(op) => {
                if !op.made.is_empty() {
                    self.make_levels(&*op.op, &op.inputs, &op.made, op.top).map_err(|e| op.err(e))?;
                }
                self.exec(op, lane, None, tools.workers, tools.pool)
            }
        }
    }

    fn run_loop(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        let mut laps = Laps::start(&tools.workers[0]);
        self.enter(instr)?;
        if !instr.levels.is_empty() {
            self.measure(instr)?;
        }
        let frame = &self.frames[block.0 as usize];
        for &s in &instr.slots {
            let slot = &self.plan.slots[s];
            let room = frame.room(slot.rows, matches!(slot.home, Home::Stepped(_)));
            lane.reserve(slot.buffer, room * slot.width);
        }
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
        self.frames[index] = frame;
        built
    }

    fn go(&mut self, block: BlockId, at: At) -> Result<()> {
        let index = block.0 as usize;
        let mut frame = std::mem::take(&mut self.frames[index]);
        let outcome = frame.go(at, &mut self.levels);
        self.frames[index] = frame;
        outcome
    }

    /// Runs the shape rules of operators that make levels in the step, to know where each step's rows start.
    fn measure(&mut self, instr: &Loop) -> Result<()> {
        let block = instr.desc.block;
        let mut index = 0;
        for &maker in &instr.levels {
            for &level in &self.plan.makers[maker].made {
                self.frames[block.0 as usize].start_made(index, level);
                index += 1;
            }
        }
        for t in 0..self.frames[block.0 as usize].rank.steps() {
            self.go(block, At::Step { t, from: 0, to: usize::MAX })?;
            let mut index = 0;
            for &maker in &instr.levels {
                let maker = &self.plan.makers[maker];
                self.make_levels(&*maker.op, &maker.inputs, &maker.made, maker.top)?;
                for &level in &maker.made {
                    let rows = self.levels.get(level).map_or(0, |lod| lod.rows());
                    self.frames[block.0 as usize].add_made(index, rows);
                    index += 1;
                }
            }
        }
        Ok(())
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
            let span = match instr {
                Instr::Op(op) => op.span,
                Instr::Loop(inner) => inner.span,
                Instr::Zero(..) | Instr::Reorder { .. } => super::plan::Span::All,
            };
            self.go(block, Shared::span_at(span))?;
            self.instruction(instr, lane, tools)?;
        }
        self.go(block, At::All)
    }

    fn body(&mut self, instr: &'p Loop, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let block = instr.desc.block;
        let frame = &self.frames[block.0 as usize];
        let (steps, sequences) = (frame.rank.steps(), frame.rank.sequences());
        if instr.body.is_empty() || steps == 0 {
            return Ok(());
        }
        if !instr.splits {
            let order = |i: usize| if instr.backward { steps - 1 - i } else { i };
            let opened = tools.workers[0].open(1, false);
            for i in 0..steps {
                self.go(block, At::Step { t: order(i), from: 0, to: usize::MAX })?;
                for &maker in &instr.levels {
                    let maker = &self.plan.makers[maker];
                    self.make_levels(&*maker.op, &maker.inputs, &maker.made, maker.top)?;
                }
                for inner in &instr.body {
                    self.instruction(inner, lane, tools)?;
                }
            }
            tools.workers[0].close(instr, opened);
            return self.go(block, At::All);
        }
        let starts = frame.rank.starts();
        let widths = instr.body.iter().flat_map(|i| if let Instr::Op(op) = i { &op.writes[..] } else { &[] });
        let numbers = widths.map(|v| v.width).sum::<usize>() * starts[steps];
        let threads = if numbers < WORTH_SPLITTING { 1 } else { tools.workers.len() };
        // Where few sequences are left, the threads share columns instead; sooner, if they would all read weights that
        // their own caches cannot hold.
        let heavy = threads > 1 && instr.weights >= own_cache();
        let limit = if heavy { COLUMN_ROWS * threads } else { threads / 2 };
        let few = (0..steps).find(|&t| starts[t + 1] - starts[t] <= limit).unwrap_or(steps);
        let memory = &mut *tools.memory;
        memory.shares.clear();
        memory.shares.resize(self.plan.buffers.len(), Share::Frozen);
        for &s in &instr.slots {
            let slot = &self.plan.slots[s];
            memory.shares[slot.buffer] = match slot.home {
                Home::Stepped(_) => Share::Stepped { base: frame.base, stride: slot.width },
                _ => Share::Sequence { stride: slot.width },
            };
        }
        let mut phases = [(0..few, threads), (few..steps, 1)];
        if instr.backward {
            phases.reverse();
        }
        for (range, lanes) in phases {
            if range.is_empty() {
                continue;
            }
            cut(&starts[..=range.end], sequences, lanes, &mut memory.cuts);
            let part = LanePart { instr, steps: range, lanes, threads: threads / lanes };
            let nested = tools.workers[0].stepping();
            if lanes == 1 {
                let mut workers = [&mut tools.workers[..threads]];
                let run =
                    |lane: Lane<'_>, workers: &mut &mut [Worker]| self.lane(&part, lane, workers, nested);
                lane.split(&memory.cuts, starts, &memory.shares, &mut workers, &run)?;
                continue;
            }
            let run = |lane: Lane<'_>, worker: &mut Worker| {
                self.lane(&part, lane, std::slice::from_mut(worker), nested)
            };
            lane.split(&memory.cuts, starts, &memory.shares, &mut tools.workers[..lanes], &run)?;
        }
        Ok(())
    }

    /// The steps of a lane, which has all of the workers.
    fn lane(
        &self,
        part: &LanePart<'_>,
        mut lane: Lane<'_>,
        workers: &mut [Worker],
        nested: bool,
    ) -> Result<()> {
        let Some(Part { from, to, starts, .. }) = lane.part() else { return Ok(()) };
        let &LanePart { instr, ref steps, lanes, threads } = part;
        let block = instr.desc.block;
        let opened = workers[0].open(lanes, nested);
        for i in 0..steps.len() {
            let t = if instr.backward { steps.end - 1 - i } else { steps.start + i };
            if starts[t + 1] - starts[t] <= from {
                // Later steps have fewer sequences still; earlier ones, backwards, may have more.
                if instr.backward { continue } else { break }
            }
            let at = LaneAt { threads, ..LaneAt::new(block, At::Step { t, from, to }) };
            for (calls, chain) in parts(instr.body.len(), &instr.chains.body) {
                let calls = &instr.body[calls];
                match (chain, &mut *workers) {
                    (Some(chain), [worker]) => self.chain_step(calls, chain, &mut lane, at, worker)?,
                    // Threads that share a call divide its rows.
                    _ => calls.iter().try_for_each(|instr| match instr {
                        Instr::Op(op) => self.exec(op, &mut lane, Some(at), workers, &mut []),
                        _ => Ok(()),
                    })?,
                }
            }
        }
        workers[0].close(instr, opened);
        Ok(())
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
    rank: &super::rank_table::RankTable,
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

/// Cuts the rank order into lanes of about the same work. A step costs a lane its rows, and something for the step
/// itself, which weighs when few rows are left.
fn cut(starts: &[usize], sequences: usize, lanes: usize, cuts: &mut Vec<usize>) {
    const STEP: usize = 3;
    cuts.clear();
    cuts.push(0);
    let steps = starts.len() - 1;
    let cost = |from: usize, to: usize| -> usize {
        let rows = |t: usize| (starts[t + 1] - starts[t]).min(to).saturating_sub(from);
        (0..steps).map(rows).take_while(|&r| r > 0).map(|r| r + STEP).sum()
    };
    for lane in 1..lanes {
        let from = cuts[lane - 1];
        // The first cut at which this lane costs its share of what is left.
        let rest = cost(from, sequences);
        let (mut low, mut high) = (from, sequences);
        while low < high {
            let middle = (low + high) / 2;
            if cost(from, middle) * (lanes - lane + 1) < rest { low = middle + 1 } else { high = middle }
        }
        cuts.push(low);
    }
    cuts.push(sequences);
}

#[cfg(test)]
mod tests {
    use super::super::rank_table::RankTable;
    use super::*;

    #[test]
    fn lanes_cover_all_sequences_in_order() {
        for lengths in [vec![5, 4, 3, 3, 1, 0], vec![], vec![7], vec![1; 9]] {
            let mut offsets = vec![0];
            lengths.iter().for_each(|l| offsets.push(offsets[offsets.len() - 1] + l));
            let rank = RankTable::new(&offsets, false);
            for lanes in 1..4 {
                let mut cuts = Vec::new();
                cut(rank.starts(), lengths.len(), lanes, &mut cuts);
                assert!(cuts.is_sorted(), "{cuts:?}");
                assert_eq!((cuts.len(), cuts[0], cuts[lanes]), (lanes + 1, 0, lengths.len()));
            }
        }
    }
}
