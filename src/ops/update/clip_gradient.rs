//! `clip_gradient`: gradient clipping by value.

use ndarray::array;

use super::engine::MergedRows;
use super::settings::positive;
use crate::error::Result;
use crate::kernels::{Arithmetic, Float, RowMerge, Sweep, View, ViewMut, emptied, join, sweep};
use crate::operator;
use crate::operator::{
    CallMemory, CallSizes, CheckCase, Facts, Forward, InferShape, LodEffect, Op, RowBuffer, RowValue, Spec,
};
use crate::tensor::StorageKind;
use crate::with_float;

/// The minimum number of elements per thread. With fewer elements, an additional thread costs more time than it saves.
const GRAIN: usize = 1 << 16;

operator! {
    /// Gradient clipping by value: clips every number of a gradient to the range from −limit to limit, in place: grad ←
    /// min(max(grad, −limit), limit). The gradient `grad` has the storage `storage`, and the shape and dtype of `param`.
    ///
    /// `clip_gradient` corresponds to PyTorch's `torch.nn.utils.clip_grad_value_`. Rows of a sparse gradient with equal row
    /// numbers are added up before clipping.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let clip = Attributes::new().with("storage", "dense").with("limit", 0.5);
    /// let out = ops::catalogue().parse("clip_gradient", &clip)?.call(&[
    ///     Operand::constant("param", array![[7.0, 7.0, 7.0]]),
    ///     Operand::constant("grad", array![[4.0, -0.25, -2.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.5, -0.25, -0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct ClipGradient = clip_gradient { storage: StorageKind, limit: f64 => positive }
    inputs { PARAM = param: one.without_gradient().any_storage() }
    outputs { GRAD = grad: one.updated() }
}

/// Scratch memory for adding up repeated rows of a gradient; the memory is used again at every step.
#[derive(Default)]
struct Sums<T> {
    plan: RowMerge,
    values: Vec<T>,
}

impl<T: RowValue> Sums<T> {
    /// Replaces the rows of a gradient that have equal row numbers by their sum, in place.
    fn merge(&mut self, rows: &mut RowBuffer) -> Result<()> {
        self.plan.prepare(rows.ids());
        let (count, width) = (self.plan.ids().len(), rows.width());
        emptied(&mut self.values, count * width).resize(count * width, T::ZERO);
        self.plan.merge(rows.values::<T>()?, ViewMut::new(&mut self.values, count, width));
        let mut sums = rows.refill::<T>(rows.height(), width, self.plan.ids());
        sums.iter_mut()
            .zip(View::new(&self.values, count, width).iter())
            .for_each(|(to, sum)| to.copy_from_slice(sum));
        Ok(())
    }
}

impl Op for ClipGradient {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::PARAM)?;
        s.set(Self::GRAD, Spec { storage: self.storage, ..s.input(Self::PARAM).clone() });
        Ok(())
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (table, rows) = (sizes.input(Self::PARAM), sizes.stored_output(Self::GRAD));
        with_float!(sizes.dtype(Self::PARAM), T => Ok(MergedRows::<T>::memory::<Sums<T>>(rows, table)))
            .unwrap_or_default()
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(op: &ClipGradient, run: &mut Forward<'_>) -> Result<()> {
            let (limit, threads) = (T::from_f64(op.limit), run.run().threads);
            if run.output_spec(ClipGradient::GRAD).storage == StorageKind::Dense {
                clip(run.output::<T>(ClipGradient::GRAD)?, limit, threads);
                return Ok(());
            }
            let mut sums = std::mem::take(run.scratch().get::<Sums<T>>());
            let result = run.fill_rows(ClipGradient::GRAD, |_, rows| {
                if rows.ids().is_empty() {
                    return Ok(());
                }
                if !rows.merged() {
                    sums.merge(rows)?;
                }
                clip(rows.values_mut::<T>()?, limit, threads);
                Ok(())
            });
            *run.scratch().get::<Sums<T>>() = sums;
            result
        }
        with_float!(run.dtype(Self::PARAM), T => forward::<T>(self, run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let op = ClipGradient { storage: StorageKind::Dense, limit: 1.5 };
        let sample = CheckCase::new("dense", op.attributes()).without_gradient();
        Ok(vec![sample.constant("param", array![[1.0, 2.0]]).constant("grad", array![[4.0, -0.5]])])
    }
}

fn clip<T: Float>(x: ViewMut<'_, T>, limit: T, threads: usize) {
    let (rows, width) = (x.rows(), x.width());
    if threads < 2 || rows * width < 2 * GRAIN {
        return sweep(Clip { x, limit });
    }
    let (first, second) = if rows > 1 { x.split_rows(rows / 2) } else { x.split_columns(width / 2) };
    join(|| clip(first, limit, threads / 2), || clip(second, limit, threads - threads / 2));
}

struct Clip<'a, T> {
    x: ViewMut<'a, T>,
    limit: T,
}

impl<T: Float> Sweep for Clip<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let limit = self.limit;
        for x in self.x.iter_mut().flatten() {
            // The comparisons leave NaN unchanged.
            *x = if *x > limit {
                limit
            } else if *x < -limit {
                -limit
            } else {
                *x
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use crate::operator::{Attributes, Operand};
    use crate::ops::catalogue;
    use crate::tensor::{Dense, SelectedRows, Storage, StorageKind, Variable};

    #[test]
    fn rows_that_repeat_are_clipped_as_their_sum() {
        let attributes = Attributes::new().with("storage", StorageKind::SelectedRows.to_string());
        let op = catalogue().parse("clip_gradient", &attributes.with("limit", 1.0)).unwrap();
        for (ids, values, rows, expected) in [
            (vec![4, 1, 4], vec![0.75f32, -3.0, 0.5, 2.0, 0.75, 2.5], vec![1, 4], vec![0.5, 1.0, 1.0, -0.5]),
            (vec![], vec![], vec![], vec![]),
        ] {
            let values = Dense::from_vec(&[ids.len(), 2], values).unwrap();
            let grad = Variable::new(SelectedRows::new(5, ids, values).unwrap(), None).unwrap();
            let param = Operand::constant("param", Array2::<f32>::zeros((5, 2)));
            let out = op.clone().call(&[param, Operand::constant("grad", grad)]).unwrap();
            let Storage::SelectedRows(out) = out[0].storage() else { panic!("{:?}", out[0].storage()) };
            assert_eq!(out.row_ids(), rows);
            assert_eq!(out.value().as_slice::<f32>().unwrap(), expected);
        }
    }
}
