//! The state of a trainer's steps: the compiled program, and what the steps of this run have computed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::dealt::DealtTables;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, MemoryUse, Run, Scope, diagnose};
use crate::metrics::Better;
use crate::on_data::BatchLoss;
use crate::on_data::BatchRunner;
use crate::operator::{Registry, VarId};
use crate::parallel::World;
use crate::program::{Program, Var};
use crate::tensor::Variable;

/// What the steps of a trainer share from step to step, beside the training itself.
#[derive(Default)]
pub(super) struct StepState {
    /// `None` if the program must be compiled before the next step, because a setting has changed.
    pub(super) programs: Option<Programs>,
    /// For each part that this process computes, the carried states; used only if batches have several parts.
    pub(super) carried: Vec<BTreeMap<String, Variable>>,
    /// The bytes of the selected rows that the gradients of the current step in parts collect; 0 while no step in parts
    /// runs.
    pub(super) collected: usize,
    /// The computed memory of the largest step of this run, and the number of steps that were divided.
    pub(super) largest: MemoryUse,
    pub(super) divided: u64,
    /// The data that the training holds in memory, in bytes, and the number of batches that its loader makes in advance.
    pub(super) held_data: (usize, usize),
    /// The number of tokens in the parts that this process has computed in this run.
    pub(super) computed: u64,
    /// The processes that train together; `None` without [`Trainer::distributed`](super::Trainer::distributed).
    pub(super) world: Option<World>,
    pub(super) stop: Arc<AtomicBool>,
    /// Whether any process was asked to stop; the processes exchange this flag at the end of each step.
    pub(super) stopping: bool,
    /// Whether the warnings that come before the first step have been printed.
    pub(super) warned: bool,
}

pub(super) struct Programs {
    /// The program of the steps: it computes a whole batch, or the parts of a batch.
    pub(super) main: CompiledTraining,
    /// The program for batches that are divided because of the memory limit; `None` before the first such batch, and if the
    /// steps are in parts anyway.
    pub(super) divided: Option<CompiledTraining>,
    /// Whether the current step uses the divided program.
    pub(super) on_divided: bool,
}

impl StepState {
    pub(super) fn program(&self) -> Result<&CompiledTraining> {
        let programs = self.programs.as_ref();
        let used = programs.and_then(|p| if p.on_divided { p.divided.as_ref() } else { Some(&p.main) });
        used.ok_or_else(unprepared)
    }

    /// Returns the program of the current step, to run it.
    pub(super) fn compiled(&mut self) -> Result<&mut CompiledTraining> {
        let programs = self.programs.as_mut();
        let used = programs.and_then(|p| if p.on_divided { p.divided.as_mut() } else { Some(&mut p.main) });
        used.ok_or_else(unprepared)
    }

    /// Returns the program that the current step does not use.
    fn other(&mut self) -> Option<&mut CompiledTraining> {
        self.programs.as_mut().and_then(|p| if p.on_divided { Some(&mut p.main) } else { p.divided.as_mut() })
    }

    /// Lets the next runs use the divided program, which is then there, or the main program. The buffers of the other program are
    /// released: both at once would exceed the computed memory.
    pub(super) fn switch(&mut self, divided: bool) {
        if let Some(programs) = &mut self.programs {
            programs.on_divided = divided;
        }
        self.other().into_iter().for_each(|other| other.runner.executor.release());
    }
}

/// A trainer's compiled program with the values that each step needs.
pub(super) struct CompiledTraining {
    pub(super) runner: BatchRunner,
    /// The loss for steps in parts, computed over all parts; `None` if a step is one batch in one part.
    pub(super) parts: Option<BatchLoss>,
    /// The index of the metric that decides which epoch is the best.
    pub(super) selected: usize,
    pub(super) better: Better,
    /// The rows of parameters that steps read and whose missed updates all processes apply; empty for a single process.
    pub(super) read: Vec<ReadRows>,
    /// The tables that are dealt to processes; `None` if each process holds all rows.
    pub(super) tables: Option<DealtTables>,
}

/// The rows of parameters that one variable selects.
pub(super) struct ReadRows {
    /// The variable with the row numbers.
    pub(super) ids: VarId,
    pub(super) params: Vec<VarId>,
    /// The number of rows of the lowest of the parameters.
    pub(super) height: usize,
    /// The program that applies the missed updates of rows; `ids` is its feed.
    pub(super) settling: Executor,
    /// The numbers of the rows that this process has read in the current step.
    pub(super) rows: Vec<i64>,
}

/// Checks that the loss and the gradients of a run are finite.
pub(super) fn finite(executor: &mut Executor, loss: Var, trained: &[(VarId, VarId)]) -> Result<()> {
    if !executor.scalar(loss)?.is_finite() {
        return Err(Error::of(ErrorKind::NotFinite, "loss", "a finite number", "NaN or infinity"));
    }
    trained.iter().try_for_each(|(param, _)| executor.gradient(*param)?.check_finite("gradient"))
}

/// Returns the error of a failed step. If a number is not finite, returns the error of the operator that produced it first.
pub(super) fn diagnosed(
    program: &Program,
    registry: &Registry,
    scope: &mut Scope,
    run: &Run<'_>,
    error: Error,
) -> Error {
    match error.kind() {
        // To find this operator, the interpreter runs the step again and checks the outputs of each operator.
        ErrorKind::NotFinite => diagnose(program, registry, scope, run).unwrap_or(error),
        _ => error,
    }
}

pub(super) fn unprepared() -> Error {
    Error::of(ErrorKind::Program, "trainer", "a compiled program", "none")
}
