//! `update_history`: records the learning rates of the last updates, from which the effect of missed updates on a row is
//! computed.

use ndarray::Array2;

use super::owed::{Moment, marked};
use super::rule::{HISTORY_SHAPE, KEPT, scalar};
use crate::error::Result;
use crate::operator;
use crate::operator::{Attributes, CheckCase, Facts, Forward, InferShape, LodEffect, Op, Spec};
use crate::tensor::DType;

operator! {
    /// Records the learning rate of an update, after all parameters have been updated.
    ///
    /// `history` is an f64 table `[16385, 2]`. Row 0 of `history` has the number of updates and a hash of all updates.
    /// Row 1 + (u mod 16384) has the learning rate of update u = 0, 1, … and the number of the update's training step,
    /// counted from 1. [`settle`](crate::ops) applies the missed updates of every row at least once in 8192 updates, so
    /// the rates of the last 16384 updates are more than enough.
    ///
    /// ```
    /// use ndarray::{Array2, arr0};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let history = Array2::<f64>::zeros([16385, 2]);
    /// let out = ops::catalogue().parse("update_history", &Attributes::new())?.call(&[
    ///     Operand::constant("rate", arr0(0.5f32)),
    ///     Operand::constant("history", history),
    /// ])?;
    /// let out = out[0].as_slice::<f64>()?;
    /// assert_eq!((out[0], &out[2..4]), (1.0, &[0.5, 1.0][..])); // the first update, of step 1
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct UpdateHistory = update_history {}
    inputs { RATE = rate: one.without_gradient() }
    outputs { HISTORY = history: one.updated() }
}

impl Op for UpdateHistory {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::RATE)?;
        s.constant(Self::RATE, &[])?;
        s.set(Self::HISTORY, Spec::fixed(DType::F64, &HISTORY_SHAPE)?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let moment = Moment { rate: scalar(run, Self::RATE)?, step: (run.run().step + 1) as f64 };
        let mut history = run.output::<f64>(Self::HISTORY)?;
        let (count, mark) = (history.row(0)[0], history.row(0)[1]);
        history.row(1 + (count as u64 % KEPT as u64) as usize).copy_from_slice(&[moment.rate, moment.step]);
        history.row(0).copy_from_slice(&[count + 1.0, marked(mark, moment)]);
        Ok(())
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut history = Array2::<f64>::zeros(HISTORY_SHAPE);
        history[[0, 0]] = 5.0;
        let sample = CheckCase::new("the sixth", Attributes::new()).without_gradient();
        Ok(vec![sample.constant("rate", ndarray::arr0(0.25f32)).fixed("history", history)])
    }
}
