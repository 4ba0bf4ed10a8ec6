//! The entries of a coo tensor: creation, access and selection.

use std::ops::Range;

use ndarray::{Array2, Axis};

use super::Coo;
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense, Element};

impl Coo {
    /// Makes a tensor without entries: every number is 0.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Coo;
    /// let nothing = Coo::zeros(DType::F32, &[1_000_000, 1_000_000, 3])?;
    /// assert_eq!((nothing.entries(), nothing.get::<f32>(&[7, 8, 2])?), (0, 0.0));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has no dimensions.
    #[doc(alias = "empty")]
    #[track_caller]
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::new(shape, Array2::zeros((0, shape.len())), Dense::zeros(dtype, &[0])?)
    }

    /// Makes a tensor from pairs (position, value), in any order. Values with equal positions are added. The resulting
    /// tensor is canonical.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([2, 2], [([1, 0], 1), ([0, 1], 5), ([1, 0], 2)])?;
    /// assert_eq!(x.to_dense()?, array![[0, 5], [3, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has no dimensions, or if a coordinate is negative or not less than its extent.
    #[track_caller]
    pub fn from_entries<T: Element, const RANK: usize>(
        shape: [usize; RANK],
        entries: impl IntoIterator<Item = ([i64; RANK], T)>,
    ) -> Result<Self> {
        let (places, values): (Vec<[i64; RANK]>, Vec<T>) = entries.into_iter().unzip();
        let coordinates = Array2::from_shape_fn((places.len(), RANK), |(entry, axis)| places[entry][axis]);
        Self::new(&shape, coordinates, Dense::from_vec(&[values.len()], values)?)?.canonicalize()
    }

    /// Returns the number of stored entries. Stored zeros count, and so does each of several entries at one position.
    #[doc(alias = "nnz")]
    pub fn entries(&self) -> usize {
        self.values.len()
    }

    /// Returns the number at a position: 0 if the position has no entry, the sum of the values if the position has
    /// several entries.
    ///
    /// ```
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([2, 2, 2], [([1, 0, 1], 4i32)])?;
    /// assert_eq!((x.get::<i32>(&[1, 0, 1])?, x.get::<i32>(&[0, 0, 1])?), (4, 0));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the position has another rank than the tensor, if it is outside of the shape, or if `T` is not the Rust
    /// type of the dtype.
    #[track_caller]
    pub fn get<T: Element>(&self, position: &[usize]) -> Result<T> {
        if position.len() != self.shape.len()
            || position.iter().zip(&self.shape).any(|(at, extent)| at >= extent)
        {
            let expected = format!("a place within shape {:?}", self.shape);
            return Err(Error::new("place in coo", expected, format!("{position:?}")));
        }
        let values = self.values.as_slice::<T>()?;
        let here = |&at: &usize| self.entry(at).zip(position).all(|(&at, &wanted)| at as usize == wanted);
        let sum =
            (0..values.len()).filter(here).fold(T::default().summand(), |sum, at| T::add(sum, values[at]));
        Ok(T::narrow(sum))
    }

    /// Takes the rows with the listed indices of the first axis, in the listed order. An index may be listed
    /// repeatedly.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Coo, Dense};
    /// let x = Coo::from_dense(&Dense::from(array![[1, 0], [0, 2]]))?;
    /// assert_eq!(x.take(&[1, 1])?.to_dense()?, array![[0, 2], [0, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an index is not less than the first extent, or if the result is too large for memory.
    #[track_caller]
    pub fn take(&self, rows: &[usize]) -> Result<Self> {
        if let Some(index) = rows.iter().position(|&row| row >= self.shape[0]) {
            let what = format!("row number at place {index}");
            return Err(Error::new(what, format!("below {}", self.shape[0]), rows[index].to_string()));
        }
        let mut order: Vec<usize> = (0..self.entries()).collect();
        order.sort_by_key(|&at| self.coordinates[[at, 0]]);
        let (mut kept, mut firsts) = (Vec::new(), Vec::new());
        for (to, &row) in rows.iter().enumerate() {
            let before = |row: u128| order.partition_point(|&at| (self.coordinates[[at, 0]] as u128) < row);
            let range = before(row as u128)..before(row as u128 + 1);
            firsts.resize(firsts.len() + range.len(), to as i64);
            kept.extend_from_slice(&order[range]);
        }
        self.rows_as(&kept, &firsts, rows.len())
    }

    /// Slices the first axis: the row at the start of the range becomes row 0 of the result.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Coo, Dense};
    /// let x = Coo::from_dense(&Dense::from(array![1, 0, 2]))?;
    /// assert_eq!(x.slice_rows(1..3)?.to_dense()?, array![0, 2].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the first extent of the tensor.
    #[track_caller]
    pub fn slice_rows(&self, part: Range<usize>) -> Result<Self> {
        if part.start > part.end || part.end > self.shape[0] {
            let expected = format!("a range within 0..{}", self.shape[0]);
            return Err(Error::new("rows to slice", expected, format!("{part:?}")));
        }
        let first = |at: usize| self.coordinates[[at, 0]] as usize;
        let kept: Vec<usize> = (0..self.entries()).filter(|&at| part.contains(&first(at))).collect();
        let firsts: Vec<i64> = kept.iter().map(|&at| (first(at) - part.start) as i64).collect();
        self.rows_as(&kept, &firsts, part.len())
    }

    /// Concatenates tensors along the first axis.
    ///
    /// ```
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([3, 2], [([0, 1], 4i32), ([2, 0], 5)])?;
    /// assert_eq!(Coo::concat_rows(&[&x.slice_rows(0..1)?, &x.slice_rows(1..3)?])?, x);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `parts` is empty, if tensors differ in dtype or in an extent other than the first, or if the first
    /// extent of the result overflows.
    #[track_caller]
    pub fn concat_rows(parts: &[&Coo]) -> Result<Self> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::new("coo to concatenate", "at least one", "none"));
        };
        for (i, part) in rest.iter().enumerate() {
            if (part.dtype(), &part.shape[1..]) != (first.dtype(), &first.shape[1..])
                || part.shape.len() != first.shape.len()
            {
                let expected = format!("{} {:?} (the first extent may differ)", first.dtype(), first.shape);
                let what = format!("coo {} to concatenate", i + 1);
                return Err(Error::new(what, expected, format!("{} {:?}", part.dtype(), part.shape)));
            }
        }
        let (mut rows, rank) = (0i64, first.shape.len());
        let mut coordinates = Vec::new();
        for part in parts {
            let Some(end) = i64::try_from(part.shape[0]).ok().and_then(|extent| rows.checked_add(extent))
            else {
                let got = format!("{rows} and {}", part.shape[0]);
                let what = "sum of the first extents of the tensors to concatenate";
                return Err(Error::new(what, format!("at most {}", i64::MAX), got));
            };
            let start = coordinates.len();
            coordinates.extend(&part.coordinates);
            coordinates[start..].iter_mut().step_by(rank).for_each(|at| *at += rows);
            rows = end;
        }
        let coordinates = Array2::from_shape_vec((coordinates.len() / rank, rank), coordinates)
            .map_err(|e| Error::new("coordinates to concatenate", "one rank", e.to_string()))
            .at_caller()?;
        let values: Vec<&Dense> = parts.iter().map(|part| &part.values).collect();
        let mut shape = first.shape.clone();
        shape[0] = rows as usize;
        Ok(Self { shape, coordinates, values: Dense::concat_rows(&values)? })
    }

    /// Takes the entries with the indices `kept`, in this order; entry *i* of the result gets the first coordinate
    /// `firsts[i]`. The first extent of the result is `rows`.
    #[track_caller]
    fn rows_as(&self, kept: &[usize], firsts: &[i64], rows: usize) -> Result<Self> {
        let mut coordinates = self.coordinates.select(Axis(0), kept);
        coordinates.index_axis_mut(Axis(1), 0).iter_mut().zip(firsts).for_each(|(at, &first)| *at = first);
        let mut shape = self.shape.clone();
        shape[0] = rows;
        Ok(Self { shape, coordinates, values: self.values.gather_rows(kept)? })
    }
}
