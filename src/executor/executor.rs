//! The executor: feeds a compiled program, runs it, and fetches the results.

use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::compile::compile;
use crate::executor::memory::MemoryUse;
use crate::executor::observe::listing::Listing;
use crate::executor::observe::profile::{Profile, Profiling};
use crate::executor::plan::{Plan, Quantity, Slot};
use crate::executor::run::counts::RowCounts;
use crate::executor::run::machine::Machine;
use crate::executor::run::request::{PlacedFeeds, Run, Stage};
use crate::executor::run::scope::Scope;
use crate::executor::run::stages::{Stages, Updates};
use crate::executor::run::threads::{MOST_THREADS, Threads};
use crate::kernels::arena::Plain;
use crate::operator::call::DuplicateRows;
use crate::operator::{Extent, Registry, VarId};
use crate::program::{Program, Role};
use crate::tensor::{DType, Element, FloatsMut, Storage, StorageKind, Variable};

/// A compiled program with its buffers.
///
/// # Carried states
/// A run does not pass [carried states](crate::Builder::carried_state) on to the next run; a [`Trainer`](crate::train::Trainer)
/// and a [`Predictor`](crate::predict::Predictor) do. With a bare `Executor`, each carried state is a feed that every run
/// needs, and its value after the batch is a variable to fetch ([`Program::carried_states`] names both):
///
/// ```
/// use unpadded::executor::{Executor, Run, Scope};
/// use unpadded::ops::Pool;
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[], 1);
/// let before = net.carried_state_of("sum", DType::F32, &[]);
/// net.carry(before, x.sequence_pool(Pool::Sum) + before);
/// let (registry, program) = (net.registry(), net.finish()?);
/// let state = program.carried_states().next().expect("the sum");
/// let mut executor = Executor::new(&program, &registry, &[state.after], 1)?;
/// let (mut scope, mut sum) = (Scope::of(&program)?, Variable::dense(ndarray::array![0.0f32])); // one sequence a batch
/// for numbers in [vec![1.0f32, 2.0], vec![3.0, 4.0]] {
///     let numbers = Variable::from_sequence(numbers)?;
///     executor.run(&mut scope, &Run::infer(&[(x.id(), &numbers), (state.before, &sum)]))?;
///     sum = executor.fetch(state.after)?;
/// }
/// assert_eq!(sum.as_slice::<f32>()?, [10.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # A run in two halves
/// A run [until the gradients](Stage::Gradients) does not change the scope. After a run until the gradients, the
/// gradients can be read ([`gradient`](Self::gradient)) and replaced ([`set_gradient`](Self::set_gradient)); then
/// [`update`](Self::update) applies the updates. If no gradient is replaced, a run until the gradients plus `update`
/// gives the same results, bit for bit, as one whole run.
///
/// The example trains two replicas of a model, each on half of a batch, as processes on several machines would:
///
/// ```
/// use ndarray::{ArrayView2, array, s};
/// use unpadded::executor::{Executor, Run, Scope, Stage};
/// use unpadded::optimizer::{Adam, Optimizer};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[2], 0);
/// let h = x.linear(3).tanh();
/// let loss = (h * h).mean();
/// let (registry, mut program) = (net.registry(), net.finish()?);
/// let trained = Adam::new(0.1).minimize(&mut program, &registry, loss.id())?;
/// let start = || Ok::<_, unpadded::Error>((Executor::new(&program, &registry, &[], 1)?, Scope::of(&program)?));
/// let rows = array![[1.0f32, 2.0], [-1.0, 0.5], [3.0, -2.0], [0.0, 1.0]];
///
/// // One run on the whole batch.
/// let (mut executor, mut whole) = start()?;
/// executor.run(&mut whole, &Run::train(&[(x.id(), &Variable::dense(rows.clone()))], 0))?;
///
/// // Each replica computes the gradients of its half,
/// let mut replicas = [start()?, start()?];
/// for ((executor, scope), half) in replicas.iter_mut().zip([s![..2, ..], s![2.., ..]]) {
///     let half = Variable::dense(rows.slice(half).to_owned());
///     executor.run(scope, &Run::train(&[(x.id(), &half)], 0).until(Stage::Gradients))?;
/// }
/// // all take the mean, and step.
/// for &(param, _) in &trained.gradients {
///     let [(one, _), (two, _)] = &mut replicas;
///     let (one, two) = (one.gradient(param)?, two.gradient(param)?);
///     let sum = &one.as_dense()?.view::<f32>()? + &two.as_dense()?.view::<f32>()?;
///     for (executor, _) in &mut replicas {
///         executor.set_gradient(param, &sum / 2.0)?;
///     }
/// }
/// for (executor, scope) in &mut replicas {
///     executor.update(scope)?;
/// }
///
/// // They have the same parameters, equal to the parameters of the one run up to the order of summation.
/// let [(_, one), (_, two)] = &mut replicas;
/// let weight = |scope: &mut Scope| scope.get("linear_0.weight");
/// assert_eq!(weight(one)?, weight(two)?);
/// let (one, whole) = (weight(one)?, weight(&mut whole)?);
/// for (a, b) in one.as_slice::<f32>()?.iter().zip(whole.as_slice::<f32>()?) {
///     assert!((a - b).abs() < 1e-5, "{a} is not {b}");
/// }
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Executor {
    plan: Arc<Plan>,
    machine: Machine,
    /// The last stage that the last run reached; `None` before the first run and after a run that failed.
    done: Option<Stage>,
    updates: Updates,
    profiling: Option<Profiling>,
}

