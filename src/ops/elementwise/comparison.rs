//! Comparisons: `greater`, `greater_equal`, `less`, `less_equal`, `equal`, `not_equal`; out is 1 where the comparison is true,
//! else 0.

use super::arithmetic::{meeting, together};
use crate::ops::prelude::*;
use crate::program::Term;

const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

pub(in crate::ops) trait Comparison: DeclaredOp {
    /// Returns the constant number that x is compared with; `None` if x is compared with the variable y.
    fn number(&self) -> Option<f64>;
    /// Returns whether the comparison of `x` with `y` is true.
    fn holds<T: PartialOrd>(x: T, y: T) -> bool;
}

/// Declares comparisons. Each entry has the first sentence of the operator's documentation, a type, a method and a condition.
macro_rules! comparisons {
    ($(
        $(#[doc = $text:literal])*
        $type:ident = fn $kind:ident |$x:ident, $y:ident| $holds:expr;
    )*) => {
        /// The operators of this file.
        pub(super) const OPERATORS: $crate::ops::family::OperatorList = entries![$(ComparisonOp<$type>),*];

        $(
        $crate::operator! {
            $(#[doc = $text])*
            /// The output has the dtype of x, so that x can be multiplied by the output as a mask. No gradient passes through a
            /// comparison. NaN is compared as in Rust: NaN is not equal to, less than or greater than any number or NaN.
            ///
            /// x holds f32, f64, i32 or i64; y is a variable of the same dtype, or a number. If y is a variable, x and y have
            /// the same number of rows and the same LoD, or one operand is a constant: a vector or one number, which is
            /// broadcast over the rows of the other operand. An operand of width 1 is broadcast over the columns. The
            /// output has the number of rows and the LoD of the operand that is not broadcast over rows, and the width
            /// of the wider operand. If y is a number, it is converted to the dtype of x: for floats it is rounded; for
            /// integers it must be a whole number in the range of the dtype.
            ///
            /// # Errors
            /// It is an error if the numbers of rows, the LoDs, the widths or the dtypes of x and y do not match.
            pub(in crate::ops) struct $type = $kind { number: Option<f64> }
            inputs { X = x: one.without_gradient(), Y = y: optional.without_gradient() }
            outputs { OUT = out: one.without_gradient() }
            impl Builder, Var {
                fn $kind(&self, x: Var, y: impl Into<Term>) -> Var {
                    let term: Term = y.into();
                    let (y, number) = (term.var(), term.number());
                }
            }
        }

        impl Comparison for $type {
            fn number(&self) -> Option<f64> {
                self.number
            }

            #[inline(always)]
            fn holds<T: PartialOrd>($x: T, $y: T) -> bool {
                $holds
            }
        }
        )*
    };
}

comparisons! {
    /// Compares x > y, element by element: out is 1 where x > y, else 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let greater = ops::catalogue().parse("greater", &Attributes::new().with("number", 2.0))?;
    /// let out = greater.call(&[Operand::batch("x", x.clone())])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 0.0, 1.0, 1.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// let greater = ops::catalogue().parse("greater", &Attributes::new())?;
    /// let every_row = Operand::constant("y", array![0.0, 3.0]);
    /// assert_eq!(greater.call(&[Operand::batch("x", x), every_row])?[0].as_slice::<f64>()?, [1.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Greater = fn greater |x, y| x > y;

    /// Compares x ≥ y, element by element: out is 1 where x ≥ y, else 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let greater_equal = ops::catalogue().parse("greater_equal", &Attributes::new().with("number", 2.0))?;
    /// let out = greater_equal.call(&[Operand::constant("x", array![1i64, 2, 3])])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [0, 1, 1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    GreaterEqual = fn greater_equal |x, y| x >= y;

    /// Compares x < y, element by element: out is 1 where x < y, else 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let less = ops::catalogue().parse("less", &Attributes::new().with("number", 2.0))?;
    /// let out = less.call(&[Operand::constant("x", array![1i64, 2, 3])])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 0, 0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Less = fn less |x, y| x < y;

    /// Compares x ≤ y, element by element: out is 1 where x ≤ y, else 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let less_equal = ops::catalogue().parse("less_equal", &Attributes::new().with("number", 2.0))?;
    /// let out = less_equal.call(&[Operand::constant("x", array![1i64, 2, 3])])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 1, 0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    LessEqual = fn less_equal |x, y| x <= y;

    /// Compares x = y, element by element: out is 1 where x = y, else 0.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![7i64, 0], vec![], vec![0]])?;
    /// let equal = ops::catalogue().parse("equal", &Attributes::new().with("number", 0.0))?;
    /// assert_eq!(equal.call(&[Operand::batch("x", ids)])?[0].as_slice::<i64>()?, [0, 1, 1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Equal = fn equal |x, y| x == y;

    /// Compares x ≠ y, element by element: out is 1 where x ≠ y, else 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let not_equal = ops::catalogue().parse("not_equal", &Attributes::new().with("number", 2.0))?;
    /// let out = not_equal.call(&[Operand::constant("x", array![1i64, 2, 3])])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [1, 0, 1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    NotEqual = fn not_equal |x, y| x != y;
}

/// The number types that a [`Comparison`] accepts: floats and integers.
trait Number: Plain + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    /// Returns the value of this number type that is nearest to `number`, which is the constant operand of a comparison.
    fn nearest(number: f64) -> Self;
}

macro_rules! numbers_of {
    ($($type:ident),*) => {$(
        impl Number for $type {
            const ZERO: Self = 0 as $type;
            const ONE: Self = 1 as $type;

            fn nearest(number: f64) -> Self {
                number as $type
            }
        }
    )*};
}
numbers_of!(f32, f64, i32, i64);

/// Returns whether the integer dtype `dtype` can represent `number` exactly.
fn among(dtype: DType, number: f64) -> bool {
    let bits = if dtype == DType::I32 { 31 } else { 63 };
    let bound = 2f64.powi(bits);
    number.fract() == 0.0 && (-bound..bound).contains(&number)
}

/// An operator that applies a [`Comparison`] to every element.
pub(in crate::ops) struct ComparisonOp<F>(F);
family!(ComparisonOp);

impl<F: Comparison> Op for ComparisonOp<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        infer_shape(s, self.0.number())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let number = self.0.number();
        match run.dtype(X) {
            DType::F32 => compare::<f32>(run, number, masks::<F, f32>),
            DType::F64 => compare::<f64>(run, number, masks::<F, f64>),
            DType::I32 => compare::<i32>(run, number, masks::<F, i32>),
            _ => compare::<i64>(run, number, masks::<F, i64>),
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples()
    }
}

