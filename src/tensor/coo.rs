//! Coo: sparse tensors of any rank, stored as the coordinates and the value of each entry.

mod arithmetic;
mod entries;

use std::borrow::Cow;

use ndarray::{Array2, ArrayView2, Axis};

use super::{DType, Dense};
use crate::error::{AtCaller, Error, Result};

/// A sparse tensor in the storage coo: row *i* of the coordinates is the position of value *i*. The entries may be in
/// any order. If several entries have the same position, the number at this position is the sum of their values.
///
/// ```
/// use ndarray::array;
/// use unpadded::tensor::Coo;
/// let coo = Coo::new(&[2, 2], array![[1, 0], [0, 1], [1, 0]], array![1, 2, 3])?;
/// assert_eq!(coo.to_dense()?, array![[0, 2], [4, 0]].into());
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Coo {
    shape: Vec<usize>,
    coordinates: Array2<i64>,
    values: Dense,
}

impl Coo {
    /// Makes a tensor from the coordinates, of shape `[entries, rank]`, and the values, of shape `[entries]`.
    ///
    /// # Errors
    /// Fails if the shape has no dimensions, or if the coordinates have another rank than the shape. Also fails if the
    /// numbers of coordinates and values differ, or if a coordinate is negative or not less than its extent.
    #[track_caller]
    pub fn new(shape: &[usize], coordinates: Array2<i64>, values: impl Into<Dense>) -> Result<Self> {
        let values = values.into();
        let (entries, rank) = coordinates.dim();
        if shape.is_empty() {
            return Err(Error::new("shape of coo", "at least one dimension", "[]"));
        }
        if rank != shape.len() {
            let expected = format!("{}, one for each dimension of {shape:?}", shape.len());
            return Err(Error::new("coordinates of each coo entry", expected, rank.to_string()));
        }
        if values.shape() != [entries] {
            let expected = format!("shape [{entries}], one for each entry");
            return Err(Error::new("values of coo", expected, format!("shape {:?}", values.shape())));
        }
        for ((entry, axis), &at) in coordinates.indexed_iter() {
            if usize::try_from(at).map_or(true, |at| at >= shape[axis]) {
                let what = format!("coordinate {axis} of coo entry {entry}");
                let expected = format!("0 or more and below the extent of {}", shape[axis]);
                return Err(Error::new(what, expected, at.to_string()));
            }
        }
        let coordinates = coordinates.as_standard_layout().into_owned();
        Ok(Self { shape: shape.to_vec(), coordinates, values })
    }

    /// Converts a dense tensor: the numbers that are not 0 become entries, in row-major order.
    ///
    /// # Errors
    /// Fails if the tensor has no dimension.
    #[track_caller]
    pub fn from_dense(dense: &Dense) -> Result<Self> {
        let shape = dense.shape();
        let flat = dense.clone().reshape(&[dense.len()])?;
        let kept = flat.nonzero_rows().at_caller()?;
        let mut coordinates = Array2::zeros((kept.len(), shape.len()));
        for (mut row, &index) in coordinates.outer_iter_mut().zip(&kept) {
            let mut rest = index;
            for (at, &extent) in row.iter_mut().zip(shape).rev() {
                *at = (rest % extent) as i64;
                rest /= extent;
            }
        }
        Self::new(shape, coordinates, flat.gather_rows(&kept)?)
    }

