//! `sequence_expand_as`: repeats row i of a variable for every row of sequence i of another variable.

use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Repeats row i of `x` for every row of sequence i in the last level of `y`.
    ///
    /// `x` has one row for each sequence in the last level of `y`, and the LoD of `y` without the last level, like the output
    /// of a pooling operator. The number of copies of row i is the length of sequence i of `y`, so the output has the
    /// LoD of `y` (the same `Arc`). If sequence i of `y` is empty, row i of `x` has no copy in the output. The operator
    /// reads only the LoD of `y`, not the numbers. `x` may have any dtype; the gradient of a row of `x` is the sum of
    /// the output's gradients over all copies of the row.
    ///
    /// The operator computes each sequence alone, so it is allowed in a step block: attention uses it to combine the state of a
    /// decoder with every row of a static sequence. [`sequence_expand`](Self::sequence_expand) can also repeat whole sequences,
    /// and use the lengths of any level of `y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let y = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
    /// let op = ops::catalogue().parse("sequence_expand_as", &Attributes::new())?;
    /// let x = Variable::dense(array![[1.0], [2.0], [3.0]]);
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 1.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `y` has no LoD, or `x` does not have one row for each sequence of `y`'s last level.
    pub(in crate::ops) struct SequenceExpandAs = sequence_expand_as {}
    inputs { X = x: one, Y = y: one.without_gradient().any_storage() }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_expand_as(&self, x: Var, y: Var) -> Var; }
}

impl Op for SequenceExpandAs {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::Y))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.row_for_each_sequence(Self::X, Self::Y)?;
        let (x, y) = (s.input(Self::X), s.input(Self::Y));
        let mut out = x.clone();
        out.shape[0] = y.shape[0];
        out.lod = y.lod.clone();
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    fn hints(&self) -> Hints {
        let kind = Self::kind();
        let pieces = || Some(Pieces { into: kind, attributes: Attributes::new(), carried: &[] });
        Hints { pieces: pieces(), pieces_from_end: pieces(), ..Hints::default() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let x = Dense::from(numbers(lod.last_len(), 2, 0));
            Ok(sample
                .batch("x", Variable::new(x, lod.upper().cloned())?)
                .batch("y", Variable::sequences(Array2::<f64>::zeros((lod.rows(), 1)), lod)?))
        })
    }
}

impl RowMap for SequenceExpandAs {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Often)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        for (row, copies) in run.sequences(Self::Y)?.iter().enumerate() {
            moved(copies.start, Sources::Repeated(row, copies.len()));
        }
        Ok(())
    }
}
