//! Trainers of one model with a shared store: each trainer computes gradients on its part of the data, and the store
//! updates the parameters.

use std::panic::Location;

use super::key_value::{Key, KeyValueStore};
use super::merge::{WeighedGradient, checked_finite, merge};
use super::rule::{Rule, update_of};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope, Stage, Threads};
use crate::kernels::arena::Plain;
use crate::on_data::{BatchLoss, Totals, Whole};
use crate::operator::{Attributes, Registry, VarId};
use crate::optimizer::row_selections;
use crate::program::description::initialize::{self, ZEROS};
use crate::program::{Initializer, LossTerms, OpDesc, Program, Role, VarKind, VarRole};
use crate::tensor::{DType, Dense, Element, SelectedRows, Storage, StorageKind, Variable};
use crate::with_float;

struct StoredParameter {
    key: Key,
    name: String,
    grad: VarId,
    /// The feeds that select the rows of the parameter that a batch reads; `None` if a batch may read any row.
    rows_by: Option<Vec<VarId>>,
    /// Whether the trainer's scope holds only the rows of the parameter that the batch reads.
    held_by_rows: bool,
}

impl StoredParameter {
    /// Returns the parameters that a program updates, each with its gradient.
    fn all(program: &Program) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for param in program.trained_parameters() {
            let Some(grad) = update_of(program, param).and_then(|op| op.input("grad").first().copied())
            else {
                continue;
            };
            let var = program.var(param);
            if var.is_row_sparse() {
                let got = "a row-sparse parameter, whose rows begin by the program's seed";
                return Err(Error::of(ErrorKind::Program, "value of a key", "a dense parameter", got)
                    .variable(&var.name));
            }
            let (key, name) = (Key::from(&*var.name), var.name.clone());
            all.push(Self { key, name, grad, rows_by: None, held_by_rows: false });
        }
        if all.is_empty() {
            let expected = "a program that an optimizer has completed";
            return Err(Error::of(
                ErrorKind::Program,
                "parameters of a store",
                expected,
                "a program without updates",
            ));
        }
        Ok(all)
    }

    /// Returns the row numbers of the parameter that a batch reads, ascending; `None` if the batch may read any row. Invalid
    /// row numbers are left out, since the operator that reads the rows returns an error for them.
    fn rows_read(&self, height: usize, feeds: &[(VarId, &Variable)]) -> Option<Vec<i64>> {
        let mut ids = Vec::new();
        for by in self.rows_by.as_ref()? {
            let (_, value) = feeds.iter().find(|(id, _)| id == by)?;
            if !add_row_numbers(value.storage(), &mut ids) {
                return None;
            }
        }
        ids.retain(|&id| usize::try_from(id).is_ok_and(|id| id < height));
        ids.sort_unstable();
        ids.dedup();
        Some(ids)
    }
}

/// Adds the row numbers that a value selects to `to`: the numbers of a dense value, or the column indices of a sparse matrix.
/// Returns `false` for a value that selects no rows.
pub(crate) fn add_row_numbers(value: &Storage, to: &mut Vec<i64>) -> bool {
    match value {
        Storage::Dense(ids) => {
            ids.cast(DType::I64).as_slice::<i64>().map(|ids| to.extend_from_slice(ids)).is_ok()
        }
        Storage::Csr(matrix) => {
            to.extend_from_slice(matrix.indices());
            true
        }
        Storage::Coo(_) | Storage::SelectedRows(_) => false,
    }
}

/// Returns the feeds that select the rows of the parameter `param` that a batch reads; `None` if an operator may read any row, or
/// rows that no feed selects.
fn rows_by(program: &Program, registry: &Registry, param: VarId) -> Result<Option<Vec<VarId>>> {
    let feeds = row_selections(program, registry, param)?;
    Ok(feeds.filter(|feeds| feeds.iter().all(|&feed| program.var(feed).role == VarRole::Feed)))
}

