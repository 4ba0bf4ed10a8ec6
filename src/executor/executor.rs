//! The executor: feed, run, fetch.

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::compile;
use crate::executor::observe::profile::Profiling;
use crate::executor::plan::{Access, Instr, Loop, OpInstr, Plan, Ref, Slot};
use crate::executor::run::frame::Frame;
use crate::executor::run::machine::{Shared, Worker};
use crate::executor::run::scope::Scope;
use crate::executor::run::step_loop::{LoopMemory, Tools};
use crate::kernels::Extent2;
use crate::kernels::arena::{Arena, Lane, OperandRoom, Region};
use crate::program::contract::call::selected_rows;
use crate::program::contract::context::{Mode, Prepared, RunFacts};
use crate::program::contract::levels::LevelTable;
use crate::program::contract::rows::RowBuffer;
use crate::program::{Extent, Program, Registry, Role, VarId};
use crate::tensor::{DType, Dense, Variable, with_element};

/// More threads than any machine that this runs on has cores; a larger number is a mistake.
const MOST_THREADS: usize = 1024;

/// How far a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Forward only.
    Forward,
    /// Forward and backward; nothing is updated.
    Gradients,
    /// All of it.
    Updates,
}

/// The arguments of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The batch: each feed's variable.
    pub feeds: &'a [(VarId, &'a Variable)],
    /// Train or infer.
    pub mode: Mode,
    /// The number of the training step, from 0.
    pub step: u64,
    /// The numbers of the batch's sequences in the data; 0, 1, … without it. Random operators depend on them, and so
    /// not on how the data is cut into batches.
    pub numbers: &'a [u64],
    /// The place of each sequence's first row in the sequence, where a window of it is fed; 0 without it.
    pub places: &'a [u64],
    /// How far to go.
    pub stage: Stage,
}

impl<'a> Run<'a> {
    /// A training step: forward, backward, updates.
    pub fn train(feeds: &'a [(VarId, &'a Variable)], step: u64) -> Self {
        Run { feeds, mode: Mode::Train, step, numbers: &[], places: &[], stage: Stage::Updates }
    }

    /// A forward pass that infers.
    pub fn infer(feeds: &'a [(VarId, &'a Variable)]) -> Self {
        Run { feeds, mode: Mode::Infer, step: 0, numbers: &[], places: &[], stage: Stage::Forward }
    }

    /// The same with the numbers of the sequences in the data.
    #[must_use]
    pub fn numbers(self, numbers: &'a [u64]) -> Self {
        Run { numbers, ..self }
    }

    /// The same of windows of the sequences: the place of each one's first row in it.
    #[must_use]
    pub fn places(self, places: &'a [u64]) -> Self {
        Run { places, ..self }
    }

    /// The same up to a stage.
    #[must_use]
    pub fn until(self, stage: Stage) -> Self {
        Run { stage, ..self }
    }
}

/// A compiled program with its buffers.
pub struct Executor {
    pub(crate) program: Program,
    pub(crate) plan: Plan,
    pub(crate) arena: Arena,
    pub(crate) pool: Vec<RowBuffer>,
    pub(crate) workers: Vec<Worker>,
    threads: Option<rayon::ThreadPool>,
    pub(crate) kept: Kept,
    wanted: Vec<VarId>,
    pub(crate) fed: Vec<bool>,
    done: Option<Stage>,
    pub(crate) profiling: Option<Profiling>,
}

/// Memory of [`Shared`] between runs.
#[derive(Default)]
pub(crate) struct Kept {
    loops: Vec<Option<&'static Loop>>,
    frames: Vec<Frame>,
    pub(crate) levels: LevelTable,
    /// Levels that operators of the root made, for the next run to use their memory.
    pub(crate) spare: LevelTable,
    prepared: Vec<Prepared>,
    numbers: Vec<u64>,
    places: Vec<u64>,
    memory: LoopMemory,
    pub(crate) batch: usize,
}

