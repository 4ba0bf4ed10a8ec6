//! A run: where each view is, calls of operators, and their division over threads.

use std::ops::Range;
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Access, Home, Instr, Loop, OpInstr, Plan, Ref, Span};
use crate::executor::run::frame::{At, Frame, root_key, step_parent};
use crate::executor::run::recorder::Recorder;
use crate::kernels::arena::{Lane, OperandRoom, Operands, Region};
use crate::kernels::{Extent2, Store, flush, helpers};
use crate::program::contract::context::{
    Backward, Call, Forward, OperandAt, Pass, Prepare, Prepared, RunFacts, Scratch,
};
use crate::program::contract::keys::{Keys, Names, RowKey};
use crate::program::contract::levels::LevelTable;
use crate::program::contract::literals::Literals;
use crate::program::contract::rows::RowBuffer;
use crate::program::{BlockId, Cost, Extent, Reach, Role};
use crate::tensor::DType;

/// A call with fewer numbers to write than this is not divided.
pub(crate) const WORTH_DIVIDING: usize = 1 << 14;

/// What all threads of a run see.
pub(crate) struct Shared<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) loops: Vec<Option<&'p Loop>>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) levels: LevelTable,
    /// Levels that the last run made at the root, whose memory is used again.
    pub(crate) spare: LevelTable,
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) numbers: Vec<u64>,
    pub(crate) places: Vec<u64>,
    pub(crate) batch: usize,
    pub(crate) facts: RunFacts,
}

/// A thread's own memory.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    pub(crate) room: OperandRoom,
    pub(crate) halves: (OperandRoom, OperandRoom),
    pub(crate) reads: Vec<Region>,
    pub(crate) writes: Vec<Region>,
    /// What a profile is made of, while one is wanted.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl Worker {
    /// The time, if it is wanted.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.recorder.as_ref().map(|_| Instant::now())
    }
}

/// Which sequences of which block a lane runs, and at which step it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneAt {
    pub(crate) block: BlockId,
    pub(crate) at: At,
    /// On how many threads its calls may run: more than one only where it has all sequences.
    pub(crate) threads: usize,
    /// Of the rows that are then there only these.
    pub(crate) rows: Option<(usize, usize)>,
}

impl LaneAt {
    /// All rows there, on one thread.
    pub(crate) fn new(block: BlockId, at: At) -> Self {
        Self { block, at, threads: 1, rows: None }
    }
}

