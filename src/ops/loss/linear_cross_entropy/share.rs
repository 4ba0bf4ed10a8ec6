//! `cross_entropy_share`: the weight of each row in the mean loss of `linear_cross_entropy`, computed without the logits.

use super::sizes;
use crate::kernels::Transpose;
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::loss::cross_entropy::{Target, smoothing};
use crate::ops::prelude::*;

operator! {
    /// Computes the share of each row, which is the row's weight in the mean loss: share_i = w_y, the weight of the class y (1
    /// without `class_weights`), and 0 where the label y is `ignore_index`. The operator uses only the dtype of
    /// `weight` and its number of classes, not the numbers of `weight`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let op = ops::catalogue().parse("cross_entropy_share", &Attributes::new().with("ignore_index", -1i64))?;
    /// let out = op.call(&[
    ///     Operand::constant("weight", array![[0.0, 0.0]]),
    ///     Operand::batch("labels", array![1i64, -1, 0]),
    ///     Operand::constant("class_weights", array![0.5, 2.0]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 0.0, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Share = cross_entropy_share { ignore_index: Option<i64>, label_smoothing: f64 => smoothing, transposed: Transpose }
    inputs { WEIGHT = weight: one.without_gradient().shape_only(), LABELS = labels: one.without_gradient(), CLASS_WEIGHTS = class_weights: optional.without_gradient() }
    outputs { SHARE = share: one.without_gradient() }
}

impl Op for Share {
    fn facts(&self) -> Facts {
        Facts { lod: LodEffect::Keeps(Self::LABELS), ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::WEIGHT)?;
        ids::check(s, Self::LABELS)?;
        let (_, classes) = sizes(s, Self::WEIGHT, self.transposed)?;
        if s.optional(Self::CLASS_WEIGHTS).is_some() {
            s.same_dtype(Self::WEIGHT, Self::CLASS_WEIGHTS)?;
            s.constant(Self::CLASS_WEIGHTS, &[classes])?;
        }
        let mut share = Spec { dtype: s.input(Self::WEIGHT).dtype, ..s.input(Self::LABELS).clone() };
        share.shape.truncate(1);
        s.set(Self::SHARE, share);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::WEIGHT), T => {
            let weight = run.input_spec(Self::WEIGHT);
            let (_, classes) = self.transposed.shape((weight.shape[0].known().unwrap_or(0), weight.width()));
            let target = Target::<T>::new(self.ignore_index, self.label_smoothing, classes, run.optional::<T>(Self::CLASS_WEIGHTS)?);
            let labels = Ids::of(run, Self::LABELS)?;
            for (row, share) in run.output::<T>(Self::SHARE)?.iter_mut().enumerate() {
                share[0] = target.class(&labels, row)?.map_or(T::ZERO, |class| target.weight(class));
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name, lengths: &[usize], labels: &[i64], transposed: Transpose| -> Result<CheckCase> {
            let labels = Variable::sequences(Array1::from(labels.to_vec()), Lod::from_lengths1(lengths)?)?;
            let share = Share { ignore_index: Some(-1), label_smoothing: 0.0, transposed };
            Ok(CheckCase::new(name, share.attributes())
                .constant("weight", Array2::<f64>::zeros(transposed.shape((2, 3))))
                .batch("labels", labels)
                .constant("class_weights", array![0.5, 1.0, 2.0]))
        };
        Ok(vec![
            sample("sequences with an empty one", &[2, 0, 1], &[2, -1, 1], Transpose::No)?,
            sample("of a transposed weight", &[2, 0, 1], &[2, -1, 1], Transpose::Yes)?,
            sample("all empty", &[0, 0], &[], Transpose::No)?,
            sample("none", &[], &[], Transpose::No)?,
        ])
    }
}
