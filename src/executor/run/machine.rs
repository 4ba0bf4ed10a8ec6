//! The machine that runs a compiled program: it owns the buffers, the threads, and all other memory that is kept from run to
//! run.

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
use crate::reserve;
use crate::tensor::{DType, Dense, Element, FloatsMut, Storage, with_element};

/// The memory and the threads with which a plan runs.
pub(crate) struct Machine {
    arena: Arena,
    /// The values that are not dense, by pool number.
    pool: Vec<PooledStorage>,
    intake: Intake,
    workers: Vec<Worker>,
    threads: Threads,
    worth: Worth,
    pub(super) kept: RunMemory,
    lists: Lists,
    persistent: Vec<Persistent>,
    /// For each variable, whether it is a feed of the current run.
    pub(super) fed: Vec<bool>,
}

/// A variable that a scope keeps from run to run.
struct Persistent {
    var: VarId,
    /// The number of the variable's buffer in the arena; during a run, this buffer holds the values of the variable. A
    /// row-sparse variable has a pool number in `pool` instead of a buffer.
    buffer: usize,
    pool: Option<usize>,
    /// The first stage in which an operator writes the variable; `None` if no operator writes it.
    written: Option<Stage>,
    /// The location of the variable in the scope of the current run.
    theirs: InScope,
}

