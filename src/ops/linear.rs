//! `linear`: a product with a weight matrix, and a bias.
//!
//! out = x · W + b, with x `[rows, in]`, W `[in, out]`, b `[out]`. Row-wise: the rows may belong to sequences of any
//! LoD, which the output keeps.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
//! let op = ops::catalogue().parse("linear", &Attributes::new())?;
//! let out = op.call(&[
//!     Operand::batch("x", x),
//!     Operand::constant("weight", array![[1.0], [10.0]]),
//!     Operand::constant("bias", array![0.5]),
//! ])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [21.5, 43.5, 65.5]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::array;

use crate::error::{Error, Result};
use crate::kernels::{Float, Packed, Transpose, View, affine, affine_gradient};
use crate::lod::Lod;
use crate::program::context::Scratch;
use crate::program::{
    Attributes, Backward, Builder, Cost, Extent, Facts, Forward, InferShape, Needs, Op, Pass, Prepare,
    RowValue, Sample, Signature, Slot, Var, Work,
};
use crate::tensor::Variable;
use crate::with_float;

const X: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const OUT: usize = 0;

/// out = x · W + b.
pub(super) struct Linear;

impl Builder {
    /// x · W + b with given variables: x `[rows, in]`, `weight` `[in, out]`, `bias` `[out]`; the layer
    /// `layers::Linear` makes them.
    ///
    /// # Errors
    /// If the widths differ.
    #[track_caller]
    pub fn product(&self, x: Var, weight: Var, bias: Option<Var>) -> Result<Var> {
        self.append1(
            "linear",
            &[("x", &[x]), ("weight", &[weight]), ("bias", bias.as_slice())],
            Attributes::new(),
        )
    }
}

/// Weights packed once for many calls; which way depends on the pass.
struct Weights<T>(Packed<T>);

impl<T: Float> Default for Weights<T> {
    fn default() -> Self {
        Self(Packed::new())
    }
}

impl Op for Linear {
    fn kind() -> &'static str {
        "linear"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("x"), Slot::one("weight"), Slot::optional("bias")],
                outputs: &[Slot::one("out")],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts { prepares: true, apart: true, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.same_dtype(X, WEIGHT)?;
        let (x, weight) = (s.input(X), s.input(WEIGHT));
        let &[Extent::Known(rows), Extent::Known(width)] = weight.shape.as_slice() else {
            return Err(s.mismatch(WEIGHT, "a constant of shape [in, out]"));
        };
        if x.width() != rows || x.shape.len() > 2 {
            return Err(s.mismatch(X, &format!("rows of {rows} numbers, the height of `weight`")));
        }
        if s.optional(BIAS).is_some() {
            s.same_dtype(X, BIAS)?;
            s.constant(BIAS, &[width])?;
        }
        s.set(OUT, x.with_width(width));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => forward::<T>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run))
    }

    fn needs(&self, wrt: usize) -> Needs {
        match wrt {
            X => Needs::nothing().input(WEIGHT),
            WEIGHT => Needs::nothing().input(X),
            _ => Needs::nothing(),
        }
    }

    fn accumulates(&self) -> bool {
        true
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        with_float!(prepare.dtype(X), T => {
            let wanted = prepare.pass() == Pass::Forward || prepare.wants(X);
            if let (true, Some(weight)) = (wanted, prepare.constant::<T>(WEIGHT)) {
                let transpose = if prepare.pass() == Pass::Forward { Transpose::No } else { Transpose::Yes };
                prepare.keep::<Weights<T>>().0.pack(weight, transpose);
            }
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((m, k), (_, n)) = (work.input(X), work.output(OUT));
        let product = 2 * m * k * n;
        let flops = match work.pass() {
            // The bias is what the sums start with.
            Pass::Forward => product,
            Pass::Backward => {
                let products = u64::from(work.wants(X)) + u64::from(work.wants(WEIGHT));
                products * product + u64::from(work.wants(BIAS)) * m * n
            }
        };
        Cost { flops, ..work.touched() }
    }

    fn samples() -> Vec<Sample> {
        let x = |lengths: &[usize]| -> Result<Variable> {
            let rows = lengths.iter().sum::<usize>();
            let numbers =
                ndarray::Array2::from_shape_fn((rows, 3), |(i, j)| ((i * 3 + j) as f64 * 0.7).sin());
            Variable::sequences(numbers, Lod::from_lengths1(lengths)?)
        };
        let weight = array![[0.3, -0.7], [1.1, 0.2], [-0.4, 0.9]];
        let cases =
            [("sequences with an empty one", vec![2, 0, 1]), ("all empty", vec![0, 0]), ("none", vec![])];
        let mut samples = Vec::new();
        for (name, lengths) in cases {
            let Ok(x) = x(&lengths) else { continue };
            let sample =
                Sample::new(name, Attributes::new()).batch("x", x).constant("weight", weight.clone());
            samples.push(sample.clone());
            samples.push(sample.constant("bias", array![0.5, -0.25]));
        }
        let vector = Sample::new("a constant vector", Attributes::new());
        samples.push(vector.constant("x", array![0.5, -1.5, 2.0]).constant("weight", weight));
        samples
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let (x, out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
    let (bias, store, threads) = (run.optional::<T>(BIAS)?, run.store(), run.run().threads);
    let weights = match run.prepared::<Weights<T>>() {
        Some(weights) => weights,
        None => {
            let weight = run.input::<T>(WEIGHT)?;
            packed(weight, Transpose::No, run.scratch())
        }
    };
    affine(x, &weights.0, bias.as_ref().map(|b| b.row(0)), out, store, threads);
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else {
        return Err(Error::new("linear", "a gradient of its output", "none"));
    };
    let threads = run.run().threads;
    if let Some((dx, store)) = run.gradient::<T>(X)? {
        let weights = match run.prepared::<Weights<T>>() {
            Some(weights) => weights,
            None => {
                let weight = run.input::<T>(WEIGHT)?;
                packed(weight, Transpose::Yes, run.scratch())
            }
        };
        affine(dout, &weights.0, None, dx, store, threads);
    }
    let weight = match run.gradient::<T>(WEIGHT)? {
        Some(dw) => Some((run.input::<T>(X)?, dw)),
        None => None,
    };
    let mut bias = run.gradient::<T>(BIAS)?;
    let bias = bias.as_mut().map(|(db, store)| (db.row(0), *store));
    affine_gradient(dout, weight, bias, run.scratch().get(), threads);
    Ok(())
}

/// Weights that were not packed before.
fn packed<'s, T: Float>(
    weight: View<'_, T>,
    transpose: Transpose,
    scratch: &'s mut Scratch,
) -> &'s Weights<T> {
    let weights = scratch.get::<Weights<T>>();
    weights.0.pack(weight, transpose);
    weights
}
