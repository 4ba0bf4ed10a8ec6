//! `fill_like`: makes a variable with the shape of another variable, in which every number is the same constant.

use crate::ops::prelude::*;

operator! {
    /// Returns a variable with the shape of `x` in which every number is `value`.
    ///
    /// out = `value`, with the shape, dtype and LoD of x; the numbers of x are not read. The operator computes each row
    /// alone. The backward pass starts with this operator, since the gradient of the loss with respect to the loss
    /// itself is 1.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("fill_like", &Attributes::new().with("value", 0.5))?;
    /// let out = op.call(&[Operand::batch("x", Variable::from_sequences(&[vec![1.0, 2.0], vec![]])?)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.5, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` does not hold f32 or f64.
    pub(in crate::ops) struct FillLike = fill_like { value: f64 }
    inputs { X = x: one.without_gradient().shape_only() }
    outputs { OUT = out: one }
    impl Builder, Var { fn fill_like(&self, x: Var, value: f64) -> Var; }
}

impl Op for FillLike {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            run.output::<T>(Self::OUT)?.fill(T::from_f64(self.value));
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&FillLike { value: 0.5 }.attributes(), 2, |sample, _| Ok(sample))
    }
}
