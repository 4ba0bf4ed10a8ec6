//! Cosine similarity of two rows, `cosine_similarity`, and losses of pairs, `cosine_loss` and `margin_ranking`.

use super::pointwise::one_each;
use crate::ops::prelude::*;

operator! {
    /// Cosine similarity of row i of x and row i of y: out_i = x_i · y_i / (‖x_i‖ · ‖y_i‖), one number per row.
    ///
    /// The operator computes each pair of rows alone: `x` and `y` have the same number of rows and the same LoD, which
    /// the output `[rows, 1]` keeps. If the norm of x_i or y_i is below 10⁻⁸, the cosine of this pair is 0 and passes
    /// no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let x = Variable::sequences(array![[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[6.0, 8.0], [0.0, 5.0], [1.0, 1.0]], lod)?;
    /// let op = ops::catalogue().parse("cosine_similarity", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 0.0, 0.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `y` are not floats of one dtype, or differ in the number of rows, the LoD or the
    /// width.
    pub(in crate::ops) struct CosineSimilarity = cosine_similarity {}
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn cosine_similarity(&self, x: Var, y: Var) -> Var; }
}

builder_methods! { Builder, Var;
    /// Computes the cosine loss of each pair of rows: it trains x_i and y_i to be similar where `like` is 1, and dissimilar
    /// where `like` is −1. With the [cosine](Self::cosine_similarity) c_i of pair i: loss_i = 1 − c_i where like_i is 1, and
    /// max(0, c_i − margin) where like_i is −1.
    ///
    /// `like` holds floats, one per pair of rows, with the shape `[rows]`. The method appends `cosine_similarity`, and
    /// arithmetic operators on one number per row. The loss corresponds to PyTorch's `CosineEmbeddingLoss`.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = net.feed_like("y", DType::F32, &[8], x);
    /// let like = net.feed_like("like", DType::F32, &[], x);
    /// let loss = x.cosine_loss(y, like, 0.5);
    /// assert!(net.describe(loss).ends_with("f32[rows0] lod(0)"));
    /// ```
    ///
    /// # Errors
    /// It is an error if `x`, `y` and `like` are not floats of one dtype, or differ in the number of rows or the LoD;
    /// or if `x` and `y` have different widths.
    pub fn cosine_loss(&self, x: Var, y: Var, like: Var, margin: f64) -> Var {
        let c = self.cosine_similarity(x, y);
        let (far, near) = (self.scale(c, -1.0, 1.0), self.relu(self.scale(c, 1.0, -margin)));
        // The factor (1 + like) / 2 is 1 for like = 1, and 0 for like = −1.
        let alike = self.mul(self.scale(like, 0.5, 0.5), far);
        self.add(alike, self.mul(self.scale(like, -0.5, 0.5), near))
    }
}

builder_methods! { Builder, Var;
    /// Computes the ranking loss of each pair of scores: it trains x to exceed y by at least `margin` where `first` is 1, and y
    /// to exceed x by at least `margin` where `first` is −1. The formula is loss = max(0, margin − first · (x − y)), number by
    /// number.
    ///
    /// `x`, `y` and `first` have the same number of rows and the same LoD, which the loss keeps. The method appends
    /// arithmetic operators, which a compiled program runs together in one pass over the rows. The loss corresponds to
    /// PyTorch's `MarginRankingLoss`.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let good = net.feed("good", DType::F32, &[1], 1);
    /// let bad = net.feed_like("bad", DType::F32, &[1], good);
    /// let first = net.feed_like("first", DType::F32, &[1], good);
    /// let loss = good.margin_ranking(bad, first, 0.5);
    /// assert!(net.describe(loss).ends_with("f32[rows0, 1] lod(0)"));
    /// ```
    ///
    /// # Errors
    /// It is an error if `x`, `y` and `first` are not floats of one dtype, or differ in the number of rows, the LoD or
    /// the width.
    pub fn margin_ranking(&self, x: Var, y: Var, first: Var, margin: f64) -> Var {
        self.relu(self.scale(self.mul(first, self.sub(x, y)), -1.0, margin))
    }
}

