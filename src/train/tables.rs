//! A trainer whose tables are dealt to processes: each process holds some rows of each row-sparse parameter, pulls the rows that
//! its parts of a step read, and saves its rows beside the checkpoint.

use std::path::{Path, PathBuf};

use super::trainer::Trainer;
use super::training::TrainingState;
use crate::checkpoint::shard_files::{self, ShardFiles};
use crate::checkpoint::{Checkpoint, Position, RowFilter};
use crate::data::{Batch, Data};
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::parallel::Reader;
use crate::program::VarRole;
use crate::tensor::{Storage, StorageKind};
use crate::wire::Target;

impl Trainer {
    /// Deals the rows of each [row-sparse parameter](crate::Builder::row_sparse_parameter) to the processes of a
    /// [distributed](Self::distributed) training, so that a table may be larger than the memory of one process. With N
    /// processes, row r of the table and of the optimizer's state is only on the process with rank r modulo N. In each step, a
    /// process pulls the rows that its parts of the batch read, in two exchanges; the process that holds a row sums its gradients
    /// and updates the row. The parameters are bit-identical to the parameters of a training that does not deal its tables. If gradients
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

    /// Reads the rows of this process from a checkpoint file, from which rank 0 has taken the rest of the state.
    pub(super) fn take_own_rows(&mut self, file: &Path) -> Result<()> {
        let Some(own) = self.own_rows() else { return Ok(()) };
        let mut from = Checkpoint::load_rows(file, &RowFilter::Own(own))?;
        let progress = |at: &Position| [at.epoch, at.batch, at.step, at.tokens];
        if progress(&from.position) != progress(&self.training.position) {
            let (what, expected) = (format!("file `{}`", file.display()), self.training.position.to_string());
            return Err(Error::of(ErrorKind::Io, what, expected, from.position.to_string())
                .noted("the file changed after rank 0 had read it, or the processes see different folders"));
        }
        from.tensors.retain(|_, value| value.kind() == StorageKind::SelectedRows);
        from.best.retain(|_, value| value.kind() == StorageKind::SelectedRows);
        from.restore(&mut self.training.scope)?;
        self.training.best.extend(from.best);
        self.training.dealt_as = Some(own);
        Ok(())
    }

    /// Saves the training to `target`, which only rank 0 has; each process writes its rows to a file beside it. An error of one
    /// process is an error of all. Does nothing if rank 0 has no target.
    pub(super) fn save_together(&mut self, target: Result<Option<&Target>>) -> Result<()> {
        let (Some(own), Some(world)) = (self.own_rows(), self.others().cloned()) else {
            return target?.map_or(Ok(()), |target| self.save_to(target));
        };
        self.keep_own_rows()?;
        let about = target.as_ref().map_err(Error::clone).and_then(|target| {
            let Some(target) = target else { return Ok(Vec::new()) };
            let name = shard_files::next_name(target.path())?;
            Ok([&[name][..], &bytes_of_path(target.path())].concat())
        });
        let doing = "saving of dealt tables";
        let about = world.agree(doing, about)?.swap_remove(0);
        let Some((&name, path)) = about.split_first() else { return Ok(()) };
        let written = path_of_bytes(path).and_then(|set| {
            let TrainingState { state, scope, .. } = &mut self.training;
            state.save_rows(scope, (&set, name), own)
        });
        let noted = |e: Error| {
            e.noted("each process writes its rows of dealt tables to the folder of the checkpoint")
        };
        let sums = written.map(|sum| sum.to_le_bytes().to_vec()).map_err(noted);
        let all = world.agree(doing, sums)?;
        let sums = all.iter().map(|sum| Reader(sum).number()).collect::<Result<_>>()?;
        let saved = target?.map_or(Ok(()), |target| {
            self.training.state.shards = Some(ShardFiles { name, sums });
            let saved = self.save_to(target);
            self.training.state.shards = None;
            saved
        });
        world.agree(doing, saved.map(|()| Vec::new())).map(drop)
    }

    /// Sets a parameter; of a dealt table, only the rows of this process.
    #[track_caller]
    pub(super) fn set_value(&mut self, name: &str, value: Storage) -> Result<()> {
        let value = match (value, self.training.dealt_as) {
            (Storage::SelectedRows(rows), Some(own)) => rows.at(&rows.positions_of(own))?.into(),
            (value, _) => value,
        };
        // The last checkpoint no longer has the rows of this training.
        self.training.saved = self.training.saved.take().filter(|_| self.training.dealt_as.is_none());
        self.training.scope.set(name, value)
    }

    /// Keeps only the rows of this process, in the parameters and in the parameters of the best epoch.
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

/// Returns the bytes of a path in a message to other processes.
pub(super) fn bytes_of_path(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// Returns the path in a message of another process.
pub(super) fn path_of_bytes(bytes: &[u8]) -> Result<PathBuf> {
    #[cfg(unix)]
    return Ok(std::os::unix::ffi::OsStrExt::from_bytes(bytes)).map(|path: &std::ffi::OsStr| path.into());
    #[cfg(not(unix))]
    match std::str::from_utf8(bytes) {
        Ok(path) => Ok(path.into()),
        Err(_) => Err(Error::of(ErrorKind::Io, "path of a checkpoint", "UTF-8", "other bytes")),
    }
}
