//! `average_weights`: averages a parameter over training steps.

use ndarray::array;

use super::settings::number;
use crate::error::Result;
use crate::kernels::Float;
use crate::operator;
use crate::operator::{Attributes, CheckCase, Facts, Forward, InferShape, LodEffect, Op};
use crate::with_float;

operator! {
    /// Averages a parameter over training steps. Each step first updates the parameter, then the average; this operator
    /// does not change the parameter.
    ///
    /// Up to step `start`, the average equals the parameter. In later steps, average ← average + w · (param − average),
    /// in place. With decay < 1, w = 1 − decay; the average is then an exponential moving average. With decay = 1, w =
    /// 1 / (n + 1), where n is the number of steps since `start`; the average is then the mean of the parameter since
    /// step `start` (Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992).
    /// `average_weights` corresponds to PyTorch's `AveragedModel`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let attributes = Attributes::new().with("start", 0usize).with("decay", 0.75);
    /// let op = ops::catalogue().parse("average_weights", &attributes)?;
    /// let of = |average| [Operand::constant("param", array![8.0]), Operand::constant("average", average)];
    /// let out = op.call(&of(array![1.0]))?; // step 0
    /// assert_eq!(out[0].as_slice::<f64>()?, [8.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct AverageWeights = average_weights { start: usize, decay: f64 => kept }
    inputs { PARAM = param: one.without_gradient() }
    outputs { AVERAGE = average: one.updated() }
}

fn kept(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a number above 0 and at most 1", |decay| decay > 0.0 && decay <= 1.0)
}

impl Op for AverageWeights {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::PARAM)?;
        let param = s.input(Self::PARAM).clone();
        s.set(Self::AVERAGE, param);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let n = run.run().step.saturating_sub(self.start as u64);
        let weight = match n {
            0 => 1.0,
            n if self.decay == 1.0 => 1.0 / (n + 1) as f64,
            _ => 1.0 - self.decay,
        };
        with_float!(run.dtype(Self::PARAM), T => {
            let weight = T::from_f64(weight);
            let (param, mut average) = (run.input::<T>(Self::PARAM)?, run.output::<T>(Self::AVERAGE)?);
            for (average, param) in average.iter_mut().zip(param.iter()) {
                if n == 0 {
                    average.copy_from_slice(param);
                    continue;
                }
                for (average, &param) in average.iter_mut().zip(param) {
                    *average += weight * (param - *average);
                }
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name, decay| {
            let attributes = AverageWeights { start: 0, decay }.attributes();
            let sample = CheckCase::new(name, attributes).without_gradient();
            sample
                .constant("param", array![[1.0, -2.0], [0.5, 4.0]])
                .constant("average", array![[0.0, 1.0], [2.0, 3.0]])
        };
        Ok(vec![sample("exponential", 0.75), sample("mean", 1.0)])
    }
}
