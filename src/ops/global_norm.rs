//! `global_norm` and `scale_gradient`: gradients clipped by the norm of all of them.
//!
//! - `global_norm`: norm = √(Σ g²) over every element of every gradient, and
//!   scale = min(1, max_norm / (norm + 10⁻⁶));
//! - `scale_gradient`: a gradient is multiplied by `scale` in place.
//!
//! Together they are PyTorch's `torch.nn.utils.clip_grad_norm_`. Rows of a sparse gradient that repeat are added up
//! before they are squared. Sums are in f64, and their order depends on the shapes alone: not on threads.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::tensor::SelectedRows;
//! use unpadded::{Variable, ops};
//! let sparse = SelectedRows::new(9, vec![7, 7], array![[1.0], [2.0]])?;
//! let out = ops::catalogue().parse("global_norm", &Attributes::new().with("max_norm", 2.5))?.call(&[
//!     Operand::constant("grads", array![[4.0, 0.0]]),
//!     Operand::constant("grads", Variable::new(sparse, None)?),
//! ])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [5.0]);
//! assert!((out[1].as_slice::<f64>()?[0] - 0.5).abs() < 1e-6);
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::{arr0, array};

use super::update::{Merged, number, scalar};
use crate::error::Result;
use crate::kernels::{Arithmetic, Float, Sweep, View, ViewMut, sweep};
use crate::program::{
    Attributes, Facts, Forward, InferShape, LodEffect, Op, RowValue, Sample, Signature, Slot, Spec,
};
use crate::tensor::{SelectedRows, StorageKind, Variable};
use crate::with_float;

const GRADS: usize = 0;
const NORM: usize = 0;
const SCALE: usize = 1;

const PARAM: usize = 0;
const GRAD: usize = 0;

/// What PyTorch adds to the norm before it divides.
const EPSILON: f64 = 1e-6;
/// Elements that one loop adds up; longer runs are halved.
const RUN: usize = 1 << 12;
/// Below this many elements a thread more does not pay.
const GRAIN: usize = 1 << 16;

/// The norm of all gradients, and what to scale them by.
pub(super) struct GlobalNorm {
    max_norm: f64,
}

/// A gradient times a scalar, in place.
pub(super) struct ScaleGradient {
    storage: StorageKind,
}

impl Op for GlobalNorm {
    fn kind() -> &'static str {
        "global_norm"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let max_norm = number(attributes, "max_norm", "a finite number above 0", |v| v > 0.0)?;
        Ok(Self { max_norm })
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::many("grads")
                    .without_gradient()
                    .storages(&[StorageKind::Dense, StorageKind::SelectedRows])],
                outputs: &[Slot::one("norm"), Slot::one("scale")],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(GRADS)?;
        let spec = Spec::fixed(s.input(GRADS).dtype, &[])?;
        s.set(NORM, spec.clone());
        s.set(SCALE, spec);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut sum = 0.0;
        for k in 0..run.count(GRADS) {
            sum += with_float!(run.input_spec_at(GRADS, k).dtype, T => gradient_squares::<T>(run, k))?;
        }
        let norm = sum.sqrt();
        // A norm that is not a number makes the scale one too: neither may hide it.
        let scale = self.max_norm / (norm + EPSILON);
        let scale = if scale > 1.0 { 1.0 } else { scale };
        with_float!(run.dtype(GRADS), T => {
            run.output::<T>(NORM)?.fill(T::from_f64(norm));
            run.output::<T>(SCALE)?.fill(T::from_f64(scale));
            Ok(())
        })
    }

    fn samples() -> Vec<Sample> {
        let attributes = Attributes::new().with("max_norm", 1.5);
        let dense = Sample::new("dense", attributes.clone())
            .without_gradient()
            .constant("grads", array![[0.5, -2.0], [1.0, 0.25]])
            .constant("grads", array![3.0, -1.0, 0.5]);
        let repeated = SelectedRows::new(5, vec![4, 1, 4], array![[1.0, 2.0], [0.5, 0.5], [-1.0, 2.0]]);
        let Ok(rows) = repeated.and_then(|rows| Variable::new(rows, None)) else { return vec![dense] };
        let mixed = dense.clone().constant("grads", rows);
        vec![dense, Sample { name: "rows that repeat".to_owned(), ..mixed }]
    }
}

