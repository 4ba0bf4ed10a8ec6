//! `sequence_reverse`: each sequence backwards.
//!
//! Row t of a sequence of n rows becomes row n − 1 − t of the same sequence of the last level. Any dtype; the LoD is
//! kept; an empty sequence stays empty. The gradient is reversed likewise.
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let x = Variable::from_sequences(&[vec![1i64, 2, 3], vec![], vec![4, 5]])?;
//! let op = ops::catalogue().parse("sequence_reverse", &Attributes::new())?;
//! let out = op.call(&[Operand::batch("x", x)])?;
//! assert_eq!(out[0].as_slice::<i64>()?, [3, 2, 1, 5, 4]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 2]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::Array2;

use crate::error::{Error, Result};
use crate::kernels::arena::Plain;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, LodEffect, Needs, Op, RowValue, Sample,
    Signature, Slot, Var,
};
use crate::tensor::{Variable, with_element};
use crate::with_float;

use super::rowwise::{numbers, put_row, sequence_samples};

const X: usize = 0;
const OUT: usize = 0;

/// Each sequence backwards.
pub(super) struct SequenceReverse;

impl Builder {
    /// Each sequence of the last level backwards; any dtype.
    ///
    /// # Errors
    /// If `x` has no LoD.
    #[track_caller]
    pub fn sequence_reverse(&self, x: Var) -> Result<Var> {
        self.append1("sequence_reverse", &[("x", &[x])], Attributes::new())
    }
}

impl Op for SequenceReverse {
    fn kind() -> &'static str {
        "sequence_reverse"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_element!(run.dtype(X), T => forward::<T>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run))
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let mut samples = sequence_samples(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, 0), lod)?))
        });
        samples.extend(sequence_samples(&Attributes::new(), |sample, lod| {
            let ids = Array2::from_shape_fn((lod.rows(), 2), |(i, j)| (i * 2 + j) as i64);
            Ok(sample.batch("x", Variable::sequences(ids, lod)?))
        }));
        samples
    }
}

fn forward<T: Plain>(run: &mut Forward<'_>) -> Result<()> {
    let (x, mut out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
    for rows in run.sequences(X)?.iter() {
        for (from, to) in rows.clone().rev().zip(rows) {
            out.row(to).copy_from_slice(x.row(from));
        }
    }
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else {
        return Err(Error::new("sequence_reverse", "a gradient of its output", "none"));
    };
    let Some((mut dx, store)) = run.gradient::<T>(X)? else { return Ok(()) };
    for rows in run.sequences(X)?.iter() {
        for (from, to) in rows.clone().rev().zip(rows) {
            put_row(dx.row(to), dout.row(from), store);
        }
    }
    Ok(())
}
