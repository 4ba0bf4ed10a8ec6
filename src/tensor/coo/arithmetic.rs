//! Elementwise sums and products of coo tensors. A position without an entry has the number 0.

use std::ops::Neg;

use ndarray::{Array2, Axis};

use super::Coo;
use crate::error::Result;
use crate::tensor::dense::{Combine, Pair};
use crate::tensor::{DType, meeting};

impl Coo {
    /// Adds two tensors. An entry with the sum 0 stays stored.
    ///
    /// ```
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([2, 2, 2], [([1, 0, 1], 4i32)])?;
    /// assert_eq!(x.add(&x)?.get::<i32>(&[1, 0, 1])?, 8);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn add(&self, other: &Coo) -> Result<Self> {
        self.combined(other, Combine::Add)
    }

    /// Subtracts `other` from this tensor. An entry with the difference 0 stays stored, as in [`add`](Self::add).
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn sub(&self, other: &Coo) -> Result<Self> {
        self.combined(other, Combine::Subtract)
    }

    /// Multiplies two tensors elementwise: the result has an entry at each position at which both tensors have an
    /// entry.
    ///
    /// ```
    /// use unpadded::tensor::Coo;
    /// let x = Coo::from_entries([2, 2, 2], [([1, 0, 1], 4i32)])?;
    /// let y = Coo::from_entries([2, 2, 2], [([1, 0, 1], 5i32), ([0, 0, 0], 1)])?;
    /// assert_eq!((x.mul(&y)?.entries(), x.mul(&y)?.get::<i32>(&[1, 0, 1])?), (1, 20));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn mul(&self, other: &Coo) -> Result<Self> {
        self.combined(other, Combine::Multiply)
    }

    /// Multiplies every number by a factor. In a tensor of floats, the factor is first rounded to the nearest number of
    /// the dtype.
    ///
    /// # Errors
    /// Fails if the dtype cannot represent the factor, such as 0.5 in a tensor of integers or bools.
    /// [`cast`](Self::cast) converts such a tensor to floats.
    #[track_caller]
    pub fn scale(&self, factor: f64) -> Result<Self> {
        let values = self.values.scaled(factor)?;
        Ok(Self { values, ..self.clone() })
    }

    /// Converts the numbers to another dtype, as [`Dense::cast`](crate::tensor::Dense::cast) does. The resulting tensor
    /// is canonical.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let sorted = self.canonical()?;
        let values = sorted.values.cast(dtype);
        Ok(Self { values, ..sorted.into_owned() })
    }

    #[track_caller]
    fn combined(&self, other: &Coo, how: Combine) -> Result<Self> {
        how.check_like("coo", [(self.dtype(), self.shape()), (other.dtype(), other.shape())])?;
        let (a, b) = (self.canonical()?, other.canonical()?);
        let mut pairs = meeting::union([a.entries(), b.entries()], |i, j| a.entry(i).cmp(b.entry(j)));
        if how == Combine::Multiply {
            pairs.retain(|pair| matches!(pair, Pair::Both(..)));
        }
        let mut coordinates = Array2::zeros((pairs.len(), self.shape.len()));
        for (mut to, &pair) in coordinates.outer_iter_mut().zip(&pairs) {
            to.assign(&match pair {
                Pair::Left(i) | Pair::Both(i, _) => a.coordinates.index_axis(Axis(0), i),
                Pair::Right(i) => b.coordinates.index_axis(Axis(0), i),
            });
        }
        let values = a.values.combine(&b.values, &pairs, how)?;
        Ok(Self { shape: self.shape.clone(), coordinates, values })
    }
}

/// Negates every number. Integers wrap around; bools do not change.
impl Neg for &Coo {
    type Output = Coo;

    fn neg(self) -> Coo {
        Coo { values: self.values.negated(), ..self.clone() }
    }
}
