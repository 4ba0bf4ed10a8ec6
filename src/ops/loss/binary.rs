//! `binary_cross_entropy`, `focal_loss` and `hinge`: losses of binary classification, with one logit or score per class.

use super::pointwise::{Pointwise, Weights};
use crate::operator::attributes::or_default;
use crate::ops::prelude::*;

/// Options of [`Builder::binary_cross_entropy_with`](crate::Builder::binary_cross_entropy_with); by default all columns and
/// targets have the weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BinaryCrossEntropy {
    pub(crate) weights: Option<Var>,
    pub(crate) positive_weights: Option<Var>,
}

impl BinaryCrossEntropy {
    /// Column weights: the factors of the columns in the loss, shape `[columns]` (default: 1); the weights get no gradient.
    #[must_use]
    pub fn weights(self, weights: impl Into<Option<Var>>) -> Self {
        Self { weights: weights.into(), ..self }
    }

    /// Positive weights: for each column, the factor of the loss for the target 1, relative to the target 0, shape `[columns]`
    /// (default: 1); the weights get no gradient. For a rare class, choose (number of targets 0) / (number of targets 1), so that
    /// both targets have equal total weight in the loss.
    #[must_use]
    pub fn positive_weights(self, positive_weights: impl Into<Option<Var>>) -> Self {
        Self { positive_weights: positive_weights.into(), ..self }
    }
}

builder_methods! { Builder, Var;
    /// Computes the mean binary cross-entropy of each row, from logits `x` and targets `y` between 0 and 1: loss_i =
    /// Σ_j (max(x_ij, 0) − x_ij · y_ij + ln(1 + e^−|x_ij|)) / n.
    ///
    /// ```
    /// use unpadded::layers::Linear;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = net.feed_like("y", DType::F32, &[1], x);
    /// let loss = x.linear(1).binary_cross_entropy(y);
    /// assert_eq!(net.describe(loss), "`binary_cross_entropy`: f32[rows0, 1] lod(0)");
    /// assert!(net.describe(loss.mean()).ends_with("f32[]"));
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    #[doc(alias = "bce")]
    pub fn binary_cross_entropy(&self, x: Var, y: Var) -> Var {
        self.binary_cross_entropy_with(x, y, BinaryCrossEntropy::default())
    }
}

operator! {
    /// Computes the mean binary cross-entropy of each row, from logits `x` and targets `y` between 0 and 1, with column weights
    /// w and positive-target weights p (1 by default). With the column weights w, the positive weights p and s = sigmoid(x_ij):
    ///
    /// loss_i = −Σ_j w_j · (p_j · y_ij · ln s + (1 − y_ij) · ln(1 − s)) / n,
    ///
    /// Here n is the number of columns. The loss is computed from the logits without a logarithm of 0, even for very large or
    /// very small logits. Each row has its own loss: `x` and `y` have the same number of rows, the same width and the
    /// same LoD. The loss `[rows, 1]` keeps this LoD. A row without columns has the loss 0. The `mean` of this loss
    /// equals PyTorch's `BCEWithLogitsLoss` with `reduction='mean'`. To weight rows, multiply the loss by one weight
    /// per row. The targets get no gradient; `cast` converts whole numbers to float targets.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let x = Variable::sequences(array![[0.0], [1000.0], [-1000.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[1.0], [1.0], [1.0]], lod)?;
    /// let op = ops::catalogue().parse("binary_cross_entropy", &Attributes::new())?;
    /// let twice = Operand::constant("positive_weight", array![2.0]);
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y), twice])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0 * 2f64.ln(), 0.0, 2000.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width, or if there is not one weight per column.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct LogisticLoss = binary_cross_entropy {}
    inputs {
        X = x: one,
        Y = y: one.without_gradient(),
        WEIGHT = weight: optional.without_gradient(),
        POSITIVE = positive_weight: optional.without_gradient(),
    }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn binary_cross_entropy_with(&self, x: Var, y: Var, options: BinaryCrossEntropy) -> Var {
            let BinaryCrossEntropy { weights: weight, positive_weights: positive_weight } = options;
        }
    }
}

/// Computes ln(1 + e^−|x|).
#[inline(always)]
fn beyond<T: Float, A: Arithmetic>(x: T) -> T {
    let e = (-x.abs()).exp_with::<A>();
    // For a small e, the sum 1 + e loses digits of e; then ln(1 + e) is e up to rounding.
    if e < T::from_f64(1e-5) { e } else { (T::ONE + e).ln() }
}

