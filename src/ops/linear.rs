//! `linear`: a product with a weight matrix, and a bias.
//!
//! out = x · W + b, with x `[rows, in]`, W `[in, out]`, b `[out]`. Row-wise: the rows may belong to sequences of any
//! LoD, which the output keeps. There may be many weights, with as many biases or none: they are taken side by side,
//! out = x · [W₁ W₂ …] + [b₁ b₂ …].
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
use crate::program::{
    Attributes, Backward, Builder, Cost, Extent, Facts, Forward, InferShape, Merge, Needs, Op, Pass, Prepare,
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

/// Packs so many weights, side by side.
fn pack<'v, T: Float + 'v>(
    packed: &mut Packed<T>,
    count: usize,
    weight: impl Fn(usize) -> Result<View<'v, T>>,
    transpose: Transpose,
) -> Result<()> {
    let (mut height, mut width) = (0, 0);
    for k in 0..count {
        let weight = weight(k)?;
        (height, width) = (weight.rows(), width + weight.width());
    }
    match transpose {
        Transpose::No => packed.resize(height, width),
        Transpose::Yes => packed.resize(width, height),
    }
    let mut at = 0;
    for k in 0..count {
        let weight = weight(k)?;
        packed.put(weight, transpose, at);
        at += weight.width();
    }
    Ok(())
}

/// What a call needs beside what was prepared.
#[derive(Default)]
struct Room<T: Float> {
    weights: Packed<T>,
    /// Biases side by side.
    bias: Vec<T>,
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
                inputs: &[Slot::one("x"), Slot::many("weight"), Slot::any("bias")],
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
        let (x, weights, biases) = (s.input(X), s.many(WEIGHT), s.many(BIAS));
        let mut widths = Vec::with_capacity(weights.len());
        for (k, weight) in weights.iter().enumerate() {
            let &[Extent::Known(rows), Extent::Known(width)] = weight.shape.as_slice() else {
                return Err(s.mismatch_at(WEIGHT, k, "a constant of shape [in, out]"));
            };
            if k > 0 && rows != x.width() {
                let expected = format!("a height of {}, that of the first", x.width());
                return Err(s.mismatch_at(WEIGHT, k, &expected));
            }
            if x.width() != rows || x.shape.len() > 2 {
                return Err(s.mismatch(X, &format!("rows of {rows} numbers, the height of `weight`")));
            }
            widths.push(width);
        }
        if !biases.is_empty() {
            s.same_dtype(X, BIAS)?;
            if biases.len() != weights.len() {
                let (expected, got) = (format!("none or {}", weights.len()), biases.len().to_string());
                return Err(Error::new("number of `bias`, one for each `weight`", expected, got));
            }
            for (k, &width) in widths.iter().enumerate() {
                s.constant_at(BIAS, k, &[width])?;
            }
        }
        let width = widths.into_iter().try_fold(0, usize::checked_add).ok_or_else(|| {
            Error::new("the widths of `weight` together", "a number that can be counted", "more")
        })?;
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

    fn merges(&self) -> Option<Merge> {
        Some(Merge { beside: &["weight", "bias"], parts: "split" })
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        with_float!(prepare.dtype(X), T => {
            let wanted = prepare.pass() == Pass::Forward || prepare.wants(X);
            if wanted && prepare.constant::<T>(WEIGHT).is_some() {
                let transpose = if prepare.pass() == Pass::Forward { Transpose::No } else { Transpose::Yes };
                let mut weights = std::mem::take(prepare.keep::<Packed<T>>());
                let constant = |k| {
                    let expected = || Error::new("weight", "one that stays the same", "another");
                    prepare.constant_at::<T>(WEIGHT, k).ok_or_else(expected)
                };
                pack(&mut weights, prepare.count(WEIGHT), constant, transpose)?;
                *prepare.keep::<Packed<T>>() = weights;
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
        let second = array![[-0.6], [0.1], [0.8]];
        let samples_of_many = samples.iter().map(|sample| {
            let many = sample.clone().constant("weight", second.clone());
            let biased = sample.operands.iter().any(|o| o.slot == "bias");
            if biased { many.constant("bias", array![0.75]) } else { many }
        });
        let many: Vec<Sample> = samples_of_many.collect();
        samples.extend(many);
        let vector = Sample::new("a constant vector", Attributes::new());
        samples.push(vector.constant("x", array![0.5, -1.5, 2.0]).constant("weight", weight));
        samples
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let (x, out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
    let (store, threads) = (run.store(), run.run().threads);
    let mut room = std::mem::take(run.scratch().get::<Room<T>>());
    let weights = match run.prepared::<Packed<T>>() {
        Some(weights) => weights,
        None => {
            pack(&mut room.weights, run.count(WEIGHT), |k| run.input_at(WEIGHT, k), Transpose::No)?;
            &room.weights
        }
    };
    room.bias.clear();
    let bias = match run.count(BIAS) {
        0 => None,
        1 => Some(run.input::<T>(BIAS)?.row(0)),
        count => {
            for k in 0..count {
                room.bias.extend_from_slice(run.input_at::<T>(BIAS, k)?.row(0));
            }
            Some(&room.bias[..])
        }
    };
    affine(x, weights, bias, out, store, threads);
    *run.scratch().get::<Room<T>>() = room;
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else {
        return Err(Error::new("linear", "a gradient of its output", "none"));
    };
    let threads = run.run().threads;
    if let Some((dx, store)) = run.gradient::<T>(X)? {
        let mut room = std::mem::take(run.scratch().get::<Room<T>>());
        let weights = match run.prepared::<Packed<T>>() {
            Some(weights) => weights,
            None => {
                pack(&mut room.weights, run.count(WEIGHT), |k| run.input_at(WEIGHT, k), Transpose::Yes)?;
                &room.weights
            }
        };
        affine(dout, weights, None, dx, store, threads);
        *run.scratch().get::<Room<T>>() = room;
    }
    let mut from = 0;
    for k in 0..run.count(WEIGHT) {
        let to = from + run.input_spec_at(WEIGHT, k).width();
        let weight = match run.gradient_at::<T>(WEIGHT, k)? {
            Some(dw) => Some((run.input::<T>(X)?, dw)),
            None => None,
        };
        let mut bias = run.gradient_at::<T>(BIAS, k)?;
        let bias = bias.as_mut().map(|(db, store)| (db.row(0), *store));
        affine_gradient(dout.columns(from, to), weight, bias, run.scratch().get(), threads);
        from = to;
    }
    Ok(())
}
