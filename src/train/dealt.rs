//! The tables of a program whose rows are dealt to processes: which rows a batch reads, and the exchange of these rows.

use std::collections::BTreeMap;

use crate::data::{Batch, Data};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope, Threads};
use crate::on_data::{BatchRunner, DataBatch};
use crate::operator::{Debt, Registry, VarId};
use crate::optimizer::row_selections;
use crate::parallel::{Message, Reader, World};
use crate::program::{OpDesc, Program, Role, VarRole};
use crate::tensor::{DType, SelectedRows, add_row_numbers};

/// The tables of a program that are dealt to the processes of a training.
pub(super) struct DealtTables {
    tables: Vec<DealtTable>,
    /// The program that computes row numbers which are no feeds; `None` if there are none.
    selecting: Option<BatchRunner>,
}

/// A row-sparse parameter whose row r is on the process with rank r modulo the number of processes.
struct DealtTable {
    param: VarId,
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// The variables whose numbers select the rows that a batch reads.
    ids: Vec<VarId>,
    /// The states of the optimizer for this table.
    states: Vec<String>,
    /// Whether each process needs the gradients of all rows, for a norm over all gradients. Each process then computes the updates
    /// of all rows, and keeps its own.
    whole: bool,
    /// The rows of other processes that are in the scope.
    foreign: Vec<i64>,
}

impl DealtTables {
    pub(super) fn new(program: &Program, registry: &Registry, threads: Threads) -> Result<Self> {
        let mut tables = Vec::new();
        for (param, var) in
            program.vars().filter(|(_, var)| var.is_row_sparse() && var.role == VarRole::Parameter)
        {
            let Some(spec) = var.spec() else { continue };
            let ids = row_selections(program, registry, param)?.ok_or_else(|| {
                let expected = "a table whose rows are selected by row numbers";
                Error::of(ErrorKind::Program, "table to deal", expected, "a table of which all rows are read")
                    .variable(&var.name)
            })?;
            let updates = || program.root().ops.iter().filter(|op| op.role == Role::Update);
            let update = updates().find(|op| op.writes().any(|written| written == param));
            if let Some(update) = update
                && let Debt::Whole(reason) = registry.parse(&update.kind, &update.attributes)?.owes()
            {
                let expected = "an optimizer that updates each row by itself";
                return Err(
                    Error::of(ErrorKind::Program, "table to deal", expected, reason).variable(&var.name)
                );
            }
            let written: Vec<VarId> = update.iter().flat_map(|op| op.writes()).collect();
            let grad = update.and_then(|op| op.input("grad").first().copied());
            let states = written.iter().map(|&var| program.var(var)).filter(|state| state.is_row_sparse());
            let states = states.map(|state| state.name.clone()).filter(|name| *name != var.name).collect();
            let reads = |op: &&OpDesc| op.reads().any(|read| Some(read) == grad);
            let whole = updates()
                .filter(reads)
                .any(|op| op.writes().any(|v| Some(v) != grad && !written.contains(&v)));
            let (name, dtype) = (var.name.clone(), spec.dtype);
            let shape = spec.shape.iter().map(|extent| extent.known().unwrap_or(0)).collect();
            tables.push(DealtTable { param, name, dtype, shape, ids, states, whole, foreign: Vec::new() });
        }
        let mut computed: Vec<VarId> = tables.iter().flat_map(|table| &table.ids).copied().collect();
        computed.retain(|&id| program.var(id).role != VarRole::Feed);
        computed.sort();
        computed.dedup();
        let selecting = match computed.is_empty() {
            true => None,
            false => {
                let selecting = program.inference(&computed)?;
                // The rows of tables are pulled after this program has run, and it runs without carried states.
                let carried: Vec<VarId> = program.carried_states().map(|state| state.before).collect();
                let reads = selecting.reads();
                let unknown =
                    reads.iter().find(|id| carried.contains(id) || program.var(**id).is_row_sparse());
                if let Some(&id) = unknown {
                    let expected = "a table whose row numbers are computed from feeds and dense parameters";
                    let got = format!("row numbers that depend on `{}`", program.var(id).name);
                    return Err(Error::of(ErrorKind::Program, "table to deal", expected, got));
                }
                let executor = Executor::on(selecting, registry, &computed, threads)?;
                Some(BatchRunner::new(executor, std::iter::empty()))
            }
        };
        Ok(Self { tables, selecting })
    }

    /// Returns whether each process gets only its own rows of the summed gradient of a parameter.
    pub(super) fn has(&self, param: VarId) -> bool {
        self.tables.iter().any(|table| table.param == param && !table.whole)
    }