/// The memory that holds a parameter's gradient.
struct GradientSlot {
    slot: usize,
    grad: VarId,
}

impl Executor {
    /// The maximum number of threads. No machine has more cores, so a larger number is a mistake.
    pub const MOST_THREADS: usize = MOST_THREADS;

    /// Compiles `program` for the variables in `fetch`, to run on `threads` threads (0: one per core). Large calls are divided
    /// for `threads` threads, but the executor starts no more system threads than there are cores. Operators that neither a
    /// fetched variable nor an update needs are left out.
    ///
    /// # Errors
    /// Fails if the program is not well formed, if an operator is not registered, if threads cannot be started, or if
    /// `threads` is more than [`Self::MOST_THREADS`].
    #[track_caller]
    pub fn new(program: &Program, registry: &Registry, fetch: &[VarId], threads: usize) -> Result<Self> {
        Self::on(program.clone(), registry, fetch, Threads::new(threads).at_caller()?)
    }

    /// Compiles a program as [`Self::new`] does, on threads that other executors may share.
    #[track_caller]
    pub(crate) fn on(
        program: Program,
        registry: &Registry,
        fetch: &[VarId],
        threads: Threads,
    ) -> Result<Self> {
        let plan = compile(program, registry, fetch, &[]).at_caller()?;
        Ok(Self::of_plan(Arc::new(plan), threads))
    }

    /// Makes an executor of a compiled program, which other executors may share.
    pub(crate) fn of_plan(plan: Arc<Plan>, threads: Threads) -> Self {
        let (machine, updates) = (Machine::new(&plan, threads), Updates::of(&plan));
        Self { plan, machine, done: None, updates, profiling: None }
    }

    /// From the next run on, wakes all threads for every run; by default, a small run stays on one thread. Small calls are then
    /// divided over threads as in large runs. Waking all threads is for tests only: it is slow, and the results stay
    /// bit-identical.
    #[doc(hidden)]
    pub fn wake_all_threads(&mut self) {
        self.machine.wake_all_threads();
    }

    /// From the next run on, divides all work that can be divided, over threads and into chunks of rows; by default, small work
    /// is not divided. Dividing all work is for tests only: small programs must give bit-identical results with any division.
    /// It is slow.
    #[doc(hidden)]
    pub fn divide_everything(&mut self) {
        self.machine.divide_everything();
    }

    /// Returns the program that runs: with fused and merged operators, and with the variables of the program that was compiled.
    pub(crate) fn program(&self) -> &Program {
        &self.plan.program
    }

    /// Returns the current size of all buffers in bytes. Buffers grow to the size that the largest batch so far needed,
    /// and never shrink.
    pub fn bytes(&self) -> usize {
        self.machine.bytes()
    }

    /// Gives the memory of all buffers back to the system. The values and gradients of the last run cannot be used
    /// afterwards.
    pub(crate) fn release(&mut self) {
        self.done = None;
        if self.bytes() > 0 {
            self.machine.release(&self.plan);
        }
    }