    /// Returns the dtype of the values.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// Returns the shape that the tensor has as a dense tensor.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the coordinates of each entry; the shape is `[entries, rank]`.
    pub fn coordinates(&self) -> ArrayView2<'_, i64> {
        self.coordinates.view()
    }

    /// Returns the value of each entry; the shape is `[entries]`.
    pub fn values(&self) -> &Dense {
        &self.values
    }

    /// Returns the parts of the tensor: the coordinates, of shape `[entries, rank]`, and the values.
    pub fn into_parts(self) -> (Array2<i64>, Dense) {
        (self.coordinates, self.values)
    }

    /// Returns whether the tensor is canonical: the coordinates are in ascending row-major order, and no position is
    /// repeated.
    pub fn is_canonical(&self) -> bool {
        (1..self.values.len()).all(|entry| self.entry(entry - 1).lt(self.entry(entry)))
    }

    /// Sorts the entries by coordinates, and merges entries with equal coordinates by adding their values in stored
    /// order. Stored zeros are kept. A canonical tensor is returned unchanged.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[doc(alias = "coalesce")]
    #[track_caller]
    pub fn canonicalize(self) -> Result<Self> {
        if self.is_canonical() {
            return Ok(self);
        }
        let mut order: Vec<usize> = (0..self.values.len()).collect();
        order.sort_by(|&a, &b| self.entry(a).cmp(self.entry(b)));
        let (values, heads) =
            self.values.sum_runs(&order, &|a, b| self.entry(a).eq(self.entry(b))).at_caller()?;
        let coordinates = self.coordinates.select(Axis(0), &heads);
        Ok(Self { shape: self.shape, coordinates, values })
    }

    /// Converts this tensor to a dense tensor.
    ///
    /// # Errors
    /// Fails if the dense tensor does not fit into memory.
    #[track_caller]
    pub fn to_dense(&self) -> Result<Dense> {
        if !self.is_canonical() {
            return self.clone().canonicalize()?.to_dense();
        }
        let index = |entry| {
            self.entry(entry).zip(&self.shape).fold(0, |index, (&at, extent)| index * extent + at as usize)
        };
        self.values.scatter(&mut (0..self.values.len()).map(index), &self.shape).at_caller()
    }

    /// Returns the canonical form of the tensor, borrowed if the tensor is canonical already.
    #[track_caller]
    pub(super) fn canonical(&self) -> Result<Cow<'_, Self>> {
        if self.is_canonical() {
            return Ok(Cow::Borrowed(self));
        }
        self.clone().canonicalize().map(Cow::Owned)
    }

    fn entry(&self, entry: usize) -> impl Iterator<Item = &i64> {
        self.coordinates.index_axis(Axis(0), entry).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, array};

    use super::*;

    #[test]
    fn each_rule_has_its_message() {
        let refused = |shape: &[usize], coordinates: Array2<i64>, values: Array1<i32>, expected: &str| {
            assert_eq!(Coo::new(shape, coordinates, values).unwrap_err().to_string(), expected);
        };
        let one = || array![1];
        refused(&[], array![[0]], one(), "shape of coo: expected at least one dimension, got []");
        refused(
            &[2, 2],
            array![[0]],
            one(),
            "coordinates of each coo entry: expected 2, one for each dimension of [2, 2], got 1",
        );
        refused(
            &[2],
            array![[0]],
            array![1, 2],
            "values of coo: expected shape [1], one for each entry, got shape [2]",
        );
        let extent = "expected 0 or more and below the extent of 2";
        refused(&[3, 2], array![[2, 2]], one(), &format!("coordinate 1 of coo entry 0: {extent}, got 2"));
        refused(&[2, 3], array![[-1, 2]], one(), &format!("coordinate 0 of coo entry 0: {extent}, got -1"));
    }

    #[test]
    fn any_rank_goes_to_dense_and_back() {
        let coordinates = array![[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0]];
        let coo = Coo::new(&[2, 2, 2], coordinates, array![1, 2, 3, 0]).unwrap();
        let dense = Dense::from(array![[[0, 0], [2, 0]], [[0, 4], [0, 0]]]);
        assert_eq!(coo.to_dense().unwrap(), dense);
        let canonical = coo.canonicalize().unwrap();
        assert_eq!(canonical.coordinates(), array![[0, 0, 0], [0, 1, 0], [1, 0, 1]]);
        let kept = Coo::from_dense(&dense).unwrap();
        assert_eq!(kept.coordinates(), array![[0, 1, 0], [1, 0, 1]]);
        assert_eq!(kept.to_dense().unwrap(), dense);
    }

    #[test]
    fn edges_of_size() {
        for shape in [&[0][..], &[3, 0], &[0, 2, 2]] {
            let dense = Dense::zeros(DType::BF16, shape).unwrap();
            let coo = Coo::from_dense(&dense).unwrap();
            assert_eq!(coo.canonicalize().unwrap().to_dense().unwrap(), dense);
        }
        let big = Coo::new(&[usize::MAX, 2], array![[i64::MAX, 1]], array![1.0f32]).unwrap();
        assert!(big.to_dense().is_err());
        assert!(Coo::from_dense(&Dense::from(ndarray::arr0(1.0f32))).is_err());
    }
}
