//! Several trainers of one model: each computes gradients on its part of the data, and the store moves the parameters.

use std::panic::Location;

use super::key_value::{Key, KeyValueStore};
use super::merge::{Part, checked_finite, merge};
use super::rule::{Rule, update_of};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Parts, Run, Scope, Stage, Threads, Totals, Whole};
use crate::kernels::arena::Plain;
use crate::program::{LossTerms, OpDesc, Program, Registry, Role, VarId, VarRole};
use crate::tensor::{DType, Dense, Element, Storage, StorageKind, Variable};
use crate::with_float;

/// Operators that read only some rows of a parameter: their kind, and the slots of the parameter and of what says which rows, the
/// ids or the columns of a sparse matrix.
const BY_ROWS: [(&str, &str, &str); 4] = [
    ("embedding", "weight", "ids"),
    ("embedding_bag", "table", "ids"),
    ("sparse_linear", "weight", "x"),
    ("dot", "y", "x"),
];

/// A parameter that the store moves.
struct Shared {
    key: Key,
    name: String,
    grad: VarId,
    /// The feeds that say which of its rows a batch reads; `None` if it may be any.
    rows_by: Option<Vec<VarId>>,
}

impl Shared {
    /// The parameters that the updates of a program move.
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
            let rows = program.spec(grad)?.storage == StorageKind::SelectedRows;
            let rows_by = if rows { rows_by(program, param) } else { None };
            all.push(Self { key: Key::from(&*var.name), name: var.name.clone(), grad, rows_by });
        }
        if all.is_empty() {
            let expected = "a program that an optimizer has completed";
            return Err(Error::of(
                ErrorKind::Program,
                "parameters of a store",
                expected,
                "one without updates",
            ));
        }
        Ok(all)
    }

    /// The rows that a batch reads, ascending. Numbers that are no rows are left out: the operator that reads them names them.
    fn rows_read(&self, height: usize, feeds: &[(VarId, &Variable)]) -> Option<Vec<i64>> {
        let mut ids = Vec::new();
        for by in self.rows_by.as_ref()? {
            let (_, value) = feeds.iter().find(|(id, _)| id == by)?;
            match value.storage() {
                Storage::Dense(x) => ids.extend_from_slice(x.cast(DType::I64).as_slice::<i64>().ok()?),
                Storage::Csr(x) => ids.extend_from_slice(x.indices()),
                Storage::Coo(_) | Storage::SelectedRows(_) => return None,
            }
        }
        ids.retain(|&id| usize::try_from(id).is_ok_and(|id| id < height));
        ids.sort_unstable();
        ids.dedup();
        Some(ids)
    }
}

/// The feeds that say which rows of a parameter are read, if every operator that reads it reads the rows that a feed says.
fn rows_by(program: &Program, param: VarId) -> Option<Vec<VarId>> {
    let reads = |op: &&OpDesc| op.role == Role::Forward && op.reads().any(|var| var == param);
    let mut feeds = Vec::new();
    for op in program.blocks().flat_map(|(_, block)| &block.ops).filter(reads) {
        let (_, table, by) = BY_ROWS.iter().find(|(kind, ..)| op.kind == *kind)?;
        let by = *op.input(by).first()?;
        if !op.input(table).contains(&param)
            || op.input(table).len() > 1
            || program.var(by).role != VarRole::Feed
        {
            return None;
        }
        feeds.push(by);
    }
    Some(feeds)
}

/// Makes a key of a store for each parameter that the updates of a program move, called as the parameter is: with its value in
/// `scope`, and with the rule of its update. One worker does it, before the others begin.
///
/// # Errors
/// If the program has no updates; if a rule does not take each row of a parameter by itself ([`Rule`]), or a parameter is
/// row-sparse; if `scope` lacks one, or the store has one already.
#[track_caller]
pub fn share(program: &Program, scope: &mut Scope, store: &mut dyn KeyValueStore) -> Result<()> {
    let caller = Location::caller();
    // All of them are looked at before the first is made.
    let ruled = |shared: Shared| {
        let param = program.find(&shared.name);
        let param =
            param.ok_or_else(|| Error::new("parameter", "one of the program", shared.name.clone()))?;
        Ok((Rule::of(program, param)?, shared))
    };
    let all = Shared::all(program).and_then(|all| all.into_iter().map(ruled).collect::<Result<Vec<_>>>());
    for (rule, shared) in all.map_err(|e| e.called(caller))? {
        let made = scope.value(&shared.name).and_then(|value| store.init(&shared.key, value));
        made.and_then(|()| store.set_rule(&shared.key, rule)).map_err(|e| e.called(caller))?;
    }
    Ok(())
}

