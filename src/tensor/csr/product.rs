//! Matrix products of a csr matrix with dense tensors, selected rows and csr matrices.
//!
//! Products of `f32` and `f64` use the kernels. Products of other dtypes use plain loops: 16-bit floats are multiplied
//! and added in `f32`, and integers wrap around. For bools, a product is "and" and a sum is "or".

use std::borrow::Cow;

use super::{Csr, pointers};
use crate::error::{AtCaller, Error, Result};
use crate::kernels::sparse::{Columns, CsrMut, CsrView, SparseRoom, csr_csr, csr_dense};
use crate::kernels::{Assign, Float, View, ViewMut};
use crate::tensor::{DType, Dense, Element, SelectedRows, with_element};

/// The matrix product of a csr matrix with a right side of type `Rhs`; [`Csr::dot`] calls this trait.
pub trait Dot<Rhs> {
    /// The type of the product, such as [`Dense`].
    type Output;

    /// Computes the matrix product of `self` and `rhs`.
    ///
    /// # Errors
    /// Fails if the dtypes differ, or if the right side does not have as many rows as the left side has columns.
    fn product(&self, rhs: &Rhs) -> Result<Self::Output>;
}

impl Dot<Dense> for Csr {
    type Output = Dense;

    #[track_caller]
    fn product(&self, rhs: &Dense) -> Result<Dense> {
        check(self, self.shape[1], rhs.dtype(), rhs.shape())?;
        let mut out = Dense::zeros(self.dtype(), &[&[self.shape[0]], &rhs.shape()[1..]].concat())?;
        match self.dtype() {
            DType::F32 => dense_kernel::<f32>(self, rhs, &mut out)?,
            DType::F64 => dense_kernel::<f64>(self, rhs, &mut out)?,
            other => with_element!(other, T => dense_product::<T>(self, rhs, &mut out)?),
        }
        Ok(out)
    }
}

impl Dot<Csr> for Csr {
    type Output = Csr;

    #[track_caller]
    fn product(&self, rhs: &Csr) -> Result<Csr> {
        check(self, self.shape[1], rhs.dtype(), rhs.shape())?;
        match self.dtype() {
            DType::F32 => sparse_kernel::<f32>(self, rhs),
            DType::F64 => sparse_kernel::<f64>(self, rhs),
            other => with_element!(other, T => sparse_product::<T>(self, rhs)),
        }
    }
}

impl Dot<SelectedRows> for Csr {
    type Output = Dense;

    #[track_caller]
    fn product(&self, rhs: &SelectedRows) -> Result<Dense> {
        check(self, self.shape[1], rhs.dtype(), rhs.shape())?;
        let merged = if rhs.is_merged() { Cow::Borrowed(rhs) } else { Cow::Owned(rhs.clone().merge()?) };
        let (ids, value) = (merged.row_ids(), merged.value());
        // Only the columns for which the right side stores a row are multiplied.
        let index = |at: usize| ids.binary_search(&self.indices[at]).ok().map(|index| index as i64);
        self.filtered(ids.len(), index)?.product(value)
    }
}

impl Csr {
    /// Computes the matrix product of this matrix with a dense tensor, selected rows or another csr matrix. The sums
    /// run over the first axis of the right side. The product with a csr matrix is a canonical csr matrix; other
    /// products are dense. Each number of the result is a sum over the entries of a row of this matrix, in stored
    /// order.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Csr, Dense};
    /// let x = Csr::try_from(array![[1.0f32, 0.0, 2.0], [0.0, 3.0, 0.0]])?;
    /// let weight = Dense::from(array![[1.0f32, 10.0], [2.0, 20.0], [3.0, 30.0]]);
    /// assert_eq!(x.dot(&weight)?, array![[7.0f32, 70.0], [6.0, 60.0]].into());
    /// assert_eq!(x.dot(&Dense::from(array![1.0f32, 1.0, 1.0]))?, array![3.0f32, 3.0].into());
    /// assert_eq!(x.dot(&x.transpose()?)?.to_dense()?, array![[5.0f32, 0.0], [0.0, 9.0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes differ, or if the right side does not have as many rows as this matrix has columns. Also
    /// fails if the result is too large for memory.
    #[doc(alias = "matmul")]
    #[track_caller]
    pub fn dot<Rhs>(&self, rhs: &Rhs) -> Result<<Self as Dot<Rhs>>::Output>
    where
        Self: Dot<Rhs>,
    {
        self.product(rhs).at_caller()
    }

