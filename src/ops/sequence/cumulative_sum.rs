//! `cumulative_sum` over the rows of each sequence, and `cumulative_sum_features` over the columns of each row.

use crate::ops::prelude::*;

operator! {
    /// Cumulative sum over the rows of each sequence of the last level, column by column: out_t = Σ_{u ≤ t} x_u.
    ///
    /// The output has the LoD of x; an empty sequence stays empty. The gradient of a row is the sum of the output's gradients
    /// at this row and at all later rows of the sequence.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0], [2.0], [3.0], [4.0]], Lod::from_lengths1(&[3, 0, 1])?)?;
    /// let op = ops::catalogue().parse("cumulative_sum", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 3.0, 6.0, 4.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or has no LoD.
    #[doc(alias = "cumsum")]
    pub(in crate::ops) struct CumulativeSum = cumulative_sum {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn cumulative_sum(&self, x: Var) -> Var; }
}

operator! {
    /// Cumulative sum over the columns of each row: out_ij = Σ_{k ≤ j} x_ik.
    ///
    /// The operator computes each row alone; x may have any LoD, which the output keeps. The gradient of the number in column j
    /// is the sum of the output's gradients in column j and in all later columns of the same row.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0, 3.0], [4.0, -4.0, 0.5]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let op = ops::catalogue().parse("cumulative_sum_features", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 3.0, 6.0, 4.0, 0.0, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    pub(in crate::ops) struct CumulativeSumFeatures = cumulative_sum_features {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn cumulative_sum_features(&self, x: Var) -> Var; }
}

impl Op for CumulativeSum {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            let sums = &mut run.scratch().get::<Sums<T>>().0;
            // The buffer of sums is taken out of the scratch memory, because `run` is borrowed while the sequences are read.
            let mut sums = std::mem::take(sums);
            for rows in run.sequences(Self::X)?.iter() {
                add_up(&mut sums, rows, x, &mut out, Assign::Write);
            }
            run.scratch().get::<Sums<T>>().0 = sums;
            Ok(())
        })
    }

    gradient_reads!();

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (Some((mut dx, assign)), Some(dout)) = (run.gradient::<T>(Self::X)?, run.output_gradient::<T>(Self::OUT)?) else {
                return Ok(());
            };
            let mut sums = std::mem::take(&mut run.scratch().get::<Sums<T>>().0);
            for rows in run.sequences(Self::X)?.iter() {
                add_up(&mut sums, rows.rev(), dout, &mut dx, assign);
            }
            run.scratch().get::<Sums<T>>().0 = sums;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 3, 0), lod)?))
        })
    }
}

/// Scratch memory of a call: for each column, the sum of the rows so far.
#[derive(Default)]
struct Sums<T>(Vec<T>);

/// Adds up `rows` in their order; the output row for each row is the sum up to and including this row.
fn add_up<T: RowValue>(
    sums: &mut Vec<T>,
    rows: impl Iterator<Item = usize>,
    from: View<'_, T>,
    to: &mut ViewMut<'_, T>,
    assign: Assign,
) {
    sums.clear();
    sums.resize(from.width(), T::ZERO);
    for row in rows {
        sums.iter_mut().zip(from.row(row)).for_each(|(sum, &x)| *sum += x);
        assign.put_row(to.row(row), sums);
    }
}

impl Op for CumulativeSumFeatures {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            for (out, x) in out.iter_mut().zip(x.iter()) {
                let mut sum = T::ZERO;
                for (out, &x) in out.iter_mut().zip(x) {
                    sum += x;
                    *out = sum;
                }
            }
            Ok(())
        })
    }

    gradient_reads!();

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            if let (Some((mut dx, assign)), Some(dout)) = (run.gradient::<T>(Self::X)?, run.output_gradient::<T>(Self::OUT)?) {
                for (dx, dout) in dx.iter_mut().zip(dout.iter()) {
                    let mut sum = T::ZERO;
                    for (dx, &g) in dx.iter_mut().zip(dout).rev() {
                        sum += g;
                        assign.put(dx, sum);
                    }
                }
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, _| Ok(sample))
    }
}
