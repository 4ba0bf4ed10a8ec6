//! `sequence_enumerate`: returns the n-grams of the ids in each sequence.

use ndarray::Axis;

use crate::ops::lookup::ids::check;
use crate::ops::prelude::*;
use crate::ops::sequence::counts::count;

operator! {
    /// Returns the n-grams of each sequence of the last level, with n = `window`: row t of the output is id t and the next n −
    /// 1 ids of the sequence.
    ///
    /// The formula is out_t = [x_t, x_(t+1), …, x_(t+window−1)], where ids after the end of the sequence are `pad_value`. The
    /// output has the shape `[rows, window]` and the LoD of x. An empty sequence stays empty. No gradient passes, since x holds
    /// ids.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![5i64, 6, 7], vec![], vec![8]])?;
    /// let op = ops::catalogue().parse("sequence_enumerate", &Attributes::new().with("window", 2))?;
    /// let out = op.call(&[Operand::batch("x", ids)])?;
    /// assert_eq!(out[0].shape(), [4, 2]);
    /// assert_eq!(out[0].as_slice::<i64>()?, [5, 6, 6, 7, 7, 0, 8, 0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` does not hold one whole number per row, or has no LoD, if the window is 0, or if `pad_value` does
    /// not fit into the dtype of the ids.
    #[doc(alias("ngram", "n_gram"))]
    pub(in crate::ops) struct SequenceEnumerate = sequence_enumerate { window: usize => count, pad_value: i64 = 0 }
    inputs { X = x: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn sequence_enumerate(&self, x: Var, window: usize, pad_value: i64) -> Var; }
}

impl Op for SequenceEnumerate {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::X)?;
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        if x.dtype == DType::I32 && i32::try_from(self.pad_value).is_err() {
            let got = self.pad_value.to_string();
            return Err(Error::of(ErrorKind::Program, "attribute `pad_value`", "an i32, as the ids", got));
        }
        let mut out = x.clone();
        out.shape.truncate(1);
        if out.shape.try_push(Extent::Known(self.window)).is_err() {
            return Err(s.mismatch(Self::X, "room for two dimensions"));
        }
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        match run.dtype(Self::X) {
            DType::I32 => self.windows::<i32>(run),
            _ => self.windows::<i64>(run),
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |window, pad_value| SequenceEnumerate { window, pad_value }.attributes();
        let ids = |rows: usize| Array1::from_iter((0..rows).map(|i| i as i64 * 7 - 3));
        let mut samples = CheckCase::of_sequences(&attributes(3, -9), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(lod.rows()).insert_axis(Axis(1)), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&attributes(2, 0), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(lod.rows()).mapv(|id| id as i32), lod)?))
        })?);
        samples.extend(CheckCase::of_sequences(&attributes(1, 0), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(lod.rows()), lod)?))
        })?);
        Ok(samples)
    }
}

impl SequenceEnumerate {
    fn windows<T: Plain + Element>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
        let padding = T::from_number(Number::Integer(self.pad_value));
        for rows in run.sequences(Self::X)?.iter() {
            for row in rows.clone() {
                for (k, out) in out.row(row).iter_mut().enumerate() {
                    *out = if k < rows.end - row { x.row(row + k)[0] } else { padding };
                }
            }
        }
        Ok(())
    }
}
