//! `ctc_align`: the labels of frames, with repeats merged and blanks dropped.

use ndarray::Array1;

use crate::error::Result;
use crate::kernels::arena::Plain;
use crate::operator::{CheckCase, Facts, Forward, InferShape, LodEffect, NewLevels, Op};
use crate::ops::lookup::ids::{Ids, check, ids};
use crate::tensor::{DType, Dense, Variable};
use crate::{builder_methods, operator};

builder_methods! { CtcGreedy, Builder, Var;
    /// Greedy CTC decoding: takes the likeliest class of each frame, merges repeats, then drops blanks
    /// ([`ctc_align`](Self::ctc_align) of [`argmax`](Self::argmax)). It is fast, and mostly right for a confident network;
    /// [`CtcBeam`](crate::predict::CtcBeam) sums the probabilities of all alignments of the same labels.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let logits = net.feed("logits", DType::F32, &[40], 1);
    /// assert_eq!(net.describe(logits.ctc_greedy(0)), "`ctc_align`: i64[rows1] lod(1)");
    /// ```
    ///
    /// # Errors
    /// If `logits` holds no floats or has no LoD; in a step block, if a memory reaches them.
    pub fn ctc_greedy(&self, logits: Var, blank: usize) -> Var {
        self.ctc_align(self.argmax(logits), blank)
    }
}

operator! {
    /// Aligns CTC frames: merges repeated classes, then drops blanks.
    ///
    /// In each sequence of the last level, the first frame of every run of equal classes remains, unless the class is `blank`;
    /// the last level has the new lengths, the levels above stay. A sequence of blanks, or without frames, becomes empty. No
    /// gradient passes ids.
    ///
    /// The lengths depend on the ids, so that the operator computes its level from data (`Op::levels`): in a step block no memory may reach them.
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
    /// If `ids` does not hold one whole number per row, or has no LoD; in a step block, if a memory reaches it.
    pub(in crate::ops) struct CtcAlign = ctc_align { blank: usize = 0 }
    inputs { IDS = ids: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn ctc_align(&self, ids: Var, blank: usize) -> Var; }
}

impl Op for CtcAlign {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::FromData(&[Self::IDS]))
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
        let (ids, sequences) = (ids!(run, Self::IDS), run.sequences(Self::IDS)?);
        let offsets = run.offsets(0);
        let mut end = 0;
        offsets.push(end);
        for rows in sequences.iter() {
            let first = rows.start;
            end += rows.filter(|&row| self.says(&ids, first, row)).count();
            offsets.push(end);
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        match run.dtype(Self::IDS) {
            DType::I32 => self.said::<i32>(run),
            _ => self.said::<i64>(run),
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
    /// Returns whether a frame starts a new label, in a sequence that begins at `first`.
    fn says(&self, ids: &Ids<'_>, first: usize, row: usize) -> bool {
        let id = ids.get(row);
        id != self.blank as i64 && (row == first || ids.get(row - 1) != id)
    }

    fn said<T: Plain>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (ids, rows, mut out) =
            (ids!(run, Self::IDS), run.input::<T>(Self::IDS)?, run.output::<T>(Self::OUT)?);
        let sequences = run.sequences(Self::IDS)?;
        let said = sequences.iter().flat_map(|of| {
            let (ids, first) = (&ids, of.start);
            of.filter(move |&row| self.says(ids, first, row))
        });
        out.iter_mut().zip(said).for_each(|(out, row)| out.copy_from_slice(rows.row(row)));
        Ok(())
    }
}