/// An empty list in the memory of one whose references were of another run.
fn emptied<'p>(mut loops: Vec<Option<&Loop>>) -> Vec<Option<&'p Loop>> {
    loops.clear();
    // Between types of one layout `collect` keeps the memory.
    loops.into_iter().map(|_| None).collect()
}

impl Executor {
    /// Compiles `program` for the variables that will be fetched, to run on `threads` threads (0: as many as the
    /// machine has cores). Work is divided for that many where there is enough of it, on no more threads of the system
    /// than there are cores. Operators that neither the fetched variables nor an update needs are left out.
    ///
    /// # Errors
    /// If the program is not well formed, an operator is not registered, or threads cannot be started (or are more
    /// than 1024).
    #[track_caller]
    pub fn new(program: &Program, registry: &Registry, fetch: &[VarId], threads: usize) -> Result<Self> {
        let caller = Location::caller();
        if threads > MOST_THREADS {
            let error = Error::new("threads", format!("at most {MOST_THREADS}"), threads.to_string());
            return Err(error.called(caller));
        }
        let plan = compile(program, registry, fetch).map_err(|e| e.called(caller))?;
        let mut arena = Arena::new();
        for &dtype in &plan.buffers {
            with_element!(dtype, T => arena.add::<T>());
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores } else { threads };
        // Work is divided for as many threads as were asked for; more than there are cores would only wake each other.
        let pool = (threads > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads.min(cores)).build())
            .transpose()
            .map_err(|e| {
                let expected = format!("{threads} threads");
                Error::of(ErrorKind::Io, "thread pool", expected, e.to_string()).called(caller)
            })?;
        let mut kept = Kept::default();
        kept.frames.resize_with(program.blocks().len(), Frame::default);
        kept.prepared.resize_with(plan.prepared, Prepared::default);
        Ok(Self {
            pool: vec![RowBuffer::default(); plan.pools],
            arena,
            workers: (0..threads).map(|_| Worker::default()).collect(),
            threads: pool,
            kept,
            wanted: fetch.to_vec(),
            fed: vec![false; program.vars().len()],
            program: program.clone(),
            plan,
            done: None,
            profiling: None,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Bytes of all buffers now: they grow to what the largest batch so far took, and stay.
    pub fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Runs the program once. Persistent variables are read from and updated in `scope`; an error before the updates
    /// leaves it as it was.
    ///
    /// # Errors
    /// If a feed is missing, of another dtype or shape, or its LoD does not fit; if an operator refuses the data; if a
    /// gradient is not finite, before any update.
    #[track_caller]
    pub fn run(&mut self, scope: &mut Scope, run: &Run<'_>) -> Result<()> {
        self.run_data(scope, run, Location::caller())
    }

    /// The same for feeds of data that another line made: what does not fit names that.
    #[track_caller]
    pub(crate) fn run_data(&mut self, scope: &mut Scope, run: &Run<'_>, data: &Location<'_>) -> Result<()> {
        let caller = Location::caller();
        self.done = None;
        let clock = self.profiling.as_ref().map(|_| Instant::now());
        let batch = self.bind_feeds(run).map_err(|e| e.called(data))?;
        // All variables are checked before the first leaves the scope, so that a run that fails leaves it whole.
        for slot in self.plan.slots.iter().filter(|s| s.persistent) {
            let (name, spec) = (&self.program.var(slot.var).name, self.program.spec(slot.var)?);
            scope.check(name, spec).map_err(|e| e.called(caller))?;
        }
        self.lend(scope);
        // From here to the second exchange nothing leaves early, not even a panic in an operator: the parameters are
        // here and not in the scope.
        let outcome = self.run_lent(run, batch);
        self.lend(scope);
        if let Some(start) = clock {
            self.count_run(start, matches!(outcome, Ok(Ok(()))));
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic)).map_err(|e| e.called(caller))?;
        self.done = Some(run.stage);
        Ok(())
    }

    /// Exchanges the buffers of persistent variables with the scope's: in before a run, back after it.
    fn lend(&mut self, scope: &mut Scope) {
        for slot in self.plan.slots.iter().filter(|s| s.persistent) {
            scope.lend(&self.program.var(slot.var).name, &mut self.arena, slot.buffer);
        }
    }

    /// Runs the instructions; a panic in one is handed back.
    fn run_lent(&mut self, run: &Run<'_>, batch: usize) -> std::thread::Result<Result<()>> {
        let Self { plan, arena, pool, workers, threads, kept, program, .. } = self;
        let facts = RunFacts { mode: run.mode, step: run.step, seed: program.seed, threads: workers.len() };
        kept.numbers.clear();
        kept.numbers.extend_from_slice(run.numbers);
        kept.places.clear();
        kept.places.extend_from_slice(run.places);
        let mut shared = Shared {
            plan,
            loops: emptied(std::mem::take(&mut kept.loops)),
            frames: std::mem::take(&mut kept.frames),
            levels: std::mem::take(&mut kept.levels),
            spare: std::mem::take(&mut kept.spare),
            prepared: std::mem::take(&mut kept.prepared),
            numbers: std::mem::take(&mut kept.numbers),
            places: std::mem::take(&mut kept.places),
            batch,
            facts,
        };
        shared.loops.resize(shared.frames.len(), None);
        shared.frames.iter_mut().for_each(Frame::restart);
        workers.iter_mut().filter_map(|worker| worker.recorder.as_mut()).for_each(|r| r.restart());
        let mut work = || {
            let mut tools = Tools { workers, pool, memory: &mut kept.memory };
            execute(&mut shared, plan, arena, &mut tools, run.stage)
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| match threads {
            Some(threads) => threads.install(&mut work),
            None => work(),
        }));
        kept.loops = emptied(std::mem::take(&mut shared.loops));
        kept.frames = std::mem::take(&mut shared.frames);
        kept.levels = std::mem::take(&mut shared.levels);
        kept.spare = std::mem::take(&mut shared.spare);
        kept.prepared = std::mem::take(&mut shared.prepared);
        kept.numbers = std::mem::take(&mut shared.numbers);
        kept.places = std::mem::take(&mut shared.places);
        outcome
    }

