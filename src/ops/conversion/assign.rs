//! `assign` copies a variable; `cast` copies a variable into another dtype.

use crate::ops::prelude::*;

operator! {
    /// Copies `x`, of any dtype, shape and LoD. The gradient of `x` is the output's gradient.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
    /// let op = ops::catalogue().parse("assign", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", ids)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [7, 8, 9]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` belongs to another builder.
    #[doc(alias = "identity")]
    pub(in crate::ops) struct Assign = assign {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn assign(&self, x: Var) -> Var; }
}

/// Copies the first input of an operator to its first output.
pub(in crate::ops) fn copy(run: &mut Forward<'_>) -> Result<()> {
    with_element!(run.dtype(Assign::X), T => {
        let (x, mut out) = (run.input::<T>(Assign::X)?, run.output::<T>(Assign::OUT)?);
        out.iter_mut().zip(x.iter()).for_each(|(out, x)| out.copy_from_slice(x));
    });
    Ok(())
}

/// Copies the gradient of an operator's first output to the gradient of the first input, or adds it.
pub(in crate::ops) fn copy_back(run: &mut Backward<'_>) -> Result<()> {
    with_float!(run.dtype(Assign::X), T => {
        let (dx, dout) = (run.gradient::<T>(Assign::X)?, run.output_gradient::<T>(Assign::OUT)?);
        if let (Some((dx, assign)), Some(dout)) = (dx, dout) {
            assign.put_rows(dx, dout);
        }
        Ok(())
    })
}

impl Op for Assign {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        copy(run)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        copy_back(run)
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().passes(true)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let mut samples = CheckCase::of_rows(&none, 2, |sample, _| Ok(sample))?;
        let ids = Variable::from_sequences(&[vec![1i64, 2], vec![], vec![3]])?;
        let flags = Variable::from_sequences(&[vec![], vec![true, false]])?;
        samples.push(CheckCase::new("ids", none.clone()).batch("x", ids));
        samples.push(CheckCase::new("truth values", none).batch("x", flags));
        Ok(samples)
    }
}

operator! {
    /// Converts the numbers of `x` to another dtype; the shape and the LoD stay. Floats are rounded to the nearest value; a
    /// value beyond the range of an integer dtype becomes the nearest bound of the range (NaN becomes 0). From a bool, false
    /// becomes 0 and true becomes 1; to a bool, 0 becomes false and every other number becomes true. The gradient of `x` is the
    /// output's gradient if both dtypes are f32 or f64; else no gradient passes.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![7i64, 8], vec![], vec![9]])?;
    /// let cast = ops::catalogue().parse("cast", &Attributes::new().with("dtype", "f32"))?;
    /// assert_eq!(cast.call(&[Operand::batch("x", ids)])?[0].as_slice::<f32>()?, [7.0, 8.0, 9.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` belongs to another builder.
    pub(in crate::ops) struct Cast = cast { dtype: DType }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn cast(&self, x: Var, dtype: DType) -> Var; }
}

impl Op for Cast {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(Self::OUT, s.input(Self::X).with_dtype(self.dtype));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(run.dtype(Self::X), T => {
            let x = run.input::<T>(Self::X)?;
            with_element!(self.dtype, U => {
                let mut out = run.output::<U>(Self::OUT)?;
                out.iter_mut().zip(x.iter()).for_each(|(out, x)| convert(x, out));
            });
        });
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => with_float!(self.dtype, U => {
            if let (Some((mut dx, assign)), Some(dout)) = (run.gradient::<T>(Self::X)?, run.output_gradient::<U>(Self::OUT)?) {
                for (dx, &g) in dx.iter_mut().flatten().zip(dout.iter().flatten()) {
                    assign.put(dx, T::from_f64(g.to_f64()));
                }
            }
            Ok(())
        }))
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let to = |dtype: DType| Cast { dtype }.attributes();
        let mut samples = CheckCase::of_rows(&to(DType::F64), 2, |sample, _| Ok(sample))?;
        // The gradient is not checked in f32, because f32 is too coarse to estimate a gradient from differences of
        // outputs.
        samples.extend(CheckCase::of_rows(&to(DType::F32), 2, |sample, _| Ok(sample.without_gradient()))?);
        let ids = Variable::from_sequences(&[vec![1i64, 0], vec![], vec![300]])?;
        let dtypes = [DType::F32, DType::I8, DType::I16, DType::Bool];
        samples.extend(dtypes.map(|dtype| CheckCase::new("ids", to(dtype)).batch("x", ids.clone())));
        Ok(samples)
    }
}

fn convert<T: Element, U: Element>(x: &[T], out: &mut [U]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = U::from_number(x.number()));
}