    /// Returns the counts of a batch, from which [`Self::memory`] computes the memory that the batch's run takes. Of each
    /// feed, only the number of sequences and the number of rows are read, not the values.
    ///
    /// After this call, the values and gradients of the last run cannot be used.
    ///
    /// # Errors
    /// Fails if [`Self::run`] would fail because of a feed.
    #[track_caller]
    pub fn counts(&mut self, feeds: &[(VarId, &Variable)]) -> Result<RowCounts> {
        let mut counts = RowCounts::default();
        self.count_into(feeds, &mut counts).at_caller()?;
        Ok(counts)
    }

    /// Computes the counts of a batch as [`Self::counts`] does, and reuses the memory of `counts`.
    ///
    /// # Errors
    /// Fails as [`Self::counts`] does.
    #[track_caller]
    pub fn count_into(&mut self, feeds: &[(VarId, &Variable)], counts: &mut RowCounts) -> Result<()> {
        self.done = None;
        self.machine.counts_for(&self.plan, feeds, counts).at_caller()
    }

    /// Returns the counts of the last run: the rows of all levels that operators made, and the memory of values that
    /// are not dense. This memory does not shrink: after a larger batch, it stays as large as that batch needed.
    pub fn counts_of_run(&self) -> RowCounts {
        self.machine.counts(&self.plan)
    }

    /// Returns the memory that a run takes for a batch with these counts. The figures include the parameters and the
    /// state, but not the feeds. They are computed before the run, without an allocation, for a whole training step. A
    /// buffer that an earlier batch made larger keeps its size ([`MemoryUse::kept`]).
    pub fn memory(&self, counts: &RowCounts) -> MemoryUse {
        let held = |buffer| self.machine.buffer_bytes(buffer);
        MemoryUse::of_program(&self.plan.program).of_run(&self.plan, counts, self.machine.threads(), &held)
    }

    /// Returns the number of rows of a variable in a batch with these counts; `None` if the number is not counted.
    pub(crate) fn counted_rows(&self, var: VarId, counts: &RowCounts) -> Option<usize> {
        let quantity = match self.plan.program.spec(var).ok()?.rows() {
            Extent::Known(rows) => return Some(rows),
            Extent::Batch => Quantity::Batch,
            Extent::Rows(level) => Quantity::Rows(level),
            _ => return None,
        };
        self.plan.needs.quantities.iter().position(|known| *known == quantity).map(|at| counts.values[at])
    }

