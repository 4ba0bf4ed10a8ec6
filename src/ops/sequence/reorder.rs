//! `reorder_by_rank`: sorts the sequences of a batch by length, the longest first.

use std::cmp::Reverse;

use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Sorts the top-level sequences of `x` by the lengths of `y`'s sequences, the longest first.
    ///
    /// Sequence i of the output is sequence o_i of x, where o is the order of the top-level sequences of y by length, the
    /// longest first. The length of a top-level sequence is its number of entries in the next level. Sequences of equal length
    /// keep their order. Recurrent loops run sequences in the order o. The levels inside a sequence of x do not change. If x
    /// has no LoD, row i of the output is row o_i of x. The operator reads the LoD of y, not its numbers. `x` may have any
    /// dtype. The gradient of x has the order of x. The order o depends on the whole batch, so the operator is an error in a
    /// step block.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let y = Variable::from_sequences(&[vec![0i64, 0], vec![], vec![0, 0, 0]])?;
    /// let x = Variable::from_sequences(&[vec![1.0], vec![2.0, 3.0], vec![4.0]])?;
    /// let op = ops::catalogue().parse("reorder_by_rank", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [4.0, 1.0, 2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 1, 2]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `y` has no LoD, or `x` does not have one row, or one top-level sequence, for each top-level sequence of
    /// `y`.
    pub(in crate::ops) struct ReorderByRank = reorder_by_rank {}
    inputs { X = x: one, Y = y: one.without_gradient().any_storage() }
    outputs { OUT = out: one }
    impl Builder, Var { fn reorder_by_rank(&self, x: Var, y: Var) -> Var; }
}

/// Scratch memory: the indices of the top-level sequences, the longest sequence first.
#[derive(Default)]
struct Order(Vec<usize>);

impl Op for ReorderByRank {
    fn facts(&self) -> Facts {
        // The new position of a row depends on the lengths of all other sequences of the batch.
        Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Replaces) }
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::X, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::Y)?;
        let (x, y) = (s.input(Self::X), s.input(Self::Y));
        if x.lod.is_empty() && x.rows() != s.top() {
            return Err(s.mismatch(Self::X, "one row, or one sequence, for each sequence of the batch"));
        }
        let mut out = x.clone();
        out.lod.clear();
        for level in 0..x.lod.len() {
            let made = s.new_level(&out.lod, |levels, offsets| {
                let (Some(from), Some(by)) = (levels.lod(&x.lod), levels.lod(&y.lod)) else {
                    let expected = "inputs whose LoD is bound";
                    return Err(Error::new("reorder_by_rank", expected, "an input whose LoD is not bound"));
                };
                let mut order = Vec::new();
                rank(by, &mut order)?;
                let lengths = from.level(level)?;
                offsets.push(0);
                let mut end = 0;
                for &sequence in &order {
                    for entry in entries(from, sequence, level)? {
                        end += lengths[entry + 1] - lengths[entry];
                        offsets.push(end);
                    }
                }
                Ok(())
            })?;
            out.lod.push(made);
            out.shape[0] = Extent::Rows(made);
        }
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (k, levels) in [0, 1, 2].into_iter().enumerate() {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let sequences = lod.sequences();
                let words: Vec<usize> = (0..sequences).map(|i| (i * 2 + k) % 3).collect();
                let below: Vec<usize> = (0..words.iter().sum()).map(|i| i % 2).collect();
                let x = match levels {
                    0 => Variable::from(numbers(sequences, 2, 0)),
                    1 => {
                        let lod = Lod::from_lengths1(&words)?;
                        Variable::new(Dense::from(numbers(lod.rows(), 2, 0)), Some(lod))?
                    }
                    _ => {
                        let lod = Lod::from_lengths(&[words, below])?;
                        Variable::new(Dense::from(numbers(lod.rows(), 2, 0)), Some(lod))?
                    }
                };
                let y = Variable::sequences(Array2::<f64>::zeros((lod.rows(), 1)), lod)?;
                Ok(CheckCase { name: format!("{levels} levels, {}", sample.name), ..sample }
                    .batch("x", x)
                    .batch("y", y))
            })?);
        }
        Ok(samples)
    }
}

/// Writes the indices of the top-level sequences to `order`, the longest sequence first.
fn rank(lod: &Lod, order: &mut Vec<usize>) -> Result<()> {
    let offsets = lod.level(0)?;
    order.clear();
    order.extend(0..lod.sequences());
    order.sort_unstable_by_key(|&i| (Reverse(offsets[i + 1] - offsets[i]), i));
    Ok(())
}

/// Returns the range of entries of level `level` that belong to a top-level sequence. If `level` is the number of levels, the
/// entries are the rows of the sequence.
fn entries(lod: &Lod, sequence: usize, level: usize) -> Result<Range<usize>> {
    let mut entries = sequence..sequence + 1;
    for k in 0..level {
        let offsets = lod.level(k)?;
        entries = offsets[entries.start]..offsets[entries.end];
    }
    Ok(entries)
}

impl RowMap for ReorderByRank {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Once)
    }

    fn map(&self, MapCall { run, scratch, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let [x, y] = [Self::X, Self::Y].map(|slot| run.lod(slot));
        let order = &mut scratch.get::<Order>().0;
        rank(y.ok_or_else(|| Error::new("input `y`", "a LoD", "none"))?, order)?;
        let mut at = 0;
        for &sequence in &*order {
            let rows = match x {
                Some(lod) => entries(lod, sequence, lod.levels())?,
                None => sequence..sequence + 1,
            };
            moved(at, Sources::Range(rows.clone()));
            at += rows.len();
        }
        Ok(())
    }
}
