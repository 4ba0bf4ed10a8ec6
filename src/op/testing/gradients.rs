//! Checks of gradients: the numbers are right for every set of requested gradients, and are computed only from the declared
//! reads.

use super::call::CallOptions;
use super::call::Weights;
use super::case::{Case, CaseRun, each};
use super::values::{
    Broken, Outcome, ensure, filled, filled_like, has_nan, near, numbers, same_bits, same_numbers, stored,
    with_stored,
};
use crate::operator::call::InputGradients;
use crate::operator::{MatrixUnit, Spec};
use crate::tensor::{DType, Storage, StorageKind, Variable};

impl Case<'_> {
    /// Checks gradients against central differences in f64, for a loss of all outputs together and for a loss of each output
    /// alone.
    pub(super) fn differences(&self) -> Outcome {
        let operands = self.operands(DType::F64)?;
        let mut ran = self.run(&operands, &self.numbers(), None)?;
        let slots = self.slots(&ran);
        if slots.is_empty() || self.sample.forward_only {
            return Ok(());
        }
        for weights in losses(&ran.weights) {
            ran.weights = weights;
            let gradients = ran.gradients(&slots, None)?;
            for &slot in &slots {
                let name = self.input_name(slot);
                let bound = operands.iter().enumerate().filter(|(_, o)| o.slot == name);
                for (k, (index, operand)) in bound.enumerate() {
                    let Some(gradient) = &gradients[slot][k] else {
                        return Err(Broken(format!("`{name}`[{k}]: no gradient")));
                    };
                    // The central differences vary only the stored numbers of a sparse operand.
                    let value = operand.value.storage();
                    let sparse = value.kind() != StorageKind::Dense;
                    let read = if sparse { stored } else { numbers };
                    let (gradient, x) = (read(gradient)?, read(value)?);
                    ensure(gradient.len() == x.len(), || {
                        format!("`{name}`[{k}]: {} elements", gradient.len())
                    })?;
                    for (i, (&g, &at)) in gradient.iter().zip(&x).enumerate() {
                        let h = 1e-5 * at.abs().max(1.0);
                        let loss = |to: f64| {
                            let mut moved = operands.clone();
                            let mut numbers = x.clone();
                            numbers[i] = to;
                            let value = with_stored(value, numbers, DType::F64)?;
                            moved[index].value = Variable::new(value, operand.value.lod().cloned())?;
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

    /// Checks that a gradient has the same bits whether it is requested alone or with others, that it is added correctly to an
    /// old value, and that it has the declared storage.
    pub(super) fn requests(&self) -> Outcome {
        let ran = self.run_sample(DType::F64)?;
        let slots = self.slots(&ran);
        if slots.is_empty() {
            return Ok(());
        }
        let all = ran.gradients(&slots, None)?;
        for &slot in &slots {
            let name = self.input_name(slot);
            let alone = ran.gradients(&[slot], None)?;
            each(&alone, &all, &[slot], |_, _, a, b| {
                ensure(!has_nan(b)?, || format!("`{name}`: NaN in its gradient"))?;
                same_bits(a, b, format!("`{name}`: other bits when its gradient is asked for alone"))
            })?;
            for (g, spec) in all[slot].iter().zip(&ran.direct.input_specs()[slot]) {
                let Some(g) = g else { continue };
                let kind = self.gradient_storage(&ran, slot, spec);
                ensure(g.kind() == kind, || format!("`{name}`: its gradient is declared {kind}"))?;
            }
        }
        let mut before: InputGradients = Vec::new();
        for (row, specs) in all.iter().zip(ran.direct.input_specs()) {
            let fill = |(g, spec): (&Option<Storage>, &Spec)| {
                let fill = |g: &Storage| match spec.storage {
                    StorageKind::Dense => filled(g.shape(), g.dtype(), 50).map(Storage::from),
                    _ => filled_like(g, 50),
                };
                g.as_ref().map(fill).transpose()
            };
            before.push(row.iter().zip(specs).map(fill).collect::<crate::error::Result<_>>()?);
        }
        let added = ran.gradients(&slots, Some(&before))?;
        let dense = |&slot: &usize| {
            let sparse = ran.direct.input_specs()[slot].iter().any(|spec| spec.storage != StorageKind::Dense);
            sparse || self.gradient(&ran, slot).storage == StorageKind::Dense
        };
        for slot in slots.into_iter().filter(dense) {
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

    /// Checks that the results in f32 equal the results in f64 up to rounding.
    pub(super) fn single_precision(&self) -> Outcome {
        const ROUNDING: f64 = 2e-6;
        self.within(ROUNDING, "in f32", (&self.run_sample(DType::F32)?, &self.run_sample(DType::F64)?))
    }

    /// Checks that the results by a bf16 unit equal the results in f32 within the rounding of operands to 8 bits. Without the hint
    /// `multiplies`, the results are the same.
    pub(super) fn half_precision(&self) -> Outcome {
        const ROUNDING: f64 = 1.0 / 64.0;
        let hints = self.op.hints();
        let rounding = if hints.multiplies || hints.rounds_bf16 { ROUNDING } else { 0.0 };
        let single = self.run_sample(DType::F32)?;
        for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
            self.within(rounding, &format!("in {unit}"), (&self.run_by(unit)?, &single))?;
        }
        Ok(())
    }

    /// Checks that the outputs and gradients of a run equal the outputs and gradients of an exact run, within the rounding of
    /// the largest number of each.
    fn within(&self, rounding: f64, how: &str, (run, exact): (&CaseRun, &CaseRun)) -> Outcome {
        for (slot, vars) in run.outputs.iter().enumerate() {
            let name = format!("`{}` {how}", self.output_name(slot));
            for (a, b) in vars.iter().zip(&exact.outputs[slot]) {
                near(a.storage(), b.storage(), rounding, &name)?;
            }
        }
        let slots = self.slots(run);
        if slots.is_empty() || self.sample.forward_only {
            return Ok(());
        }
        let (a, b) = (run.gradients(&slots, None)?, exact.gradients(&slots, None)?);
        each(&a, &b, &slots, |slot, k, a, b| {
            near(a, b, rounding, format!("gradient of `{}`[{k}] {how}", self.input_name(slot)))
        })
    }

    /// Checks that a gradient does not depend on values that the operator does not declare as read for this gradient.
    pub(super) fn reads(&self) -> Outcome {
        let ran = self.run_sample(DType::F64)?;
        for slot in self.slots(&ran) {
            let name = self.input_name(slot);
            let all = ran.gradients_as(
                &*self.op,
                &[slot],
                CallOptions { unveiled: true, ..CallOptions::default() },
            )?;
            let few = ran.gradients_as(&*self.op, &[slot], CallOptions::default())?;
            each(&few, &all, &[slot], |_, k, few, all| {
                let words = "without the values that it is not declared to read";
                same_bits(few, all, format!("gradient of `{name}`[{k}] {words}"))
            })?;
        }
        Ok(())
    }

    /// Checks that an output that is declared to pass no gradient has no effect on the gradients of the inputs.
    pub(super) fn without_gradient(&self) -> Outcome {
        let mut ran = self.run_sample(DType::F64)?;
        let slots = self.slots(&ran);
        let passes: Vec<bool> = self.op.signature().outputs.iter().map(|slot| slot.gradient).collect();
        let given = |weights: &Weights, some: bool| {
            weights
                .iter()
                .zip(&passes)
                .any(|(row, passes)| *passes == some && row.iter().any(Option::is_some))
        };
        if slots.is_empty() || !given(&ran.weights, false) || !given(&ran.weights, true) {
            return Ok(());
        }
        let with = ran.gradients(&slots, None)?;
        for (row, _) in ran.weights.iter_mut().zip(&passes).filter(|(_, passes)| !**passes) {
            row.fill(None);
        }
        let without = ran.gradients(&slots, None)?;
        each(&with, &without, &slots, |slot, k, with, without| {
            let name = self.input_name(slot);
            let words = "depends on the gradient of an output that passes none";
            same_bits(with, without, format!("gradient of `{name}`[{k}] {words}"))
        })
    }

    /// Checks that a gradient equals the first output's gradient, number for number, if the operator declares so.
    pub(super) fn passes(&self) -> Outcome {
        for dtype in [DType::F32, DType::F64] {
            let ran = self.run_sample(dtype)?;
            let slots = self.slots(&ran);
            if !slots.iter().any(|&slot| self.gradient(&ran, slot).passes) {
                continue;
            }
            let Some(Some(passed)) = ran.weights.first().and_then(|row| row.first()) else {
                return ensure(false, || "the first output has no gradient to pass on".to_owned());
            };
            for &slot in slots.iter().filter(|&&slot| self.gradient(&ran, slot).passes) {
                for (k, gradient) in ran.gradients(&[slot], None)?[slot].iter().enumerate() {
                    let Some(gradient) = gradient else { continue };
                    // An input whose dtype is not the dtype of the first output cannot have the first output's gradient as its
                    // gradient.
                    if gradient.dtype() != passed.dtype() {
                        continue;
                    }
                    let words = "is not the gradient of the first output";
                    let name = format!("gradient of `{}`[{k}] {words}", self.input_name(slot));
                    same_numbers(gradient, passed, name)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that a gradient that is written over the value of its input has the same bits as a gradient in another buffer.
    pub(super) fn overwrites(&self) -> Outcome {
        for dtype in [DType::F32, DType::F64] {
            let ran = self.run_sample(dtype)?;
            let slots = self.slots(&ran);
            let single = |&slot: &usize| ran.direct.inputs()[slot].len() == 1;
            let over = |slot: &usize| self.gradient(&ran, *slot).overwrites;
            let over: Vec<usize> = slots.iter().copied().filter(over).filter(|slot| single(slot)).collect();
            if over.is_empty() {
                continue;
            }
            let all = ran.gradients(&slots, None)?;
            let mut asked: Vec<(Vec<usize>, Vec<usize>)> = vec![(slots.clone(), over.clone())];
            for &slot in &over {
                asked.extend([(slots.clone(), vec![slot]), (vec![slot], vec![slot])]);
            }
            for (wanted, in_place) in asked {
                let how = CallOptions { in_place: &in_place, ..CallOptions::default() };
                let found = ran.gradients_as(&*self.op, &wanted, how)?;
                let names: Vec<&str> = in_place.iter().map(|&slot| self.input_name(slot)).collect();
                each(&found, &all, &wanted, |slot, k, a, b| {
                    let name = self.input_name(slot);
                    let over = names.join("`, `");
                    same_bits(
                        a,
                        b,
                        format!(
                            "gradient of `{name}`[{k}] with the gradient of `{over}` written over its value"
                        ),
                    )
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the weights of several losses: one loss of all outputs together, and one loss of each output alone.
fn losses(full: &Weights) -> Vec<Weights> {
    let places: Vec<(usize, usize)> =
        full.iter().enumerate().flat_map(|(s, row)| (0..row.len()).map(move |k| (s, k))).collect();
    let mut losses = vec![full.clone()];
    if places.len() > 1 {
        losses.extend(places.iter().map(|&index| {
            let mut only = full.clone();
            for (s, row) in only.iter_mut().enumerate() {
                let others = row.iter_mut().enumerate().filter(|(k, _)| (s, *k) != index);
                others.for_each(|(_, weights)| *weights = None);
            }
            only
        }));
    }
    losses.retain(|weights| weights.iter().flatten().any(Option::is_some));
    losses
}
