//! `argmax`: the index of the column with the largest value in each row.

use crate::kernels::exceeds;
use crate::ops::prelude::*;

operator! {
    /// Returns the index of the column with the largest value in each row: `out_i = argmax_j x_ij`, i64 of shape `[rows]`,
    /// like ids.
    ///
    /// If several values of a row are equally large, the lowest column index is returned; NaN counts as larger than any
    /// number. The output equals the first column of `ids` from [`top_k`](Self::top_k). The operator computes each row alone;
    /// x may have any LoD, which the output keeps. For a constant matrix x, the output is `[rows, 1]`. No gradient passes to
    /// x, since the output is a column index.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = array![[1.0, 3.0, 2.0], [5.0, 7.0, 7.0]];
    /// let x = Variable::sequences(x, Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let out = ops::catalogue().parse("argmax", &Attributes::new())?.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 1]);
    /// assert_eq!(out[0].shape(), [2]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, or has the width 0.
    pub(in crate::ops) struct Argmax = argmax {}
    inputs { X = x: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn argmax(&self, x: Var) -> Var; }
}

impl Op for Argmax {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        let x = s.input(Self::X);
        if x.width() == 0 {
            return Err(s.mismatch(Self::X, "at least one number in a row"));
        }
        let mut out = x.with_dtype(DType::I64).with_width(1);
        // For a constant x the shape is `[rows, 1]`, because a constant of shape `[rows]` would count as one row.
        if out.batched() {
            out.shape.truncate(1);
        }
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => largest::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = Attributes::new();
        let mut samples = CheckCase::of_rows(&attributes, 5, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&attributes, 1, |sample, _| Ok(sample))?);
        let ties = ndarray::array![[1.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]];
        samples.push(CheckCase::new("ties", attributes).batch("x", ties));
        Ok(samples)
    }
}

fn largest<T: RowValue + Float>(run: &mut Forward<'_>) -> Result<()> {
    let (x, mut out) = (run.input::<T>(Argmax::X)?, run.output::<i64>(Argmax::OUT)?);
    for (row, x) in x.iter().enumerate() {
        let mut best = 0;
        for column in 1..x.len() {
            if exceeds(x[column], x[best]) {
                best = column;
            }
        }
        out.row(row)[0] = best as i64;
    }
    Ok(())
}
