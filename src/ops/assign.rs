//! `assign`: a copy.
//!
//! out = x, of any dtype, shape and LoD; the gradient is copied back.
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let ids = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
//! let op = ops::catalogue().parse("assign", &Attributes::new())?;
//! let out = op.call(&[Operand::batch("x", ids)])?;
//! assert_eq!(out[0].as_slice::<i64>()?, [7, 8, 9]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use crate::error::Result;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Needs, Op, Sample, Signature, Slot, Var,
};
use crate::tensor::{Variable, with_element};
use crate::with_float;

use super::rowwise::{put_rows, row_samples};

const X: usize = 0;
const OUT: usize = 0;

/// out = x.
pub(super) struct Assign;

impl Builder {
    /// A copy of `x`, of any dtype.
    ///
    /// # Errors
    /// If `x` is of another builder.
    #[doc(alias = "identity")]
    #[track_caller]
    pub fn assign(&self, x: Var) -> Result<Var> {
        self.append1("assign", &[("x", &[x])], Attributes::new())
    }
}

impl Op for Assign {
    fn kind() -> &'static str {
        "assign"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(run.dtype(X), T => {
            let (x, mut out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
            out.iter_mut().zip(x.iter()).for_each(|(out, x)| out.copy_from_slice(x));
        });
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            if let (Some((dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                put_rows(dx, dout, store);
            }
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let none = Attributes::new();
        let mut samples = row_samples(&none, 2, |sample, _| Ok(sample));
        let ids = Variable::from_sequences(&[vec![1i64, 2], vec![], vec![3]]);
        let flags = Variable::from_sequences(&[vec![], vec![true, false]]);
        let others = [("ids", ids), ("truth values", flags)];
        samples.extend(
            others
                .into_iter()
                .filter_map(|(name, x)| Some(Sample::new(name, none.clone()).batch("x", x.ok()?))),
        );
        samples
    }
}
