//! One test for every operator: whatever a registry lists is run over its own samples and held to the contract of
//! `program::op`. An operator of a user's crate is checked by handing [`check`] a registry that has it.

mod faults;
mod parts;
mod values;

use std::sync::Arc;

use unpadded::program::call::{Direct, InputGradients};
use unpadded::program::{Extent, LodEffect, Mode, Op, Operand, Registry, RowKey, RunFacts, Sample};
use unpadded::tensor::{Storage, StorageKind};
use unpadded::{DType, Error, Lod, Variable, ops};

use values::{Failure, Outcome, bits_eq, cast, close, ensure, filled, has_nan, numbers, weights};

#[test]
fn every_operator_keeps_its_contract() {
    let failures = check(&ops::catalogue());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

type Rule = (&'static str, fn(&Case) -> Outcome);

const RULES: [Rule; 6] = [
    ("shape and LoD", Case::shapes),
    ("columns", Case::columns),
    ("gradient", Case::differences),
    ("requests", Case::requests),
    ("f32", Case::single_precision),
    ("batch independence", Case::batch_independence),
];

/// What breaks the contract, a line each: kind, sample, then the slot and the rule.
pub(crate) fn check(registry: &Registry) -> Vec<String> {
    let mut failures = Vec::new();
    for kind in registry.kinds() {
        let samples = match registry.samples(kind) {
            Ok(samples) => samples,
            Err(error) => {
                failures.push(format!("{kind}: samples: {error}"));
                continue;
            }
        };
        failures.extend(gaps(&samples).map(|gap| format!("{kind}: {gap}")));
        for sample in &samples {
            let name = format!("{kind}, sample `{}`", sample.name);
            let op = match registry.parse(kind, &sample.attributes) {
                Ok(op) => op,
                Err(error) => {
                    failures.push(format!("{name}: {error}"));
                    continue;
                }
            };
            let modes: &[Mode] = if op.facts().random { &[Mode::Infer, Mode::Train] } else { &[Mode::Infer] };
            for &mode in modes {
                let case = Case { op: op.clone(), sample: sample.clone(), mode };
                for (rule, run) in RULES {
                    if let Err(failure) = run(&case) {
                        failures.push(format!("{name}, {mode:?}: {rule}: {}", failure.0));
                    }
                }
            }
        }
    }
    failures
}

/// The edge cases that the samples leave out.
fn gaps(samples: &[Sample]) -> impl Iterator<Item = &'static str> {
    let batched = || samples.iter().flat_map(|s| &s.operands).filter(|o| o.batched);
    let lods = || batched().filter_map(|o| o.value.lod());
    let empty = |lod: &Arc<Lod>| lod.offsets().windows(2).any(|pair| pair[0] == pair[1]);
    [
        (samples.is_empty(), "no sample"),
        (lods().count() > 0 && !lods().any(empty), "no sample with an empty sequence"),
        (batched().count() > 0 && !batched().any(|o| o.value.batch_size() == 0), "no sample of no sequence"),
    ]
    .into_iter()
    .filter_map(|(gap, words)| gap.then_some(words))
}

/// An operator with one of its samples.
struct Case {
    op: Arc<dyn Op>,
    sample: Sample,
    mode: Mode,
}

/// A call, its outputs, and made-up gradients of them: the weights of the loss.
struct Ran {
    direct: Direct,
    outputs: Vec<Vec<Variable>>,
    weights: Vec<Vec<Option<Storage>>>,
}

impl Ran {
    fn gradients(
        &self,
        wanted: &dyn Fn(usize) -> bool,
        before: Option<&InputGradients>,
    ) -> Outcome<InputGradients> {
        Ok(self.direct.backward(&self.outputs, &self.weights, wanted, before)?)
    }

    /// Σ weight · output.
    fn loss(&self, weights: &[Vec<Option<Storage>>]) -> Outcome<f64> {
        let mut sum = 0.0;
        for (outputs, weights) in self.outputs.iter().zip(weights) {
            for (output, weights) in outputs.iter().zip(weights) {
                let Some(weights) = weights else { continue };
                let (y, w) = (numbers(output.storage())?, numbers(weights)?);
                sum += y.iter().zip(&w).map(|(y, w)| y * w).sum::<f64>();
            }
        }
        Ok(sum)
    }
}

impl Case {
    fn run_facts(&self) -> RunFacts {
        RunFacts { mode: self.mode, step: 3, seed: 11, threads: 1 }
    }

    /// The samples' operands with floats of `dtype`. They are rounded to f32 first, so that both dtypes see the
    /// same numbers.
    fn operands(&self, dtype: DType) -> Outcome<Vec<Operand>> {
        let cast =
            |o: &Operand| Ok(Operand { value: cast(&cast(&o.value, DType::F32)?, dtype)?, ..o.clone() });
        self.sample.operands.iter().map(cast).collect()
    }

    fn run(&self, operands: &[Operand], numbers: &[u64], keys: Option<Vec<RowKey>>) -> Outcome<Ran> {
        let direct = Direct::new(self.op.clone(), operands)?.run_as(self.run_facts(), numbers).keyed(5, keys);
        let outputs = direct.forward()?;
        let weights = outputs.iter().enumerate().map(|(slot, vars)| {
            vars.iter().enumerate().map(|(k, v)| weights(v, slot * 10 + k)).collect::<Result<_, Error>>()
        });
        let weights = weights.collect::<Result<_, _>>()?;
        Ok(Ran { direct, outputs, weights })
    }

    fn run_sample(&self, dtype: DType) -> Outcome<Ran> {
        self.run(&self.operands(dtype)?, &self.numbers(), None)
    }

    /// The numbers of the sequences in the data.
    fn numbers(&self) -> Vec<u64> {
        let batch = self.sample.operands.iter().find(|o| o.batched).map_or(0, |o| o.value.batch_size());
        (0..batch as u64).map(|i| 100 + 7 * i).collect()
    }

    /// The input slots whose gradient can be asked for.
    fn slots(&self, ran: &Ran) -> Vec<usize> {
        let slots = self.op.signature().inputs.iter().zip(ran.direct.inputs()).enumerate();
        let float = |vars: &[Variable]| vars.iter().any(|v| v.dtype().is_float());
        slots.filter(|(_, (slot, vars))| slot.gradient && float(vars)).map(|(i, _)| i).collect()
    }

    fn input_name(&self, slot: usize) -> &'static str {
        self.op.signature().inputs[slot].name
    }

    /// The declared shape, dtype, storage and LoD are the computed ones; a second run gives the same bits.
    fn shapes(&self) -> Outcome {
        let ran = self.run_sample(DType::F32)?;
        let again = ran.direct.forward()?;
        let facts = self.op.facts();
        for (slot, declared) in self.op.signature().outputs.iter().enumerate() {
            let (vars, specs) = (&ran.outputs[slot], &ran.direct.output_specs()[slot]);
            let name = declared.name;
            ensure(vars.len() == specs.len(), || {
                format!("`{name}`: {} values, {} specs", vars.len(), specs.len())
            })?;
            let fits = declared.arity.takes(vars.len());
            ensure(fits, || format!("`{name}`: {} values for {}", vars.len(), declared.arity))?;
            for ((var, spec), second) in vars.iter().zip(specs).zip(&again[slot]) {
                let shape = var.shape().iter().zip(&spec.shape).all(|(&n, e)| match *e {
                    Extent::Known(known) => n == known,
                    Extent::Batch => n == self.numbers().len(),
                    _ => var.lod().is_none_or(|lod| lod.rows() == n),
                });
                let same = shape && var.shape().len() == spec.shape.len();
                let same = same && var.dtype() == spec.dtype && var.storage().kind() == spec.storage;
                ensure(same, || format!("`{name}`: declared {spec}, got {} {:?}", var.dtype(), var.shape()))?;
                ensure(bits_eq(var.storage(), second.storage())?, || {
                    format!("`{name}`: other bits when run twice")
                })?;
                ensure(!has_nan(var.storage())?, || format!("`{name}`: NaN"))?;
                let from = |slot: usize| ran.direct.inputs()[slot].first().and_then(|v| v.lod());
                let expected = match facts.lod {
                    _ if !spec.batched() => None,
                    LodEffect::Keeps(slot) => (slot..ran.direct.inputs().len())
                        .find(|&slot| ran.direct.input_specs()[slot].first().is_some_and(|s| s.batched()))
                        .and_then(from),
                    LodEffect::DropsLevel(slot) => from(slot).and_then(|lod| lod.upper()),
                    LodEffect::Drops => None,
                    LodEffect::Replaces | LodEffect::FromData(_) => continue,
                };
                let same = match (expected, var.lod()) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                ensure(same, || format!("`{name}`: {:?}, but its LoD is {}", facts.lod, show(var.lod())))?;
            }
        }
        Ok(())
    }

    /// Outputs that are declared columns of the input are.
    fn columns(&self) -> Outcome {
        let Some(columns) = self.op.hints().columns else { return Ok(()) };
        let ran = self.run_sample(DType::F64)?;
        let outputs = ran.outputs.first().map_or(&[][..], Vec::as_slice);
        ensure(outputs.len() == columns.len(), || format!("{} outputs, not {columns:?}", outputs.len()))?;
        let whole = ran.direct.inputs()[0][0].clone();
        let (x, width) = (numbers(whole.storage())?, whole.shape().last().copied().unwrap_or(1));
        for (k, (columns, output)) in columns.into_iter().zip(outputs).enumerate() {
            let part: Vec<f64> =
                x.chunks(width.max(1)).flat_map(|row| &row[columns.clone()]).copied().collect();
            ensure(part == numbers(output.storage())?, || format!("output {k} is not columns {columns:?}"))?;
        }
        Ok(())
    }

    /// Gradients are central differences in f64: of all outputs together, and of each output alone.
    fn differences(&self) -> Outcome {
        let operands = self.operands(DType::F64)?;
        let mut ran = self.run(&operands, &self.numbers(), None)?;
        let slots = self.slots(&ran);
        if slots.is_empty() || self.sample.forward_only {
            return Ok(());
        }
        let full = ran.weights.clone();
        let places: Vec<(usize, usize)> =
            full.iter().enumerate().flat_map(|(s, row)| (0..row.len()).map(move |k| (s, k))).collect();
        let mut losses = vec![full.clone()];
        if places.len() > 1 {
            losses.extend(places.iter().map(|&place| {
                let mut only = full.clone();
                let cells = only.iter_mut().enumerate();
                cells.for_each(|(s, row)| {
                    row.iter_mut().enumerate().filter(|(k, _)| (s, *k) != place).for_each(|(_, w)| *w = None);
                });
                only
            }));
        }
        for weights in losses.into_iter().filter(|w| w.iter().flatten().any(Option::is_some)) {
            ran.weights = weights;
            let gradients = ran.gradients(&|slot| slots.contains(&slot), None)?;
            for &slot in &slots {
                let name = self.input_name(slot);
                let bound = operands.iter().enumerate().filter(|(_, o)| o.slot == name);
                for (k, (place, operand)) in bound.enumerate() {
                    let Some(gradient) = &gradients[slot][k] else {
                        return Err(Failure(format!("`{name}`[{k}]: no gradient")));
                    };
                    let gradient = numbers(gradient)?;
                    let x = numbers(operand.value.storage())?;
                    ensure(gradient.len() == x.len(), || {
                        format!("`{name}`[{k}]: {} elements", gradient.len())
                    })?;
                    for (i, (&g, &at)) in gradient.iter().zip(&x).enumerate() {
                        let h = 1e-5 * at.abs().max(1.0);
                        let loss = |to: f64| {
                            let mut moved = operands.clone();
                            moved[place].value.as_mut_slice::<f64>()?[i] = to;
                            self.run(&moved, &self.numbers(), None)?.loss(&ran.weights)
                        };
                        let expected = (loss(at + h)? - loss(at - h)?) / (2.0 * h);
                        let close = (g - expected).abs() <= 1e-6 * g.abs().max(1.0);
                        ensure(close, || {
                            format!("`{name}`[{k}], element {i}: {g}, by differences {expected}")
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A gradient asked for alone is the one asked for with the others; added, it is the written one more.
    fn requests(&self) -> Outcome {
        let ran = self.run_sample(DType::F64)?;
        let slots = self.slots(&ran);
        if slots.is_empty() {
            return Ok(());
        }
        let all = ran.gradients(&|slot| slots.contains(&slot), None)?;
        for &slot in &slots {
            let name = self.input_name(slot);
            let alone = ran.gradients(&|s| s == slot, None)?;
            for (a, b) in all[slot].iter().zip(&alone[slot]).filter_map(|(a, b)| a.as_ref().zip(b.as_ref())) {
                ensure(!has_nan(a)?, || format!("`{name}`: NaN in its gradient"))?;
                ensure(bits_eq(a, b)?, || {
                    format!("`{name}`: other bits when its gradient is asked for alone")
                })?;
            }
            let kind = self.op.gradient(slot, ran.direct.input_specs()).storage;
            let stored = all[slot].iter().flatten().all(|g| g.kind() == kind);
            ensure(stored, || format!("`{name}`: its gradient is declared {kind}"))?;
        }
        let mut before: InputGradients = Vec::new();
        for row in &all {
            let fill = |g: &Option<Storage>| g.as_ref().map(|g| filled(g.shape(), g.dtype(), 50)).transpose();
            before.push(row.iter().map(fill).collect::<Result<_, _>>()?);
        }
        let added = ran.gradients(&|slot| slots.contains(&slot), Some(&before))?;
        for &slot in slots
            .iter()
            .filter(|&&s| self.op.gradient(s, ran.direct.input_specs()).storage == StorageKind::Dense)
        {
            let cells = all[slot].iter().zip(&before[slot]).zip(&added[slot]);
            for ((written, before), added) in cells {
                let (Some(written), Some(before), Some(added)) = (written, before, added) else { continue };
                let sums = numbers(written)?.into_iter().zip(numbers(before)?).map(|(w, b)| w + b);
                let close = numbers(added)?
                    .into_iter()
                    .zip(sums)
                    .all(|(a, s)| (a - s).abs() <= 1e-12 * s.abs().max(1.0));
                ensure(close, || format!("`{}`: an added gradient is not the sum", self.input_name(slot)))?;
            }
        }
        Ok(())
    }

    /// f32 is f64 within rounding.
    fn single_precision(&self) -> Outcome {
        let (single, double) = (self.run_sample(DType::F32)?, self.run_sample(DType::F64)?);
        for (slot, vars) in single.outputs.iter().enumerate() {
            let name = self.op.signature().outputs[slot].name;
            for (a, b) in vars.iter().zip(&double.outputs[slot]) {
                close(a.storage(), b.storage(), name)?;
            }
        }
        let slots = self.slots(&single);
        if slots.is_empty() || self.sample.forward_only {
            return Ok(());
        }
        let wanted = |slot: usize| slots.contains(&slot);
        let (a, b) = (single.gradients(&wanted, None)?, double.gradients(&wanted, None)?);
        for slot in 0..a.len() {
            for (a, b) in a[slot].iter().zip(&b[slot]).filter_map(|(a, b)| a.as_ref().zip(b.as_ref())) {
                close(a, b, self.input_name(slot))?;
            }
        }
        Ok(())
    }
}

fn show(lod: Option<&Arc<Lod>>) -> String {
    lod.map_or("none".to_owned(), <Arc<Lod> as ToString>::to_string)
}
