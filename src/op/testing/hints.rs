//! Checks of hints for single calls: declared sums, results that are added to an old value, separate gradients, backward calls
//! that also compute outputs, and prepared constants.

use super::call::{self, BackwardInput, CallOptions};
use super::case::{Case, CaseRun, each};
use super::values::{Outcome, all, ensure, filled, near, numbers, same_bits};
use crate::kernels::Float;
use crate::operator::context::{CallCache, Pass, Scratch};
use crate::operator::{Reach, Spec, Total};
use crate::tensor::{DType, Dense, Storage, StorageKind};
use crate::with_float;

/// Whether the rule could be checked on the check case; false if the rule does not apply to the operands of the check
/// case.
pub(super) type Coverage = bool;

const BOTH: [DType; 2] = [DType::F32, DType::F64];

impl Case<'_> {
    /// Checks that an operator that is declared a sum computes x + y, if both inputs have the same spec.
    pub(super) fn sums(&self) -> Outcome<Coverage> {
        let mut met = false;
        for dtype in BOTH {
            let ran = self.run_sample(dtype)?;
            if !self.op.hints().sums {
                return Ok(true);
            }
            let inputs: Vec<&Storage> = ran.direct.inputs().iter().flatten().map(|v| v.storage()).collect();
            let specs: Vec<&Spec> = ran.direct.input_specs().iter().flatten().collect();
            let (&[x, y], &[a, b]) = (&inputs[..], &specs[..]) else { continue };
            let outputs: Vec<&Storage> = ran.outputs.iter().flatten().map(|v| v.storage()).collect();
            if a != b || a.storage != StorageKind::Dense {
                continue;
            }
            let &[out] = &outputs[..] else {
                return ensure(false, || format!("{} outputs", outputs.len())).map(|()| true);
            };
            same_bits(out, &sum(x, y)?, "the output is not x + y")?;
            met = true;
        }
        Ok(met)
    }

    /// Checks that an operator that is declared the sum or the mean of all numbers computes Σ x or Σ x / n of the first input.
    pub(super) fn total(&self) -> Outcome {
        for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-12)] {
            let ran = self.run_sample(dtype)?;
            let Some(total) = self.op.hints().total else { return Ok(()) };
            let outputs: Vec<&Storage> = ran.outputs.iter().flatten().map(|v| v.storage()).collect();
            let x = ran.direct.inputs().first().and_then(|slot| slot.first());
            let (&[out], Some(x)) = (&outputs[..], x) else {
                return ensure(false, || format!("{} outputs, of no input or not one", outputs.len()));
            };
            let x = numbers(x.storage())?;
            let sum = x.iter().sum::<f64>();
            let (expected, wrong) = match total {
                Total::Sum => (sum, "the output is not the sum of the first input"),
                Total::Mean => (sum / x.len().max(1) as f64, "the output is not the mean of the first input"),
            };
            near(out, &all(&[], dtype, expected)?.into(), tolerance, wrong)?;
        }
        Ok(())
    }

    /// Checks that `forward` with `Assign::Add` gives the old value plus the value that `forward` with `Assign::Write` gives.
    pub(super) fn accumulates(&self) -> Outcome {
        for dtype in BOTH {
            let ran = self.run_sample(dtype)?;
            if !self.op.hints().accumulates {
                return Ok(());
            }
            let written: Vec<&Storage> = ran.outputs.iter().flatten().map(|v| v.storage()).collect();
            let &[written] = &written[..] else {
                return ensure(false, || format!("{} outputs, not one", written.len()));
            };
            if !ran.dense() {
                continue;
            }
            let before = Storage::from(filled(written.shape(), written.dtype(), 40)?);
            let how = CallOptions { added_to: Some(&before), ..CallOptions::default() };
            let added = call::forward(&*self.op, &ran.direct, how)?;
            let expected = sum(&before, written)?;
            for added in added.iter().flatten() {
                same_bits(added, &expected, "added to what was there")?;
            }
        }
        Ok(())
    }

    /// Checks separate gradients: a separate call for each gradient, in any order and with used scratch memory, reads only
    /// the declared values and gives the same bits as one call for all gradients.
    pub(super) fn separate_gradients(&self) -> Outcome {
        for dtype in BOTH {
            let ran = self.run_sample(dtype)?;
            if !self.op.hints().separate_gradients {
                return Ok(());
            }
            let slots = self.slots(&ran);
            if slots.is_empty() {
                continue;
            }
            let all = ran.gradients(&slots, None)?;
            let mut scratch = Scratch::default();
            for &slot in slots.iter().chain(slots.iter().rev()) {
                let fresh = ran.gradients_as(&*self.op, &[slot], CallOptions::default())?;
                let given = BackwardInput { outputs: &ran.outputs, weights: &ran.weights, wanted: &[slot] };
                let used =
                    call::backward(&*self.op, &ran.direct, given, CallOptions::default(), &mut scratch)?.0;
                let name = self.input_name(slot);
                for (found, memory) in [(&fresh, "in fresh memory"), (&used, "in memory of another's")] {
                    each(found, &all, &[slot], |_, k, a, b| {
                        same_bits(a, b, format!("gradient of `{name}`[{k}] by itself, {memory}"))
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks a backward call that also computes the outputs: the outputs have the same bits as in a forward call, and
    /// the call reads no output of a forward call.
    pub(super) fn joins(&self) -> Outcome {
        for dtype in BOTH {
            let ran = self.run_sample(dtype)?;
            if !self.op.hints().joins {
                return Ok(());
            }
            let slots = self.slots(&ran);
            if slots.is_empty() || !ran.dense() {
                continue;
            }
            let mut sets: Vec<Vec<usize>> = slots.iter().map(|&slot| vec![slot]).collect();
            sets.push(slots);
            for wanted in sets {
                let given = BackwardInput { outputs: &ran.outputs, weights: &ran.weights, wanted: &wanted };
                let how = CallOptions { results: true, ..CallOptions::default() };
                let scratch = &mut Scratch::default();
                let (gradients, results) = call::backward(&*self.op, &ran.direct, given, how, scratch)?;
                for (slot, (results, outputs)) in results.iter().zip(&ran.outputs).enumerate() {
                    for (k, (result, output)) in results.iter().zip(outputs).enumerate() {
                        let name = format!("`{}`[{k}] beside the gradients", self.output_name(slot));
                        same_bits(result, output.storage(), name)?;
                    }
                }
                each(&gradients, &ran.gradients(&wanted, None)?, &wanted, |slot, k, a, b| {
                    let name = self.input_name(slot);
                    same_bits(a, b, format!("gradient of `{name}`[{k}] beside the outputs"))
                })?;
            }
        }
        Ok(())
    }

    /// Checks that an operator gives the same bits with prepared constants as without, and that it prepares constants only if
    /// it declares so.
    pub(super) fn prepares(&self) -> Outcome {
        for dtype in BOTH {
            let ran = self.run_sample(dtype)?;
            if self.updates() || !ran.dense() {
                return Ok(());
            }
            let declared = self.op.hints().prepares;
            let constants = ran.direct.input_specs().iter().flatten().any(|spec| !spec.batched());
            let slots = self.slots(&ran);
            let mut prepared = CallCache::default();
            // The constants are prepared twice: the second time reuses the memory of the first time.
            for _ in 0..2 {
                call::prepare(&*self.op, &ran.direct, Pass::Forward, &[], &mut prepared)?;
            }
            let mut kept = prepared.is_kept();
            self.forward_prepared(&ran, &prepared)?;
            let mut sets: Vec<Vec<usize>> = slots.iter().map(|&slot| vec![slot]).collect();
            sets.extend((!slots.is_empty()).then_some(slots));
            for wanted in sets {
                let mut prepared = CallCache::default();
                for _ in 0..2 {
                    call::prepare(&*self.op, &ran.direct, Pass::Backward, &wanted, &mut prepared)?;
                }
                kept |= prepared.is_kept();
                let how = CallOptions { prepared: Some(&prepared), ..CallOptions::default() };
                let found = ran.gradients_as(&*self.op, &wanted, how)?;
                each(&found, &ran.gradients(&wanted, None)?, &wanted, |slot, k, a, b| {
                    let name = self.input_name(slot);
                    same_bits(a, b, format!("gradient of `{name}`[{k}] with what was prepared"))
                })?;
            }
            ensure(kept == declared || !constants && !kept, || match declared {
                true => "declared, but nothing was kept of the constants".to_owned(),
                false => "not declared, but something was kept, which nothing asks for".to_owned(),
            })?;
        }
        Ok(())
    }

    fn forward_prepared(&self, ran: &CaseRun, prepared: &CallCache) -> Outcome {
        let how = CallOptions { prepared: Some(prepared), ..CallOptions::default() };
        let outputs = call::forward(&*self.op, &ran.direct, how)?;
        for (slot, (found, expected)) in outputs.iter().zip(&ran.outputs).enumerate() {
            for (k, (a, b)) in found.iter().zip(expected).enumerate() {
                let name = format!("`{}`[{k}] with what was prepared", self.output_name(slot));
                same_bits(a, b.storage(), name)?;
            }
        }
        Ok(())
    }

    /// Checks that an operator with mergeable calls is row-wise, is not random, and has one output.
    pub(super) fn mergeable(&self, ran: &CaseRun) -> Outcome {
        let facts = self.op.facts();
        let one = ran.outputs.iter().flatten().count() == 1;
        ensure(facts.reach == Reach::Row && !facts.random && one, || {
            "only for an operator that is row-wise, not random, and has one output".to_owned()
        })
    }
}

pub(super) fn sum(x: &Storage, y: &Storage) -> crate::error::Result<Storage> {
    fn add<T: Float + crate::tensor::Element>(x: &Dense, y: &Dense) -> crate::error::Result<Dense> {
        let sums = x.as_slice::<T>()?.iter().zip(y.as_slice::<T>()?).map(|(&x, &y)| x + y);
        Dense::from_vec(x.shape(), sums.collect())
    }
    let (x, y) = (x.to_dense()?, y.to_dense()?);
    with_float!(x.dtype(), T => add::<T>(&x, &y)).map(Storage::from)
}
