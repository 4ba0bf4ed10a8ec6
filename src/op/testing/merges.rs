//! Checks of merged calls: one call replaces two calls that share an input, and the output of the one call is split
//! into the outputs of the two calls.

use super::case::{Case, CaseRun};
use super::values::{Outcome, beside, ensure, filled, near, same_bits};
use crate::error::Result;
use crate::operator::call::Direct;
use crate::operator::{Attributes, Merge, Operand};
use crate::tensor::{DType, Storage, Variable};

/// The tolerance for the gradient of the shared input: a few roundings, since this gradient is a sum of two gradients.
const ROUNDING: f64 = 1e-12;

impl Case<'_> {
    /// Checks that one merged call can replace two calls that share inputs. The output of the merged call must be both
    /// outputs side by side. The gradient of a shared input must be the sum of both gradients; any other gradient must be the
    /// gradients of the two calls side by side.
    pub(super) fn merges(&self) -> Outcome {
        let first = self.run_sample(DType::F64)?;
        let Some(merge) = self.op.hints().merges else { return Ok(()) };
        self.mergeable(&first)?;
        let operands = self.operands(DType::F64)?;
        let goes_beside = |o: &Operand| merge.beside.contains(&o.slot.as_str());
        for slot in merge.beside {
            let known = self.op.signature().inputs.iter().any(|s| s.name == *slot);
            ensure(known, || format!("no input slot `{slot}`"))?;
        }
        if !first.outputs.iter().flatten().all(|v| v.shape().len() == 2)
            || operands.iter().any(|o| goes_beside(o) && o.batched)
        {
            return Ok(());
        }
        let other = |(i, o): (usize, &Operand)| {
            let value = match goes_beside(o) {
                true => Variable::dense(filled(o.value.shape(), o.value.dtype(), 60 + i)?),
                false => o.value.clone(),
            };
            Ok(Operand { value, ..o.clone() })
        };
        let others = operands.iter().enumerate().map(other).collect::<Result<Vec<_>>>()?;
        let second = self.run(&others, &self.numbers(), None)?;
        let more: Vec<Operand> = others.iter().filter(|o| goes_beside(o)).cloned().collect();
        let mut both = self.run(&[operands, more].concat(), &self.numbers(), None)?;
        let columns = |pair: [&Storage; 2]| -> Result<Storage> {
            let (a, b) = (pair[0].to_dense()?, pair[1].to_dense()?);
            beside(&[&a, &b]).map(Storage::from)
        };
        let out = |ran: &CaseRun| -> Storage { ran.outputs[0][0].storage().clone() };
        same_bits(&out(&both), &columns([&out(&first), &out(&second)])?, "the columns of two calls as one")?;
        self.split_again(&merge, &both, [&first, &second])?;

        let slots = self.slots(&first);
        let weight = |ran: &CaseRun| ran.weights.first().and_then(|row| row.first()?.clone());
        let (Some(a), Some(b)) = (weight(&first), weight(&second)) else { return Ok(()) };
        both.weights[0][0] = Some(columns([&a, &b])?);
        if slots.is_empty() {
            return Ok(());
        }
        let (a, b, found) =
            (first.gradients(&slots, None)?, second.gradients(&slots, None)?, both.gradients(&slots, None)?);
        for slot in slots {
            let name = self.input_name(slot);
            if merge.beside.contains(&name) {
                let theirs = a[slot].iter().chain(&b[slot]);
                for (k, (got, expected)) in found[slot].iter().zip(theirs).enumerate() {
                    let (Some(got), Some(expected)) = (got, expected) else { continue };
                    same_bits(got, expected, format!("gradient of `{name}`[{k}] of two calls as one"))?;
                }
                continue;
            }
            for (k, got) in found[slot].iter().enumerate() {
                let (Some(got), Some(a), Some(b)) = (got, &a[slot][k], &b[slot][k]) else { continue };
                let sum = super::hints::sum(a, b)?;
                near(
                    got,
                    &sum,
                    ROUNDING,
                    format!("gradient of the shared `{name}`[{k}] of two calls as one"),
                )?;
            }
        }
        Ok(())
    }

    /// Checks that the operator named in [`Merge::parts`](crate::operator::Merge::parts) splits the output of the merged call
    /// into the outputs of the two calls.
    fn split_again(&self, merge: &Merge, both: &CaseRun, calls: [&CaseRun; 2]) -> Outcome {
        let widths = calls.map(|ran| ran.direct.output_specs()[0][0].width());
        let attributes = Attributes::new().with("sizes", widths.to_vec());
        let op = self.registry.parse(merge.parts, &attributes)?;
        let signature = op.signature();
        let ([x], [_]) = (signature.inputs, signature.outputs) else {
            return ensure(false, || format!("`{}` has not one input and one output slot", merge.parts));
        };
        let spec = &both.direct.output_specs()[0][0];
        let whole =
            Operand { batched: spec.batched(), ..Operand::constant(x.name, both.outputs[0][0].clone()) };
        let direct = Direct::new(op.clone(), &[whole])?;
        let columns = op.hints().columns;
        let found: Option<Vec<usize>> = columns.map(|c| c.iter().map(|c| c.len()).collect());
        ensure(found.as_deref() == Some(&widths[..]), || {
            format!("`{}` with sizes {widths:?} has the columns {found:?}", merge.parts)
        })?;
        for (k, (part, ran)) in direct.forward()?.iter().flatten().zip(calls).enumerate() {
            let expected = ran.outputs[0][0].storage();
            same_bits(part.storage(), expected, format!("part {k} that `{}` cuts", merge.parts))?;
        }
        Ok(())
    }
}