impl Machine {
    /// Makes the machine for a plan: its buffers, and the memory of each thread.
    pub(crate) fn new(plan: &Plan, threads: Threads) -> Self {
        let program = &plan.program;
        let mut arena = Arena::new();
        for &dtype in &plan.buffers {
            with_element!(dtype, T => arena.add::<T>());
        }
        let mut written = vec![None; program.vars().len()];
        let ops = program.ops();
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
            kept: RunMemory::new(plan, (program.blocks().len(), program.vars().len())),
            lists: Lists::default(),
            persistent: persistent.collect(),
            fed: vec![false; program.vars().len()],
        }
    }

    /// From the next run on, wakes all threads for every run, even for a small run.
    pub(crate) fn wake_all_threads(&mut self) {
        self.worth = Worth { run: 0, ..Worth::default() };
    }

    /// From the next run on, divides all work that can be divided, even small work.
    pub(crate) fn divide_everything(&mut self) {
        self.worth = Worth::EVERYTHING;
    }

    /// Gives the memory that is kept from run to run back to the system. The recording of a profile continues.
    pub(crate) fn release(&mut self, plan: &Plan) {
        let recorders: Vec<_> = self.workers.iter_mut().map(|worker| worker.recorder.take()).collect();
        *self = Self { worth: self.worth, ..Self::new(plan, self.threads.clone()) };
        self.workers.iter_mut().zip(recorders).for_each(|(worker, recorder)| worker.recorder = recorder);
    }

    /// Returns the current size of all buffers in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Fills `bytes` with the allocated size of each pool number, in bytes; 0 if the scope keeps the value.
    pub(super) fn pool_bytes(&self, bytes: &mut Vec<usize>) {
        bytes.clear();
        bytes.extend(self.pool.iter().map(PooledStorage::allocated));
    }

    pub(crate) fn buffer_bytes(&self, buffer: usize) -> usize {
        self.arena.buffer_bytes(buffer)
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.number
    }

    /// Begins a run of a program. The feeds of the run must be bound before this call.
    pub(crate) fn begin(&mut self, program: &Program, run: &Run<'_>) {
        self.kept.begin(run, program);
        self.workers.iter_mut().filter_map(|worker| worker.recorder.as_mut()).for_each(|r| r.restart());
    }

    /// Runs some stages with the variables of a scope that was [checked](Self::check_scope). If an operator panics, the panic
    /// is returned as the outer error.
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        stages: Stages,
        scope: &mut Scope,
    ) -> std::thread::Result<Result<()>> {
        // Only variables that these stages write are made writable: other variables stay shared with clones of the scope, and
        // their packed values stay valid.
        let write = |variable: &&Persistent| variable.written.is_some_and(|first| stages.end_behind(first));
        for variable in self.persistent.iter().filter(write) {
            scope.own(variable.theirs);
        }
        self.exchange(scope);
        // Until the second exchange, this function must not return early, not even by a panic: the machine holds the
        // parameters, and the scope does not.
        let Self { arena, pool, workers, threads, kept, lists, worth, .. } = self;
        let mut state = kept.lend(plan, *worth);
        let [all, large] = state.effort(stages);
        let together = all >= worth.run || large >= worth.large;
        let workers = if together { &mut workers[..] } else { &mut workers[..1] };
        state.facts.threads = workers.len();
        let mut work = || state.run_stages(stages, arena, &mut Tools { workers, pool, lists });
        let outcome =
            catch_unwind(AssertUnwindSafe(|| if together { threads.run(&mut work) } else { work() }));
        kept.take_back(state);
        self.exchange(scope);
        // The variables that were written get new versions, so that their packed values are outdated.
        for variable in self.persistent.iter().filter(write) {
            scope.own(variable.theirs);
        }
        outcome
    }

    /// Finds every persistent variable of the program in a scope, and checks its shape and dtype. All variables are checked
    /// before any buffer is exchanged, so that an error leaves the scope unchanged.
    ///
    /// # Errors
    /// Fails if a variable is missing, or has another shape or dtype.
    pub(crate) fn check_scope(&mut self, program: &Program, scope: &Scope) -> Result<()> {
        for variable in &mut self.persistent {
            let (name, spec) = (&program.var(variable.var).name, program.spec(variable.var)?);
            variable.theirs = scope.find(name, spec)?;
        }
        Ok(())
    }

    /// Swaps the buffers of persistent variables with the buffers of the scope.
    fn exchange(&mut self, scope: &mut Scope) {
        for variable in &self.persistent {
            match variable.pool {
                None => scope.lend(variable.theirs, &mut self.arena, variable.buffer),
                Some(pool) => scope.lend_table(variable.theirs, &mut self.pool[pool]),
            }
        }
    }

    /// Returns the LoD of a variable in the last run.
    pub(crate) fn lod(&self, spec: &Spec) -> Option<Arc<Lod>> {
        self.kept.levels.lod(&spec.lod).cloned()
    }

    /// Returns the number of rows of a root block variable in the last run.
    pub(crate) fn rows(&self, spec: &Spec) -> usize {
        match spec.rows() {
            Extent::Known(n) => n,
            Extent::Rows(level) => self.kept.levels.get(level).map_or(0, |lod| lod.rows()),
            _ => self.kept.batch,
        }
    }

    /// Returns the value of a root block variable, with its rows in the batch's order.
    ///
    /// # Errors
    /// Fails if a sparse value has a row or column number that is out of range.
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

    /// Calls a function with the numbers of a dense root block variable, in the batch's order. Returns `None` if the variable
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

    /// Calls a function that may change the numbers of a dense variable of known shape, in place. Returns `false`, without a
    /// call, if the variable is not a dense float.
    pub(crate) fn change(
        &mut self,
        slot: &Slot,
        spec: &Spec,
        change: &mut dyn FnMut(FloatsMut<'_>) -> Result<()>,
    ) -> Result<bool> {
        if slot.pool.is_some() || !slot.dtype.is_float() {
            return Ok(false);
        }
        let count = spec.rows().known().unwrap_or(0) * spec.width();
        let mut lane = self.arena.lane();
        let mut operands = lane.operands(&mut self.workers[0].room, &[], &[first_numbers(slot, count)]);
        match slot.dtype {
            DType::F32 => {
                let mut view = operands.write::<f32>(0);
                change(FloatsMut::F32(view.as_mut().and_then(|v| v.contiguous()).unwrap_or(&mut [])))?;
            }
            _ => {
                let mut view = operands.write::<f64>(0);
                change(FloatsMut::F64(view.as_mut().and_then(|v| v.contiguous()).unwrap_or(&mut [])))?;
            }
        }
        Ok(true)
    }

    /// Returns the size in bytes of a root block variable's value.
    pub(crate) fn bytes_of(&self, slot: &Slot, spec: &Spec) -> usize {
        match slot.pool {
            Some(pool) => self.pool[pool].bytes(),
            None => Size::of(spec, Extent::Known(0)).bytes(self.rows(spec), 0),
        }
    }

    /// Returns the first number of a root block variable; an error if the variable is not a float tensor.
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

    /// Sets the value of a root block variable; the value must have been checked before.
    ///
    /// # Errors
    /// Fails if a sparse value has another storage than the slot, or if its numbers are neither f32 nor f64.
    pub(crate) fn set_value(&mut self, slot: &Slot, value: &Storage, repeated: DuplicateRows) -> Result<()> {
        match value {
            Storage::Dense(dense) => {
                if !self.arena.try_reserve(slot.buffer, dense.len()) {
                    let bytes = dense.len().saturating_mul(slot.dtype.size_of());
                    return Err(reserve::refused("memory of a variable", bytes));
                }
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

    /// From the next run on, records the calls of the plan's instructions on every thread.
    pub(crate) fn start_recording(&mut self, plan: &Plan) {
        let origin = Instant::now();
        for worker in &mut self.workers {
            worker.recorder = Some(Box::new(Recorder::new(origin, plan.instructions)));
        }
    }

    pub(crate) fn record(&mut self, start: Instant, length: Duration) {
        if let Some(recorder) = self.workers.first_mut().and_then(|worker| worker.recorder.as_mut()) {
            recorder.run(start, length);
        }
    }

    pub(crate) fn stop_recording(&mut self) -> Vec<Recorder> {
        self.workers.iter_mut().filter_map(|worker| worker.recorder.take().map(|r| *r)).collect()
    }
}

fn first_numbers(slot: &Slot, count: usize) -> Region {
    let extent = Extent2 { rows: 1, width: count, stride: count };
    Region { buffer: slot.buffer, extent, ..Region::default() }
}
