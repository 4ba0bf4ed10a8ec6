//! `sequence_slice`: cuts a range of rows out of each sequence.

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

// The inputs `offset` and `length` are declared before `x`, because an error about a sequence names the sequence by its
// row in the first input.
operator! {
    /// Cuts `length` rows, starting at row `offset`, out of each sequence of `x`'s last level.
    ///
    /// Sequence i of the output has the rows from offset_i to offset_i + length_i − 1 of sequence i of x. If offset_i or
    /// length_i is negative, or offset_i + length_i is above the number of rows of sequence i, the run fails and names the
    /// sequence. A length of 0 gives an empty sequence. `offset` and `length` hold one whole number for each sequence of the
    /// last level of x. The output has the levels of x above the last one, and a new last level with the lengths in `length`.
    /// `x` may have any dtype. The gradient of x is 0 in the rows that are not in the output.
    ///
    /// The operator computes the offsets of the last level from the numbers in `length` (`Op::levels`). In a step
    /// block, these offsets are computed before the first step, so `offset` and `length` must not depend on a memory,
    /// but x may depend on a memory.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0, 3.0], vec![], vec![4.0, 5.0]])?;
    /// let op = ops::catalogue().parse("sequence_slice", &Attributes::new())?;
    /// let (offset, length) = (Variable::dense(array![1i64, 0, 2]), Variable::dense(array![2i64, 0, 0]));
    /// let out = op.call(&[
    ///     Operand::batch("x", x),
    ///     Operand::batch("offset", offset),
    ///     Operand::batch("length", length),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 0]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `offset` and `length` do not hold one whole number for each sequence of `x`, or `x` has no LoD; in a
    /// step block, if `offset` or `length` depends on a memory.
    pub(in crate::ops) struct SequenceSlice = sequence_slice {}
    inputs { OFFSET = offset: one.without_gradient(), LENGTH = length: one.without_gradient(), X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_slice(&self, x: Var, offset: Var, length: Var) -> Var; }
}

impl Op for SequenceSlice {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::OFFSET, Self::LENGTH]))
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        let rows = x.drop_level(s.top())?.rows();
        for slot in [Self::OFFSET, Self::LENGTH] {
            check(s, slot)?;
            if s.levels(slot).as_slice() != x.upper_levels() || s.input(slot).rows() != rows {
                return Err(s.mismatch(slot, "one whole number for each sequence of the last level of `x`"));
            }
        }
        let level = s.level_from_data(x.upper_levels())?;
        s.set(Self::OUT, x.with_last_level(level));
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (offset, length, sequences) =
            (Ids::of(run, Self::OFFSET)?, Ids::of(run, Self::LENGTH)?, run.sequences(Self::X)?);
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for (i, rows) in sequences.iter().enumerate() {
            end += piece(&offset, &length, i, rows.len())?.len();
            offsets.push(end);
        }
        Ok(())
    }

    row_map_passes!(Self::OFFSET, Self::LENGTH);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let (offset, length) = pieces(&lod, |n| (n.min(1), n.saturating_sub(2)));
            let sample = bound(sample, &lod, offset, length)?;
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, 0), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let (offset, length) = pieces(&lod, |n| (0, n - n / 3));
            let sample = bound(sample, &lod, offset.mapv(|n| n as i32), length.mapv(|n| n as i32))?;
            let ids: Vec<i64> = (0..lod.rows() as i64).collect();
            Ok(sample.batch("x", Variable::sequences(Array1::from(ids), lod)?))
        })?);
        Ok(samples)
    }
}

/// Makes an offset and a length for each sequence: `piece` maps a sequence's number of rows to the offset and the length.
fn pieces(lod: &Lod, piece: impl Fn(usize) -> (usize, usize)) -> (Array1<i64>, Array1<i64>) {
    let pieces = lod.offsets().windows(2).map(|pair| piece(pair[1] - pair[0]));
    let (offset, length): (Vec<i64>, Vec<i64>) = pieces.map(|(o, l)| (o as i64, l as i64)).unzip();
    (offset.into(), length.into())
}

