//! One call of an operator in a run: finds its operands, and divides its work over threads.

use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Access, Instr, OpInstr, Ref};
use crate::executor::run::state::{CallRows, Preparation, RunState};
use crate::executor::run::worker::Worker;
use crate::kernels::arena::{Lane, Operands, Region};
use crate::kernels::{boundary, cpu, flush, helpers, join_measured};
use crate::operator::context::{Backward, Call, Forward, Pass, Prepare, RunFacts, Scratch};
use crate::operator::entries::PooledStorage;
use crate::operator::keys::Keys;
use crate::operator::literals::Literals;
use crate::operator::{Cost, Extent, Reach};
use crate::program::Role;

impl RunState<'_> {
    /// Returns the context of a call, without its operands.
    pub(crate) fn call<'a>(&'a self, instr: &'a OpInstr, here: Option<CallRows>) -> Call<'a> {
        let signature = instr.op.signature();
        Call {
            signature,
            wiring: &instr.wiring,
            inputs: &instr.inputs,
            literals: Literals { signature, values: &instr.literals },
            outputs: &instr.outputs,
            levels: &self.levels,
            run: RunFacts { threads: here.map_or(self.facts.threads, |here| here.threads), ..self.facts },
            stream: instr.stream,
            keys: self.keys(instr, here),
            sequences: self.lane_sequences(instr, here),
            prepared: instr.prepared.map(|i| &self.prepared[i].made),
        }
    }

    /// Returns the range of sequences on which a sequence-wise call in a lane works; `None` means all sequences. The range is
    /// needed because the levels are bound for all sequences of the block, not only for the lane.
    fn lane_sequences(&self, instr: &OpInstr, here: Option<CallRows>) -> Option<Range<usize>> {
        let here = here.filter(|_| instr.reach == Reach::Sequence)?;
        let (_, above) = instr.sequences()?;
        self.frames[here.block.0 as usize].sequences_at(here.at, above.last().copied())
    }

    /// Calls an operator on the rows that its block computes now.
    pub(crate) fn exec(
        &self,
        instr: &OpInstr,
        lane: &mut Lane<'_>,
        here: Option<CallRows>,
        workers: &mut [Worker],
        pool: &mut [PooledStorage],
    ) -> Result<()> {
        let Some((worker, others)) = workers.split_first_mut() else { return Ok(()) };
        let clock = worker.clock();
        let Worker { scratch, room, reads, writes, .. } = worker;
        reads.clear();
        reads.extend(instr.reads.iter().map(|r| self.region(r, here)));
        writes.clear();
        writes.extend(instr.writes.iter().map(|r| self.region(r, here)));
        let threads = match others.len() {
            0 => 1,
            more => helpers(self.effort_of(instr, here), self.worth.call, 1 + more),
        };
        let others = &mut others[..threads - 1];
        let units =
            if threads > 1 && divisible(instr) { self.units(instr, here, writes, threads) } else { None };
        let mut operands = lane.operands(room, reads, writes);
        let call = self.call(instr, here);
        match units {
            None => run(instr, call, operands, pool, scratch).map_err(|e| self.named(instr, here, e))?,
            Some(units) => {
                let range = 0..units.count();
                if divide(instr, call, &mut operands, &units, range, scratch, others).is_err() {
                    // If a part fails, the whole call runs again, so that the error names the same row with any number of
                    // threads.
                    let (call, operands) = (self.call(instr, here), lane.operands(room, reads, writes));
                    run(instr, call, operands, pool, scratch).map_err(|e| self.named(instr, here, e))?;
                }
            }
        }
        if !instr.flush.is_empty() {
            let Worker { room, writes, .. } = &mut *worker;
            let mut written = lane.operands(room, &[], writes);
            instr.flush.iter().filter_map(|&i| written.write::<f32>(i)).for_each(flush);
        }
        if let Some(start) = clock {
            self.record(instr, here, start, worker, pool);
        }
        Ok(())
    }

    fn effort_of(&self, instr: &OpInstr, here: Option<CallRows>) -> usize {
        instr.effort.of(self.count(instr.effort.rows, here))
    }

    /// Returns the units (rows or sequences) by which a call can be divided over threads; `None` if it cannot be divided, or if
    /// the operator divides its columns instead.
    fn units(
        &self,
        instr: &OpInstr,
        here: Option<CallRows>,
        writes: &[Region],
        threads: usize,
    ) -> Option<Units<'_>> {
        let views = instr.reads.iter().chain(&instr.writes);
        // The number of rows is taken from the written region, not from a level: if a block has no sequence, a level may still
        // count the rows of another step.
        let count = writes.first().map_or(0, |region| region.extent.rows);
        // A lane has several threads only if few sequences are left.
        let few = || here.is_some() || few_rows(count, threads, instr.effort.packed);
        if instr.reach == Reach::Row && !(instr.divides_columns && few()) {
            let rows = instr.writes.first()?.rows;
            let alike = views.clone().all(|v| v.rows == rows || v.rows.known().is_some());
            return alike.then_some(Units::Rows(count));
        }
        // Calls in a chain are divided only by rows.
        if here.is_some_and(|here| here.only.is_some()) || instr.divides_columns {
            return None;
        }
        let lods = instr.inputs.iter().flatten().map(|spec| &spec.lod);
        let (last, upper) = instr.sequences()?;
        let above = upper.last().map_or(instr.top, |&level| Extent::Rows(level));
        // For each extent of the inputs' rows: the offsets of the sequences (all inputs have the same sequences, but their
        // lengths may differ).
        let mut below = ArrayVec::<_, 3>::new();
        let all = self.levels.get(last)?.offsets();
        // The call works on the sequences of the lane; outside lanes, on all sequences.
        let own_sequences = self.lane_sequences(instr, here).unwrap_or(0..all.len() - 1);
        let offsets = |level| self.levels.get(level)?.offsets().get(own_sequences.start..=own_sequences.end);
        below.push((Extent::Rows(last), offsets(last)?));
        for (last, own) in lods.filter_map(|lod| lod.split_last()) {
            let rows = Extent::Rows(*last);
            if own == upper && below.iter().all(|(known, _)| *known != rows) {
                below.try_push((rows, offsets(*last)?)).ok()?;
            }
        }
        let units = Units::Sequences { first: own_sequences.start, below, above };
        let known = |v: &Ref| v.rows == above || units.offsets(v).is_some() || v.rows.known().is_some();
        let fits = |(region, view): (&Region, &Ref)| {
            let ends = units.offsets(view).and_then(|offsets| offsets.first().zip(offsets.last()));
            ends.is_none_or(|(first, last)| region.extent.rows == last - first)
        };
        (views.clone().all(known) && writes.iter().zip(&instr.writes).all(fits)).then_some(units)
    }

    /// Returns the version of each constant that a call reads. The version is 0 for a constant that the scope does not
    /// keep.
    fn versions(&self, op: &OpInstr, lane: &Lane<'_>) -> impl Iterator<Item = u64> {
        let constants = op.reads.iter().enumerate().filter(|(i, _)| is_constant(op, *i));
        constants.map(|(_, read)| match read.access {
            Access::Slot(s) if self.plan.slots[s].persistent => lane.version(self.plan.slots[s].buffer),
            _ => 0,
        })
    }

    /// Lets operators pack their constant inputs (such as weights) before many calls. Packed values of an earlier run are used
    /// again if the constants have not changed.
    pub(crate) fn prepare(&mut self, instr: &Instr, lane: &mut Lane<'_>, worker: &mut Worker) -> Result<()> {
        match instr {
            Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => Ok(()),
            Instr::Loop(inner) => {
                let parts = [&inner.before, &inner.body, &inner.after];
                parts.into_iter().flatten().try_for_each(|i| self.prepare(i, lane, worker))
            }
            Instr::Op(op) => {
                let Some(index) = op.prepared else { return Ok(()) };
                let Preparation { by, of: prepared_calls, .. } = &self.prepared[index];
                if *by == op.index
                    && !prepared_calls.is_empty()
                    && prepared_calls.iter().copied().eq(self.versions(op, lane))
                {
                    return Ok(());
                }
                let mut prepared_calls = std::mem::take(&mut self.prepared[index].of);
                self.prepared[index].made.clear();
                let Worker { room, reads, recorder, .. } = worker;
                reads.clear();
                // Packing reads only the constants; the other operands may not have memory yet.
                let region = |(i, r): (usize, &Ref)| {
                    if is_constant(op, i) {
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
                    unit: self.facts.unit,
                    threads: self.facts.threads,
                    prepared: &mut self.prepared[index].made,
                };
                op.op.prepare(&mut prepare).map_err(|e| op.err(e))?;
                prepared_calls.clear();
                prepared_calls.extend(self.versions(op, lane));
                // A constant that the program computes can change from run to run, so it is packed in every run.
                if prepared_calls.contains(&0) {
                    prepared_calls.clear();
                }
                (self.prepared[index].of, self.prepared[index].by) = (prepared_calls, op.index);
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
}

/// Returns whether threads should divide columns instead of `rows` rows: with few rows, each thread would wait for the packed
/// constants, `packed` bytes, that it reads for its rows.
pub(super) fn few_rows(rows: usize, threads: usize, packed: usize) -> bool {
    rows <= threads / 2 || threads > 1 && cpu().streams(packed, rows.div_ceil(threads))
}

/// Returns whether operand `read` of a call is a constant, which is the same in every call of the operator.
fn is_constant(op: &OpInstr, read: usize) -> bool {
    op.constants.iter().any(|reads| reads.contains(&read))
}

/// Returns whether the work of an operator can be divided, so that each call works on some of the rows.
fn divisible(instr: &OpInstr) -> bool {
    // A call that writes a constant computes a sum over all rows, which must not be divided.
    let constant = |r: &Ref| r.rows.known().is_some();
    instr.reach != Reach::Batch
        && instr.role != Role::Update
        && !instr.writes.is_empty()
        && !instr.writes.iter().any(constant)
        // An operator with a value that is not dense divides its work itself.
        && !instr.selects()
        && instr.writes.iter().all(|r| !matches!(r.rows, Extent::Data(_)))
}

/// The parts of a call that can run separately: rows, or whole sequences.
enum Units<'a> {
    Rows(usize),
    /// Whole sequences: `below` holds the offsets of these sequences for each extent that counts their rows. The offsets of the
    /// first extent decide how the work is divided.
    Sequences {
        /// The number of the first sequence of the call.
        first: usize,
        below: ArrayVec<(Extent, &'a [usize]), 3>,
        above: Extent,
    },
}

impl<'a> Units<'a> {
    fn count(&self) -> usize {
        match self {
            Units::Rows(rows) => *rows,
            Units::Sequences { below, .. } => below[0].1.len() - 1,
        }
    }

    /// Returns the offsets of the sequences to which the rows of a view belong; `None` if the rows do not belong to the
    /// sequences.
    fn offsets(&self, view: &Ref) -> Option<&'a [usize]> {
        match self {
            Units::Rows(_) => None,
            Units::Sequences { below, .. } => {
                below.iter().find(|(rows, _)| *rows == view.rows).map(|(_, offsets)| *offsets)
            }
        }
    }

    /// Returns the position at which a range is cut, so that `left` of `parts` threads get their share of the rows.
    fn middle(&self, range: &Range<usize>, left: usize, parts: usize) -> usize {
        match self {
            Units::Rows(_) => range.start + boundary(range.len(), left, parts),
            Units::Sequences { below, .. } => {
                let offsets = below[0].1;
                let (first, last) = (offsets[range.start], offsets[range.end]);
                let goal = first + (last - first) * left / parts;
                range.start + offsets[range.start..range.end].partition_point(|&o| o < goal)
            }
        }
    }

    /// Returns the row at which a view is cut if the units are cut at `middle`; `None` for a constant, which is not cut.
    fn boundary(&self, view: &Ref, range: &Range<usize>, middle: usize) -> Option<usize> {
        if view.rows.known().is_some() {
            return None;
        }
        Some(match self {
            Units::Rows(_) => middle - range.start,
            Units::Sequences { above, .. } if view.rows == *above => middle - range.start,
            Units::Sequences { .. } => {
                let offsets = self.offsets(view)?;
                offsets[middle] - offsets[range.start]
            }
        })
    }
}

fn run(
    instr: &OpInstr,
    call: Call<'_>,
    operands: Operands<'_>,
    pool: &mut [PooledStorage],
    scratch: &mut Scratch,
) -> Result<()> {
    let outcome = match instr.pass {
        Pass::Forward => instr.op.forward(&mut Forward::new(call, operands, pool, scratch)),
        Pass::Backward => instr.op.backward(&mut Backward::new(call, operands, pool, scratch)),
    };
    instr.wiring.missing.checked(instr.op.signature(), outcome).map_err(|e| instr.err(e))
}

/// Halves a call repeatedly until each thread has a part. The results do not depend on where the call is cut: row-wise and
/// sequence-wise operators guarantee this.
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
        return Err(Error::of(ErrorKind::Program, "threads", "one thread for each part", "none"));
    };
    // Each cut uses the memory of another worker, which has room for the operands of two halves.
    let Worker { halves: (left_room, right_room), scratch: their_scratch, .. } = worker;
    let (a, b) = operands.split(|i| units.boundary(view(i), &range, middle), (left_room, right_room));
    let part = |range: &Range<usize>| match units {
        Units::Rows(_) => None,
        Units::Sequences { first, .. } => Some(first + range.start..first + range.end),
    };
    let keys = match call.keys {
        Keys::Listed(keys) => Keys::Listed(keys.get(middle - range.start..).unwrap_or(&[])),
        Keys::Natural { names, lod, first } => {
            let moved = match units {
                Units::Rows(_) => middle - range.start,
                Units::Sequences { below, .. } => below[0].1[middle] - below[0].1[range.start],
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
    // Sequences of the same total length may take different times.
    let measured = match units {
        Units::Rows(_) => (middle - range.start, range.len()),
        Units::Sequences { .. } => (0, 0),
    };
    let (x, y) = join_measured(
        measured,
        || half(left, a, range.start..middle, scratch, mine),
        || half(right, b, middle..range.end, their_scratch, theirs),
    );
    x.and(y)
}

fn copy<'a>(call: &Call<'a>) -> Call<'a> {
    Call { sequences: call.sequences.clone(), ..*call }
}
