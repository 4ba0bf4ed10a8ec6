//! Checkpoints of several ranks: each rank writes a file with its rows of the row-sparse variables, and one file has the rest.

use std::collections::BTreeMap;
use std::path::Path;

use super::checkpoint::Checkpoint;
use super::sections::{BEST, BEST_ROWS, ROWS, TENSOR};
use super::shard_files::{self, ShardFiles};
use super::tensor;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Scope;
use crate::tensor::{SelectedRows, Storage, StorageKind};
use crate::wire;

/// The rows of row-sparse variables by the section and the name of the variable: the rows of each file that was read.
type RowsByName = BTreeMap<(bool, String), Vec<SelectedRows>>;

impl Checkpoint {
    /// Loads a checkpoint as [`Self::load`] does. Of the row-sparse variables, only the rows of one rank are returned, which is
    /// given as (rank, number of ranks): row r belongs to rank r modulo the number of ranks.
    pub(crate) fn load_own_rows(path: &Path, own: (usize, usize)) -> Result<Self> {
        Self::read(wire::open(path)?)?.with_shards(path, Some(own))
    }

    /// Writes a rank file: the rows in `scope` and in the parameters of the best epoch. Returns the checksum of the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn save_rows(&self, scope: &mut Scope, path: &Path) -> Result<u64> {
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
        shard_files::checksum(path)
    }

    /// Adds the rows of the rank files beside `path`, the file of this checkpoint; keeps only the rows of the rank `own`, if it
    /// is given.
    pub(super) fn with_shards(mut self, path: &Path, own: Option<(usize, usize)>) -> Result<Self> {
        let mut rows = RowsByName::new();
        if let Some(shards) = self.shards.take() {
            let files = shards.sums.len();
            // If the number of ranks is unchanged, a rank has all its rows in its own file.
            let needed = |file: &usize| own.is_none_or(|(rank, ranks)| ranks != files || rank == *file);
            for file in (0..files).filter(needed) {
                self.read_rows(&shards, path, file, own, &mut rows)?;
            }
        } else if own.is_some() {
            for (best, values) in [(false, &mut self.tensors), (true, &mut self.best)] {
                for (name, value) in values.iter_mut() {
                    if let Storage::SelectedRows(all) = value {
                        rows.insert((best, name.clone()), vec![own_rows(all, own)?]);
                    }
                }
            }
        }
        for ((best, name), shares) in rows {
            let to = if best { &mut self.best } else { &mut self.tensors };
            to.insert(name, SelectedRows::joined(&shares)?.into());
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
        own: Option<(usize, usize)>,
        to: &mut RowsByName,
    ) -> Result<()> {
        let files = shards.sums.len();
        let mut reader = wire::open(&shards.checked(path, file)?)?;
        while let Some(section) = reader.next_section()?.map(str::to_owned) {
            if !matches!(&*section, ROWS | BEST_ROWS) {
                reader.end_section()?;
                continue;
            }
            let (name, value) = tensor::read(&mut reader, &section, &self.program)?;
            let value = value.into_parts().0;
            let rows = value.as_selected_rows()?;
            if let Some(id) = rows.row_ids().iter().find(|id| **id as usize % files != file) {
                let expected = format!("rows whose numbers modulo {files} are {file}");
                return Err(reader.refused(&name, expected, format!("row {id}")));
            }
            to.entry((section == BEST_ROWS, name)).or_default().push(own_rows(rows, own)?);
        }
        Ok(())
    }
}

/// Returns the rows that belong to a rank; all rows for `None`.
fn own_rows(rows: &SelectedRows, own: Option<(usize, usize)>) -> Result<SelectedRows> {
    own.map_or_else(|| Ok(rows.clone()), |own| rows.at(&rows.positions_of(own)))
}
