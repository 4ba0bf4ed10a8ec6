//! A product of two variables, with one fault at a time.

use unpadded::op::{
    Assign, Attributes, Backward, CheckCase, Declaration, DeclaredOp, Extent, Facts, Forward, Fusion,
    Gradient, Hints, InferShape, LodEffect, Op, RowValue, Signature, Slot, Spec, Total, numbers, or_default,
    testing,
};
use unpadded::{Error, Registry, Result, Variable, with_float};

use super::{NONE, failures, finds, passes};

const WRONG_GRADIENT: u8 = 1;
const NEVER_ADDS: u8 = 2;
const ROUNDS: u8 = 3;
const COUNTS_THE_BATCH: u8 = 4;
const KEEPS_IN_SECRET: u8 = 5;
const CLAIMS_COLUMNS: u8 = 6;
const READS_IN_SECRET: u8 = 7;
const READS_A_SHAPE: u8 = 8;
const PASSES_NOTHING_ON: u8 = 9;
const NEEDS_ALL_ROWS: u8 = 10;
const DRAWS: u8 = 11;
const NEVER_DRAWS: u8 = 12;
const CLAIMS_A_SUM: u8 = 13;
const CLAIMS_PASSING: u8 = 14;
const CLAIMS_ADDING: u8 = 15;
const CLAIMS_OVERWRITING: u8 = 16;
const CLAIMS_SEPARATE_GRADIENTS: u8 = 17;
const CLAIMS_JOINING: u8 = 18;
const COUNTS_THREADS: u8 = 19;
const REFUSES_STEPS: u8 = 20;
const PANICS: u8 = 21;
const NO_SAMPLE: u8 = 22;
const FEW_SAMPLES: u8 = 23;
const NO_SAMPLE_BUILDS: u8 = 24;
const UNREADABLE: u8 = 25;
const FUSES: u8 = 26;
const FUSES_WRONGLY: u8 = 27;
const TAKES_ANY_TYPE: u8 = 28;
const TAKES_ANY_ROWS: u8 = 29;
const ROUNDS_IN_STEPS: u8 = 30;
const CLAIMS_A_MEAN: u8 = 31;

const BOTH: &[Slot] = &[Slot::one("x"), Slot::one("y")];
const SHAPE: &[Slot] = &[Slot::one("x"), Slot::one("y").without_gradient().shape_only()];
const ONE: &[Slot] = &[Slot::one("out")];
const TWO: &[Slot] = &[Slot::one("out"), Slot::one("extra").without_gradient()];

/// out = x · y.
struct Product<const FAULT: u8>;

/// out = (factor · x + offset) · y: the fused form of `scale` and a product.
struct Scaled<const FAULT: u8> {
    factor: f64,
    offset: f64,
}

declares! {
    Product = "acme.product", "x · y", &[],
    if FAULT == READS_A_SHAPE { SHAPE } else { BOTH } => if FAULT == PASSES_NOTHING_ON { TWO } else { ONE },
    |_| if FAULT == UNREADABLE { Err(Error::new("attributes", "others", "none")) } else { Ok(Self) }
}

declares! {
    Scaled = "acme.scaled", "(factor · x + offset) · y", &["factor", "offset"], BOTH => ONE,
    |attributes| {
        let number = |name| or_default(attributes, name, 0.0);
        Ok(Self { factor: number("factor")?, offset: number("offset")? })
    }
}

/// The number of calls that used this memory.
#[derive(Default)]
struct Calls(usize);