    /// Returns the numbers of the rows that batches read of each table, ascending and distinct.
    pub(super) fn rows_read(
        &mut self,
        program: &Program,
        scope: &mut Scope,
        data: &dyn Data,
        batches: &[&Batch],
        step: Option<u64>,
    ) -> Result<Vec<Vec<i64>>> {
        let mut rows = vec![Vec::new(); self.tables.len()];
        for batch in batches {
            if let Some(selecting) = &mut self.selecting {
                let fed = DataBatch { data, batch };
                selecting.run(
                    scope,
                    fed,
                    &mut BTreeMap::new(),
                    |feeds| step.map_or_else(|| Run::infer(feeds), |step| Run::train(feeds, step)),
                    |_| Ok(()),
                    |_, _, error| error,
                )?;
            }
            for (table, rows) in self.tables.iter().zip(&mut rows) {
                for &id in &table.ids {
                    let name = &program.var(id).name;
                    let fed =
                        batch.values.iter().find(|(fed, _)| fed == name).map(|(_, value)| value.clone());
                    let computing = self.selecting.as_mut().filter(|_| fed.is_none());
                    let computed = computing.map(|selecting| selecting.executor.fetch(id)).transpose()?;
                    if let Some(value) = fed.or(computed) {
                        add_row_numbers(value.storage(), rows);
                    }
                }
            }
        }
        for (table, rows) in self.tables.iter().zip(&mut rows) {
            // The operator that reads an invalid row returns an error for it.
            rows.retain(|&id| usize::try_from(id).is_ok_and(|id| id < table.shape[0]));
            rows.sort_unstable();
            rows.dedup();
        }
        Ok(rows)
    }

    /// Pulls the given rows of each table that other processes hold. A row that no update has touched is not sent, since its
    /// initial value is computed here.
    pub(super) fn pull(
        &mut self,
        scope: &mut Scope,
        world: &World,
        doing: &str,
        rows: Result<Vec<Vec<i64>>>,
    ) -> Result<()> {
        let (rank, size) = (world.rank(), world.size());
        let asked = |rank: usize, rows: &[Vec<i64>]| {
            let mut message = Message::default();
            for (table, rows) in self.tables.iter().zip(rows) {
                let ids: Vec<i64> = rows.iter().copied().filter(|&id| id as usize % size == rank).collect();
                message.ids(&ids, table.shape[0]);
            }
            message.0
        };
        let asked = rows.map(|rows| (0..size).map(|rank| asked(rank, &rows)).collect());
        let asked = world.agree_each(&format!("rows of {doing}"), asked)?;
        let mut answer = |message: &[u8]| {
            let (mut message, mut answer) = (Reader(message), Message::default());
            for table in &self.tables {
                let rows = scope.table(&table.name)?.touched_among(&message.ids(table.shape[0])?)?;
                answer.rows(&rows, &(0..rows.row_ids().len()).collect::<Vec<_>>())?;
            }
            Ok(answer.0)
        };
        let answers = asked.iter().enumerate();
        let answers = answers.map(|(to, message)| if to == rank { Ok(Vec::new()) } else { answer(message) });
        let all = world.agree_each(&format!("rows of {doing}"), answers.collect())?;
        for (from, message) in all.iter().enumerate().filter(|(from, _)| *from != rank) {
            let mut message = Reader(message);
            for DealtTable { name, dtype, shape, foreign, .. } in &mut self.tables {
                let rows = message.rows(*dtype, shape)?;
                if let Some(id) = rows.row_ids().iter().find(|id| **id as usize % size != from) {
                    let (what, expected) = (format!("rows of rank {from}"), "rows that it holds");
                    return Err(
                        Error::of(ErrorKind::Format, what, expected, format!("row {id}")).variable(&**name)
                    );
                }
                scope.table(name)?.insert(&rows)?;
                foreign.extend_from_slice(rows.row_ids());
            }
        }
        Ok(())
    }

    /// Notes that the next update also changes the rows of other processes that a whole gradient has.
    pub(super) fn note(&mut self, param: VarId, gradient: &SelectedRows, (rank, size): (usize, usize)) {
        for table in self.tables.iter_mut().filter(|table| table.param == param && table.whole) {
            table.foreign.extend(gradient.row_ids().iter().filter(|id| **id as usize % size != rank));
        }
    }

    /// Removes the rows of other processes from the scope.
    pub(super) fn release(&mut self, scope: &mut Scope) -> Result<()> {
        for DealtTable { name, states, whole, foreign, .. } in &mut self.tables {
            scope.table(name)?.remove(foreign)?;
            if *whole {
                states.iter().try_for_each(|state| scope.table(state)?.remove(foreign))?;
            }
            foreign.clear();
        }
        Ok(())
    }
}