    /// Computes the product of this matrix's transpose with a dense tensor of shape `[rows, …]`. The result stores a
    /// row for each column that has an entry. The gradient of `x.dot(&weight)` with respect to `weight` thus stores
    /// only the rows of `weight` that `x` uses.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Csr, Dense};
    /// let x = Csr::from_triples([2, 1000], [(0, 7, 1.0f32), (1, 7, 2.0), (1, 900, 3.0)])?;
    /// let gradient = x.transposed_dot(&Dense::from(array![[1.0f32], [10.0]]))?;
    /// assert_eq!((gradient.height(), gradient.row_ids()), (1000, &[7, 900][..]));
    /// assert_eq!(gradient.value().as_slice::<f32>()?, [21.0, 30.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the dtypes or the numbers of rows differ.
    #[track_caller]
    pub fn transposed_dot(&self, rhs: &Dense) -> Result<SelectedRows> {
        check(self, self.shape[0], rhs.dtype(), rhs.shape())?;
        // The kernel counts entries and rows in `u32`, so larger matrices use plain loops.
        let counted = u32::try_from(self.entries()).is_ok() && u32::try_from(self.shape[0]).is_ok();
        match self.dtype() {
            DType::F32 if counted => return transposed_kernel::<f32>(self, rhs),
            DType::F64 if counted => return transposed_kernel::<f64>(self, rhs),
            _ => {}
        }
        let mut ids = self.indices.clone();
        ids.sort_unstable();
        ids.dedup();
        // Columns without an entry are removed first, because the matrix may have too many columns for memory.
        let index = |at: usize| ids.binary_search(&self.indices[at]).ok().map(|index| index as i64);
        let narrow = self.filtered(ids.len(), index)?.transpose()?;
        SelectedRows::new(self.shape[1], ids, narrow.product(rhs).at_caller()?)
    }
}

/// Checks that the right side has the dtype of the left side, and `summed` rows.
#[track_caller]
fn check(left: &Csr, summed: usize, dtype: DType, shape: &[usize]) -> Result<()> {
    if dtype == left.dtype() && shape.first() == Some(&summed) {
        return Ok(());
    }
    let expected = format!("{} of {summed} rows", left.dtype());
    Err(Error::new("right side of a product with csr", expected, format!("{dtype} {shape:?}")))
}

/// Returns the view of the matrix that the kernels read.
#[track_caller]
fn view<T: Element>(x: &Csr) -> Result<CsrView<'_, T>> {
    Ok(CsrView::new(x.shape[1], &x.indptr, &x.indices, x.values.as_slice()?))
}

#[track_caller]
fn dense_kernel<T: Element + Float>(x: &Csr, y: &Dense, out: &mut Dense) -> Result<()> {
    let n = y.width();
    let y = View::new(y.as_slice::<T>()?, x.shape[1], n);
    let out = ViewMut::new(out.as_mut_slice()?, x.shape[0], n);
    csr_dense(view(x)?, y, out, Assign::Write, rayon::current_num_threads());
    Ok(())
}

#[track_caller]
fn transposed_kernel<T: Element + Float>(x: &Csr, y: &Dense) -> Result<SelectedRows> {
    let (n, threads) = (y.width(), rayon::current_num_threads());
    let mut columns = Columns::<T>::default();
    columns.prepare(view(x)?);
    let mut out = Dense::zeros(T::DTYPE, &[&[columns.ids().len()], &y.shape()[1..]].concat())?;
    let to = ViewMut::new(out.as_mut_slice()?, columns.ids().len(), n);
    columns.product(View::new(y.as_slice()?, x.shape[0], n), to, Assign::Write, threads);
    SelectedRows::new(x.shape[1], columns.ids().to_vec(), out)
}

