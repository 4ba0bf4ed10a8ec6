//! Checks of operators that can run on sequences piece by piece: the results have the same bits as the results of
//! a call on the whole sequences.

use std::ops::Range;
use std::sync::Arc;

use super::case::{Case, CaseRun, SEED, STEP};
use super::values::{Outcome, ensure, same_bits, within};
use crate::error::Result;
use crate::lod::Lod;
use crate::operator::call::Direct;
use crate::operator::{Mode, Operand, Pieces, Reach, RunFacts};
use crate::tensor::{DType, Dense, Storage, Variable};

impl Case<'_> {
    /// Checks that calls on pieces give the result of a call on the whole sequences. The pieces are in forward order
    /// and, if the operator has the hint `pieces_from_end`, in backward order.
    pub(super) fn pieces(&self) -> Outcome {
        let ran = self.run_sample(DType::F32)?;
        let hints = self.op.hints();
        if self.op.facts().reach == Reach::Row || self.mode == Mode::Train {
            return Ok(());
        }
        for (pieces, from_end) in [(hints.pieces, false), (hints.pieces_from_end, true)] {
            let Some(pieces) = pieces else { continue };
            for rows in [1, 2, usize::MAX] {
                let outcome = self.piecewise(&ran, &pieces, from_end, rows);
                within(outcome, || {
                    let order = if from_end { "from the end, " } else { "" };
                    if rows == usize::MAX {
                        format!("{order}one piece")
                    } else {
                        format!("{order}pieces of {rows}")
                    }
                })?;
            }
        }
        Ok(())
    }

    fn piecewise(&self, ran: &CaseRun, pieces: &Pieces, from_end: bool, rows: usize) -> Outcome {
        let operands = self.operands(DType::F32)?;
        // Inference in pieces exists only for sequences with one level.
        let lods = || operands.iter().filter(|o| o.batched).filter_map(|o| o.value.lod());
        let Some(lod) = lods().next().filter(|_| lods().all(|lod| lod.levels() == 1)) else {
            return Ok(());
        };
        let op = self.registry.parse(pieces.into, &pieces.attributes)?;
        let signature = op.signature();
        let facts = RunFacts { mode: Mode::Infer, step: STEP, seed: SEED, threads: 1, ..RunFacts::default() };
        let has_rows = |value: &Variable| value.lod().is_some_and(|other| **other == **lod);
        let longest = lod.offsets().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        let count = longest.div_ceil(rows).max(1);
        let outputs = self.op.signature().outputs;
        let mut carried: Vec<Operand> = Vec::new();
        let mut collected: Vec<Vec<(Vec<Range<usize>>, Variable)>> = vec![Vec::new(); outputs.len()];
        let mut last: Vec<Option<Variable>> = vec![None; outputs.len()];
        let order: Vec<usize> = if from_end { (0..count).rev().collect() } else { (0..count).collect() };
        for piece in order {
            let ranges = piece_of(lod, piece, rows);
            let lengths: Vec<usize> = ranges.iter().map(Range::len).collect();
            let lod = Lod::from_lengths1(&lengths)?;
            let mut given = carried.clone();
            for operand in &operands {
                let value = match operand.batched && has_rows(&operand.value) {
                    true => taken(&operand.value, &ranges, &lod)?,
                    false => operand.value.clone(),
                };
                given.push(Operand { value, ..operand.clone() });
            }
            let mut direct = Direct::new(op.clone(), &given)?.run_as(facts, &self.numbers());
            if carried.is_empty() && !pieces.carried.is_empty() {
                // For the first piece, each carried input is zeros, in the shape of the carried output of the same name.
                for &name in pieces.carried {
                    given.push(Operand::batch(name, zeros(&direct, signature.outputs, name)?));
                }
                direct = Direct::new(op.clone(), &given)?.run_as(facts, &self.numbers());
            }
            let found = direct.forward()?;
            carried.clear();
            for (slot, mut values) in signature.outputs.iter().zip(found) {
                let Some(value) = values.pop() else { continue };
                if pieces.carried.contains(&slot.name) {
                    carried.push(Operand::batch(slot.name, value.clone()));
                }
                let Some(at) = outputs.iter().position(|s| s.name == slot.name) else { continue };
                if value.lod().is_some_and(|other| **other == *lod) {
                    collected[at].push((ranges.clone(), value.clone()));
                }
                last[at] = Some(value);
            }
            for &name in pieces.carried {
                let on = carried.iter().any(|o| o.slot == name);
                ensure(on, || format!("`{}` has no output `{name}` to hand on", pieces.into))?;
            }
        }
        for (slot, declared) in outputs.iter().enumerate() {
            let name = format!("`{}`", declared.name);
            for whole in &ran.outputs[slot] {
                let Some(last) = &last[slot] else {
                    return ensure(false, || format!("`{}` has no output {name}", pieces.into));
                };
                match has_rows(whole) {
                    true => same_bits(&joined(whole, &collected[slot])?, whole.storage(), &name)?,
                    false => same_bits(last.storage(), whole.storage(), &name)?,
                }
            }
        }
        Ok(())
    }
}

/// Returns, for each sequence, the range of its rows that belong to the piece with the index `piece`.
fn piece_of(lod: &Arc<Lod>, piece: usize, rows: usize) -> Vec<Range<usize>> {
    let first = piece.saturating_mul(rows);
    let rows_between = |w: &[usize]| {
        let (start, end) = (w[0].saturating_add(first), w[0].saturating_add(first.saturating_add(rows)));
        start.min(w[1])..end.min(w[1])
    };
    lod.offsets().windows(2).map(rows_between).collect()
}

fn taken(value: &Variable, ranges: &[Range<usize>], lod: &Arc<Lod>) -> Result<Variable> {
    let rows: Vec<usize> = ranges.iter().cloned().flatten().collect();
    Variable::new(value.storage().as_dense()?.gather_rows(&rows)?, Some(lod.clone()))
}

fn zeros(direct: &Direct, outputs: &[crate::operator::Slot], name: &str) -> Outcome<Variable> {
    let slot = outputs.iter().position(|slot| slot.name == name);
    let Some(spec) = slot.and_then(|slot| direct.output_specs()[slot].first()) else {
        return Err(super::values::Broken(format!("no output `{name}` to hand on")));
    };
    let shape = direct.unwritten(spec)?.shape().to_vec();
    Ok(Variable::dense(Dense::zeros(spec.dtype, &shape)?))
}

/// Joins the outputs of all pieces; each row is put at its position in the whole sequences.
fn joined(whole: &Variable, pieces: &[(Vec<Range<usize>>, Variable)]) -> Result<Storage> {
    let mut index = vec![0; whole.rows()];
    let mut at = 0;
    let mut values = Vec::new();
    for (ranges, value) in pieces {
        for row in ranges.iter().cloned().flatten() {
            index[row] = at;
            at += 1;
        }
        values.push(value.storage().as_dense()?);
    }
    Ok(Dense::concat_rows(&values)?.gather_rows(&index)?.into())
}
