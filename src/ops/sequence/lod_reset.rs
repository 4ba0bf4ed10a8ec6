//! `lod_reset` and `lod_append` keep the rows of a variable, and change how the rows are divided into sequences.

use crate::ops::conversion::assign::{copy, copy_back};
use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};
use crate::ops::sequence::samples::of_lengths;

operator! {
    /// Divides the rows of `x` into the sequences of `y`, and ignores the previous sequences of `x`.
    ///
    /// The output has the rows of `x` and the LoD of `y` (the same `Arc`). The input `x` may have any LoD, or no LoD, but must
    /// have as many rows as `y`, which is checked at a run. The operator reads only the LoD of `y`, not the numbers. `x` may
    /// have any dtype; the gradient of row i of `x` is row i of the output's gradient. A sequence of the output may hold rows
    /// of several sequences of `x`, so `lod_reset` in a step block is an error.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0], vec![3.0]])?;
    /// let y = Variable::from_sequences(&[vec![0i64], vec![0, 0]])?;
    /// let op = ops::catalogue().parse("lod_reset", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 2]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `y` has no LoD, or `x` is a constant; at a run, if `x` and `y` have different numbers of rows.
    pub(in crate::ops) struct LodReset = lod_reset {}
    inputs { X = x: one, Y = y: one.without_gradient().any_storage() }
    outputs { OUT = out: one }
    impl Builder, Var { fn lod_reset(&self, x: Var, y: Var) -> Var; }
}

operator! {
    /// Divides each sequence in the last level of `x` into pieces with the given `lengths`; the pieces are a new last level.
    ///
    /// `lengths` holds whole numbers in sequences; `lengths` and `x` have the same levels above the last level. The
    /// numbers in sequence i of `lengths` are the lengths, in order, of the pieces of sequence i of `x`; these lengths
    /// add up to the number of rows of sequence i. The output has the rows of `x`; its LoD is the LoD of `lengths` and
    /// a new last level with the lengths of the pieces. A length of 0 makes an empty piece; an empty sequence may be
    /// divided into no pieces. `x` may have any dtype; the gradient of row i of `x` is row i of the output's gradient.
    ///
    /// The operator computes the offsets of the new level from the numbers in `lengths` (`Op::levels`). In a step
    /// block, these offsets are computed before the first step, so `lengths` must not depend on a memory, but `x` may
    /// depend on a memory.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let words = Variable::from_sequences(&[vec![1i64, 2, 3], vec![], vec![4, 5]])?;
    /// let lengths = Variable::from_sequences(&[vec![2i64, 1], vec![], vec![2]])?;
    /// let op = ops::catalogue().parse("lod_append", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", words), Operand::batch("lengths", lengths)])?;
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1], [2, 1, 2]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD, if `lengths` does not hold whole numbers in sequences, if `lengths` and `x`
    /// have different levels above the last level, or if `x` already has the largest number of levels; in a step block,
    /// if `lengths` depends on a memory; at a run, if the lengths in a sequence do not add up to the number of rows of
    /// the sequence.
    pub(in crate::ops) struct LodAppend = lod_append {}
    inputs { X = x: one, LENGTHS = lengths: one.without_gradient() }
    outputs { OUT = out: one }
    impl Builder, Var { fn lod_append(&self, x: Var, lengths: Var) -> Var; }
}

impl Op for LodReset {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Keeps(Self::Y))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::Y)?;
        let (x, y) = (s.input(Self::X), s.input(Self::Y));
        if !x.batched() {
            return Err(s.mismatch(Self::X, "rows of a batch, as many as `y` has"));
        }
        let mut out = x.clone();
        out.shape[0] = y.rows();
        out.lod = y.lod.clone();
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for flat in [false, true] {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let (rows, sequences) = (lod.rows(), lod.sequences());
                // The LoD of y in this check case has as many rows and sequences as the LoD of x, but all rows are in the last
                // sequence.
                let lengths: Vec<usize> =
                    (1..=sequences).map(|i| if i == sequences { rows } else { 0 }).collect();
                let other = Lod::from_lengths1(&lengths)?;
                let (from, to) = if flat { (other, lod) } else { (lod, other) };
                let x = Variable::sequences(numbers(rows, 2, 0), from)?;
                Ok(sample.batch("x", x).batch("y", Variable::sequences(Array2::<f64>::zeros((rows, 1)), to)?))
            })?);
        }
        Ok(samples)
    }
}

