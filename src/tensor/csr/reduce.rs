//! Reductions of a csr matrix: sums, maxima, minima and norms.

use super::Csr;
use crate::error::{Error, Result};
use crate::tensor::dtype::Number;
use crate::tensor::dtype::sealed::Sealed;
use crate::tensor::{DType, Dense, Element, with_element};

impl Csr {
    /// Returns the sum of all numbers. Floats are added in `f64`, integers wrap around, and bools are combined by
    /// "or".
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// assert_eq!(Csr::from_triples([9, 9], [(1, 2, 4i32), (8, 0, 5)])?.sum::<i32>()?, 9);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn sum<T: Element>(&self) -> Result<T> {
        self.values.total()
    }

    /// Sums over an axis. Axis 0 adds up all rows, so the result has shape `[columns]`; axis 1 adds up all columns, so
    /// the result has shape `[rows]`. Numbers are added as in [`sum`](Self::sum); the result has the matrix's dtype.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[1, 0, 3], [0, 2, 1]])?;
    /// assert_eq!((x.sum_axis(0)?, x.sum_axis(1)?), (array![1, 2, 4].into(), array![4, 3].into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the axis is neither 0 nor 1, or if the result does not fit into memory.
    #[track_caller]
    pub fn sum_axis(&self, axis: usize) -> Result<Dense> {
        let Some(&extent) = [self.shape[1], self.shape[0]].get(axis) else {
            return Err(Error::new("axis to sum over", "0 or 1", axis.to_string()));
        };
        let values = self.values.to_sums();
        let mut out = Dense::zeros(values.dtype(), &[extent])?;
        with_element!(values.dtype(), T => {
            let (sums, values) = (out.as_mut_slice::<T>()?, values.as_slice::<T>()?);
            for row in 0..self.shape[0] {
                for at in self.range(row) {
                    let to = &mut sums[if axis == 0 { self.indices[at] as usize } else { row }];
                    *to = T::narrow(T::add(to.summand(), values[at]));
                }
            }
        });
        Ok(out.cast(self.dtype()))
    }

    /// Computes the Euclidean norm of each row, in `f64`; the result has shape `[rows]`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[3.0f32, 0.0, 4.0], [0.0, 0.0, 0.0]])?;
    /// assert_eq!(x.row_norms()?, array![5.0f32, 0.0].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails for a matrix of integers or bools.
    #[track_caller]
    pub fn row_norms(&self) -> Result<Dense> {
        if !self.dtype().is_float() {
            return Err(Error::new("dtype of row norms", "floats", self.dtype().name()));
        }
        let sorted = self.canonical()?;
        let mut norms = Dense::zeros(DType::F64, &[self.shape[0]])?;
        let (to, wide) = (norms.as_mut_slice::<f64>()?, sorted.values.cast(DType::F64));
        let numbers = wide.as_slice::<f64>()?;
        for (row, norm) in to.iter_mut().enumerate() {
            *norm = numbers[sorted.range(row)].iter().fold(0.0, |sum: f64, x| sum + x * x).sqrt();
        }
        Ok(norms.cast(self.dtype()))
    }

    /// Returns the largest number in the matrix; a position without an entry has the number 0. The result is NaN if a
    /// stored value is NaN, and `None` if the matrix has no positions.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([9, 9], [(1, 2, -4i32)])?;
    /// assert_eq!((x.max::<i32>()?, x.min::<i32>()?), (Some(0), Some(-4)));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn max<T: Element>(&self) -> Result<Option<T>> {
        self.extreme(|a, b| a > b)
    }

    /// Returns the smallest number in the matrix. The rules of [`max`](Self::max) for positions without an entry, for
    /// NaN and for matrices without positions apply here, too.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn min<T: Element>(&self) -> Result<Option<T>> {
        self.extreme(|a, b| a < b)
    }

    #[track_caller]
    fn extreme<T: Element>(&self, after: fn(Number, Number) -> bool) -> Result<Option<T>> {
        let sorted = self.canonical()?;
        let stored = sorted.values.extreme::<T>(after)?;
        let places = self.shape[0] as u128 * self.shape[1] as u128;
        let full = places == sorted.entries() as u128;
        Ok(match stored {
            Some(x) if !full && after(T::default().number(), x.number()) => Some(T::default()),
            None if places > 0 => Some(T::default()),
            stored => stored,
        })
    }
}