    /// Returns whether a run has a buffer of numbers of this dtype, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn stores(&self, dtype: DType) -> bool {
        self.plan.buffers.contains(&dtype)
    }

    /// Returns the compiled program as text. The text shows each instruction with its position, outputs and buffers,
    /// and the variables that share a buffer. For each recurrent loop, the text shows the calls before, in and after
    /// the loop, with the reasons.
    pub fn listing(&self) -> Listing<'_> {
        Listing::of(&self.plan)
    }

    /// Sets the value of a feed for [`Self::run_placed`]; the value stays until another value is set. The feed must be
    /// one of the variables to fetch. Returns the number of sequences of the value; `None` if the rows of the value are
    /// not rows of the batch.
    ///
    /// # Errors
    /// Fails if the value does not have the dtype or shape of the feed, or if the LoD of the value is invalid.
    #[track_caller]
    pub(crate) fn keep_feed(&mut self, feed: VarId, value: &Variable) -> Result<Option<usize>> {
        self.machine.keep_feed(&self.plan, feed, value)
    }

    /// Runs the program once. Persistent variables are read from `scope` and updated in `scope`; an error before the updates
    /// leaves the scope unchanged.
    ///
    /// # Errors
    /// Fails if a feed is missing, has another dtype or shape, or has a LoD that does not fit; if an operator rejects
    /// the data; or if the loss or a gradient is not finite. The check for finite numbers is made before any update.
    #[track_caller]
    pub fn run(&mut self, scope: &mut Scope, run: &Run<'_>) -> Result<()> {
        self.run_data(scope, run, Location::caller())
    }

    /// Runs the program as [`Self::run`] does; `data` is the line of code that made the feeds, and errors about a feed name
    /// that line.
    #[track_caller]
    pub(crate) fn run_data(&mut self, scope: &mut Scope, run: &Run<'_>, data: &Location<'_>) -> Result<()> {
        self.run_with(scope, run, None, data)
    }

    /// Runs a forward pass in inference mode. [`Self::keep_feed`] must have set all feeds before.
    ///
    /// # Errors
    /// Fails as [`Self::run`] does.
    #[track_caller]
    pub(crate) fn run_placed(&mut self, scope: &mut Scope, placed: PlacedFeeds<'_>) -> Result<()> {
        self.run_with(scope, &Run::infer(&[]), Some(placed), Location::caller())
    }

    #[track_caller]
    fn run_with(
        &mut self,
        scope: &mut Scope,
        run: &Run<'_>,
        placed: Option<PlacedFeeds<'_>>,
        data: &Location<'_>,
    ) -> Result<()> {
        let caller = Location::caller();
        let clock = self.profiling.is_some().then(Instant::now);
        self.done = None;
        self.machine
            .bind_feeds(&self.plan, run, placed)
            .map_err(|e| self.plan.program.worded(e).called(data))?;
        self.machine.check_scope(&self.plan.program, scope).map_err(|e| e.called(caller))?;
        self.machine.begin(&self.plan.program, run);
        let ran = self.run_stages(scope, Stages::Until(run.stage), clock);
        ran.map_err(|e| self.plan.program.worded(e).called(caller))?;
        self.done = Some(run.stage);
        Ok(())
    }

    /// Runs some stages of the program with a scope that was checked before; `clock` is the start time, if the run is timed.
    fn run_stages(&mut self, scope: &mut Scope, stages: Stages, clock: Option<Instant>) -> Result<()> {
        let outcome = self.machine.run(&self.plan, stages, scope);
        if let (Some(start), Some(profiling)) = (clock, &mut self.profiling) {
            let length = start.elapsed();
            self.machine.record(start, length);
            profiling.took(length);
            // [`Self::update`] is the second half of a run, so it is not counted as a run.
            if let (Ok(Ok(())), Stages::Until(_)) = (&outcome, stages) {
                profiling.count();
            }
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the size in bytes of a root block variable's value after the last run, as in
    /// [`Program::storage_report`](crate::Program::storage_report); a sparse value counts only its stored entries.
    ///
    /// # Errors
    /// Fails if the variable was not one of the variables to fetch, because another variable may have overwritten its
    /// memory.
    #[track_caller]
    pub fn bytes_of(&self, var: impl Into<VarId>) -> Result<usize> {
        let var = var.into();
        let known = self.plan.of_var.get(var.0 as usize).copied().flatten();
        // A row-sparse parameter is in the scope between runs, so its size is taken from the scope.
        let here = |slot: &Slot| slot.life.1 == usize::MAX && !(slot.persistent && slot.pool.is_some());
        let Some(slot) = known.filter(|&slot| here(&self.plan.slots[slot])) else {
            let got = self.plan.program.called(var);
            let expected = "a variable to fetch";
            return Err(Error::of(ErrorKind::Program, "variable", expected, got).called(Location::caller()));
        };
        Ok(self.machine.bytes_of(&self.plan.slots[slot], self.plan.program.spec(var)?))
    }

    /// Returns the gradient of a parameter after a run until the gradients. The gradient is dense, or it is selected rows, in
    /// which a row index may occur several times. The returned gradient is not clipped yet, since gradient clipping is part of
    /// the updates.
    ///
    /// # Errors
    /// Fails if the last run did not end successfully at [`Stage::Gradients`]; if [`Self::update`] has already used the
    /// gradients; if no update changes the parameter; or if the program computes values after an update, because its
    /// gradients then do not all exist at one time.
    #[track_caller]
    pub fn gradient(&mut self, param: impl Into<VarId>) -> Result<Storage> {
        let caller = Location::caller();
        let GradientSlot { slot, grad } = self.gradient_slot(param.into()).map_err(|e| e.called(caller))?;
        self.machine.value(&self.plan.slots[slot], self.plan.program.spec(grad)?)
    }

    /// Calls a function that may change a parameter's dense gradient in place, where [`Self::gradient`] would return a copy.
    /// Returns `false`, without a call, if the gradient is selected rows.
    ///
    /// # Errors
    /// As [`Self::gradient`], and the errors of `change`.
    pub(crate) fn change_gradient(
        &mut self,
        param: VarId,
        change: &mut dyn FnMut(FloatsMut<'_>) -> Result<()>,
    ) -> Result<bool> {
        let GradientSlot { slot, grad } = self.gradient_slot(param)?;
        self.machine.change(&self.plan.slots[slot], self.plan.program.spec(grad)?, change)
    }

    /// Replaces the gradient of a parameter before [`Self::update`] applies it. The storage must stay the same: a dense
    /// gradient for a dense gradient, or selected rows (any number) for selected rows.
    ///
    /// # Errors
    /// Fails if [`Self::gradient`] would fail, or if the value has another storage, dtype or shape than the gradient.
    #[track_caller]
    pub fn set_gradient(&mut self, param: impl Into<VarId>, value: impl Into<Storage>) -> Result<()> {
        let (param, value, caller) = (param.into(), value.into(), Location::caller());
        let GradientSlot { slot, grad } = self.gradient_slot(param).map_err(|e| e.called(caller))?;
        let spec = self.plan.program.spec(grad)?;
        let known = spec.shape.iter().map(|e| e.known());
        if value.kind() != spec.storage
            || value.dtype() != spec.dtype
            || !known.eq(value.shape().iter().map(|&n| Some(n)))
        {
            let described = |kind: StorageKind, dtype: DType, shape: &dyn std::fmt::Debug| {
                format!("{kind} {dtype}{shape:?}")
            };
            let shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(0)).collect();
            let expected = described(spec.storage, spec.dtype, &shape);
            let got = described(value.kind(), value.dtype(), &value.shape());
            let error = Error::new("value of a gradient", expected, got);
            return Err(error.variable(&self.plan.program.var(param).name).called(caller));
        }
        self.machine.set_value(&self.plan.slots[slot], &value, DuplicateRows::Kept)
    }

    /// Runs the second half of a run that stopped at [`Stage::Gradients`]. The second half checks that the loss and the
    /// (possibly replaced) gradients are finite, and updates the persistent variables in `scope`. The second half uses the mode
    /// and the step number of the first half. The second half can run only once per first half, even if a number is not finite
    /// or an update fails.
    ///
    /// # Errors
    /// Fails if [`Self::gradient`] would fail; if a variable is missing in `scope` or has another shape; if the program
    /// has no updates; or if the loss or a gradient is not finite. If a number is not finite, no update has run, and
    /// the scope is unchanged.
    #[track_caller]
    pub fn update(&mut self, scope: &mut Scope) -> Result<()> {
        let caller = Location::caller();
        let clock = self.profiling.is_some().then(Instant::now);
        let checked =
            self.check_halfway("update").and_then(|()| self.machine.check_scope(&self.plan.program, scope));
        checked.map_err(|e| e.called(caller))?;
        self.done = None;
        self.run_stages(scope, Stages::Updates, clock).map_err(|e| e.called(caller))?;
        self.done = Some(Stage::Updates);
        Ok(())
    }

    /// Checks that the gradients of the last run exist, and that the updates of that run have not been applied.
    fn check_halfway(&self, what: &str) -> Result<()> {
        let wrong = |expected, got: &str| Err(Error::of(ErrorKind::Program, what, expected, got));
        match self.updates {
            Updates::None => {
                return wrong("a program that an optimizer has completed", "a program without updates");
            }
            Updates::Between => {
                return wrong(
                    "a program whose updates come last",
                    "a program that continues after the updates",
                );
            }
            Updates::Last => {}
        }
        let expected = "a run until `Stage::Gradients`, before its updates";
        match self.done {
            Some(Stage::Gradients) => Ok(()),
            Some(stage) => wrong(expected, &format!("a run until {stage:?}")),
            None => wrong(expected, "no successful run"),
        }
    }

    /// Returns the memory of the gradient that a parameter's update reads.
    fn gradient_slot(&self, param: VarId) -> Result<GradientSlot> {
        self.check_halfway("gradient")?;
        let updates = self.plan.program.root().ops.iter().filter(|op| op.role == Role::Update);
        // With gradient clipping there are two update operators: one writes the clipped gradient, and one writes the parameter.
        let mut updates = updates.filter(|op| op.writes().any(|var| var == param));
        let grad = updates.find_map(|op| op.input("grad").first().copied());
        match grad.and_then(|grad| Some((grad, self.plan.of_var[grad.0 as usize]?))) {
            Some((_, slot)) if self.plan.slots[slot].persistent => {
                let got = format!(
                    "`{}`, whose gradient is a variable of the scope",
                    self.plan.program.var(param).name
                );
                Err(Error::of(ErrorKind::Program, "gradient", "a gradient that the program computes", got))
            }
            Some((grad, slot)) => Ok(GradientSlot { slot, grad }),
            None => {
                let got = self.plan.program.called(param);
                Err(Error::of(ErrorKind::Program, "gradient", "a parameter that an update moves", got))
            }
        }
    }

    /// Returns the value of a fetched variable after a run.
    ///
    /// # Errors
    /// Fails if the variable was not one of the variables to fetch, or if the run ended before the stage that computes
    /// the variable.
    #[track_caller]
    pub fn fetch(&mut self, var: impl Into<VarId>) -> Result<Variable> {
        let (id, caller) = (var.into(), Location::caller());
        let slot = self.fetched(id).map_err(|e| e.called(caller))?;
        let (slot, spec) = (&self.plan.slots[slot], self.plan.program.spec(id)?);
        Variable::new(self.machine.value(slot, spec)?, self.machine.lod(spec))
    }

    /// Calls a function with the numbers of a fetched dense variable, without the allocation that [`Self::fetch`] needs.
    ///
    /// # Errors
    /// Fails if [`Self::fetch`] would fail, or if the variable has another dtype or is sparse.
    #[track_caller]
    pub(crate) fn numbers<T: Element + Plain, R>(
        &mut self,
        var: VarId,
        show: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        let slot = self.fetched(var)?;
        let (slot, spec) = (&self.plan.slots[slot], self.plan.program.spec(var)?);
        let found = self.machine.numbers(slot, spec, show);
        found.ok_or_else(|| Error::new("numbers", format!("dense {}", T::DTYPE), spec.to_string()))
    }

    /// Returns the first number of a fetched float variable after a run, such as a loss or a metric, without an allocation.
    ///
    /// # Errors
    /// Fails if [`Self::fetch`] would fail, or if the variable is not a float tensor.
    #[track_caller]
    pub fn scalar(&mut self, var: impl Into<VarId>) -> Result<f64> {
        let (id, caller) = (var.into(), Location::caller());
        let slot = &self.plan.slots[self.fetched(id).map_err(|e| e.called(caller))?];
        let number = self.machine.first_number(slot, self.plan.program.spec(id)?);
        let wrong = |got| Error::new("scalar", "a float", got).variable(&self.plan.program.var(id).name);
        number.map_err(|got| wrong(self.plan.program.in_words(&got)).called(caller))
    }

    /// Returns the slot of a variable; an error if the variable cannot be fetched after the last run.
    fn fetched(&self, id: VarId) -> Result<usize> {
        let wrong = |expected: &str, got: String| Error::of(ErrorKind::Program, "fetch", expected, got);
        if !self.plan.wanted.contains(&id) {
            return Err(wrong("a variable given to `Executor::new`", self.plan.program.called(id)));
        }
        let var = self.plan.program.var(id);
        let named = |e: Error| Err(e.variable(&var.name));
        if var.persistable {
            return named(wrong(
                "a computed variable",
                "a persistent variable, whose value is in the scope".to_owned(),
            ));
        }
        let Some(stage) = self.done else {
            return named(wrong("a successful run before the fetch", "none".to_owned()));
        };
        let makers = self.plan.program.root().ops.iter().filter(|op| op.writes().any(|v| v == id));
        if makers.map(|op| Stage::of(op.role)).min().is_some_and(|needed| needed > stage) {
            return named(wrong("a run that computes the variable", format!("a run until {stage:?}")));
        }
        match self.plan.of_var[id.0 as usize] {
            Some(slot) => Ok(slot),
            None => named(wrong("a variable with a value", "none".to_owned())),
        }
    }

    /// Returns the number of rows of a root block variable in the last run; the variable need not be fetched.
    ///
    /// # Errors
    /// Fails if the variable is not a tensor.
    pub(crate) fn rows(&self, var: VarId) -> Result<usize> {
        Ok(self.machine.rows(self.plan.program.spec(var)?))
    }

    /// Starts a profile: from the next run until [`Self::take_profile`], the time of every call is recorded. Starting a profile
    /// discards the records of an earlier profile.
    pub fn start_profile(&mut self) {
        self.machine.start_recording(&self.plan);
        self.profiling = Some(Profiling::default());
    }

    pub(crate) fn is_profiled(&self) -> bool {
        self.profiling.is_some()
    }

    /// Stops recording and returns the profile; `None` if no profile was started. A run that ended with an error does not count
    /// in [`Profile::runs`], but its calls are in the entries, and its time is in [`Profile::wall`].
    pub fn take_profile(&mut self) -> Option<Profile> {
        let profiling = self.profiling.take()?;
        Some(profiling.profile(&self.plan, self.machine.stop_recording()))
    }
}