/// One of several trainers of a model, each with a part of every batch, or with batches of its own.
///
/// In a step it pulls the parameters, runs forward and backward, and pushes the gradients: of a table whose gradient is selected
/// rows it pulls the rows that the batch reads, and pushes those that it touched. It runs on one thread, and its scope has no state
/// of the optimizer.
pub struct StoreTrainer<S> {
    store: S,
    executor: Executor,
    scope: Scope,
    parts: Parts,
    shared: Vec<Shared>,
    steps: u64,
    /// Why it failed where the other workers wait for its gradients.
    failed: Option<Error>,
}

/// What is pushed at the end of a step.
struct Pushed {
    loss: f64,
    gradients: Vec<Storage>,
    weight: f64,
}

impl<S: KeyValueStore> StoreTrainer<S> {
    /// A trainer of a program that an optimizer has completed; the store has its parameters ([`share`]).
    ///
    /// # Errors
    /// If the program has no updates, or a row-sparse parameter; if `loss` is not computed from sums and means over rows: how much
    /// the gradients of parts of a batch count would not be known, and workers cannot be told.
    #[track_caller]
    pub fn new(program: &Program, registry: &Registry, loss: impl Into<VarId>, store: S) -> Result<Self> {
        let (loss, caller) = (loss.into(), Location::caller());
        Self::made(program, registry, loss, store).map_err(|e| e.called(caller))
    }

    fn made(program: &Program, registry: &Registry, loss: VarId, store: S) -> Result<Self> {
        let shared = Shared::all(program)?;
        let gradients = || shared.iter().map(|one| one.grad);
        let mut own = program.clone();
        // The store updates, and settles rows that owe moves before it gives them.
        own.blocks[0].ops.retain(|op| !matches!(op.role, Role::Update | Role::Settle));
        let own = own.shortened(&gradients().chain([loss]).collect::<Vec<_>>());
        let threads = Threads::new(1)?;
        let terms = LossTerms::of(&own, registry, loss).map_err(|e| {
            e.noted(
                "workers of a store take no weight of a batch (`Trainer::weight`): the loss has to be computed from sums and means \
                 over rows, or one `Trainer` trains it",
            )
        })?;
        let parts = Parts::new(&own, registry, terms, threads.clone())?;
        let fetched: Vec<VarId> = gradients().chain(parts.wanted()).collect();
        let (executor, scope) = (Executor::on(&parts.body, registry, &fetched, threads)?, Scope::of(&own)?);
        Ok(Self { store, executor, scope, parts, shared, steps: 0, failed: None })
    }

    /// Warnings to show before the first step: the operators that look at a whole batch, as a batch norm, each with its line. They see
    /// the part of each worker by itself, so that the step of several workers is not that of one batch.
    pub fn warnings(&self) -> Vec<String> {
        let warned = self.parts.whole_batch().iter().map(|(operator, line)| {
            format!(
                "warning: `{operator}`, called at {line}, looks at a whole batch, and sees the part of each worker by itself: the \
                 step of several workers is not that of one batch"
            )
        });
        warned.collect()
    }

    /// The number of its next step, which random operators draw by: 0, unless a training goes on whose store was
    /// [restored](KeyValueStore::restore).
    #[must_use]
    pub fn from_step(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// A step on a batch, or on this trainer's part of one; `numbers` are those of its sequences in the data, or none. Returns the
    /// loss: of its part if the loss is a mean over rows, else of the whole batch, for which the workers then wait for each other
    /// once more, and a third time if the gradients depend on the values of several sums and means.
    ///
    /// # Errors
    /// If a feed does not fit; if the loss or a gradient is not finite, and then nothing was pushed. If the workers had begun to wait for
    /// each other, each of them returns an error, and all may go on with other batches. As the store's, which says when another
    /// worker has left.
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
        self.pull(|shared, height| shared.rows_read(height, feeds))?;
        let not_pushed = |e: Error| e.noted("nothing was pushed");
        let (pushed, workers) = match self.parts.is_late() {
            true => self.late(feeds, numbers),
            false => self.early(feeds, numbers),
        }
        .map_err(not_pushed)?;
        let done = pushed.map_err(not_pushed).and_then(|Pushed { loss, gradients, weight }| {
            for (Shared { key, .. }, gradient) in self.shared.iter().zip(gradients) {
                self.store.push(key, gradient, weight)?;
            }
            Ok(loss)
        });
        // What fails now the others do not know.
        if let (Err(error), true) = (&done, workers > 1.0) {
            self.failed = Some(error.clone());
        }
        let loss = done?;
        self.steps += 1;
        self.store.end_round()?;
        Ok(loss)
    }

