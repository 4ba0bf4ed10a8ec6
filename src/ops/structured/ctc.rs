//! `ctc_loss`: the loss of a sequence of labels if the alignment of the labels with the frames is unknown.

use super::chain::HEAVY;
use crate::kernels::{CtcRoom, ctc, ctc_gradient, emptied};
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;

operator! {
    /// Computes the connectionist temporal classification (CTC) loss of each sequence: −ln p(labels), where p sums over all
    /// alignments of the labels with the frames.
    ///
    /// p(labels) = Σ_k Π_t softmax(x_t)(k_t), where k is an alignment (a class per frame). The sum is over all alignments that
    /// become the labels if repeats are merged and then blanks dropped (Graves et al., "Connectionist temporal classification:
    /// labelling unsegmented sequence data with recurrent neural networks", 2006). Between two equal consecutive labels, an
    /// alignment must have a blank.
    ///
    /// `logits` (x) has the shape `[frames, classes]`, where one of the classes is `blank`; `labels` has one class per
    /// row, never the blank. `logits` and `labels` have the same LoD levels above the last one; the lengths in the last
    /// level may differ. The cost `[sequences]` has the LoD of `logits` without its last level. The cost of a sequence
    /// without labels is −ln of the probability of blanks in all its frames; a sequence without labels and frames has
    /// the cost 0. If a sequence has too few frames for its labels, its cost is infinite (with `zero_infinity`: 0), and
    /// its gradient is 0.
    ///
    /// The sum over alignments is computed in f64 and scaled at each frame. If relevant numbers of a sequence could underflow,
    /// the sequence is computed with logarithms instead.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let logits = Variable::sequences(array![[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], Lod::from_lengths1(&[2, 1])?)?;
    /// let labels = Variable::from_sequences(&[vec![1i64], vec![1, 1]])?;
    /// let zeroed = Attributes::new().with("blank", 0usize).with("zero_infinity", true);
    /// let op = ops::catalogue().parse("ctc_loss", &zeroed)?;
    /// let out = op.call(&[Operand::batch("logits", logits), Operand::batch("labels", labels)])?;
    /// let costs = out[0].as_slice::<f64>()?;
    /// assert!((costs[0] - (4f64 / 3.0).ln()).abs() < 1e-12); // 1 1, 1 blank, blank 1: three ways of four
    /// assert_eq!(costs[1], 0.0); // two labels do not go into one frame
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the levels above the last one differ, if `logits` holds no floats or `labels` no whole
    /// numbers, or if `blank` is not below the number of classes; when the program runs, it is also an error if a label
    /// is the blank or not below the number of classes.
    #[derive(Clone)]
    pub(in crate::ops) struct CtcLoss = ctc_loss { blank: usize = 0, zero_infinity: bool = false }
    inputs { LOGITS = logits: one, LABELS = labels: one.without_gradient() }
    outputs { COST = cost: one }
    impl Builder, Var { fn ctc_loss(&self, logits: Var, labels: Var, blank: usize, zero_infinity: bool) -> Var; }
}

impl Op for CtcLoss {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::LOGITS))
    }

    fn hints(&self) -> Hints {
        Hints { heavy: HEAVY, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (frames, labels) = (sizes.longest(Self::LOGITS), sizes.longest(Self::LABELS));
        let room = CtcRoom::bytes_of(frames, sizes.input(Self::LOGITS).1, labels);
        let room = room.saturating_add(labels * size_of::<usize>());
        CallMemory::default().scratch::<Rooms>(sizes.threads().saturating_mul(room))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::LOGITS)?;
        let sequences = same_sequences(s, Self::LOGITS, Self::LABELS)?;
        ids::check(s, Self::LABELS)?;
        let classes = s.input(Self::LOGITS).width();
        if s.input(Self::LOGITS).shape.len() != 2 || self.blank >= classes {
            let expected = format!("frames of a number for each class, the blank {} among them", self.blank);
            return Err(s.mismatch(Self::LOGITS, &expected));
        }
        let mut cost = sequences;
        cost.shape.truncate(1);
        s.set(Self::COST, cost);
        Ok(())
    }

    float_passes!(Self::LOGITS, T: (self, run) => self.costs::<T>(run), self.slopes::<T>(run));

    gradient_reads!(Self::LOGITS, Self::LABELS);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name: &str,
                      (blank, zero_infinity): (usize, bool),
                      frames: &[Vec<usize>],
                      labels: &[Vec<usize>]|
         -> Result<CheckCase> {
            let (frames, labels) = (Lod::from_lengths(frames)?, Lod::from_lengths(labels)?);
            let label = |row: usize| (blank as i64 + 1 + (row * row % 5) as i64 % 3) % 4;
            let ids = ndarray::Array1::from_shape_fn(labels.rows(), label);
            let sample = CheckCase::new(name, CtcLoss { blank, zero_infinity }.attributes())
                .batch("logits", Variable::sequences(numbers(frames.rows(), 4, 3) * 2.0, frames)?)
                .batch("labels", Variable::new(Dense::from(ids), Some(labels))?);
            Ok(sample)
        };
        Ok(vec![
            sample("sequences", (0, false), &[vec![6, 0, 1, 4]], &[vec![2, 0, 1, 0]])?,
            sample("another blank", (3, false), &[vec![5, 3]], &[vec![2, 1]])?,
            sample("too few frames", (0, true), &[vec![1, 4, 0]], &[vec![3, 2, 1]])?,
            sample(
                "two levels",
                (1, false),
                &[vec![2, 0, 1], vec![4, 5, 3]],
                &[vec![2, 0, 1], vec![1, 0, 1]],
            )?,
            sample(
                "three levels",
                (0, true),
                &[vec![1, 1], vec![2, 1], vec![4, 0, 5]],
                &[vec![1, 1], vec![2, 1], vec![1, 0, 2]],
            )?,
            sample("all empty", (0, false), &[vec![0, 0]], &[vec![0, 0]])?,
            sample("no sequence", (0, false), &[vec![]], &[vec![]])?,
        ])
    }
}

