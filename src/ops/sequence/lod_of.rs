//! `lod_of`: returns the lengths of the sequences of a variable as a variable.

use crate::ops::prelude::*;

operator! {
    /// Returns the lengths of the sequences in the last level of `x`, one i64 per sequence.
    ///
    /// The number out_s is the length of sequence s; the output has the shape `[sequences]`, and the LoD of `x` without the
    /// last level. The output for an empty sequence is 0. The operator does not read the numbers of `x`, and `x` gets no
    /// gradient.
    ///
    /// The output holds lengths, not offsets: with one number per sequence, it has the same LoD as the output of a pooling
    /// operator. The offsets of the sequences are the cumulative sums of the lengths.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_nested(&[vec![vec![7i64, 8, 9], vec![]], vec![], vec![vec![5]]])?;
    /// let op = ops::catalogue().parse("lod_of", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [3, 0, 1]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD.
    #[doc(alias("lengths", "seq_pos"))]
    pub(in crate::ops) struct LodOf = lod_of {}
    inputs { X = x: one.without_gradient().shape_only() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn lod_of(&self, x: Var) -> Var; }
}

impl Op for LodOf {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        let mut out = s.input(Self::X).drop_level(s.top())?.with_dtype(DType::I64);
        out.shape.truncate(1);
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut out = run.output::<i64>(Self::OUT)?;
        for (out, rows) in out.iter_mut().zip(run.sequences(Self::X)?.iter()) {
            out.fill(rows.len() as i64);
        }
        Ok(())
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, 0), lod)?))
        })
    }
}
