//! `gru_cell`: the elementwise part of a GRU step, without the matrix products.

use crate::kernels::{Blend, GruBackward, GruInputs, gru_backward, gru_forward};
use crate::ops::prelude::*;

/// The role of the update gate z of a GRU: z = 1 either keeps the old state or takes the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateGate {
    /// h = (1 − z)·n + z·h_prev: with z = 1 the gate keeps the old state, as in PyTorch.
    #[default]
    Keeps,
    /// h = z·n + (1 − z)·h_prev: with z = 1 the gate takes the new state n.
    Takes,
}

operator! {
    /// Computes the elementwise part of a GRU step: returns the new state, from the old state and the gates r, z, n before
    /// activation. `x` `[rows, 3H]` is the product of the step's input and the input weights, and `h` `[rows, 3H]` is
    /// the product of the old state and the recurrent weights; both products include a bias. `h_prev` `[rows, H]` is
    /// the old state.
    ///
    /// r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r ∘ h_n), out = (1 − z) ∘ n + z ∘ h_prev;
    ///
    /// With the attribute `flip`, the output is out = z ∘ n + (1 − z) ∘ h_prev. The reset gate r is applied after the product
    /// with the recurrent weights; a GRU that applies r before this product can be composed of other operators. The operator
    /// computes each row alone; the rows may have any LoD, which the output keeps.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let rows = |numbers| Variable::sequences(numbers, lod.clone());
    /// let out = ops::catalogue().parse("gru_cell", &Attributes::new())?.call(&[
    ///     Operand::batch("x", rows(array![[0.0, 100.0, 5.0], [0.0, -100.0, 0.0]])?), // z is 1, then 0
    ///     Operand::batch("h", rows(array![[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])?),
    ///     Operand::batch("h_prev", rows(array![[0.25], [0.5]])?),
    /// ])?;
    /// let states = out[0].as_slice::<f64>()?;
    /// assert_eq!(states[0], 0.25); // the old state
    /// assert!(states[1].abs() < 1e-9); // the new one, tanh(0)
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the numbers of rows or the widths of the inputs do not match.
    pub(in crate::ops) struct GruCell = gru_cell { flip: bool = false }
    inputs { X = x: one, H = h: one, H_PREV = h_prev: one }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn gru_cell(&self, x: Var, h: Var, h_prev: Var, update: UpdateGate) -> Var {
            let flip = update == UpdateGate::Takes;
        }
    }
}

impl Op for GruCell {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        let state = s.input(Self::H_PREV);
        for gates in [Self::X, Self::H] {
            let spec = s.input(gates);
            if spec.shape.len() != 2 || spec.width() != 3 * state.width() {
                let expected = format!("rows of {} numbers, 3 × the width of `h_prev`", 3 * state.width());
                return Err(s.mismatch(gates, &expected));
            }
        }
        if state.shape.len() != 2 {
            return Err(s.mismatch(Self::H_PREV, "shape [rows, width]"));
        }
        for slot in [Self::H, Self::H_PREV] {
            s.same_dtype(Self::X, slot)?;
            s.same_rows(Self::X, slot)?;
        }
        s.set(Self::OUT, state.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (xw, hw, h_prev) = (run.input::<T>(Self::X)?, run.input::<T>(Self::H)?, run.input::<T>(Self::H_PREV)?);
            gru_forward(GruInputs { xw, hw, h_prev, blend: self.blend() }, run.output::<T>(Self::OUT)?);
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.gradient::<T>(run))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        let gates = Gradient::reads_nothing().input(Self::X).input(Self::H);
        if wrt == Self::H_PREV { gates } else { gates.input(Self::H_PREV).overwrites() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |flip: bool, width: usize| {
            CheckCase::of_sequences(&GruCell { flip }.attributes(), |sample, lod| {
                let rows = |width, salt| Variable::sequences(numbers(lod.rows(), width, salt), lod.clone());
                Ok(sample
                    .batch("x", rows(3 * width, 0)?)
                    .batch("h", rows(3 * width, 1)?)
                    .batch("h_prev", rows(width, 2)?))
            })
        };
        let mut samples = attributes(false, 3)?;
        samples.extend(attributes(true, 3)?);
        samples.extend(attributes(false, 1)?);
        Ok(samples)
    }
}

impl GruCell {
    fn blend(&self) -> Blend {
        if self.flip { Blend::Take } else { Blend::Keep }
    }

    fn gradient<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let gates = |slot: usize| (!run.in_place(slot)).then(|| run.input::<T>(slot)).transpose();
        let (xw, hw) = (gates(Self::X)?, gates(Self::H)?);
        // The numbers of the old state `h_prev` are read only for the gradients of the gates. If these gradients are
        // not requested, `dout` is only a placeholder for `h_prev`.
        let h_prev =
            if run.wants(Self::X) || run.wants(Self::H) { run.input::<T>(Self::H_PREV)? } else { dout };
        let (dx, dh, dh_prev) =
            (run.gradient::<T>(Self::X)?, run.gradient::<T>(Self::H)?, run.gradient::<T>(Self::H_PREV)?);
        gru_backward(GruBackward { xw, hw, h_prev, dh: dout, blend: self.blend() }, dx, dh, dh_prev);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::call::{Direct, InputGradients};

    #[test]
    fn each_gradient_may_be_asked_for_alone() -> Result<()> {
        for sample in GruCell::samples()? {
            let direct = Direct::new(Arc::new(GruCell::parse(&sample.attributes)?), &sample.operands)?;
            let out = direct.forward()?;
            let gradients = |wanted: &dyn Fn(usize) -> bool| -> Result<InputGradients> {
                direct.backward(&out, &[vec![Some(out[GruCell::OUT][0].storage().clone())]], wanted, None)
            };
            let all = gradients(&|_| true)?;
            for slot in [GruCell::X, GruCell::H, GruCell::H_PREV] {
                assert_eq!(gradients(&|wanted| wanted == slot)?[slot], all[slot]);
            }
        }
        Ok(())
    }
}
