//! Checkpoints of several ranks: each rank writes a file with its rows of the row-sparse variables, and one file has the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::checkpoint::Checkpoint;
use super::sections::{BEST, BEST_ROWS, ROWS, TENSOR};
use super::shard_files::{self, ShardFiles};
use super::tensor;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Scope;
use crate::program::VarRole;
use crate::tensor::{SelectedRows, Storage, StorageKind};
use crate::wire;

/// The rows of row-sparse variables by the section and the name of the variable: the rows of each file that was read.
type RowsByName = BTreeMap<(bool, String), Vec<SelectedRows>>;

/// Which rows of row-sparse variables are loaded.
pub(crate) enum RowFilter {
    All,
    /// The rows of one rank, given as (rank, number of ranks): row r belongs to rank r modulo the number of ranks.
    Own((usize, usize)),
    /// The parameters of the best epoch or, if there is none, the last parameters; no states.
    Predicting,
}

impl RowFilter {
    /// Returns the rows to keep of a variable; `None` if none of its rows are needed.
    fn keep(
        &self,
        checkpoint: &Checkpoint,
        (best, name): (bool, &str),
        rows: SelectedRows,
    ) -> Result<Option<SelectedRows>> {
        let is_state =
            checkpoint.program.find(name).is_some_and(|id| checkpoint.program.var(id).role == VarRole::State);
        match self {
            Self::All => Ok(Some(rows)),
            Self::Own(own) => rows.at(&rows.positions_of(*own)).map(Some),
            Self::Predicting => {
                Ok(Some(rows).filter(|_| best == checkpoint.position.best.is_some() && !is_state))
            }
        }
    }
}

impl Checkpoint {
    /// Loads a checkpoint as [`Self::load`] does. This function is not generic, so it is compiled only once, not in every
    /// calling crate.
    pub(super) fn load_file(path: &Path) -> Result<Self> {
        Self::load_rows(path, &RowFilter::All)
    }

    /// Loads a checkpoint as [`Self::load`] does, with only the rows of row-sparse variables that a filter keeps.
    pub(crate) fn load_rows(path: &Path, filter: &RowFilter) -> Result<Self> {
        let read = wire::open(path).and_then(Self::read).map_err(|e| match path.file_name() {
            Some(name) if name.to_string_lossy().contains("-of-") => e.noted(
                "a file with `-of-` in its name has the rows of one process: load the checkpoint beside it",
            ),
            _ => e,
        })?;
        // The rank files lie beside the file itself, not beside a link to it.
        let file = std::fs::canonicalize(path);
        read.with_shards(file.as_deref().unwrap_or(path), filter)
    }

    /// Writes a rank file beside `set`, the file of a checkpoint: the rows in `scope` and in the parameters of the best epoch.
    /// Returns the checksum of the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn save_rows(
        &self,
        scope: &mut Scope,
        (set, name): (&Path, u8),
        own: (usize, usize),
    ) -> Result<u64> {
        let path = &shard_files::path(set, name, own)?;
        shard_files::check(path)?;
        wire::write_atomically(path, |out| {
            for (_, var) in self.program.vars().filter(|(_, var)| var.is_row_sparse()) {
                let value = scope.value(&var.name)?;
                value.check_finite("value to save").map_err(|e| e.variable(&var.name))?;
                tensor::write_value(out, TENSOR, &var.name, &value)?;
            }
            let best = self.best.iter().filter(|(_, value)| value.kind() == StorageKind::SelectedRows);
            for (name, value) in best {
                value.check_finite("value of the best epoch, to save").map_err(|e| e.variable(name))?;
                tensor::write_value(out, BEST, name, value)?;
            }
            Ok(())
        })?;
        // The rank files have the permissions of the checkpoint; a file system without permissions needs none.
        if let Ok(about) = std::fs::metadata(set) {
            drop(std::fs::set_permissions(path, about.permissions()));
        }
        shard_files::checksum(path)
    }

    /// Adds the rows of the rank files beside `path`, the file of this checkpoint, that the filter keeps.
    fn with_shards(mut self, path: &Path, filter: &RowFilter) -> Result<Self> {
        let mut rows = RowsByName::new();
        if let Some(shards) = self.shards.take() {
            let files = shards.sums.len();
            // If the number of ranks is unchanged, a rank has all its rows in its own file.
            let needed = |file: &usize| match filter {
                RowFilter::Own((rank, ranks)) => *ranks != files || rank == file,
                _ => true,
            };
            for file in (0..files).filter(needed) {
                self.read_rows(&shards, path, file, filter, &mut rows)?;
            }
        } else if let RowFilter::Own(own) = filter {
            for value in self.tensors.values_mut().chain(self.best.values_mut()) {
                if let Storage::SelectedRows(all) = value {
                    *all = all.at(&all.positions_of(*own))?;
                }
            }
        }
        for ((best, name), shares) in rows {
            let to = if best { &mut self.best } else { &mut self.tensors };
            to.insert(name, SelectedRows::joined(&shares)?.into());
        }
        if matches!(filter, RowFilter::Predicting) {
            return Ok(self);
        }
        let shown = format!("file `{}`", path.display());
        let wrong = |what: &str, expected: &str, got: &str| {
            Error::of(ErrorKind::Format, format!("{shown}: {what}"), expected, got)
        };
        self.check_all(&wrong)?;
        Ok(self)
    }

    fn read_rows(
        &self,
        shards: &ShardFiles,
        path: &Path,
        file: usize,
        filter: &RowFilter,
        to: &mut RowsByName,
    ) -> Result<()> {
        let files = shards.sums.len();
        let mut reader = wire::open(&shards.checked(path, file)?)?;
        let mut known = BTreeSet::new();
        while let Some(section) = reader.next_section()?.map(str::to_owned) {
            if !matches!(&*section, ROWS | BEST_ROWS) {
                reader.end_section()?;
                continue;
            }
            let (name, value) = tensor::read(&mut reader, &section, &self.program)?;
            let Storage::SelectedRows(rows) = value.into_parts().0 else { continue };
            if let Some(id) = rows.row_ids().iter().find(|id| **id as usize % files != file) {
                let expected = format!("rows whose numbers modulo {files} are {file}");
                return Err(reader.refused(&name, expected, format!("row {id}")));
            }
            let best = section == BEST_ROWS;
            if !known.insert((best, name.clone())) {
                return Err(reader.refused(&name, "the name once", "the name twice"));
            }
            if let Some(rows) = filter.keep(self, (best, &name), rows)? {
                to.entry((best, name)).or_default().push(rows);
            }
        }
        Ok(())
    }
}
