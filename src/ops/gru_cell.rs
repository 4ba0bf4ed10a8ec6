//! `gru_cell`: the pointwise part of a GRU step.
//!
//! With the input's part `x` and the recurrent part `h`, each `[rows, 3H]` = (r, z, n) with its own bias in it, and the
//! old state `h_prev` `[rows, H]`:
//!
//! r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r ∘ h_n), out = (1 − z) ∘ n + z ∘ h_prev;
//!
//! with the attribute `flip`, out = z ∘ n + (1 − z) ∘ h_prev. The reset gate works after the recurrent product; a GRU
//! that resets before it is composed of plain operators. Row-wise: the rows may belong to sequences of any LoD, which
//! the output keeps.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let lod = Lod::from_lengths1(&[1, 0, 1])?;
//! let rows = |numbers| Variable::sequences(numbers, lod.clone());
//! let out = ops::catalogue().parse("gru_cell", &Attributes::new())?.call(&[
//!     Operand::batch("x", rows(array![[0.0, 100.0, 5.0], [0.0, -100.0, 0.0]])?), // z is 1, then 0
//!     Operand::batch("h", rows(array![[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])?),
//!     Operand::batch("h_prev", rows(array![[0.25], [0.5]])?),
//! ])?;
//! let states = out[0].as_slice::<f64>()?;
//! assert_eq!(states[0], 0.25); // the old state
//! assert!(states[1].abs() < 1e-9); // the new one, tanh(0)
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::Array2;

use super::optional;
use crate::error::{Error, Result};
use crate::kernels::{Blend, GruBackward, GruInputs, gru_backward, gru_forward};
use crate::lod::Lod;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Needs, Op, RowValue, Sample, Signature, Slot,
    Var,
};
use crate::tensor::Variable;
use crate::with_float;

const X: usize = 0;
const H: usize = 1;
const H_PREV: usize = 2;
const OUT: usize = 0;

/// What the update gate z of a GRU lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Update {
    /// h = (1 − z)·n + z·h_prev: an open gate keeps the old state, as in PyTorch.
    #[default]
    Keeps,
    /// h = z·n + (1 − z)·h_prev: an open gate takes the new one.
    Takes,
}

/// The new state of a GRU.
pub(super) struct GruCell {
    update: Update,
}

impl Builder {
    /// The pointwise part of a GRU step: the new state from the input's part `x` `[rows, 3H]` and the recurrent part
    /// `h` `[rows, 3H]` of the gates r, z, n, each with its bias, and the old state `h_prev` `[rows, H]`.
    ///
    /// # Errors
    /// If the rows or the widths do not fit.
    #[track_caller]
    pub fn gru_cell(&self, x: Var, h: Var, h_prev: Var, update: Update) -> Result<Var> {
        let attributes = Attributes::new().with("flip", update == Update::Takes);
        self.append1("gru_cell", &[("x", &[x]), ("h", &[h]), ("h_prev", &[h_prev])], attributes)
    }
}

impl Op for GruCell {
    fn kind() -> &'static str {
        "gru_cell"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let flip = optional(attributes, "flip", Attributes::bool)?.unwrap_or(false);
        Ok(Self { update: if flip { Update::Takes } else { Update::Keeps } })
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("x"), Slot::one("h"), Slot::one("h_prev")],
                outputs: &[Slot::one("out")],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let state = s.input(H_PREV);
        for gates in [X, H] {
            let spec = s.input(gates);
            if spec.shape.len() != 2 || spec.width() != 3 * state.width() {
                let expected = format!("rows of {} numbers, 3 × those of `h_prev`", 3 * state.width());
                return Err(s.mismatch(gates, &expected));
            }
        }
        if state.shape.len() != 2 {
            return Err(s.mismatch(H_PREV, "shape [rows, width]"));
        }
        for slot in [H, H_PREV] {
            s.same_dtype(X, slot)?;
            s.same_rows(X, slot)?;
        }
        s.set(OUT, state.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (xw, hw, h_prev) = (run.input::<T>(X)?, run.input::<T>(H)?, run.input::<T>(H_PREV)?);
            gru_forward(GruInputs { xw, hw, h_prev, blend: self.blend() }, run.output::<T>(OUT)?);
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.gradient::<T>(run))
    }

    fn needs(&self, wrt: usize) -> Needs {
        let gates = Needs::nothing().input(X).input(H);
        if wrt == H_PREV { gates } else { gates.input(H_PREV) }
    }

    fn overwrites(&self, wrt: usize) -> bool {
        wrt == X || wrt == H
    }

    fn samples() -> Vec<Sample> {
        let sample = |name: &str, lengths: &[Vec<usize>], width: usize, flip: bool| -> Result<Sample> {
            let lod = Lod::from_lengths(lengths)?;
            let numbers = |width: usize, seed: f64| {
                let number = |(i, j): (usize, usize)| 1.5 * ((i * width + j) as f64 * 1.3 + seed).sin();
                Variable::sequences(Array2::from_shape_fn((lod.rows(), width), number), lod.clone())
            };
            Ok(Sample::new(name, Attributes::new().with("flip", flip))
                .batch("x", numbers(3 * width, 0.0)?)
                .batch("h", numbers(3 * width, 0.7)?)
                .batch("h_prev", numbers(width, 0.5)?))
        };
        let samples = [
            sample("sequences with an empty one", &[vec![2, 0, 1]], 3, false),
            sample("sequences with an empty one, flipped", &[vec![2, 0, 1]], 3, true),
            sample("two levels", &[vec![2, 0, 1], vec![1, 0, 2]], 1, false),
            sample("all empty", &[vec![0, 0]], 2, true),
            sample("none", &[vec![]], 2, false),
        ];
        samples.into_iter().flatten().collect()
    }
}

impl GruCell {
    fn blend(&self) -> Blend {
        match self.update {
            Update::Keeps => Blend::Keep,
            Update::Takes => Blend::Take,
        }
    }

    fn gradient<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some(dout) = run.output_gradient::<T>(OUT)? else {
            return Err(Error::new("gru_cell", "a gradient of its output", "none"));
        };
        let gates = |slot: usize| (!run.in_place(slot)).then(|| run.input::<T>(slot)).transpose();
        let (xw, hw) = (gates(X)?, gates(H)?);
        // The old state's values only matter for the gates' gradients.
        let h_prev = if run.wants(X) || run.wants(H) { run.input::<T>(H_PREV)? } else { dout };
        let (dx, dh, dh_prev) = (run.gradient::<T>(X)?, run.gradient::<T>(H)?, run.gradient::<T>(H_PREV)?);
        gru_backward(GruBackward { xw, hw, h_prev, dh: dout, blend: self.blend() }, dx, dh, dh_prev);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::program::call::{Direct, InputGradients};

    #[test]
    fn each_gradient_may_be_asked_for_alone() -> Result<()> {
        for sample in GruCell::samples() {
            let direct = Direct::new(Arc::new(GruCell::parse(&sample.attributes)?), &sample.operands)?;
            let out = direct.forward()?;
            let gradients = |wanted: &dyn Fn(usize) -> bool| -> Result<InputGradients> {
                direct.backward(&out, &[vec![Some(out[OUT][0].storage().clone())]], wanted, None)
            };
            let all = gradients(&|_| true)?;
            for slot in [X, H, H_PREV] {
                assert_eq!(gradients(&|wanted| wanted == slot)?[slot], all[slot]);
            }
        }
        Ok(())
    }
}