    /// The value of a fetched variable after a run.
    ///
    /// # Errors
    /// If it was not among the variables to fetch, or the run did not go so far.
    #[track_caller]
    pub fn fetch(&mut self, var: impl Into<VarId>) -> Result<Variable> {
        let caller = Location::caller();
        let (slot, rows) = self.fetched(var.into()).map_err(|e| e.called(caller))?;
        let slot = &self.plan.slots[slot];
        let spec = self.program.spec(slot.var)?;
        let lod = self.kept.levels.lod(&spec.lod).cloned();
        if let Some(pool) = slot.pool {
            return Variable::new(selected_rows(&self.pool[pool], spec)?, lod);
        }
        let mut shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(0)).collect();
        if spec.batched() {
            shape[0] = rows;
        }
        let elements = shape.iter().product::<usize>();
        let extent = Extent2 { rows: 1, width: elements, stride: elements };
        let region = Region { buffer: slot.buffer, extent, ..Default::default() };
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut self.workers[0].room, &[region], &[]);
        let dense = with_element!(slot.dtype, T => {
            let numbers = operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[]);
            Dense::from_vec(&shape, numbers.to_vec())
        })?;
        Variable::new(dense, lod)
    }

    /// The first number of a fetched float variable after a run: a loss or a metric, without an allocation.
    ///
    /// # Errors
    /// As [`Self::fetch`], or if it holds no float.
    #[track_caller]
    pub fn scalar(&mut self, var: impl Into<VarId>) -> Result<f64> {
        let (id, caller) = (var.into(), Location::caller());
        let (slot, rows) = self.fetched(id).map_err(|e| e.called(caller))?;
        let slot = &self.plan.slots[slot];
        let spec = self.program.spec(id)?;
        let wrong = |got: String| {
            Error::new("scalar", "a float", got).variable(&self.program.var(id).name).called(caller)
        };
        if slot.pool.is_some() || spec.width() == 0 || spec.batched() && rows == 0 {
            return Err(wrong(format!("{spec} with {rows} rows")));
        }
        let extent = Extent2 { rows: 1, width: 1, stride: 1 };
        let region = Region { buffer: slot.buffer, extent, ..Default::default() };
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut self.workers[0].room, &[region], &[]);
        let number = match slot.dtype {
            DType::F32 => operands.read::<f32>(0).map(|v| f64::from(v.row(0)[0])),
            DType::F64 => operands.read::<f64>(0).map(|v| v.row(0)[0]),
            _ => None,
        };
        number.ok_or_else(|| wrong(slot.dtype.to_string()))
    }

    fn fetched(&self, id: VarId) -> Result<(usize, usize)> {
        let name = |e: Error| match self.wanted.contains(&id) {
            true => e.variable(&self.program.var(id).name),
            false => e,
        };
        if !self.wanted.contains(&id) {
            let (expected, got) = ("a variable given to `Executor::new`", self.program.called(id));
            return Err(Error::of(ErrorKind::Program, "fetch", expected, got));
        }
        let var = self.program.var(id);
        if var.persistable {
            return Err(name(Error::of(
                ErrorKind::Program,
                "fetch",
                "a computed variable",
                "a persistent one; ask the scope",
            )));
        }
        let stage = self
            .done
            .ok_or_else(|| name(Error::of(ErrorKind::Program, "fetch", "a run that succeeded", "none")))?;
        let made = self
            .program
            .root()
            .ops
            .iter()
            .filter(|op| op.writes().any(|v| v == id))
            .map(|op| stage_of(op.role));
        if made.clone().min().is_some_and(|needed| needed > stage) {
            return Err(name(Error::of(
                ErrorKind::Program,
                "fetch",
                "a run that went so far",
                format!("one until {stage:?}"),
            )));
        }
        let slot = self.plan.of_var[id.0 as usize]
            .ok_or_else(|| name(Error::of(ErrorKind::Program, "fetch", "a variable with a value", "none")))?;
        let rows = match self.program.spec(id)?.rows() {
            Extent::Known(n) => n,
            Extent::Rows(level) => self.kept.levels.get(level).map_or(0, |lod| lod.rows()),
            _ => self.kept.batch,
        };
        Ok((slot, rows))
    }
}

