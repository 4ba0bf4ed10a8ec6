//! `lod_of`: the lengths of the sequences, as a variable.
//!
//! out_s = the length of sequence s of the last level of x, an i64, shape `[sequences]`; its LoD is that of x without
//! the last level. An empty sequence gives 0. The rows of x are not read and get no gradient.
//!
//! Lengths, not offsets: one number a sequence lies in the program like any pooled row, and offsets are their sums.
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let x = Variable::from_nested(&[vec![vec![7i64, 8, 9], vec![]], vec![], vec![vec![5]]])?;
//! let op = ops::catalogue().parse("lod_of", &Attributes::new())?;
//! let out = op.call(&[Operand::batch("x", x)])?;
//! assert_eq!(out[0].as_slice::<i64>()?, [3, 0, 1]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use ndarray::Array2;

use crate::error::Result;
use crate::lod::Lod;
use crate::program::{
    Attributes, Builder, Facts, Forward, InferShape, LodEffect, Needs, Op, Sample, Signature, Slot, Var,
};
use crate::tensor::{DType, Variable};

const X: usize = 0;
const OUT: usize = 0;

/// The lengths of the sequences.
pub(super) struct LodOf;

impl Builder {
    /// The lengths of the sequences of `x`'s last level, one i64 a sequence.
    ///
    /// # Errors
    /// If `x` has no LoD.
    #[track_caller]
    #[doc(alias("lengths", "seq_pos"))]
    pub fn lod_of(&self, x: Var) -> Result<Var> {
        self.append1("lod_of", &[("x", &[x])], Attributes::new())
    }
}

impl Op for LodOf {
    fn kind() -> &'static str {
        "lod_of"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const {
            Signature {
                inputs: &[Slot::one("x").without_gradient()],
                outputs: &[Slot::one("out").without_gradient()],
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.has_lod(X)?;
        let mut out = s.input(X).drop_level(s.top())?.with_dtype(DType::I64);
        out.shape.truncate(1);
        s.set(OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut out = run.output::<i64>(OUT)?;
        for (out, rows) in out.iter_mut().zip(run.sequences(X)?.iter()) {
            out.fill(rows.len() as i64);
        }
        Ok(())
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let cases = [
            ("sequences with an empty one", vec![vec![3, 0, 1]]),
            ("two levels", vec![vec![2, 0, 1], vec![2, 0, 4]]),
            ("all empty", vec![vec![0, 0]]),
            ("none", vec![vec![]]),
        ];
        let sample = |(name, lengths): (&str, Vec<Vec<usize>>)| -> Result<Sample> {
            let lod = Lod::from_lengths(&lengths)?;
            let x = Variable::sequences(Array2::<f64>::zeros((lod.rows(), 2)), lod)?;
            Ok(Sample::new(name, Attributes::new()).batch("x", x))
        };
        cases.into_iter().filter_map(|case| sample(case).ok()).collect()
    }
}
