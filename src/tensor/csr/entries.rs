//! The entries, rows and columns of a csr matrix: access, assignment, selection and concatenation.

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

    /// Returns the density: the number of stored entries, divided by the number of positions. The density of a matrix
    /// without positions is 0.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// assert_eq!(Csr::eye(DType::F32, 4)?.density(), 0.25);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn density(&self) -> f64 {
        let places = self.shape[0] as f64 * self.shape[1] as f64;
        if places == 0.0 { 0.0 } else { self.entries() as f64 / places }
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

    /// Iterates over all entries as triples (row, column, value), row by row.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([2, 3], [(1, 2, 4.0f32), (0, 1, 7.0)])?;
    /// assert_eq!(x.iter::<f32>()?.collect::<Vec<_>>(), [(0, 1, 7.0), (1, 2, 4.0)]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn iter<T: Element>(&self) -> Result<impl Iterator<Item = (usize, usize, T)> + '_> {
        let values = self.values.as_slice::<T>()?;
        let entry =
            move |row: usize| self.range(row).map(move |at| (row, self.indices[at] as usize, values[at]));
        Ok((0..self.shape[0]).flat_map(entry))
    }

    /// Sets the number at a position. A new entry is added if the position has no entry; several entries at the
    /// position are merged into one. An entry that is set to 0 stays stored until [`prune`](Self::prune).
    ///
    /// A new entry moves all later entries in memory. To add many entries, [`from_triples`](Self::from_triples) or, for
    /// a row, [`set_row`](Self::set_row) is faster.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// let mut x = Csr::zeros(DType::F32, [2, 3])?;
    /// x.set(1, 2, 4.0f32)?;
    /// x.set(1, 0, 5.0f32)?;
    /// assert_eq!(x.row::<f32>(1)?, (&[0, 2][..], &[5.0, 4.0][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the position is beyond the last row or column, or if `T` is not the Rust type of the dtype. The matrix is then
    /// unchanged.
    #[track_caller]
    pub fn set<T: Element>(&mut self, row: usize, column: usize, value: T) -> Result<()> {
        self.check_column(column)?;
        let Ok(column) = i64::try_from(column) else {
            return Err(Error::new("column of csr", format!("at most {}", i64::MAX), column.to_string()));
        };
        let (columns, values) = self.row::<T>(row)?;
        let kept: Vec<usize> = (0..columns.len()).filter(|&i| columns[i] != column).collect();
        let first =
            columns.iter().position(|&at| at == column).or(columns.iter().position(|&at| at > column));
        let before = kept.iter().filter(|&&i| first.is_none_or(|first| i < first)).count();
        let mut columns: Vec<i64> = kept.iter().map(|&i| columns[i]).collect();
        let mut values: Vec<T> = kept.iter().map(|&i| values[i]).collect();
        columns.insert(before, column);
        values.insert(before, value);
        self.set_row(row, &columns, &values)
    }

    /// Replaces the entries of a row by new entries, in any order; the values of a repeated column are added.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// let mut x = Csr::eye(DType::F32, 2)?;
    /// x.set_row(0, &[0, 1], &[3.0f32, 4.0])?;
    /// assert_eq!(x.row::<f32>(0)?, (&[0, 1][..], &[3.0, 4.0][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the row or a column is outside of the matrix, if the numbers of columns and values differ, or if `T` is
    /// not the Rust type of the dtype. The matrix is then unchanged.
    #[track_caller]
    pub fn set_row<T: Element>(&mut self, row: usize, columns: &[i64], values: &[T]) -> Result<()> {
        self.check_row(row)?;
        let range = self.range(row);
        let old = self.values.as_slice::<T>()?;
        if columns.len() != values.len() {
            let expected = format!("{}, one for each column", columns.len());
            return Err(Error::new(format!("values of row {row}"), expected, values.len().to_string()));
        }
        if let Some(place) =
            columns.iter().position(|&at| usize::try_from(at).map_or(true, |at| at >= self.shape[1]))
        {
            let what = format!("column at place {place} of row {row}");
            let expected = format!("0 or more and less than {}, the number of columns", self.shape[1]);
            return Err(Error::new(what, expected, columns[place].to_string()));
        }
        let numbers = [&old[..range.start], values, &old[range.end..]].concat();
        self.values = Dense::from_vec(&[numbers.len()], numbers)?;
        self.indices.splice(range.clone(), columns.iter().copied());
        let (grown, gone) = (columns.len() as i64, range.len() as i64);
        self.indptr[row + 1..].iter_mut().for_each(|end| *end += grown - gone);
        Ok(())
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
        if let Some(place) = rows.iter().position(|&row| row >= self.shape[0]) {
            let what = format!("row number at place {place}");
            return Err(Error::new(what, format!("below {}", self.shape[0]), rows[place].to_string()));
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

    /// Makes a matrix of the listed columns, in the listed order; a column may be listed repeatedly. The resulting
    /// matrix is canonical.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0, 3], [0, 2, 0]])?;
    /// assert_eq!(x.take_columns(&[2, 0])?.to_dense()?, array![[3, 1], [0, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a listed column index is not less than the number of columns.
    #[track_caller]
    pub fn take_columns(&self, columns: &[usize]) -> Result<Self> {
        if let Some(place) = columns.iter().position(|&column| column >= self.shape[1]) {
            let what = format!("column number at place {place}");
            return Err(Error::new(what, format!("below {}", self.shape[1]), columns[place].to_string()));
        }
        let mut distinct: Vec<i64> = columns.iter().map(|&column| column as i64).collect();
        distinct.sort_unstable();
        distinct.dedup();
        // Only the listed columns get new numbers, because a table of all columns might not fit into memory.
        let place = |column: i64| distinct.binary_search(&column).ok();
        let near = self.filtered(distinct.len(), |at| place(self.indices[at]).map(|place| place as i64))?;
        let places: Vec<usize> = columns.iter().filter_map(|&column| place(column as i64)).collect();
        near.canonical()?.transpose()?.take(&places)?.transpose()
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
        check_range("rows", &part, self.shape[0])?;
        let ends = &self.indptr[part.start..=part.end];
        let entries = ends[0] as usize..ends[part.len()] as usize;
        Ok(Self {
            shape: [part.len(), self.shape[1]],
            indptr: ends.iter().map(|end| end - ends[0]).collect(),
            indices: self.indices[entries.clone()].to_vec(),
            values: self.values.slice_rows(entries)?,
        })
    }

    /// Slices the columns: the column at the start of the range becomes column 0 of the result.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0, 3], [0, 2, 0]])?;
    /// assert_eq!(x.slice_columns(1..3)?.to_dense()?, array![[0, 3], [2, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for a range that ends before it starts or beyond the last column.
    #[track_caller]
    pub fn slice_columns(&self, part: Range<usize>) -> Result<Self> {
        check_range("columns", &part, self.shape[1])?;
        let moved = |at: usize| {
            part.contains(&(self.indices[at] as usize)).then(|| self.indices[at] - part.start as i64)
        };
        self.filtered(part.len(), moved)
    }

    /// Keeps the entries of the listed columns, and removes the entries of all other columns. Columns may be listed in
    /// any order and repeatedly.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0, 3], [0, 2, 0]])?;
    /// assert_eq!(x.retain_columns(&[2, 1])?.to_dense()?, array![[0, 0, 3], [0, 2, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a column is negative or beyond the last column.
    #[track_caller]
    pub fn retain_columns(&self, columns: &[i64]) -> Result<Self> {
        if let Some(place) =
            columns.iter().position(|&at| usize::try_from(at).map_or(true, |at| at >= self.shape[1]))
        {
            let expected = format!("0 or more and less than {}, the number of columns", self.shape[1]);
            return Err(Error::new(format!("column at place {place}"), expected, columns[place].to_string()));
        }
        let mut sorted = columns.to_vec();
        sorted.sort_unstable();
        let kept = |at: usize| Some(self.indices[at]).filter(|column| sorted.binary_search(column).is_ok());
        self.filtered(self.shape[1], kept)
    }

    /// Removes stored zeros; the result is canonical.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([1, 9], [(0, 3, 1i64), (0, 3, -1), (0, 5, 2)])?;
    /// assert_eq!((x.entries(), x.prune()?.indices()), (2, &[5][..]));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[doc(alias = "eliminate_zeros")]
    #[track_caller]
    pub fn prune(&self) -> Result<Self> {
        let sorted = self.canonical()?;
        let mut kept = vec![false; sorted.entries()];
        sorted.values.nonzero_rows().at_caller()?.into_iter().for_each(|at| kept[at] = true);
        sorted.filtered(sorted.shape[1], |at| Some(sorted.indices[at]).filter(|_| kept[at]))
    }

    /// Concatenates the rows of matrices.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::eye(DType::F32, 3)?;
    /// assert_eq!(Csr::concat_rows(&[&x.slice_rows(0..1)?, &x.slice_rows(1..3)?])?, x);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `parts` is empty, or matrices differ in dtype or in the number of columns.
    #[doc(alias = "vstack")]
    #[track_caller]
    pub fn concat_rows(parts: &[&Csr]) -> Result<Self> {
        let columns = same_extent(parts, 1)?;
        let (mut indptr, mut indices, mut rows) = (vec![0], Vec::new(), 0);
        for part in parts {
            let before = indices.len() as i64;
            indptr.extend(part.indptr[1..].iter().map(|end| end + before));
            indices.extend_from_slice(&part.indices);
            rows += part.shape[0];
        }
        let values: Vec<&Dense> = parts.iter().map(|part| &part.values).collect();
        Ok(Self { shape: [rows, columns], indptr, indices, values: Dense::concat_rows(&values)? })
    }

    /// Concatenates the columns of matrices.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0], [0, 2]])?;
    /// let beside = Csr::concat_columns(&[&x, &x.slice_columns(1..2)?])?;
    /// assert_eq!(beside.to_dense()?, array![[1, 0, 0], [0, 2, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `parts` is empty, if matrices differ in dtype or in the number of rows, or if the number of columns
    /// overflows.
    #[doc(alias = "hstack")]
    #[track_caller]
    pub fn concat_columns(parts: &[&Csr]) -> Result<Self> {
        let rows = same_extent(parts, 0)?;
        let mut starts = vec![0i64];
        let mut columns = 0i64;
        for part in parts {
            let Some(end) = i64::try_from(part.shape[1]).ok().and_then(|width| columns.checked_add(width))
            else {
                let got = format!("{columns} and {}", part.shape[1]);
                return Err(Error::new("columns to concatenate", format!("at most {}", i64::MAX), got));
            };
            columns = end;
            starts.push(end);
        }
        let all: Vec<&Dense> = parts.iter().map(|part| &part.values).collect();
        let all = Dense::concat_rows(&all)?;
        let mut firsts = vec![0];
        for part in parts {
            firsts.push(firsts[firsts.len() - 1] + part.entries());
        }
        let (mut indptr, mut indices, mut order) = (vec![0], Vec::new(), Vec::new());
        for row in 0..rows {
            for (i, part) in parts.iter().enumerate() {
                let range = part.range(row);
                indices.extend(part.indices[range.clone()].iter().map(|column| column + starts[i]));
                order.extend(range.map(|at| at + firsts[i]));
            }
            indptr.push(indices.len() as i64);
        }
        Ok(Self { shape: [rows, columns as usize], indptr, indices, values: all.gather_rows(&order)? })
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
            let place = next[column] as usize;
            next[column] += 1;
            (indices[place], order[place]) = (row as i64, at);
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

#[track_caller]
fn check_range(what: &str, part: &Range<usize>, end: usize) -> Result<()> {
    if part.start <= part.end && part.end <= end {
        return Ok(());
    }
    Err(Error::new(format!("{what} to slice"), format!("a range within 0..{end}"), format!("{part:?}")))
}

/// Returns the extent that all matrices have along an axis; an error if the extents or the dtypes differ.
#[track_caller]
fn same_extent(parts: &[&Csr], axis: usize) -> Result<usize> {
    let Some((first, rest)) = parts.split_first() else {
        return Err(Error::new("csr to concatenate", "at least one", "none"));
    };
    let facts = |part: &Csr| (part.dtype(), part.shape[axis]);
    for (i, part) in rest.iter().enumerate() {
        if facts(part) != facts(first) {
            let name = ["rows", "columns"][axis];
            let said = |(dtype, extent)| format!("{dtype} of {extent} {name}");
            let what = format!("csr {} to concatenate", i + 1);
            return Err(Error::new(what, said(facts(first)), said(facts(part))));
        }
    }
    Ok(first.shape[axis])
}