fn stage_of(role: Role) -> Stage {
    match role {
        Role::Forward => Stage::Forward,
        Role::Backward => Stage::Gradients,
        Role::Update => Stage::Updates,
    }
}

fn execute<'p>(
    shared: &mut Shared<'p>,
    plan: &'p Plan,
    arena: &mut Arena,
    tools: &mut Tools<'_>,
    stage: Stage,
) -> Result<()> {
    // What begins to live behind the last instruction of the stage takes no memory: gradients, in an evaluation.
    let end = plan.code.iter().rposition(|i| stage_of(role_of(i)) <= stage).map_or(0, |last| last + 1);
    let mut lane = arena.lane();
    reserve(shared, plan, &mut lane, end);
    let mut checked = false;
    for instr in &plan.code {
        let role = role_of(instr);
        if stage_of(role) > stage || (superseded(instr) && stage > Stage::Forward) {
            continue;
        }
        if role == Role::Update && !checked {
            finite(shared, plan, &mut lane, tools)?;
            checked = true;
        }
        shared.prepare(instr, &mut lane, &mut tools.workers[0])?;
        shared.instruction(instr, &mut lane, tools)?;
        // A level that an operator makes tells how many rows it will write.
        if matches!(instr, Instr::Levels(_)) {
            reserve(shared, plan, &mut lane, end);
        }
    }
    Ok(())
}

/// Whether an instruction that computes gradients computes the same.
fn superseded(instr: &Instr) -> bool {
    matches!(instr, Instr::Op(op) if op.stands_for.as_ref().is_some_and(|note| note.superseded))
}

