//! The generic operator for functions of one number: it applies any [`Function`] to every element.

use crate::ops::prelude::*;

const X: usize = 0;
const OUT: usize = 0;

/// The number from which [`Function::slope`] computes the derivative: none, the argument or the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum SlopeSource {
    /// No number, because the derivative is a constant.
    Nothing,
    /// The argument x of the function.
    Input,
    /// The value f(x) of the function.
    Output,
}

/// A function of one number, and the derivative of the function.
pub(in crate::ops) trait Function: DeclaredOp + Copy {
    /// The number that [`Self::slope`] receives: x, f(x) or none.
    const SLOPE_FROM: SlopeSource;
    /// Whether the check cases have only positive arguments, because the function or its derivative is not defined for
    /// every number.
    const POSITIVE: bool;
    /// Returns the attributes of the operator in the function's check cases.
    fn sample() -> Attributes;
    fn value<T: Float, A: Arithmetic>(self, x: T) -> T;
    /// Computes the derivative from the number that [`Self::SLOPE_FROM`] names.
    fn slope<T: Float, A: Arithmetic>(self, from: T) -> T;
}

/// An operator that applies a [`Function`] to every element of a variable.
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

/// The kernels that compute a [`Function`] and its derivative for all rows of a variable. The kernels are called through `dyn`,
/// so that the code of the callers is compiled once for all functions.
pub(in crate::ops) trait OverViews<T>: Send + Sync {
    /// Writes out = f(x) for every element.
    fn values(&self, x: View<'_, T>, out: ViewMut<'_, T>);
    /// Writes dx = dout · f' for every element, or adds dout · f' to dx.
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

/// The loop that writes out = f(x) for every element.
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

/// The loop that writes dx = dout · f' for every element, or adds dout · f' to dx.
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

/// Declares functions of one number as operators. Each entry has the documentation, a type, a method, the value, the
/// derivative and the parameters. Each parameter has the value that the check cases use. A parameter with a limited
/// range also has the function that reads and checks the attribute.
macro_rules! functions {
    ($(
        $(#[doc = $text:literal])*
        $(#[doc(alias = $alias:literal)])?
        $type:ident = fn $kind:ident($($parameter:ident = $sample:literal $(=> $read:path)?),*) $(where $positive:ident)?
            value |$f:pat_param, $x:pat_param| $value:expr;
            slope |$g:pat_param, $from:ident: $source:ident| $slope:expr;
    )*) => {
        /// The operators of this file.
        pub(super) const OPERATORS: $crate::ops::family::OperatorList = entries![$($crate::ops::elementwise::unary::Unary<$type>),*];

        $(
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
        )*
    };
}
pub(in crate::ops) use functions;
