//! Ids and labels: whole numbers, i64 or i32; an id names a row of a table, a label names a class.

use crate::ops::prelude::*;

/// The ids of a call, one per row, in either of the two allowed dtypes.
pub(in crate::ops) enum Ids<'a> {
    I32(View<'a, i32>),
    I64(View<'a, i64>),
}

impl<'a> Ids<'a> {
    #[track_caller]
    pub(in crate::ops) fn of(run: &CallInputs<'a>, slot: usize) -> Result<Self> {
        match run.dtype(slot) {
            DType::I32 => run.input(slot).map(Ids::I32),
            _ => run.input(slot).map(Ids::I64),
        }
    }

    pub(in crate::ops) fn len(&self) -> usize {
        match self {
            Ids::I32(ids) => ids.rows(),
            Ids::I64(ids) => ids.rows(),
        }
    }

    pub(in crate::ops) fn get(&self, row: usize) -> i64 {
        match self {
            Ids::I32(ids) => ids.row(row)[0].into(),
            Ids::I64(ids) => ids.row(row)[0],
        }
    }

    /// Checks the id of row `row` and returns it as an index into a table with `height` rows; errors call the table
    /// `table`.
    ///
    /// # Errors
    /// Returns an error if the id is negative or not below the height.
    pub(in crate::ops) fn index(&self, row: usize, height: usize, table: &str) -> Result<usize> {
        let id = self.get(row);
        index(id, height)
            .ok_or_else(|| Error::new("id", below(height), id.to_string()).variable(table).row(row))
    }

    /// Returns the class that the label of row `row` names; `None` if the label is the ignored label.
    ///
    /// # Errors
    /// Returns an error if the label is negative or not below `classes`.
    pub(in crate::ops) fn class(
        &self,
        row: usize,
        classes: usize,
        ignore: Option<i64>,
    ) -> Result<Option<usize>> {
        let label = self.get(row);
        if ignore == Some(label) {
            return Ok(None);
        }
        match index(label, classes) {
            Some(class) => Ok(Some(class)),
            None => {
                let expected = format!("at least 0 and below {classes}, the number of classes");
                Err(Error::new("label", expected, label.to_string()).row(row))
            }
        }
    }
}

/// Returns an id as an index; returns `None` if the id is negative or not below `limit`.
pub(in crate::ops) fn index(id: i64, limit: usize) -> Option<usize> {
    usize::try_from(id).ok().filter(|&i| i < limit)
}

/// Describes the valid ids of a table with `height` rows, for error messages.
pub(in crate::ops) fn below(height: usize) -> String {
    format!("at least 0 and below {height}, the height")
}

/// Returns an error unless an input slot holds one id (i32 or i64) per row.
pub(in crate::ops) fn check(s: &InferShape<'_>, slot: usize) -> Result<()> {
    s.dtype_in(slot, &[DType::I64, DType::I32])?;
    let spec = s.input(slot);
    if !spec.batched() || spec.width() != 1 || spec.shape.len() > 2 {
        return Err(s.mismatch(slot, "one whole number for each row, shape [rows] or [rows, 1]"));
    }
    Ok(())
}
