//! `sequence_concat`: joins the sequences of several variables end to end.

use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};
use crate::ops::sequence::samples::of_lengths;

operator! {
    /// Joins sequence i of several variables end to end, for every sequence i of the last level.
    ///
    /// Sequence i of the output is sequence i of the first variable, then sequence i of the second variable, and so on; its
    /// length is the sum of the lengths of the joined sequences. All variables have the same levels above the last level, which
    /// the output keeps, and one dtype and row shape. An empty sequence adds no rows to the output. The gradient of each
    /// variable is the part of the output's gradient in the rows of this variable. ([`concat`](Self::concat) concatenates
    /// columns.)
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1i64, 2], vec![], vec![3]])?;
    /// let y = Variable::from_sequences(&[vec![7i64], vec![], vec![8, 9]])?;
    /// let op = ops::catalogue().parse("sequence_concat", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("x", y)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 2, 7, 3, 8, 9]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 3]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if a variable has no LoD, or differs from the first variable in the levels above the last one, the row
    /// shape or the dtype.
    pub(in crate::ops) struct SequenceConcat = sequence_concat {}
    inputs { X = x: many }
    outputs { OUT = out: one }
    impl Builder { fn sequence_concat(&self, x: &[Var]) -> Var; }
}

impl Op for SequenceConcat {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Replaces)
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        s.same_dtype(Self::X, Self::X)?;
        let (first, all) = (s.input(Self::X), s.many(Self::X));
        for (k, x) in all.iter().enumerate() {
            let alike = x.lod.len() == first.lod.len() && x.upper_levels() == first.upper_levels();
            if !alike || x.row_shape() != first.row_shape() {
                let expected =
                    format!("the rows and levels of {first}, except for the lengths of the last level");
                return Err(s.mismatch_at(Self::X, k, &expected));
            }
        }
        let level = s.new_level(first.upper_levels(), |levels, offsets| {
            offsets.push(0);
            for (k, x) in all.iter().enumerate() {
                let lod = levels
                    .lod(&x.lod)
                    .ok_or_else(|| Error::new("input `x`", "a LoD that is bound", "none"))?;
                if k == 0 {
                    offsets.resize(lod.offsets().len(), 0);
                }
                // Each offset of the output is the sum of the variables' offsets, since the lengths are added too.
                offsets.iter_mut().zip(lod.offsets()).for_each(|(sum, offset)| *sum += offset);
            }
            Ok(())
        })?;
        let out = first.with_last_level(level);
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for count in 1..=3 {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let bind = |sample: CheckCase, k: usize| -> Result<CheckCase> {
                    // In this check case, the variables have different lengths in the last level, and the same levels above the
                    // last level.
                    let lengths = lod.offsets().windows(2).enumerate();
                    let lengths = lengths.map(|(i, pair)| {
                        (pair[1] - pair[0] + 2 * k) * usize::from(!(i + k).is_multiple_of(3))
                    });
                    let lod = of_lengths(&lod, lengths)?;
                    Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, k), lod)?))
                };
                (0..count)
                    .try_fold(CheckCase { name: format!("{count} of them, {}", sample.name), ..sample }, bind)
            })?);
        }
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let ids = || {
                Variable::sequences(Array2::from_shape_fn((lod.rows(), 1), |(i, _)| i as i64), lod.clone())
            };
            Ok(sample.batch("x", ids()?).batch("x", ids()?))
        })?);
        Ok(samples)
    }
}

impl RowMap for SequenceConcat {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Once)
    }

    fn map(&self, MapCall { run, k, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let sequences = |k| run.sequences_at(Self::X, k);
        for (i, rows) in sequences(k)?.iter().enumerate() {
            // The rows of the variables before k come first, and so do the sequences before i of all variables.
            let mut at = 0;
            for other in 0..run.count(Self::X) {
                let rows = sequences(other)?.rows(i);
                at += if other < k { rows.end } else { rows.start };
            }
            moved(at, Sources::Range(rows));
        }
        Ok(())
    }
}