/// Returns whether every operator that reads the parameter accepts it as a row-sparse parameter.
fn takes_rows(program: &Program, registry: &Registry, param: VarId) -> Result<bool> {
    let reads = |op: &&OpDesc| op.role == Role::Forward && op.reads().any(|var| var == param);
    for desc in program.ops().filter(reads) {
        let op = registry.parse(&desc.kind, &desc.attributes)?;
        let mut slots = op.signature().inputs.iter().filter(|slot| desc.input(slot.name).contains(&param));
        if !slots.all(|slot| slot.table) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a key in the store for each parameter that a program updates: the key is the parameter's name, the value comes from
/// `scope`, and the rule is the parameter's update. A parameter that is not in `scope` is initialized row by row, so pass an
/// empty scope if a table is larger than the memory of a process. One worker calls `share` before the other workers begin; with
/// a `WorldStore`, all ranks call `share` together.
///
/// # Errors
/// Returns an error if the program has no updates; if a rule does not work row by row ([`Rule`]), or a parameter is row-sparse;
/// if an initializer does not fit, or the store has a key already.
#[track_caller]
pub fn share(program: &Program, scope: &mut Scope, store: &mut dyn KeyValueStore) -> Result<()> {
    let caller = Location::caller();
    // All parameters are checked before the first key is made, so that an error leaves the store unchanged.
    let ruled = |shared: StoredParameter| {
        let param = program.find(&shared.name);
        let param = param
            .ok_or_else(|| Error::new("parameter", "a parameter of the program", shared.name.clone()))?;
        Ok((Rule::of(program, param)?, shared))
    };
    let all =
        StoredParameter::all(program).and_then(|all| all.into_iter().map(ruled).collect::<Result<Vec<_>>>());
    for (rule, shared) in all.map_err(|e| e.called(caller))? {
        let there = scope.names().any(|name| name == shared.name);
        let made = match there {
            true => scope.value(&shared.name).and_then(|value| store.init(&shared.key, value)),
            false => start(program, &shared, store),
        };
        made.and_then(|()| store.set_rule(&shared.key, rule)).map_err(|e| e.called(caller))?;
    }
    Ok(())
}

/// Makes the key of a parameter, with a value from the parameter's initializer.
fn start(
    program: &Program,
    StoredParameter { key, name, .. }: &StoredParameter,
    store: &mut dyn KeyValueStore,
) -> Result<()> {
    let param = program.find(name).map(|id| program.var(id));
    let Some((param, spec)) = param.and_then(|param| Some((param, param.spec()?))) else { return Ok(()) };
    let dims: Vec<usize> = spec.shape.iter().filter_map(|extent| extent.known()).collect();
    let zeros = Initializer::new(ZEROS, Attributes::new());
    let how = param.initializer.as_ref().unwrap_or(&zeros);
    match initialize::row_by_row(how, &dims, program.seed, name)? {
        Some(mut first) => store.init_rows(key, spec.dtype, &dims, &mut |row, out| {
            first(row, out);
            Ok(())
        }),
        None => store.init(key, initialize::evaluate(how, &dims, spec.dtype, program.seed, name)?.into()),
    }
}

/// The trainer of one worker: several workers train a model together, each on a part of every batch, or each on batches of its
/// own.
///
/// In a step, the trainer pulls the parameters, runs forward and backward, and pushes the gradients. If the gradient of a table
/// is selected rows, the trainer pulls only the rows that the batch reads, and pushes the rows of the gradient. If only
/// `embedding` and `embedding_bag` read a table, the trainer holds only the rows that the batch reads, even of a very high
/// table. The trainer runs on one thread, and has no states of the optimizer, since the store has the states.
pub struct StoreTrainer<S> {
    store: S,
    executor: Executor,
    scope: Scope,
    parts: BatchLoss,
    shared: Vec<StoredParameter>,
    steps: u64,
    /// The error of a failed step, kept if the other workers wait for this worker's gradients of that step.
    failed: Option<Error>,
}

/// The result of a step: the loss, the gradients to push, and the weight of the gradients.
struct Pushed {
    loss: f64,
    gradients: Vec<Storage>,
    weight: f64,
}

impl<S: KeyValueStore> StoreTrainer<S> {
    /// Makes a trainer from a program with the operators of an optimizer; the store must already have the parameters
    /// ([`share`]).
    ///
    /// # Errors
    /// Returns an error if the program has no updates, or a row-sparse parameter. Also returns an error if `loss` is not
    /// computed from sums and means over rows, since the weights of the workers' gradients would then be unknown.
    #[track_caller]
    pub fn new(program: &Program, registry: &Registry, loss: impl Into<VarId>, store: S) -> Result<Self> {
        let (loss, caller) = (loss.into(), Location::caller());
        Self::made(program, registry, loss, store).map_err(|e| e.called(caller))
    }

    fn made(program: &Program, registry: &Registry, loss: VarId, store: S) -> Result<Self> {
        let mut shared = StoredParameter::all(program)?;
        let gradients: Vec<VarId> = shared.iter().map(|one| one.grad).collect();
        let mut own = program.clone();
        // The trainer needs no update operators: the store updates the parameters, and applies pending moves of rows before the
        // rows are pulled.
        own.blocks[0].ops.retain(|op| !matches!(op.role, Role::Update | Role::Settle));
        let mut own = own.shortened(&[&gradients[..], &[loss]].concat());
        for one in &mut shared {
            let param = program.find(&one.name);
            let sparse = program.spec(one.grad)?.storage == StorageKind::SelectedRows;
            one.rows_by = match param.filter(|_| sparse) {
                Some(param) => rows_by(program, registry, param)?,
                None => None,
            };
            if one.rows_by.is_none() {
                continue;
            }
            let Some(param) =
                own.find(&one.name).filter(|&param| takes_rows(&own, registry, param) == Ok(true))
            else {
                continue;
            };
            let desc = own.var_mut(param);
            if let VarKind::Tensor(spec) = &mut desc.kind {
                *spec = spec.stored(StorageKind::SelectedRows);
                // No row needs an initial value, since the program reads only rows that were pulled.
                desc.initializer = None;
                one.held_by_rows = true;
            }
        }
        let threads = Threads::new(1)?;
        let terms = LossTerms::of(&own, registry, loss).map_err(|e| {
            e.noted(
                "workers of a store take no weight of a batch (`Trainer::weight`): the loss has to be computed from sums and means \
                 over rows, or one `Trainer` trains it",
            )
        })?;
        let parts = BatchLoss::new(&own, registry, terms, threads.clone())?;
        let fetched: Vec<VarId> = gradients.into_iter().chain(parts.wanted()).collect();
        let (executor, scope) = (Executor::on(&parts.body, registry, &fetched, threads)?, Scope::of(&own)?);
        Ok(Self { store, executor, scope, parts, shared, steps: 0, failed: None })
    }

    /// Returns a warning for each operator that reads a whole batch, such as a batch norm, with the source line of the
    /// operator; show the warnings before the first step. Such an operator reads each worker's part by itself, so that a step
    /// of several workers differs from a step on the whole batch.
    pub fn warnings(&self) -> Vec<String> {
        let warned = self.parts.whole_batch().iter().map(|(operator, line)| {
            format!(
                "warning: `{operator}`, called at {line}, reads a whole batch, and sees the part of each worker by itself: the \
                 step of several workers differs from a step of one batch"
            )
        });
        warned.collect()
    }

    /// Sets the number of the trainer's next step (default: 0), to continue a training whose store was
    /// [restored](KeyValueStore::restore). The random numbers of operators such as dropout depend on the step number.
    #[must_use]
    pub fn from_step(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// Trains on a batch, or on this trainer's part of a batch; `numbers` has the position of each sequence of the batch in the
    /// data set, or is empty. If the loss is a mean over rows, the method returns the loss of this trainer's part. For any
    /// other loss, the method returns the loss of the whole batch. The workers then wait for each other twice in a step, and
    /// three times if the gradients depend on the values of several sums and means.
    ///
    /// # Errors
    /// Returns an error if the program refuses a feed, or if the loss or a gradient is not finite; nothing was pushed then. If
    /// the workers had begun to wait for each other, all workers return an error, and all workers may continue with other
    /// batches. Returns an error if the store fails, for example because another worker has left.
    #[track_caller]
    pub fn step(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<f64> {
        let caller = Location::caller();
        self.stepped(feeds, numbers).map_err(|e| e.called(caller))
    }

    fn stepped(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<f64> {
        if let Some(failed) = &self.failed {
            return Err(failed
                .clone()
                .noted("the other workers wait for this step's gradients: drop this trainer"));
        }
        self.pull(feeds)?;
        let not_pushed = |e: Error| e.noted("nothing was pushed");
        let (pushed, workers) = match self.parts.is_late() {
            true => self.late(feeds, numbers),
            false => self.early(feeds, numbers),
        }
        .map_err(not_pushed)?;
        let pushed = self.reported(pushed.map_err(not_pushed));
        let done = pushed.and_then(|Pushed { loss, gradients, weight }| {
            for (StoredParameter { key, .. }, gradient) in self.shared.iter().zip(gradients) {
                self.store.push(key, gradient, weight)?;
            }
            Ok(loss)
        });
        // From here on, the other workers are not notified of an error, unless the store fails together.
        if let (Err(error), true) = (&done, workers > 1.0 && !self.store.fails_together()) {
            self.failed = Some(error.clone());
        }
        let loss = done?;
        self.steps += 1;
        self.store.end_round()?;
        Ok(loss)
    }

    /// Computes a step for a loss with only one sum or mean: the factor of the gradients can then be applied after the
    /// gradients are computed. Returns the gradients to push, and the number of workers that wait for these gradients.
    fn late(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<(Result<Pushed>, f64)> {
        let part = self.alone(feeds, numbers, Stage::Gradients).and_then(|part| {
            self.check_gradients()?;
            Ok(part)
        });
        let part = self.reported(part)?;
        let (all, workers) = match self.parts.is_mean() {
            true => (part.clone(), 1.0),
            false => self.all(Ok(&part))?,
        };
        let whole = self.parts.whole(&mut self.scope, &all, self.steps);
        let pushed = whole.and_then(|whole| self.pushed(&whole, &part, &all, workers));
        Ok((pushed, workers))
    }

    /// Computes a step for a loss with several sums and means: the factors must then be known before the gradients are
    /// computed. Returns, like [`Self::late`], the gradients to push and the number of workers that wait for these gradients.
    fn early(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<(Result<Pushed>, f64)> {
        let value = |feed: VarId| feeds.iter().find(|(id, _)| *id == feed).map(|&(_, value)| value);
        let counted = self.parts.counted(value);
        if let Some(part) = counted {
            let (all, _) = self.all(Ok(&part))?;
            let whole = self.parts.of_counted(&mut self.scope, &all, self.steps);
            let ran = whole.and_then(|whole| self.gradients(feeds, numbers, &whole, &part, &all));
            let (all, workers) = self.all(ran.as_ref())?;
            let (part, whole) = (ran?, self.parts.whole(&mut self.scope, &all, self.steps));
            let pushed = whole.and_then(|whole| self.pushed(&whole, &part, &all, workers));
            return Ok((pushed, workers));
        }
        let part = self.alone(feeds, numbers, Stage::Forward);
        let part = self.reported(part)?;
        let (all, workers) = self.all(Ok(&part))?;
        let whole = self.parts.whole(&mut self.scope, &all, self.steps);
        let whole = self.reported(whole)?;
        let ran = self.gradients(feeds, numbers, &whole, &part, &all);
        self.all(ran.as_ref())?;
        Ok((self.pushed(&whole, &part, &all, workers), workers))
    }

    /// Reports an error to the other workers, whose next calls return the error; returns `outcome` unchanged.
    fn reported<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| self.store.fail(error))
    }

    /// Runs the program on this worker's part, before the totals (the sums over rows) of other workers are known.
    fn alone(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64], until: Stage) -> Result<Totals> {
        let seeds = self.parts.seeds(None, &self.parts.zero())?;
        self.run(feeds, &seeds, numbers, until)
    }

    /// Computes the gradients of this worker's part from the totals of all workers; returns the totals of this part.
    fn gradients(
        &mut self,
        feeds: &[(VarId, &Variable)],
        numbers: &[u64],
        whole: &Whole,
        part: &Totals,
        all: &Totals,
    ) -> Result<Totals> {
        let seeds = self.parts.seeds(Some((whole, all)), part)?;
        let part = self.run(feeds, &seeds, numbers, Stage::Gradients)?;
        self.check_gradients()?;
        Ok(part)
    }

    fn check_gradients(&mut self) -> Result<()> {
        for StoredParameter { name, grad, .. } in &self.shared {
            let gradient = self.executor.fetch(*grad)?;
            checked_finite(gradient.storage(), "gradient").map_err(|e| e.variable(name))?;
        }
        Ok(())
    }

    /// Returns the loss, the gradients to push and their weight, after the gradients were computed.
    fn pushed(&mut self, whole: &Whole, part: &Totals, all: &Totals, workers: f64) -> Result<Pushed> {
        let (factor, weight) = self.parts.in_mean(whole, part, all, workers);
        let mut gradients = Vec::with_capacity(self.shared.len());
        for StoredParameter { grad, name, .. } in &self.shared {
            let gradient = self.executor.fetch(*grad)?.into_parts().0;
            let without_rows = whole.gradients.iter().filter(|(var, _)| var == grad);
            let without_rows =
                without_rows.map(|(_, gradient)| WeighedGradient { gradient: gradient.clone(), factor: 1.0 });
            let parts = std::iter::once(WeighedGradient { gradient, factor }).chain(without_rows).collect();
            gradients.push(merge(parts).map_err(|e| e.variable(name))?);
        }
        Ok(Pushed { loss: whole.loss, gradients, weight })
    }

    /// Runs the program on this worker's part up to the stage `until`; returns the totals of this part.
    fn run(
        &mut self,
        feeds: &[(VarId, &Variable)],
        seeds: &[(VarId, Variable)],
        numbers: &[u64],
        until: Stage,
    ) -> Result<Totals> {
        let feeds: Vec<_> = feeds.iter().copied().chain(seeds.iter().map(|(id, seed)| (*id, seed))).collect();
        let run = Run::train(&feeds, self.steps).numbers(numbers).until(until);
        self.executor.run(&mut self.scope, &run)?;
        self.parts.read(&mut self.executor)
    }

    /// Sums the totals over the parts of all workers; returns the sums and the number of workers. If this worker's part failed,
    /// the method reports the failure to all workers.
    ///
    /// # Errors
    /// Returns an error if a part failed (this worker's own error first), or the store fails.
    fn all(&mut self, part: Result<&Totals, &Error>) -> Result<(Totals, f64)> {
        let totals = part.cloned().unwrap_or_else(|_| self.parts.zero());
        let numbers: Vec<f64> =
            totals.numbers().chain([1.0, if part.is_err() { 1.0 } else { 0.0 }]).collect();
        let all = self.store.sum(&numbers);
        part.map_err(Error::clone)?;
        let all = all?;
        let [totals @ .., workers, failed] = &all[..] else {
            return Err(Error::new("sums of a store", numbers.len().to_string(), all.len().to_string()));
        };
        if *failed > 0.0 {
            let got = format!(
                "no gradients of {failed} of {workers} workers; the errors of these workers give the reasons"
            );
            return Err(Error::of(ErrorKind::NotFinite, "step", "the gradients of all workers", got));
        }
        Ok((Totals::of_numbers(totals), *workers))
    }

    /// Pulls the current values of all parameters into a scope, for an evaluation or a checkpoint.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    #[track_caller]
    pub fn scope(&mut self) -> Result<Scope> {
        let caller = Location::caller();
        self.whole().map_err(|e| e.called(caller))
    }

    fn whole(&mut self) -> Result<Scope> {
        let mut whole = Scope::new();
        let own: Vec<String> = self.scope.names().map(str::to_owned).collect();
        for name in own.iter().filter(|name| self.shared.iter().all(|shared| shared.name != **name)) {
            whole.set(name, self.scope.value(name)?)?;
        }
        for shared in &self.shared {
            whole.set(&shared.name, self.store.pull(&shared.key)?)?;
        }
        Ok(whole)
    }

    /// Returns the handle of the store that this trainer uses.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Pulls every parameter into the trainer's scope: the whole value, or only the rows that the batch reads.
    fn pull(&mut self, feeds: &[(VarId, &Variable)]) -> Result<()> {
        let program = self.executor.program();
        for shared in &self.shared {
            let spec = program.find(&shared.name).and_then(|id| program.var(id).spec());
            let Some(spec) = spec else { continue };
            let height = spec.rows().known().unwrap_or(0);
            let Some(ids) = shared.rows_read(height, feeds) else {
                let value = self.store.pull(&shared.key)?;
                let value = match shared.held_by_rows {
                    true => SelectedRows::new(height, (0..height as i64).collect(), value)?.into(),
                    false => Storage::from(value),
                };
                self.scope.set(&shared.name, value)?;
                continue;
            };
            let pulled = self.store.row_sparse_pull(&shared.key, ids.clone())?;
            match shared.held_by_rows {
                true => self.scope.set(&shared.name, SelectedRows::new(height, ids, pulled)?)?,
                false => {
                    with_float!(spec.dtype, T => put::<T>(&mut self.scope, &shared.name, &ids, &pulled))?
                }
            }
        }
        Ok(())
    }
}

/// Writes rows to the table `name` of a scope, at the row numbers `ids`.
fn put<T: Plain + Element>(scope: &mut Scope, name: &str, ids: &[i64], rows: &Dense) -> Result<()> {
    let (width, from) = (rows.width(), rows.as_slice::<T>()?);
    let fits = rows.rows() == ids.len();
    let done = fits
        && scope.write::<T, _>(name, |table| {
            ids.iter().enumerate().all(|(at, &id)| {
                let start = id as usize * width;
                match table.get_mut(start..start + width) {
                    Some(row) => {
                        row.copy_from_slice(&from[at * width..(at + 1) * width]);
                        true
                    }
                    None => false,
                }
            })
        })?;
    let wrong =
        || Error::new("rows that a store gave", format!("{} rows of the parameter", ids.len()), "other rows");
    if done { Ok(()) } else { Err(wrong().variable(name)) }
}