fn infer_shape(s: &mut InferShape<'_>, number: Option<f64>) -> Result<()> {
    s.dtype_in(X, &[DType::F32, DType::F64, DType::I32, DType::I64])?;
    let out = match (s.optional(Y).is_some(), number) {
        (true, None) => together(s)?,
        (false, Some(number)) => {
            let dtype = s.input(X).dtype;
            if !dtype.is_float() && !among(dtype, number) {
                let expected = format!("a whole number that fits {dtype}, the dtype of `x`");
                let what = "attribute `number`";
                return Err(Error::of(ErrorKind::Program, what, expected, number.to_string()));
            }
            s.input(X).clone()
        }
        (given, _) => {
            let got = if given { "both" } else { "neither" };
            let what = "what `x` is compared with";
            return Err(Error::of(ErrorKind::Program, what, "a variable `y` or a `number`", got));
        }
    };
    s.set(OUT, out);
    Ok(())
}

/// Returns the check cases of every comparison. The function is not generic, so that it is compiled only once.
#[cfg(feature = "testing")]
fn samples() -> Result<Vec<CheckCase>> {
    let none = Attributes::new();
    // The numbers are multiples of 1/2: some are equal, and f32 represents each exactly.
    let halves = |rows, width, salt| numbers(rows, width, salt).mapv(|v| (2.0 * v).round() / 2.0);
    let rounded = |mut sample: CheckCase| -> Result<CheckCase> {
        for number in sample.operands[0].value.as_mut_slice::<f64>()? {
            *number = (2.0 * *number).round() / 2.0;
        }
        Ok(sample)
    };
    let beside = |sample: CheckCase, x: &Variable, width| -> Result<CheckCase> {
        let y = Variable::from(halves(x.rows(), width, 1)).with_lod(x.lod().cloned())?;
        let sample = rounded(sample)?;
        Ok(if sample.operands[0].batched { sample.batch("y", y) } else { sample.constant("y", y) })
    };
    let mut samples = CheckCase::of_rows(&none, 3, |sample, x| beside(sample, x, 3))?;
    samples.extend(CheckCase::of_rows(&none, 3, |sample, x| beside(sample, x, 1))?);
    samples.extend(CheckCase::of_rows(&none, 3, |sample, _| {
        Ok(rounded(sample)?.constant("y", halves(1, 3, 1).remove_axis(ndarray::Axis(0))))
    })?);
    // Here x is a constant that is broadcast over the rows of y.
    samples.extend(CheckCase::of_rows(&none, 3, |sample, _| {
        let mut sample = rounded(sample)?;
        sample.operands[0].slot = "y".to_owned();
        Ok(sample.constant("x", halves(1, 1, 1)))
    })?);
    let number = none.clone().with("number", 0.5);
    samples.extend(CheckCase::of_rows(&number, 3, |sample, _| rounded(sample))?);
    let lod = Lod::from_lengths1(&[2, 0, 1])?;
    let ids = |ids: [i64; 3]| Variable::sequences(ndarray::arr1(&ids), lod.clone());
    let large = (1 << 53) + 1;
    samples.push(
        CheckCase::new("ids", none.clone())
            .batch("x", ids([large, 0, 2])?)
            .batch("y", ids([large - 1, 0, 3])?),
    );
    samples.push(
        CheckCase::new("ids and a number", none.clone().with("number", 2.0)).batch("x", ids([2, 0, 3])?),
    );
    let short = Variable::sequences(ndarray::array![3i32, -1, 2], lod.clone())?;
    samples.push(CheckCase::new("i32", none.with("number", 2.0)).batch("x", short));
    Ok(samples)
}

