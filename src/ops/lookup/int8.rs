//! `int8_embedding`: the operator `embedding` for prediction, with a table of 8-bit integers.

use super::ids::{self, Ids};
use crate::ops::prelude::*;

operator! {
    /// Looks up the row of a table of 8-bit integers for each id in `ids`, for prediction.
    ///
    /// out_i = codes\[ids_i\] · scale\[ids_i\], with ids `[rows]` or `[rows, 1]` of i64 or i32, codes `[height, width]` of i8, and
    /// scale `[height]`. The operator computes each row alone; the ids may have any LoD, which the output keeps. The operator has
    /// no gradients. [`Checkpoint::quantize`](crate::checkpoint::Checkpoint::quantize) appends it.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let out = ops::catalogue().parse("int8_embedding", &Attributes::new())?.call(&[
    ///     Operand::batch("ids", Variable::from_sequences(&[vec![1i64, 0]])?),
    ///     Operand::constant("codes", array![[1i8, -1], [127, 2]]),
    ///     Operand::constant("scale", array![0.5, 2.0]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [254.0, 4.0, 0.5, -0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, `codes` is not a matrix of i8, or `scale` does not have one
    /// number per row of the table.
    pub(in crate::ops) struct Int8Embedding = int8_embedding {}
    inputs {
        IDS = ids: one.without_gradient(),
        CODES = codes: one.without_gradient(),
        SCALE = scale: one.without_gradient(),
    }
    outputs { OUT = out: one }
}

impl Op for Int8Embedding {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.dtype_in(Self::CODES, &[DType::I8])?;
        s.is_float(Self::SCALE)?;
        let &[Extent::Known(height), Extent::Known(width)] = s.input(Self::CODES).shape.as_slice() else {
            return Err(s.mismatch(Self::CODES, "a constant of shape [height, width]"));
        };
        s.constant(Self::SCALE, &[height])?;
        s.set(Self::OUT, s.input(Self::IDS).with_dtype(s.input(Self::SCALE).dtype).with_width(width));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::SCALE), T => forward::<T>(run))
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let touched = work.touched();
        // The operator reads from the table only the rows that the ids name, one byte for each number.
        Cost { flops: touched.written / 4, read: touched.written / 4, ..touched }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let codes = array![[3i8, -70], [127, 20], [-40, 90], [80, -127]];
        let sample = |name, ids: &[i64], lengths: &[Vec<usize>]| -> Result<CheckCase> {
            let ids = Variable::sequences(ndarray::Array1::from(ids.to_vec()), Lod::from_lengths(lengths)?)?;
            let sample = CheckCase::new(name, Attributes::new()).without_gradient().batch("ids", ids);
            Ok(sample.constant("codes", codes.clone()).constant("scale", array![0.01, 0.02, 0.03, 0.04]))
        };
        Ok(vec![
            sample("repeated ids", &[3, 0, 3], &[vec![2, 0, 1]])?,
            sample("two levels", &[1, 2, 1, 1], &[vec![2, 0, 1], vec![1, 0, 3]])?,
            sample("all empty", &[], &[vec![0, 0]])?,
            sample("none", &[], &[vec![]])?,
        ])
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let mut out = run.output::<T>(Int8Embedding::OUT)?;
    let ids = Ids::of(run, Int8Embedding::IDS)?;
    let (codes, scales) = (run.input::<i8>(Int8Embedding::CODES)?, run.input::<T>(Int8Embedding::SCALE)?);
    for (row, out) in out.iter_mut().enumerate() {
        let id = ids.index(row, codes.rows(), "codes")?;
        let scale = scales.row(0)[id];
        out.iter_mut().zip(codes.row(id)).for_each(|(out, &code)| *out = T::from_i32(code.into()) * scale);
    }
    Ok(())
}
