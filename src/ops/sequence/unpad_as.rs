//! `sequence_unpad_as`: removes the padding of sequences; the LoD of another variable holds the lengths of the
//! sequences.

use ndarray::Array3;

use super::pad::places;
use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Removes the padding of padded sequences; sequence s becomes as long as sequence s of `y`'s last level.
    ///
    /// x has the shape `[sequences, positions, …]`. Sequence s of the output is the first n_s positions of row s of x, where
    /// n_s is the length of sequence s of y. The output has the LoD of y (the same `Arc`), so operators can combine the output
    /// with y row by row. x has the LoD of y without its last level. The operator reads the LoD of y, not its numbers. `x` may
    /// have any dtype. The gradient of x is 0 at the positions after the end of a sequence. Use `sequence_unpad_as`, not
    /// [`sequence_unpad`](Self::sequence_unpad), if a variable with the LoD of the output already exists.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let y = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
    /// let x = Variable::dense(array![[1.0, 2.0, -1.0], [-1.0, -1.0, -1.0], [3.0, -1.0, -1.0]]);
    /// let op = ops::catalogue().parse("sequence_unpad_as", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `y` has no LoD, or `x` has fewer than two dimensions or does not have one row for each sequence of `y`;
    /// at a run, if a sequence of `y` has more rows than a row of `x` has positions.
    pub(in crate::ops) struct SequenceUnpadAs = sequence_unpad_as {}
    inputs { X = x: one, Y = y: one.without_gradient().any_storage() }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_unpad_as(&self, x: Var, y: Var) -> Var; }
}

impl Op for SequenceUnpadAs {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::Y))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let (x, y) = (s.input(Self::X), s.input(Self::Y));
        if !x.batched() || x.shape.len() < 2 {
            return Err(s.mismatch(Self::X, "rows of places, shape [sequences, places, …]"));
        }
        s.row_for_each_sequence(Self::X, Self::Y)?;
        let mut out = x.clone();
        out.shape.remove(1);
        out.shape[0] = y.shape[0];
        out.lod = y.lod.clone();
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let places =
            |lod: &Lod| lod.offsets().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0) + 1;
        let mut samples = CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let (rows, places) = (lod.last_len(), places(&lod));
            let x = numbers(rows, 2 * places, 0).into_shape_with_order((rows, places, 2));
            let x: Array3<f64> = x.map_err(|e| Error::new("sample", "three dimensions", e.to_string()))?;
            let sample = sample.batch("x", Variable::new(Dense::from(x), lod.upper().cloned())?);
            Ok(sample.batch("y", Variable::sequences(Array2::<f64>::zeros((lod.rows(), 1)), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let x = Array2::from_shape_fn((lod.last_len(), places(&lod)), |(i, j)| (i * 3 + j) as i64);
            let sample = sample.batch("x", Variable::new(Dense::from(x), lod.upper().cloned())?);
            Ok(sample.batch("y", Variable::sequences(Array2::<f64>::zeros((lod.rows(), 1)), lod)?))
        })?);
        Ok(samples)
    }
}

impl RowMap for SequenceUnpadAs {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Ascending)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let places = places(run.input_spec(Self::X));
        for (i, rows) in run.sequences(Self::Y)?.iter().enumerate() {
            if rows.len() > places {
                let expected = format!("at most {places}, the places of a row of `x`");
                let got = rows.len().to_string();
                return Err(Error::new("length of a sequence of `y`", expected, got).row(i));
            }
            moved(rows.start, Sources::Parts(i, rows.len()));
        }
        Ok(())
    }
}