/// The squares of gradient `k`, added up.
fn gradient_squares<T: RowValue>(run: &mut Forward<'_>, k: usize) -> Result<f64> {
    let threads = run.run().threads;
    if run.rows_at(GRADS, k).is_none() {
        return Ok(squares(run.input_at::<T>(GRADS, k)?, threads));
    }
    let mut merged = std::mem::take(run.scratch().get::<Merged<T>>());
    let sum = match run.rows_at(GRADS, k) {
        Some(rows) => merged.of(rows).map(|(_, values)| squares(values, threads)),
        None => Ok(0.0),
    };
    *run.scratch().get::<Merged<T>>() = merged;
    sum
}

/// Σ x², as a tree: rows are halved down to one, then columns down to a run.
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
        let (a, b) = rayon::join(|| squares(first, threads / 2), || squares(second, threads - threads / 2));
        return a + b;
    }
    squares(first, 1) + squares(second, 1)
}

struct Squares<'a, T>(&'a [T]);

impl<T: Float> Sweep for Squares<'_, T> {
    type Output = f64;

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

impl Op for ScaleGradient {
    fn kind() -> &'static str {
        "scale_gradient"
    }

    /// `storage` is the gradient's, whose shape and dtype are those of `param`.
    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { storage: attributes.text("storage")?.parse()? })
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("param").without_gradient(), Slot::one("scale").without_gradient()],
                outputs: &[Slot::one("grad")
                    .updated()
                    .storages(&[StorageKind::Dense, StorageKind::SelectedRows])],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(PARAM)?;
        s.is_float(SCALE)?;
        s.constant(SCALE, &[])?;
        s.set(GRAD, Spec { storage: self.storage, ..s.input(PARAM).clone() });
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
            let (scale, threads) = (scalar(run, SCALE)?, run.run().threads);
            if scale == 1.0 {
                return Ok(());
            }
            let scale = T::from_f64(scale);
            match run.output_rows(GRAD) {
                // Rows that repeat may be scaled one by one.
                Some(rows) if rows.ids().is_empty() => {}
                Some(rows) => multiply(rows.values_mut::<T>()?, scale, threads),
                None => multiply(run.output::<T>(GRAD)?, scale, threads),
            }
            Ok(())
        }
        with_float!(run.dtype(PARAM), T => forward::<T>(run))
    }

    fn samples() -> Vec<Sample> {
        let attributes = Attributes::new().with("storage", StorageKind::Dense.to_string());
        let sample = Sample::new("dense", attributes).without_gradient().constant("scale", arr0(0.25));
        vec![sample.constant("param", array![[1.0, 2.0]]).constant("grad", array![[4.0, -2.0]])]
    }
}

fn multiply<T: Float>(x: ViewMut<'_, T>, scale: T, threads: usize) {
    let (rows, width) = (x.rows(), x.width());
    if threads < 2 || rows * width < 2 * GRAIN {
        return sweep(Multiply { x, scale });
    }
    let (first, second) = if rows > 1 { x.split_rows(rows / 2) } else { x.split_columns(width / 2) };
    rayon::join(|| multiply(first, scale, threads / 2), || multiply(second, scale, threads - threads / 2));
}

struct Multiply<'a, T> {
    x: ViewMut<'a, T>,
    scale: T,
}

impl<T: Float> Sweep for Multiply<'_, T> {
    type Output = ();

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
    use crate::ops::catalogue;
    use crate::program::Operand;
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
