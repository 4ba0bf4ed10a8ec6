//! The last row of each sequence, with one fault at a time.

use unpadded::op::{
    Assign, Attributes, Backward, CheckCase, Declaration, DeclaredOp, Facts, Float, Forward, Gradient, Hints,
    InferShape, LodEffect, Op, Pieces, RowValue, Signature, Slot, Spec, numbers,
};
use unpadded::{Result, Variable, with_float};

use super::{NONE, finds, passes};

const CLAIMS_PIECES: u8 = 1;
const READS_THE_WHOLE_BATCH: u8 = 2;

/// out = the last row of each sequence; zeros of an empty one.
struct Last<const FAULT: u8>;

declares! {
    Last = "acme.last", "the last row", &[], &[Slot::one("x")] => &[Slot::one("out")], |_| Ok(Self)
}

impl<const FAULT: u8> Op for Last<FAULT> {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(0))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(0)?;
        s.has_lod(0)?;
        s.set(0, s.input(0).drop_level(s.top())?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => {
            let (x, mut out) = (run.input::<T>(0)?, run.output::<T>(0)?);
            out.fill(T::ZERO);
            let offsets = run.lod(0).map(|lod| lod.offsets()).unwrap_or_default();
            for (i, rows) in run.sequences(0)?.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                let last = if FAULT == READS_THE_WHOLE_BATCH { offsets[i + 1] - 1 } else { rows.end - 1 };
                out.row(i).copy_from_slice(x.row(last));
            }
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => backward::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
    }

    fn hints(&self) -> Hints {
        // A piece may be empty where the sequence is not.
        let pieces = Pieces { into: "acme.last", attributes: Attributes::new(), carried: &[] };
        Hints { pieces: (FAULT == CLAIMS_PIECES).then_some(pieces), ..Hints::default() }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 2, 0), lod)?))
        })
    }
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(g) = run.output_gradient::<T>(0)? else { return Ok(()) };
    let Some((mut dx, store)) = run.gradient::<T>(0)? else { return Ok(()) };
    if store == Assign::Write {
        dx.fill(T::ZERO);
    }
    for (i, rows) in run.sequences(0)?.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        dx.row(rows.end - 1).iter_mut().zip(g.row(i)).for_each(|(dx, &g)| *dx += g);
    }
    Ok(())
}

#[test]
fn the_last_row_passes() {
    passes::<Last<NONE>>();
}

#[test]
fn sequences_that_are_not_taken_as_declared_are_found() {
    finds::<Last<CLAIMS_PIECES>>("pieces", "pieces of 1: `out`, element 4: 0 instead of ");
    finds::<Last<READS_THE_WHOLE_BATCH>>("reach", "sequences 1..");
}
