//! `softmax` and `log_softmax` over the columns of each row.

use crate::ops::prelude::*;

const X: usize = 0;
const OUT: usize = 0;

operator! {
    /// Softmax over the columns of each row: `out_j = e^(x_j − m) / Σ_k e^(x_k − m)`, where m is the maximum of the row.
    ///
    /// The rows of x may have any LoD, which the output keeps. For a row in which every number is -inf (a fully masked row),
    /// the softmax is 0 in every column, and no gradient passes. In contrast,
    /// [`sequence_softmax`](Self::sequence_softmax) gives NaN for a sequence in which every number is -inf, and
    /// [`cross_entropy`](Self::cross_entropy) gives NaN for a row in which every logit is -inf.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[0.0, 0.0], [1e4, 1e4], [-7.0, -7.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("softmax", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.5; 6]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    pub(in crate::ops) struct PlainSoftmax = softmax {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn softmax(&self, x: Var) -> Var; }
}

operator! {
    /// Logarithm of the softmax over the columns of each row: `out_j = x_j − m − log Σ_k e^(x_k − m)`, where m is the maximum
    /// of the row. For a row in which every number is -inf, the output is -inf in every column.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[0.0, 0.0], [0.0, -1e9]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let op = ops::catalogue().parse("log_softmax", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [-(2f64.ln()), -(2f64.ln()), 0.0, -1e9]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    pub(in crate::ops) struct LogSoftmax = log_softmax {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn log_softmax(&self, x: Var) -> Var; }
}

/// Selects one of the two operators: `softmax` or `log_softmax`.
pub(in crate::ops) trait Form: DeclaredOp {
    /// Whether the operator returns the logarithm of the softmax.
    const LOG: bool;
}

impl Form for PlainSoftmax {
    const LOG: bool = false;
}

impl Form for LogSoftmax {
    const LOG: bool = true;
}

/// An operator that computes the softmax of each row, or the logarithm of the softmax.
pub(in crate::ops) struct Softmax<F>(F);
family!(Softmax);

impl<F: Form> Op for Softmax<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            sweep(Values { x: run.input::<T>(X)?, out: run.output::<T>(OUT)?, log: F::LOG });
            Ok(())
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().output(OUT)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            if let (Some((dx, assign)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) {
                sweep(Gradients { y: run.output::<T>(OUT)?, dout, dx, assign, log: F::LOG });
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = CheckCase::of_rows(&Attributes::new(), 4, |sample, _| Ok(sample))?;
        let large = ndarray::array![[1e4, 1e4 + 1.0], [-1e4, 3.0]];
        samples.push(CheckCase::new("large numbers", Attributes::new()).batch("x", large).without_gradient());
        let masked = ndarray::Array2::from_elem((2, 3), f64::NEG_INFINITY);
        samples.push(CheckCase::new("all masked", Attributes::new()).batch("x", masked).without_gradient());
        Ok(samples)
    }
}

struct Values<'a, T> {
    x: View<'a, T>,
    out: ViewMut<'a, T>,
    log: bool,
}

impl<T: Float> Sweep for Values<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (out, x) in self.out.iter_mut().zip(self.x.iter()) {
            let max = x.iter().fold(T::NEG_INFINITY, |max, &x| if x > max { x } else { max });
            // In a fully masked row the maximum is -inf: then 0 is subtracted instead of the maximum, since -inf − (-inf) is
            // NaN.
            let max = if max > T::NEG_INFINITY { max } else { T::ZERO };
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = (x - max).exp_with::<A>());
            let sum: T = out.iter().copied().sum();
            if self.log {
                let shift = max + sum.ln();
                let masked = sum == T::ZERO;
                out.iter_mut().zip(x).for_each(|(out, &x)| *out = if masked { x } else { x - shift });
            } else {
                let scale = if sum == T::ZERO { sum } else { T::ONE / sum };
                out.iter_mut().for_each(|out| *out *= scale);
            }
        }
    }
}

struct Gradients<'a, T> {
    y: View<'a, T>,
    dout: View<'a, T>,
    dx: ViewMut<'a, T>,
    assign: Assign,
    log: bool,
}

impl<T: Float> Sweep for Gradients<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let assign = self.assign;
        for (i, dx) in self.dx.iter_mut().enumerate() {
            let (y, g) = (self.y.row(i), self.dout.row(i));
            let cells = dx.iter_mut().zip(y.iter().zip(g));
            if self.log {
                let sum: T = g.iter().copied().sum();
                cells.for_each(|(dx, (&y, &g))| assign.put(dx, g - y.exp_with::<A>() * sum));
            } else {
                let sum: T = y.iter().zip(g).map(|(&y, &g)| y * g).sum();
                cells.for_each(|(dx, (&y, &g))| assign.put(dx, (g - sum) * y));
            }
        }
    }
}
