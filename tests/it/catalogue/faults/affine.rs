//! A product with weights, with one fault at a time in the declaration of its constants.

use ndarray::array;
use unpadded::op::{
    Assign, Attributes, Backward, CheckCase, Declaration, DeclaredOp, Facts, Float, Forward, Gradient, Hints,
    InferShape, Merge, Op, Prepare, RowValue, Signature, Slot, Spec, numbers,
};
use unpadded::{Result, Variable, with_float};

use super::{NONE, finds, passes};

const KEEPS_NOTHING: u8 = 1;
const KEEPS_IN_SECRET: u8 = 2;
const KEEPS_ANOTHER: u8 = 3;
const MERGES_IN_ANOTHER_ORDER: u8 = 4;
const MERGES_INTO_NO_PARTS: u8 = 5;
const TAKES_BF16_IN_WORDS_ONLY: u8 = 6;
const TAKES_BF16_WITHOUT_PRODUCT: u8 = 7;

/// out = x · [W₁ W₂ …].
struct Affine<const FAULT: u8>;

declares! {
    Affine = "acme.affine", "x · W", &[],
    &[Slot::one("x"), Slot::many("weight")] => &[Slot::one("out")], |_| Ok(Self)
}

/// The first weight, as it was prepared.
#[derive(Default)]
struct Kept<T>(Vec<T>);

impl<const FAULT: u8> Op for Affine<FAULT> {
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(0)?;
        s.same_dtype(0, 1)?;
        let width = s.many(1).iter().map(Spec::width).sum();
        s.set(0, s.input(0).with_width(width));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => forward::<T, FAULT>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => backward::<T>(run))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(1 - wrt)
    }

    fn hints(&self) -> Hints {
        let parts = if FAULT == MERGES_INTO_NO_PARTS { "concat" } else { "split" };
        let merges = [NONE, MERGES_IN_ANOTHER_ORDER, MERGES_INTO_NO_PARTS].contains(&FAULT);
        Hints {
            prepares: FAULT == KEEPS_NOTHING || FAULT == KEEPS_ANOTHER,
            merges: merges.then_some(Merge { beside: &["weight"], parts }),
            multiplies: FAULT == TAKES_BF16_IN_WORDS_ONLY,
            takes_bf16: if FAULT < TAKES_BF16_IN_WORDS_ONLY { &[] } else { &["x"] },
            ..Hints::default()
        }
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        if FAULT != KEEPS_IN_SECRET && FAULT != KEEPS_ANOTHER {
            return Ok(());
        }
        with_float!(prepare.dtype(0), T => {
            if let Some(weight) = prepare.constant_at::<T>(1, 0) {
                let more = T::from_f64(if FAULT == KEEPS_ANOTHER { 1.0 } else { 0.0 });
                prepare.keep::<Kept<T>>().0 = weight.iter().flatten().map(|&w| w + more).collect();
            }
            Ok(())
        })
    }

    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
            let x = Variable::sequences(numbers(lod.rows(), 3, 0), lod)?;
            Ok(sample.batch("x", x).constant("weight", array![[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]]))
        })
    }
}

fn forward<T: RowValue, const FAULT: u8>(run: &mut Forward<'_>) -> Result<()> {
    let (x, mut out) = (run.input::<T>(0)?, run.output::<T>(0)?);
    let mut order: Vec<usize> = (0..run.count(1)).collect();
    if FAULT == MERGES_IN_ANOTHER_ORDER {
        order.reverse();
    }
    let mut at = 0;
    for k in order {
        let weight = run.input_at::<T>(1, k)?;
        let kept = run.prepared::<Kept<T>>();
        for i in 0..x.rows() {
            for j in 0..weight.width() {
                let number = |l: usize| kept.map_or(weight.row(l)[j], |kept| kept.0[l * weight.width() + j]);
                let terms = x.row(i).iter().enumerate().map(|(l, &x)| x * number(l));
                out.row(i)[at + j] = terms.fold(T::ZERO, |sum, term| sum + term);
            }
        }
        at += weight.width();
    }
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(g) = run.output_gradient::<T>(0)? else { return Ok(()) };
    let widths: Vec<usize> = (0..run.count(1)).map(|k| run.input_spec_at(1, k).width()).collect();
    if let Some((mut dx, store)) = run.gradient::<T>(0)? {
        for i in 0..dx.rows() {
            for (l, dx) in dx.row(i).iter_mut().enumerate() {
                let mut sum = T::ZERO;
                let mut at = 0;
                for (k, width) in widths.iter().enumerate() {
                    let weight = run.input_at::<T>(1, k)?;
                    (0..*width).for_each(|j| sum += g.row(i)[at + j] * weight.row(l)[j]);
                    at += width;
                }
                *dx = if store == Assign::Add { *dx + sum } else { sum };
            }
        }
    }
    let mut at = 0;
    for (k, width) in widths.iter().enumerate() {
        if let Some((mut dw, store)) = run.gradient_at::<T>(1, k)? {
            let x = run.input::<T>(0)?;
            for l in 0..dw.rows() {
                for (j, dw) in dw.row(l).iter_mut().enumerate() {
                    let terms = (0..x.rows()).map(|i| x.row(i)[l] * g.row(i)[at + j]);
                    let sum = terms.fold(T::ZERO, |sum, term| sum + term);
                    *dw = if store == Assign::Add { *dw + sum } else { sum };
                }
            }
        }
        at += width;
    }
    Ok(())
}

#[test]
fn a_sound_product_with_weights_passes() {
    passes::<Affine<NONE>>();
}

#[test]
fn constants_that_are_not_prepared_as_declared_are_found() {
    finds::<Affine<KEEPS_NOTHING>>("prepares", "declared, but nothing was kept of the constants");
    finds::<Affine<KEEPS_IN_SECRET>>("prepares", "not declared, but something was kept");
    finds::<Affine<KEEPS_ANOTHER>>("prepares", "`out`[0] with what was prepared, element 0: ");
}

#[test]
fn calls_that_are_not_one_as_declared_are_found() {
    finds::<Affine<MERGES_IN_ANOTHER_ORDER>>("merges", "the columns of two calls as one, element 0: ");
    finds::<Affine<MERGES_INTO_NO_PARTS>>("merges", "concat");
}

#[test]
fn rows_in_bf16_that_are_not_taken_as_declared_are_found() {
    finds::<Affine<TAKES_BF16_IN_WORDS_ONLY>>("stored in bf16", "slot `x`");
    finds::<Affine<TAKES_BF16_WITHOUT_PRODUCT>>("stored in bf16", "`takes_bf16` without `multiplies`");
}
