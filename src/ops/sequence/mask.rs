//! `sequence_mask`: makes the mask of padded sequences, 1 at the rows of a sequence and 0 at padding.

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;

operator! {
    /// Returns the mask of padded sequences: 1 at the positions of a sequence's rows, 0 after its end.
    ///
    /// Row s of the output belongs to sequence s: out_sj = 1 for j < `lengths`_s, else 0, for 0 ≤ j < `length`. The output has
    /// the shape `[rows of lengths, length]`, the given dtype and the LoD of `lengths`. `lengths` has one whole number per row:
    /// the length of a sequence. A row of the output is all zeros if the length of its sequence is 0 or below, and all ones if
    /// the length is above `length`. `lengths` gets no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let attributes = Attributes::new().with("length", 3).with("dtype", "f32");
    /// let op = ops::catalogue().parse("sequence_mask", &attributes)?;
    /// let out = op.call(&[Operand::batch("lengths", Variable::dense(array![2i64, 0, 5]))])?;
    /// assert_eq!(out[0].shape(), [3, 3]);
    /// assert_eq!(out[0].as_slice::<f32>()?, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `lengths` does not hold one whole number per row.
    pub(in crate::ops) struct SequenceMask = sequence_mask { length: usize, dtype: DType }
    inputs { LENGTHS = lengths: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn sequence_mask(&self, lengths: Var, length: usize, dtype: DType) -> Var; }
}

impl Op for SequenceMask {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::LENGTHS)?;
        let mut out = s.input(Self::LENGTHS).with_dtype(self.dtype);
        out.shape.truncate(1);
        if out.shape.try_push(Extent::Known(self.length)).is_err() {
            return Err(Error::new("shape", "room for two dimensions", "none"));
        }
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(self.dtype, T => mask::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (k, dtype) in [DType::F32, DType::F64, DType::I32, DType::Bool].into_iter().enumerate() {
            let attributes = SequenceMask { length: 3, dtype }.attributes();
            samples.extend(CheckCase::of_sequences(&attributes, |sample, lod| {
                let lengths = Array1::from_iter((0..lod.rows()).map(|i| [2i64, 0, 5, 3, -1][(i + k) % 5]));
                let lengths = match k % 2 {
                    0 => Variable::sequences(lengths, lod)?,
                    _ => Variable::sequences(lengths.mapv(|n| n as i32), lod)?,
                };
                Ok(sample.batch("lengths", lengths))
            })?);
        }
        Ok(samples)
    }
}

fn mask<T: Plain + Element>(run: &mut Forward<'_>) -> Result<()> {
    let lengths = Ids::of(run, SequenceMask::LENGTHS)?;
    let mut out = run.output::<T>(SequenceMask::OUT)?;
    let [zero, one] = [0, 1].map(|number| T::from_number(Number::Integer(number)));
    for (i, out) in out.iter_mut().enumerate() {
        let length = usize::try_from(lengths.get(i)).unwrap_or(0).min(out.len());
        out[..length].fill(one);
        out[length..].fill(zero);
    }
    Ok(())
}
