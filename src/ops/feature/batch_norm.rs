//! `batch_norm`: batch normalization; `running_average`: keeps the mean and variance of each column for inference.

use super::norm::{above_zero, above_zero_in};
use crate::kernels::{ColumnNorm, column_moments, norm_columns, norm_columns_gradient, norm_columns_sums};
use crate::operator::Mode;
use crate::ops::prelude::*;

operator! {
    /// Batch normalization: brings each column to mean 0 and variance 1 over all rows of the batch, then scales and shifts it
    /// (Ioffe and Szegedy, "Batch normalization", 2015). The layer [`Norm::batch`](crate::layers::Norm::batch) appends the
    /// operator `batch_norm`.
    ///
    /// For row i and column j: out_ij = (x_ij − m_j) / √(v_j + epsilon) · gain_j + bias_j. While training, m_j and v_j = Σ_i
    /// (x_ij − m_j)² / n are the mean and variance of column j over the n rows of the batch, independently of the sequences.
    /// The outputs `batch_mean` and `batch_variance` are m_j and the unbiased estimate v_j · n / (n − 1). During inference, m_j
    /// and v_j are the inputs `mean` and `variance`: running averages, which [`running_average`](crate::ops) moves towards
    /// `batch_mean` and `batch_variance` after each training step. A batch with fewer than two rows has no variance: for it,
    /// training also uses `mean` and `variance`, and returns these two inputs as `batch_mean` and `batch_variance`.
    ///
    /// The output has the LoD of x. The output for a row depends on the other rows of the batch, so `batch_norm` in a step
    /// block is an error.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[5.0], [1.0], [3.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("batch_norm", &Attributes::new().with("epsilon", 1e-12))?;
    /// let (mean, variance) = (Operand::constant("mean", array![1.0]), Operand::constant("variance", array![4.0]));
    /// let out = op.call(&[Operand::batch("x", x), mean, variance])?; // a direct call infers
    /// let rounded: Vec<f64> = out[0].as_slice::<f64>()?.iter().map(|x| (x * 1e6).round() / 1e6).collect();
    /// assert_eq!(rounded, [2.0, 0.0, 1.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats; if gain, bias, mean or variance has another dtype or does not have one number per
    /// column; if epsilon, in the dtype of `x`, is not above 0; if the operator is in a step block.
    pub(in crate::ops) struct BatchNorm = batch_norm { epsilon: f64 => above_zero }
    inputs {
        X = x: one,
        GAIN = gain: optional,
        BIAS = bias: optional,
        MEAN = mean: one.without_gradient(),
        VARIANCE = variance: one.without_gradient(),
    }
    outputs {
        OUT = out: one,
        BATCH_MEAN = batch_mean: one.without_gradient(),
        BATCH_VARIANCE = batch_variance: one.without_gradient(),
    }
}

impl BatchNorm {
    const CONSTANTS: [usize; 4] = [Self::GAIN, Self::BIAS, Self::MEAN, Self::VARIANCE];
}

/// Returns whether a batch of `rows` rows is normalised by the mean and variance of the batch, not by the running averages.
fn by_batch(mode: Mode, rows: usize) -> bool {
    mode == Mode::Train && rows > 1
}

/// Computes 1 / √(v_j + epsilon) for each column j, where v_j is `variance[j]` times `factor`; writes the results into
/// `scale`.
fn scales<T: Float>(variance: &[T], factor: f64, epsilon: f64, scale: &mut Vec<T>) {
    let (factor, epsilon) = (T::from_f64(factor), T::from_f64(epsilon));
    scale.clear();
    scale.extend(variance.iter().map(|&v| T::ONE / (v * factor + epsilon).sqrt()));
}

impl Op for BatchNorm {
    fn facts(&self) -> Facts {
        Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Keeps(Self::X)) }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        above_zero_in(s, Self::X, self.epsilon)?;
        let x = s.input(Self::X);
        for slot in Self::CONSTANTS {
            if s.optional(slot).is_some() {
                s.same_dtype(Self::X, slot)?;
                s.constant(slot, &[x.width()])?;
            }
        }
        s.set(Self::OUT, x.clone());
        for slot in [Self::BATCH_MEAN, Self::BATCH_VARIANCE] {
            s.set(slot, Spec::fixed(x.dtype, &[x.width()])?);
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.normalise::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().input(Self::X).input(Self::GAIN);
        reads.output(Self::BATCH_MEAN).output(Self::BATCH_VARIANCE)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.gradients::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let op = BatchNorm { epsilon: 0.01 }.attributes();
        let kept = |sample: CheckCase| {
            sample.constant("mean", array![0.5, -0.25, 0.0]).constant("variance", array![1.0, 0.5, 2.0])
        };
        let sides = |sample: CheckCase| {
            sample.constant("gain", array![0.5, -1.5, 2.0]).constant("bias", array![0.25, 1.0, -0.5])
        };
        let mut samples = CheckCase::of_rows(&op, 3, |sample, _| Ok(kept(sample)))?;
        samples.extend(CheckCase::of_rows(&op, 3, |sample, _| Ok(sides(kept(sample))))?);
        Ok(samples)
    }
}

