//! The machine that runs a compiled program: its buffers and threads, and everything that is kept from run to run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::executor::plan::{Plan, Slot};
use crate::executor::run::recorder::Recorder;
use crate::executor::run::request::{Run, Stage};
use crate::executor::run::scope::{InScope, Scope};
use crate::executor::run::stages::Stages;
use crate::executor::run::state::RunMemory;
use crate::executor::run::threads::Threads;
use crate::executor::run::worker::{Lists, Tools, Worker};
use crate::executor::run::worth::Worth;
use crate::kernels::Extent2;
use crate::kernels::arena::{Arena, Plain, Region};
use crate::lod::Lod;
use crate::operator::call::{DuplicateRows, Intake, stored};
use crate::operator::entries::PooledStorage;
use crate::operator::{Extent, Size, Spec, VarId};
use crate::program::{OpDesc, Program};
use crate::tensor::{DType, Dense, Element, Storage, with_element};

/// The memory and the threads of a plan.
pub(crate) struct Machine {
    arena: Arena,
    /// The values that are not dense, by their numbers in the pool.
    pool: Vec<PooledStorage>,
    intake: Intake,
    workers: Vec<Worker>,
    threads: Threads,
    worth: Worth,
    pub(super) kept: RunMemory,
    lists: Lists,
    persistent: Vec<Persistent>,
    /// For each variable, whether it is among the feeds of the run.
    pub(super) fed: Vec<bool>,
}

/// A variable that is kept in a scope from run to run.
struct Persistent {
    var: VarId,
    /// The variable's buffer in the arena, which has the scope's numbers during a run. A row-sparse variable has `pool` instead:
    /// its number in the pool.
    buffer: usize,
    pool: Option<usize>,
    /// The first stage with an operator that writes the variable; `None` if no operator writes it.
    written: Option<Stage>,
    /// The variable's location in the scope of the run.
    theirs: InScope,
}

impl Machine {
    /// Makes the machine for the plan of a program: its buffers, and memory for each of the threads.
    pub(crate) fn new(program: &Program, plan: &Plan, threads: Threads) -> Self {
        let mut arena = Arena::new();
        for &dtype in &plan.buffers {
            with_element!(dtype, T => arena.add::<T>());
        }
        let mut written = vec![None; program.vars().len()];
        let ops = program.blocks().flat_map(|(_, block)| &block.ops);
        let writes = |op: &'_ OpDesc| op.writes().map(|var| (var, Stage::of(op.role))).collect::<Vec<_>>();
        for (var, stage) in ops.flat_map(writes) {
            let first = &mut written[var.0 as usize];
            *first = Some(first.map_or(stage, |known: Stage| known.min(stage)));
        }
        let persistent = plan.slots.iter().filter(|slot| slot.persistent).map(|slot| {
            let &Slot { var, buffer, pool, .. } = slot;
            let theirs = InScope::Buffer(0);
            Persistent { var, buffer, pool, written: written[var.0 as usize], theirs }
        });
        Self {
            arena,
            pool: plan.pools.iter().filter_map(|&kind| PooledStorage::of(kind)).collect(),
            intake: Intake::default(),
            workers: (0..threads.number).map(|_| Worker::default()).collect(),
            threads,
            worth: Worth::default(),
            kept: RunMemory::new(plan, program.blocks().len()),
            lists: Lists::default(),
            persistent: persistent.collect(),
            fed: vec![false; program.vars().len()],
        }
    }

    /// Wakes all threads for any run, however small, from the next run on.
    pub(crate) fn wake_all_threads(&mut self) {
        self.worth = Worth { run: 0, ..Worth::default() };
    }

    /// Divides all work that can be divided, however small, from the next run on.
    pub(crate) fn divide_everything(&mut self) {
        self.worth = Worth::EVERYTHING;
    }

    /// The current bytes of all buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Begins a run of a program. The feeds of the run must be bound before.
    pub(crate) fn begin(&mut self, program: &Program, run: &Run<'_>) {
        self.kept.begin(run, program.seed);
        self.workers.iter_mut().filter_map(|worker| worker.recorder.as_mut()).for_each(|r| r.restart());
    }

