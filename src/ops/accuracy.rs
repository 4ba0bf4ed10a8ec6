//! `accuracy`: how many labels the largest logit hits.
//!
//! out = (rows whose first largest logit is at the label) / (rows that count), an f32 scalar. Rows whose label is
//! `ignore_index` do not count; without any that count, an empty batch among them, it is 0. A row with a NaN misses.
//! It looks over the whole batch, whatever the LoD, and has no gradient.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let lod = Lod::from_lengths1(&[2, 0, 1])?;
//! let logits = Variable::sequences(array![[0.1, 0.9], [0.8, 0.2], [0.3, 0.3]], lod.clone())?;
//! let labels = Variable::sequences(array![1i64, 1, 0], lod)?;
//! let op = ops::catalogue().parse("accuracy", &Attributes::new())?;
//! let out = op.call(&[Operand::batch("logits", logits), Operand::batch("labels", labels)])?;
//! assert_eq!(out[0].as_slice::<f32>()?, [2.0 / 3.0]);
//! assert_eq!((out[0].shape(), out[0].lod()), ([].as_slice(), None));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::array;

use super::ids::{self, ids};
use super::optional;
use crate::error::Result;
use crate::lod::Lod;
use crate::program::{
    Attributes, Builder, Facts, Forward, InferShape, LodEffect, Needs, Op, RowValue, Sample, Signature, Slot,
    Spec, Var,
};
use crate::tensor::{DType, Variable};
use crate::with_float;

const LOGITS: usize = 0;
const LABELS: usize = 1;
const OUT: usize = 0;

/// How many labels the largest logit hits.
pub(super) struct Accuracy {
    ignore_index: Option<i64>,
}

impl Builder {
    /// The share of the rows of `logits` `[rows, classes]` whose largest number is at the label, an f32 scalar; rows
    /// labelled `ignore_index` do not count.
    ///
    /// # Errors
    /// If the rows differ, or the labels are not whole numbers, one a row.
    #[track_caller]
    pub fn accuracy(&self, logits: Var, labels: Var, ignore_index: Option<i64>) -> Result<Var> {
        let mut attributes = Attributes::new();
        if let Some(index) = ignore_index {
            attributes.set("ignore_index", index);
        }
        self.append1("accuracy", &[("logits", &[logits]), ("labels", &[labels])], attributes)
    }
}

impl Op for Accuracy {
    fn kind() -> &'static str {
        "accuracy"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { ignore_index: optional(attributes, "ignore_index", Attributes::int)? })
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("logits").without_gradient(), Slot::one("labels").without_gradient()],
                outputs: &[Slot::one("out").without_gradient()],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Drops) }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(LOGITS)?;
        ids::check(s, LABELS)?;
        s.same_rows(LOGITS, LABELS)?;
        if s.input(LOGITS).shape.len() != 2 {
            return Err(s.mismatch(LOGITS, "shape [rows, classes]"));
        }
        s.set(OUT, Spec::fixed(DType::F32, &[])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(LOGITS), T => self.count::<T>(run))
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (name, lengths, labels) in [
            ("one hit, one miss, one ignored", vec![vec![2, 0, 1]], vec![0i64, 1, -1]),
            ("two levels", vec![vec![1, 2], vec![0, 1, 2]], vec![2, 1, 0]),
            ("all empty", vec![vec![0, 0]], vec![]),
            ("none", vec![vec![]], vec![]),
        ] {
            let logits = array![[0.9, 0.1, 0.2], [0.4, -0.3, 0.2], [0.5, 0.1, 0.2]];
            let logits = logits.slice_move(ndarray::s![..labels.len(), ..]);
            let Ok(lod) = Lod::from_lengths(&lengths) else { continue };
            let values = (
                Variable::sequences(logits, lod.clone()),
                Variable::sequences(ndarray::Array1::from(labels), lod),
            );
            let (Ok(logits), Ok(labels)) = values else { continue };
            let attributes = Attributes::new().with("ignore_index", -1i64);
            samples.push(Sample::new(name, attributes).batch("logits", logits).batch("labels", labels));
        }
        samples
    }
}

impl Accuracy {
    fn count<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (logits, labels) = (run.input::<T>(LOGITS)?, ids!(run, LABELS));
        let (mut hits, mut rows) = (0usize, 0usize);
        for (row, logits) in logits.iter().enumerate() {
            if let Some(class) = labels.class(row, logits.len(), self.ignore_index)? {
                rows += 1;
                let (before, from) = logits.split_at(class);
                let own = from[0];
                hits += usize::from(before.iter().all(|&x| x < own) && from.iter().all(|&x| x <= own));
            }
        }
        run.output::<f32>(OUT)?.fill(if rows == 0 { 0.0 } else { (hits as f64 / rows as f64) as f32 });
        Ok(())
    }
}
