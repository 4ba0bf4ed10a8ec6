//! The machinery of the element-by-element family: an operator for any [`Function`].

use crate::error::Result;
use crate::kernels::{Arithmetic, Assign, Float, Sweep, View, ViewMut, sweep};
use crate::operator::{
    Attributes, Backward, CheckCase, DeclaredOp, Forward, Gradient, InferShape, Op, RowValue, Spec,
};
use crate::with_float;

/// The slots of all operators in this file.
const X: usize = 0;
const OUT: usize = 0;

/// The number from which the derivative of a function is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum SlopeSource {
    /// No number: the derivative is a constant.
    Nothing,
    /// The argument x.
    Input,
    /// The value f(x).
    Output,
}

/// A function of one number, and its derivative.
pub(in crate::ops) trait Function: DeclaredOp + Copy {
    /// The number that [`Self::slope`] receives.
    const SLOPE_FROM: SlopeSource;
    /// Whether the check cases use only positive arguments, because the function needs them.
    const POSITIVE: bool;
    /// Returns the attributes of the function's check cases.
    fn sample() -> Attributes;
    /// Computes the value at `x`.
    fn value<T: Float, A: Arithmetic>(self, x: T) -> T;
    /// Computes the derivative from the number that [`Self::SLOPE_FROM`] names.
    fn slope<T: Float, A: Arithmetic>(self, from: T) -> T;
}

/// A [`Function`] of every element, as an operator.
pub(in crate::ops) struct Unary<F>(F);
family!(Unary);

impl<F: Function> Op for Unary<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            self.0.values(run.input::<T>(X)?, run.output::<T>(OUT)?);
            Ok(())
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        match F::SLOPE_FROM {
            SlopeSource::Nothing => Gradient::reads_nothing(),
            SlopeSource::Input => Gradient::reads_nothing().input(X),
            SlopeSource::Output => Gradient::reads_nothing().output(OUT),
        }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => slopes::<T>(run, &self.0, F::SLOPE_FROM))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples(&F::sample(), F::POSITIVE)
    }
}

fn samples(attributes: &Attributes, positive: bool) -> Result<Vec<CheckCase>> {
    CheckCase::of_rows(attributes, 3, |mut sample, _| {
        if positive {
            for number in sample.operands[0].value.as_mut_slice::<f64>()? {
                *number = number.abs() + 0.25;
            }
        }
        Ok(sample)
    })
}

fn slopes<T: RowValue>(run: &mut Backward<'_>, function: &dyn OverViews<T>, from: SlopeSource) -> Result<()> {
    let (Some((dx, assign)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) else {
        return Ok(());
    };
    let from = match from {
        SlopeSource::Nothing => dout,
        SlopeSource::Input => run.input::<T>(X)?,
        SlopeSource::Output => run.output::<T>(OUT)?,
    };
    function.slopes(from, dout, dx, assign);
    Ok(())
}

/// The kernels of a [`Function`]. Callers hold a `dyn`, so that their code is compiled once for all functions.
pub(in crate::ops) trait OverViews<T>: Send + Sync {
    /// out = f(x).
    fn values(&self, x: View<'_, T>, out: ViewMut<'_, T>);
    /// dx = dout · f', or dx += dout · f'.
    fn slopes(&self, from: View<'_, T>, dout: View<'_, T>, dx: ViewMut<'_, T>, assign: Assign);
}

impl<F: Function, T: Float> OverViews<T> for F {
    fn values(&self, x: View<'_, T>, out: ViewMut<'_, T>) {
        sweep(Values { function: *self, x, out });
    }

    fn slopes(&self, from: View<'_, T>, dout: View<'_, T>, dx: ViewMut<'_, T>, assign: Assign) {
        sweep(Slopes { function: *self, from, dout, dx, assign });
    }
}

/// out = f(x).
struct Values<'a, F, T> {
    function: F,
    x: View<'a, T>,
    out: ViewMut<'a, T>,
}

impl<F: Function, T: Float> Sweep for Values<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (out, x) in self.out.iter_mut().zip(self.x.iter()) {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = self.function.value::<T, A>(x);
            }
        }
    }
}

/// dx = dout · f'.
struct Slopes<'a, F, T> {
    function: F,
    from: View<'a, T>,
    dout: View<'a, T>,
    dx: ViewMut<'a, T>,
    assign: Assign,
}

impl<F: Function, T: Float> Sweep for Slopes<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (i, dx) in self.dx.iter_mut().enumerate() {
            let values = dx.iter_mut().zip(self.from.row(i)).zip(self.dout.row(i));
            match self.assign {
                Assign::Write => {
                    for ((dx, &from), &g) in values {
                        *dx = g * self.function.slope::<T, A>(from);
                    }
                }
                Assign::Add => {
                    for ((dx, &from), &g) in values {
                        *dx += g * self.function.slope::<T, A>(from);
                    }
                }
            }
        }
    }
}

/// Declares functions of one number as operators. Each has its documentation, a type, a method, the parameters with their values
/// in check cases (and a reader function if the range is limited), the value and the derivative.
macro_rules! functions {
    ($(
        $(#[doc = $text:literal])*
        $(#[doc(alias = $alias:literal)])?
        $type:ident = fn $kind:ident($($parameter:ident = $sample:literal $(=> $read:path)?),*) $(where $positive:ident)?
            value |$f:pat_param, $x:pat_param| $value:expr;
            slope |$g:pat_param, $from:ident: $source:ident| $slope:expr;
    )*) => {$(
        $crate::operator! {
            $(#[doc = $text])*
            ///
            /// # Errors
            /// It is an error if `x` holds no floats.
            $(#[doc(alias = $alias)])?
            #[derive(Clone, Copy)]
            pub(in crate::ops) struct $type = $kind { $($parameter: f64 $(=> $read)?),* }
            inputs { X = x: one }
            outputs { OUT = out: one }
            impl Builder, Var { fn $kind(&self, x: Var $(, $parameter: f64)*) -> Var; }
        }

        impl $crate::ops::elementwise::unary::Function for $type {
            const SLOPE_FROM: $crate::ops::elementwise::unary::SlopeSource = $crate::ops::elementwise::unary::SlopeSource::$source;

            const POSITIVE: bool = !concat!("", $(stringify!($positive))?).is_empty();

            fn sample() -> Attributes {
                Self { $($parameter: $sample),* }.attributes()
            }

            #[inline(always)]
            fn value<T: Float, A: Arithmetic>(self, $x: T) -> T {
                let $f = self;
                $value
            }

            #[inline(always)]
            fn slope<T: Float, A: Arithmetic>(self, $from: T) -> T {
                let $g = self;
                $slope
            }
        }
    )*};
}
pub(in crate::ops) use functions;
