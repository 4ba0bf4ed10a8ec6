//! Csr: sparse matrices that are stored row by row, such as bags of words or the features of documents.

mod arithmetic;
mod create;
mod entries;
mod product;
#[cfg(feature = "sprs")]
mod sprs;

use std::borrow::Cow;

pub use product::Dot;

use super::{DType, Dense};
use crate::error::{AtCaller, Error, Result};
use crate::reserve;

/// A sparse matrix in the storage csr. Row *r* has the entries `indptr[r]..indptr[r + 1]`: their columns are in
/// `indices`, and their values are in `values`.
///
/// The columns of a row may be in any order. If several entries of a row have the same column, the number in this
/// column is the sum of their values.
///
/// ```
/// use ndarray::array;
/// use unpadded::tensor::Csr;
/// let bags = Csr::new([2, 4], vec![0, 2, 3], vec![3, 0, 1], array![1.0f32, 2.0, 5.0])?;
/// assert_eq!(bags.to_dense()?, array![[2.0f32, 0.0, 0.0, 1.0], [0.0, 5.0, 0.0, 0.0]].into());
/// assert_eq!(bags.canonicalize()?.indices(), [0, 3, 1]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[doc(alias = "csr_matrix")]
#[derive(Clone, PartialEq)]
pub struct Csr {
    shape: [usize; 2],
    indptr: Vec<i64>,
    indices: Vec<i64>,
    values: Dense,
}

impl Csr {
    /// Returns the size in bytes of the offsets, the indices and the values.
    pub(crate) fn bytes(&self) -> usize {
        let indices = self.indptr.len() + self.indices.len();
        indices * size_of::<i64>() + self.values.len() * self.values.dtype().size_of()
    }

