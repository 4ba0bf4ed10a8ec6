//! `global_norm` and `scale_gradient`: gradient clipping by the global norm.

use ndarray::{arr0, array};

use super::engine::MergedRows;
use super::rule::scalar;
use super::settings::positive;
use crate::error::Result;
use crate::kernels::{Arithmetic, Float, Sweep, View, ViewMut, boundary, join, sweep};
use crate::operator;
use crate::operator::signature::DENSE_OR_ROWS;
use crate::operator::{
    CallMemory, CallSizes, CheckCase, Facts, Forward, InferShape, LodEffect, Op, RowValue, Spec,
};
use crate::tensor::{SelectedRows, StorageKind, Variable};
use crate::with_float;

/// The constant that is added to the norm before `max_norm` is divided by the norm, as in PyTorch.
const EPSILON: f64 = 1e-6;
/// The maximum number of elements that one loop adds up; a longer range is divided into two halves first.
const RUN: usize = 1 << 12;
/// The minimum number of elements per thread. With fewer elements, an additional thread costs more time than it saves.
const GRAIN: usize = 1 << 16;

operator! {
    /// Computes the global norm of all gradients, and the scale for gradient clipping: norm = √(Σ g²) over every element of
    /// every gradient, and scale = min(1, max_norm / (norm + 10⁻⁶)).
    ///
    /// `global_norm` and `scale_gradient` together compute PyTorch's `torch.nn.utils.clip_grad_norm_`. Rows of a sparse
    /// gradient with equal row numbers are added up before their numbers are squared. The squares are added up in f64, in an
    /// order that depends on the shapes of the gradients, not on the number of threads.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::SelectedRows;
    /// use unpadded::{Variable, ops};
    /// let sparse = SelectedRows::new(9, vec![7, 7], array![[1.0], [2.0]])?;
    /// let out = ops::catalogue().parse("global_norm", &Attributes::new().with("max_norm", 2.5))?.call(&[
    ///     Operand::constant("grads", array![[4.0, 0.0]]),
    ///     Operand::constant("grads", Variable::new(sparse, None)?),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [5.0]);
    /// assert!((out[1].as_slice::<f64>()?[0] - 0.5).abs() < 1e-6);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct GlobalNorm = global_norm { max_norm: f64 => positive }
    inputs { GRADS = grads: many.without_gradient() }
    kernels { [DENSE_OR_ROWS] }
    outputs { NORM = norm: one, SCALE = scale: one }
}

impl Op for GlobalNorm {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (rows, table) = (sizes.stored(Self::GRADS), sizes.largest(Self::GRADS));
        with_float!(sizes.dtype(Self::GRADS), T => Ok(MergedRows::<T>::memory::<MergedRows<T>>(rows, table)))
            .unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::GRADS)?;
        let spec = Spec::fixed(s.input(Self::GRADS).dtype, &[])?;
        s.set(Self::NORM, spec.clone());
        s.set(Self::SCALE, spec);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut sum = 0.0;
        for k in 0..run.count(Self::GRADS) {
            sum += with_float!(run.input_spec_at(Self::GRADS, k).dtype, T => gradient_squares::<T>(run, k))?;
        }
        let norm = sum.sqrt();
        // If the norm is NaN, the scale is NaN too, so that clipping does not hide the NaN.
        let scale = self.max_norm / (norm + EPSILON);
        let scale = if scale > 1.0 { 1.0 } else { scale };
        with_float!(run.dtype(Self::GRADS), T => {
            run.output::<T>(Self::NORM)?.fill(T::from_f64(norm));
            run.output::<T>(Self::SCALE)?.fill(T::from_f64(scale));
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let dense = CheckCase::new("dense", GlobalNorm { max_norm: 1.5 }.attributes())
            .without_gradient()
            .constant("grads", array![[0.5, -2.0], [1.0, 0.25]])
            .constant("grads", array![3.0, -1.0, 0.5]);
        let rows = SelectedRows::new(5, vec![4, 1, 4], array![[1.0, 2.0], [0.5, 0.5], [-1.0, 2.0]])?;
        let mixed = dense.clone().constant("grads", Variable::new(rows, None)?);
        Ok(vec![dense, CheckCase { name: "rows that repeat".to_owned(), ..mixed }])
    }
}

/// Returns the sum of the squares of all elements of gradient `k`.
fn gradient_squares<T: RowValue>(run: &mut Forward<'_>, k: usize) -> Result<f64> {
    let threads = run.run().threads;
    if run.rows_at(GlobalNorm::GRADS, k).is_none() {
        return Ok(squares(run.input_at::<T>(GlobalNorm::GRADS, k)?, threads));
    }
    let mut merged = std::mem::take(run.scratch().get::<MergedRows<T>>());
    let sum = match run.rows_at(GlobalNorm::GRADS, k) {
        Some(rows) => merged.of(rows).map(|(_, values)| squares(values, threads)),
        None => Ok(0.0),
    };
    *run.scratch().get::<MergedRows<T>>() = merged;
    sum
}

