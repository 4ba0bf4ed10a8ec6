//! `sequence_pad` and `sequence_unpad`: convert sequences to arrays padded to one length, and back.

use ndarray::Array3;

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;
use crate::ops::row_map::{self, MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Pads each sequence in the last level of `x` to `length` positions, with `pad_value` after the rows of the
    /// sequence; also returns the lengths of the sequences.
    ///
    /// With n_s rows in sequence s, out_st is row t of sequence s for t < n_s, and `pad_value` for n_s ≤ t < `length`. The
    /// output has the shape `[sequences, length, …]`, where `[…]` is the shape of a row of x. The second output holds the
    /// lengths n_s, i64 `[sequences]`. Padded rows and lengths have the LoD of x without its last level. An empty sequence
    /// becomes a row of padding only. If a sequence is longer than `length`, the run fails and names the sequence;
    /// [`sequence_slice`](Self::sequence_slice) can cut it first. `x` may have any dtype. The padding has no effect on the
    /// gradient of x. Padded arrays are for operators of other crates: the operators of this crate read sequences without
    /// padding.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0], vec![], vec![3.0]])?;
    /// let attributes = Attributes::new().with("length", 3).with("pad_value", -1.0);
    /// let out = ops::catalogue().parse("sequence_pad", &attributes)?.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].shape(), [3, 3]);
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, -1.0, -1.0, -1.0, -1.0, 3.0, -1.0, -1.0]);
    /// assert_eq!(out[1].as_slice::<i64>()?, [2, 0, 1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD, or already has the maximum number of dimensions; at a run, if a sequence is longer than
    /// `length`.
    pub(in crate::ops) struct SequencePad = sequence_pad { length: usize, pad_value: f64 = 0.0 }
    inputs { X = x: one }
    outputs { OUT = out: one, LENGTHS = lengths: one.without_gradient() }
    impl Builder, Var { fn sequence_pad(&self, x: Var, length: usize, pad_value: f64) -> (Var, Var); }
}

operator! {
    /// Removes the padding after the end of each padded sequence: the inverse of [`sequence_pad`](Self::sequence_pad).
    ///
    /// x has the shape `[sequences, positions, …]`. Sequence s of the output is the first n_s positions of row s of x, where
    /// n_s = `lengths`_s is a whole number. If n_s is negative or above the number of positions, the run fails and names the
    /// sequence. The rows of the output have the shape `[…]`. The LoD of the output is the LoD of x, followed by a new
    /// last level with the lengths n_s. A length of 0 gives an empty sequence. `x` may have any dtype. The gradient of
    /// x is 0 at the positions after the end of a sequence.
    ///
    /// Two variables that are unpadded with the same variable `lengths` get the same LoD, so operators can combine the
    /// two outputs row by row. For this, the second call appends [`sequence_unpad_as`](Self::sequence_unpad_as), with
    /// the output of the first call as `y`. The output of a call in a step block and the output of a call outside of
    /// the block cannot be combined row by row. To get outputs that can be combined, call `sequence_unpad_as` in the
    /// block, with the output from outside of the block as `y`.
    ///
    /// The operator computes the offsets of the last level from the numbers in `lengths` (`Op::levels`). In a step
    /// block, these offsets are computed before the first step, so `lengths` must not depend on a memory, but x may
    /// depend on a memory.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::dense(array![[1.0, 2.0, -1.0], [-1.0, -1.0, -1.0], [3.0, -1.0, -1.0]]);
    /// let op = ops::catalogue().parse("sequence_unpad", &Attributes::new())?;
    /// let lengths = Variable::dense(array![2i64, 0, 1]);
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("lengths", lengths)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has fewer than two dimensions, or `lengths` does not hold one whole number for each row of `x`; in a
    /// step block, if `lengths` depends on a memory; at a run, if a length is out of range.
    pub(in crate::ops) struct SequenceUnpad = sequence_unpad {}
    inputs { X = x: one, LENGTHS = lengths: one.without_gradient() }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn sequence_unpad(&self, x: Var, lengths: Var) -> Var {
            // If the operands do not fit, `sequence_unpad` is appended all the same, so that the error names the operator that
            // the user called.
            let fits = match (self.spec_of_tensor(x), self.spec_of_tensor(lengths)) {
                (Some(x), Some(n)) => x.shape.len() > 1 && x.rows() == n.rows() && x.lod == n.lod,
                _ => false,
            };
            if let (Some(same), true) = (self.made_by("sequence_unpad", "lengths", lengths), fits) {
                return self.sequence_unpad_as(x, same);
            }
        }
    }
}

impl Op for SequencePad {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        let mut out = s.input(Self::X).drop_level(s.top())?;
        let mut lengths = out.with_dtype(DType::I64);
        lengths.shape.truncate(1);
        if out.shape.try_insert(1, Extent::Known(self.length)).is_err() {
            return Err(s.mismatch(Self::X, "room for one dimension more"));
        }
        s.set(Self::OUT, out);
        s.set(Self::LENGTHS, lengths);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        row_map::forward(self, run)?;
        let mut lengths = run.output::<i64>(Self::LENGTHS)?;
        for (length, rows) in lengths.iter_mut().zip(run.sequences(Self::X)?.iter()) {
            length[0] = rows.len() as i64;
        }
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        row_map::backward(self, run)
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |length| SequencePad { length, pad_value: -2.5 }.attributes();
        let mut samples = CheckCase::of_sequences(&attributes(4), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 3, 0), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&attributes(5), |sample, lod| {
            let ids: Vec<i64> = (0..lod.rows() as i64).collect();
            Ok(sample.batch("x", Variable::sequences(Array1::from(ids), lod)?))
        })?);
        Ok(samples)
    }
}