impl Shared<'_> {
    fn at(&self, block: BlockId, lane: Option<LaneAt>) -> At {
        match lane {
            Some(lane) if lane.block == block => lane.at,
            _ => self.frames[block.0 as usize].at,
        }
    }

    /// How many rows an extent has where the run is now.
    pub(crate) fn count(&self, extent: Extent, lane: Option<LaneAt>) -> usize {
        match extent {
            Extent::Known(n) => n,
            Extent::Batch => self.batch,
            Extent::Rows(level) => self.levels.get(level).map_or(0, |lod| lod.rows()),
            Extent::Alive(block) => {
                let (frame, at) = (&self.frames[block.0 as usize], self.at(block, lane));
                if at == At::Sequences { frame.rank.sequences() } else { frame.stepped(at, extent).1 }
            }
            Extent::Data(_) => 0,
        }
    }

    /// Where a view's rows are now.
    pub(crate) fn region(&self, view: &Ref, lane: Option<LaneAt>) -> Region {
        match view.access {
            Access::Slot(slot) => self.slot_region(slot, view, lane),
            Access::Previous { block, memory } => {
                let at = self.at(block, lane);
                let Some(instr) = self.loops[block.0 as usize] else { return Region::default() };
                let plan = &instr.memories[memory];
                let all = plan.all.unwrap_or(plan.next);
                self.neighbour(block, at, (&plan.start, &plan.next, &all), lane)
            }
            Access::Passed { block, memory } => {
                let at = self.at(block, lane);
                let gradients = self.loops[block.0 as usize].map_or(&[][..], |l| &l.gradients);
                let Some(plan) = gradients.iter().find(|g| g.memory == memory) else {
                    return Region::default();
                };
                self.neighbour(block, at, (&plan.start, &plan.next, &plan.next), lane)
            }
        }
    }

    /// What the step before left, or, at the first step, the start.
    fn neighbour(&self, block: BlockId, at: At, of: (&Ref, &Ref, &Ref), lane: Option<LaneAt>) -> Region {
        let (start, next, all) = of;
        match at {
            At::Step { t: 0, .. } => self.region(start, lane),
            At::Step { t, from, to } => {
                let alive = self.frames[block.0 as usize].rank.alive(t);
                let before = At::Step { t: t - 1, from, to: to.min(alive) };
                self.region(next, Some(LaneAt::new(block, before)))
            }
            _ => self.region(all, lane),
        }
    }

    fn slot_region(&self, slot: usize, view: &Ref, lane: Option<LaneAt>) -> Region {
        let slot = &self.plan.slots[slot];
        let step = |at: At| if let At::Step { t, .. } = at { t } else { 0 };
        let (row, rows, step) = match slot.home {
            Home::Whole => (0, self.count(view.rows, lane), 0),
            Home::Stepped(block) => {
                let at = self.at(block, lane);
                let (row, rows) = self.frames[block.0 as usize].stepped(at, view.rows);
                (row, rows, step(at))
            }
            Home::Sequence(block) => {
                let at = self.at(block, lane);
                let (row, rows) = self.frames[block.0 as usize].sequence(at, view.rows);
                (row, rows, step(at))
            }
        };
        let (row, rows) = match lane.and_then(|lane| lane.rows) {
            Some((from, to)) if view.rows.known().is_none() => {
                (row + from, rows.min(to).saturating_sub(from))
            }
            _ => (row, rows),
        };
        let extent = Extent2 { rows, width: view.width, stride: slot.width };
        Region { buffer: slot.buffer, row, column: view.column, extent, step }
    }

    /// The dtype of a view.
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

    fn names(&self) -> Names<'_> {
        Names { numbers: &self.numbers, places: &self.places }
    }

    /// What names a row of the rows that `extent` counts now.
    pub(crate) fn key(&self, block: Option<BlockId>, extent: Extent, row: usize) -> RowKey {
        match block {
            None => root_key(&self.levels, self.names(), extent, row),
            Some(block) => {
                let frame = &self.frames[block.0 as usize];
                frame.keys(frame.at, extent).get(row).copied().unwrap_or_default()
            }
        }
    }

    fn keys(&self, instr: &OpInstr, lane: Option<LaneAt>) -> Keys<'_> {
        let spec = instr.outputs.first().and_then(|s| s.first());
        let block = instr.place.block.map(|_| instr.top);
        if let (Some((block, rows)), true) = (instr.order, instr.random) {
            return listed(self.frames[block.0 as usize].keys(At::All, rows), lane);
        }
        match (block, spec) {
            // The rows of a constant are no sequences.
            (_, Some(spec)) if !spec.batched() => {
                Keys::Natural { names: Names::default(), lod: None, first: 0 }
            }
            (Some(Extent::Alive(block)), Some(spec)) if instr.random => {
                let frame = &self.frames[block.0 as usize];
                listed(frame.keys(self.at(block, lane), spec.rows()), lane)
            }
            (_, spec) => {
                let lod = spec.and_then(|s| self.levels.lod(&s.lod));
                Keys::Natural { names: self.names(), lod, first: 0 }
            }
        }
    }

    /// An error about a row of a call, with the sample that the row is of.
    pub(crate) fn named(&self, instr: &OpInstr, lane: Option<LaneAt>, error: Error) -> Error {
        error.of_sample(|row| {
            let row = row + lane.and_then(|lane| lane.rows).map_or(0, |(from, _)| from);
            let spec = instr.inputs.iter().flatten().find(|spec| spec.batched())?;
            let (mut block, mut at, mut extent) = match (instr.order, instr.top) {
                (Some((block, rows)), _) => (Some(block), At::All, rows),
                (None, Extent::Alive(block)) => (Some(block), self.at(block, lane), spec.rows()),
                _ => (None, At::All, spec.rows()),
            };
            let mut row = row;
            while let Some(inner) = block {
                let (instr, frame) = (self.loops[inner.0 as usize]?, &self.frames[inner.0 as usize]);
                (extent, row) = frame.outside(instr, at, extent, row)?;
                block = step_parent(instr);
                at = block.map_or(At::All, |block| self.frames[block.0 as usize].at);
            }
            let RowKey { sequence, position } = root_key(&self.levels, self.names(), extent, row);
            Some((sequence, matches!(extent, Extent::Rows(_)).then_some(position as usize)))
        })
    }

    pub(crate) fn call<'a>(&'a self, instr: &'a OpInstr, lane: Option<LaneAt>) -> Call<'a> {
        Call {
            signature: instr.op.signature(),
            wiring: &instr.wiring,
            inputs: &instr.inputs,
            literals: Literals { signature: instr.op.signature(), values: &instr.literals },
            outputs: &instr.outputs,
            levels: &self.levels,
            run: RunFacts { threads: lane.map_or(self.facts.threads, |lane| lane.threads), ..self.facts },
            stream: instr.stream,
            keys: self.keys(instr, lane),
            sequences: None,
            prepared: instr.prepared.map(|i| &self.prepared[i]),
        }
    }

    /// Calls an operator on the rows where the run is now.
    pub(crate) fn exec(
        &self,
        instr: &OpInstr,
        lane: &mut Lane<'_>,
        at: Option<LaneAt>,
        workers: &mut [Worker],
        pool: &mut [RowBuffer],
    ) -> Result<()> {
        let Some((worker, others)) = workers.split_first_mut() else { return Ok(()) };
        let clock = worker.clock();
        let Worker { scratch, room, reads, writes, .. } = worker;
        reads.clear();
        reads.extend(instr.reads.iter().map(|r| self.region(r, at)));
        writes.clear();
        writes.extend(instr.writes.iter().map(|r| self.region(r, at)));
        let elements: usize = writes.iter().map(|r| r.extent.rows * r.extent.width).sum();
        let threads = helpers(elements, WORTH_DIVIDING, 1 + others.len());
        let others = &mut others[..threads - 1];
        let units = if threads > 1 && divisible(instr) { self.units(instr, at) } else { None };
        let mut operands = lane.operands(room, reads, writes);
        let call = self.call(instr, at);
        match units {
            None => run(instr, call, operands, pool, scratch).map_err(|e| self.named(instr, at, e))?,
            Some(units) => {
                let range = 0..units.count();
                if divide(instr, call, &mut operands, &units, range, scratch, others).is_err() {
                    // The whole call names the same row on any number of threads.
                    let (call, operands) = (self.call(instr, at), lane.operands(room, reads, writes));
                    run(instr, call, operands, pool, scratch).map_err(|e| self.named(instr, at, e))?;
                }
            }
        }
        for view in &instr.flush {
            self.flush(view, lane, at, &mut workers[0].room);
        }
        if let Some(start) = clock {
            self.record(instr, at, start, &mut workers[0], pool);
        }
        Ok(())
    }

    pub(crate) fn flush(&self, view: &Ref, lane: &mut Lane<'_>, at: Option<LaneAt>, room: &mut OperandRoom) {
        let region = self.region(view, at);
        let mut operands = lane.operands(room, &[], &[region]);
        if let Some(rows) = operands.write::<f32>(0) {
            flush(rows);
        }
    }

    /// How the rows of a call can be divided; `None` if they cannot, or if the call shares its columns.
    fn units(&self, instr: &OpInstr, lane: Option<LaneAt>) -> Option<Units<'_>> {
        let views = instr.reads.iter().chain(&instr.writes);
        // What packs its constants is a product: in a lane that threads share, it has columns for each of them.
        let columns = lane.is_some() && instr.prepared.is_some();
        if instr.reach == Reach::Row && !columns {
            let rows = instr.writes.first()?.rows;
            let alike = views.clone().all(|v| v.rows == rows || v.rows.known().is_some());
            return alike.then(|| Units::Rows(self.count(rows, lane)));
        }
        if lane.is_some() {
            return None;
        }
        let levels = instr.inputs.iter().flatten().map(|s| &s.lod).find(|l| !l.is_empty())?;
        let offsets = self.levels.lod(levels)?.offsets();
        let above = match levels.len() {
            1 => instr.top,
            n => Extent::Rows(levels[n - 2]),
        };
        let below = Extent::Rows(*levels.last()?);
        let known = |v: &Ref| v.rows == above || v.rows == below || v.rows.known().is_some();
        views.clone().all(known).then_some(Units::Sequences { offsets, above })
    }

    /// Lets operators pack their constant inputs, before they are called many times.
    pub(crate) fn prepare(&mut self, instr: &Instr, lane: &mut Lane<'_>, worker: &mut Worker) -> Result<()> {
        match instr {
            Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => Ok(()),
            Instr::Loop(inner) => {
                let parts = [&inner.before, &inner.body, &inner.after];
                parts.into_iter().flatten().try_for_each(|i| self.prepare(i, lane, worker))
            }
            Instr::Op(op) => {
                let Some(index) = op.prepared else { return Ok(()) };
                let Worker { room, reads, recorder, .. } = worker;
                reads.clear();
                let constant = |i: usize| op.constants.iter().any(|reads| reads.contains(&i));
                // Only the constants are looked at; the others may not have a place yet.
                let region = |(i, r): (usize, &Ref)| {
                    if constant(i) {
                        self.region(r, None)
                    } else {
                        Region { buffer: self.region(r, None).buffer, ..Region::default() }
                    }
                };
                reads.extend(op.reads.iter().enumerate().map(region));
                let clock = recorder.as_ref().map(|_| Instant::now());
                let operands = lane.operands(room, reads, &[]);
                let mut prepare = Prepare {
                    pass: op.pass,
                    operands,
                    constants: &op.constants,
                    inputs: &op.inputs,
                    literals: Literals { signature: op.op.signature(), values: &op.literals },
                    wanted: if op.pass == Pass::Backward { &op.wanted } else { &[] },
                    prepared: &mut self.prepared[index],
                };
                op.op.prepare(&mut prepare).map_err(|e| op.err(e))?;
                if let (Some(start), Some(recorder)) = (clock, recorder) {
                    let numbers = reads.iter().map(|r| r.extent.rows * r.extent.width).sum::<usize>();
                    let size = op.reads.first().map_or(0, |r| self.dtype(r).size_of());
                    let bytes = (numbers * size) as u64;
                    recorder.pack(op.index, start, Cost { flops: 0, read: bytes, written: bytes });
                }
                Ok(())
            }
        }
    }

    /// Fills a view with zeros.
    pub(crate) fn zero(
        &self,
        view: &Ref,
        lane: &mut Lane<'_>,
        room: &mut OperandRoom,
        pool: &mut [RowBuffer],
    ) {
        if let Access::Slot(s) = view.access
            && let Some(p) = self.plan.slots[s].pool
        {
            // The first contribution of the run appends to what is here.
            let height = self.plan.slots[s].rows.known().unwrap_or(0);
            match self.plan.slots[s].dtype {
                DType::F64 => pool[p].reset::<f64>(height, view.width),
                _ => pool[p].reset::<f32>(height, view.width),
            }
            return;
        }
        let region = self.region(view, None);
        let mut operands = lane.operands(room, &[], &[region]);
        match self.dtype(view) {
            DType::F64 => operands.write::<f64>(0).into_iter().for_each(|mut v| v.fill(0.0)),
            DType::F32 => operands.write::<f32>(0).into_iter().for_each(|mut v| v.fill(0.0)),
            DType::I64 => operands.write::<i64>(0).into_iter().for_each(|mut v| v.fill(0)),
            DType::I32 => operands.write::<i32>(0).into_iter().for_each(|mut v| v.fill(0)),
            DType::I8 => operands.write::<i8>(0).into_iter().for_each(|mut v| v.fill(0)),
            DType::I16 => operands.write::<i16>(0).into_iter().for_each(|mut v| v.fill(0)),
            DType::Bool => operands.write::<bool>(0).into_iter().for_each(|mut v| v.fill(false)),
            DType::F16 => {
                operands.write::<half::f16>(0).into_iter().for_each(|mut v| v.fill(half::f16::ZERO))
            }
            DType::BF16 => {
                operands.write::<half::bf16>(0).into_iter().for_each(|mut v| v.fill(half::bf16::ZERO))
            }
        }
    }

    /// The rows over which an instruction of a step block runs outside the loop.
    pub(crate) fn span_at(span: Span) -> At {
        match span {
            Span::All | Span::Steps => At::All,
            Span::Sequences => At::Sequences,
        }
    }
}

