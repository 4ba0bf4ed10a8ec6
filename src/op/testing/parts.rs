//! Checks that results have the same bits in any batch and in any part of a batch, and that only operators that are
//! declared random depend on random numbers.

use std::sync::Arc;

use super::call::{self, CallOptions, RowSubset};
use super::case::{Case, CaseRun, SEED, STREAM, each};
use super::values::{Outcome, bits_eq, ensure, same_bits, within};
use crate::error::Result;
use crate::lod::Lod;
use crate::operator::call::Direct;
use crate::operator::keys::RowKey;
use crate::operator::{Extent, LevelId, Mode, Operand, Reach, RunFacts, Spec};
use crate::tensor::{DType, StorageKind, Variable};

impl Case<'_> {
    /// Checks that running each sequence alone gives the same bits as running the whole batch. For a row-wise operator, also
    /// checks this for each half of the rows.
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
            let outcome = self.same_part(&whole, &operands, &slice, &numbers[i..=i], None);
            within(outcome, || format!("sequence {i} alone"))?;
        }
        let rows = batched().next().map_or(0, |o| o.value.rows());
        if facts.reach != Reach::Row || batched().any(|o| o.value.rows() != rows) {
            return Ok(());
        }
        let lod = batched().find_map(|o| o.value.lod());
        let keys = row_keys(lod, rows, &numbers);
        for (part, range) in [0..rows / 2, rows / 2..rows].into_iter().enumerate() {
            let slice = |v: &Variable| v.clone().with_lod(None)?.slice_sequences(range.clone());
            let keys = Some(keys.get(range.clone()).unwrap_or(&[]).to_vec());
            let outcome = self.same_part(&whole, &operands, &slice, &[], keys);
            within(outcome, || format!("half {part} alone"))?;
        }
        Ok(())
    }

    fn same_part(
        &self,
        whole: &CaseRun,
        operands: &[Operand],
        slice: &dyn Fn(&Variable) -> Result<Variable>,
        numbers: &[u64],
        keys: Option<Vec<RowKey>>,
    ) -> Outcome {
        let narrowed = |o: &Operand| {
            let value = if o.batched { slice(&o.value)? } else { o.value.clone() };
            Ok(Operand { value, ..o.clone() })
        };
        let operands: Vec<Operand> = operands.iter().map(narrowed).collect::<Result<_>>()?;
        let mut part = self.run(&operands, numbers, keys)?;
        for (slot, vars) in whole.outputs.iter().enumerate() {
            for (k, var) in vars.iter().enumerate() {
                if !whole.direct.output_specs()[slot][k].batched() {
                    continue;
                }
                let same = bits_eq(slice(var)?.storage(), part.outputs[slot][k].storage())?;
                ensure(same, || format!("`{}`[{k}]: other bits", self.output_name(slot)))?;
                if let Some(weights) = &whole.weights[slot][k] {
                    let weights = slice(&Variable::new(weights.clone(), var.lod().cloned())?)?;
                    part.weights[slot][k] = Some(weights.into_parts().0);
                }
            }
        }
        let slots = self.batched_slots(whole);
        if slots.is_empty() {
            return Ok(());
        }
        let (a, b) = (whole.gradients(&slots, None)?, part.gradients(&slots, None)?);
        for &slot in &slots {
            for (k, input) in whole.direct.inputs()[slot].iter().enumerate() {
                let (Some(a), Some(b)) = (&a[slot][k], &b[slot][k]) else { continue };
                if a.kind() == StorageKind::SelectedRows || !whole.direct.input_specs()[slot][k].batched() {
                    continue;
                }
                let expected = slice(&Variable::new(a.clone(), input.lod().cloned())?)?;
                let same = bits_eq(expected.storage(), b)?;
                ensure(same, || format!("gradient of `{}`[{k}]: other bits", self.input_name(slot)))?;
            }
        }
        Ok(())
    }

    /// Returns the input slots whose gradient has rows of the batch.
    fn batched_slots(&self, ran: &CaseRun) -> Vec<usize> {
        let batched = |slot: usize| ran.direct.input_specs()[slot].iter().any(Spec::batched);
        self.slots(ran).into_iter().filter(|&slot| batched(slot)).collect()
    }

    /// Checks that a row-wise operator on any range of rows, or a sequence-wise operator on any range of sequences, gives the
    /// same bits for these rows as the whole call. When threads divide a call, each thread makes a call on such a range.
    pub(super) fn reach(&self) -> Outcome {
        if self.op.facts().reach == Reach::Batch || self.updates() {
            return Ok(());
        }
        for dtype in [DType::F32, DType::F64] {
            let ran = self.run_sample(dtype)?;
            let constants = ran.direct.output_specs().iter().flatten().any(|spec| !spec.batched());
            if !ran.dense() || constants {
                continue;
            }
            for part in self.parts(&ran) {
                let how = CallOptions { part: Some(&part), ..CallOptions::default() };
                let outcome = self.same_as_part(&ran, &part, how);
                within(outcome, || match &part {
                    RowSubset::Rows(rows) => format!("rows {rows:?} alone"),
                    RowSubset::Sequences { of, .. } => format!("sequences {of:?} alone"),
                })?;
            }
        }
        Ok(())
    }

    fn same_as_part(&self, ran: &CaseRun, part: &RowSubset, how: CallOptions<'_>) -> Outcome {
        let outputs = call::forward(&*self.op, &ran.direct, how)?;
        for (slot, specs) in ran.direct.output_specs().iter().enumerate() {
            for (k, spec) in specs.iter().enumerate() {
                let expected = part.part_of_value(ran.outputs[slot][k].storage(), spec)?;
                same_bits(&outputs[slot][k], &expected, format!("`{}`[{k}]", self.output_name(slot)))?;
            }
        }
        let dense = |slot: &usize| self.gradient(ran, *slot).storage == StorageKind::Dense;
        let slots: Vec<usize> = self.batched_slots(ran).into_iter().filter(dense).collect();
        let mixed =
            slots.iter().any(|&slot| ran.direct.input_specs()[slot].iter().any(|spec| !spec.batched()));
        if slots.is_empty() || mixed {
            return Ok(());
        }
        let whole = ran.gradients(&slots, None)?;
        let found = ran.gradients_as(&*self.op, &slots, how)?;
        each(&found, &whole, &slots, |slot, k, found, whole| {
            let expected = part.part_of_value(whole, &ran.direct.input_specs()[slot][k])?;
            same_bits(found, &expected, format!("gradient of `{}`[{k}]", self.input_name(slot)))
        })
    }

    /// Returns the parts of the rows on which a call may be made. The list is empty if a batched variable has neither the
    /// rows of the call nor, for a sequence-wise operator, one row per sequence.
    fn parts(&self, ran: &CaseRun) -> Vec<RowSubset> {
        let specs = || ran.direct.input_specs().iter().chain(ran.direct.output_specs()).flatten();
        let batched = || specs().filter(|spec| spec.batched());
        let ranges = |n: usize| (0..=n).flat_map(move |a| (a..=n).map(move |b| a..b));
        let counted: Vec<Extent> = batched().map(Spec::rows).collect();
        let Some(&first) = counted.first() else { return Vec::new() };
        let rows = ran.outputs.iter().flatten().next().map_or(0, Variable::rows);
        if self.op.facts().reach == Reach::Row {
            let alike = counted.iter().all(|extent| *extent == first);
            return if alike { ranges(rows).map(RowSubset::Rows).collect() } else { Vec::new() };
        }
        let inputs = || ran.direct.inputs().iter().flatten().zip(ran.direct.input_specs().iter().flatten());
        let of = inputs().find_map(|(var, spec)| Some((var.lod()?, &spec.lod)));
        let Some((lod, levels)) = of else { return Vec::new() };
        let rows_of = |level: Option<&LevelId>| level.map_or(Extent::Batch, |&level| Extent::Rows(level));
        let above = levels.len().checked_sub(2).and_then(|i| levels.get(i));
        let (counted_by, below) = (rows_of(above), rows_of(levels.last()));
        if !counted.iter().all(|&extent| extent == counted_by || extent == below) {
            return Vec::new();
        }
        let offsets = lod.offsets();
        let part = |of: std::ops::Range<usize>| RowSubset::Sequences {
            rows: offsets[of.start]..offsets[of.end],
            of,
            counted: counted_by,
        };
        ranges(lod.last_len()).map(part).collect()
    }

    /// Checks that random numbers have an effect on the outputs only if the operator is declared random.
    pub(super) fn random(&self) -> Outcome {
        let changed = self.draws()?;
        let quiet = self.mode == Mode::Infer && self.op.hints().draws_in_training;
        ensure(!quiet || !changed, || {
            "the hint `draws_in_training`, but it draws when it infers, too".to_owned()
        })?;
        ensure(self.op.facts().random || !changed, || {
            "not declared random, and its outputs depend on the seed, the operator's number or the sequences'"
                .to_owned()
        })
    }

    /// Returns whether the outputs depend on the random numbers: on the seed, the stream or the sequence numbers.
    pub(super) fn draws(&self) -> Result<bool> {
        let operands = self.operands(DType::F32)?;
        let ran = self.run_sample(DType::F32)?;
        let others: Vec<u64> = self.numbers().iter().map(|n| n + 1).collect();
        let same = RunFacts { seed: SEED, ..self.run_facts() };
        let runs = [
            (RunFacts { seed: SEED + 1, ..same }, self.numbers(), STREAM),
            (same, self.numbers(), STREAM + 1),
            (same, others, STREAM),
        ];
        for (facts, numbers, stream) in runs {
            let direct = Direct::new(self.op.clone(), &operands)?.run_as(facts, &numbers);
            let found = direct.keyed(stream, None).forward()?;
            for (a, b) in found.iter().flatten().zip(ran.outputs.iter().flatten()) {
                if !bits_eq(a.storage(), b.storage())? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Returns, for each row, the key of its random numbers; a key does not depend on the other sequences of the batch.
fn row_keys(lod: Option<&Arc<Lod>>, rows: usize, numbers: &[u64]) -> Vec<RowKey> {
    let number = |i: usize| numbers.get(i).copied().unwrap_or_default();
    match lod {
        None => (0..rows).map(|i| RowKey { sequence: number(i), position: 0 }).collect(),
        Some(lod) => (0..lod.sequences())
            .flat_map(|i| {
                let count = lod.range(0, i).map_or(0, |rows| rows.len());
                (0..count as u64).map(move |position| RowKey { sequence: number(i), position })
            })
            .collect(),
    }
}
