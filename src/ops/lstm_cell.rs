//! `lstm_cell`: the pointwise part of an LSTM step.
//!
//! With `pre` `[rows, 4H]` = (i, f, g, o), the gates before their activations, and `c_prev` `[rows, H]`:
//!
//! c = σ(f) ∘ c_prev + σ(i) ∘ tanh(g), h = σ(o) ∘ tanh(c).
//!
//! The products that make `pre` are ordinary `linear`s, and the loop over time is a `recurrent`'s. Row-wise: the rows
//! may belong to sequences of any LoD, which both outputs keep. A loss may stand on `h`, on `c` or on both.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let lod = Lod::from_lengths1(&[1, 0, 1])?;
//! let big = 100.0; // opens a gate, or saturates tanh
//! let pre = Variable::sequences(array![[big, big, big, big], [-big, big, 0.0, -big]], lod.clone())?;
//! let op = ops::catalogue().parse("lstm_cell", &Attributes::new())?;
//! let out = op.call(&[
//!     Operand::batch("pre", pre),
//!     Operand::batch("c_prev", Variable::sequences(array![[-1.0], [0.25]], lod)?),
//! ])?;
//! assert_eq!(out[1].as_slice::<f64>()?, [0.0, 0.25]); // c: added to, kept
//! assert!(out[0].as_slice::<f64>()?.iter().all(|h| h.abs() < 1e-9)); // h: tanh(0), a closed output gate
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::Array2;

use crate::error::{Error, Result};
use crate::kernels::{LstmBackward, lstm_backward, lstm_forward};
use crate::lod::Lod;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Needs, Op, RowValue, Sample, Signature, Slot,
    Var,
};
use crate::tensor::Variable;
use crate::with_float;

const PRE: usize = 0;
const C_PREV: usize = 1;
const H: usize = 0;
const C: usize = 1;

/// h and c from the gates' inputs and the previous c.
pub(super) struct LstmCell;

impl Builder {
    /// The pointwise part of an LSTM step: the new `(h, c)` from `pre` `[rows, 4H]`, the gates i, f, g, o before their
    /// activations, and `c_prev` `[rows, H]`.
    ///
    /// # Errors
    /// If the rows or the widths do not fit.
    #[track_caller]
    pub fn lstm_cell(&self, pre: Var, c_prev: Var) -> Result<(Var, Var)> {
        let out = self.append("lstm_cell", &[("pre", &[pre]), ("c_prev", &[c_prev])], Attributes::new())?;
        Ok((out[H], out[C]))
    }
}

impl Op for LstmCell {
    fn kind() -> &'static str {
        "lstm_cell"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("pre"), Slot::one("c_prev")],
                outputs: &[Slot::one("h"), Slot::one("c")],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(PRE)?;
        s.same_dtype(PRE, C_PREV)?;
        s.same_rows(PRE, C_PREV)?;
        let (pre, c_prev) = (s.input(PRE), s.input(C_PREV));
        if c_prev.shape.len() != 2 || pre.shape.len() != 2 || pre.width() != 4 * c_prev.width() {
            return Err(
                s.mismatch(PRE, &format!("rows of {} numbers, 4 × those of `c_prev`", 4 * c_prev.width()))
            );
        }
        s.set(H, c_prev.clone());
        s.set(C, c_prev.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(PRE), T => {
            lstm_forward(run.input::<T>(PRE)?, run.input::<T>(C_PREV)?, run.output::<T>(H)?, run.output::<T>(C)?);
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(PRE), T => backward::<T>(run))
    }

    fn needs(&self, wrt: usize) -> Needs {
        let gates = Needs::nothing().input(PRE).output(C);
        if wrt == PRE { gates.input(C_PREV) } else { gates }
    }

    fn overwrites(&self, wrt: usize) -> bool {
        wrt == PRE
    }

    fn samples() -> Vec<Sample> {
        let sample = |(name, lengths, width): (&str, Vec<Vec<usize>>, usize)| -> Result<Sample> {
            let lod = Lod::from_lengths(&lengths)?;
            let numbers = |width: usize, seed: f64| {
                Array2::from_shape_fn((lod.rows(), width), |(i, j)| {
                    1.5 * ((i * width + j) as f64 * 1.3 + seed).sin()
                })
            };
            Ok(Sample::new(name, Attributes::new())
                .batch("pre", Variable::sequences(numbers(4 * width, 0.0), lod.clone())?)
                .batch("c_prev", Variable::sequences(numbers(width, 0.5), lod.clone())?))
        };
        let cases = [
            ("sequences with an empty one", vec![vec![2, 0, 1]], 3),
            ("two levels", vec![vec![2, 0, 1], vec![1, 0, 2]], 1),
            ("all empty", vec![vec![0, 0]], 2),
            ("none", vec![vec![]], 2),
        ];
        cases.into_iter().filter_map(|case| sample(case).ok()).collect()
    }
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let (dh, dc) = (run.output_gradient::<T>(H)?, run.output_gradient::<T>(C)?);
    if dh.is_none() && dc.is_none() {
        return Err(Error::new("lstm_cell", "a gradient of `h` or `c`", "none"));
    }
    let pre = if run.in_place(PRE) { None } else { Some(run.input::<T>(PRE)?) };
    let c = run.output::<T>(C)?;
    // The previous memory's values only matter for the gates' gradient.
    let c_prev = if run.wants(PRE) { run.input::<T>(C_PREV)? } else { c };
    let (dpre, dc_prev) = (run.gradient::<T>(PRE)?, run.gradient::<T>(C_PREV)?);
    lstm_backward(LstmBackward { pre, c_prev, c, dh, dc }, dpre, dc_prev);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::program::call::Direct;
    use crate::tensor::Storage;

    /// The gradients that a seed on `h`, on `c` or both leaves, for the slots wanted.
    fn gradients(h: bool, c: bool, wanted: &dyn Fn(usize) -> bool) -> Result<Vec<Option<Vec<f64>>>> {
        let sample = &LstmCell::samples()[0];
        let direct = Direct::new(Arc::new(LstmCell), &sample.operands)?;
        let out = direct.forward()?;
        let seed = |slot: usize, on: bool| vec![on.then(|| out[slot][0].storage().clone())];
        let gradients = direct.backward(&out, &[seed(H, h), seed(C, c)], wanted, None)?;
        let values =
            |g: &Option<Storage>| g.as_ref().map(|g| g.as_dense()?.as_slice::<f64>().map(<[f64]>::to_vec));
        gradients.iter().map(|g| values(&g[0]).transpose()).collect()
    }

    #[test]
    fn a_gradient_may_reach_either_output() -> Result<()> {
        let all = |_| true;
        let (both, h, c) =
            (gradients(true, true, &all)?, gradients(true, false, &all)?, gradients(false, true, &all)?);
        for slot in [PRE, C_PREV] {
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
        for slot in [PRE, C_PREV] {
            let alone = gradients(true, true, &|wanted| wanted == slot)?;
            assert_eq!(alone[slot], both[slot]);
            assert_eq!(alone[1 - slot], None);
        }
        Ok(())
    }
}