/// The keys of the rows that a lane is at.
fn listed(keys: &[RowKey], lane: Option<LaneAt>) -> Keys<'_> {
    let (from, to) = lane.and_then(|lane| lane.rows).unwrap_or((0, keys.len()));
    Keys::Listed(keys.get(from..to.min(keys.len())).unwrap_or(&[]))
}

/// Whether an operator can be called on a part of its rows.
fn divisible(instr: &OpInstr) -> bool {
    // What a constant gets from every row is one sum.
    let constant = |r: &Ref| r.rows.known().is_some();
    instr.reach != Reach::Batch
        && instr.role != Role::Update
        && !instr.writes.is_empty()
        && !instr.writes.iter().any(constant)
        && instr.wiring.input_gradients.iter().flatten().all(|(p, _)| !matches!(p, OperandAt::Rows(_)))
        && instr.writes.iter().all(|r| !matches!(r.rows, Extent::Data(_)))
}

/// The parts of a call that can run apart.
enum Units<'a> {
    Rows(usize),
    Sequences { offsets: &'a [usize], above: Extent },
}

impl Units<'_> {
    fn count(&self) -> usize {
        match self {
            Units::Rows(rows) => *rows,
            Units::Sequences { offsets, .. } => offsets.len() - 1,
        }
    }

    /// Where to cut a range so that `left` of `parts` threads have their share of the rows.
    fn middle(&self, range: &Range<usize>, left: usize, parts: usize) -> usize {
        match self {
            Units::Rows(_) => range.start + range.len() * left / parts,
            Units::Sequences { offsets, .. } => {
                let (first, last) = (offsets[range.start], offsets[range.end]);
                let goal = first + (last - first) * left / parts;
                range.start + offsets[range.start..range.end].partition_point(|&o| o < goal)
            }
        }
    }

    /// Where a view is cut when the units are cut at `middle`.
    fn cut(&self, view: &Ref, range: &Range<usize>, middle: usize) -> Option<usize> {
        if view.rows.known().is_some() {
            return None;
        }
        Some(match self {
            Units::Rows(_) => middle - range.start,
            Units::Sequences { above, .. } if view.rows == *above => middle - range.start,
            Units::Sequences { offsets, .. } => offsets[middle] - offsets[range.start],
        })
    }
}

