//! `sequence_filter` keeps the rows for which a condition is true; `sequence_place` puts the kept rows back at their old
//! positions.

use super::samples::of_lengths;
use crate::ops::elementwise::select::{CONDITIONS, Condition};
use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowList, RowMap, RowSink, SourceUse};

operator! {
    /// Filters several variables: keeps the rows for which `keep` is not 0, in the order of the rows. The sequences of the last
    /// level become shorter, and all outputs have the same LoD.
    ///
    /// `keep` holds one number or bool per row, such as the output of a comparison; the filtered variables have one row
    /// for each row of `keep`, the LoD of `keep`, and any dtype and row shape. The levels above the last level do not
    /// change; a sequence without a kept row becomes empty. The gradient of a row that was removed is 0.
    /// [`sequence_place`](Self::sequence_place) puts the kept rows back at their old positions, so that a model can
    /// apply some layers only to some rows.
    ///
    /// The operator computes the offsets of the outputs' last level from the numbers in `keep` (`Op::levels`). In a
    /// step block, these offsets are computed before the first step, so `keep` must not depend on a memory.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let class = net.feed_like("class", DType::I64, &[], x);
    /// let [rare, its_class] = net.sequence_filter_all(class.greater(99.0), [x, class]);
    /// assert_eq!(net.spec(rare).map(|spec| spec.lod), net.spec(its_class).map(|spec| spec.lod));
    /// # net.finish()?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `keep` has no LoD or more than one number per row, or if a variable does not have the number
    /// of rows and the LoD of `keep`; in a step block, it is an error if `keep` depends on a memory.
    pub(in crate::ops) struct SequenceFilter = sequence_filter {}
    inputs { KEEP = keep: one.without_gradient(), X = x: many }
    outputs { OUT = out: many }
    impl Builder {
        fn sequence_filter_all[const N: usize](&self, keep: Var, x: [Var; N]) -> [Var; N] {
            let x = &x[..];
        }
    }
}

builder_methods! { Builder, Var;
    /// Filters the rows of `x`: keeps the rows for which `keep` is not 0, in their order. The sequences of the last
    /// level become shorter. [`sequence_filter_all`](crate::Builder::sequence_filter_all) filters several variables at
    /// once, and its page lists the errors.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let keep = Variable::from_sequences(&[vec![1i64, 0, 2], vec![], vec![0]])?;
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0, 3.0], vec![], vec![4.0]])?;
    /// let op = ops::catalogue().parse("sequence_filter", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("keep", keep), Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 0]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`sequence_filter_all`](crate::Builder::sequence_filter_all).
    #[doc(alias("boolean_mask", "masked_select"))]
    pub fn sequence_filter(&self, x: Var, keep: Var) -> Var {
        let [out] = self.sequence_filter_all(keep, [x]);
        out
    }
}

operator! {
    /// Puts the rows of `x` at the positions where `keep` is not 0, and rows of zeros at all other positions: the rows that
    /// [`sequence_filter`](Self::sequence_filter) removed become zeros.
    ///
    /// The output has one row for each row of `keep`, and the LoD of `keep`. In each sequence of the last level, the
    /// k-th position where `keep` is not 0 gets the k-th row of the same sequence of `x`. The input `x` holds floats;
    /// `x` and `keep` have the same levels above the last level. Empty sequences stay empty. The gradient of a row of
    /// `x` is the output's gradient at the position to which the row was put.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let keep = Variable::from_sequences(&[vec![1i64, 0, 2], vec![], vec![0]])?;
    /// let x = Variable::from_sequences(&[vec![10.0, 30.0], vec![], vec![]])?;
    /// let op = ops::catalogue().parse("sequence_place", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("keep", keep)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [10.0, 0.0, 30.0, 0.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, if `x` or `keep` has no LoD, or if `x` and `keep` have different levels above the
    /// last level; at a run, it is an error if a sequence of `x` does not have one row for each position where `keep` is not 0.
    #[doc(alias("masked_scatter", "merge_lod_tensor"))]
    pub(in crate::ops) struct SequencePlace = sequence_place {}
    inputs { X = x: one, KEEP = keep: one.without_gradient() }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_place(&self, x: Var, keep: Var) -> Var; }
}

/// Makes a condition for check cases: i64 numbers from 0 to 2, which keep about two thirds of the rows.
fn keeping(lod: &Arc<Lod>, salt: usize) -> Result<Variable> {
    let keep = Array1::from_shape_fn(lod.rows(), |i| ((i * 5 + i / 3 + salt) % 3) as i64);
    Variable::sequences(keep, Arc::clone(lod))
}

