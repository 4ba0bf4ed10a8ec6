//! `round_bf16`: rounds numbers to bf16, for products that compute in bf16.

use half::bf16;

use crate::kernels::{round_number, round_rows};
use crate::ops::prelude::*;

operator! {
    /// Rounds each number of `x`, taken as f32, to the nearest bf16 number, as matrix products in bf16 round their operands: of two
    /// nearest numbers, to the even one; a subnormal number becomes zero.
    ///
    /// The output has the shape, the dtype and the LoD of `x`. If `flushes` is true, a number below 1e-30 in magnitude becomes
    /// zero. No gradient passes. The compiler inserts this operator before values that only products in bf16 read, and stores its
    /// output in half the memory.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("round_bf16", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", Variable::from_sequences(&[vec![1.0f32, 1.001, 257.0]])?)])?;
    /// assert_eq!(out[0].as_slice::<f32>()?, [1.0, 1.0, 256.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` does not hold f32 or f64.
    pub(in crate::ops) struct RoundBf16 = round_bf16 { flushes: bool = false }
    inputs { X = x: one.without_gradient() }
    outputs { OUT = out: one }
}

impl Op for RoundBf16 {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        if run.writes_bf16(Self::OUT) {
            round_rows(run.input::<f32>(Self::X)?, run.output::<bf16>(Self::OUT)?, self.flushes);
            return Ok(());
        }
        with_float!(run.dtype(Self::X), T => {
            let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            for (&x, out) in x.iter().flatten().zip(out.iter_mut().flatten()) {
                *out = T::from_f64(round_number(x.to_f64() as f32, self.flushes).to_f64());
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples =
            CheckCase::of_rows(&RoundBf16 { flushes: false }.attributes(), 2, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&RoundBf16 { flushes: true }.attributes(), 3, |sample, _| {
            Ok(sample)
        })?);
        Ok(samples)
    }
}
