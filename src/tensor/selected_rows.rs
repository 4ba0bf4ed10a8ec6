//! Selected rows: a storage for tensors that store only some rows of a tall table, such as the gradient of an
//! embedding.

mod arithmetic;
mod rows;

use std::borrow::Cow;

use super::{DType, Dense};
use crate::error::{AtCaller, Error, Result};

/// Some rows of a table of `height` rows; all other rows are 0. The stored rows may be in any order. If several stored
/// rows have the same row number, the row of the table is their SUM.
///
/// Call [`merge`](SelectedRows::merge) before you compute a norm or a non-linear function of
/// [`value`](SelectedRows::value): the result is wrong if row numbers are repeated.
///
/// ```
/// use ndarray::array;
/// use unpadded::tensor::SelectedRows;
/// let grad = SelectedRows::new(4, vec![2, 0, 2], array![[1.0f32], [2.0], [3.0]])?.merge()?;
/// assert_eq!(grad.row_ids(), [0, 2]);
/// assert_eq!(grad.value().as_slice::<f32>()?, [2.0, 4.0]);
/// assert_eq!(grad.densify()?.as_slice::<f32>()?, [2.0, 0.0, 4.0, 0.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[doc(alias = "row_sparse")]
#[doc(alias = "IndexedSlices")]
#[derive(Clone, PartialEq)]
pub struct SelectedRows {
    shape: Vec<usize>,
    rows: Vec<i64>,
    value: Dense,
}

impl SelectedRows {
    /// Makes selected rows from the row numbers and the stored rows; `value` has shape `[rows.len(), …]`.
    ///
    /// # Errors
    /// Fails if `value` does not have exactly one row per row number, or if a row number is negative or not less than
    /// `height`.
    #[track_caller]
    pub fn new(height: usize, rows: Vec<i64>, value: impl Into<Dense>) -> Result<Self> {
        let value = value.into();
        let mut shape = value.shape().to_vec();
        match shape.first_mut() {
            Some(first) if *first == rows.len() => *first = height,
            _ => {
                let expected = format!("[{}, …], one row for each number", rows.len());
                return Err(Error::new("shape of selected rows", expected, format!("{shape:?}")));
            }
        }
        match rows.iter().position(|&row| usize::try_from(row).map_or(true, |row| row >= height)) {
            None => Ok(Self { shape, rows, value }),
            Some(index) => {
                let what = format!("selected row at place {index}");
                let expected = format!("0 or more and below the table's height of {height}");
                Err(Error::new(what, expected, rows[index].to_string()))
            }
        }
    }

    /// Converts a dense tensor: stores the rows in which at least one number is not 0.
    ///
    /// # Errors
    /// Fails if the tensor has no dimension.
    #[track_caller]
    pub fn from_dense(dense: &Dense) -> Result<Self> {
        if dense.shape().is_empty() {
            return Err(Error::new("rows of a tensor", "at least one dimension", "shape []"));
        }
        let kept = dense.nonzero_rows().at_caller()?;
        let rows = kept.iter().map(|&row| row as i64).collect();
        Self::new(dense.rows(), rows, dense.gather_rows(&kept)?)
    }

    /// Returns the dtype of the values.
    pub fn dtype(&self) -> DType {
        self.value.dtype()
    }

    /// Returns the shape of the table: the height, then the extents of a row.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the height: the number of all rows of the table, whether stored or not.
    pub fn height(&self) -> usize {
        self.shape[0]
    }

    /// Returns the row number of each stored row.
    pub fn row_ids(&self) -> &[i64] {
        &self.rows
    }

    /// Returns the stored rows: one row for each row number.
    pub fn value(&self) -> &Dense {
        &self.value
    }

    /// Returns the parts of the table: the row numbers and the stored rows.
    pub fn into_parts(self) -> (Vec<i64>, Dense) {
        (self.rows, self.value)
    }

    /// Returns whether the rows are merged: the row numbers are in ascending order, and no row number is repeated.
    pub fn is_merged(&self) -> bool {
        self.rows.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Sorts the stored rows by row number, and adds up rows with the same row number, in stored order. 16-bit floats
    /// are added in `f32`, integers wrap around, and the sum of bools is "or". If the rows are merged already, nothing
    /// changes.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[doc(alias = "coalesce")]
    #[track_caller]
    pub fn merge(self) -> Result<Self> {
        if self.is_merged() {
            return Ok(self);
        }
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|&index| self.rows[index]);
        let (value, heads) = self.value.sum_runs(&order, &|a, b| self.rows[a] == self.rows[b]).at_caller()?;
        Ok(Self { rows: heads.into_iter().map(|index| self.rows[index]).collect(), value, shape: self.shape })
    }

    /// Returns the positions of the rows that belong to rank `rank` of `ranks` ranks: row r belongs to rank r modulo `ranks`.
    pub(crate) fn positions_of(&self, (rank, ranks): (usize, usize)) -> Vec<usize> {
        let ids = self.rows.iter().enumerate();
        ids.filter(|(_, id)| **id as usize % ranks == rank).map(|(at, _)| at).collect()
    }