/// Returns Σ x² over all elements, summed as a tree. The rows are divided into halves until a part has one row; then
/// the columns are divided until a part has at most [`RUN`] columns.
fn squares<T: Float>(x: View<'_, T>, threads: usize) -> f64 {
    let (rows, width) = (x.rows(), x.width());
    if rows == 0 || width == 0 {
        return 0.0;
    }
    if rows == 1 && width <= RUN {
        return sweep(Squares(x.row(0)));
    }
    let (first, second) = if rows > 1 {
        (x.rows_range(0, rows / 2), x.rows_range(rows / 2, rows))
    } else {
        (x.columns(0, width / 2), x.columns(width / 2, width))
    };
    if threads > 1 && rows * width >= 2 * GRAIN {
        let (a, b) = join(|| squares(first, threads / 2), || squares(second, threads - threads / 2));
        return a + b;
    }
    squares(first, 1) + squares(second, 1)
}

struct Squares<'a, T>(&'a [T]);

impl<T: Float> Sweep for Squares<'_, T> {
    type Output = f64;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> f64 {
        const LANES: usize = 16;
        let mut sums = [0.0; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *sum += x.to_f64() * x.to_f64();
            }
        }
        for (sum, x) in sums.iter_mut().zip(rest) {
            *sum += x.to_f64() * x.to_f64();
        }
        sums.iter().sum()
    }
}

operator! {
    /// Multiplies a gradient by `scale`, in place: grad ← scale · grad. The gradient `grad` has the storage `storage`, and the
    /// shape and dtype of `param`.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let op = ops::catalogue().parse("scale_gradient", &Attributes::new().with("storage", "dense"))?;
    /// let out = op.call(&[
    ///     Operand::constant("param", array![[7.0, 7.0]]),
    ///     Operand::constant("scale", arr0(0.5)),
    ///     Operand::constant("grad", array![[4.0, -2.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, -1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct ScaleGradient = scale_gradient { storage: StorageKind }
    inputs { PARAM = param: one.without_gradient().any_storage(), SCALE = scale: one.without_gradient() }
    outputs { GRAD = grad: one.updated() }
}

impl Op for ScaleGradient {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::PARAM)?;
        s.is_float(Self::SCALE)?;
        s.constant(Self::SCALE, &[])?;
        s.set(Self::GRAD, Spec { storage: self.storage, ..s.input(Self::PARAM).clone() });
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
            let (scale, threads) = (scalar(run, ScaleGradient::SCALE)?, run.run().threads);
            if scale == 1.0 {
                return Ok(());
            }
            let scale = T::from_f64(scale);
            if run.output_spec(ScaleGradient::GRAD).storage == StorageKind::Dense {
                multiply(run.output::<T>(ScaleGradient::GRAD)?, scale, threads);
                return Ok(());
            }
            run.fill_rows(ScaleGradient::GRAD, |_, rows| {
                // Scaling is linear, so rows with equal row numbers are scaled one by one and need not be added up.
                if !rows.ids().is_empty() {
                    multiply(rows.values_mut::<T>()?, scale, threads);
                }
                Ok(())
            })
        }
        with_float!(run.dtype(Self::PARAM), T => forward::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = CheckCase::new("dense", ScaleGradient { storage: StorageKind::Dense }.attributes());
        let sample = sample.without_gradient().constant("scale", arr0(0.25));
        Ok(vec![sample.constant("param", array![[1.0, 2.0]]).constant("grad", array![[4.0, -2.0]])])
    }
}

fn multiply<T: Float>(x: ViewMut<'_, T>, scale: T, threads: usize) {
    let (rows, width) = (x.rows(), x.width());
    if threads < 2 || rows * width < 2 * GRAIN {
        return sweep(Multiply { x, scale });
    }
    let (first, second) = if rows > 1 {
        x.split_rows(boundary(rows, threads / 2, threads))
    } else {
        x.split_columns(width / 2)
    };
    join(|| multiply(first, scale, threads / 2), || multiply(second, scale, threads - threads / 2));
}

struct Multiply<'a, T> {
    x: ViewMut<'a, T>,
    scale: T,
}

impl<T: Float> Sweep for Multiply<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for row in self.x.iter_mut() {
            for x in row {
                *x *= self.scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::operator::{Attributes, Operand};
    use crate::ops::catalogue;
    use crate::tensor::{Dense, Storage};

    #[test]
    fn selected_rows_are_scaled_where_they_are() {
        let attributes = Attributes::new().with("storage", StorageKind::SelectedRows.to_string());
        let op = catalogue().parse("scale_gradient", &attributes).unwrap();
        for ids in [vec![4, 1, 4], vec![]] {
            let values: Vec<f32> = ids.iter().flat_map(|&id| [id as f32, 2.0]).collect();
            let rows = Dense::from_vec(&[ids.len(), 2], values).unwrap();
            let grad = Variable::new(SelectedRows::new(5, ids.clone(), rows).unwrap(), None).unwrap();
            let out = op
                .clone()
                .call(&[
                    Operand::constant("param", Array2::<f32>::zeros((5, 2))),
                    Operand::constant("scale", arr0(0.5f32)),
                    Operand::constant("grad", grad),
                ])
                .unwrap();
            let Storage::SelectedRows(rows) = out[0].storage() else { panic!("{:?}", out[0].storage()) };
            assert_eq!(rows.row_ids(), ids);
            let expected: Vec<f32> = ids.iter().flat_map(|&id| [id as f32 / 2.0, 1.0]).collect();
            assert_eq!(rows.value().as_slice::<f32>().unwrap(), expected);
        }
    }
}
