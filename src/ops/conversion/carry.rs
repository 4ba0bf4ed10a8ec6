//! `carry`: marks the variable that holds the value of a carried state after a batch; the next batch starts with this value.

use super::assign::{copy, copy_back};
use crate::ops::prelude::*;

operator! {
    /// Copies `x`, the value of a carried state after a batch; the feed `before` is the value of this state before the batch.
    /// [`Trainer`](crate::train::Trainer) and [`Predictor`](crate::predict::Predictor) read the output and feed it as `before`
    /// of the next batch. The numbers of `before` are not read: the input `before` only names the feed of the state.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let (before, x) = (Variable::dense(ndarray::array![[0.0f32]]), Variable::dense(ndarray::array![[2.0f32]]));
    /// let op = ops::catalogue().parse("carry", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("before", before)])?;
    /// assert_eq!(out[0].as_slice::<f32>()?, [2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has another dtype, shape or LoD than `before`.
    pub(in crate::ops) struct Carry = carry {}
    inputs { X = x: one, BEFORE = before: one.without_gradient() }
    outputs { OUT = out: one }
}

impl Op for Carry {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let (x, before) = (s.input(Self::X), s.input(Self::BEFORE));
        if x != before {
            let expected = format!("{before}, as it is before");
            return Err(Error::new("state after the batch", expected, x.to_string()));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        copy(run)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        copy_back(run)
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().passes(true)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 2, |mut sample, _| {
            let x = sample.operands.first().cloned();
            sample.operands.extend(x.map(|x| Operand { slot: "before".to_owned(), ..x }));
            Ok(sample)
        })
    }
}