impl BatchNorm {
    fn normalise<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, facts) = (run.input::<T>(Self::X)?, run.run());
        let (mean, variance) = (run.input::<T>(Self::MEAN)?.row(0), run.input::<T>(Self::VARIANCE)?.row(0));
        let gain = run.optional::<T>(Self::GAIN)?.map(|gain| gain.row(0));
        let bias = run.optional::<T>(Self::BIAS)?.map(|bias| bias.row(0));
        let mut of_mean = run.output::<T>(Self::BATCH_MEAN)?;
        let mut of_variance = run.output::<T>(Self::BATCH_VARIANCE)?;
        let out = run.output::<T>(Self::OUT)?;
        let (batch_mean, batch_variance) = (of_mean.row(0), of_variance.row(0));
        let room = run.scratch().get::<Scratch<T>>();
        if by_batch(facts.mode, x.rows()) {
            column_moments(x, batch_mean, batch_variance, facts.threads);
            scales(batch_variance, 1.0, self.epsilon, &mut room.scale);
            let drawn = T::from_f64(x.rows() as f64 / (x.rows() - 1) as f64);
            batch_variance.iter_mut().for_each(|v| *v *= drawn);
        } else {
            batch_mean.copy_from_slice(mean);
            batch_variance.copy_from_slice(variance);
            scales(variance, 1.0, self.epsilon, &mut room.scale);
        }
        let norm = ColumnNorm { mean: batch_mean, scale: &room.scale };
        norm_columns(x, norm, (gain, bias), out, facts.threads);
        Ok(())
    }

    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some(dout) = run.output_gradient::<T>(Self::OUT)? else {
            // If `out` has no gradient, the loss uses only `batch_mean` and `batch_variance`, which pass no gradient.
            for slot in [Self::X, Self::GAIN, Self::BIAS] {
                if let Some((to, assign)) = run.gradient::<T>(slot)? {
                    assign.put_nothing(to);
                }
            }
            return Ok(());
        };
        let (x, facts) = (run.input::<T>(Self::X)?, run.run());
        let (rows, own) = (x.rows(), by_batch(facts.mode, x.rows()));
        let gain = run.optional::<T>(Self::GAIN)?.map(|gain| gain.row(0));
        let mean = run.output::<T>(Self::BATCH_MEAN)?.row(0);
        let variance = run.output::<T>(Self::BATCH_VARIANCE)?.row(0);
        let (dx, dgain, dbias) =
            (run.gradient::<T>(Self::X)?, run.gradient::<T>(Self::GAIN)?, run.gradient::<T>(Self::BIAS)?);
        let Scratch { scale, along, all } = run.scratch().get::<Scratch<T>>();
        // The output `batch_variance` is a sum divided by n − 1, but the gradient needs the sum divided by n.
        let factor = if own { (rows - 1) as f64 / rows as f64 } else { 1.0 };
        scales(variance, factor, self.epsilon, scale);
        along.resize(x.width(), T::ZERO);
        all.resize(x.width(), T::ZERO);
        let norm = ColumnNorm { mean, scale };
        if own || dgain.is_some() || dbias.is_some() {
            norm_columns_sums(x, dout, norm, (along, all), facts.threads);
        }
        for (side, sums) in [(dgain, &*along), (dbias, &*all)] {
            if let Some((mut side, assign)) = side {
                assign.put_row(side.row(0), sums);
            }
        }
        if let Some(dx) = dx {
            let share = if own { T::from_f64(1.0 / rows as f64) } else { T::ZERO };
            along.iter_mut().chain(&mut *all).for_each(|sum| *sum = if own { *sum * share } else { T::ZERO });
            norm_columns_gradient(x, dout, norm, (gain, along, all), dx, facts.threads);
        }
        Ok(())
    }
}

/// Scratch memory of a call: three vectors with one number per column.
#[derive(Default)]
struct Scratch<T> {
    scale: Vec<T>,
    along: Vec<T>,
    all: Vec<T>,
}

operator! {
    /// Running average: at each training step, moves `average` towards x, in place: average ← average + momentum · (x −
    /// average).
    ///
    /// The operator `running_average` runs only while training, together with the update rules of a step, after the check that
    /// all gradients are finite. Batch normalization uses `running_average` to keep the mean and variance of each column for
    /// inference. If a training step has several batches (gradient accumulation), x is from the last batch of the step.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let op = ops::catalogue().parse("running_average", &Attributes::new().with("momentum", 0.25))?;
    /// let out = op.call(&[Operand::constant("x", array![4.0, 8.0]), Operand::constant("average", array![0.0, 4.0])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 5.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if x is not a constant of floats, or the momentum is not from 0 to 1.
    pub(in crate::ops) struct RunningAverage = running_average { momentum: f64 => momentum }
    inputs { X = x: one.without_gradient() }
    outputs { AVERAGE = average: one.updated() }
}

fn momentum(attributes: &Attributes, name: &str) -> Result<f64> {
    let number = attributes.float(name)?;
    if (0.0..=1.0).contains(&number) {
        return Ok(number);
    }
    Err(Error::new(format!("attribute `{name}`"), "a number from 0 to 1", number.to_string()))
}

impl Op for RunningAverage {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        if s.input(Self::X).batched() {
            return Err(s.mismatch(Self::X, "a constant"));
        }
        s.set(Self::AVERAGE, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let momentum = T::from_f64(self.momentum);
            let (x, mut average) = (run.input::<T>(Self::X)?, run.output::<T>(Self::AVERAGE)?);
            for (average, &x) in average.iter_mut().flatten().zip(x.iter().flatten()) {
                *average += momentum * (x - *average);
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |momentum| {
            let sample =
                CheckCase::new("a vector", RunningAverage { momentum }.attributes()).without_gradient();
            sample.constant("x", array![1.0, -2.0, 0.5]).constant("average", array![0.0, 1.0, 2.0])
        };
        Ok(vec![sample(0.1), sample(1.0)])
    }
}