/// Checks that two inputs have a LoD and the same levels above the last one; returns the spec of the first input, with
/// one row per sequence.
pub(super) fn same_sequences(s: &InferShape<'_>, a: usize, b: usize) -> Result<Spec> {
    s.has_lod(a)?;
    s.has_lod(b)?;
    let (first, second) = (s.input(a).drop_level(s.top())?, s.input(b).drop_level(s.top())?);
    if first.lod == second.lod && first.rows() == second.rows() {
        return Ok(first);
    }
    let expected = format!("the number of sequences and the upper levels of the first input, {}", s.input(a));
    Err(s.mismatch(b, &expected))
}

impl CtcLoss {
    /// Writes the classes of a sequence's labels to `to`; returns an error if a label is the blank or not below `classes`.
    fn labels(
        &self,
        (labels, sequence): (&Ids<'_>, usize),
        rows: Range<usize>,
        classes: usize,
        to: &mut Vec<usize>,
    ) -> Result<()> {
        emptied(to, rows.len());
        for row in rows {
            let label = labels.get(row);
            match ids::index(label, classes).filter(|&class| class != self.blank) {
                Some(class) => to.push(class),
                None => {
                    // The error names the position of the label in its sequence, not a row, because the row number in
                    // an error counts rows of the first input, which are frames.
                    let what = format!("label {} of sequence {sequence}", to.len());
                    let expected =
                        format!("at least 0 and below {classes}, and not {}, the blank", self.blank);
                    return Err(Error::new(what, expected, label.to_string()));
                }
            }
        }
        Ok(())
    }

    fn costs<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (logits, labels) = (run.input::<T>(Self::LOGITS)?, Ids::of(run, Self::LABELS)?);
        let mut cost = run.output::<T>(Self::COST)?;
        let frames = run.sequences(Self::LOGITS)?;
        let rows = run.sequences(Self::LABELS)?;
        let Rooms { mut room, mut path } = std::mem::take(run.scratch().get::<Rooms>());
        for (sequence, (frames, rows)) in frames.iter().zip(rows.iter()).enumerate() {
            self.labels((&labels, sequence), rows, logits.width(), &mut path)?;
            let frames = logits.rows_range(frames.start, frames.end);
            let value = ctc(frames, path.iter().copied(), self.blank, &mut room);
            let value = if self.zero_infinity && value == f64::INFINITY { 0.0 } else { value };
            cost.row(sequence)[0] = T::from_f64(value);
        }
        *run.scratch().get::<Rooms>() = Rooms { room, path };
        Ok(())
    }

    fn slopes<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dcost = run.dout::<T>(Self::COST)?;
        let Some((mut dlogits, assign)) = run.gradient::<T>(Self::LOGITS)? else { return Ok(()) };
        let (logits, labels) = (run.input::<T>(Self::LOGITS)?, Ids::of(run, Self::LABELS)?);
        let (frames, rows) = (run.sequences(Self::LOGITS)?, run.sequences(Self::LABELS)?);
        let Rooms { mut room, mut path } = std::mem::take(run.scratch().get::<Rooms>());
        for (sequence, (frames, rows)) in frames.iter().zip(rows.iter()).enumerate() {
            self.labels((&labels, sequence), rows, logits.width(), &mut path)?;
            let weight = dcost.row(sequence)[0];
            let of_sequence = logits.rows_range(frames.start, frames.end);
            ctc_gradient(of_sequence, path.iter().copied(), self.blank, &mut room, |frame, slopes| {
                let to = dlogits.row(frames.start + frame).iter_mut().zip(slopes);
                match assign {
                    Assign::Write => to.for_each(|(to, &slope)| *to = weight * T::from_f64(slope)),
                    Assign::Add => to.for_each(|(to, &slope)| *to += weight * T::from_f64(slope)),
                }
            });
        }
        *run.scratch().get::<Rooms>() = Rooms { room, path };
        Ok(())
    }
}

#[derive(Default)]
struct Rooms {
    room: CtcRoom,
    path: Vec<usize>,
}