    /// Runs some stages with the variables of a scope that was [checked](Self::check_scope). Returns a panic of an operator
    /// as an error value.
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        stages: Stages,
        scope: &mut Scope,
    ) -> std::thread::Result<Result<()>> {
        // Values that these stages only read are unchanged: shared values stay shared, and packed values stay valid.
        let write = |variable: &&Persistent| variable.written.is_some_and(|first| stages.end_behind(first));
        for variable in self.persistent.iter().filter(write) {
            scope.own(variable.theirs);
        }
        self.exchange(scope);
        // From here to the second exchange nothing may return early, not even by a panic: the machine has the parameters, and the
        // scope does not.
        let Self { arena, pool, workers, threads, kept, lists, worth, .. } = self;
        let mut state = kept.lend(plan, *worth);
        let together = state.effort(stages) >= worth.run;
        let workers = if together { &mut workers[..] } else { &mut workers[..1] };
        state.facts.threads = workers.len();
        let mut work = || state.run_stages(stages, arena, &mut Tools { workers, pool, lists });
        let outcome =
            catch_unwind(AssertUnwindSafe(|| if together { threads.run(&mut work) } else { work() }));
        kept.take_back(state);
        self.exchange(scope);
        // Packed values are outdated once their variables are written.
        for variable in self.persistent.iter().filter(write) {
            scope.own(variable.theirs);
        }
        outcome
    }

    /// Finds every persistent variable in a scope, and checks that it fits. All variables are checked before the first one is
    /// exchanged, so that a failed run leaves the scope whole.
    ///
    /// # Errors
    /// If a variable is missing, or has another shape or dtype.
    pub(crate) fn check_scope(&mut self, program: &Program, scope: &Scope) -> Result<()> {
        for variable in &mut self.persistent {
            let (name, spec) = (&program.var(variable.var).name, program.spec(variable.var)?);
            variable.theirs = scope.find(name, spec)?;
        }
        Ok(())
    }

    /// Exchanges the buffers of persistent variables with the buffers of the scope.
    fn exchange(&mut self, scope: &mut Scope) {
        for variable in &self.persistent {
            match variable.pool {
                None => scope.lend(variable.theirs, &mut self.arena, variable.buffer),
                Some(pool) => scope.lend_table(variable.theirs, &mut self.pool[pool]),
            }
        }
    }

    /// The LoD of a variable in the last run.
    pub(crate) fn lod(&self, spec: &Spec) -> Option<Arc<Lod>> {
        self.kept.levels.lod(&spec.lod).cloned()
    }

    /// The number of rows of a variable of the root block in the last run.
    pub(crate) fn rows(&self, spec: &Spec) -> usize {
        match spec.rows() {
            Extent::Known(n) => n,
            Extent::Rows(level) => self.kept.levels.get(level).map_or(0, |lod| lod.rows()),
            _ => self.kept.batch,
        }
    }

    /// The value of a variable of the root block, in the order of the batch.
    ///
    /// # Errors
    /// If a row or column number of a sparse value is out of range.
    pub(crate) fn value(&mut self, slot: &Slot, spec: &Spec) -> Result<Storage> {
        if let Some(pool) = slot.pool {
            return stored(&self.pool[pool], spec);
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

    /// Passes the numbers of a dense variable of the root block, in the order of the batch, to a function; `None` if the variable
    /// is not dense or has another dtype.
    pub(crate) fn numbers<T: Element + Plain, R>(
        &mut self,
        slot: &Slot,
        spec: &Spec,
        show: impl FnOnce(&[T]) -> R,
    ) -> Option<R> {
        if slot.pool.is_some() || slot.dtype != T::DTYPE {
            return None;
        }
        let rows = if spec.batched() { self.rows(spec) } else { 1 };
        let region = first_numbers(slot, rows * spec.width());
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut self.workers[0].room, &[region], &[]);
        Some(show(operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[])))
    }

    /// The bytes of the value of a variable of the root block.
    pub(crate) fn bytes_of(&self, slot: &Slot, spec: &Spec) -> usize {
        match slot.pool {
            Some(pool) => self.pool[pool].bytes(),
            None => Size::of(spec, Extent::Known(0)).bytes(self.rows(spec), 0),
        }
    }

    /// The first number of a variable of the root block; the error describes a value that is no float.
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

    /// Sets the value of a variable of the root block, after it was checked.
    ///
    /// # Errors
    /// If a sparse value has another storage than the slot, or its numbers are not f32 or f64.
    pub(crate) fn set_value(&mut self, slot: &Slot, value: &Storage, repeated: DuplicateRows) -> Result<()> {
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
            sparse => {
                if let Some(pool) = slot.pool {
                    self.intake.take_in(&mut self.pool[pool], sparse, repeated)?;
                }
            }
        }
        Ok(())
    }

    /// Records the calls of a plan's instructions on every thread, from the next run on.
    pub(crate) fn start_recording(&mut self, plan: &Plan) {
        let origin = Instant::now();
        for worker in &mut self.workers {
            worker.recorder = Some(Box::new(Recorder::new(origin, plan.instructions)));
        }
    }

    /// Records the duration of a run.
    pub(crate) fn record(&mut self, start: Instant, length: Duration) {
        if let Some(recorder) = self.workers.first_mut().and_then(|worker| worker.recorder.as_mut()) {
            recorder.run(start, length);
        }
    }

    /// Returns the records, thread by thread, and stops recording.
    pub(crate) fn stop_recording(&mut self) -> Vec<Recorder> {
        self.workers.iter_mut().filter_map(|worker| worker.recorder.take().map(|r| *r)).collect()
    }
}

/// The first numbers of a slot, as one row.
fn first_numbers(slot: &Slot, count: usize) -> Region {
    let extent = Extent2 { rows: 1, width: count, stride: count };
    Region { buffer: slot.buffer, extent, ..Region::default() }
}
