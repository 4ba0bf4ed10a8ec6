//! Sums of the numbers of a csr matrix.

use super::Csr;
use crate::error::{Error, Result};
use crate::tensor::dtype::sealed::Sealed;
use crate::tensor::{Dense, Element, with_element};

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
}
