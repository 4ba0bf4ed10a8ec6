//! `layer_norm` and `rms_norm`: `layer_norm` normalises each row to mean 0 and variance 1, `rms_norm` to mean square 1.

use crate::kernels::{
    Centre, RowNorm, RowNormGradients, norm_gradient_numbers, norm_rows, norm_rows_gradient,
};
use crate::ops::prelude::*;

/// The input slots of `layer_norm`; `rms_norm` has the same slots without the bias.
const X: usize = 0;
const GAIN: usize = 1;
const BIAS: usize = 2;
const OUT: usize = 0;

operator! {
    /// Layer normalization: brings each row to mean 0 and variance 1, then scales and shifts it column by column (Ba et
    /// al., "Layer normalization", 2016).
    ///
    /// For row i: out_i = (x_i − m_i) / √(v_i + epsilon) ∘ gain + bias, with the mean m_i and the variance v_i = Σ_j (x_ij −
    /// m_i)² / n of the n numbers of row i. `gain` and `bias` are `[n]`, for rows of n numbers; by default, gain is 1 and bias
    /// is 0. The operator computes each row alone; x may have any LoD, which the output keeps, and an empty sequence stays
    /// empty. The gradients of gain and bias are sums over rows. These sums are computed in fixed blocks of 256 rows,
    /// so their bits do not depend on the number of threads. In f32, the squares of numbers beyond about 10¹⁹ are
    /// infinite: a row with such a number has an infinite variance, and its output is the bias.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 3.0], [5.0, -5.0], [7.0, 7.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("layer_norm", &Attributes::new().with("epsilon", 1e-12))?;
    /// let gain = Operand::constant("gain", array![1.0, 10.0]);
    /// let bias = Operand::constant("bias", array![0.0, 0.5]);
    /// let out = op.call(&[Operand::batch("x", x), gain, bias])?;
    /// let rounded: Vec<f64> = out[0].as_slice::<f64>()?.iter().map(|x| (x * 1e6).round() / 1e6).collect();
    /// assert_eq!(rounded, [-1.0, 10.5, 1.0, -9.5, 0.0, 0.5]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, if gain or bias has another dtype or does not have one number per column, or if
    /// epsilon is not above 0 in the dtype of `x`.
    pub(in crate::ops) struct LayerNorm = layer_norm { epsilon: f64 => above_zero }
    inputs { X = x: one, GAIN = gain: optional, BIAS = bias: optional }
    outputs { OUT = out: one }
    impl Builder, Var { fn layer_norm(&self, x: Var, gain: Option<Var>, bias: Option<Var>, epsilon: f64) -> Var; }
}

operator! {
    /// RMS normalization: brings each row to mean square 1, then scales it column by column (Zhang and Sennrich,
    /// "Root mean square layer normalization", 2019).
    ///
    /// For row i: out_i = x_i / √(Σ_j x_ij² / n + epsilon) ∘ gain, over the n numbers of row i; `gain` is `[n]`, and is 1 by
    /// default. The operator computes each row alone; x may have any LoD, which the output keeps, and an empty sequence stays
    /// empty. The gradient of the gain is a sum over rows. This sum is computed in fixed blocks of 256 rows, so its
    /// bits do not depend on the number of threads. In f32, the squares of numbers beyond about 10¹⁹ are infinite: a
    /// row with such a number becomes 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 7.0], [0.0, 0.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let op = ops::catalogue().parse("rms_norm", &Attributes::new().with("epsilon", 1e-12))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// let rounded: Vec<f64> = out[0].as_slice::<f64>()?.iter().map(|x| (x * 1e6).round() / 1e6).collect();
    /// assert_eq!(rounded, [0.2, 1.4, 0.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, if the gain has another dtype or does not have one number per column, or if
    /// epsilon is not above 0 in the dtype of `x`.
    pub(in crate::ops) struct RmsNorm = rms_norm { epsilon: f64 => above_zero }
    inputs { X = x: one, GAIN = gain: optional }
    outputs { OUT = out: one }
    impl Builder, Var { fn rms_norm(&self, x: Var, gain: Option<Var>, epsilon: f64) -> Var; }
}

/// Reads an attribute that must be above 0, such as epsilon: in a row of zeros, the divisor is the root of epsilon.
pub(in crate::ops) fn above_zero(attributes: &Attributes, name: &str) -> Result<f64> {
    let number = attributes.float(name)?;
    if number > 0.0 && number.is_finite() {
        return Ok(number);
    }
    Err(Error::new(format!("attribute `{name}`"), "a number above 0", number.to_string()))
}

/// Checks that `epsilon` is also above 0 and finite after rounding to the dtype of `x`.
pub(in crate::ops) fn above_zero_in(s: &InferShape<'_>, x: usize, epsilon: f64) -> Result<()> {
    let added = epsilon as f32;
    if s.input(x).dtype != DType::F32 || (added > 0.0 && added.is_finite()) {
        return Ok(());
    }
    Err(Error::new(
        "attribute `epsilon`",
        "a number above 0 in f32, the dtype of `x`",
        format!("{epsilon:e}"),
    ))
}

