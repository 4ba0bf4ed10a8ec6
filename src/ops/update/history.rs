//! `update_history`: the rates of the last updates, from which it follows what rows owe.

use ndarray::Array2;

use super::owed::{HISTORY_SHAPE, KEPT};
use super::rule::scalar;
use crate::error::Result;
use crate::operator;
use crate::program::{Attributes, Facts, Forward, InferShape, LodEffect, Op, Sample, Spec};
use crate::tensor::DType;

operator! {
    /// Writes the rate of an update down, behind all that the update moves.
    ///
    /// `history` is `[16385, 2]` in f64. Its first row is how many updates there were, and 0; update u = 0, 1, … stands in row
    /// 1 + u mod 16384: its rate, and the number of its step, from 1. What a row owes that was not read for longer than that is
    /// settled meanwhile ([`settle`](crate::ops)), so that no older one is asked for.
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
        let (rate, number) = (scalar(run, Self::RATE)?, (run.run().step + 1) as f64);
        let mut history = run.output::<f64>(Self::HISTORY)?;
        let count = history.row(0)[0];
        history.row(1 + (count as u64 % KEPT as u64) as usize).copy_from_slice(&[rate, number]);
        history.row(0)[0] = count + 1.0;
        Ok(())
    }

    fn samples() -> Result<Vec<Sample>> {
        let mut history = Array2::<f64>::zeros(HISTORY_SHAPE);
        history[[0, 0]] = 5.0;
        let sample = Sample::new("the sixth", Attributes::new()).without_gradient();
        Ok(vec![sample.constant("rate", ndarray::arr0(0.25f32)).constant("history", history)])
    }
}
