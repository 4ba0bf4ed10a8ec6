//! Elementwise sums and products of sparse matrices.
//!
//! A position without an entry has the number 0. The product of this 0 and any number is 0, even if the number is
//! infinity.

use std::ops::Neg;

use super::{Csr, pointers};
use crate::error::{AtCaller, Error, Result};
use crate::tensor::dense::{Combine, Pair};
use crate::tensor::dtype::sealed::Sealed;
use crate::tensor::{DType, Dense, meeting, with_element};

impl Csr {
    /// Adds two matrices. An entry with the sum 0 stays stored.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let (a, b) = (Csr::try_from(array![[1, 0], [0, 2]])?, Csr::try_from(array![[1, 5], [0, 0]])?);
    /// assert_eq!(a.add(&b)?.to_dense()?, array![[2, 5], [0, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn add(&self, other: &Csr) -> Result<Self> {
        self.combined(other, Combine::Add)
    }

    /// Subtracts `other` from this matrix. An entry with the difference 0 stays stored, as in [`add`](Self::add). The
    /// difference of two bools is true if the bools differ.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let (a, b) = (Csr::try_from(array![[1, 0], [0, 2]])?, Csr::try_from(array![[1, 5], [0, 0]])?);
    /// assert_eq!(a.sub(&b)?.to_dense()?, array![[0, -5], [0, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn sub(&self, other: &Csr) -> Result<Self> {
        self.combined(other, Combine::Subtract)
    }

    /// Multiplies two matrices elementwise: the result has an entry at each position at which both matrices have an
    /// entry. [`dot`](Self::dot) is the matrix product.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let (a, b) = (Csr::try_from(array![[3, 0], [0, 2]])?, Csr::try_from(array![[4, 5], [0, 0]])?);
    /// assert_eq!(a.mul(&b)?.to_dense()?, array![[12, 0], [0, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[doc(alias = "multiply")]
    #[track_caller]
    pub fn mul(&self, other: &Csr) -> Result<Self> {
        self.combined(other, Combine::Multiply)
    }

    /// Multiplies every number by a factor. In a matrix of floats, the factor is first rounded to the nearest number of
    /// the dtype. The operator `-&x` negates a matrix, and cannot fail.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[3.0f32, 0.0]])?;
    /// assert_eq!(x.scale(0.5)?.to_dense()?, array![[1.5f32, 0.0]].into());
    /// assert_eq!((-&x).to_dense()?, array![[-3.0f32, 0.0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtype cannot represent the factor, such as 0.5 in a matrix of integers or bools.
    /// [`cast`](Self::cast) converts such a matrix to floats.
    #[track_caller]
    pub fn scale(&self, factor: f64) -> Result<Self> {
        let values = self.values.scaled(factor)?;
        Ok(Self { values, ..self.clone() })
    }

    /// Converts the numbers to another dtype, as [`Dense::cast`] does. The resulting matrix is canonical.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_triples([1, 9], [(0, 3, 2.75f32)])?.cast(DType::I64)?;
    /// assert_eq!(x.get::<i64>(0, 3)?, 2);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[doc(alias = "astype")]
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let sorted = self.canonical()?;
        let values = sorted.values.cast(dtype);
        Ok(Self { values, ..sorted.into_owned() })
    }

    /// Multiplies this matrix elementwise by a dense tensor. The shape of the tensor must be the shape of this matrix,
    /// or broadcast to it by the rules of ndarray. A tensor of shape `[columns]`, such as inverse document frequencies,
    /// scales the columns; a tensor of shape `[rows, 1]` scales the rows.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let counts = Csr::try_from(array![[3.0f32, 0.0], [1.0, 1.0]])?;
    /// let weighted = counts.mul_dense(&array![2.0f32, 10.0].into())?;
    /// assert_eq!(weighted.to_dense()?, array![[6.0f32, 0.0], [2.0, 10.0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the tensor has another dtype than the matrix, or a shape that does not broadcast to the shape of the
    /// matrix.
    #[track_caller]
    pub fn mul_dense(&self, other: &Dense) -> Result<Self> {
        let sorted = self.canonical()?;
        let (at, row_of) = (&sorted.indices, sorted.row_of());
        if other.dtype() != self.dtype() {
            return Err(Error::new("dense tensor to multiply by", self.dtype().name(), other.dtype().name()));
        }
        // `steps` has the two strides of the dense tensor: from row to row, and from column to column.
        let [rows, columns] = self.shape;
        let step =
            |extent, whole, step| if extent == whole { Some(step) } else { (extent == 1).then_some(0) };
        let steps = match *other.shape() {
            [] => Some((0, 0)),
            [across] => step(across, columns, 1).map(|to_right| (0, to_right)),
            [down, across] => step(down, rows, across).zip(step(across, columns, 1)),
            _ => None,
        };
        let Some((down, to_right)) = steps else {
            let expected = format!("a shape that broadcasts to {:?}", self.shape);
            return Err(Error::new(
                "dense tensor to multiply by",
                expected,
                format!("shape {:?}", other.shape()),
            ));
        };
        let values = with_element!(self.dtype(), T => {
            let factors = other.as_slice::<T>()?;
            let numbers = sorted.values.as_slice::<T>()?.iter().enumerate().map(|(i, x)| {
                let factor = factors[row_of[i] * down + at[i] as usize * to_right];
                T::narrow(T::times(x.summand(), factor.summand()))
            });
            Dense::from_vec(&[at.len()], numbers.collect::<Vec<T>>())?
        });
        Ok(Self { values, ..sorted.into_owned() })
    }

    /// Adds a dense matrix to this matrix; the result is dense.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::try_from(array![[3, 0], [0, 1]])?;
    /// assert_eq!(x.add_dense(&array![[1, 1], [1, 1]].into())?, array![[4, 1], [1, 2]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn add_dense(&self, other: &Dense) -> Result<Dense> {
        if (other.dtype(), other.shape()) != (self.dtype(), self.shape()) {
            let expected = format!("{} {:?}", self.dtype(), self.shape);
            let got = format!("{} {:?}", other.dtype(), other.shape());
            return Err(Error::new("dense tensor to add", expected, got));
        }
        let (sorted, mut out) = (self.canonical()?, other.clone());
        with_element!(self.dtype(), T => {
            let (numbers, values) = (out.as_mut_slice::<T>()?, sorted.values.as_slice::<T>()?);
            for (i, row) in sorted.row_of().into_iter().enumerate() {
                let to = &mut numbers[row * self.shape[1] + sorted.indices[i] as usize];
                *to = T::narrow(T::add(to.summand(), values[i]));
            }
        });
        Ok(out)
    }

    #[track_caller]
    fn combined(&self, other: &Csr, how: Combine) -> Result<Self> {
        how.check_like("csr", [(self.dtype(), self.shape()), (other.dtype(), other.shape())])?;
        let (a, b) = (self.canonical()?, other.canonical()?);
        let mut pairs = a.meeting(&b);
        if how == Combine::Multiply {
            pairs.retain(|pair| matches!(pair, Pair::Both(..)));
        }
        let (a_rows, b_rows) = (a.row_of(), b.row_of());
        let index = |&pair: &Pair| match pair {
            Pair::Left(i) | Pair::Both(i, _) => (a_rows[i], a.indices[i]),
            Pair::Right(i) => (b_rows[i], b.indices[i]),
        };
        let (rows, indices): (Vec<usize>, Vec<i64>) = pairs.iter().map(index).unzip();
        let values = a.values.combine(&b.values, &pairs, how)?;
        Ok(Self { shape: self.shape, indptr: pointers(&rows, self.shape[0]).at_caller()?, indices, values })
    }

    /// Pairs the entries of two canonical matrices that have the same position; an entry without a partner is a pair by
    /// itself.
    fn meeting(&self, other: &Csr) -> Vec<Pair> {
        let (a, b) = (self.row_of(), other.row_of());
        let order = |i: usize, j: usize| (a[i], self.indices[i]).cmp(&(b[j], other.indices[j]));
        meeting::union([self.entries(), other.entries()], order)
    }
}

/// Negates every number. Integers wrap around; bools do not change.
impl Neg for &Csr {
    type Output = Csr;

    fn neg(self) -> Csr {
        Csr { values: self.values.negated(), ..self.clone() }
    }
}
