//! Losses for regression, `squared_error` and `huber`, and for distributions, `kl_divergence`.

use super::pointwise::{Pointwise, Weights};
use crate::ops::feature::norm::above_zero;
use crate::ops::prelude::*;

operator! {
    /// Computes the mean squared error of each row: loss_i = Σ_j (x_ij − y_ij)² / n, over the n columns.
    ///
    /// Each row has its own loss: `x` and `y` have the same number of rows, the same width and the same LoD. The loss
    /// `[rows, 1]` keeps this LoD. A row without columns has the loss 0. The `mean` of this loss is the mean squared
    /// error over all elements of the batch. The gradient passes to `x` and to `y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 3.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[1.0, 4.0], [0.0, 3.0]], lod)?;
    /// let op = ops::catalogue().parse("squared_error", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 4.5]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    #[doc(alias = "mse")]
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct SquaredError = squared_error {}
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn squared_error(&self, x: Var, y: Var) -> Var; }
}

impl Pointwise for SquaredError {
    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        (x - y) * (x - y)
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        (x - y) + (x - y)
    }
    #[inline(always)]
    fn dy<T: Float, A: Arithmetic>(self, x: T, y: T) -> T {
        (y - x) + (y - x)
    }
    fn sample() -> Attributes {
        SquaredError {}.attributes()
    }
}

operator! {
    /// Computes the mean Huber loss of each row, which is robust to outliers. With d_j = x_ij − y_ij and n columns:
    /// loss_i = Σ_j h(d_j) / n, where h(d) is d² / 2 if |d| ≤ delta, else delta · (|d| − delta / 2) (Huber, "Robust
    /// estimation of a location parameter", 1964).
    ///
    /// Each row has its own loss: `x` and `y` have the same number of rows, the same width and the same LoD. The loss
    /// `[rows, 1]` keeps this LoD. A row without columns has the loss 0. The loss corresponds to PyTorch's `HuberLoss`.
    /// The gradient passes to `x` and to `y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let x = Variable::sequences(array![[1.5], [4.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[1.0], [1.0]], lod)?;
    /// let op = ops::catalogue().parse("huber", &Attributes::new().with("delta", 1.0))?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.125, 2.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width, or if delta is not above 0.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct Huber = huber { delta: f64 => above_zero }
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn huber(&self, x: Var, y: Var, delta: f64) -> Var; }
}

impl Huber {
    #[inline(always)]
    fn slope<T: Float>(self, d: T) -> T {
        let delta = T::from_f64(self.delta);
        // If d is NaN, both comparisons are false, so that the derivative is NaN too.
        if d > delta {
            delta
        } else if d < -delta {
            -delta
        } else {
            d
        }
    }
}

impl Pointwise for Huber {
    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        let (d, half) = (x - y, T::from_f64(0.5));
        let s = self.slope(d);
        s * (d - half * s)
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        self.slope(x - y)
    }
    #[inline(always)]
    fn dy<T: Float, A: Arithmetic>(self, x: T, y: T) -> T {
        -self.slope(x - y)
    }
    fn sample() -> Attributes {
        Huber { delta: 0.75 }.attributes()
    }
}

operator! {
    /// Computes the Kullback–Leibler divergence KL(y ‖ e^x) of each row, from a distribution `y` and the log-probabilities `x`:
    /// loss_i = Σ_j y_ij · (ln y_ij − x_ij), over all columns j with y_ij > 0.
    ///
    /// Each row has its own loss: `x` and `y` have the same number of rows, the same width and the same LoD. The loss
    /// `[rows, 1]` keeps this LoD. `x` is, for example, the output of `log_softmax`; the `mean` of this loss equals
    /// PyTorch's `KLDivLoss` with `reduction='batchmean'`. The gradient passes to `x`, and to the numbers of `y` that
    /// are above 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let half = 0.5f64.ln();
    /// let x = Variable::sequences(array![[half, half], [half, half]], lod.clone())?;
    /// let y = Variable::sequences(array![[0.5, 0.5], [0.0, 1.0]], lod)?;
    /// let op = ops::catalogue().parse("kl_divergence", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 2f64.ln()]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct KlDivergence = kl_divergence {}
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn kl_divergence(&self, x: Var, y: Var) -> Var; }
}

impl Pointwise for KlDivergence {
    const MEAN: bool = false;

    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        // If y is NaN, the comparison is false, so that the loss is NaN too.
        if y <= T::ZERO { T::ZERO } else { y * (y.ln() - x) }
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, _: T, y: T, _: Weights<T>) -> T {
        -y
    }
    #[inline(always)]
    fn dy<T: Float, A: Arithmetic>(self, x: T, y: T) -> T {
        if y <= T::ZERO { T::ZERO } else { y.ln() + T::ONE - x }
    }
    fn sample() -> Attributes {
        KlDivergence {}.attributes()
    }
    fn target(number: f64) -> f64 {
        0.25 + number.abs()
    }
}