impl<const FAULT: u8> Op for Product<FAULT> {
    fn facts(&self) -> Facts {
        let lod = if FAULT == KEEPS_IN_SECRET { LodEffect::Drops } else { LodEffect::Keeps(0) };
        Facts { lod, random: FAULT == NEVER_DRAWS, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        if FAULT == REFUSES_STEPS && matches!(s.input(0).rows(), Extent::Alive(_)) {
            return Err(s.mismatch(0, "rows of a batch"));
        }
        if FAULT != TAKES_ANY_TYPE {
            s.is_float(0)?;
            s.same_dtype(0, 1)?;
        }
        if FAULT != TAKES_ANY_ROWS {
            s.same_rows(0, 1)?;
        }
        s.set(0, s.input(0).clone());
        if FAULT == PASSES_NOTHING_ON {
            s.set(1, s.input(0).clone());
        }
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => forward::<T, FAULT>(run, (1.0, 0.0)))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => backward::<T, FAULT>(run, (1.0, 0.0)))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        let gradient = match FAULT {
            READS_IN_SECRET => Gradient::reads_nothing(),
            _ => Gradient::reads_nothing().input(1 - wrt),
        };
        let gradient = gradient.passes(FAULT == CLAIMS_PASSING && wrt == 0);
        if FAULT == CLAIMS_OVERWRITING { gradient.overwrites() } else { gradient }
    }

    fn hints(&self) -> Hints {
        const FUSION: Fusion = Fusion {
            slot: "x",
            producer: "scale",
            into: "acme.scaled",
            producer_slots: &[("x", "x")],
            own_slots: &[("y", "y")],
            by_others: &[],
            least_width: 0,
        };
        Hints {
            columns: (FAULT == CLAIMS_COLUMNS).then(|| std::iter::once(0..1).collect()),
            sums: FAULT == CLAIMS_A_SUM,
            total: (FAULT == CLAIMS_A_MEAN).then_some(Total::Mean),
            accumulates: FAULT == CLAIMS_ADDING,
            separate_gradients: FAULT == CLAIMS_SEPARATE_GRADIENTS,
            joins: FAULT == CLAIMS_JOINING,
            fusions: if FAULT == FUSES { &[FUSION] } else { &[] },
            ..Hints::default()
        }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = samples(&Attributes::new())?;
        match FAULT {
            NO_SAMPLE => samples.clear(),
            FEW_SAMPLES => samples.truncate(1),
            NO_SAMPLE_BUILDS => return Err(Error::new("a sample", "numbers", "none")),
            _ => {}
        }
        Ok(samples)
    }
}

impl<const FAULT: u8> Op for Scaled<FAULT> {
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(0)?;
        s.same_dtype(0, 1)?;
        s.same_rows(0, 1)?;
        s.set(0, s.input(0).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => forward::<T, NONE>(run, self.line()))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(0), T => backward::<T, NONE>(run, self.line()))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(1 - wrt)
    }

    fn samples() -> Result<Vec<CheckCase>> {
        samples(&Attributes::new().with("factor", -1.5).with("offset", 0.25))
    }
}

impl<const FAULT: u8> Scaled<FAULT> {
    fn line(&self) -> (f64, f64) {
        (self.factor, if FAULT == FUSES_WRONGLY { 0.0 } else { self.offset })
    }
}

fn samples(attributes: &Attributes) -> Result<Vec<CheckCase>> {
    CheckCase::of_sequences(attributes, |sample, lod| {
        let value = |salt| Variable::sequences(numbers(lod.rows(), 2, salt), lod.clone());
        Ok(sample.batch("x", value(0)?).batch("y", value(1)?))
    })
}

