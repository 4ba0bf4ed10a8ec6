//! `lstm_cell`: the elementwise part of an LSTM step, without the matrix products.

use crate::error::{Error, Result};
use crate::kernels::{LstmBackward, lstm_backward, lstm_forward};
use crate::operator;
use crate::operator::sample::numbers;
use crate::operator::{Attributes, Backward, CheckCase, Forward, Gradient, InferShape, Op, RowValue, Spec};
use crate::tensor::Variable;
use crate::with_float;

operator! {
    /// Computes the elementwise part of an LSTM step: returns the new `(h, c)`, from the gates before activation and the old
    /// cell state. `pre` `[rows, 4H]` has the gates i, f, g, o, in this order; `c_prev` `[rows, H]` is the old cell state.
    ///
    /// c = σ(f) ∘ c_prev + σ(i) ∘ tanh(g), h = σ(o) ∘ tanh(c).
    ///
    /// `linear` operators compute the gates `pre` before this operator; `Builder::recurrent` makes the loop over time. The
    /// operator computes each row alone; the rows may have any LoD, which `h` and `c` keep. A loss may depend on `h`, on `c` or
    /// on both outputs.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let big = 100.0; // opens a gate, or saturates tanh
    /// let pre = Variable::sequences(array![[big, big, big, big], [-big, big, 0.0, -big]], lod.clone())?;
    /// let op = ops::catalogue().parse("lstm_cell", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("pre", pre),
    ///     Operand::batch("c_prev", Variable::sequences(array![[-1.0], [0.25]], lod)?),
    /// ])?;
    /// assert_eq!(out[1].as_slice::<f64>()?, [0.0, 0.25]); // c: added to, kept
    /// assert!(out[0].as_slice::<f64>()?.iter().all(|h| h.abs() < 1e-9)); // h: tanh(0), a closed output gate
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the numbers of rows or the widths of the inputs do not match.
    pub(in crate::ops) struct LstmCell = lstm_cell {}
    inputs { PRE = pre: one, C_PREV = c_prev: one }
    outputs { H = h: one, C = c: one }
    impl Builder, Var { fn lstm_cell(&self, pre: Var, c_prev: Var) -> (Var, Var); }
}

impl Op for LstmCell {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::PRE)?;
        s.same_dtype(Self::PRE, Self::C_PREV)?;
        s.same_rows(Self::PRE, Self::C_PREV)?;
        let (pre, c_prev) = (s.input(Self::PRE), s.input(Self::C_PREV));
        if c_prev.shape.len() != 2 || pre.shape.len() != 2 || pre.width() != 4 * c_prev.width() {
            return Err(s.mismatch(
                Self::PRE,
                &format!("rows of {} numbers, 4 × the width of `c_prev`", 4 * c_prev.width()),
            ));
        }
        s.set(Self::H, c_prev.clone());
        s.set(Self::C, c_prev.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::PRE), T => {
            lstm_forward(run.input::<T>(Self::PRE)?, run.input::<T>(Self::C_PREV)?, run.output::<T>(Self::H)?, run.output::<T>(Self::C)?);
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::PRE), T => backward::<T>(run))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        let gates = Gradient::reads_nothing().input(Self::PRE).output(Self::C);
        if wrt == Self::PRE { gates.input(Self::C_PREV).overwrites() } else { gates }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let of = |width: usize| {
            CheckCase::of_sequences(&Attributes::new(), move |sample, lod| {
                let rows = |width, salt| Variable::sequences(numbers(lod.rows(), width, salt), lod.clone());
                Ok(sample.batch("pre", rows(4 * width, 0)?).batch("c_prev", rows(width, 1)?))
            })
        };
        let mut samples = of(3)?;
        samples.extend(of(1)?);
        Ok(samples)
    }
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let (dh, dc) = (run.output_gradient::<T>(LstmCell::H)?, run.output_gradient::<T>(LstmCell::C)?);
    if dh.is_none() && dc.is_none() {
        return Err(Error::new("lstm_cell", "a gradient of `h` or `c`", "none"));
    }
    let pre = if run.in_place(LstmCell::PRE) { None } else { Some(run.input::<T>(LstmCell::PRE)?) };
    let c = run.output::<T>(LstmCell::C)?;
    // The numbers of `c_prev` are read only for the gradients of the gates. If these gradients are not requested, `c`
    // is only a placeholder for `c_prev`.
    let c_prev = if run.wants(LstmCell::PRE) { run.input::<T>(LstmCell::C_PREV)? } else { c };
    let (dpre, dc_prev) = (run.gradient::<T>(LstmCell::PRE)?, run.gradient::<T>(LstmCell::C_PREV)?);
    lstm_backward(LstmBackward { pre, c_prev, c, dh, dc }, dpre, dc_prev);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::operator::call::Direct;
    use crate::tensor::Storage;

    /// Computes the requested gradients of `pre` and `c_prev`, from the gradient of `h`, of `c` or of both outputs.
    fn gradients(h: bool, c: bool, wanted: &dyn Fn(usize) -> bool) -> Result<Vec<Option<Vec<f64>>>> {
        let sample = &LstmCell::samples()?[0];
        let direct = Direct::new(Arc::new(LstmCell {}), &sample.operands)?;
        let out = direct.forward()?;
        let seed = |slot: usize, on: bool| vec![on.then(|| out[slot][0].storage().clone())];
        let gradients = direct.backward(&out, &[seed(LstmCell::H, h), seed(LstmCell::C, c)], wanted, None)?;
        let values =
            |g: &Option<Storage>| g.as_ref().map(|g| g.as_dense()?.as_slice::<f64>().map(<[f64]>::to_vec));
        gradients.iter().map(|g| values(&g[0]).transpose()).collect()
    }

    #[test]
    fn a_gradient_may_reach_either_output() -> Result<()> {
        let all = |_| true;
        let (both, h, c) =
            (gradients(true, true, &all)?, gradients(true, false, &all)?, gradients(false, true, &all)?);
        for slot in [LstmCell::PRE, LstmCell::C_PREV] {
            let (both, h, c) = (both[slot].as_ref(), h[slot].as_ref(), c[slot].as_ref());
            let (Some(both), Some(h), Some(c)) = (both, h, c) else { panic!("all were asked for") };
            for ((both, h), c) in both.iter().zip(h).zip(c) {
                assert!((both - (h + c)).abs() < 1e-12);
            }
        }
        assert!(gradients(false, false, &all).is_err());
        Ok(())
    }

    #[test]
    fn each_gradient_may_be_asked_for_alone() -> Result<()> {
        let both = gradients(true, true, &|_| true)?;
        for slot in [LstmCell::PRE, LstmCell::C_PREV] {
            let alone = gradients(true, true, &|wanted| wanted == slot)?;
            assert_eq!(alone[slot], both[slot]);
            assert_eq!(alone[1 - slot], None);
        }
        Ok(())
    }
}
