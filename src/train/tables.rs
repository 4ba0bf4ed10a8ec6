//! Tables that are dealt to processes: each process holds some rows of each row-sparse parameter, and pulls the rows that its
//! parts of a step read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::step::unprepared;
use super::trainer::Trainer;
use super::training::TrainingState;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::shard_files::{self, ShardFiles};
use crate::data::{Batch, Data};
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope, Threads};
use crate::on_data::{BatchRunner, DataBatch};
use crate::operator::{Registry, VarId};
use crate::optimizer::row_selections;
use crate::parallel::{Message, Reader, World};
use crate::program::{Program, Role, VarRole};
use crate::tensor::{DType, SelectedRows, Storage, StorageKind, add_row_numbers};
use crate::wire::Target;

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
            let written: Vec<VarId> = update.iter().flat_map(|op| op.writes()).collect();
            let grad = update.and_then(|op| op.input("grad").first().copied());
            let states = written.iter().map(|&var| program.var(var)).filter(|state| state.is_row_sparse());
            let states = states.map(|state| state.name.clone()).filter(|name| *name != var.name).collect();
            let reads = |op: &&crate::program::OpDesc| op.reads().any(|read| Some(read) == grad);
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
                let program = program.inference(&computed)?;
                let executor = Executor::on(&program, registry, &computed, threads)?;
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
    fn rows_read(
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
    fn pull(
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
                if rows.row_ids().iter().any(|&id| id as usize % size != from) {
                    return Err(unprepared());
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
    fn release(&mut self, scope: &mut Scope) -> Result<()> {
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

impl Trainer {
    /// Deals the rows of each [row-sparse parameter](crate::Builder::row_sparse_parameter) to the processes of a
    /// [distributed](Self::distributed) training, so that a table may be larger than the memory of one process. With N
    /// processes, row r of the table and of the optimizer's state is only on the process with rank r modulo N. In each step, a
    /// process pulls the rows that its parts of the batch read, in two exchanges; the process that holds a row sums its gradients
    /// and updates the row. The parameters are bit-identical to those of a training that does not deal its tables. If gradients
    /// are clipped by their [norm](crate::optimizer::Options::max_norm), the gradients of all rows are sent to all processes, as
    /// without `deal_tables`.
    ///
    /// Each process writes its rows to a file beside the [checkpoint](Self::checkpoint), in a folder that all processes must
    /// see. The checkpoint is loaded like any other, by any number of processes. All processes must call [`Self::save`],
    /// [`Self::evaluate`] and [`Self::use_best`] together. [`Self::scope`] has the rows of this process only.
    ///
    /// ```
    /// use unpadded::data::{Batching, Field, Loader, Samples};
    /// use unpadded::layers::Embedding;
    /// use unpadded::ops::Pool;
    /// use unpadded::optimizer::Adam;
    /// use unpadded::parallel::{ThreadRank, World, threads};
    /// use unpadded::train::{Progress, Trainer, Until};
    /// use unpadded::{Builder, DType};
    /// let train = |rank: ThreadRank| {
    ///     let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    ///     let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(8));
    ///     let net = Builder::new().seed(1);
    ///     let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    ///     let h = words.embedding(Embedding::new(1 << 40, 8).row_sparse()).sequence_pool(Pool::Last);
    ///     let loss = h.linear(2).cross_entropy(label).mean();
    ///     let trainer = Trainer::new(net, loss, &Adam::new(0.1).lazy())?.deal_tables();
    ///     let mut trainer = trainer.distributed(World::new(rank)).progress(Progress::Quiet);
    ///     trainer.fit(&data, &data, Until::Epochs(2))?;
    ///     Ok(trainer.scope().value("embedding_0.weight")?.as_selected_rows()?.row_ids().to_vec())
    /// };
    /// let rows: Vec<Vec<i64>> = std::thread::scope(|scope| {
    ///     let ranks: Vec<_> = threads(2).into_iter().map(|rank| scope.spawn(move || train(rank))).collect();
    ///     ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<_, unpadded::Error>>()
    /// })?;
    /// assert_eq!(rows, [vec![0, 2, 4, 6], vec![1, 3, 5]]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`fit`](Self::fit) returns an error if the model has no row-sparse parameter.
    #[must_use]
    #[track_caller]
    pub fn deal_tables(mut self) -> Self {
        (self.settings.division.deal_tables, self.step.programs) = (Some(CallerSetting::new(())), None);
        self
    }

    /// Returns the rank of this process and the number of processes if tables are dealt to several processes.
    pub(super) fn own_rows(&self) -> Option<(usize, usize)> {
        self.settings.division.deal_tables.as_ref()?;
        self.others().map(|world| (world.rank(), world.size()))
    }

    pub(super) fn check_tables(&self) -> Result<()> {
        if let Some((rank, size)) = self.training.dealt_as.filter(|known| self.own_rows() != Some(*known)) {
            let expected = format!("rank {rank} of {size} processes, whose rows this trainer holds");
            let got = self
                .own_rows()
                .map_or("one process".to_owned(), |(rank, size)| format!("rank {rank} of {size}"));
            return Err(Error::of(ErrorKind::Program, "process of dealt tables", expected, got)
                .noted("a new trainer loads the rows of other processes from a checkpoint"));
        }
        let Some(given) = &self.settings.division.deal_tables else { return Ok(()) };
        if self.training.program.vars().any(|(_, var)| var.is_row_sparse()) {
            return Ok(());
        }
        let expected = "a row-sparse parameter, as `Embedding::row_sparse` makes";
        Err(Error::of(ErrorKind::Program, "tables to deal", expected, "none").called(given.line))
    }

    /// Pulls the rows of dealt tables that `batches` read, for a training step or (without `step`) for an evaluation.
    pub(super) fn pull_rows(&mut self, data: &dyn Data, batches: &[&Batch], step: Option<u64>) -> Result<()> {
        let Some(world) = self.others().cloned() else { return Ok(()) };
        self.keep_own_rows()?;
        let TrainingState { scope, state, .. } = &mut self.training;
        let Some(tables) = &mut self.step.compiled()?.tables else { return Ok(()) };
        tables.release(scope)?;
        let doing = step.map_or("an evaluation".to_owned(), |step| format!("step {}", step + 1));
        let rows = tables.rows_read(&state.program, scope, data, batches, step);
        tables.pull(scope, &world, &doing, rows)
    }

    /// Removes the rows of other processes from the dealt tables.
    pub(super) fn release_rows(&mut self) -> Result<()> {
        for compiled in self
            .step
            .programs
            .iter_mut()
            .flat_map(|all| std::iter::once(&mut all.main).chain(&mut all.divided))
        {
            if let Some(tables) = &mut compiled.tables {
                tables.release(&mut self.training.scope)?;
            }
        }
        Ok(())
    }

    /// Reads the rows of this process from a checkpoint file.
    pub(super) fn take_own_rows(&mut self, file: &Path) -> Result<()> {
        let Some(own) = self.own_rows() else { return Ok(()) };
        let mut from = Checkpoint::load_own_rows(file, own)?;
        from.tensors.retain(|_, value| value.kind() == StorageKind::SelectedRows);
        from.best.retain(|_, value| value.kind() == StorageKind::SelectedRows);
        from.restore(&mut self.training.scope)?;
        self.training.best.extend(from.best);
        self.training.dealt_as = Some(own);
        Ok(())
    }

    /// Writes the rows of this process to a file beside `target`, which rank 0 has. Returns the list of all files; `None` if no
    /// tables are dealt, or if there is no target.
    pub(super) fn save_own_rows(&mut self, target: Option<&Target>) -> Result<Option<ShardFiles>> {
        let Some(own) = self.own_rows() else { return Ok(None) };
        let Some(world) = self.others().cloned() else { return Ok(None) };
        self.keep_own_rows()?;
        let mut about = Vec::new();
        if let Some(target) = target {
            about.push(shard_files::next_name(target.path()));
            about.extend(target.path().as_os_str().as_encoded_bytes());
        }
        let about = world.agree("files of dealt tables", Ok(about))?.swap_remove(0);
        let Some((&name, path)) = about.split_first() else { return Ok(None) };
        let set = PathBuf::from(String::from_utf8_lossy(path).into_owned());
        let TrainingState { state, scope, .. } = &mut self.training;
        let written = shard_files::path(&set, name, own).and_then(|path| state.save_rows(scope, &path));
        let noted = |e: Error| {
            e.noted("each process writes its rows of dealt tables to the folder of the checkpoint")
        };
        let sums = written.map(|sum| sum.to_le_bytes().to_vec()).map_err(noted);
        let all = world.agree("files of dealt tables", sums)?;
        let sums = all.iter().map(|sum| Reader(sum).number()).collect::<Result<_>>()?;
        Ok(Some(ShardFiles { name, sums }))
    }

    /// Keeps only the rows of this process, in the parameters and in those of the best epoch.
    pub(super) fn keep_own_rows(&mut self) -> Result<()> {
        let Some(own) = self.own_rows().filter(|_| self.training.dealt_as.is_none()) else { return Ok(()) };
        let names: Vec<String> = self.row_sparse().collect();
        for name in names {
            let value = self.training.scope.value(&name)?;
            let rows = value.as_selected_rows()?;
            self.training.scope.set(&name, rows.at(&rows.positions_of(own))?)?;
        }
        for value in self.training.state.best.values_mut() {
            if let Storage::SelectedRows(rows) = value {
                *rows = rows.at(&rows.positions_of(own))?;
            }
        }
        self.training.dealt_as = Some(own);
        Ok(())
    }

    /// Returns the names of the row-sparse parameters and states.
    pub(super) fn row_sparse(&self) -> impl Iterator<Item = String> {
        let vars = self.training.program.vars().filter(|(_, var)| var.is_row_sparse());
        vars.map(|(_, var)| var.name.clone())
    }

    /// Returns the names of the row-sparse parameters.
    pub(super) fn row_sparse_parameters(&self) -> impl Iterator<Item = String> {
        let vars = self.training.program.vars().map(|(_, var)| var);
        let vars = vars.filter(|var| var.is_row_sparse() && var.role == VarRole::Parameter);
        vars.map(|var| var.name.clone())
    }

    /// Returns the bytes of the rows that this process holds of dealt tables and their states.
    pub(super) fn bytes_of_tables(&mut self) -> Result<u64> {
        if self.own_rows().is_none() {
            return Ok(0);
        }
        let names: Vec<String> = self.row_sparse().collect();
        let bytes = names.iter().map(|name| Ok(self.training.scope.table(name)?.bytes() as u64));
        bytes.sum()
    }
}
