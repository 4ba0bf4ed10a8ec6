//! `ctc_align`: merges repeated classes of frames and drops blanks.

use crate::ops::lookup::ids::{Ids, check};
use crate::ops::prelude::*;

builder_methods! { Builder, Var;
    /// Greedy CTC decoding: takes the likeliest class of each frame, merges repeats, then drops blanks
    /// ([`ctc_align`](Self::ctc_align) of [`argmax`](Self::argmax)). Greedy decoding is fast, and usually finds the likeliest
    /// labels if the network is confident. [`CtcBeam`](crate::predict::CtcBeam) is slower and more accurate: the beam search
    /// sums the probabilities of all alignments that have the same labels.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let logits = net.feed("logits", DType::F32, &[40], 1);
    /// assert_eq!(net.describe(logits.ctc_greedy(0)), "`ctc_align`: i64[rows1] lod(1)");
    /// ```
    ///
    /// # Errors
    /// It is an error if `logits` holds no floats or has no LoD; in a step block, it is also an error if `logits`
    /// depends on a memory.
    pub fn ctc_greedy(&self, logits: Var, blank: usize) -> Var {
        self.ctc_align(self.argmax(logits), blank)
    }
}

operator! {
    /// Aligns CTC frames: merges repeated classes, then drops blanks.
    ///
    /// Each sequence of the last level keeps the first frame of every run of equal classes, unless the class is `blank`. The
    /// last level of the output has the new lengths; the levels above the last one do not change. A sequence with only blanks
    /// becomes empty. `ids` gets no gradient.
    ///
    /// The offsets of the output's last level are computed from the ids (`Op::levels`). In a step block, the offsets of
    /// all steps are computed before the first step runs, so the ids must not depend on a memory.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![0i64, 1, 1, 0, 1, 2, 2], vec![0, 0], vec![]])?;
    /// let op = ops::catalogue().parse("ctc_align", &Attributes::new().with("blank", 0usize))?;
    /// let out = op.call(&[Operand::batch("ids", ids)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 1, 2]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 0]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` does not hold one whole number per row, or has no LoD; in a step block, it is also an
    /// error if `ids` depends on a memory.
    pub(in crate::ops) struct CtcAlign = ctc_align { blank: usize = 0 }
    inputs { IDS = ids: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn ctc_align(&self, ids: Var, blank: usize) -> Var; }
}

impl Op for CtcAlign {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::IDS]))
    }

    fn most_rows(&self, _: &[Vec<Spec>]) -> Option<(usize, usize)> {
        Some((Self::IDS, 1))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::IDS)?;
        s.has_lod(Self::IDS)?;
        let ids = s.input(Self::IDS);
        let level = s.level_from_data(ids.upper_levels())?;
        s.set(Self::OUT, ids.with_last_level(level));
        Ok(())
    }

    fn levels(&self, run: &mut NewLevels<'_>) -> Result<()> {
        let (ids, sequences) = (Ids::of(run, Self::IDS)?, run.sequences(Self::IDS)?);
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for rows in sequences.iter() {
            let first = rows.start;
            end += rows.filter(|&row| self.starts_label(&ids, first, row)).count();
            offsets.push(end);
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        match run.dtype(Self::IDS) {
            DType::I32 => self.collapse::<i32>(run),
            _ => self.collapse::<i64>(run),
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for blank in [0, 2] {
            samples.extend(CheckCase::of_sequences(&CtcAlign { blank }.attributes(), |sample, lod| {
                let ids = Array1::from_shape_fn(lod.rows(), |i| [1i64, 1, 0, 2, 2, 1][i % 6]);
                Ok(sample.batch("ids", Variable::new(Dense::from(ids), Some(lod))?))
            })?);
        }
        samples.extend(CheckCase::of_sequences(&CtcAlign { blank: 1 }.attributes(), |sample, lod| {
            let ids = ndarray::Array2::from_shape_fn((lod.rows(), 1), |(i, _)| [0i32, 0, 1, 0][i % 4]);
            Ok(sample.batch("ids", Variable::sequences(ids, lod)?))
        })?);
        Ok(samples)
    }
}

impl CtcAlign {
    /// Returns whether frame `row` starts a new label: its class is not the blank, and differs from the class of the previous
    /// frame. `first` is the first frame of the sequence.
    fn starts_label(&self, ids: &Ids<'_>, first: usize, row: usize) -> bool {
        let id = ids.get(row);
        id != self.blank as i64 && (row == first || ids.get(row - 1) != id)
    }

    fn collapse<T: Plain>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (ids, rows, mut out) =
            (Ids::of(run, Self::IDS)?, run.input::<T>(Self::IDS)?, run.output::<T>(Self::OUT)?);
        let sequences = run.sequences(Self::IDS)?;
        let kept = sequences.iter().flat_map(|frames| {
            let (ids, first) = (&ids, frames.start);
            frames.filter(move |&row| self.starts_label(ids, first, row))
        });
        out.iter_mut().zip(kept).for_each(|(out, row)| out.copy_from_slice(rows.row(row)));
        Ok(())
    }
}