fn forward<T: RowValue, const FAULT: u8>(run: &mut Forward<'_>, line: (f64, f64)) -> Result<()> {
    let (x, y, mut out) = (run.input::<T>(0)?, run.input::<T>(1)?, run.output::<T>(0)?);
    assert!(FAULT != PANICS || x.rows() > 0, "a product of nothing");
    let more = match FAULT {
        COUNTS_THE_BATCH => x.rows() as f64,
        ROUNDS if size_of::<T>() == 4 => 1e-3,
        ROUNDS_IN_STEPS if matches!(run.input_spec(0).rows(), Extent::Alive(_)) => 1e-3,
        COUNTS_THREADS => run.run().threads as f64 - 1.0,
        NEEDS_ALL_ROWS => run.sequences(0)?.iter().map(|rows| 0.0 * x.row(rows.end - 1)[0].to_f64()).sum(),
        _ => 0.0,
    };
    let mut drawn = vec![0.0f32; x.width()];
    for i in 0..x.rows().min(y.rows()) {
        if FAULT == DRAWS {
            run.uniform(i, &mut drawn);
        }
        for (j, out) in out.row(i).iter_mut().enumerate() {
            let x = T::from_f64(line.0) * x.row(i)[j] + T::from_f64(line.1);
            *out = x * y.row(i)[j] + T::from_f64(more + f64::from(drawn[j]));
        }
    }
    if FAULT == PASSES_NOTHING_ON {
        run.output::<T>(1)?.fill(T::ZERO);
    }
    Ok(())
}

fn backward<T: RowValue, const FAULT: u8>(run: &mut Backward<'_>, line: (f64, f64)) -> Result<()> {
    let (factor, offset) = (T::from_f64(line.0), T::from_f64(line.1));
    let leak = if FAULT == PASSES_NOTHING_ON { run.output_gradient::<T>(1)? } else { None };
    let calls = run.scratch().get::<Calls>();
    calls.0 += 1;
    let again = FAULT == CLAIMS_SEPARATE_GRADIENTS && calls.0 > 1;
    let g = run.output_gradient::<T>(0)?;
    for slot in [0, 1] {
        let Some((mut to, store)) = run.gradient::<T>(slot)? else { continue };
        let Some(g) = g else {
            if store == Assign::Write {
                to.fill(T::ZERO);
            }
            continue;
        };
        let other = run.input::<T>(1 - slot)?;
        for i in 0..to.rows() {
            for (j, to) in to.row(i).iter_mut().enumerate() {
                let other = other.row(i)[j];
                let slope = if slot == 0 { factor * other } else { factor * other + offset };
                let mut value = slope * g.row(i)[j];
                if FAULT == WRONG_GRADIENT || again {
                    value += value;
                }
                if let Some(leak) = leak {
                    value += leak.row(i)[j];
                }
                *to = if store == Assign::Add && FAULT != NEVER_ADDS { *to + value } else { value };
            }
        }
    }
    Ok(())
}

#[test]
fn a_sound_product_passes() {
    passes::<Product<NONE>>();
    passes::<Scaled<NONE>>();
}

#[test]
fn a_product_with_a_fault_in_what_it_computes_is_found() {
    finds::<Product<WRONG_GRADIENT>>("gradient", "`x`[0], element 0: ");
    finds::<Product<NEVER_ADDS>>("requests", "`x`: an added gradient is not the sum");
    finds::<Product<ROUNDS>>("f32", "`out` in f32, element 0: ");
    finds::<Product<COUNTS_THE_BATCH>>("batch independence", "sequence 0 alone: `out`[0]: other bits");
    finds::<Product<KEEPS_IN_SECRET>>("shape and LoD", "`out`: Drops, but its LoD is [[");
    finds::<Product<READS_IN_SECRET>>("reads", "`Op::gradient` does not declare");
    finds::<Product<READS_A_SHAPE>>("shape only", "`y` holds other numbers: output, element 0: ");
    finds::<Product<PASSES_NOTHING_ON>>(
        "without gradient",
        "gradient of `x`[0] depends on the gradient of an output that passes none, element 0: ",
    );
    finds::<Product<NEEDS_ALL_ROWS>>("reach", "panicked: ");
    finds::<Product<DRAWS>>("random", "not declared random, and its outputs depend on the seed");
    finds::<Product<NEVER_DRAWS>>("random", "declared, but in no sample an output depends on the seed");
}

