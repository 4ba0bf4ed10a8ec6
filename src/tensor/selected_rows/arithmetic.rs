//! Sums, products and norms of selected rows.

use std::ops::Neg;

use super::SelectedRows;
use crate::error::{Error, Result};
use crate::kernels::{Assign, Float, PackedMatrix, RoundedRows, Transpose, View, ViewMut, affine};
use crate::tensor::dense::{Combine, Pair};
use crate::tensor::{DType, Dense, Element, meeting, with_element};

impl SelectedRows {
    /// Adds two tables; the result is merged and stores each row that either table stores.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::SelectedRows;
    /// let x = SelectedRows::new(4, vec![2, 0], array![[1.0f32], [2.0]])?;
    /// let y = SelectedRows::new(4, vec![3, 2], array![[5.0f32], [3.0]])?;
    /// let sum = x.add(&y)?;
    /// assert_eq!((sum.row_ids(), sum.value()), (&[0, 2, 3][..], &array![[2.0f32], [4.0], [5.0]].into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn add(&self, other: &SelectedRows) -> Result<Self> {
        self.combined(other, Combine::Add)
    }

    /// Subtracts `other` from this table; the result is merged and stores each row that either table stores.
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn sub(&self, other: &SelectedRows) -> Result<Self> {
        self.combined(other, Combine::Subtract)
    }

    /// Multiplies two tables elementwise; the result is merged and stores the rows that both tables store.
    ///
    /// # Errors
    /// Fails if the dtypes or the shapes differ.
    #[track_caller]
    pub fn mul(&self, other: &SelectedRows) -> Result<Self> {
        self.combined(other, Combine::Multiply)
    }

    /// Multiplies every number by a factor. In a table of floats, the factor is first rounded to the nearest number of
    /// the dtype.
    ///
    /// # Errors
    /// Fails if the dtype cannot represent the factor, such as 0.5 in a table of integers or bools.
    /// [`cast`](Self::cast) converts such a table to floats.
    #[track_caller]
    pub fn scale(&self, factor: f64) -> Result<Self> {
        let value = self.value.scaled(factor)?;
        Ok(Self { value, ..self.clone() })
    }

    /// Converts the numbers to another dtype, as [`Dense::cast`] does. The rows of the result are merged.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        let merged = self.merged()?;
        let value = merged.value.cast(dtype);
        Ok(Self { value, ..merged.into_owned() })
    }

    /// Multiplies each stored row by a dense matrix with N columns. The result is a table of shape `[height, N]` that
    /// stores the rows that this table stores.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Dense, SelectedRows};
    /// let x = SelectedRows::new(4, vec![2, 0], array![[1.0f32, 2.0], [3.0, 4.0]])?;
    /// let product = x.dot(&Dense::from(array![[1.0f32], [10.0]]))?;
    /// assert_eq!((product.row_ids(), product.value()), (&[2, 0][..], &array![[21.0f32], [43.0]].into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes differ, or if the rows of this table do not have exactly one dimension. Also fails if the
    /// matrix does not have as many rows as this table has columns.
    #[doc(alias = "matmul")]
    #[track_caller]
    pub fn dot(&self, rhs: &Dense) -> Result<Self> {
        let (&[_, k], &[rows, n]) = (self.value.shape(), rhs.shape()) else {
            let got = format!("shapes {:?} and {:?}", self.shape, rhs.shape());
            return Err(Error::new("product of selected rows", "two matrices", got));
        };
        if (rhs.dtype(), rows) != (self.dtype(), k) {
            let expected = format!("{} of {k} rows", self.dtype());
            let got = format!("{} {:?}", rhs.dtype(), rhs.shape());
            return Err(Error::new("right side of a product with selected rows", expected, got));
        }
        let mut value = Dense::zeros(self.dtype(), &[self.rows.len(), n])?;
        match self.dtype() {
            DType::F32 => product_kernel::<f32>(&self.value, rhs, &mut value)?,
            DType::F64 => product_kernel::<f64>(&self.value, rhs, &mut value)?,
            other => with_element!(other, T => product::<T>(&self.value, rhs, &mut value)?),
        }
        Self::new(self.height(), self.rows.clone(), value)
    }

    #[track_caller]
    fn combined(&self, other: &SelectedRows, how: Combine) -> Result<Self> {
        how.check_like("selected rows", [(self.dtype(), self.shape()), (other.dtype(), other.shape())])?;
        let (a, b) = (self.merged()?, other.merged()?);
        let mut pairs = meeting::union([a.rows.len(), b.rows.len()], |i, j| a.rows[i].cmp(&b.rows[j]));
        if how == Combine::Multiply {
            pairs.retain(|pair| matches!(pair, Pair::Both(..)));
        }
        let id = |&pair: &Pair| match pair {
            Pair::Left(i) | Pair::Both(i, _) => a.rows[i],
            Pair::Right(i) => b.rows[i],
        };
        let value = a.value.combine(&b.value, &pairs, how)?;
        Ok(Self { shape: self.shape.clone(), rows: pairs.iter().map(id).collect(), value })
    }
}

#[track_caller]
fn product_kernel<T: Element + Float>(x: &Dense, y: &Dense, out: &mut Dense) -> Result<()> {
    let (mut packed, threads) = (PackedMatrix::new(), rayon::current_num_threads());
    packed.pack(View::new(y.as_slice::<T>()?, y.rows(), y.width()), Transpose::No, threads);
    let x = View::new(x.as_slice::<T>()?, x.rows(), x.width());
    let to = ViewMut::new(out.as_mut_slice::<T>()?, x.rows(), y.width());
    affine(x.into(), &packed, None, to.into(), Assign::Write, &mut RoundedRows::default(), threads);
    Ok(())
}

/// Computes the matrix product for dtypes that have no kernel, with plain loops.
#[track_caller]
fn product<T: Element>(x: &Dense, y: &Dense, out: &mut Dense) -> Result<()> {
    let (k, n) = (x.width(), y.width());
    let (rows, from) = (x.rows(), y.as_slice::<T>()?);
    let (x, to) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    for row in 0..rows {
        for j in 0..n {
            let products = (0..k).map(|i| T::times(x[row * k + i].summand(), from[i * n + j].summand()));
            to[row * n + j] = T::narrow(products.fold(T::default().summand(), T::plus));
        }
    }
    Ok(())
}

/// Negates every number. Integers wrap around; bools do not change.
impl Neg for &SelectedRows {
    type Output = SelectedRows;

    fn neg(self) -> SelectedRows {
        SelectedRows { value: self.value.negated(), ..self.clone() }
    }
}