impl Pointwise for LogisticLoss {
    const WEIGHED: bool = true;

    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, weights: Weights<T>) -> T {
        let positive = T::ONE + (weights.positive - T::ONE) * y;
        weights.all * ((T::ONE - y) * x + positive * (beyond::<T, A>(x) + (-x).max(T::ZERO)))
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, weights: Weights<T>) -> T {
        let positive = T::ONE + (weights.positive - T::ONE) * y;
        weights.all * ((T::ONE - y) - positive * (-x).sigmoid_with::<A>())
    }
    fn sample() -> Attributes {
        LogisticLoss {}.attributes()
    }
    fn target(number: f64) -> f64 {
        number.abs() / 1.5
    }
}

/// Options of [`Builder::focal_loss_with`](crate::Builder::focal_loss_with).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FocalLoss {
    pub(crate) gamma: f64,
    pub(crate) alpha: Option<f64>,
}

impl Default for FocalLoss {
    /// The default focal loss has gamma 2 and alpha 0.25, as in the paper of Lin et al.
    fn default() -> Self {
        Self { gamma: 2.0, alpha: Some(0.25) }
    }
}

impl FocalLoss {
    /// Gamma: the exponent of the error in the loss (default: 2); a larger gamma gives well-classified targets less
    /// weight. With gamma 0, the loss is the binary cross-entropy, weighted by alpha.
    #[must_use]
    pub fn gamma(self, gamma: f64) -> Self {
        Self { gamma, ..self }
    }

    /// Alpha: the weight of the target 1, from 0 to 1 (default: 0.25); the weight of the target 0 is 1 − alpha. With `None`,
    /// the targets 0 and 1 both have the weight 1.
    #[must_use]
    pub fn alpha(self, alpha: impl Into<Option<f64>>) -> Self {
        Self { alpha: alpha.into(), ..self }
    }
}

builder_methods! { Builder, Var;
    /// Computes the mean focal loss of each row with gamma 2 and alpha 0.25: see [`focal_loss_with`](Self::focal_loss_with).
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1);
    /// let y = net.feed_like("y", DType::F32, &[3], x);
    /// assert_eq!(net.describe(x.focal_loss(y)), "`focal_loss`: f32[rows0, 1] lod(0)");
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    pub fn focal_loss(&self, x: Var, y: Var) -> Var {
        self.focal_loss_with(x, y, FocalLoss::default())
    }
}

operator! {
    /// Computes the mean focal loss of each row, from logits `x` and targets `y` between 0 and 1: well-classified targets
    /// have little weight (Lin et al., "Focal loss for dense object detection", 2017).
    ///
    /// The loss has s = sigmoid(x_ij), the binary cross-entropy c_ij and the error q_ij = s · (1 − y_ij) + (1 − s) · y_ij:
    /// loss_i = Σ_j (alpha · y_ij + (1 − alpha) · (1 − y_ij)) · q_ij^gamma · c_ij / n, over the n columns. Each row has its own
    /// loss: `x` and `y` have the same number of rows, the same width and the same LoD. The loss `[rows, 1]` keeps this
    /// LoD. A row without columns has the loss 0. The targets `y` get no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let x = Variable::sequences(array![[0.0], [1000.0], [-1000.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[1.0], [1.0], [1.0]], lod)?;
    /// let op = ops::catalogue().parse("focal_loss", &Attributes::new().with("gamma", 2.0))?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.25 * 2f64.ln(), 0.0, 1000.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width; if gamma is below 0, or alpha is not from 0 to 1.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct Focal = focal_loss { gamma: f64 => not_negative, alpha: Option<f64> => share }
    inputs { X = x: one, Y = y: one.without_gradient() }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn focal_loss_with(&self, x: Var, y: Var, options: FocalLoss) -> Var {
            let FocalLoss { gamma, alpha } = options;
        }
    }
}

/// Reads an attribute that is a number of at least 0.
fn not_negative(attributes: &Attributes, name: &str) -> Result<f64> {
    let number = attributes.float(name)?;
    if number >= 0.0 && number.is_finite() {
        return Ok(number);
    }
    Err(Error::new(format!("attribute `{name}`"), "a number of at least 0", number.to_string()))
}

