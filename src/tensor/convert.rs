//! Conversions of a tensor from one sparse storage to another.

use ndarray::Array2;

use super::{Coo, Csr, DType, SelectedRows};
use crate::error::{Error, Result};

impl Csr {
    /// Converts the matrix to coo; the entries keep their order.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([2, 3], [(1, 2, 4i32)])?;
    /// assert_eq!(x.to_coo()?.to_csr()?, x);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[doc(alias = "tocoo")]
    #[track_caller]
    pub fn to_coo(&self) -> Result<Coo> {
        let mut coordinates = Array2::zeros((self.entries(), 2));
        for row in 0..self.shape()[0] {
            for at in self.range(row) {
                (coordinates[[at, 0]], coordinates[[at, 1]]) = (row as i64, self.indices()[at]);
            }
        }
        Coo::new(self.shape(), coordinates, self.values().clone())
    }

    /// Converts the matrix to selected rows: the result stores the rows that have entries.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([2, 3], [(1, 2, 4i32)])?;
    /// assert_eq!(x.to_selected_rows()?.row_ids(), [1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the rows that have entries do not fit into memory.
    #[track_caller]
    pub fn to_selected_rows(&self) -> Result<SelectedRows> {
        let used: Vec<usize> = (0..self.shape()[0]).filter(|&row| !self.range(row).is_empty()).collect();
        let rows = used.iter().map(|&row| row as i64).collect();
        SelectedRows::new(self.shape()[0], rows, self.take(&used)?.to_dense()?)
    }
}

impl Coo {
    /// Converts the tensor to csr in canonical form.
    ///
    /// ```
    /// use unpadded::tensor::{Coo, Csr};
    /// let x = Coo::from_entries([2, 3], [([1, 2], 4i32)])?;
    /// assert_eq!(x.to_csr()?, Csr::from_triples([2, 3], [(1, 2, 4i32)])?);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the rank of the tensor is not 2, or if the row offsets of the result do not fit into memory.
    #[doc(alias = "tocsr")]
    #[track_caller]
    pub fn to_csr(&self) -> Result<Csr> {
        let &[rows, columns] = self.shape() else {
            return Err(Error::new("coo for csr", "two dimensions", format!("shape {:?}", self.shape())));
        };
        let sorted = self.canonical()?;
        let mut indptr = Csr::zeros(DType::Bool, [rows, columns])?.into_parts().0;
        sorted.coordinates().column(0).iter().for_each(|&row| indptr[row as usize + 1] += 1);
        for row in 0..rows {
            indptr[row + 1] += indptr[row];
        }
        Csr::new([rows, columns], indptr, sorted.coordinates().column(1).to_vec(), sorted.values().clone())
    }

    /// Converts the tensor to selected rows: the result stores a row for each index of the first axis that has entries.
    ///
    /// ```
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([9, 2, 2], [([7, 0, 1], 4i32)])?.to_selected_rows()?;
    /// assert_eq!((x.shape(), x.row_ids(), x.value().shape()), (&[9, 2, 2][..], &[7][..], &[1, 2, 2][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the rows that have entries do not fit into memory.
    #[track_caller]
    pub fn to_selected_rows(&self) -> Result<SelectedRows> {
        let mut rows = self.coordinates().column(0).to_vec();
        rows.sort_unstable();
        rows.dedup();
        let used: Vec<usize> = rows.iter().map(|&row| row as usize).collect();
        SelectedRows::new(self.shape()[0], rows, self.take(&used)?.to_dense()?)
    }
}

impl SelectedRows {
    /// Converts the table to csr; only numbers that are not 0 become entries.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::new(4, vec![2, 2], array![[1, 0, 3], [1, 0, 0]])?;
    /// assert_eq!(x.to_csr()?.row::<i32>(2)?, (&[0, 2][..], &[2, 3][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the rows of the table do not have exactly one dimension, or if the row offsets of the result do not fit
    /// into memory.
    #[track_caller]
    pub fn to_csr(&self) -> Result<Csr> {
        if self.shape().len() != 2 {
            let got = format!("shape {:?}", self.shape());
            return Err(Error::new("selected rows for csr", "two dimensions", got));
        }
        self.to_coo()?.to_csr()
    }

    /// Converts the table to coo in canonical form; only numbers that are not 0 become entries.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Coo, SelectedRows};
    /// let x = SelectedRows::new(4, vec![2], array![[[0, 7]]])?;
    /// assert_eq!(x.to_coo()?, Coo::from_entries([4, 1, 2], [([2, 0, 1], 7)])?);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[track_caller]
    pub fn to_coo(&self) -> Result<Coo> {
        let merged = self.merged()?;
        let (mut coordinates, values) = Coo::from_dense(merged.value())?.into_parts();
        coordinates.column_mut(0).iter_mut().for_each(|at| *at = merged.row_ids()[*at as usize]);
        Coo::new(self.shape(), coordinates, values)
    }
}
