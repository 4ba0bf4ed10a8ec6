//! `edit_distance`: the smallest number of edits that transform a sequence into its reference.

use super::chain::HEAVY;
use super::ctc::same_sequences;
use crate::kernels::edit_distance;
use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;

operator! {
    /// Computes the edit distance of each sequence to its reference: the fewest insertions, deletions and substitutions of one
    /// row that turn the sequence into its reference (Levenshtein, 1966).
    ///
    /// `found` and `reference` hold one whole number per row. `found` and `reference` have the same LoD levels above
    /// the last one; the lengths in the last level may differ. The distance, f32 `[sequences]`, has the LoD of `found`
    /// without its last level. With `normalised`, the distance is divided by the number of rows of the reference. The
    /// distance between a sequence of n rows and an empty sequence is n. The metric
    /// [`ErrorRate`](crate::metrics::ErrorRate) computes the edit distance over a whole data set. `found` and
    /// `reference` get no gradient.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let found = Variable::from_sequences(&[vec![1i64, 2, 3], vec![], vec![4]])?;
    /// let reference = Variable::from_sequences(&[vec![1i64, 3], vec![5, 6], vec![4]])?;
    /// let op = ops::catalogue().parse("edit_distance", &Attributes::new().with("normalised", true))?;
    /// let out = op.call(&[Operand::batch("found", found), Operand::batch("reference", reference)])?;
    /// assert_eq!(out[0].as_slice::<f32>()?, [0.5, 1.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `found` or `reference` does not hold one whole number per row, or their levels above the last
    /// one differ; when the program runs with `normalised`, it is also an error if a reference has no rows.
    pub(in crate::ops) struct EditDistance = edit_distance { normalised: bool = false }
    inputs { FOUND = found: one.without_gradient(), REFERENCE = reference: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn edit_distance(&self, found: Var, reference: Var, normalised: bool) -> Var; }
}

impl Op for EditDistance {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::FOUND))
    }

    fn hints(&self) -> Hints {
        Hints { heavy: HEAVY, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        // The ids of both sequences, and a row of distances.
        let numbers = sizes.longest(Self::FOUND) + 2 * sizes.longest(Self::REFERENCE) + 1;
        CallMemory::default().scratch::<Self>(sizes.threads() * numbers * size_of::<i64>())
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::FOUND)?;
        check(s, Self::REFERENCE)?;
        let mut out = same_sequences(s, Self::FOUND, Self::REFERENCE)?.with_dtype(DType::F32);
        out.shape.truncate(1);
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (found, reference) = (Ids::of(run, Self::FOUND)?, Ids::of(run, Self::REFERENCE)?);
        let sequences = run.sequences(Self::FOUND)?.iter().zip(run.sequences(Self::REFERENCE)?.iter());
        let mut out = run.output::<f32>(Self::OUT)?;
        for (sequence, (of_found, of_reference)) in sequences.enumerate() {
            let [a, b]: [Vec<i64>; 2] = [
                of_found.map(|row| found.get(row)).collect(),
                of_reference.map(|row| reference.get(row)).collect(),
            ];
            let distance = edit_distance(&a, &b) as f32;
            out.row(sequence)[0] = match self.normalised {
                true if b.is_empty() => {
                    let what = format!("sequence {sequence} of `reference`, for a normalised distance");
                    return Err(Error::new(what, "at least one row", "none"));
                }
                true => distance / b.len() as f32,
                false => distance,
            };
        }
        Ok(())
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let ids = |lengths: &[Vec<usize>], salt: usize| -> Result<Variable> {
            let lod = Lod::from_lengths(lengths)?;
            let ids = Array1::from_shape_fn(lod.rows(), |i| ((i * i + salt) % 3) as i64);
            Variable::new(Dense::from(ids), Some(lod))
        };
        let sample =
            |name: &str, normalised, found: &[Vec<usize>], reference: &[Vec<usize>]| -> Result<CheckCase> {
                let sample = CheckCase::new(name, EditDistance { normalised }.attributes());
                Ok(sample.batch("found", ids(found, 0)?).batch("reference", ids(reference, 1)?))
            };
        Ok(vec![
            sample("sequences", false, &[vec![3, 0, 2, 4]], &[vec![2, 3, 0, 4]])?,
            sample("normalised", true, &[vec![3, 0, 5]], &[vec![2, 3, 1]])?,
            sample("two levels", false, &[vec![2, 1], vec![2, 0, 3]], &[vec![2, 1], vec![0, 1, 4]])?,
            sample("all empty", false, &[vec![0, 0]], &[vec![0, 0]])?,
            sample("no sequence", true, &[vec![]], &[vec![]])?,
        ])
    }
}