impl RowMap for SequencePad {
    fn movement(&self) -> Movement {
        Movement::scatter(Self::X, SourceUse::Ascending, self.pad_value)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        for (i, rows) in run.sequences(Self::X)?.iter().enumerate() {
            if rows.len() > self.length {
                let expected = format!("at most {} rows, the length to pad to", self.length);
                return Err(Error::new(format!("sequence {i}"), expected, rows.len().to_string()));
            }
            moved(rows.start, Sources::Parts(i, rows.len()));
        }
        Ok(())
    }
}

impl Op for SequenceUnpad {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::LENGTHS]))
    }

    fn most_rows(&self, inputs: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, inputs[Self::X].first().map_or(0, places)))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::LENGTHS)?;
        let x = s.input(Self::X);
        if !x.batched() || x.shape.len() < 2 {
            return Err(s.mismatch(Self::X, "rows of places, shape [sequences, places, …]"));
        }
        s.same_rows(Self::X, Self::LENGTHS)?;
        let level = s.level_from_data(&x.lod)?;
        let mut out = x.clone();
        out.shape.remove(1);
        out.shape[0] = Extent::Rows(level);
        out.lod.push(level);
        s.set(Self::OUT, out);
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (lengths, places) = (Ids::of(run, Self::LENGTHS)?, places(run.input_spec(Self::X)));
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for i in 0..lengths.len() {
            end += length(&lengths, i, places)?;
            offsets.push(end);
        }
        Ok(())
    }

    row_map_passes!(Self::LENGTHS);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let lengths = |rows: usize| Array1::from_iter((0..rows as i64).map(|i| [3, 0, 1, 2][i as usize % 4]));
        // x has one row per sequence. If the LoD of the sample has two levels, x has the upper level as its LoD.
        let mut samples = CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let (lod, rows) = (lod.upper().cloned(), lod.last_len());
            let x = numbers(rows, 6, 0).into_shape_with_order((rows, 3, 2));
            let x: Array3<f64> = x.map_err(|e| Error::new("sample", "three dimensions", e.to_string()))?;
            let lengths = Variable::new(Dense::from(lengths(rows)), lod.clone())?;
            Ok(sample.batch("x", Variable::new(Dense::from(x), lod)?).batch("lengths", lengths))
        })?;
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod: std::sync::Arc<Lod>| {
            let x = Array2::from_shape_fn((lod.rows(), 3), |(i, j)| (i * 3 + j) as i64);
            let lengths = lengths(lod.rows());
            let sample = sample.batch("x", Variable::sequences(x, lod.clone())?);
            Ok(sample.batch("lengths", Variable::sequences(lengths, lod)?))
        })?);
        Ok(samples)
    }
}

/// Returns the number of positions in a padded row: the second dimension of `x`.
pub(super) fn places(x: &Spec) -> usize {
    x.shape.get(1).and_then(|places| places.known()).unwrap_or(0)
}

/// Reads the length of sequence `i`; returns an error if the length is negative or above `places`, the number of positions.
fn length(lengths: &Ids<'_>, i: usize, places: usize) -> Result<usize> {
    let given = lengths.get(i);
    usize::try_from(given).ok().filter(|&length| length <= places).ok_or_else(|| {
        let expected = format!("at least 0 and at most {places}, the places of a row");
        Error::new("length of a sequence", expected, given.to_string()).row(i)
    })
}

impl RowMap for SequenceUnpad {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Ascending)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (lengths, places) = (Ids::of(run, Self::LENGTHS)?, places(run.input_spec(Self::X)));
        let mut at = 0;
        for i in 0..lengths.len() {
            let length = length(&lengths, i, places)?;
            moved(at, Sources::Parts(i, length));
            at += length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_do_not_fit_name_their_sequence() -> Result<()> {
        let catalogue = crate::ops::catalogue();
        let message = |kind: &str, attributes: &Attributes, operands: &[Operand]| -> Result<String> {
            let outcome = catalogue.parse(kind, attributes)?.call(operands);
            Ok(outcome.err().map(|error| error.to_string()).unwrap_or_default())
        };
        let x = Variable::from_sequences(&[vec![1.0], vec![2.0, 3.0]])?;
        let error = message("sequence_pad", &Attributes::new().with("length", 1), &[Operand::batch("x", x)])?;
        assert!(
            error.starts_with("sequence 1: expected at most 1 rows") && error.contains("got 2"),
            "{error}"
        );
        for (lengths, got) in [(array![0i64, 3], "got 3"), (array![0, -1], "got -1")] {
            let operands =
                [Operand::batch("x", array![[1.0, 2.0], [3.0, 4.0]]), Operand::batch("lengths", lengths)];
            let error = message("sequence_unpad", &Attributes::new(), &operands)?;
            let expected = "length of a sequence of sample 1: expected at least 0 and at most 2";
            assert!(error.starts_with(expected) && error.contains(got), "{error}");
        }
        Ok(())
    }
}
