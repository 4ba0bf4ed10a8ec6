//! `accuracy`: the share of rows in which the label's class has the largest logit.

use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;

operator! {
    /// Computes the accuracy: the share of the rows of `logits` `[rows, classes]` in which the label's class has the largest
    /// logit.
    ///
    /// out = (number of rows in which the label's logit is the first of the largest logits) / (number of rows whose label is not
    /// `ignore_index`), an f32 scalar. Rows whose label is `ignore_index` are not counted; if no row is counted, as in an empty
    /// batch, the accuracy is 0. A row with a NaN logit counts as a wrong prediction. `logits` may have any LoD, and the accuracy
    /// has no LoD. The accuracy is one number for the whole batch, and passes no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let logits = Variable::sequences(array![[0.1, 0.9], [0.8, 0.2], [0.3, 0.3]], lod.clone())?;
    /// let labels = Variable::sequences(array![1i64, 1, 0], lod)?;
    /// let op = ops::catalogue().parse("accuracy", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("logits", logits), Operand::batch("labels", labels)])?;
    /// assert_eq!(out[0].as_slice::<f32>()?, [2.0 / 3.0]);
    /// assert_eq!((out[0].shape(), out[0].lod()), ([].as_slice(), None));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `logits` and `labels` differ in LoD or in their number of rows, or if the labels are not whole
    /// numbers, one per row.
    pub(in crate::ops) struct Accuracy = accuracy { ignore_index: Option<i64> }
    inputs { LOGITS = logits: one.without_gradient(), LABELS = labels: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn accuracy(&self, logits: Var, labels: Var, ignore_index: Option<i64>) -> Var; }
}

impl Op for Accuracy {
    fn facts(&self) -> Facts {
        Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Drops) }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::LOGITS)?;
        ids::check(s, Self::LABELS)?;
        s.same_rows(Self::LOGITS, Self::LABELS)?;
        if s.input(Self::LOGITS).shape.len() != 2 {
            return Err(s.mismatch(Self::LOGITS, "shape [rows, classes]"));
        }
        s.set(Self::OUT, Spec::fixed(DType::F32, &[])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::LOGITS), T => self.count::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name, lengths: &[Vec<usize>], labels: &[i64]| -> Result<CheckCase> {
            let logits = array![[0.9, 0.1, 0.2], [0.4, -0.3, 0.2], [0.5, 0.1, 0.2]];
            let logits = logits.slice_move(ndarray::s![..labels.len(), ..]);
            let lod = Lod::from_lengths(lengths)?;
            Ok(CheckCase::new(name, Accuracy { ignore_index: Some(-1) }.attributes())
                .batch("logits", Variable::sequences(logits, lod.clone())?)
                .batch("labels", Variable::sequences(ndarray::Array1::from(labels.to_vec()), lod)?))
        };
        Ok(vec![
            sample("one hit, one miss, one ignored", &[vec![2, 0, 1]], &[0, 1, -1])?,
            sample("two levels", &[vec![1, 2], vec![0, 1, 2]], &[2, 1, 0])?,
            sample("all empty", &[vec![0, 0]], &[])?,
            sample("none", &[vec![]], &[])?,
        ])
    }
}

impl Accuracy {
    fn count<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (logits, labels) = (run.input::<T>(Self::LOGITS)?, Ids::of(run, Self::LABELS)?);
        let (mut hits, mut rows) = (0usize, 0usize);
        for (row, logits) in logits.iter().enumerate() {
            if let Some(class) = labels.class(row, logits.len(), self.ignore_index)? {
                rows += 1;
                let (before, from) = logits.split_at(class);
                let own = from[0];
                hits += usize::from(before.iter().all(|&x| x < own) && from.iter().all(|&x| x <= own));
            }
        }
        run.output::<f32>(Self::OUT)?.fill(if rows == 0 { 0.0 } else { (hits as f64 / rows as f64) as f32 });
        Ok(())
    }
}
