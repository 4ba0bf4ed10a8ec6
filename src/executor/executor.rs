//! The executor: feed, run, fetch.

use std::panic::{Location, resume_unwind};
use std::time::Instant;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::compile::compile;
use crate::executor::observe::listing::Listing;
use crate::executor::observe::profile::{Profile, Profiling};
use crate::executor::plan::Plan;
use crate::executor::run::machine::Machine;
use crate::executor::run::request::{Run, Stage};
use crate::executor::run::scope::Scope;
use crate::executor::run::stages::Stages;
use crate::program::{Program, Registry, VarId};
use crate::tensor::Variable;

/// A compiled program with its buffers.
pub struct Executor {
    program: Program,
    plan: Plan,
    machine: Machine,
    /// What can be fetched.
    wanted: Vec<VarId>,
    /// How far the last run has come, if it ended well.
    done: Option<Stage>,
    profiling: Option<Profiling>,
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
        let plan = compile(program, registry, fetch).map_err(|e| e.called(caller))?;
        let machine = Machine::new(program, &plan, threads).map_err(|e| e.called(caller))?;
        Ok(Self {
            program: program.clone(),
            plan,
            machine,
            wanted: fetch.to_vec(),
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
        self.machine.bytes()
    }

    /// Bytes that the buffers will take for a batch, before it runs: a function of its numbers of sequences and rows.
    /// Buffers never shrink, so [`Self::bytes`] is the largest of these so far. Rows of sequences that operators make
    /// while they run are not known before and left out, as are packed weights and selected rows.
    ///
    /// # Errors
    /// As for the feeds of a run.
    #[track_caller]
    pub fn bytes_for(&mut self, feeds: &[(VarId, &Variable)]) -> Result<usize> {
        self.machine.bytes_for(&self.program, &self.plan, feeds).at_caller()
    }

    /// The compiled program as text: each instruction with its place, its outputs and their buffers, for step loops
    /// what runs before, in and after the loop and why, and which variables share a buffer.
    pub fn listing(&self) -> Listing<'_> {
        Listing::of(&self.plan)
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
        let clock = self.profiling.is_some().then(Instant::now);
        self.done = None;
        self.machine.bind_feeds(&self.program, &self.plan, run).map_err(|e| e.called(data))?;
        self.machine.begin(&self.program, run);
        self.run_stages(scope, Stages::Until(run.stage), clock).map_err(|e| e.called(caller))?;
        self.done = Some(run.stage);
        Ok(())
    }

    /// Runs some stages with the variables of a scope; `clock` is when that began, if the time is wanted.
    fn run_stages(&mut self, scope: &mut Scope, stages: Stages, clock: Option<Instant>) -> Result<()> {
        // All variables are checked before the first leaves the scope, so that a run that fails leaves it whole.
        for slot in self.plan.slots.iter().filter(|s| s.persistent) {
            scope.check(&self.program.var(slot.var).name, self.program.spec(slot.var)?)?;
        }
        self.machine.exchange(&self.plan, scope);
        // From here to the second exchange nothing leaves early, not even a panic in an operator: the parameters are
        // here and not in the scope.
        let outcome = self.machine.run(&self.plan, stages);
        self.machine.exchange(&self.plan, scope);
        if let (Some(start), Some(profiling)) = (clock, &mut self.profiling) {
            let length = start.elapsed();
            self.machine.record(start, length);
            profiling.add(length, matches!(outcome, Ok(Ok(()))));
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The value of a fetched variable after a run.
    ///
    /// # Errors
    /// If it was not among the variables to fetch, or the run did not go so far.
    #[track_caller]
    pub fn fetch(&mut self, var: impl Into<VarId>) -> Result<Variable> {
        let (id, caller) = (var.into(), Location::caller());
        let slot = self.fetched(id).map_err(|e| e.called(caller))?;
        let (slot, spec) = (&self.plan.slots[slot], self.program.spec(id)?);
        Variable::new(self.machine.value(slot, spec)?, self.machine.lod(spec))
    }

    /// The first number of a fetched float variable after a run: a loss or a metric, without an allocation.
    ///
    /// # Errors
    /// As [`Self::fetch`], or if it holds no float.
    #[track_caller]
    pub fn scalar(&mut self, var: impl Into<VarId>) -> Result<f64> {
        let (id, caller) = (var.into(), Location::caller());
        let slot = &self.plan.slots[self.fetched(id).map_err(|e| e.called(caller))?];
        let number = self.machine.first_number(slot, self.program.spec(id)?);
        let wrong = |got| Error::new("scalar", "a float", got).variable(&self.program.var(id).name);
        number.map_err(|got| wrong(got).called(caller))
    }

    /// The slot of a variable that can be fetched after the last run.
    fn fetched(&self, id: VarId) -> Result<usize> {
        let wrong = |expected: &str, got: String| Error::of(ErrorKind::Program, "fetch", expected, got);
        if !self.wanted.contains(&id) {
            return Err(wrong("a variable given to `Executor::new`", self.program.called(id)));
        }
        let var = self.program.var(id);
        let named = |e: Error| Err(e.variable(&var.name));
        if var.persistable {
            return named(wrong("a computed variable", "a persistent one; ask the scope".to_owned()));
        }
        let Some(stage) = self.done else {
            return named(wrong("a run that succeeded", "none".to_owned()));
        };
        let makers = self.program.root().ops.iter().filter(|op| op.writes().any(|v| v == id));
        if makers.map(|op| Stage::of(op.role)).min().is_some_and(|needed| needed > stage) {
            return named(wrong("a run that went so far", format!("one until {stage:?}")));
        }
        match self.plan.of_var[id.0 as usize] {
            Some(slot) => Ok(slot),
            None => named(wrong("a variable with a value", "none".to_owned())),
        }
    }

    /// From the next run on, writes down where the time goes, until [`Self::take_profile`]. What was written down
    /// before is dropped.
    pub fn start_profile(&mut self) {
        self.machine.start_recording(&self.plan);
        self.profiling = Some(Profiling::default());
    }

    /// Stops writing down and returns where the time went; `None` if it was not started. Runs that ended with an error
    /// are not among [`Profile::runs`], but what they did is among the entries, and their time in [`Profile::wall`].
    pub fn take_profile(&mut self) -> Option<Profile> {
        let profiling = self.profiling.take()?;
        Some(profiling.profile(&self.plan, self.machine.stop_recording()))
    }
}