#[track_caller]
fn sparse_kernel<T: Element + Float>(x: &Csr, y: &Csr) -> Result<Csr> {
    let (mut indptr, mut indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let out = CsrMut { indptr: &mut indptr, indices: &mut indices, values: &mut values };
    csr_csr(view::<T>(x)?, view(y)?, out, &mut SparseRoom::default(), rayon::current_num_threads());
    let values = Dense::from_vec(&[values.len()], values)?;
    Ok(Csr { shape: [x.shape[0], y.shape[1]], indptr, indices, values })
}

#[track_caller]
fn dense_product<T: Element>(x: &Csr, y: &Dense, out: &mut Dense) -> Result<()> {
    let (n, y) = (y.width(), y.as_slice::<T>()?);
    let (values, to) = (x.values.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    // Without rows, the width may be too large for memory.
    let mut sums = vec![T::default().summand(); n.min(to.len())];
    for row in 0..x.shape[0] {
        sums.fill(T::default().summand());
        for at in x.range(row) {
            let (times, from) = (values[at].summand(), x.indices[at] as usize * n);
            for (sum, &y) in sums.iter_mut().zip(&y[from..from + n]) {
                *sum = T::plus(*sum, T::times(times, y.summand()));
            }
        }
        to[row * n..(row + 1) * n].iter_mut().zip(&sums).for_each(|(to, &sum)| *to = T::narrow(sum));
    }
    Ok(())
}

#[track_caller]
fn sparse_product<T: Element>(x: &Csr, y: &Csr) -> Result<Csr> {
    let (x_values, y_values) = (x.values.as_slice::<T>()?, y.values.as_slice::<T>()?);
    let mut indptr = pointers(&[], x.shape[0]).at_caller()?;
    let (mut indices, mut values, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..x.shape[0] {
        // An entry in column *k* of `x` is multiplied by each entry of row *k* of `y`. The pairs of entries are sorted
        // by the column of the result, then by the order of the entries; the products of one column are added.
        pairs.clear();
        for i in x.range(row) {
            for j in y.range(x.indices[i] as usize) {
                pairs.push((y.indices[j], i, j));
            }
        }
        pairs.sort_unstable();
        let product = |i: usize, j: usize| T::times(x_values[i].summand(), y_values[j].summand());
        let mut at = 0;
        while let Some(&(column, i, j)) = pairs.get(at) {
            let mut sum = product(i, j);
            at += 1;
            while let Some(&(_, i, j)) = pairs.get(at).filter(|next| next.0 == column) {
                sum = T::plus(sum, product(i, j));
                at += 1;
            }
            indices.push(column);
            values.push(T::narrow(sum));
        }
        indptr[row + 1] = indices.len() as i64;
    }
    let values = Dense::from_vec(&[values.len()], values)?;
    Ok(Csr { shape: [x.shape[0], y.shape[1]], indptr, indices, values })
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn wide_matrices_are_multiplied_without_their_width() {
        // An array with an element for each column of this matrix would not fit into memory.
        let wide =
            Csr::new([2, usize::MAX], vec![0, 2, 3], vec![7, i64::MAX, 7], array![1.0f32, 2.0, 3.0]).unwrap();
        let gradient = wide.transposed_dot(&Dense::from(array![[1.0f32], [10.0]])).unwrap();
        assert_eq!((gradient.height(), gradient.row_ids()), (usize::MAX, &[7, i64::MAX][..]));
        assert_eq!(gradient.value(), &Dense::from(array![[31.0f32], [2.0]]));
        assert_eq!(wide.dot(&gradient).unwrap(), array![[35.0f32], [93.0]].into());
        let turned = Csr::from_triples([3, 2], [(2, 1, 5.0f32)]).unwrap();
        assert_eq!(turned.dot(&wide).unwrap().row::<f32>(2).unwrap(), (&[7][..], &[15.0][..]));
        assert!(wide.cast(DType::I32).unwrap().transposed_dot(&array![1, 1].into()).is_ok());
    }
}
