//! `sequence_expand`: repeats each row or sequence of one variable; the numbers of copies are the lengths of the sequences of
//! another variable.

use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowMap, RowSink, SourceUse, Sources};

operator! {
    /// Repeats row i of `x`, or sequence i of the last level of `x`. The number of copies is the length of sequence i in the
    /// level `ref_level` of `y`; `None` means the last level of `y`.
    ///
    /// Let n_i be the length of sequence i in the level `ref_level` of y (by default the last level). There are two cases:
    /// - If x has one row for each sequence of level `ref_level` of y, row i is repeated n_i times. The output then
    ///   has Σ_i n_i rows, and the LoD of y down to level `ref_level`. If `ref_level` is the last level of y, the
    ///   output has the number of rows and the LoD (the same `Arc`) of y.
    /// - If x has one sequence for each sequence of level `ref_level` of y, sequence i is repeated n_i times. The LoD of the
    ///   output then is the LoD of y down to level `ref_level`, followed by a level with the lengths of the copies.
    ///
    /// If rows are repeated, the LoD of x consists of the levels of y above `ref_level` (no LoD if `ref_level` is 0).
    /// If sequences are repeated, the LoD of x has one level more than these levels. With n_i = 0, row i or sequence i
    /// is dropped. The operator reads only the LoD of y, not the numbers. The gradient of a row of x is the sum of the
    /// output's gradients over all copies of the row.
    ///
    /// `x` may have any dtype. A row of the output may depend on a row of another sequence of the batch, so `sequence_expand`
    /// in a step block is an error. In a step block, use [`sequence_expand_as`](Self::sequence_expand_as), which repeats rows
    /// by the lengths of the last level of y.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let op = ops::catalogue().parse("sequence_expand", &Attributes::new())?;
    /// let y = Variable::sequences(array![0.0, 0.0, 0.0], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let rows = Variable::dense(array![[1.0], [2.0], [3.0]]);
    /// let out = op.clone().call(&[Operand::batch("x", rows), Operand::batch("y", y.clone())])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 1.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    ///
    /// let sequences = Variable::from_sequences(&[vec![1.0, 2.0], vec![3.0], vec![4.0, 5.0, 6.0]])?;
    /// let out = op.call(&[Operand::batch("x", sequences), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 1.0, 2.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1], [2, 2, 3]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `y` does not have the level `ref_level`, or `x` does not have one row, or one sequence, for each
    /// sequence of this level.
    pub(in crate::ops) struct SequenceExpand = sequence_expand { ref_level: Option<usize> }
    inputs { X = x: one, Y = y: one.without_gradient().any_storage() }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_expand(&self, x: Var, y: Var, ref_level: Option<usize>) -> Var; }
}

impl Op for SequenceExpand {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Replaces)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(Self::Y)?;
        let (x, y) = (s.input(Self::X), s.levels(Self::Y));
        let level = self.level(y.len());
        let Some(&counts) = y.get(level) else {
            return Err(s.mismatch(Self::Y, &format!("a LoD with a level {level}, the `ref_level`")));
        };
        let (above, kept) = (&y[..level], &y[..=level]);
        let entries = above.last().map_or(s.top(), |&level| Extent::Rows(level));
        let mut out = x.clone();
        out.lod = kept.iter().copied().collect();
        if x.lod.as_slice() == above && x.rows() == entries {
            out.shape[0] = Extent::Rows(counts);
        } else if x.lod.len() == level + 1 && x.lod.starts_with(above) {
            let repeated = s.new_level(kept, |levels, offsets| {
                let (Some(x), Some(y)) = (levels.lod(&x.lod), levels.get(counts)) else {
                    return Err(Error::new(
                        "sequence_expand",
                        "inputs whose LoD is bound",
                        "an input whose LoD is not bound",
                    ));
                };
                repeat(x.offsets(), y.offsets(), offsets)
            })?;
            out.lod.push(repeated);
            out.shape[0] = Extent::Rows(repeated);
        } else {
            let names: Vec<String> = above.iter().map(|level| level.0.to_string()).collect();
            return Err(s.mismatch(
                Self::X,
                &format!("lod({}), or one level more: one entry per sequence of `y`", names.join(", ")),
            ));
        }
        s.set(Self::OUT, out);
        Ok(())
    }

    row_map_passes!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name: &str,
                      x: &[Vec<usize>],
                      rows: usize,
                      y: &[Vec<usize>],
                      level: Option<usize>|
         -> Result<CheckCase> {
            let number = |(i, j): (usize, usize)| ((i * 2 + j) as f64 * 1.3).sin();
            let lod = if x.is_empty() { None } else { Some(Lod::from_lengths(x)?) };
            let x = Variable::new(crate::tensor::Dense::from(Array2::from_shape_fn((rows, 2), number)), lod)?;
            let y = Lod::from_lengths(y)?;
            Ok(CheckCase::new(name, SequenceExpand { ref_level: level }.attributes())
                .batch("x", x)
                .batch("y", Variable::sequences(Array2::<f64>::zeros((y.rows(), 1)), y)?))
        };
        let deep = [vec![2, 0, 1], vec![1, 0, 3]];
        let samples = [
            sample("rows", &[], 3, &[vec![2, 0, 1]], None),
            sample("rows after the top level of two", &[], 3, &deep, Some(0)),
            sample("rows after the last level of two", &deep[..1], 3, &deep, None),
            sample("sequences", &[vec![2, 1, 0]], 3, &[vec![2, 3, 1]], None),
            sample("sequences after the top level of two", &[vec![1, 2, 1]], 4, &deep, Some(0)),
            sample(
                "sequences after the last level of two",
                &[deep[0].clone(), vec![2, 1, 1]],
                4,
                &deep,
                Some(1),
            ),
            sample("all empty", &[vec![1, 2]], 3, &[vec![0, 0]], None),
            sample("rows, all empty", &[], 2, &[vec![0, 0]], None),
            sample("none", &[], 0, &[vec![]], None),
        ];
        samples.into_iter().collect()
    }
}

