//! Records a profiled run: the cost of its calls, and the time of each phase of a loop.

use std::time::Instant;

use arrayvec::ArrayVec;

use crate::executor::plan::{Instr, Loop, Move, OpInstr};
use crate::executor::run::recorder::EventKind;
use crate::executor::run::state::{CallRows, RunState};
use crate::executor::run::worker::Worker;
use crate::kernels::arena::Region;
use crate::operator::context::OperandPosition;
use crate::operator::entries::PooledStorage;
use crate::operator::{Cost, RowTable, Work};

impl Worker {
    /// Returns the nesting depth of loops on the thread; 0 if nothing is recorded.
    pub(crate) fn depth(&self) -> usize {
        self.recorder.as_ref().map_or(0, |recorder| recorder.depth())
    }

    /// Begins the steps of a loop that `threads` threads run together; `depth` is the nesting depth on the first thread. Pass
    /// the result to [`Self::close`].
    pub(crate) fn open(&mut self, threads: usize, depth: usize) -> usize {
        self.recorder.as_mut().map_or(0, |recorder| recorder.enter(threads, depth))
    }

    /// Ends the steps of a loop, which [`Self::open`] began.
    pub(crate) fn close(&mut self, instr: &Loop, opened: usize) {
        if let Some(recorder) = &mut self.recorder {
            let first = instr.index + 1 + instructions(&instr.before);
            recorder.leave(Some(instr.index), first..first + instructions(&instr.body), opened);
        }
    }

    /// Ends the calls of a chain, which [`Self::open`] began.
    pub(crate) fn close_chain(&mut self, calls: impl Iterator<Item = usize>, opened: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.leave(None, calls, opened);
        }
    }
}

/// Returns the number of instructions in a list, including the instructions in loops.
fn instructions(code: &[Instr]) -> usize {
    let inside = |instr: &Instr| match instr {
        Instr::Loop(inner) => {
            [&inner.before, &inner.body, &inner.after].map(|part| instructions(part)).iter().sum()
        }
        _ => 0,
    };
    code.iter().map(|instr| 1 + inside(instr)).sum()
}

/// The times at which the three phases of a loop begin and end: the instructions before the loop, the steps, and the
/// instructions after the loop.
pub(crate) struct Laps {
    wanted: bool,
    at: ArrayVec<Instant, 7>,
}

impl Laps {
    pub(crate) fn start(worker: &Worker) -> Self {
        Self { wanted: worker.recorder.is_some(), at: worker.clock().into_iter().collect() }
    }

    /// Records the current time as the beginning or the end of a phase.
    pub(crate) fn mark(&mut self) {
        if self.wanted {
            self.at.push(Instant::now());
        }
    }

    /// Ends the loop, and adds up the times of its phases. The time between the phases counts as time for moving rows.
    pub(crate) fn end(self, instr: &Loop, moved: impl FnOnce() -> Cost, worker: &mut Worker) {
        let (Ok([start, before, steps, step, stepped, after, done]), Some(recorder)) =
            (self.at.into_inner(), &mut worker.recorder)
        else {
            return;
        };
        let (all, body) = (start.elapsed(), stepped - step);
        let moving = all - (steps - before) - body - (done - after);
        recorder.spent(instr.index, moving, body, moved());
        if recorder.depth() == 0 {
            recorder.event(EventKind::Loop(instr.index), start, all, 1);
        }
    }
}

impl RunState<'_> {
    /// Records a call that ends at this moment.
    #[cold]
    pub(crate) fn record(
        &self,
        instr: &OpInstr,
        here: Option<CallRows>,
        start: Instant,
        worker: &mut Worker,
        pool: &[PooledStorage],
    ) {
        let Worker { recorder: Some(recorder), reads, writes, .. } = worker else { return };
        let rows = writes.iter().chain(&*reads).map(|r| r.extent.rows).max().unwrap_or(0);
        let rows = match instr.outputs.iter().flatten().next() {
            Some(spec) => self.count(spec.rows(), here),
            None => rows,
        };
        recorder.call(instr.index, start, rows, self.cost(instr, here, reads, writes, pool));
    }

    fn cost(
        &self,
        instr: &OpInstr,
        here: Option<CallRows>,
        reads: &[Region],
        writes: &[Region],
        pool: &[PooledStorage],
    ) -> Cost {
        let pooled = |position: &OperandPosition| match position {
            OperandPosition::Pooled(p) => pool.get(*p),
            _ => None,
        };
        let selected = || instr.wiring.inputs.iter().flatten().filter_map(pooled);
        // A call with selected rows touches only these rows of a table. An operand is regarded as the table if it has
        // as many rows as the table.
        let numbers = |region: &Region| {
            let tables = selected().filter_map(PooledStorage::rows);
            let rows = tables.filter(|s| s.height() == region.extent.rows).map(|s| s.ids().len()).next();
            rows.unwrap_or(usize::MAX).min(region.extent.rows) * region.extent.width
        };
        // A row-sparse table holds all rows that were ever touched, but only the selected rows count.
        let rows_of = |table: &RowTable| {
            selected()
                .filter_map(PooledStorage::rows)
                .map(|rows| rows.ids().len())
                .next()
                .unwrap_or(0)
                .min(table.touched())
        };
        let stored = |pooled: &PooledStorage| match pooled.table() {
            Some(table) => rows_of(table) * table.width(),
            None => pooled.numbers(),
        };
        let bytes = |pooled: &PooledStorage| match pooled.table() {
            Some(table) => rows_of(table) * table.width() * table.dtype().size_of(),
            None => pooled.bytes(),
        };
        let read = reads.iter().zip(&instr.reads).map(|(r, view)| numbers(r) * self.dtype(view).size_of());
        let written =
            writes.iter().zip(&instr.writes).map(|(r, view)| numbers(r) * self.dtype(view).size_of());
        let added = || {
            let outputs = instr.wiring.outputs.iter().flatten();
            outputs
                .chain(instr.wiring.input_gradients.iter().flatten().map(|(position, _)| position))
                .filter_map(pooled)
        };
        let flops = writes.iter().map(numbers).sum::<usize>() + added().map(stored).sum::<usize>();
        let touched = Cost {
            flops: flops as u64,
            read: (read.sum::<usize>() + selected().map(bytes).sum::<usize>()) as u64,
            written: (written.sum::<usize>() + added().map(bytes).sum::<usize>()) as u64,
        };
        let work = Work {
            pass: instr.pass,
            wanted: &instr.wanted,
            inputs: &instr.inputs,
            outputs: &instr.outputs,
            rows: &|extent| self.count(extent, here),
            stored: &|slot| {
                let places = instr.wiring.inputs.get(slot).into_iter().flatten();
                places.filter_map(pooled).map(PooledStorage::numbers).sum()
            },
            touched,
        };
        instr.op.cost(&work)
    }

    /// Returns the cost of a loop's moves: the bytes that the loop moves between the batch's order and its own order.
    pub(crate) fn moved(&self, instr: &Loop) -> Cost {
        let bytes =
            |m: &Move| self.count(m.outer.rows, None) * m.outer.width * self.dtype(&m.outer).size_of();
        let moves = [&instr.gather, &instr.statics, &instr.scatter, &instr.scatter_statics];
        let bytes = moves.into_iter().flatten().map(bytes).sum::<usize>() as u64;
        Cost { flops: 0, read: bytes, written: bytes }
    }
}