fn role_of(instr: &Instr) -> Role {
    match instr {
        Instr::Op(op) | Instr::Levels(op) => op.role,
        Instr::Loop(inner) if inner.backward => Role::Backward,
        Instr::Loop(_) => Role::Forward,
        Instr::Zero(..) => Role::Backward,
        Instr::Reorder { role, .. } => *role,
    }
}

/// Room for every slot of the root block whose rows are known, and that lives before instruction `end` has run.
fn reserve(shared: &Shared<'_>, plan: &Plan, lane: &mut Lane<'_>, end: usize) {
    let whole =
        |s: &&Slot| s.home == crate::executor::plan::Home::Whole && s.pool.is_none() && s.life.0 <= end;
    for slot in plan.slots.iter().filter(whole) {
        if !matches!(slot.rows, Extent::Alive(_)) {
            lane.reserve(slot.buffer, shared.count(slot.rows, None) * slot.width);
        }
    }
}

/// Checks that every gradient that an update reads is finite, and the loss, before the first update.
fn finite(shared: &Shared<'_>, plan: &Plan, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
    let named = |op: &OpInstr, slot: &Slot| {
        Err(op.err(not_finite("gradient")).variable(&plan.program.var(slot.var).name))
    };
    for instr in &plan.code {
        let Instr::Op(op) = instr else { continue };
        if op.role != Role::Update {
            continue;
        }
        for view in &op.reads {
            if let Access::Slot(s) = view.access
                && !plan.slots[s].persistent
                && !view_is_finite(shared, view, lane, &mut tools.workers[0].room)
                && !plan.code.iter().any(|i| writes_in_update(i, s))
            {
                return named(op, &plan.slots[s]);
            }
        }
        for place in op.wiring.inputs.iter().flatten() {
            if let crate::program::contract::context::OperandAt::Rows(p) = place {
                let rows = &tools.pool[*p];
                let fine = match rows.dtype() {
                    Some(DType::F64) => rows.values::<f64>()?.iter().flatten().all(|v| v.is_finite()),
                    Some(_) => rows.values::<f32>()?.iter().flatten().all(|v| v.is_finite()),
                    None => true,
                };
                if !fine && let Some(slot) = plan.slots.iter().find(|s| s.pool == Some(*p)) {
                    return named(op, slot);
                }
            }
        }
    }
    for &s in &plan.losses {
        let Slot { var, rows, width, .. } = plan.slots[s];
        let whole = Ref { access: Access::Slot(s), rows, width, column: 0 };
        if !view_is_finite(shared, &whole, lane, &mut tools.workers[0].room) {
            return Err(not_finite("loss").variable(&plan.program.var(var).name));
        }
    }
    Ok(())
}

/// Values that updates compute for updates (a learning rate, a norm) have none yet when the gradients are checked.
fn writes_in_update(instr: &Instr, slot: usize) -> bool {
    let Instr::Op(op) = instr else { return false };
    let fresh = |(i, r): (usize, &Ref)| {
        r.access == Access::Slot(slot) && !op.op.signature().outputs.get(i).is_some_and(|s| s.updated)
    };
    op.role == Role::Update && op.writes.iter().enumerate().any(fresh)
}

fn view_is_finite(shared: &Shared<'_>, view: &Ref, lane: &mut Lane<'_>, room: &mut OperandRoom) -> bool {
    let region = shared.region(view, None);
    let operands = lane.operands(room, &[region], &[]);
    match shared.dtype(view) {
        DType::F32 => {
            operands.read::<f32>(0).is_none_or(|v| v.iter().all(|row| row.iter().all(|x| x.is_finite())))
        }
        DType::F64 => {
            operands.read::<f64>(0).is_none_or(|v| v.iter().all(|row| row.iter().all(|x| x.is_finite())))
        }
        _ => true,
    }
}

fn not_finite(what: &str) -> Error {
    Error::of(ErrorKind::NotFinite, what, "finite numbers", "NaN or infinity; nothing was updated")
}
