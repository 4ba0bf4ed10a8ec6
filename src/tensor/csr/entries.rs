//! The entries, rows and columns of a csr matrix: access, selection and concatenation.

use std::ops::Range;

use super::{Csr, pointers};
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{Dense, Element};

impl Csr {
    /// Returns the number of stored entries. Stored zeros count, and so does each of several entries at one position.
    #[doc(alias = "nnz")]
    #[doc(alias = "getnnz")]
    pub fn entries(&self) -> usize {
        self.indices.len()
    }

    /// Returns the number at a position: 0 if the position has no entry, the sum of the values if the position has
    /// several entries.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([2, 3], [(1, 2, 4i32), (1, 0, 7)])?;
    /// assert_eq!((x.get::<i32>(1, 2)?, x.get::<i32>(0, 2)?), (4, 0));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for a position beyond the last row or column, or if `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn get<T: Element>(&self, row: usize, column: usize) -> Result<T> {
        self.check_column(column)?;
        let (columns, values) = self.row::<T>(row)?;
        let same = columns.iter().zip(values).filter(|&(&at, _)| at == column as i64);
        Ok(T::narrow(same.fold(T::default().summand(), |sum, (_, &x)| T::add(sum, x))))
    }

    /// Returns the stored entries of a row: the column of each entry, then the value of each entry.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([2, 3], [(1, 2, 4.0f32), (1, 0, 7.0)])?;
    /// assert_eq!(x.row::<f32>(1)?, (&[0, 2][..], &[7.0, 4.0][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the row is beyond the last row, or if `T` is not the Rust type of the dtype.
    #[doc(alias = "getrow")]
    #[track_caller]
    pub fn row<T: Element>(&self, row: usize) -> Result<(&[i64], &[T])> {
        self.check_row(row)?;
        let range = self.range(row);
        Ok((&self.indices[range.clone()], &self.values.as_slice::<T>()?[range]))
    }

    /// Makes a matrix of the listed rows, in the listed order; a row may be listed repeatedly.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0], [0, 2]])?;
    /// assert_eq!(x.take(&[1, 1])?.to_dense()?, array![[0, 2], [0, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a listed row index is not less than the number of rows, or if the result is too large for memory.
    #[track_caller]
    pub fn take(&self, rows: &[usize]) -> Result<Self> {
        if let Some(index) = rows.iter().position(|&row| row >= self.shape[0]) {
            let what = format!("row number at place {index}");
            return Err(Error::new(what, format!("below {}", self.shape[0]), rows[index].to_string()));
        }
        let kept: Vec<usize> = rows.iter().flat_map(|&row| self.range(row)).collect();
        let mut indptr = vec![0];
        let mut end = 0;
        for &row in rows {
            end += self.range(row).len() as i64;
            indptr.push(end);
        }
        let indices = kept.iter().map(|&at| self.indices[at]).collect();
        Ok(Self {
            shape: [rows.len(), self.shape[1]],
            indptr,
            indices,
            values: self.values.gather_rows(&kept)?,
        })
    }

    /// Slices the rows: copies the rows in a range.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0], [0, 2], [3, 0]])?;
    /// assert_eq!(x.slice_rows(1..3)?.to_dense()?, array![[0, 2], [3, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for a range that ends before it starts or beyond the last row.
    #[track_caller]
    pub fn slice_rows(&self, part: Range<usize>) -> Result<Self> {
        if part.start > part.end || part.end > self.shape[0] {
            let expected = format!("a range within 0..{}", self.shape[0]);
            return Err(Error::new("rows to slice", expected, format!("{part:?}")));
        }
        let ends = &self.indptr[part.start..=part.end];
        let entries = ends[0] as usize..ends[part.len()] as usize;
        Ok(Self {
            shape: [part.len(), self.shape[1]],
            indptr: ends.iter().map(|end| end - ends[0]).collect(),
            indices: self.indices[entries.clone()].to_vec(),
            values: self.values.slice_rows(entries)?,
        })
    }

    /// Concatenates the rows of matrices.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([3, 3], [(0, 0, 1), (1, 1, 1), (2, 2, 1)])?;
    /// assert_eq!(Csr::concat_rows(&[&x.slice_rows(0..1)?, &x.slice_rows(1..3)?])?, x);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `parts` is empty, or matrices differ in dtype or in the number of columns.
    #[doc(alias = "vstack")]
    #[track_caller]
    pub fn concat_rows(parts: &[&Csr]) -> Result<Self> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::new("csr to concatenate", "at least one", "none"));
        };
        let facts = |part: &Csr| (part.dtype(), part.shape[1]);
        if let Some(i) = rest.iter().position(|part| facts(part) != facts(first)) {
            let described = |(dtype, columns)| format!("{dtype} of {columns} columns");
            let what = format!("csr {} to concatenate", i + 1);
            return Err(Error::new(what, described(facts(first)), described(facts(rest[i]))));
        }
        let (mut indptr, mut indices, mut rows) = (vec![0], Vec::new(), 0);
        for part in parts {
            let before = indices.len() as i64;
            indptr.extend(part.indptr[1..].iter().map(|end| end + before));
            indices.extend_from_slice(&part.indices);
            rows += part.shape[0];
        }
        let values: Vec<&Dense> = parts.iter().map(|part| &part.values).collect();
        Ok(Self { shape: [rows, first.shape[1]], indptr, indices, values: Dense::concat_rows(&values)? })
    }

    /// Transposes the matrix. In each row of the result, the columns are in ascending order. The transpose of a
    /// canonical matrix is canonical.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0, 3], [0, 2, 0]])?;
    /// assert_eq!(x.transpose()?.to_dense()?, array![[1, 0], [0, 2], [3, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the matrix has too many columns: each column becomes a row, and `indptr` has an element for each row.
    #[doc(alias = "t")]
    #[doc(alias = "reversed_axes")]
    #[track_caller]
    pub fn transpose(&self) -> Result<Self> {
        let columns: Vec<usize> = self.indices.iter().map(|&column| column as usize).collect();
        let indptr = pointers(&columns, self.shape[1]).at_caller()?;
        let mut next = indptr.clone();
        let (mut indices, mut order) = (vec![0; columns.len()], vec![0; columns.len()]);
        for (at, (&column, row)) in columns.iter().zip(self.row_of()).enumerate() {
            let index = next[column] as usize;
            next[column] += 1;
            (indices[index], order[index]) = (row as i64, at);
        }
        let [rows, columns] = self.shape;
        Ok(Self { shape: [columns, rows], indptr, indices, values: self.values.gather_rows(&order)? })
    }

    /// Moves each entry to the column `column(i)`, where *i* is the index of the entry. If `column(i)` is `None`, the
    /// entry is removed. The result has `columns` columns.
    #[track_caller]
    pub(super) fn filtered(&self, columns: usize, column: impl Fn(usize) -> Option<i64>) -> Result<Self> {
        let (mut kept, mut indptr, mut indices) = (Vec::new(), vec![0], Vec::new());
        for row in 0..self.shape[0] {
            for at in self.range(row) {
                if let Some(column) = column(at) {
                    kept.push(at);
                    indices.push(column);
                }
            }
            indptr.push(indices.len() as i64);
        }
        Ok(Self { shape: [self.shape[0], columns], indptr, indices, values: self.values.gather_rows(&kept)? })
    }

    /// Returns the range in `indices` and `values` with the entries of a row.
    pub(in crate::tensor) fn range(&self, row: usize) -> Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    #[track_caller]
    fn check_row(&self, row: usize) -> Result<()> {
        let expected = || format!("less than {}, the number of rows", self.shape[0]);
        if row < self.shape[0] { Ok(()) } else { Err(Error::new("row of csr", expected(), row.to_string())) }
    }

    #[track_caller]
    fn check_column(&self, column: usize) -> Result<()> {
        let expected = || format!("less than {}, the number of columns", self.shape[1]);
        if column < self.shape[1] {
            Ok(())
        } else {
            Err(Error::new("column of csr", expected(), column.to_string()))
        }
    }
}
