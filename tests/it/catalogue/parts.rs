//! The same bits in any batch and in any split of it.

use std::sync::Arc;

use unpadded::program::{Operand, Reach, RowKey};
use unpadded::tensor::StorageKind;
use unpadded::{DType, Error, Lod, Variable};

use super::values::{Failure, Outcome, bits_eq, ensure};
use super::{Case, Ran};

impl Case {
    /// A sequence alone, and rows in two ranges, give the bits that they give in the batch.
    pub(super) fn batch_independence(&self) -> Outcome {
        let facts = self.op.facts();
        let operands = self.operands(DType::F32)?;
        let batched = || operands.iter().filter(|o| o.batched);
        if facts.batch_dependent || facts.reach == Reach::Batch || batched().next().is_none() {
            return Ok(());
        }
        let numbers = self.numbers();
        let whole = self.run(&operands, &numbers, None)?;
        for i in 0..numbers.len() {
            let slice = |v: &Variable| v.slice_sequences(i..i + 1);
            self.same_part(&whole, &operands, &slice, &numbers[i..=i], None)
                .map_err(|f| within(f, "sequence", i))?;
        }
        let rows = batched().next().map_or(0, |o| o.value.rows());
        if facts.reach != Reach::Row || batched().any(|o| o.value.rows() != rows) {
            return Ok(());
        }
        let lod = batched().find_map(|o| o.value.lod());
        let keys = row_keys(lod, rows, &numbers);
        for (part, range) in [0..rows / 2, rows / 2..rows].into_iter().enumerate() {
            let slice = |v: &Variable| v.clone().with_lod(None)?.slice_sequences(range.clone());
            let keys = Some(keys[range.clone()].to_vec());
            self.same_part(&whole, &operands, &slice, &[], keys).map_err(|f| within(f, "half", part))?;
        }
        Ok(())
    }

    fn same_part(
        &self,
        whole: &Ran,
        operands: &[Operand],
        slice: &dyn Fn(&Variable) -> Result<Variable, Error>,
        numbers: &[u64],
        keys: Option<Vec<RowKey>>,
    ) -> Outcome {
        let cut = |o: &Operand| {
            let value = if o.batched { slice(&o.value)? } else { o.value.clone() };
            Ok(Operand { value, ..o.clone() })
        };
        let operands: Vec<Operand> = operands.iter().map(cut).collect::<Result<_, Error>>()?;
        let mut part = self.run(&operands, numbers, keys)?;
        for (slot, vars) in whole.outputs.iter().enumerate() {
            for (k, var) in vars.iter().enumerate() {
                if !whole.direct.output_specs()[slot][k].batched() {
                    continue;
                }
                let same = bits_eq(slice(var)?.storage(), part.outputs[slot][k].storage())?;
                ensure(same, || format!("`{}`[{k}]: other bits", self.op.signature().outputs[slot].name))?;
                if let Some(weights) = &whole.weights[slot][k] {
                    let weights = slice(&Variable::new(weights.clone(), var.lod().cloned())?)?;
                    part.weights[slot][k] = Some(weights.into_parts().0);
                }
            }
        }
        let batched = |slot: usize| whole.direct.input_specs()[slot].iter().any(|spec| spec.batched());
        let slots: Vec<usize> = self.slots(whole).into_iter().filter(|&s| batched(s)).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let wanted = |slot: usize| slots.contains(&slot);
        let (a, b) = (whole.gradients(&wanted, None)?, part.gradients(&wanted, None)?);
        for &slot in &slots {
            for (k, input) in whole.direct.inputs()[slot].iter().enumerate() {
                let (Some(a), Some(b)) = (&a[slot][k], &b[slot][k]) else { continue };
                if a.kind() != StorageKind::Dense || !whole.direct.input_specs()[slot][k].batched() {
                    continue;
                }
                let expected = slice(&Variable::new(a.clone(), input.lod().cloned())?)?;
                let same = bits_eq(expected.storage(), b)?;
                ensure(same, || format!("gradient of `{}`[{k}]: other bits", self.input_name(slot)))?;
            }
        }
        Ok(())
    }
}

fn within(failure: Failure, part: &str, i: usize) -> Failure {
    Failure(format!("{part} {i} alone: {}", failure.0))
}

/// The names of rows that do not depend on the batch.
fn row_keys(lod: Option<&Arc<Lod>>, rows: usize, numbers: &[u64]) -> Vec<RowKey> {
    match lod {
        None => (0..rows).map(|i| RowKey { sequence: numbers[i], position: 0 }).collect(),
        Some(lod) => (0..lod.sequences())
            .flat_map(|i| {
                let sequence = numbers[i];
                (0..lod.range(0, i).unwrap().len() as u64).map(move |position| RowKey { sequence, position })
            })
            .collect(),
    }
}