    /// A step of one sum or mean with a gradient, whose factor may come after the gradients: what it pushes, and how many workers wait
    /// for it.
    fn late(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<(Result<Pushed>, f64)> {
        let seeds = self.parts.seeds(None, &self.parts.zero())?;
        let part = self.run(feeds, &seeds, numbers, Stage::Gradients)?;
        self.check_gradients()?;
        let (all, workers) = match self.parts.is_mean() {
            true => (part.clone(), 1.0),
            false => self.all(Ok(&part))?,
        };
        let whole = self.parts.whole(&mut self.scope, &all, self.steps)?;
        Ok((self.pushed(&whole, &part, &all, workers), workers))
    }

    /// Several totals: their factors are known before the gradients.
    fn early(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<(Result<Pushed>, f64)> {
        let value = |feed: VarId| feeds.iter().find(|(id, _)| *id == feed).map(|&(_, value)| value);
        let counted = self.parts.counted(value);
        if let Some(part) = counted {
            let (all, _) = self.all(Ok(&part))?;
            let whole = self.parts.of_counted(&mut self.scope, &all, self.steps);
            let ran = whole.and_then(|whole| self.gradients(feeds, numbers, &whole, &part, &all));
            let (all, workers) = self.all(ran.as_ref())?;
            let (part, whole) = (ran?, self.parts.whole(&mut self.scope, &all, self.steps)?);
            return Ok((self.pushed(&whole, &part, &all, workers), workers));
        }
        let seeds = self.parts.seeds(None, &self.parts.zero())?;
        let part = self.run(feeds, &seeds, numbers, Stage::Forward)?;
        let (all, workers) = self.all(Ok(&part))?;
        let whole = self.parts.whole(&mut self.scope, &all, self.steps)?;
        let ran = self.gradients(feeds, numbers, &whole, &part, &all);
        self.all(ran.as_ref())?;
        Ok((self.pushed(&whole, &part, &all, workers), workers))
    }

    /// Runs the part until its gradients, by what follows from all. Its totals.
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
        for Shared { name, grad, .. } in &self.shared {
            let gradient = self.executor.fetch(*grad)?;
            checked_finite(gradient.storage(), "gradient").map_err(|e| e.variable(name))?;
        }
        Ok(())
    }

    /// What a part pushes whose gradients were computed.
    fn pushed(&mut self, whole: &Whole, part: &Totals, all: &Totals, workers: f64) -> Result<Pushed> {
        let (factor, weight) = self.parts.in_mean(whole, part, all, workers);
        let mut gradients = Vec::with_capacity(self.shared.len());
        for Shared { grad, name, .. } in &self.shared {
            let gradient = self.executor.fetch(*grad)?.into_parts().0;
            let without_rows = whole.gradients.iter().filter(|(of, _)| of == grad);
            let without_rows =
                without_rows.map(|(_, gradient)| Part { gradient: gradient.clone(), factor: 1.0 });
            let parts = std::iter::once(Part { gradient, factor }).chain(without_rows).collect();
            gradients.push(merge(parts).map_err(|e| e.variable(name))?);
        }
        Ok(Pushed { loss: whole.loss, gradients, weight })
    }

    /// Runs the part so far. Its totals.
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

    /// The totals of all workers' parts, and how many there are. A worker whose part failed says so to all.
    ///
    /// # Errors
    /// If a part failed, this one's error first; as the store's.
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
            let got = format!("none of {failed} of {workers}, whose own errors say why");
            return Err(Error::of(ErrorKind::NotFinite, "step", "the gradients of all workers", got));
        }
        Ok((Totals::of_numbers(totals), *workers))
    }

    /// The parameters as the store has them now, to evaluate or to save.
    ///
    /// # Errors
    /// As the store's.
    #[track_caller]
    pub fn scope(&mut self) -> Result<&mut Scope> {
        let caller = Location::caller();
        self.pull(|_, _| None).map_err(|e| e.called(caller))?;
        Ok(&mut self.scope)
    }

    /// The worker's end of the store.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Pulls every parameter, or those rows that `rows` says.
    fn pull(&mut self, rows: impl Fn(&Shared, usize) -> Option<Vec<i64>>) -> Result<()> {
        let program = self.executor.program();
        for shared in &self.shared {
            let spec = program.find(&shared.name).and_then(|id| program.var(id).spec());
            let Some(spec) = spec else { continue };
            let height = spec.rows().known().unwrap_or(0);
            match rows(shared, height) {
                None => self.scope.set(&shared.name, self.store.pull(&shared.key)?)?,
                Some(ids) => {
                    let pulled = self.store.row_sparse_pull(&shared.key, ids.clone())?;
                    with_float!(spec.dtype, T => put::<T>(&mut self.scope, &shared.name, &ids, &pulled))?;
                }
            }
        }
        Ok(())
    }
}

/// Puts rows into a table of a scope.
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
    let wrong = || Error::new("rows that a store gave", format!("{} of the parameter", ids.len()), "others");
    if done { Ok(()) } else { Err(wrong().variable(name)) }
}
