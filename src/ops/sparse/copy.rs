//! The operators `assign` and `cast` on sparse variables, which copy the stored numbers.

use super::entrywise::numbers;
use super::samples::of_storages;
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in both operators of this file.
const X: usize = 0;
const OUT: usize = 0;

operator! {
    /// Copies a csr, coo or selected-rows `x`; the copy has the storage of `x`. A call of [`assign`](crate::Builder::assign)
    /// with a sparse variable appends `sparse_assign`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("sparse_assign", &Attributes::new())?;
    /// let x = Variable::new(Csr::new([2, 3], vec![0, 1, 1], vec![2], array![5.0])?, None)?;
    /// assert_eq!(op.call(&[Operand::batch("x", x.clone())])?[0].storage(), x.storage());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or is dense.
    pub(in crate::ops) struct SparseAssign = sparse_assign {}
    inputs { X = x: one }
    kernels { [CSR], [ROWS] }
    stands_for { "assign" }
    outputs { OUT = out: one }
}

impl Op for SparseAssign {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => copy::<T, T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(X)
    }

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => copy_back::<T, T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        of_storages(&Attributes::new(), &Ok)
    }
}

operator! {
    /// Casts a csr, coo or selected-rows `x` to f32 or f64; the output has the storage of `x`. A call of
    /// [`cast`](crate::Builder::cast) with a sparse variable appends `sparse_cast`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("sparse_cast", &Attributes::new().with("dtype", "f32"))?;
    /// let of = |values: ndarray::Array1<f64>| Csr::new([2, 3], vec![0, 1, 1], vec![2], values);
    /// let out = op.call(&[Operand::batch("x", Variable::new(of(array![0.5])?, None)?)])?;
    /// assert_eq!(out[0].storage(), &Csr::new([2, 3], vec![0, 1, 1], vec![2], array![0.5f32])?.into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or is dense, or the dtype is no float.
    pub(in crate::ops) struct SparseCast = sparse_cast { dtype: DType => float }
    inputs { X = x: one }
    kernels { [CSR], [ROWS] }
    stands_for { "cast" }
    outputs { OUT = out: one }
}

/// Reads the attribute with the dtype of the output; a dtype other than f32 or f64 is an error.
fn float(attributes: &Attributes, name: &str) -> Result<DType> {
    let dtype = <DType as crate::operator::attributes::Attribute>::read(attributes, name)?;
    if matches!(dtype, DType::F32 | DType::F64) {
        return Ok(dtype);
    }
    Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "f32 or f64", dtype.to_string()))
}

impl Op for SparseCast {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).with_dtype(self.dtype));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => with_float!(self.dtype, U => copy::<T, U>(run)))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(X)
    }

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => with_float!(self.dtype, U => copy_back::<T, U>(run)))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = of_storages(&SparseCast { dtype: DType::F64 }.attributes(), &Ok)?;
        // f32 is too coarse to check the gradient of a cast by finite differences.
        let to_f32 = SparseCast { dtype: DType::F32 }.attributes();
        samples.extend(of_storages(&to_f32, &|sample| Ok(sample.without_gradient()))?);
        Ok(samples)
    }
}

/// Copies `x` to the output, with the stored numbers converted from `T` to `U`.
fn copy<T: RowValue, U: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let convert = |x: &[T], out: &mut [U]| {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = U::from_f64(x.to_f64()));
    };
    if run.rows(X).is_some() {
        return run.fill_rows(OUT, |run, out| {
            let Some(x) = run.rows(X) else { return Ok(()) };
            out.zeros_at::<U>(x);
            convert(numbers::<T>(None, Some(x))?, out.flat_mut::<U>()?);
            Ok(())
        });
    }
    run.fill_csr(OUT, |run, out| {
        let Some(x) = run.csr(X) else { return Ok(()) };
        out.zeros_at::<U>(x);
        convert(x.values::<T>()?, out.values_mut::<U>()?);
        Ok(())
    })
}

/// Computes the gradient of `x` from the gradient of its copy, converted from `U` to `T`.
fn copy_back<T: RowValue, U: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    run.fill_gradient::<T>(X, 0, |run, dx, assign: Assign| {
        let dout = numbers::<U>(run.output_gradient_csr(OUT), run.output_gradient_rows(OUT))?;
        dx.iter_mut().zip(dout).for_each(|(dx, g)| assign.put(dx, T::from_f64(g.to_f64())));
        Ok(())
    })?;
    Ok(())
}
