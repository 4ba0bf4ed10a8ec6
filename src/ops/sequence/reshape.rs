//! `sequence_reshape`: divides the numbers of each sequence into rows of another width.

use crate::ops::prelude::*;
use crate::ops::sequence::counts::count;
use crate::ops::sequence::samples::of_lengths;

operator! {
    /// Reshapes each sequence of the last level to rows of `width` numbers; the numbers of a sequence keep their order.
    ///
    /// A sequence of n rows of D numbers becomes n · D / `width` rows of `width` numbers. If `width` does not divide n · D for a
    /// sequence, the run fails and names the sequence. The levels above the last one do not change. An empty sequence stays
    /// empty. `x` may have any dtype. The gradient of x is the gradient of the output, reshaped to the rows of x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 2])?;
    /// let x = Variable::sequences(array![[1i64, 2], [3, 4], [5, 6]], lod)?;
    /// let op = ops::catalogue().parse("sequence_reshape", &Attributes::new().with("width", 1))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].shape(), [6, 1]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 4]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD, or the width is 0; at a run, if the width does not divide n · D for a sequence of n rows
    /// of D numbers.
    pub(in crate::ops) struct SequenceReshape = sequence_reshape { width: usize => count }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_reshape(&self, x: Var, width: usize) -> Var; }
}

impl Op for SequenceReshape {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Replaces)
    }

    fn most_rows(&self, inputs: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, inputs[Self::X].first().map_or(0, |x| x.width().div_ceil(self.width.max(1)))))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        let (from, to) = (x.width(), self.width);
        let level = s.new_level(x.upper_levels(), |levels, offsets| {
            let lod =
                levels.lod(&x.lod).ok_or_else(|| Error::new("input `x`", "a LoD that is bound", "none"))?;
            offsets.push(0);
            let mut end = 0;
            for (i, pair) in lod.offsets().windows(2).enumerate() {
                let (rows, count) = (pair[1] - pair[0], (pair[1] - pair[0]).saturating_mul(from));
                if !count.is_multiple_of(to) {
                    let expected = format!("numbers that rows of {to} divide");
                    return Err(Error::new(
                        format!("sequence {i}"),
                        expected,
                        format!("{rows} rows of {from}"),
                    ));
                }
                end += count / to;
                offsets.push(end);
            }
            Ok(())
        })?;
        let out = x.with_width(to).with_last_level(level);
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(run.dtype(Self::X), T => {
            let (x, out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            each(x, out, |to: &mut [T], from| to.copy_from_slice(from));
        });
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => gradient::<T>(run))
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (from, to) in [(6, 2), (6, 4), (2, 1), (1, 1)] {
            samples.extend(CheckCase::of_sequences(
                &SequenceReshape { width: to }.attributes(),
                |sample, lod| {
                    // The lengths of the sequences are doubled if the new width does not divide the old width, so that the new
                    // width divides the number of numbers in every sequence.
                    let fits = |pair: &[usize]| {
                        if from % to == 0 { pair[1] - pair[0] } else { 2 * (pair[1] - pair[0]) }
                    };
                    let lod = of_lengths(&lod, lod.offsets().windows(2).map(fits))?;
                    let name = format!("{from} to {to}, {}", sample.name);
                    let sample = CheckCase { name, ..sample };
                    if from == 2 {
                        let ids = Array2::from_shape_fn((lod.rows(), from), |(i, j)| (i * from + j) as i64);
                        return Ok(sample.batch("x", Variable::sequences(ids, lod)?));
                    }
                    Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), from, 0), lod)?))
                },
            )?);
        }
        Ok(samples)
    }
}

/// Calls `each` with pairs of slices of equal length, one of `to` and one of `from`; the pairs cover all numbers of both views
/// in order.
fn each<T: Plain>(from: View<'_, T>, mut to: ViewMut<'_, T>, mut each: impl FnMut(&mut [T], &[T])) {
    let (mut row, mut column) = (0, 0);
    for mut to in to.iter_mut() {
        while !to.is_empty() && row < from.rows() {
            let rest = &from.row(row)[column..];
            let (piece, after) = to.split_at_mut(rest.len().min(to.len()));
            each(piece, &rest[..piece.len()]);
            column += piece.len();
            if column == from.width() {
                (row, column) = (row + 1, 0);
            }
            to = after;
        }
    }
}

fn gradient<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let dout = run.dout::<T>(SequenceReshape::OUT)?;
    if let Some((dx, assign)) = run.gradient::<T>(SequenceReshape::X)? {
        each(dout, dx, |to, from| assign.put_row(to, from));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_that_does_not_divide_names_its_sequence() -> Result<()> {
        let x = Variable::from_sequences(&[vec![1.0, 2.0], vec![], vec![3.0]])?;
        let op = crate::ops::catalogue().parse("sequence_reshape", &Attributes::new().with("width", 2))?;
        let error =
            op.call(&[Operand::batch("x", x)]).err().map(|error| error.to_string()).unwrap_or_default();
        let expected = "sequence 2: expected numbers that rows of 2 divide, got 1 rows of 1";
        assert!(error.contains(expected), "{error}");
        Ok(())
    }
}
