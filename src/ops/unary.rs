//! The machinery of the element-by-element families: one operator for any [`Function`].

use crate::error::Result;
use crate::kernels::{Arithmetic, Float, Store, Sweep, View, ViewMut, sweep};
use crate::program::{
    Attributes, Backward, Facts, Forward, InferShape, Needs, Op, RowValue, Sample, Signature, Slot,
};
use crate::with_float;

use super::rowwise::row_samples;

const X: usize = 0;
const OUT: usize = 0;

/// What the derivative is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// It is a constant.
    Nothing,
    /// The argument.
    Input,
    /// The value.
    Output,
}

/// A function of one number, and its derivative.
pub(super) trait Function: Copy + Send + Sync + 'static {
    /// The operator's kind.
    const KIND: &'static str;
    /// What [`Self::slope`] is given.
    const SLOPE_FROM: From;
    /// Reads the parameters of the function.
    fn parse(attributes: &Attributes) -> Result<Self>;
    /// Parameters that a sample uses.
    fn sample() -> Attributes;
    /// Whether it takes only positive numbers.
    fn positive() -> bool;
    /// The value at `x`.
    fn value<T: Float, A: Arithmetic>(self, x: T) -> T;
    /// The derivative, from what [`Self::SLOPE_FROM`] says.
    fn slope<T: Float, A: Arithmetic>(self, from: T) -> T;
}

/// A [`Function`] of every element, as an operator.
pub(super) struct Unary<F>(F);

impl<F: Function> Op for Unary<F> {
    fn kind() -> &'static str {
        F::KIND
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        F::parse(attributes).map(Self)
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
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
            let (x, mut out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
            sweep(Values { function: self.0, x, out: out.reborrow() });
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<F, T>(self.0, run))
    }

    fn needs(&self, _: usize) -> Needs {
        match F::SLOPE_FROM {
            From::Nothing => Needs::nothing(),
            From::Input => Needs::nothing().input(X),
            From::Output => Needs::nothing().output(OUT),
        }
    }

    fn samples() -> Vec<Sample> {
        row_samples(&F::sample(), 3, |mut sample, _| {
            if F::positive() {
                for number in sample.operands[0].value.as_mut_slice::<f64>()? {
                    *number = number.abs() + 0.25;
                }
            }
            Ok(sample)
        })
    }
}

fn backward<F: Function, T: RowValue>(function: F, run: &mut Backward<'_>) -> Result<()> {
    let (Some((dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) else {
        return Ok(());
    };
    let from = match F::SLOPE_FROM {
        From::Nothing => dout,
        From::Input => run.input::<T>(X)?,
        From::Output => run.output::<T>(OUT)?,
    };
    sweep(Slopes { function, from, dout, dx, store });
    Ok(())
}

/// out = f(x).
struct Values<'a, F, T> {
    function: F,
    x: View<'a, T>,
    out: ViewMut<'a, T>,
}

impl<F: Function, T: Float> Sweep for Values<'_, F, T> {
    type Output = ();

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
    store: Store,
}

impl<F: Function, T: Float> Sweep for Slopes<'_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (i, dx) in self.dx.iter_mut().enumerate() {
            let values = dx.iter_mut().zip(self.from.row(i)).zip(self.dout.row(i));
            match self.store {
                Store::Write => {
                    values.for_each(|((dx, &from), &g)| *dx = g * self.function.slope::<T, A>(from))
                }
                Store::Add => {
                    values.for_each(|((dx, &from), &g)| *dx += g * self.function.slope::<T, A>(from))
                }
            }
        }
    }
}

/// Declares functions of one number: for each the type, the operator's kind, and the builder method of that name.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident = fn $kind:ident($($parameter:ident = $sample:literal),*) $(where $positive:ident)?
            value |$f:pat_param, $x:pat_param| $value:expr;
            slope |$g:pat_param, $from:ident: $source:ident| $slope:expr;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(super) struct $name {
                $($parameter: f64,)*
            }

            impl $crate::ops::unary::Function for $name {
                const KIND: &'static str = stringify!($kind);
                const SLOPE_FROM: $crate::ops::unary::From = $crate::ops::unary::From::$source;

                fn parse(_attributes: &Attributes) -> Result<Self> {
                    Ok(Self { $($parameter: _attributes.float(stringify!($parameter))?,)* })
                }

                fn sample() -> Attributes {
                    Attributes::new()$(.with(stringify!($parameter), $sample))*
                }

                fn positive() -> bool {
                    [$(stringify!($positive))?].contains(&"positive")
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

        impl Builder {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If `x` holds no floats.
                #[track_caller]
                pub fn $kind(&self, x: Var $(, $parameter: f64)*) -> Result<Var> {
                    let attributes = Attributes::new()$(.with(stringify!($parameter), $parameter))*;
                    self.append1(stringify!($kind), &[("x", &[x])], attributes)
                }
            )*
        }
    };
}
pub(super) use functions;