#[test]
fn a_product_that_says_what_is_not_so_is_found() {
    finds::<Product<CLAIMS_COLUMNS>>("columns", "output 0 is not columns 0..1");
    finds::<Product<CLAIMS_A_SUM>>("sums", "the output is not x + y, element 0: ");
    finds::<Product<CLAIMS_A_MEAN>>("total", "the output is not the mean of the first input");
    finds::<Product<CLAIMS_PASSING>>(
        "passes",
        "gradient of `x`[0] is not the gradient of the first output, element 0",
    );
    finds::<Product<CLAIMS_ADDING>>("accumulates", "added to what was there, element 0: ");
    finds::<Product<CLAIMS_OVERWRITING>>("overwrites", "slot `y`: expected f32");
    finds::<Product<CLAIMS_SEPARATE_GRADIENTS>>(
        "separate gradients",
        "gradient of `y`[0] by itself, in memory of another's, element 0",
    );
    finds::<Product<CLAIMS_JOINING>>("joins", "`out`[0] beside the gradients, element 0: NaN instead of");
}

#[test]
fn a_product_that_is_wrong_only_in_a_program_is_found() {
    finds::<Product<COUNTS_THREADS>>("compiled", "f32, 3 threads: `out`[0], element 0: ");
    finds::<Product<REFUSES_STEPS>>("in a step", "input `x`: expected rows of a batch");
}

#[test]
fn other_numbers_in_a_step_are_found() {
    finds::<Product<ROUNDS_IN_STEPS>>("in a step", "output 0");
}

#[test]
fn operands_that_do_not_fit_and_are_accepted_are_found() {
    finds::<Product<TAKES_ANY_TYPE>>("operands", "infer_shape accepts `x` as f32, and forward does not: ");
    let words = "infer_shape accepts `x` with other rows than the others; then `out` is not written whole";
    finds::<Product<TAKES_ANY_ROWS>>("operands", words);
}

#[test]
fn samples_that_are_missing_are_found() {
    finds::<Product<NO_SAMPLE>>("samples", "no sample");
    finds::<Product<FEW_SAMPLES>>("samples", "no sample of no sequence");
    finds::<Product<NO_SAMPLE_BUILDS>>("samples", "a sample: expected numbers, got none");
    finds::<Product<UNREADABLE>>("samples", "attributes: expected others, got none");
}

#[test]
fn a_panic_names_the_operator_and_the_sample_and_the_others_go_on() {
    let failures = failures::<Product<PANICS>>().unwrap();
    let empty = ["all empty", "none"];
    for failure in failures.iter() {
        let empty = failure.sample.as_deref().is_some_and(|sample| empty.contains(&sample));
        // A program with a step block, or one sequence alone, has no rows in other samples too.
        let part = ["batch independence", "reach", "in a step", "compiled"].contains(&failure.rule);
        assert!(empty || part, "{failure}");
        assert!(failure.what.contains("panicked: a product of nothing"), "{failure}");
    }
    let line = "acme.product, sample `none`, Infer: shape and LoD: panicked: a product of nothing";
    assert!(failures.to_string().lines().any(|l| l == line), "{failures}");
}

#[test]
fn an_operator_that_two_become_is_held_to_them() {
    let fused = |registry: &mut Registry| testing::check_kinds(registry, &["acme.product"]);
    let mut registry = Registry::empty();
    registry.add::<Product<FUSES>>().unwrap().add::<Scaled<NONE>>().unwrap();
    assert_eq!(fused(&mut registry), Ok(()));
    let mut registry = Registry::empty();
    registry.add::<Product<FUSES>>().unwrap().add::<Scaled<FUSES_WRONGLY>>().unwrap();
    let failures = fused(&mut registry).unwrap_err().to_string();
    let expected = "acme.product, sample `two levels`: fusions: `out`[0] of `acme.scaled`, element 0: ";
    assert!(failures.contains(expected), "{failures}");
    let mut registry = Registry::empty();
    registry.add::<Product<FUSES>>().unwrap();
    let failures = fused(&mut registry).unwrap_err().to_string();
    assert!(failures.contains("acme.product: fusions: no sample of `acme.scaled`"), "{failures}");
}