/// Checks that the condition `keep` has a LoD and one number per row.
fn check(s: &InferShape<'_>, keep: usize) -> Result<()> {
    s.has_lod(keep)?;
    s.dtype_in(keep, &CONDITIONS)?;
    if s.input(keep).width() != 1 {
        return Err(s.mismatch(keep, "one number for each row"));
    }
    Ok(())
}

impl Op for SequenceFilter {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::KEEP]))
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::KEEP, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::KEEP)?;
        let (keep, all) = (s.input(Self::KEEP), s.many(Self::X));
        for (k, x) in all.iter().enumerate() {
            if x.lod != keep.lod || x.rows() != keep.rows() {
                return Err(s.mismatch_at(Self::X, k, &format!("the rows and LoD of `keep`, {keep}")));
            }
        }
        let level = s.level_from_data(keep.upper_levels())?;
        s.set_many(Self::OUT, all.iter().map(|x| x.with_last_level(level)).collect());
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (keep, sequences) = (Condition::of(run, Self::KEEP)?, run.sequences(Self::KEEP)?);
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for rows in sequences.iter() {
            end += rows.filter(|&row| keep.holds(row)).count();
            offsets.push(end);
        }
        Ok(())
    }

    row_map_passes!(Self::KEEP);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for salt in 0..2 {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let sample = sample.batch("keep", keeping(&lod, salt)?);
                let x = Variable::sequences(numbers(lod.rows(), 2, salt), lod.clone())?;
                Ok(sample.batch("x", x).batch("x", Variable::sequences(numbers(lod.rows(), 1, 3), lod)?))
            })?);
        }
        Ok(samples)
    }
}

impl RowMap for SequenceFilter {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Ascending)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (keep, mut kept) = (Condition::of(run, Self::KEEP)?, RowList::new(moved));
        let rows = run.sequences(Self::KEEP)?.offsets();
        let rows = 0..rows[rows.len() - 1] - rows[0];
        rows.filter(|&row| keep.holds(row)).for_each(|row| kept.push(row));
        kept.finish();
        Ok(())
    }
}

impl Op for SequencePlace {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::KEEP))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::KEEP)?;
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        let (x, keep) = (s.input(Self::X), s.input(Self::KEEP));
        if x.upper_levels() != keep.upper_levels() {
            return Err(s.mismatch(Self::X, &format!("the levels of `keep` above the last, {keep}")));
        }
        let last = keep.lod.last().copied();
        s.set(Self::OUT, last.map_or_else(|| x.clone(), |level| x.with_last_level(level)));
        Ok(())
    }

    row_map_passes!(Self::KEEP);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for salt in 0..2 {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let keep = keeping(&lod, salt)?;
                let places = keep.as_slice::<i64>()?;
                let lengths = lod.offsets().windows(2);
                let lengths =
                    lengths.map(|pair| places[pair[0]..pair[1]].iter().filter(|&&k| k != 0).count());
                let of_x = of_lengths(&lod, lengths)?;
                let x = Variable::sequences(numbers(of_x.rows(), 2, salt), of_x)?;
                Ok(sample.batch("x", x).batch("keep", keep))
            })?);
        }
        Ok(samples)
    }
}

impl RowMap for SequencePlace {
    fn movement(&self) -> Movement {
        Movement::scatter(Self::X, SourceUse::Ascending, 0.0)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (keep, of_x) = (Condition::of(run, Self::KEEP)?, run.sequences(Self::X)?);
        let mut kept = RowList::new(moved);
        for (i, rows) in run.sequences(Self::KEEP)?.iter().enumerate() {
            let (from, places) = (of_x.rows(i), rows.clone().filter(|&row| keep.holds(row)).count());
            if from.len() != places {
                let expected = format!("{places} rows of `x`, one per position that `keep` keeps");
                return Err(Error::new(format!("sequence {i}"), expected, from.len().to_string()));
            }
            rows.filter(|&row| keep.holds(row)).for_each(|row| kept.push(row));
        }
        kept.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_with_too_few_rows_is_named() -> Result<()> {
        let keep = Variable::from_sequences(&[vec![1i64], vec![1, 1]])?;
        let x = Variable::from_sequences(&[vec![1.0], vec![2.0]])?;
        let op = crate::ops::catalogue().parse("sequence_place", &Attributes::new())?;
        let error = op.call(&[Operand::batch("x", x), Operand::batch("keep", keep)]).err();
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(
            message.contains("sequence 1: expected 2 rows of `x`, one per position that `keep` keeps, got 1"),
            "{message}"
        );
        Ok(())
    }
}
