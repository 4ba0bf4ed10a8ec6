//! The operators `assign` and `cast` on sparse variables, which copy the stored numbers.

use super::entrywise::numbers;
use super::samples::of_storages;
use super::twin::twins;
use crate::operator::Kernel;
use crate::ops::conversion::assign;
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in both operators of this file.
const X: usize = 0;
const OUT: usize = 0;

/// The methods of [`OnSparse`] for a copy. The words are functions of the operator: the dtype of the output, a check of the
/// attributes, and the check cases.
macro_rules! methods {
    ($attributes:tt ($dtype:ident, $check:ident, $samples:ident)) => {
        fn check(&self) -> Result<()> {
            $check(self)
        }

        fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
            let x = s.input(X);
            s.set(OUT, x.with_dtype($dtype(self, x.dtype)));
            Ok(())
        }

        fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            let to = run.output_spec(OUT).dtype;
            with_float!(run.dtype(X), T => with_float!(to, U => copy::<T, U>(run)))
        }

        fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
            let to = run.output_spec(OUT).dtype;
            with_float!(run.dtype(X), T => with_float!(to, U => copy_back::<T, U>(run)))
        }

        #[cfg(feature = "testing")]
        fn samples() -> Result<Vec<CheckCase>> {
            $samples()
        }
    };
}

const KERNELS: &[Kernel] = &[&[CSR], &[ROWS]];

twins! {
    OPERATORS: methods, inputs ["x"], "a csr, coo or selected-rows `x`; the output has the storage of `x`.", "";
    assign::Assign = "sparse_assign" of "assign" () KERNELS, (dtype_of_x, no_check, samples_of_copy);
    assign::Cast = "sparse_cast" of "cast" (dtype = "f32") KERNELS, (dtype_of_cast, float, samples_of_cast);
}

fn dtype_of_x(_: &assign::Assign, x: DType) -> DType {
    x
}

fn dtype_of_cast(cast: &assign::Cast, _: DType) -> DType {
    cast.dtype
}

fn no_check(_: &assign::Assign) -> Result<()> {
    Ok(())
}

/// Checks the dtype of the output; a dtype other than f32 or f64 is an error.
fn float(cast: &assign::Cast) -> Result<()> {
    match cast.dtype {
        DType::F32 | DType::F64 => Ok(()),
        other => Err(Error::of(ErrorKind::Program, "attribute `dtype`", "f32 or f64", other.to_string())),
    }
}

fn samples_of_copy() -> Result<Vec<CheckCase>> {
    of_storages(&Attributes::new(), &Ok)
}

fn samples_of_cast() -> Result<Vec<CheckCase>> {
    let to = |dtype| assign::Cast { dtype }.attributes();
    let mut samples = of_storages(&to(DType::F64), &Ok)?;
    // f32 is too coarse to check the gradient of a cast by finite differences.
    samples.extend(of_storages(&to(DType::F32), &|sample| Ok(sample.without_gradient()))?);
    Ok(samples)
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
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let dout = numbers::<U>(run.output_gradient_csr(OUT), run.output_gradient_rows(OUT))?;
        dx.iter_mut().zip(dout).for_each(|(dx, g)| assign.put(dx, T::from_f64(g.to_f64())));
        Ok(())
    })?;
    Ok(())
}