impl RowMap for LodReset {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Once)
    }

    fn map(&self, MapCall { run, height, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let rows = run.lod(Self::Y).map_or(0, |lod| lod.rows());
        if height != rows {
            let expected = format!("{rows}, as many as `y` has");
            return Err(Error::new("rows of `x`", expected, height.to_string()));
        }
        moved(0, Sources::Range(0..height));
        Ok(())
    }
}

impl Op for LodAppend {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::LENGTHS]))
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::LENGTHS)?;
        s.has_lod(Self::X)?;
        let (x, lengths) = (s.input(Self::X), s.input(Self::LENGTHS));
        if lengths.lod.len() != x.lod.len() || lengths.upper_levels() != x.upper_levels() {
            return Err(s.mismatch(
                Self::LENGTHS,
                "whole numbers in sequences, with the levels of `x` above the last level",
            ));
        }
        let level = s.level_from_data(&lengths.lod)?;
        let mut out = x.clone();
        out.lod = lengths.lod.clone();
        out.lod.push(level);
        out.shape[0] = Extent::Rows(level);
        s.set(Self::OUT, out);
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (lengths, sequences) = (Ids::of(run, Self::LENGTHS)?, run.sequences(Self::X)?);
        let pieces = run.sequences(Self::LENGTHS)?;
        let offsets = run.offsets(0);
        offsets.push(0);
        for (i, (rows, pieces)) in sequences.iter().zip(pieces.iter()).enumerate() {
            let mut end = rows.start;
            for piece in pieces {
                let length = usize::try_from(lengths.get(piece)).ok();
                let next = length.and_then(|length| end.checked_add(length)).filter(|&next| next <= rows.end);
                end = next.ok_or_else(|| unlike(i, rows.len(), "others"))?;
                offsets.push(end);
            }
            if end != rows.end {
                return Err(unlike(i, rows.len(), "fewer"));
            }
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        copy(run)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        copy_back(run)
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for short in [false, true] {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                // Each sequence has three pieces: one row, an empty piece, and all other rows; an empty sequence has no pieces.
                let pieces = |pair: &[usize]| match pair[1] - pair[0] {
                    0 => vec![],
                    rows => vec![1, 0, rows as i64 - 1],
                };
                let pieces: Vec<Vec<i64>> = lod.offsets().windows(2).map(pieces).collect();
                let lengths = Array1::from(pieces.concat());
                let pieces = Some(of_lengths(&lod, pieces.iter().map(Vec::len))?);
                let lengths = match short {
                    false => Variable::new(Dense::from(lengths), pieces)?,
                    true => Variable::new(Dense::from(lengths.mapv(|n| n as i32)), pieces)?,
                };
                let x = Variable::sequences(numbers(lod.rows(), 2, 0), lod)?;
                Ok(sample.batch("x", x).batch("lengths", lengths))
            })?);
        }
        Ok(samples)
    }
}

fn unlike(i: usize, rows: usize, got: &str) -> Error {
    Error::new(
        format!("lengths of the pieces of sequence {i}"),
        format!("numbers from 0 that add up to its {rows} rows"),
        got,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, x: &[Vec<f64>], slot: &str, other: &[Vec<i64>]) -> Result<String> {
        let operands = [
            Operand::batch("x", Variable::from_sequences(x)?),
            Operand::batch(slot, Variable::from_sequences(other)?),
        ];
        let outcome = crate::ops::catalogue().parse(kind, &Attributes::new())?.call(&operands);
        Ok(outcome.err().map(|error| error.to_string()).unwrap_or_default())
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() -> Result<()> {
        let x = [vec![1.0, 2.0], vec![3.0]];
        let error = message("lod_reset", &x, "y", &[vec![0], vec![0]])?;
        assert!(error.contains("rows of `x`: expected 2, as many as `y` has, got 3"), "{error}");
        for lengths in [[vec![2], vec![2]], [vec![2], vec![0]], [vec![2], vec![]], [vec![1, 1], vec![-1, 2]]]
        {
            let error = message("lod_append", &x, "lengths", &lengths)?;
            let expected = "expected numbers from 0 that add up to its 1 rows";
            assert!(error.contains(expected) && error.contains("sequence 1"), "{error}");
        }
        Ok(())
    }
}