/// Binds one offset and one length for each sequence of the last level to a check case.
fn bound<T: crate::tensor::Element>(
    sample: CheckCase,
    lod: &Lod,
    offset: Array1<T>,
    length: Array1<T>,
) -> Result<CheckCase> {
    let each = |values: Array1<T>| Variable::new(crate::tensor::Dense::from(values), lod.upper().cloned());
    Ok(sample.batch("offset", each(offset)?).batch("length", each(length)?))
}

/// Returns the range of rows to cut out of sequence `i`, counted from the start of the sequence; `rows` is the sequence's number
/// of rows.
fn piece(offset: &Ids<'_>, length: &Ids<'_>, i: usize, rows: usize) -> Result<Range<usize>> {
    let (from, count) = (offset.get(i), length.get(i));
    let range = usize::try_from(from).ok().zip(usize::try_from(count).ok());
    match range.and_then(|(from, count)| Some(from..from.checked_add(count)?)).filter(|r| r.end <= rows) {
        Some(range) => Ok(range),
        None => {
            let expected = format!("an offset and a length inside its {rows} rows");
            Err(Error::new("sequence", expected, format!("{count} from {from} on")).row(i))
        }
    }
}

impl RowMap for SequenceSlice {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Ascending)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (offset, length) = (Ids::of(run, Self::OFFSET)?, Ids::of(run, Self::LENGTH)?);
        let mut at = 0;
        for (i, rows) in run.sequences(Self::X)?.iter().enumerate() {
            let piece = piece(&offset, &length, i, rows.len())?;
            moved(at, Sources::Range(rows.start + piece.start..rows.start + piece.end));
            at += piece.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    fn called(offset: Variable, length: Variable) -> String {
        let x = Variable::from_sequences(&[vec![1.0f32, 2.0, 3.0], vec![], vec![4.0, 5.0]]);
        let run = |x: Variable| {
            let op = crate::ops::catalogue().parse("sequence_slice", &Attributes::new())?;
            let operands = [("x", x), ("offset", offset), ("length", length)];
            op.call(&operands.map(|(slot, value)| Operand::batch(slot, value)))
        };
        x.and_then(run).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_piece_that_is_not_inside_names_its_sequence() {
        for (offset, length, sequence, got) in [
            (array![0i64, 0, 1], array![3i64, 0, 2], 2, "2 from 1 on"),
            (array![0, 1, 0], array![3, 0, 2], 1, "0 from 1 on"),
            (array![-1, 0, 0], array![3, 0, 2], 0, "3 from -1 on"),
            (array![0, 0, 0], array![-3, 0, 2], 0, "-3 from 0 on"),
            (array![0, 0, i64::MAX], array![3, 0, i64::MAX], 2, "from 9223372036854775807 on"),
        ] {
            let error = called(Variable::dense(offset), Variable::dense(length));
            let named = format!("sequence of sample {sequence}: expected an offset and a length inside its");
            assert!(error.starts_with(&named) && error.contains(got), "{error}");
        }
    }

    #[test]
    fn offsets_and_lengths_are_whole_numbers_one_a_sequence() -> Result<()> {
        let fine = || Variable::dense(array![0i64, 0, 0]);
        let error = called(Variable::dense(array![0.5, 0.0, 0.0]), fine());
        assert!(error.contains("input `offset`: expected dtype i64 or i32"), "{error}");

        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[2], 2);
        let (top, flat) = (net.feed("top", DType::I64, &[], 0), net.feed("flat", DType::F32, &[2], 0));
        let error = net.sequence_slice(x, top, top).refused().to_string();
        let expected = "input `offset`: expected one whole number for each sequence of the last level of `x`";
        assert!(error.contains(expected), "{error}");
        let error = net.sequence_slice(flat, top, top).refused().to_string();
        assert!(error.contains("input `x`: expected sequences"), "{error}");
        Ok(())
    }
}
