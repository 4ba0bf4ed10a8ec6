//! The element types f32 and f64, and the arithmetic functions that generic kernels and operators may call on elements.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use super::math;
use super::path::Arithmetic;
use super::products::Products;
use super::view::{View, ViewMut};

/// Whether a kernel overwrites its output or adds to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assign {
    /// Overwrites the contents of the output, which may be uninitialised or NaN.
    Write,
    /// Adds the finished result to the contents of the output.
    Add,
}

impl Assign {
    /// Writes one element to `to`, or adds it.
    #[inline(always)]
    pub fn put<T: Float>(self, to: &mut T, value: T) {
        match self {
            Assign::Write => *to = value,
            Assign::Add => *to += value,
        }
    }

    /// Writes one row to `to`, or adds it.
    #[inline]
    pub(crate) fn put_row<T: Float>(self, to: &mut [T], values: &[T]) {
        match self {
            Assign::Write => to.copy_from_slice(values),
            Assign::Add => to.iter_mut().zip(values).for_each(|(to, &value)| *to += value),
        }
    }

    /// Writes all rows of a view to `to`, or adds them.
    pub(crate) fn put_rows<T: Float>(self, mut to: ViewMut<'_, T>, values: View<'_, T>) {
        to.iter_mut().zip(values.iter()).for_each(|(to, values)| self.put_row(to, values));
    }

    /// Writes a result of zeros to the output; in the case of adding, leaves the output unchanged.
    pub(crate) fn put_nothing<T: Float>(self, mut to: ViewMut<'_, T>) {
        if self == Assign::Write {
            to.fill(T::ZERO);
        }
    }
}

/// Returns whether `x` is larger than `best`, for a running maximum. NaN counts as larger than every number, so that a
/// maximum over numbers with a NaN is NaN.
#[inline(always)]
pub fn exceeds<T: Float>(x: T, best: T) -> bool {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    x > best || (is_nan(x) && !is_nan(best))
}

/// The element types: `f32` for training and prediction, `f64` to check `f32` results.
///
/// A method with the name of a `std` function, such as `exp`, calls this function for one element. The methods `exp_with`,
/// `sigmoid_with` and `tanh_with` are for loops. In f32 they are polynomials that the compiler turns into vector code inside a
/// [`super::path::Sweep`]; in f64 they call `std`.
pub trait Float:
    Products
    + Copy
    + Send
    + Sync
    + Default
    + Debug
    + Display
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Negative infinity, the identity of `max`.
    const NEG_INFINITY: Self;
    /// The magnitude below which `flush` sets a number to zero; 0 for a type whose numbers are never
    /// flushed.
    #[doc(hidden)]
    const FLUSH_BELOW: Self;
    /// Whether loops over this type are compiled only for the portable set of instructions
    /// ([`Sweep::PORTABLE`](super::path::Sweep::PORTABLE)).
    #[doc(hidden)]
    const PORTABLE: bool;

    /// Returns the value of this type that is nearest to a number in f64.
    fn from_f64(value: f64) -> Self;
    /// Returns this number as f64, without rounding.
    fn to_f64(self) -> f64;
    /// Returns the value of this type that is nearest to an integer.
    #[doc(hidden)]
    fn from_i32(value: i32) -> Self;
    /// Returns this number without its digits after the point, as an integer; 0 for NaN.
    #[doc(hidden)]
    fn truncated(self) -> i32;
    /// Returns e to the power of this number.
    fn exp(self) -> Self;
    /// Returns the natural logarithm of this number.
    fn ln(self) -> Self;
    /// Returns the square root of this number.
    fn sqrt(self) -> Self;
    /// Returns the hyperbolic tangent of this number.
    fn tanh(self) -> Self;
    /// Returns the magnitude of this number.
    fn abs(self) -> Self;
    /// Returns the larger of two numbers; if one of the two is NaN, returns the other number.
    fn max(self, other: Self) -> Self;
    /// Returns the smaller of two numbers; if one of the two is NaN, returns the other number.
    fn min(self, other: Self) -> Self;
    /// Returns `self·a + b`, rounded once. The method is slow on a CPU without a fused multiply-add; loops use
    /// [`Arithmetic::mul_add`].
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// Returns this number raised to a real power.
    fn powf(self, exponent: Self) -> Self;
    /// Returns this number raised to an integer power.
    fn powi(self, exponent: i32) -> Self;
    /// Returns whether the number is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// Returns e to the power of this number, vectorisable.
    #[doc(hidden)]
    fn exp_with<A: Arithmetic>(self) -> Self;
    /// Returns the logistic function `1 / (1 + exp(-x))`, vectorisable.
    #[doc(hidden)]
    fn sigmoid_with<A: Arithmetic>(self) -> Self;
    /// Returns the hyperbolic tangent of this number, vectorisable.
    #[doc(hidden)]
    fn tanh_with<A: Arithmetic>(self) -> Self;
    /// Returns `1 + exp(-x)`, the denominator of `sigmoid`, vectorisable. Divisions are slow; with the denominator, a
    /// caller can combine several divisions into one.
    #[doc(hidden)]
    fn logistic_with<A: Arithmetic>(self) -> Self;
    /// Returns the numerator and the denominator of `tanh`, vectorisable. The denominator is between 1 and 1e9.
    #[doc(hidden)]
    fn tangent_with<A: Arithmetic>(self) -> (Self, Self);
}

macro_rules! float {
    ($type:ident, $flush:expr, $exp:expr, $tanh:expr, $logistic:expr, $tangent:expr) => {
        impl Float for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $type::NEG_INFINITY;
            const FLUSH_BELOW: Self = $flush;
            const PORTABLE: bool = size_of::<Self>() > size_of::<f32>();

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn from_i32(value: i32) -> Self {
                value as $type
            }
            #[inline(always)]
            fn truncated(self) -> i32 {
                self as i32
            }
            #[inline(always)]
            fn exp(self) -> Self {
                self.exp()
            }
            #[inline(always)]
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                self.tanh()
            }
            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                self.mul_add(a, b)
            }
            #[inline(always)]
            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
            #[inline(always)]
            fn powi(self, exponent: i32) -> Self {
                self.powi(exponent)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            #[inline(always)]
            fn exp_with<A: Arithmetic>(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn sigmoid_with<A: Arithmetic>(self) -> Self {
                Self::ONE / $logistic(self)
            }
            #[inline(always)]
            fn tanh_with<A: Arithmetic>(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn logistic_with<A: Arithmetic>(self) -> Self {
                $logistic(self)
            }
            #[inline(always)]
            fn tangent_with<A: Arithmetic>(self) -> (Self, Self) {
                $tangent(self)
            }
        }
    };
}

float!(f32, 1e-30, math::exp::<A>, math::tanh::<A>, math::logistic::<A>, math::tangent::<A>);
float!(f64, 0.0, f64::exp, f64::tanh, |x: f64| 1.0 + (-x).exp(), |x: f64| (x.tanh(), 1.0));