    /// Makes a matrix from its arrays: `indptr` has `rows + 1` elements; `indices` and `values` have one element per
    /// entry.
    ///
    /// # Errors
    /// Fails if `indptr` does not have `rows + 1` elements, does not start with 0, decreases, or does not end with the
    /// number of entries. Also fails if `indices` and `values` have different lengths, or if a column is negative or
    /// not less than the number of columns.
    #[track_caller]
    pub fn new(
        shape: [usize; 2],
        indptr: Vec<i64>,
        indices: Vec<i64>,
        values: impl Into<Dense>,
    ) -> Result<Self> {
        let values = values.into();
        let [rows, columns] = shape;
        let entries = indices.len();
        if values.shape() != [entries] {
            let expected = format!("shape [{entries}], one for each index");
            return Err(Error::new("values of csr", expected, format!("shape {:?}", values.shape())));
        }
        let refuse = |expected: String, got: String| Err(Error::new("indptr of csr", expected, got));
        if indptr.len().checked_sub(1) != Some(rows) {
            return refuse(format!("one more than the {rows} rows"), indptr.len().to_string()).at_caller();
        }
        if indptr[0] != 0 {
            return refuse("to start with 0".into(), indptr[0].to_string()).at_caller();
        }
        if let Some(row) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
            let got = format!("{} after {} at row {row}", indptr[row + 1], indptr[row]);
            return refuse("never to decrease".into(), got).at_caller();
        }
        if usize::try_from(indptr[rows]) != Ok(entries) {
            return refuse(format!("to end with the {entries} entries"), indptr[rows].to_string())
                .at_caller();
        }
        if let Some(index) = indices.iter().position(|&i| usize::try_from(i).map_or(true, |i| i >= columns)) {
            let what = format!("index of csr at place {index}");
            let expected = format!("0 or more and less than {columns}, the number of columns");
            return Err(Error::new(what, expected, indices[index].to_string()));
        }
        Ok(Self { shape, indptr, indices, values })
    }

    /// Converts a dense matrix: the numbers that are not 0 become entries, row by row.
    ///
    /// # Errors
    /// Fails if the tensor does not have two dimensions, or if there is not enough memory for `indptr`. The latter can
    /// happen even for an empty tensor, since a tensor of width 0 can have any number of rows.
    #[track_caller]
    pub fn from_dense(dense: &Dense) -> Result<Self> {
        let &[rows, columns] = dense.shape() else {
            let got = format!("shape {:?}", dense.shape());
            return Err(Error::new("dense tensor for csr", "two dimensions", got));
        };
        let flat = dense.clone().reshape(&[dense.len()])?;
        let kept = flat.nonzero_rows().at_caller()?;
        let index = |&at: &usize| (at / columns, (at % columns) as i64);
        let (row_of, indices): (Vec<_>, Vec<_>) = kept.iter().map(index).unzip();
        Self::new([rows, columns], pointers(&row_of, rows).at_caller()?, indices, flat.gather_rows(&kept)?)
    }

    /// Returns the dtype of the values.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Returns the number of rows and the number of columns.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns, for each row, the position in [`Self::indices`] at which the entries of the row start. The last
    /// element is the number of all entries.
    pub fn indptr(&self) -> &[i64] {
        &self.indptr
    }

    /// Returns the column of each entry.
    pub fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Returns the value of each entry; the shape is `[entries]`.
    pub fn values(&self) -> &Dense {
        &self.values
    }

    /// Returns the parts of the matrix: `indptr`, `indices` and `values`.
    pub fn into_parts(self) -> (Vec<i64>, Vec<i64>, Dense) {
        (self.indptr, self.indices, self.values)
    }

    /// Returns whether the matrix is canonical: the columns of each row are in ascending order, and no column is
    /// repeated in a row.
    pub fn is_canonical(&self) -> bool {
        self.indptr.windows(2).all(|pair| {
            let row = &self.indices[pair[0] as usize..pair[1] as usize];
            row.windows(2).all(|pair| pair[0] < pair[1])
        })
    }

    /// Sorts the entries of each row by column, and merges entries with equal columns by adding their values in stored
    /// order. Stored zeros are kept. A canonical matrix is returned unchanged.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[track_caller]
    pub fn canonicalize(self) -> Result<Self> {
        if self.is_canonical() {
            return Ok(self);
        }
        let mut order: Vec<usize> = (0..self.indices.len()).collect();
        let row_of = self.row_of();
        for ends in self.indptr.windows(2) {
            order[ends[0] as usize..ends[1] as usize].sort_by_key(|&at| self.indices[at]);
        }
        let same = |a: usize, b: usize| (row_of[a], self.indices[a]) == (row_of[b], self.indices[b]);
        let (values, heads) = self.values.sum_runs(&order, &same).at_caller()?;
        let rows: Vec<usize> = heads.iter().map(|&at| row_of[at]).collect();
        let indices = heads.iter().map(|&at| self.indices[at]).collect();
        Ok(Self { shape: self.shape, indptr: pointers(&rows, self.shape[0]).at_caller()?, indices, values })
    }

    /// Returns the canonical form of the matrix, borrowed if the matrix is canonical already.
    #[track_caller]
    pub(super) fn canonical(&self) -> Result<Cow<'_, Self>> {
        if self.is_canonical() {
            return Ok(Cow::Borrowed(self));
        }
        self.clone().canonicalize().map(Cow::Owned)
    }

    /// Converts this matrix to a dense matrix.
    ///
    /// # Errors
    /// Fails if the dense matrix does not fit into memory.
    #[track_caller]
    pub fn to_dense(&self) -> Result<Dense> {
        if !self.is_canonical() {
            return self.clone().canonicalize()?.to_dense();
        }
        let row_of = self.row_of();
        let mut at =
            row_of.iter().zip(&self.indices).map(|(row, &column)| row * self.shape[1] + column as usize);
        self.values.scatter(&mut at, &self.shape).at_caller()
    }

    fn row_of(&self) -> Vec<usize> {
        let mut row_of = Vec::with_capacity(self.indices.len());
        for (row, &end) in self.indptr[1..].iter().enumerate() {
            row_of.resize(end as usize, row);
        }
        row_of
    }
}

