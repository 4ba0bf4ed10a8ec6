//! `fill_like`: a value in the shape of another.
//!
//! out = `value`, in the shape, dtype and LoD of x; x's numbers are not read. Row-wise. It starts the backward pass:
//! the gradient of the loss with respect to itself is 1.
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let op = ops::catalogue().parse("fill_like", &Attributes::new().with("value", 0.5))?;
//! let out = op.call(&[Operand::batch("x", Variable::from_sequences(&[vec![1.0, 2.0], vec![]])?)])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [0.5, 0.5]);
//! # Ok::<(), unpadded::Error>(())
//! ```

use crate::error::Result;
use crate::kernels::Float;
use crate::program::{
    Attributes, Builder, Facts, Forward, InferShape, Needs, Op, Sample, Signature, Slot, Var,
};
use crate::with_float;

use super::rowwise::row_samples;

const X: usize = 0;
const OUT: usize = 0;

/// out = value.
pub(super) struct FillLike {
    value: f64,
}

impl Builder {
    /// `value` in the shape of `x`.
    ///
    /// # Errors
    /// If `x` does not hold f32 or f64.
    #[track_caller]
    pub fn fill_like(&self, x: Var, value: f64) -> Result<Var> {
        self.append1("fill_like", &[("x", &[x])], Attributes::new().with("value", value))
    }
}

impl Op for FillLike {
    fn kind() -> &'static str {
        "fill_like"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { value: attributes.float("value")? })
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("x").without_gradient().shape_only()],
                outputs: &[Slot::one("out")],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            run.output::<T>(OUT)?.fill(T::from_f64(self.value));
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        row_samples(&Attributes::new().with("value", 0.5), 2, |sample, _| Ok(sample))
    }
}