impl SequenceExpand {
    fn level(&self, levels: usize) -> usize {
        self.ref_level.unwrap_or(levels.saturating_sub(1))
    }
}

impl RowMap for SequenceExpand {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Often)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let y = run.lod(Self::Y).ok_or_else(|| Error::new("input `y`", "a LoD", "none"))?;
        let level = self.level(y.levels());
        // Whole sequences of x are copied if x has more levels than y has above `ref_level`; else rows are copied.
        let whole = run.input_spec(Self::X).lod.len() > level;
        let sequences = if whole { run.lod(Self::X).map(|lod| lod.offsets()) } else { None };
        let mut at = 0;
        for (i, times) in y.lengths(level)?.enumerate() {
            match sequences {
                None => {
                    moved(at, Sources::Repeated(i, times));
                    at += times;
                }
                Some(offsets) => {
                    for _ in 0..times {
                        moved(at, Sources::Range(offsets[i]..offsets[i + 1]));
                        at += offsets[i + 1] - offsets[i];
                    }
                }
            }
        }
        Ok(())
    }
}

/// Writes the offsets of the repeated sequences of x to `offsets`: sequence i is repeated as many times as sequence i of y
/// has entries.
fn repeat(x: &[usize], y: &[usize], offsets: &mut Vec<usize>) -> Result<()> {
    if x.len() != y.len() {
        return Err(Error::new(
            "sequences of `x`",
            format!("{}, the number of sequences of `y`'s level", y.len() - 1),
            (x.len() - 1).to_string(),
        ));
    }
    let mut end = 0;
    offsets.push(end);
    for (x, y) in x.windows(2).zip(y.windows(2)) {
        for _ in y[0]..y[1] {
            end += x[1] - x[0];
            offsets.push(end);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::call::Direct;
    use crate::program::Builder;

    #[test]
    fn rows_get_the_lod_of_y_itself() -> Result<()> {
        for sample in SequenceExpand::samples()?
            .iter()
            .filter(|s| s.name.starts_with("rows") && !s.name.contains("top"))
        {
            let direct = Direct::new(Arc::new(SequenceExpand::parse(&sample.attributes)?), &sample.operands)?;
            let out = direct.forward()?;
            assert!(
                Lod::same(out[SequenceExpand::OUT][0].lod(), direct.inputs()[SequenceExpand::Y][0].lod()),
                "{}",
                sample.name
            );
        }
        Ok(())
    }

    #[test]
    fn a_pooled_row_meets_the_rows_it_came_from() -> Result<()> {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[4], 2);
        let mean = net.sequence_pool(x, crate::ops::Pool::Mean);
        let spread = net.sequence_expand(mean, x, None);
        assert_eq!(net.spec(spread).unwrap(), net.spec(x).unwrap());
        let other = net.feed("other", DType::F32, &[4], 2);
        let error = net.sequence_expand(mean, other, None).refused().to_string();
        assert!(error.contains("input `x`: expected lod(2), or one level more"), "{error}");
        Ok(())
    }
}
