//! Reductions: `sum` and `mean` of everything, and `sum_features`, `mean_features`, `max_features` of each row.
//!
//! `sum` and `mean` give one number without LoD, whatever the LoD of x; the mean of nothing is 0. They add up row by
//! row, first to last, so that the result does not depend on threads; the sum is kept in f64. The others are row-wise,
//! give rows of width 1 and keep x's LoD; the gradient of `max_features` goes to the first maximum.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let x = Variable::sequences(array![[1.0, 2.0], [7.0, 4.0], [5.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
//! let call = |kind| ops::catalogue().parse(kind, &Attributes::new())?.call(&[Operand::batch("x", x.clone())]);
//! assert_eq!(call("mean")?[0].as_slice::<f64>()?, [4.0]);
//! let max = &call("max_features")?[0];
//! assert_eq!((max.as_slice::<f64>()?, max.shape()), ([2.0, 7.0, 5.0].as_slice(), [3, 1].as_slice()));
//! assert_eq!(max.lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use std::marker::PhantomData;

use crate::error::Result;
use crate::kernels::{Float, Store};
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, LodEffect, Needs, Op, Sample, Signature, Slot,
    Spec, Var,
};
use crate::with_float;

use super::rowwise::{put, row_samples};

const X: usize = 0;
const OUT: usize = 0;
const SIGNATURE: Signature = Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] };

macro_rules! methods {
    ($($(#[$doc:meta])* $kind:ident;)*) => {
        impl Builder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If `x` holds no floats, or for a maximum if its rows are empty.
                #[track_caller]
                pub fn $kind(&self, x: Var) -> Result<Var> {
                    self.append1(stringify!($kind), &[("x", &[x])], Attributes::new())
                }
            )*
        }
    };
}

methods! {
    /// The sum of all numbers: one number.
    sum;
    /// The mean of all numbers, 0 if there is none: one number.
    mean;
    /// The sum of each row.
    sum_features;
    /// The mean of each row, 0 if it is empty.
    mean_features;
    /// The maximum of each row.
    max_features;
}

/// How numbers become one.
pub(super) trait Reduction: Send + Sync + 'static {
    /// The kind of the operator over everything; empty if there is none.
    const WHOLE: &'static str;
    /// The kind of the operator over each row.
    const ROW: &'static str;
    /// Whether the gradient reads the numbers.
    const NEEDS_X: bool = false;
    /// The result for `n` numbers in rows.
    fn reduce<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>, n: usize) -> T;
    /// The derivative by element `j` of a row of `n`; `best` is the first maximum if the gradient reads the numbers.
    fn slope<T: Float>(j: usize, n: usize, best: usize) -> T;
}

/// Σ x.
pub(super) struct Sum;
/// Σ x / n.
pub(super) struct Mean;
/// max x.
pub(super) struct Max;

fn total<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>) -> f64 {
    rows.map(|row| row.iter().map(|x| x.to_f64()).sum::<f64>()).fold(0.0, |all, row| all + row)
}

fn first_maximum<T: Float>(row: &[T]) -> usize {
    row.iter().enumerate().fold(0, |best, (j, x)| if *x > row[best] { j } else { best })
}

impl Reduction for Sum {
    const WHOLE: &'static str = "sum";
    const ROW: &'static str = "sum_features";

    fn reduce<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>, _: usize) -> T {
        T::from_f64(total(rows))
    }

    fn slope<T: Float>(_: usize, _: usize, _: usize) -> T {
        T::ONE
    }
}

impl Reduction for Mean {
    const WHOLE: &'static str = "mean";
    const ROW: &'static str = "mean_features";

    fn reduce<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>, n: usize) -> T {
        T::from_f64(total(rows) / n.max(1) as f64)
    }

    fn slope<T: Float>(_: usize, n: usize, _: usize) -> T {
        T::from_f64(1.0 / n.max(1) as f64)
    }
}

impl Reduction for Max {
    const WHOLE: &'static str = "";
    const ROW: &'static str = "max_features";
    const NEEDS_X: bool = true;

    fn reduce<'a, T: Float>(rows: impl Iterator<Item = &'a [T]>, _: usize) -> T {
        rows.map(|row| row[first_maximum(row)]).fold(T::NEG_INFINITY, |all, x| if x > all { x } else { all })
    }

    fn slope<T: Float>(j: usize, _: usize, best: usize) -> T {
        if j == best { T::ONE } else { T::ZERO }
    }
}

/// A [`Reduction`] of everything, as an operator.
pub(super) struct Whole<R>(PhantomData<R>);

impl<R: Reduction> Op for Whole<R> {
    fn kind() -> &'static str {
        R::WHOLE
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self(PhantomData))
    }

    fn signature(&self) -> Signature {
        SIGNATURE
    }

    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
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
            if let (Some((mut dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                let g = dout.row(0)[0] * R::slope::<T>(0, dx.rows() * dx.width(), 0);
                match store {
                    Store::Write => dx.fill(g),
                    Store::Add => dx.iter_mut().flatten().for_each(|dx| *dx += g),
                }
            }
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        row_samples(&Attributes::new(), 3, |sample, _| Ok(sample))
    }
}

/// A [`Reduction`] of each row, as an operator.
pub(super) struct PerRow<R>(PhantomData<R>);

impl<R: Reduction> Op for PerRow<R> {
    fn kind() -> &'static str {
        R::ROW
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self(PhantomData))
    }

    fn signature(&self) -> Signature {
        SIGNATURE
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

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
            if let (Some((mut dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                let x = if R::NEEDS_X { Some(run.input::<T>(X)?) } else { None };
                for (i, dx) in dx.iter_mut().enumerate() {
                    let (g, n) = (dout.row(i)[0], dx.len());
                    let best = x.map_or(0, |x| first_maximum(x.row(i)));
                    dx.iter_mut().enumerate().for_each(|(j, dx)| put(dx, g * R::slope::<T>(j, n, best), store));
                }
            }
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        if R::NEEDS_X { Needs::nothing().input(X) } else { Needs::nothing() }
    }

    fn samples() -> Vec<Sample> {
        row_samples(&Attributes::new(), 3, |sample, _| Ok(sample))
    }
}