/// Reads an attribute that is a number from 0 to 1; returns `None` if the attribute is missing or has the value none.
fn share(attributes: &Attributes, name: &str) -> Result<Option<f64>> {
    let number: Option<f64> = or_default(attributes, name, None)?;
    match number {
        Some(number) if !(0.0..=1.0).contains(&number) => {
            let expected = "a number from 0 to 1";
            Err(Error::new(format!("attribute `{name}`"), expected, number.to_string()))
        }
        number => Ok(number),
    }
}

impl Focal {
    /// Returns the weight of the target, the error q and the binary cross-entropy c, for a logit x and a target y.
    #[inline(always)]
    fn terms<T: Float, A: Arithmetic>(self, x: T, y: T) -> (T, T, T) {
        let weight = match self.alpha.map(T::from_f64) {
            Some(alpha) => alpha * y + (T::ONE - alpha) * (T::ONE - y),
            None => T::ONE,
        };
        let missing = x.sigmoid_with::<A>() * (T::ONE - y) + (-x).sigmoid_with::<A>() * y;
        // For a target below 0 or above 1, the error q may be negative, and is then set to 0. If the error q is NaN, the
        // comparison is false, so that q stays NaN.
        let missing = if missing < T::ZERO { T::ZERO } else { missing };
        (weight, missing, (T::ONE - y) * x + beyond::<T, A>(x) + (-x).max(T::ZERO))
    }
}

impl Pointwise for Focal {
    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        let (weight, missing, entropy) = self.terms::<T, A>(x, y);
        weight * missing.powf(T::from_f64(self.gamma)) * entropy
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        let (weight, missing, entropy) = self.terms::<T, A>(x, y);
        let (s, rest) = (x.sigmoid_with::<A>(), (-x).sigmoid_with::<A>());
        // The derivative of the cross-entropy with respect to x is s − y = s · (1 − y) − (1 − s) · y; the derivative of
        // the error q is s · (1 − s) · (1 − 2 · y).
        let of_entropy = s * (T::ONE - y) - rest * y;
        let of_missing = s * rest * (T::ONE - y - y);
        let power = missing.powf(T::from_f64(self.gamma));
        // Where the error q is 0, the derivative of q^gamma is set to 0.
        let slope = if missing > T::ZERO { T::from_f64(self.gamma) * power / missing } else { T::ZERO };
        weight * (slope * of_missing * entropy + power * of_entropy)
    }
    fn sample() -> Attributes {
        Focal { gamma: 1.5, alpha: Some(0.3) }.attributes()
    }
    fn target(number: f64) -> f64 {
        if number > 0.0 { 1.0 } else { 0.0 }
    }
}

operator! {
    /// Computes the mean hinge loss of each row, from scores `x` and targets `y` of −1 or 1: loss_i = Σ_j max(0, 1 − y_ij ·
    /// x_ij) / n.
    ///
    /// Each row has its own loss: `x` and `y` have the same number of rows, the same width and the same LoD. The loss
    /// `[rows, 1]` keeps this LoD. A row without columns has the loss 0. The targets `y` get no gradient. To convert
    /// targets of 0 and 1 to targets of −1 and 1, compute `2 · y − 1`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let x = Variable::sequences(array![[0.25], [3.0], [3.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[1.0], [1.0], [-1.0]], lod)?;
    /// let op = ops::catalogue().parse("hinge", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.75, 0.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct Hinge = hinge {}
    inputs { X = x: one, Y = y: one.without_gradient() }
    outputs { OUT = out: one }
    impl Builder, Var { fn hinge(&self, x: Var, y: Var) -> Var; }
}

impl Pointwise for Hinge {
    #[inline(always)]
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        let missing = T::ONE - y * x;
        // If the difference 1 − y · x is NaN, the comparison is false, so that the loss stays NaN.
        if missing < T::ZERO { T::ZERO } else { missing }
    }
    #[inline(always)]
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, _: Weights<T>) -> T {
        if y * x >= T::ONE { T::ZERO } else { -y }
    }
    fn sample() -> Attributes {
        Hinge {}.attributes()
    }
    fn target(number: f64) -> f64 {
        if number > 0.0 { 1.0 } else { -1.0 }
    }
}
