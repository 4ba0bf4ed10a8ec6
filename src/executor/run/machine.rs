//! The machine that a compiled program runs on: its buffers and threads, and all that is kept from run to run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::executor::plan::{Plan, Slot};
use crate::executor::run::recorder::Recorder;
use crate::executor::run::request::Run;
use crate::executor::run::scope::Scope;
use crate::executor::run::stages::Stages;
use crate::executor::run::state::Kept;
use crate::executor::run::threads::Threads;
use crate::executor::run::worker::{Lists, Tools, Worker};
use crate::kernels::Extent2;
use crate::kernels::arena::{Arena, Region};
use crate::lod::Lod;
use crate::program::contract::call::{row_buffer, selected_rows};
use crate::program::contract::rows::RowBuffer;
use crate::program::{Extent, Program, Spec};
use crate::tensor::{DType, Dense, Storage, with_element};

/// What a plan runs on.
pub(crate) struct Machine {
    arena: Arena,
    /// The selected rows of the plan, by their numbers.
    pool: Vec<RowBuffer>,
    workers: Vec<Worker>,
    threads: Threads,
    pub(super) kept: Kept,
    lists: Lists,
    /// By variable: whether it is among the feeds of the run.
    pub(super) fed: Vec<bool>,
}

impl Machine {
    /// Buffers for the plan of a program, which runs on some threads.
    pub(crate) fn new(program: &Program, plan: &Plan, threads: Threads) -> Self {
        let mut arena = Arena::new();
        for &dtype in &plan.buffers {
            with_element!(dtype, T => arena.add::<T>());
        }
        Self {
            arena,
            pool: vec![RowBuffer::default(); plan.pools],
            workers: (0..threads.number).map(|_| Worker::default()).collect(),
            threads,
            kept: Kept::new(plan, program.blocks().len()),
            lists: Lists::default(),
            fed: vec![false; program.vars().len()],
        }
    }

    /// Bytes of all buffers now.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Another run of a program begins, whose feeds are bound.
    pub(crate) fn begin(&mut self, program: &Program, run: &Run<'_>) {
        self.kept.begin(run, program.seed, self.workers.len());
        self.workers.iter_mut().filter_map(|worker| worker.recorder.as_mut()).for_each(|r| r.restart());
    }

    /// Runs some stages. A panic in an operator is handed back, so that the caller can return the parameters to their
    /// scope first.
    pub(crate) fn run(&mut self, plan: &Plan, stages: Stages) -> std::thread::Result<Result<()>> {
        let Self { arena, pool, workers, threads, kept, lists, .. } = self;
        let mut state = kept.lend(plan);
        let mut work = || state.run_stages(stages, arena, &mut Tools { workers, pool, lists });
        let outcome = catch_unwind(AssertUnwindSafe(|| threads.run(&mut work)));
        kept.take_back(state);
        outcome
    }

    /// Exchanges the buffers of persistent variables with the scope's: in before a run, back after it.
    pub(crate) fn exchange(&mut self, plan: &Plan, scope: &mut Scope) {
        for slot in plan.slots.iter().filter(|s| s.persistent) {
            scope.lend(&plan.program.var(slot.var).name, &mut self.arena, slot.buffer);
        }
    }

    /// The LoD of a variable in the last run.
    pub(crate) fn lod(&self, spec: &Spec) -> Option<Arc<Lod>> {
        self.kept.levels.lod(&spec.lod).cloned()
    }

    /// How many rows a variable of the root block had in the last run.
    fn rows(&self, spec: &Spec) -> usize {
        match spec.rows() {
            Extent::Known(n) => n,
            Extent::Rows(level) => self.kept.levels.get(level).map_or(0, |lod| lod.rows()),
            _ => self.kept.batch,
        }
    }

    /// The value of a variable of the root block, in the order of the batch.
    ///
    /// # Errors
    /// If a row number of selected rows is out of range.
    pub(crate) fn value(&mut self, slot: &Slot, spec: &Spec) -> Result<Storage> {
        if let Some(pool) = slot.pool {
            return Ok(selected_rows(&self.pool[pool], spec)?.into());
        }
        let mut shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(0)).collect();
        if spec.batched() {
            shape[0] = self.rows(spec);
        }
        let region = first_numbers(slot, shape.iter().product());
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut self.workers[0].room, &[region], &[]);
        with_element!(slot.dtype, T => {
            let numbers = operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[]);
            Ok(Dense::from_vec(&shape, numbers.to_vec())?.into())
        })
    }

    /// The first number of a variable of the root block; the error says what it is instead of a float.
    pub(crate) fn first_number(&mut self, slot: &Slot, spec: &Spec) -> std::result::Result<f64, String> {
        let rows = self.rows(spec);
        if slot.pool.is_some() || spec.width() == 0 || spec.batched() && rows == 0 {
            return Err(format!("{spec} with {rows} rows"));
        }
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut self.workers[0].room, &[first_numbers(slot, 1)], &[]);
        let number = match slot.dtype {
            DType::F32 => operands.read::<f32>(0).map(|v| f64::from(v.row(0)[0])),
            DType::F64 => operands.read::<f64>(0).map(|v| v.row(0)[0]),
            _ => None,
        };
        number.ok_or_else(|| slot.dtype.to_string())
    }

    /// Sets the value of a variable of the root block, which has been checked to fit.
    ///
    /// # Errors
    /// If it holds another dtype than it says.
    pub(crate) fn set_value(&mut self, slot: &Slot, value: &Storage) -> Result<()> {
        match value {
            Storage::Dense(dense) => {
                self.arena.reserve(slot.buffer, dense.len());
                let mut lane = self.arena.lane();
                let region = first_numbers(slot, dense.len());
                let mut operands = lane.operands(&mut self.workers[0].room, &[], &[region]);
                with_element!(dense.dtype(), T => {
                    if let Some(to) = operands.write::<T>(0).as_mut().and_then(|v| v.contiguous()) {
                        to.copy_from_slice(dense.as_slice::<T>()?);
                    }
                });
            }
            Storage::SelectedRows(rows) => {
                if let Some(pool) = slot.pool {
                    self.pool[pool] = row_buffer(rows)?;
                }
            }
            // Described and checked; no operator has a kernel for them yet, so nothing reads them.
            Storage::Csr(_) | Storage::Coo(_) => {}
        }
        Ok(())
    }

    /// From the next run on every thread writes down what the instructions of a plan take.
    pub(crate) fn start_recording(&mut self, plan: &Plan) {
        let origin = Instant::now();
        for worker in &mut self.workers {
            worker.recorder = Some(Box::new(Recorder::new(origin, plan.instructions)));
        }
    }

    /// Writes down how long a run took.
    pub(crate) fn record(&mut self, start: Instant, length: Duration) {
        if let Some(recorder) = self.workers.first_mut().and_then(|worker| worker.recorder.as_mut()) {
            recorder.run(start, length);
        }
    }

    /// What was written down, thread by thread; from now on nothing is.
    pub(crate) fn stop_recording(&mut self) -> Vec<Recorder> {
        self.workers.iter_mut().filter_map(|worker| worker.recorder.take().map(|r| *r)).collect()
    }
}

/// The first numbers of a slot, as one row.
fn first_numbers(slot: &Slot, count: usize) -> Region {
    let extent = Extent2 { rows: 1, width: count, stride: count };
    Region { buffer: slot.buffer, extent, ..Region::default() }
}