    /// Returns the stored rows at some positions.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    pub(crate) fn at(&self, positions: &[usize]) -> Result<Self> {
        let rows = positions.iter().map(|&at| self.rows[at]).collect();
        Self::new(self.height(), rows, self.value.gather_rows(positions)?)
    }

    /// Joins rows of one table whose row numbers are all different, in the order of the row numbers.
    ///
    /// # Errors
    /// Fails if there is nothing to join, if heights or widths differ, or if the result does not fit into memory.
    pub(crate) fn joined(shares: &[Self]) -> Result<Self> {
        let Some(first) = shares.first() else {
            return Err(Error::new("rows to join", "at least one table", "none"));
        };
        let values: Vec<&Dense> = shares.iter().map(|share| &share.value).collect();
        let rows = shares.iter().flat_map(|share| &share.rows).copied().collect();
        let all = Self::new(first.height(), rows, Dense::concat_rows(&values)?)?;
        let mut order: Vec<usize> = (0..all.rows.len()).collect();
        order.sort_unstable_by_key(|&at| all.rows[at]);
        all.at(&order)
    }

    /// Returns the merged form of the table, borrowed if the rows are merged already.
    #[track_caller]
    pub(super) fn merged(&self) -> Result<Cow<'_, Self>> {
        if self.is_merged() {
            return Ok(Cow::Borrowed(self));
        }
        self.clone().merge().map(Cow::Owned)
    }

    /// Converts the table to a dense tensor of shape `[height, …]`.
    ///
    /// # Errors
    /// Fails if the table does not fit into memory.
    #[track_caller]
    pub fn densify(&self) -> Result<Dense> {
        if !self.is_merged() {
            return self.clone().merge()?.densify();
        }
        self.value.scatter(&mut self.rows.iter().map(|&row| row as usize), &self.shape).at_caller()
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use ndarray::{Array1, Array3, array};

    use super::*;

    #[test]
    fn rows_outside_the_table_are_named() {
        let refused = |id, expected: &str| {
            let message = SelectedRows::new(3, vec![0, id], array![1, 2]).unwrap_err().to_string();
            assert_eq!(message, expected);
        };
        refused(3, "selected row at place 1: expected 0 or more and below the table's height of 3, got 3");
        refused(-1, "selected row at place 1: expected 0 or more and below the table's height of 3, got -1");
        assert!(SelectedRows::new(3, vec![0], array![1, 2]).is_err());
        assert!(SelectedRows::new(3, vec![0], ndarray::arr0(1)).is_err());
    }

    #[test]
    fn rows_of_any_rank_are_merged() {
        let value = Array3::from_shape_fn((4, 2, 2), |(i, j, k)| (100 * i + 10 * j + k) as i64);
        let merged = SelectedRows::new(9, vec![7, 1, 7, 0], value).unwrap().merge().unwrap();
        assert_eq!(merged.row_ids(), [0, 1, 7]);
        assert_eq!(merged.shape(), [9, 2, 2]);
        let rows = array![[[300, 301], [310, 311]], [[100, 101], [110, 111]], [[200, 202], [220, 222]]];
        assert_eq!(merged.value(), &Dense::from(rows.mapv(i64::from)));
        let again = SelectedRows::from_dense(&merged.densify().unwrap()).unwrap();
        assert_eq!(again, merged);
    }

    #[test]
    fn duplicates_are_added_in_their_order() {
        // The large numbers must cancel before 1 is added; otherwise, rounding loses the 1.
        let value = Array1::from(vec![1e20f64, -1e20, 1.0]);
        let merged = SelectedRows::new(1, vec![0; 3], value).unwrap().merge().unwrap();
        assert_eq!(merged.value().as_slice::<f64>().unwrap(), [1.0]);
        let halves = Array1::from_elem(4096, f16::ONE);
        let merged = SelectedRows::new(1, vec![0; 4096], halves).unwrap().merge().unwrap();
        assert_eq!(merged.value().as_slice::<f16>().unwrap(), [f16::from_f32(4096.0)]);
    }

    #[test]
    fn nothing_selected_and_nothing_wide() {
        for shape in [vec![0, 2], vec![0, 2, 3], vec![0]] {
            let empty = SelectedRows::new(5, vec![], Dense::zeros(DType::F32, &shape).unwrap()).unwrap();
            let empty = empty.merge().unwrap();
            assert_eq!(empty.densify().unwrap().rows(), 5);
            assert_eq!(SelectedRows::from_dense(&empty.densify().unwrap()).unwrap(), empty);
        }
        let narrow = SelectedRows::new(5, vec![4, 4], Dense::zeros(DType::F32, &[2, 0]).unwrap()).unwrap();
        assert_eq!(narrow.merge().unwrap().densify().unwrap().shape(), [5, 0]);
        let tall = SelectedRows::new(usize::MAX, vec![i64::MAX], array![[1.0f32, 2.0]]).unwrap();
        assert!(tall.densify().is_err());
    }
}