/// Computes `indptr` from the row indices of the entries, which must be in ascending order. Returns an error if there
/// is not enough memory for `indptr`. This can happen even for an empty tensor, since a dense tensor of width 0 can
/// have any number of rows.
fn pointers(row_of: &[usize], rows: usize) -> Result<Vec<i64>> {
    let mut indptr = Vec::new();
    if !reserve::fits_exactly(&mut indptr, rows.saturating_add(1)) {
        return Err(Error::new("indptr of csr", "a number of rows that fits into memory", rows.to_string()));
    }
    indptr.resize(rows + 1, 0);
    row_of.iter().for_each(|row| indptr[row + 1] += 1);
    for row in 0..rows {
        indptr[row + 1] += indptr[row];
    }
    Ok(indptr)
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, array};

    use super::*;

    fn refused(indptr: &[i64], indices: &[i64], expected: &str) {
        let values = Array1::from_elem(indices.len(), 1.0f32);
        let message = Csr::new([2, 3], indptr.to_vec(), indices.to_vec(), values).unwrap_err().to_string();
        assert_eq!(message, expected);
    }

    #[test]
    fn each_rule_has_its_message() {
        refused(&[0, 1], &[0], "indptr of csr: expected one more than the 2 rows, got 2");
        refused(&[], &[], "indptr of csr: expected one more than the 2 rows, got 0");
        refused(&[1, 1, 1], &[0], "indptr of csr: expected to start with 0, got 1");
        refused(&[0, 1, 0], &[0], "indptr of csr: expected never to decrease, got 0 after 1 at row 1");
        refused(&[0, 1, 2], &[0], "indptr of csr: expected to end with the 1 entries, got 2");
        let columns = "expected 0 or more and less than 3, the number of columns";
        refused(&[0, 1, 2], &[0, 3], &format!("index of csr at place 1: {columns}, got 3"));
        refused(&[0, 1, 2], &[-1, 0], &format!("index of csr at place 0: {columns}, got -1"));
        assert!(Csr::new([1, 3], vec![0, 1], vec![0], array![1.0f32, 2.0]).is_err());
        assert!(Csr::new([1, 3], vec![0, 1], vec![0], array![[1.0f32]]).is_err());
        assert!(Csr::new([usize::MAX, 3], vec![], vec![], Array1::<f32>::zeros(0)).is_err());
    }

    #[test]
    fn duplicates_add_up_within_their_row() {
        let values = array![1, 2, 4, 8];
        let csr = Csr::new([3, 3], vec![0, 3, 3, 4], vec![2, 0, 2, 2], values).unwrap();
        assert!(!csr.is_canonical());
        let dense = Dense::from(array![[2, 0, 5], [0, 0, 0], [0, 0, 8]]);
        assert_eq!(csr.to_dense().unwrap(), dense);
        let canonical = csr.canonicalize().unwrap();
        assert_eq!((canonical.indptr(), canonical.indices()), (&[0, 2, 2, 3][..], &[0, 2, 2][..]));
        assert_eq!(Csr::from_dense(&dense).unwrap(), canonical);
    }

    #[test]
    fn edges_of_size() {
        for shape in [[0, 0], [0, 3], [3, 0]] {
            let dense = Dense::zeros(DType::F32, &shape).unwrap();
            let csr = Csr::from_dense(&dense).unwrap();
            assert_eq!(csr.canonicalize().unwrap().to_dense().unwrap(), dense);
        }
        let wide = Csr::new([1, usize::MAX], vec![0, 1], vec![i64::MAX], array![1.0f32]).unwrap();
        assert!(wide.to_dense().is_err());
        assert!(Csr::from_dense(&Dense::zeros(DType::Bool, &[1 << 55, 0]).unwrap()).is_err());
        assert!(Csr::from_dense(&Dense::from(array![1.0f32])).is_err());
    }
}
