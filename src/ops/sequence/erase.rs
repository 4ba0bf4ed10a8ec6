//! `sequence_erase`: removes listed ids from sequences.

use ndarray::Axis;

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;
use crate::ops::row_map::{self, MapCall, Movement, RowList, RowMap, RowSink, SourceUse};

operator! {
    /// Removes the ids in `tokens` from `x`; the sequences of the last level become shorter.
    ///
    /// The remaining ids of each sequence keep their order. The list `tokens` has, for example, the ids of padding or stop
    /// words, which an evaluation ignores. The output has the levels of x above the last level, and new lengths in the last
    /// level. A sequence in which all ids are removed becomes empty. No gradient passes, since x holds ids.
    ///
    /// The operator computes the offsets of the output's last level from the ids in x (`Op::levels`). In a step block,
    /// these offsets are computed before the first step, so the ids in `x` must not depend on a memory.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![5i64, 0, 7, 0], vec![], vec![0, 3, 9]])?;
    /// let op = ops::catalogue().parse("sequence_erase", &Attributes::new().with("tokens", vec![0, 9]))?;
    /// let out = op.call(&[Operand::batch("x", ids)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [5, 7, 3]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` does not hold one whole number per row, or has no LoD; in a step block, it is an error if `x`
    /// depends on a memory.
    pub(in crate::ops) struct SequenceErase = sequence_erase { tokens: Vec<i64> => sorted }
    inputs { X = x: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn sequence_erase(&self, x: Var, tokens: &[i64]) -> Var; }
}

/// Reads an attribute that is a list of whole numbers, and sorts the list for binary search.
fn sorted(attributes: &Attributes, name: &str) -> Result<Vec<i64>> {
    let mut tokens = attributes.ints(name)?;
    tokens.sort_unstable();
    Ok(tokens)
}

impl Op for SequenceErase {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::X]))
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::X)?;
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        let level = s.level_from_data(x.upper_levels())?;
        s.set(Self::OUT, x.with_last_level(level));
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (ids, sequences) = (Ids::of(run, Self::X)?, run.sequences(Self::X)?);
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for rows in sequences.iter() {
            end += rows.filter(|&row| self.keeps(ids.get(row))).count();
            offsets.push(end);
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        row_map::forward(self, run)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let without = |tokens: &[i64]| SequenceErase { tokens: tokens.to_vec() }.attributes();
        let ids = |lod: &Lod| Array1::from_shape_fn(lod.rows(), |i| [3i64, 1, -2, 0, 1][i % 5]);
        let mut samples = CheckCase::of_sequences(&without(&[1, -2, 1]), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(&lod).insert_axis(Axis(1)), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&without(&[1, -2, 1]), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(&lod).mapv(|id| id as i32), lod)?))
        })?);
        samples.extend(CheckCase::of_sequences(&without(&[]), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(ids(&lod), lod)?))
        })?);
        Ok(samples)
    }
}

impl SequenceErase {
    fn keeps(&self, id: i64) -> bool {
        self.tokens.binary_search(&id).is_err()
    }
}

impl RowMap for SequenceErase {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Ascending)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (ids, mut kept) = (Ids::of(run, Self::X)?, RowList::new(moved));
        (0..ids.len()).filter(|&row| self.keeps(ids.get(row))).for_each(|row| kept.push(row));
        kept.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Literal;

    #[test]
    fn errors_say_what_is_wrong() -> Result<()> {
        let message = |error: crate::Error| error.to_string();
        let catalogue = crate::ops::catalogue();
        let tokens = |value: Literal| Attributes::new().with("tokens", value);
        let parsed =
            |attributes: &Attributes| catalogue.parse("sequence_erase", attributes).err().map(message);
        let missing = parsed(&Attributes::new()).unwrap_or_default();
        assert!(
            missing.contains("attribute `tokens`: expected a list of whole numbers, got nothing"),
            "{missing}"
        );
        let wrong = parsed(&tokens(Literal::List(vec![Literal::Float(0.5)]))).unwrap_or_default();
        assert!(
            wrong.contains("attribute `tokens`: expected a list of whole numbers, got a list"),
            "{wrong}"
        );

        let op = catalogue.parse("sequence_erase", &tokens(Literal::List(vec![])))?;
        let refused =
            |x: Variable| op.clone().call(&[Operand::batch("x", x)]).err().map(message).unwrap_or_default();
        let words = refused(Variable::from_sequences(&[vec![1.0, 2.0]])?);
        assert!(words.contains("input `x`: expected dtype i64 or i32"), "{words}");
        let flat = refused(Variable::dense(ndarray::array![1i64, 2]));
        assert!(flat.contains("input `x`: expected sequences"), "{flat}");
        let wide =
            refused(Variable::sequences(ndarray::array![[1i64, 2]], crate::Lod::from_lengths1(&[1])?)?);
        assert!(wide.contains("expected one whole number for each row"), "{wide}");
        Ok(())
    }

    #[test]
    fn tokens_are_found_in_any_order_and_of_any_size() -> Result<()> {
        let tokens = Literal::List([9, i64::MIN, -1, 9, i64::MAX].map(Literal::Int).to_vec());
        let op =
            crate::ops::catalogue().parse("sequence_erase", &Attributes::new().with("tokens", tokens))?;
        let x = Variable::from_sequences(&[vec![i64::MAX, 8, 9], vec![i64::MIN, -1], vec![-2, -1, 7]])?;
        let out = op.call(&[Operand::batch("x", x)])?;
        assert_eq!(out[SequenceErase::OUT].as_slice::<i64>()?, [8, -2, 7]);
        assert_eq!(out[SequenceErase::OUT].lod().map(|lod| lod.to_string()), Some("[[1, 0, 2]]".into()));
        Ok(())
    }
}