/// A row with a norm below this number has no direction: its cosine with any row is 0.
const LEAST: f64 = 1e-8;

impl Op for CosineSimilarity {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let out = one_each(s, Self::X, Self::Y)?;
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, y) = (run.input::<T>(Self::X)?, run.input::<T>(Self::Y)?);
            sweep(Cosines { x, y, out: run.output::<T>(Self::OUT)? });
            Ok(())
        })
    }

    gradient_reads!(Self::X, Self::Y);

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => gradients::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, x| {
            let y = Variable::from(numbers(x.rows(), 3, 7)).with_lod(x.lod().cloned())?;
            Ok(if sample.operands[0].batched { sample.batch("y", y) } else { sample.constant("y", y) })
        })
    }
}

fn gradients<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    type Op = CosineSimilarity;
    let Some(dout) = run.output_gradient::<T>(Op::OUT)? else { return Ok(()) };
    let (x, y) = (run.input::<T>(Op::X)?, run.input::<T>(Op::Y)?);
    for (slot, own, other) in [(Op::X, x, y), (Op::Y, y, x)] {
        if let Some((to, assign)) = run.gradient::<T>(slot)? {
            sweep(Turns { own, other, dout, to, assign });
        }
    }
    Ok(())
}

/// Returns the dot product x · y and the norms ‖x‖ and ‖y‖.
#[inline(always)]
fn products<T: Float, A: Arithmetic>(x: &[T], y: &[T]) -> (T, T, T) {
    const LANES: usize = 16;
    let mut sums = [[T::ZERO; LANES]; 3];
    for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
        for (lane, (&x, &y)) in x.iter().zip(y).enumerate() {
            sums[0][lane] = A::mul_add(x, y, sums[0][lane]);
            sums[1][lane] = A::mul_add(x, x, sums[1][lane]);
            sums[2][lane] = A::mul_add(y, y, sums[2][lane]);
        }
    }
    let [along, x, y] = sums.map(|lanes| lanes.into_iter().sum::<T>());
    (along, x.sqrt(), y.sqrt())
}

/// Returns whether the norms of x and y are both large enough for a cosine.
#[inline(always)]
fn directed<T: Float>(x: T, y: T) -> bool {
    let least = T::from_f64(LEAST);
    // If a norm is NaN, the comparison is false, so that NaN counts as large enough, and the cosine is NaN.
    !(x < least || y < least)
}

struct Cosines<'a, T> {
    x: View<'a, T>,
    y: View<'a, T>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Cosines<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (out, (x, y)) in self.out.iter_mut().zip(self.x.iter().zip(self.y.iter())) {
            let (along, x, y) = products::<T, A>(x, y);
            out.fill(if directed(x, y) { along / (x * y) } else { T::ZERO });
        }
    }
}

/// The operands for the gradient of `own`, which is x or y. The gradient of x is (y / ‖y‖ − c · x / ‖x‖) / ‖x‖,
/// multiplied by the output's gradient; c is the cosine.
struct Turns<'a, T> {
    own: View<'a, T>,
    other: View<'a, T>,
    dout: View<'a, T>,
    to: ViewMut<'a, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Turns<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let assign = self.assign;
        let rows = self.own.iter().zip(self.other.iter()).zip(self.dout.iter());
        for (to, ((own, other), dout)) in self.to.iter_mut().zip(rows) {
            let (along, x, y) = products::<T, A>(own, other);
            let (mut of_other, mut of_own) = (T::ZERO, T::ZERO);
            if directed(x, y) {
                of_other = dout[0] / (x * y);
                of_own = of_other * along / (x * x);
            }
            let cells = to.iter_mut().zip(own.iter().zip(other));
            cells.for_each(|(to, (&own, &other))| assign.put(to, of_other * other - of_own * own));
        }
    }
}