fn run(
    instr: &OpInstr,
    call: Call<'_>,
    operands: Operands<'_>,
    pool: &mut [RowBuffer],
    scratch: &mut Scratch,
) -> Result<()> {
    let outcome = match instr.pass {
        Pass::Forward => instr.op.forward(&mut Forward { call, operands, pool, scratch }),
        Pass::Backward => instr.op.backward(&mut Backward { call, operands, pool, scratch }),
    };
    outcome.map_err(|e| instr.err(e))
}

/// Halves a call until each thread has a part. The bits do not depend on where it is cut: that is what row- and
/// sequence-wise mean.
fn divide(
    instr: &OpInstr,
    call: Call<'_>,
    operands: &mut Operands<'_>,
    units: &Units<'_>,
    range: Range<usize>,
    scratch: &mut Scratch,
    others: &mut [Worker],
) -> Result<()> {
    let parts = others.len() + 1;
    let left_parts = parts / 2;
    let middle = units.middle(&range, left_parts, parts);
    let view = |i: usize| instr.reads.get(i).unwrap_or_else(|| &instr.writes[i - instr.reads.len()]);
    let (mine, theirs) = others.split_at_mut(left_parts - 1);
    let Some((worker, theirs)) = theirs.split_first_mut() else {
        return Err(Error::of(ErrorKind::Program, "threads", "one for each part", "none"));
    };
    // Every cut is at another worker, so each has the room for its own.
    let Worker { halves: (left_room, right_room), scratch: their_scratch, .. } = worker;
    let (a, b) = operands.split(|i| units.cut(view(i), &range, middle), (left_room, right_room));
    let part = |range: &Range<usize>| match units {
        Units::Rows(_) => None,
        Units::Sequences { .. } => Some(range.clone()),
    };
    let keys = match call.keys {
        Keys::Listed(keys) => Keys::Listed(keys.get(middle - range.start..).unwrap_or(&[])),
        Keys::Natural { names, lod, first } => {
            let moved = match units {
                Units::Rows(_) => middle - range.start,
                Units::Sequences { offsets, .. } => offsets[middle] - offsets[range.start],
            };
            Keys::Natural { names, lod, first: first + moved }
        }
    };
    let run_facts = RunFacts { threads: 1, ..call.run };
    let left = Call { sequences: part(&(range.start..middle)), run: run_facts, ..copy(&call) };
    let right = Call { sequences: part(&(middle..range.end)), run: run_facts, keys, ..copy(&call) };
    let half = |call: Call<'_>,
                mut operands: Operands<'_>,
                range: Range<usize>,
                scratch: &mut Scratch,
                others: &mut [Worker]| {
        if others.is_empty() {
            run(instr, call, operands, &mut [], scratch)
        } else {
            divide(instr, call, &mut operands, units, range, scratch, others)
        }
    };
    let (x, y) = rayon::join(
        || half(left, a, range.start..middle, scratch, mine),
        || half(right, b, middle..range.end, their_scratch, theirs),
    );
    x.and(y)
}

fn copy<'a>(call: &Call<'a>) -> Call<'a> {
    Call { sequences: call.sequences.clone(), ..*call }
}

/// Adds or writes, as `store` says, number by number.
pub(crate) fn put<T: Copy + std::ops::AddAssign>(from: &[T], to: &mut [T], store: Store) {
    match store {
        Store::Write => to.copy_from_slice(from),
        Store::Add => to.iter_mut().zip(from).for_each(|(t, f)| *t += *f),
    }
}
