//! Functions of one number, applied to every element: `tanh`, `sigmoid`, `relu` and similar activations, `exp`, `log`, `sqrt`,
//! `square`, `reciprocal`, `abs`, `scale`, `clamp`.
//!
//! Each operator computes out = f(x), element by element, for any shape; the output has the LoD of x. The gradient of x is dout
//! · f′(x), where dout is the output's gradient. If the derivative f′ can be computed from the output, the backward pass does
//! not read x, so that the buffer of x can be reused. At x = 0, `relu` and `leaky_relu` use the derivative for negative x,
//! and `abs` uses the derivative 0; `clamp` passes the gradient where x is between the bounds or equal to a bound. Outside of
//! the domain of a function, the output is the IEEE 754 result: log(0) = -inf, sqrt(-1) = NaN, 1/0 = inf.

use super::unary::functions;
use crate::ops::prelude::*;

functions! {
    /// The hyperbolic tangent of every element: out = (e^x − e^-x) / (e^x + e^-x).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let tanh = ops::catalogue().parse("tanh", &Attributes::new())?;
    /// let out = tanh.call(&[Operand::constant("x", array![0.0, 1.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.0, 0.761594]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Tanh = fn tanh()
        value |_, x| x.tanh_with::<A>();
        slope |_, y: Output| T::ONE - y * y;

    /// The sigmoid of every element: out = 1 / (1 + e^-x).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let sigmoid = ops::catalogue().parse("sigmoid", &Attributes::new())?;
    /// let out = sigmoid.call(&[Operand::constant("x", array![0.0, 1.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.5, 0.731059]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[doc(alias = "logistic")]
    Sigmoid = fn sigmoid()
        value |_, x| x.sigmoid_with::<A>();
        slope |_, y: Output| y * (T::ONE - y);

    /// The rectified linear unit (ReLU) of every element: out = max(x, 0). If x is NaN, out is NaN.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[-1.0, 2.0], [3.0, -4.0], [0.0, 5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let relu = ops::catalogue().parse("relu", &Attributes::new())?;
    /// let out = relu.call(&[Operand::batch("x", x.clone())])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 2.0, 3.0, 0.0, 0.0, 5.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Relu = fn relu()
        // If x is NaN, the comparison `x <= 0` is false, so that the output is NaN too.
        value |_, x| if x <= T::ZERO { T::ZERO } else { x };
        slope |_, y: Output| if y <= T::ZERO { T::ZERO } else { T::ONE };

    /// Leaky ReLU of every element: out = x where x is positive, else alpha · x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let leaky_relu = ops::catalogue().parse("leaky_relu", &Attributes::new().with("alpha", 0.25))?;
    /// let out = leaky_relu.call(&[Operand::constant("x", array![-4.0, 2.0])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [-1.0, 2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    LeakyRelu = fn leaky_relu(alpha = 0.1)
        value |f, x| if x > T::ZERO { x } else { x * T::from_f64(f.alpha) };
        slope |f, x: Input| if x > T::ZERO { T::ONE } else { T::from_f64(f.alpha) };

    /// Exponential linear unit (ELU) of every element: out = x where x is positive, else alpha · (e^x − 1).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let elu = ops::catalogue().parse("elu", &Attributes::new().with("alpha", 1.0))?;
    /// let out = elu.call(&[Operand::constant("x", array![-1.0, 2.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([-0.632121, 2.0]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Elu = fn elu(alpha = 0.7)
        value |f, x| if x > T::ZERO { x } else { T::from_f64(f.alpha) * (x.exp_with::<A>() - T::ONE) };
        slope |f, x: Input| if x > T::ZERO { T::ONE } else { T::from_f64(f.alpha) * x.exp_with::<A>() };

    /// Softplus of every element: out = ln(1 + e^x), without overflow for large x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let softplus = ops::catalogue().parse("softplus", &Attributes::new())?;
    /// let out = softplus.call(&[Operand::constant("x", array![0.0, 1000.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.693147, 1000.0]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Softplus = fn softplus()
        value |_, x| x.max(T::ZERO) + log_of_one_more((-x.abs()).exp_with::<A>());
        slope |_, x: Input| x.sigmoid_with::<A>();

    /// Softsign of every element: out = x / (1 + |x|).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let softsign = ops::catalogue().parse("softsign", &Attributes::new())?;
    /// let out = softsign.call(&[Operand::constant("x", array![-3.0, 1.0])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [-0.75, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Softsign = fn softsign()
        value |_, x| x / (T::ONE + x.abs());
        slope |_, x: Input| {
            let d = T::ONE + x.abs();
            T::ONE / (d * d)
        };

    /// SiLU (swish) of every element: out = x · sigmoid(x).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let silu = ops::catalogue().parse("silu", &Attributes::new())?;
    /// let out = silu.call(&[Operand::constant("x", array![0.0, 1.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.0, 0.731059]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[doc(alias = "swish")]
    Silu = fn silu()
        value |_, x| x * x.sigmoid_with::<A>();
        slope |_, x: Input| {
            let s = x.sigmoid_with::<A>();
            s * (T::ONE + x * (T::ONE - s))
        };

    /// GELU of every element: x · Φ(x), where Φ is the distribution function of the standard normal distribution. The
    /// operator computes the tanh approximation: out = x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let gelu = ops::catalogue().parse("gelu", &Attributes::new())?;
    /// let out = gelu.call(&[Operand::constant("x", array![0.0, 1.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.0, 0.841192]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Gelu = fn gelu()
        value |_, x| {
            let half = T::from_f64(0.5);
            half * x * (T::ONE + gelu_inner(x).tanh_with::<A>())
        };
        slope |_, x: Input| {
            let half = T::from_f64(0.5);
            let t = gelu_inner(x).tanh_with::<A>();
            let inner = T::from_f64(ROOT_2_OVER_PI) * (T::ONE + T::from_f64(3.0 * GELU_CUBIC) * x * x);
            half * (T::ONE + t) + half * x * (T::ONE - t * t) * inner
        };

    /// The exponential of every element: out = e^x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let exp = ops::catalogue().parse("exp", &Attributes::new())?;
    /// let out = exp.call(&[Operand::constant("x", array![0.0, 1.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([1.0, 2.718282]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Exp = fn exp()
        value |_, x| x.exp_with::<A>();
        slope |_, y: Output| y;

    /// The natural logarithm of every element: out = ln x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let log = ops::catalogue().parse("log", &Attributes::new())?;
    /// let out = log.call(&[Operand::constant("x", array![1.0, 10.0])])?;
    /// for (out, near) in out[0].as_slice::<f64>()?.iter().zip([0.0, 2.302585]) {
    ///     assert!((out - near).abs() < 1e-6);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[doc(alias = "ln")]
    Log = fn log() where positive
        value |_, x| x.ln();
        slope |_, x: Input| T::ONE / x;

    /// The square root of every element: out = √x.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let sqrt = ops::catalogue().parse("sqrt", &Attributes::new())?;
    /// let out = sqrt.call(&[Operand::constant("x", array![0.0, 6.25])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 2.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Sqrt = fn sqrt() where positive
        value |_, x| x.sqrt();
        slope |_, y: Output| T::from_f64(0.5) / y;

    /// The square of every element: out = x².
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let square = ops::catalogue().parse("square", &Attributes::new())?;
    /// let out = square.call(&[Operand::constant("x", array![-3.0, 0.5])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [9.0, 0.25]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Square = fn square()
        value |_, x| x * x;
        slope |_, x: Input| x + x;

    /// The reciprocal of every element: out = 1 / x; the expression `c / x` appends `reciprocal`, then `scale`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[2.0, -4.0], [0.5, 1.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let reciprocal = ops::catalogue().parse("reciprocal", &Attributes::new())?;
    /// assert_eq!(reciprocal.call(&[Operand::batch("x", x)])?[0].as_slice::<f64>()?, [0.5, -0.25, 2.0, 1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Reciprocal = fn reciprocal() where positive
        value |_, x| T::ONE / x;
        slope |_, y: Output| -(y * y);

    /// The absolute value of every element: out = |x|.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let abs = ops::catalogue().parse("abs", &Attributes::new())?;
    /// let out = abs.call(&[Operand::constant("x", array![-3.0, 0.5])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [3.0, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Abs = fn abs()
        value |_, x| x.abs();
        slope |_, x: Input| if x > T::ZERO { T::ONE } else if x < T::ZERO { -T::ONE } else { T::ZERO };

    /// Scales and shifts every element: out = factor · x + offset; the expressions `2.0 * x`, `x + 1.0` and `-x` append this
    /// operator.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[-1.0, 2.0], [3.0, -4.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let scale = ops::catalogue().parse("scale", &Attributes::new().with("factor", 2.0).with("offset", 1.0))?;
    /// assert_eq!(scale.call(&[Operand::batch("x", x)])?[0].as_slice::<f64>()?, [-1.0, 5.0, 7.0, -7.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Scale = fn scale(factor = -1.5, offset = 0.25)
        value |f, x| x * T::from_f64(f.factor) + T::from_f64(f.offset);
        slope |f, _g: Nothing| T::from_f64(f.factor);

    /// Clamps every element to the range from `low` to `high`: out = min(max(x, low), high). If x is NaN, out is NaN. It is an
    /// error if `low` is above `high`, or if a bound is NaN.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let clamp = ops::catalogue().parse("clamp", &Attributes::new().with("low", -1.0).with("high", 1.0))?;
    /// let out = clamp.call(&[Operand::constant("x", array![-3.0, 0.5, 7.0])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[doc(alias = "clip")]
    Clamp = fn clamp(low = -0.6, high = 0.9 => at_least_low)
        value |f, x| {
            let (low, high) = (T::from_f64(f.low), T::from_f64(f.high));
            if x < low { low } else if x > high { high } else { x }
        };
        slope |f, x: Input| {
            let (low, high) = (T::from_f64(f.low), T::from_f64(f.high));
            if x < low || x > high { T::ZERO } else { T::ONE }
        };
}

/// Reads the attribute `high`, the upper bound; returns an error if `low` is above `high` or if a bound is NaN.
fn at_least_low(attributes: &Attributes, name: &str) -> Result<f64> {
    let (low, high) = (attributes.float("low")?, attributes.float(name)?);
    if low <= high {
        return Ok(high);
    }
    let expected = "two numbers, the first not above the second";
    Err(Error::new("attributes `low` and `high`", expected, format!("{low} and {high}")))
}

const ROOT_2_OVER_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const GELU_CUBIC: f64 = 0.044_715;

#[inline(always)]
fn gelu_inner<T: Float>(x: T) -> T {
    T::from_f64(ROOT_2_OVER_PI) * (x + T::from_f64(GELU_CUBIC) * x * x * x)
}

/// Computes ln(1 + x) for x from 0 to 1. The factor x / ((1 + x) − 1) corrects the rounding of 1 + x.
#[inline(always)]
fn log_of_one_more<T: Float>(x: T) -> T {
    let u = T::ONE + x;
    if u == T::ONE { x } else { u.ln() * x / (u - T::ONE) }
}
