//! Reductions: `sum` and `mean` reduce all numbers of a variable to one number; `sum_features`, `mean_features` and
//! `max_features` reduce each row to one number.

use crate::kernels::exceeds;
use crate::operator::Total;
use crate::ops::prelude::*;

const X: usize = 0;
const OUT: usize = 0;

/// A reduction of numbers to one number.
pub(in crate::ops) trait Reduction: DeclaredOp {
    /// Whether the gradient of the reduction depends on the numbers that were reduced.
    const NEEDS_X: bool = false;
    /// A hint for the compiler: whether the operator computes the sum or the mean of all numbers of a variable; `None`
    /// for all other operators.
    const TOTAL: Option<Total> = None;
    /// Reduces the numbers of `rows`, `n` in total, to one number.
    fn reduce<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>, n: usize) -> T;
    /// Returns the derivative of the reduction with respect to element `j` of a row of `n` numbers; `best` is the index of
    /// the first maximum, and is used only if [`Self::NEEDS_X`].
    fn slope<T: Float>(j: usize, n: usize, best: usize) -> T;
}

/// Declares reductions. Each entry has the documentation, a type, a method, the result and the derivative of a reduction.
macro_rules! reductions {
    ($(
        $(#[doc = $text:literal])*
        $type:ident = fn $kind:ident $({ $($declared:tt)* })?
            result |$rows:ident, $count:pat_param| $result:expr;
            slope |$j:pat_param, $n:pat_param, $best:pat_param| $slope:expr;
    )*) => {$(
        $crate::operator! {
            $(#[doc = $text])*
            pub(in crate::ops) struct $type = $kind {}
            inputs { X = x: one }
            outputs { OUT = out: one }
            impl Builder, Var { fn $kind(&self, x: Var) -> Var; }
        }

        impl Reduction for $type {
            $($($declared)*)?

            fn reduce<'a, T: Float>($rows: impl Iterator<Item = &'a [T]>, $count: usize) -> T {
                $result
            }

            fn slope<T: Float>($j: usize, $n: usize, $best: usize) -> T {
                $slope
            }
        }
    )*};
}

reductions! {
    /// Sums all numbers of a variable with any LoD: out = Σ_ij x_ij; the output is one number without a LoD. The sum is
    /// computed row by row, first to last, in f64, so the result does not depend on the number of threads.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("sum", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].lod()), ([24.0].as_slice(), None));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    Sum = fn sum { const TOTAL: Option<Total> = Some(Total::Sum); }
        result |rows, _| T::from_f64(total(rows));
        slope |_, _, _| T::ONE;

    /// Computes the mean of all n numbers of a variable: out = Σ_ij x_ij / n, or 0 if n = 0; the output is one number without a
    /// LoD. The sum is computed as in the operator `sum`: row by row, in f64.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("mean", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].lod()), ([4.0].as_slice(), None));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    Mean = fn mean { const TOTAL: Option<Total> = Some(Total::Mean); }
        result |rows, n| T::from_f64(total(rows) / n.max(1) as f64);
        slope |_, n, _| T::from_f64(1.0 / n.max(1) as f64);

    /// Sums the numbers of each row: out_i = Σ_j x_ij; the output has one number per row, and the LoD of x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("sum_features", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([3.0, 11.0, 10.0].as_slice(), [3, 1].as_slice()));
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    SumFeatures = fn sum_features
        result |rows, _| T::from_f64(total(rows));
        slope |_, _, _| T::ONE;

    /// Computes the mean of the n numbers of each row: out_i = Σ_j x_ij / n, or 0 if n = 0; the output has one number per row,
    /// and the LoD of x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("mean_features", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([1.5, 5.5, 5.0].as_slice(), [3, 1].as_slice()));
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    MeanFeatures = fn mean_features
        result |rows, n| T::from_f64(total(rows) / n.max(1) as f64);
        slope |_, n, _| T::from_f64(1.0 / n.max(1) as f64);

    /// Computes the maximum of each row: out_i = max_j x_ij; the output has one number per row, and the LoD of x. NaN counts as
    /// larger than any number, so that the maximum of a row with a NaN is NaN. The first maximum of a row gets the whole
    /// gradient of the row's maximum.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("max_features", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([2.0, 7.0, 5.0].as_slice(), [3, 1].as_slice()));
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, or has the width 0.
    MaxFeatures = fn max_features { const NEEDS_X: bool = true; }
        result |rows, _| maximum(rows);
        slope |j, _, best| if j == best { T::ONE } else { T::ZERO };
}

fn total<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>) -> f64 {
    rows.map(|row| row.iter().map(|x| x.to_f64()).sum::<f64>()).fold(0.0, |all, row| all + row)
}

fn maximum<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>) -> T {
    rows.map(|row| row[first_maximum(row)])
        .fold(T::NEG_INFINITY, |all, x| if exceeds(x, all) { x } else { all })
}

fn first_maximum<T: Float>(row: &[T]) -> usize {
    row.iter().enumerate().fold(0, |best, (j, &x)| if exceeds(x, row[best]) { j } else { best })
}

/// An operator that applies a [`Reduction`] to all numbers of a variable.
pub(in crate::ops) struct Whole<R>(R);
family!(Whole);

impl<R: Reduction> Op for Whole<R> {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn hints(&self) -> Hints {
        Hints { total: R::TOTAL, ..Hints::default() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, Spec::fixed(s.input(X).dtype, &[])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let x = run.input::<T>(X)?;
            run.output::<T>(OUT)?.fill(R::reduce(x.iter(), x.rows() * x.width()));
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            if let (Some((mut dx, assign)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                let g = dout.row(0)[0] * R::slope::<T>(0, dx.rows() * dx.width(), 0);
                match assign {
                    Assign::Write => dx.fill(g),
                    Assign::Add => dx.iter_mut().flatten().for_each(|dx| *dx += g),
                }
            }
            Ok(())
        })
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, _| Ok(sample))
    }
}

/// An operator that applies a [`Reduction`] to each row of a variable.
pub(in crate::ops) struct PerRow<R>(R);
family!(PerRow);

impl<R: Reduction> Op for PerRow<R> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let x = s.input(X);
        if R::NEEDS_X && x.width() == 0 {
            return Err(s.mismatch(X, "at least one number in a row"));
        }
        s.set(OUT, x.with_width(1));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (x, mut out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
            out.iter_mut().zip(x.iter()).for_each(|(out, row)| out.fill(R::reduce([row].into_iter(), row.len())));
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            if let (Some((mut dx, assign)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                let x = if R::NEEDS_X { Some(run.input::<T>(X)?) } else { None };
                for (i, dx) in dx.iter_mut().enumerate() {
                    let (g, n) = (dout.row(i)[0], dx.len());
                    let best = x.map_or(0, |x| first_maximum(x.row(i)));
                    dx.iter_mut().enumerate().for_each(|(j, dx)| assign.put(dx, g * R::slope::<T>(j, n, best)));
                }
            }
            Ok(())
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        if R::NEEDS_X { Gradient::reads_nothing().input(X) } else { Gradient::reads_nothing() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, _| Ok(sample))
    }
}
