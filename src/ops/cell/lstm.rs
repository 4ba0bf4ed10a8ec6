//! `lstm_cell`: the elementwise part of an LSTM step, without the matrix products.

use half::bf16;

use crate::kernels::{
    LstmBackward, RoundedRows, lengthen, lstm_backward, lstm_forward, rows_to_widen, widen_rows,
};
use crate::ops::prelude::*;

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

    fn hints(&self) -> Hints {
        Hints { saves_bf16: &["pre"], ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::PRE), T => Ok({
            let (rows, width) = sizes.input(Self::PRE);
            let backward = sizes.pass() == Pass::Backward && RoundedRows::<T>::rounds(sizes.unit());
            let most = if backward { rows_to_widen(width).min(rows) } else { 0 };
            CallMemory::default().scratch::<WideGates<T>>(sizes.threads() * most * width * size_of::<T>())
        }))
        .unwrap_or_default()
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |width: usize| {
            CheckCase::of_sequences(&Attributes::new(), move |sample, lod| {
                let rows = |width, salt| Variable::sequences(numbers(lod.rows(), width, salt), lod.clone());
                Ok(sample.batch("pre", rows(4 * width, 0)?).batch("c_prev", rows(width, 1)?))
            })
        };
        let mut samples = attributes(3)?;
        samples.extend(attributes(1)?);
        Ok(samples)
    }
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let (dh, dc) = (run.output_gradient::<T>(LstmCell::H)?, run.output_gradient::<T>(LstmCell::C)?);
    if dh.is_none() && dc.is_none() {
        return Err(Error::new("lstm_cell", "a gradient of `h` or `c`", "none"));
    }
    let c = run.output::<T>(LstmCell::C)?;
    // The numbers of `c_prev` are read only for the gradients of the gates. If these gradients are not requested, `c`
    // is only a placeholder for `c_prev`.
    let c_prev = if run.wants(LstmCell::PRE) { run.input::<T>(LstmCell::C_PREV)? } else { c };
    let inputs = LstmBackward { pre: None, c_prev, c, dh, dc };
    if run.holds_bf16(LstmCell::PRE) || run.writes_bf16_gradient(LstmCell::PRE) {
        return backward_of_rounded(run, inputs);
    }
    let pre = if run.in_place(LstmCell::PRE) { None } else { Some(run.input::<T>(LstmCell::PRE)?) };
    let (dpre, dc_prev) = (run.gradient::<T>(LstmCell::PRE)?, run.gradient::<T>(LstmCell::C_PREV)?);
    lstm_backward(LstmBackward { pre, ..inputs }, dpre, dc_prev);
    Ok(())
}

/// Scratch for some rows of gates in bf16, converted to f32.
#[derive(Default)]
struct WideGates<T>(Vec<T>);

/// Computes [`backward`] for gates in bf16, whose gradient is written in bf16: a few rows are converted at a time.
fn backward_of_rounded<T: RowValue>(run: &mut Backward<'_>, inputs: LstmBackward<'_, T>) -> Result<()> {
    let pre = if run.in_place(LstmCell::PRE) { None } else { Some(run.input::<bf16>(LstmCell::PRE)?) };
    let (mut dpre, mut dc_prev) =
        (run.gradient::<bf16>(LstmCell::PRE)?, run.gradient::<T>(LstmCell::C_PREV)?);
    let (rows, width) = (inputs.c.rows(), 4 * inputs.c.width());
    let most = rows_to_widen(width).min(rows);
    let WideGates(room) = run.scratch().get::<WideGates<T>>();
    lengthen(room, most * width);
    for from in (0..rows).step_by(most.max(1)) {
        let to = rows.min(from + most);
        let mut wide = ViewMut::new(room, to - from, width);
        let mut rounded = dpre.as_mut().map(|(dpre, _)| dpre.reborrow().rows_range(from, to));
        match (&pre, &rounded) {
            (Some(pre), _) => widen_rows(pre.rows_range(from, to), wide.reborrow()),
            (None, Some(pre)) => widen_rows(pre.as_view(), wide.reborrow()),
            (None, None) => {}
        }
        let inputs = inputs.rows_range(from, to);
        let dc_prev =
            dc_prev.as_mut().map(|(dc_prev, assign)| (dc_prev.reborrow().rows_range(from, to), *assign));
        lstm_backward(inputs, Some((wide.reborrow(), Assign::Write)), dc_prev);
        if let Some(rounded) = rounded.take() {
            T::round_to_bf16(wide.as_view(), rounded);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
