//! The rows of the storage selected rows: creation, access, assignment and selection.

use super::SelectedRows;
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense, Element};

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

    /// Makes a table from pairs (row number, numbers of the row). `row` is the shape of a row; the numbers of a row
    /// are in row-major order. Rows with the same row number count as their sum.
    ///
    /// ```
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::from_pairs(9, &[2], [(7, [1.0f32, 2.0]), (3, [3.0, 4.0])])?;
    /// assert_eq!((x.shape(), x.row_ids()), (&[9, 2][..], &[7, 3][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a row number is negative or not less than `height`, or if the length of a row does not match its shape.
    #[track_caller]
    pub fn from_pairs<T: Element, V: AsRef<[T]>>(
        height: usize,
        row: &[usize],
        pairs: impl IntoIterator<Item = (i64, V)>,
    ) -> Result<Self> {
        let places = Dense::zeros(T::DTYPE, row)?.len();
        let (mut rows, mut numbers) = (Vec::new(), Vec::new());
        for (id, values) in pairs {
            let values = values.as_ref();
            if values.len() != places {
                let what = format!("numbers of row {id}");
                return Err(Error::new(what, places.to_string(), values.len().to_string()));
            }
            rows.push(id);
            numbers.extend_from_slice(values);
        }
        let value = Dense::from_vec(&[&[rows.len()], row].concat(), numbers)?;
        Self::new(height, rows, value)
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

    /// Sets a row of the table. If several stored rows have this row number, only the first is kept, with the new
    /// numbers. A row that was not stored is added at the end.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let mut x = SelectedRows::new(4, vec![2, 0, 2], array![[1.0f32], [2.0], [3.0]])?;
    /// x.set_row(2, &array![9.0f32].into())?;
    /// assert_eq!((x.row_ids(), x.row(2)?), (&[2, 0][..], array![9.0f32].into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the row number is not less than the height, or if the values have another dtype or shape than a row.
    /// The table is then unchanged.
    #[track_caller]
    pub fn set_row(&mut self, row: usize, values: &Dense) -> Result<()> {
        self.check_row(row)?;
        if (values.dtype(), values.shape()) != (self.dtype(), &self.shape[1..]) {
            let expected = format!("{} {:?}", self.dtype(), &self.shape[1..]);
            let got = format!("{} {:?}", values.dtype(), values.shape());
            return Err(Error::new(format!("values of row {row}"), expected, got));
        }
        let Ok(id) = i64::try_from(row) else {
            return Err(Error::new("row of selected rows", format!("at most {}", i64::MAX), row.to_string()));
        };
        let one = values.clone().reshape(&[&[1], values.shape()].concat())?;
        let first = self.rows.iter().position(|&at| at == id).unwrap_or(self.rows.len());
        // The new row is added at the end of the stored rows.
        let new = self.rows.len();
        let others =
            |range: std::ops::Range<usize>| range.filter(|&at| self.rows[at] != id).collect::<Vec<_>>();
        let order = [others(0..first), vec![new], others(first..new)].concat();
        self.value = Dense::concat_rows(&[&self.value, &one])?.gather_rows(&order)?;
        self.rows = order.iter().map(|&at| if at == new { id } else { self.rows[at] }).collect();
        Ok(())
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
        if let Some(place) = ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= height)) {
            let expected = format!("0 or more and below the table's height of {height}");
            return Err(Error::new(
                format!("row to retain at place {place}"),
                expected,
                ids[place].to_string(),
            ));
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let stored = 0..self.rows.len();
        let kept: Vec<usize> = stored.filter(|&at| sorted.binary_search(&self.rows[at]).is_ok()).collect();
        let rows = kept.iter().map(|&at| self.rows[at]).collect();
        Ok(Self { shape: self.shape.clone(), rows, value: self.value.gather_rows(&kept)? })
    }

    /// Removes stored rows of zeros; the result is merged.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::new(4, vec![2, 0, 2], array![[1.0f32], [2.0], [-1.0]])?;
    /// assert_eq!(x.prune()?.row_ids(), [0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[track_caller]
    pub fn prune(&self) -> Result<Self> {
        let merged = self.merged()?;
        let kept = merged.value.nonzero_rows().at_caller()?;
        let rows = kept.iter().map(|&at| merged.rows[at]).collect();
        Ok(Self { shape: self.shape.clone(), rows, value: merged.value.gather_rows(&kept)? })
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