/// The kind of normalization: layer normalization or RMS normalization.
pub(in crate::ops) trait Form: DeclaredOp {
    /// Whether the mean of a row is subtracted from the row (`layer_norm`); else 0 is subtracted.
    const CENTRE: Centre;
    /// Whether the operator has an input slot for a bias.
    const BIASED: bool;
    /// Returns epsilon, the number that is added under the root.
    fn epsilon(&self) -> f64;
    /// Returns the attributes of the operator in the check cases.
    fn sample() -> Attributes;
}

impl Form for LayerNorm {
    const CENTRE: Centre = Centre::Mean;
    const BIASED: bool = true;

    fn epsilon(&self) -> f64 {
        self.epsilon
    }

    fn sample() -> Attributes {
        LayerNorm { epsilon: 0.01 }.attributes()
    }
}

impl Form for RmsNorm {
    const CENTRE: Centre = Centre::Zero;
    const BIASED: bool = false;

    fn epsilon(&self) -> f64 {
        self.epsilon
    }

    fn sample() -> Attributes {
        RmsNorm { epsilon: 0.01 }.attributes()
    }
}

/// An operator that normalises each row.
pub(in crate::ops) struct Normalise<F>(F);
family!(Normalise);

impl<F: Form> Op for Normalise<F> {
    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (rows, width) = sizes.input(X);
        let numbers = match sizes.pass() {
            Pass::Backward => norm_gradient_numbers(rows, width, sizes.wants(GAIN) || sizes.wants(BIAS)),
            Pass::Forward => 0,
        };
        with_float!(sizes.dtype(X), T => Ok(CallMemory::default().scratch::<Scratch<T>>(numbers * size_of::<T>())))
            .unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        above_zero_in(s, X, self.0.epsilon())?;
        let width = s.input(X).width();
        for slot in [GAIN, BIAS].into_iter().take(if F::BIASED { 2 } else { 1 }) {
            if s.optional(slot).is_some() {
                s.same_dtype(X, slot)?;
                s.constant(slot, &[width])?;
            }
        }
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let bias = if F::BIASED { run.optional::<T>(BIAS)? } else { None };
            let gain = run.optional::<T>(GAIN)?.map(|gain| gain.row(0));
            let norm = RowNorm { centre: F::CENTRE, epsilon: T::from_f64(self.0.epsilon()), gain };
            norm_rows(run.input::<T>(X)?, norm, bias.map(|bias| bias.row(0)), run.output::<T>(OUT)?);
            Ok(())
        })
    }

    gradient_reads!(X, GAIN);

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.gradients::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let gain = array![0.5, -1.5, 2.0, 1.0];
        let mut samples = CheckCase::of_rows(&F::sample(), 4, |sample, _| Ok(sample))?;
        let with_gain = |sample: CheckCase| sample.constant("gain", gain.clone());
        samples.extend(CheckCase::of_rows(&F::sample(), 4, |sample, _| Ok(with_gain(sample)))?);
        if F::BIASED {
            let bias = |sample: CheckCase| sample.constant("bias", array![0.25, 1.0, -0.5, 0.0]);
            samples.extend(CheckCase::of_rows(&F::sample(), 4, |sample, _| Ok(bias(sample)))?);
            samples.extend(CheckCase::of_rows(&F::sample(), 4, |sample, _| Ok(bias(with_gain(sample))))?);
        }
        samples.extend(CheckCase::of_rows(&F::sample(), 1, |sample, _| Ok(sample))?);
        Ok(samples)
    }
}

impl<F: Form> Normalise<F> {
    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
        let dx = run.gradient::<T>(X)?;
        let mut dgain = run.gradient::<T>(GAIN)?;
        let mut dbias = if F::BIASED { run.gradient::<T>(BIAS)? } else { None };
        let gain = run.optional::<T>(GAIN)?.map(|gain| gain.row(0));
        let norm = RowNorm { centre: F::CENTRE, epsilon: T::from_f64(self.0.epsilon()), gain };
        let to = RowNormGradients {
            dx,
            dgain: dgain.as_mut().map(|(dgain, assign)| (dgain.row(0), *assign)),
            dbias: dbias.as_mut().map(|(dbias, assign)| (dbias.row(0), *assign)),
        };
        let (x, threads) = (run.input::<T>(X)?, run.run().threads);
        norm_rows_gradient(x, dout, norm, to, &mut run.scratch().get::<Scratch<T>>().0, threads);
        Ok(())
    }
}

/// Scratch memory of the backward pass: the sums of the gradients of gain and bias over blocks of rows.
#[derive(Default)]
struct Scratch<T>(Vec<T>);
