//! `sequence_reverse`: reverses the rows of each sequence.

use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Reverses the rows of each sequence of the last level.
    ///
    /// Row t of a sequence of n rows becomes row n − 1 − t of this sequence. `x` may have any dtype. The output has the LoD of
    /// x. An empty sequence stays empty. The gradient of x is the gradient of the output, with the rows of each sequence
    /// reversed.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1i64, 2, 3], vec![], vec![4, 5]])?;
    /// let op = ops::catalogue().parse("sequence_reverse", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [3, 2, 1, 5, 4]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 2]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD.
    pub(in crate::ops) struct SequenceReverse = sequence_reverse {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_reverse(&self, x: Var) -> Var; }
}

impl Op for SequenceReverse {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, 0), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let ids = Array2::from_shape_fn((lod.rows(), 2), |(i, j)| (i * 2 + j) as i64);
            Ok(sample.batch("x", Variable::sequences(ids, lod)?))
        })?);
        Ok(samples)
    }
}

impl RowMap for SequenceReverse {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Once)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        run.sequences(Self::X)?.iter().for_each(|rows| moved(rows.start, Sources::Reversed(rows)));
        Ok(())
    }
}
