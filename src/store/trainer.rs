//! Several trainers of one model: each computes gradients on its part of the data, and the store moves the parameters.

use std::panic::Location;

use super::key_value::{Key, KeyValueStore};
use super::merge::{Part, checked_finite, merge};
use super::rule::{Rule, update_of};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Parts, Run, Scope, Stage, Threads, Totals};
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
}

impl<S: KeyValueStore> StoreTrainer<S> {
    /// A trainer of a program that an optimizer has completed; the store has its parameters ([`share`]).
    ///
    /// # Errors
    /// If the program has no updates, or a row-sparse parameter; if `loss` is not computed from sums and means over rows: how much
    /// the gradients of parts of a batch count would not be known.
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
        let parts = Parts::new(&own, registry, LossTerms::of(&own, registry, loss)?, threads.clone())?;
        let fetched: Vec<VarId> = gradients().chain(parts.wanted()).collect();
        let (executor, scope) = (Executor::on(&parts.body, registry, &fetched, threads)?, Scope::of(&own)?);
        Ok(Self { store, executor, scope, parts, shared, steps: 0 })
    }

    /// The number of its next step, which random operators draw by: 0, unless a training goes on whose store was
    /// [restored](KeyValueStore::restore).
    #[must_use]
    pub fn from_step(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// A step on a batch, or on this trainer's part of one; `numbers` are those of its sequences in the data, or none. Returns the
    /// loss: of its part if the loss is a mean over rows, else of the whole batch, for which the workers then wait for each other
    /// once more.
    ///
    /// # Errors
    /// If a feed does not fit; if the loss or a gradient is not finite, and then nothing was pushed; as the store's, which says
    /// when another worker has left.
    #[track_caller]
    pub fn step(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<f64> {
        let caller = Location::caller();
        self.stepped(feeds, numbers).map_err(|e| e.called(caller))
    }

    fn stepped(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<f64> {
        self.pull(|shared, height| shared.rows_read(height, feeds))?;
        let not_pushed = |e: Error| e.noted("nothing was pushed");
        let mut seeds = self.parts.seeds(None, &self.parts.zero())?;
        // What follows from the totals of all parts, if a forward pass gives them before the gradients.
        let mut known = None;
        if !self.parts.is_late() {
            let rows = |feed: VarId| Some(feeds.iter().find(|(id, _)| *id == feed)?.1.rows());
            let sequences =
                feeds.first().map_or(0, |(_, value)| value.lod().map_or(value.rows(), |lod| lod.sequences()));
            let counted = self.parts.counted(sequences, rows);
            let complete = counted.is_none();
            let part = match counted {
                Some(part) => part,
                None => self.run(feeds, &seeds, numbers, Stage::Forward).map_err(not_pushed)?,
            };
            let (all, parts) = self.all(&part)?;
            let whole = self.parts.whole(&mut self.scope, &all).map_err(not_pushed)?;
            seeds = self.parts.seeds(Some((&whole, &all)), &part)?;
            known = complete.then_some((whole, parts));
        }
        let part = self.run(feeds, &seeds, numbers, Stage::Gradients).map_err(not_pushed)?;
        let (whole, parts) = match known {
            Some(known) => known,
            None => {
                let alone = self.parts.is_mean();
                let (all, parts) = if alone { (part.clone(), 1.0) } else { self.all(&part)? };
                (self.parts.whole(&mut self.scope, &all).map_err(not_pushed)?, parts)
            }
        };
        let (factor, weight) = self.parts.in_mean(&whole, &part, parts);
        let mut gradients = Vec::with_capacity(self.shared.len());
        for Shared { name, grad, .. } in &self.shared {
            let gradient = self.executor.fetch(*grad)?.into_parts().0;
            checked_finite(&gradient, "gradient").map_err(|e| not_pushed(e.variable(name)))?;
            let without_rows = whole.gradients.iter().filter(|(of, _)| of == grad);
            let without_rows =
                without_rows.map(|(_, gradient)| Part { gradient: gradient.clone(), factor: 1.0 });
            gradients.push(merge(std::iter::once(Part { gradient, factor }).chain(without_rows).collect())?);
        }
        let loss = whole.loss;
        for (Shared { key, .. }, gradient) in self.shared.iter().zip(gradients) {
            self.store.push(key, gradient, weight)?;
        }
        self.steps += 1;
        self.store.end_round()?;
        Ok(loss)
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

    /// The totals of all workers' parts, and how many there are.
    fn all(&mut self, part: &Totals) -> Result<(Totals, f64)> {
        let numbers: Vec<f64> = part.numbers().chain([1.0]).collect();
        let all = self.store.sum(&numbers)?;
        Ok((Totals::of_numbers(&all), all.last().copied().unwrap_or(1.0)))
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
