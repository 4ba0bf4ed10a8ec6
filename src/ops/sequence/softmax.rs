//! `sequence_softmax`: the softmax over the rows of each sequence.

use crate::kernels::math;
use crate::ops::prelude::*;

operator! {
    /// Computes the softmax over the rows of each sequence of the last level; `x` has one number per row.
    ///
    /// out_t = exp(x_t − m) / Σ_u exp(x_u − m), where u are the rows of the sequence of row t, and m is the maximum of x in the
    /// sequence. The output keeps the LoD of x; an empty sequence stays empty.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1000.0], [1000.0], [3.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("sequence_softmax", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.5, 0.5, 1.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD, has more than one number per row, or does not hold floats.
    pub(in crate::ops) struct SequenceSoftmax = sequence_softmax {}
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_softmax(&self, x: Var) -> Var; }
}

impl Op for SequenceSoftmax {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        if s.input(Self::X).width() != 1 {
            return Err(s.mismatch(Self::X, "one number for each row"));
        }
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    float_passes!(Self::X, T: (self, run) => forward::<T>(run), backward::<T>(run));

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().output(Self::OUT)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 1, 0), lod)?))
        })?;
        samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let row_numbers = numbers(lod.rows(), 1, 1).column(0).to_owned();
            Ok(sample.batch("x", Variable::sequences(row_numbers, lod)?))
        })?);
        Ok(samples)
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let (x, mut out, sequences) = (
        run.input::<T>(SequenceSoftmax::X)?,
        run.output::<T>(SequenceSoftmax::OUT)?,
        run.sequences(SequenceSoftmax::X)?,
    );
    for rows in sequences.iter() {
        let max = rows.clone().fold(T::NEG_INFINITY, |max, row| max.max(x.row(row)[0]));
        for row in rows {
            out.row(row)[0] = x.row(row)[0] - max;
        }
    }
    match out.contiguous() {
        Some(out) => math::exp_in_place(out),
        None => out.iter_mut().for_each(math::exp_in_place),
    }
    for rows in sequences.iter() {
        let sum = rows.clone().fold(T::ZERO, |sum, row| sum + out.row(row)[0]);
        for row in rows {
            out.row(row)[0] /= sum;
        }
    }
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let dout = run.dout::<T>(SequenceSoftmax::OUT)?;
    let Some((mut dx, assign)) = run.gradient::<T>(SequenceSoftmax::X)? else { return Ok(()) };
    let out = run.output::<T>(SequenceSoftmax::OUT)?;
    for rows in run.sequences(SequenceSoftmax::X)?.iter() {
        let mean = rows.clone().fold(T::ZERO, |sum, row| sum + dout.row(row)[0] * out.row(row)[0]);
        for row in rows {
            let d = (dout.row(row)[0] - mean) * out.row(row)[0];
            assign.put(&mut dx.row(row)[0], d);
        }
    }
    Ok(())
}