fn compare<T: Number>(run: &mut Forward<'_>, number: Option<f64>, masks: Masks<T>) -> Result<()> {
    let nearest = [T::nearest(number.unwrap_or_default())];
    let x = run.input::<T>(X)?;
    let y = match number {
        Some(_) => View::new(&nearest, 1, 1),
        None => run.input::<T>(Y)?,
    };
    masks(x, y, run.output::<T>(OUT)?);
    Ok(())
}

/// The kernel of a [`Comparison`]: computes out = 1 where the comparison is true, else 0.
type Masks<T> = fn(x: View<'_, T>, y: View<'_, T>, out: ViewMut<'_, T>);

fn masks<F: Comparison, T: Number>(x: View<'_, T>, y: View<'_, T>, out: ViewMut<'_, T>) {
    sweep(Rows { holds: F::holds::<T>, x, y, out });
}

/// A loop that computes each row of the output from a row of x and a row of y.
struct Rows<'a, F, T> {
    holds: F,
    x: View<'a, T>,
    y: View<'a, T>,
    out: ViewMut<'a, T>,
}

impl<F: Fn(T, T) -> bool, T: Number> Sweep for Rows<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = size_of::<T>() > size_of::<f32>();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Rows { holds, x, y, mut out } = self;
        let rows = out.rows();
        let mask = |x: T, y: T| if holds(x, y) { T::ONE } else { T::ZERO };
        for (i, out) in out.iter_mut().enumerate() {
            let (x, y) = (meeting(x, i, rows), meeting(y, i, rows));
            let n = out.len();
            match (x.len() == n, y.len() == n) {
                (true, true) => {
                    for i in 0..n {
                        out[i] = mask(x[i], y[i]);
                    }
                }
                (true, false) => {
                    let y = y[0];
                    for i in 0..n {
                        out[i] = mask(x[i], y);
                    }
                }
                (false, _) => {
                    let x = x[0];
                    for i in 0..n {
                        out[i] = mask(x, y[i]);
                    }
                }
            }
        }
    }
}
