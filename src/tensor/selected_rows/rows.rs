//! The rows of the storage selected rows: creation, access and selection.

use super::SelectedRows;
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense};

impl SelectedRows {
    /// Makes a table without stored rows: every number is 0. `shape` is the height of the table, then the extents of a
    /// row.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::SelectedRows;
    /// let nothing = SelectedRows::zeros(DType::F32, &[1_000_000, 3])?;
    /// assert_eq!((nothing.height(), nothing.row_ids().len()), (1_000_000, 0));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has no dimensions, or if a row is too large for memory.
    #[doc(alias = "empty")]
    #[track_caller]
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        let Some((&height, row)) = shape.split_first() else {
            return Err(Error::new("shape of selected rows", "at least one dimension", "[]"));
        };
        Self::new(height, Vec::new(), Dense::zeros(dtype, &[&[0], row].concat())?)
    }

    /// Returns a row of the table: zeros if the row is not stored, the sum if several stored rows have this row number.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::new(4, vec![2, 0, 2], array![[1.0f32], [2.0], [3.0]])?;
    /// assert_eq!((x.row(2)?, x.row(1)?), (array![4.0f32].into(), array![0.0f32].into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the row number is not less than the height.
    #[track_caller]
    pub fn row(&self, row: usize) -> Result<Dense> {
        self.check_row(row)?;
        let places: Vec<usize> = (0..self.rows.len()).filter(|&at| self.rows[at] == row as i64).collect();
        if places.is_empty() {
            return Dense::zeros(self.dtype(), &self.shape[1..]);
        }
        let (sum, _) = self.value.sum_runs(&places, &|_, _| true).at_caller()?;
        sum.reshape(&self.shape[1..])
    }

    /// Keeps the stored rows with the listed row numbers, and removes all other rows. Row numbers may be listed in any
    /// order and repeatedly; numbers of rows that are not stored are ignored.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::new(4, vec![2, 0, 3], array![[1.0f32], [2.0], [3.0]])?;
    /// assert_eq!(x.retain(&[3, 2, 1])?.row_ids(), [2, 3]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a listed row number is negative or not less than the height.
    #[track_caller]
    pub fn retain(&self, ids: &[i64]) -> Result<Self> {
        let height = self.height();
        if let Some(index) = ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= height)) {
            let expected = format!("0 or more and below the table's height of {height}");
            return Err(Error::new(
                format!("row to retain at place {index}"),
                expected,
                ids[index].to_string(),
            ));
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let stored = 0..self.rows.len();
        let kept: Vec<usize> = stored.filter(|&at| sorted.binary_search(&self.rows[at]).is_ok()).collect();
        let rows = kept.iter().map(|&at| self.rows[at]).collect();
        Ok(Self { shape: self.shape.clone(), rows, value: self.value.gather_rows(&kept)? })
    }

    #[track_caller]
    fn check_row(&self, row: usize) -> Result<()> {
        if row < self.height() {
            return Ok(());
        }
        let expected = format!("below the table's height of {}", self.height());
        Err(Error::new("row of selected rows", expected, row.to_string()))
    }
}
