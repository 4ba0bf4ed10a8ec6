//! `assign`: a copy; `cast`: a copy in another dtype.
//!
//! out = x, of any dtype, shape and LoD; the gradient is copied back. `cast` rounds floats to the nearest, and what an
//! integer can't hold becomes its nearest bound (not-a-number becomes 0); a bool is 0 or 1, and true for anything but
//! 0. Its gradient passes between f32 and f64.
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let ids = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
//! let op = ops::catalogue().parse("assign", &Attributes::new())?;
//! let out = op.call(&[Operand::batch("x", ids)])?;
//! assert_eq!(out[0].as_slice::<i64>()?, [7, 8, 9]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//!
//! let cast = ops::catalogue().parse("cast", &Attributes::new().with("dtype", "f32"))?;
//! assert_eq!(cast.call(&[Operand::batch("x", out[0].clone())])?[0].as_slice::<f32>()?, [7.0, 8.0, 9.0]);
//! # Ok::<(), unpadded::Error>(())
//! ```

use crate::error::Result;
use crate::kernels::Float;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Needs, Op, Sample, Signature, Slot, Spec, Var,
};
use crate::tensor::{DType, Element, Variable, with_element};
use crate::with_float;

use super::rowwise::{put, put_rows, row_samples};

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

    /// `x` in another dtype.
    ///
    /// # Errors
    /// If `x` is of another builder.
    #[track_caller]
    pub fn cast(&self, x: Var, dtype: DType) -> Result<Var> {
        self.append1("cast", &[("x", &[x])], Attributes::new().with("dtype", dtype.name()))
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

    fn passes_gradient(&self, _: usize, _: &[Vec<Spec>]) -> bool {
        true
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

/// out = x in `dtype`.
pub(super) struct Cast {
    dtype: DType,
}

impl Op for Cast {
    fn kind() -> &'static str {
        "cast"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { dtype: attributes.text("dtype")?.parse()? })
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(OUT, s.input(X).with_dtype(self.dtype));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(run.dtype(X), T => {
            let x = run.input::<T>(X)?;
            with_element!(self.dtype, U => {
                let mut out = run.output::<U>(OUT)?;
                out.iter_mut().zip(x.iter()).for_each(|(out, x)| convert(x, out));
            });
        });
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => with_float!(self.dtype, U => {
            if let (Some((mut dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<U>(OUT)?) {
                for (dx, &g) in dx.iter_mut().flatten().zip(dout.iter().flatten()) {
                    put(dx, T::from_f64(g.to_f64()), store);
                }
            }
            Ok(())
        }))
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let to = |dtype: DType| Attributes::new().with("dtype", dtype.name());
        let mut samples = row_samples(&to(DType::F64), 2, |sample, _| Ok(sample));
        // The steps of f32 are too coarse for differences.
        samples.extend(row_samples(&to(DType::F32), 2, |sample, _| Ok(sample.without_gradient())));
        let ids = Variable::from_sequences(&[vec![1i64, 0], vec![], vec![300]]).ok();
        let ids = |dtype| Some(Sample::new("ids", to(dtype)).batch("x", ids.clone()?));
        samples.extend([DType::F32, DType::I8, DType::I16, DType::Bool].into_iter().filter_map(ids));
        samples
    }
}

fn convert<T: Element, U: Element>(x: &[T], out: &mut [U]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = U::from_number(x.number()));
}
