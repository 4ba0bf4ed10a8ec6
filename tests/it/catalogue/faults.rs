//! The test tested: a user's operator passes, and the same one with a fault is reported under the rule it breaks.

use unpadded::kernels::Store;
use unpadded::program::{
    Attributes, Backward, Declaration, Declared, Facts, Forward, Gradient, Hints, InferShape, LodEffect, Op,
    Registry, RowValue, Sample, Signature, Slot, Spec,
};
use unpadded::{Result, Variable, with_float};

use super::check;

const NONE: u8 = 0;
const WRONG_GRADIENT: u8 = 1;
const NEVER_ADDS: u8 = 2;
const COUNTS_THE_BATCH: u8 = 3;
const KEEPS_IN_SECRET: u8 = 4;
const ROUNDS: u8 = 5;
const FEW_SAMPLES: u8 = 6;
const NEEDS_TOO_LITTLE: u8 = 7;
const CLAIMS_COLUMNS: u8 = 8;

/// out = x².
struct Squared<const FAULT: u8>;

impl<const FAULT: u8> Declared for Squared<FAULT> {
    fn declaration() -> &'static Declaration {
        const {
            &Declaration {
                kind: "squared",
                text: "x²",
                attributes: &[],
                signature: Signature {
                    inputs: &[Slot::one("x")],
                    outputs: &[Slot::one("out")],
                    kernels: &[],
                },
            }
        }
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn declared(&self) -> &'static Declaration {
        Self::declaration()
    }
}

impl<const FAULT: u8> Op for Squared<FAULT> {
    fn facts(&self) -> Facts {
        let lod = if FAULT == KEEPS_IN_SECRET { LodEffect::Drops } else { LodEffect::Keeps(0) };
        Facts { lod, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(0, s.input(0).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => self.square::<T>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => self.slope::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        if FAULT == NEEDS_TOO_LITTLE { Gradient::reads_nothing() } else { Gradient::reads_nothing().input(0) }
    }

    fn hints(&self) -> Hints {
        let columns = (FAULT == CLAIMS_COLUMNS).then(|| std::iter::once(0..1).collect());
        Hints { columns, ..Hints::default() }
    }

    fn samples() -> Result<Vec<Sample>> {
        let batches = [vec![vec![0.5, -1.0], vec![], vec![2.0]], vec![]];
        let kept = if FAULT == FEW_SAMPLES { 1 } else { 2 };
        let batches = batches.into_iter().take(kept).map(|batch| Variable::from_sequences(&batch).unwrap());
        Ok(batches.map(|x| Sample::new("a batch", Attributes::new()).batch("x", x)).collect())
    }
}

impl<const FAULT: u8> Squared<FAULT> {
    fn square<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out) = (run.input::<T>(0)?, run.output::<T>(0)?);
        let more = match FAULT {
            COUNTS_THE_BATCH => x.rows() as f64,
            ROUNDS if size_of::<T>() == 4 => 1e-3,
            _ => 0.0,
        };
        for (out, &x) in out.iter_mut().flatten().zip(x.iter().flatten()) {
            *out = x * x + T::from_f64(more);
        }
        Ok(())
    }

    fn slope<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let (Some((mut dx, store)), Some(g)) = (run.gradient::<T>(0)?, run.output_gradient::<T>(0)?) else {
            return Ok(());
        };
        let factor = T::from_f64(if FAULT == WRONG_GRADIENT { 3.0 } else { 2.0 });
        let cells = run.input::<T>(0)?;
        for ((dx, &x), &g) in dx.iter_mut().flatten().zip(cells.iter().flatten()).zip(g.iter().flatten()) {
            let before = if store == Store::Add && FAULT != NEVER_ADDS { *dx } else { T::ZERO };
            *dx = before + factor * x * g;
        }
        Ok(())
    }
}

fn failures<const FAULT: u8>() -> Vec<String> {
    let mut registry = Registry::empty();
    registry.add::<Squared<FAULT>>().unwrap();
    check(&registry)
}

#[track_caller]
fn finds<const FAULT: u8>(rule: &str) {
    let failures = failures::<FAULT>();
    assert!(!failures.is_empty() && failures.iter().all(|f| f.contains(rule)), "{rule}: {failures:#?}");
}

#[test]
fn a_users_operator_is_checked_as_the_crates_own() {
    assert_eq!(failures::<NONE>(), Vec::<String>::new());
}

#[test]
fn every_rule_finds_its_fault() {
    finds::<WRONG_GRADIENT>("gradient: `x`[0], element 0: ");
    finds::<NEVER_ADDS>("requests: `x`: an added gradient is not the sum");
    finds::<COUNTS_THE_BATCH>("batch independence: ");
    finds::<KEEPS_IN_SECRET>("shape and LoD: `out`: Drops, but its LoD is [[");
    finds::<ROUNDS>("f32: `out`, element 0");
    finds::<FEW_SAMPLES>("no sample of no sequence");
    finds::<CLAIMS_COLUMNS>("columns: output 0 is not columns 0..1");
    finds::<NEEDS_TOO_LITTLE>("not declared in `needs`");
}
