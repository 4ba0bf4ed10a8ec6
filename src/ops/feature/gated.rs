//! The methods `glu`, `swiglu`, `bilinear` and `weight_norm`, which are composed of other operators.

use crate::ops::prelude::*;
use crate::program::Builder;

impl Builder {
    /// Slices `x` into the left and the right half of its columns. If the number of columns is odd, records an error
    /// and returns two variables without a spec.
    #[track_caller]
    pub(in crate::ops) fn halves(&self, x: Var, kind: &str) -> (Var, Var) {
        let Some(spec) = self.spec(x) else { return (self.unknown(), self.unknown()) };
        let width = spec.width();
        if width % 2 == 1 {
            let error =
                Error::new(format!("input `x` of `{kind}`"), "an even number of columns", width.to_string());
            return (self.refuse(error), self.unknown());
        }
        (self.slice(x, 0..width / 2), self.slice(x, width / 2..width))
    }
}

builder_methods! { Builder, Var;
    /// Gated linear unit (Dauphin et al., 2017): out = a ∘ sigmoid(b), where a is the left and b the right half of each row of
    /// x. The output has the LoD of x.
    ///
    /// `glu` appends two `slice` operators, which are views in a step block, and `sigmoid` and `mul`, which run together in one
    /// pass over the rows.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// assert_eq!(net.describe(x.linear(32).glu()), "`mul`: f32[rows0, 16] lod(0)");
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, or has an odd number of columns.
    pub fn glu(&self, x: Var) -> Var {
        let (a, b) = self.halves(x, "glu");
        self.mul(a, self.sigmoid(b))
    }

    /// SwiGLU, the gated unit of current transformers (Shazeer, "GLU variants improve transformer", 2020): out = silu(a) ∘ b,
    /// where a is the left and b the right half of each row of x. The output has the LoD of x. `swiglu` is composed of the
    /// operators `slice`, `silu` and `mul`, as [`glu`](Self::glu) is composed of `slice`, `sigmoid` and `mul`.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// assert!(net.describe(x.linear(32).swiglu().linear(8)).ends_with("f32[rows0, 8] lod(0)"));
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, or has an odd number of columns.
    pub fn swiglu(&self, x: Var) -> Var {
        let (a, b) = self.halves(x, "swiglu");
        self.mul(self.silu(a), b)
    }

    /// Bilinear layer: output k of row i is a bilinear form of x_i and y_i, out_ik = Σ_ab x_ia · W_a,kb · y_ib. x is
    /// `[rows, m]`, y is `[rows, n]`, and the weight W is `[m, outputs · n]`: its columns `k·n` to `(k + 1)·n − 1` belong to
    /// output k. The output has the LoD of x and y.
    ///
    /// `bilinear` is composed of [`product`](Self::product), which turns each row of x into a matrix `[outputs, n]`, and
    /// [`matvec`](Self::matvec), which multiplies this matrix by the row of y.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[4], 1);
    /// let y = net.feed_like("y", DType::F32, &[3], x);
    /// let weight = net.parameter("weight", DType::F32, &[4, 2 * 3], init::xavier());
    /// assert_eq!(net.describe(x.bilinear(weight, y)), "`matvec`: f32[rows0, 2] lod(0)");
    /// ```
    ///
    /// # Errors
    /// It is an error if x and y differ in dtype, LoD or number of rows, or if the shape of the weight does not match
    /// the widths of x and y.
    pub fn bilinear(&self, x: Var, weight: Var, y: Var) -> Var {
        self.matvec(self.product(x, weight, None), y)
    }

    /// Weight normalization: computes each column of a weight from a direction and a length (Salimans and Kingma,
    /// "Weight normalization", 2016): W_·j = gain_j · v_·j / ‖v_·j‖. The parameters v `[in, out]` and gain `[out]` are
    /// trained; W is computed from both parameters.
    ///
    /// Each column of W computes one output, as in PyTorch's `weight_norm` with `dim=0`, where weights are `[out, in]`.
    /// `weight_norm` is composed of arithmetic on constants, which is computed once per run, independently of the
    /// batch. To the square of each length ‖v_·j‖, 10⁻¹² is added, so that a column of zeros stays zero.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[4], 1);
    /// let v = net.parameter("v", DType::F32, &[4, 2], init::xavier());
    /// let gain = net.parameter("gain", DType::F32, &[2], init::constant(1.0));
    /// let y = x.product(v.weight_norm(gain), None);
    /// assert_eq!(net.describe(y), "`linear`: f32[rows0, 2] lod(0)");
    /// ```
    ///
    /// # Errors
    /// It is an error if v is not a constant matrix of floats, or there is not one gain per column.
    pub fn weight_norm(&self, v: Var, gain: Var) -> Var {
        let squares = self.sum_rows(self.square(v));
        let lengths = self.sqrt(self.scale(squares, 1.0, 1e-12));
        self.mul(v, self.div(gain, lengths))
    }
}
