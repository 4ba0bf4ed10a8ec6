//! Calls of an operator with the options that the executor uses: a part of the rows, outputs that are added to old
//! values, a gradient that overwrites its input, and prepared constants. [`Direct`] holds the operands of a call; the
//! methods of `Direct` that call an operator have none of these options.

use std::ops::Range;

use crate::error::Result;
use crate::kernels::arena::{Lender, OperandRoom, Operands};
use crate::kernels::{Assign, View, ViewMut};
use crate::operator::call::{Direct, DuplicateRows, InputGradients, pooled, stored, two_dimensional};
use crate::operator::context::{
    Backward, Call, CallCache, Forward, OperandPosition, Pass, Prepare, Scratch, Wiring,
};
use crate::operator::entries::PooledStorage;
use crate::operator::keys::Keys;
use crate::operator::{Extent, Op, ReadSlots, Spec};
use crate::tensor::{DType, Dense, Storage, StorageKind, Variable, with_element};

/// The gradients of the outputs, by slot and by index in the slot; they are the weights of the loss Σ weight · output.
pub(super) type Weights = Vec<Vec<Option<Storage>>>;

/// Returns the indices of all input slots of the operator.
fn signature_slots(op: &dyn Op) -> std::ops::Range<usize> {
    0..op.signature().inputs.len()
}

/// A part of the rows of a call: a range of rows or of sequences.
#[derive(Debug, Clone)]
pub(super) enum RowSubset {
    /// A range of rows, for a row-wise operator.
    Rows(Range<usize>),
    /// A range of sequences, for a sequence-wise operator: `of` is the range of sequences, and `rows` is the range of
    /// the rows of these sequences. `counted` is the row extent of variables with one row per sequence.
    Sequences { of: Range<usize>, counted: Extent, rows: Range<usize> },
}

impl RowSubset {
    /// Returns the range of the rows of a variable that belong to this part, or all rows of a constant.
    pub(super) fn of(&self, spec: &Spec, rows: usize) -> Range<usize> {
        match self {
            _ if !spec.batched() => 0..rows,
            RowSubset::Rows(range) => range.clone(),
            RowSubset::Sequences { of: rows_of_sequences, counted, .. } if spec.rows() == *counted => {
                rows_of_sequences.clone()
            }
            RowSubset::Sequences { rows, .. } => rows.clone(),
        }
    }

    /// Returns the rows of a value that belong to this part; a constant is returned unchanged.
    pub(super) fn part_of_value(&self, value: &Storage, spec: &Spec) -> Result<Storage> {
        if !spec.batched() {
            return Ok(value.clone());
        }
        let dense = value.to_dense()?;
        Ok(dense.slice_rows(self.of(spec, dense.rows()))?.into())
    }
}

#[derive(Default, Clone, Copy)]
pub(super) struct CallOptions<'a> {
    pub(super) part: Option<&'a RowSubset>,
    pub(super) prepared: Option<&'a CallCache>,
    /// The old value to which the call adds its output; `None` if the call overwrites the memory of its outputs.
    pub(super) added_to: Option<&'a Storage>,
    /// The input slots whose gradient is written over the value of the input.
    pub(super) in_place: &'a [usize],
    /// Whether a backward call also computes the outputs.
    pub(super) results: bool,
    /// Whether the call gets all values (true), or only the values that the operator declares as read for the requested
    /// gradients (false).
    pub(super) unveiled: bool,
}

/// The buffers of a call, which are lent to the operator's operands.
struct LentBuffers<'a> {
    lender: Lender<'a>,
    reads: usize,
    pool: Vec<PooledStorage>,
}

impl<'a> LentBuffers<'a> {
    fn read(&mut self, value: &'a Storage, spec: &Spec, part: Option<&RowSubset>) -> Result<OperandPosition> {
        let dense = match value {
            Storage::Dense(dense) => dense,
            other => {
                self.pool.extend(pooled(other, DuplicateRows::Added)?);
                return Ok(OperandPosition::Pooled(self.pool.len() - 1));
            }
        };
        let (rows, width) = two_dimensional(dense.shape(), spec);
        let range = part.map_or(0..rows, |part| part.of(spec, rows));
        with_element!(dense.dtype(), T => {
            let view = View::new(dense.as_slice::<T>()?, rows, width);
            self.lender.read(view.rows_range(range.start, range.end));
        });
        self.reads += 1;
        Ok(OperandPosition::Dense(self.reads - 1))
    }

    fn slot(
        &mut self,
        values: impl Iterator<Item = Option<&'a Storage>>,
        specs: &[Spec],
        part: Option<&RowSubset>,
    ) -> Result<Vec<OperandPosition>> {
        let mut places = Vec::new();
        for (value, spec) in values.zip(specs) {
            places.push(match value {
                Some(value) => self.read(value, spec, part)?,
                None => OperandPosition::Absent,
            });
        }
        Ok(places)
    }

    fn write(&mut self, dense: &'a mut Dense, spec: &Spec) -> Result<()> {
        let (rows, width) = two_dimensional(dense.shape(), spec);
        with_element!(dense.dtype(), T => {
            self.lender.write(ViewMut::new(dense.as_mut_slice::<T>()?, rows, width));
        });
        Ok(())
    }
}

/// Returns a buffer with arbitrary contents for an output or a gradient; with `part`, the buffer has only the rows of the part.
fn unwritten(direct: &Direct, spec: &Spec, part: Option<&RowSubset>) -> Result<Dense> {
    let whole = direct.unwritten(spec)?;
    match part {
        Some(part) if spec.batched() => whole.slice_rows(0..part.of(spec, whole.rows()).len()),
        _ => Ok(whole),
    }
}

/// Restricts a call to the rows in `how.part`; returns the whole call if `how.part` is `None`.
fn part_of<'a>(call: Call<'a>, how: CallOptions<'a>) -> Call<'a> {
    let moved = match how.part {
        Some(RowSubset::Rows(range)) => range.start,
        Some(RowSubset::Sequences { rows, .. }) => rows.start,
        None => 0,
    };
    let keys = match call.keys {
        Keys::Listed(keys) => Keys::Listed(keys.get(moved..).unwrap_or(&[])),
        Keys::Natural { names, lod, first } => Keys::Natural { names, lod, first: first + moved },
    };
    let sequences = match how.part {
        Some(RowSubset::Sequences { of: rows_of_part, .. }) => Some(rows_of_part.clone()),
        _ => None,
    };
    Call { keys, sequences, prepared: how.prepared, ..call }
}

/// Runs a forward call, and returns its dense outputs.
pub(super) fn forward(op: &dyn Op, direct: &Direct, how: CallOptions<'_>) -> Result<Vec<Vec<Storage>>> {
    let mut wiring = Wiring { adds: how.added_to.is_some(), ..Wiring::default() };
    let mut room = OperandRoom::default();
    let mut lent = LentBuffers { lender: Operands::lent(&mut room), reads: 0, pool: Vec::new() };
    for (vars, specs) in direct.inputs().iter().zip(direct.input_specs()) {
        let values = vars.iter().map(|v| Some(v.storage()));
        wiring.inputs.push(lent.slot(values, specs, how.part)?);
    }
    let mut values: Vec<Vec<Option<Dense>>> = Vec::new();
    for specs in direct.output_specs() {
        let start = |spec: &Spec| match how.added_to {
            _ if spec.storage != StorageKind::Dense => Ok(None),
            Some(value) => value.to_dense().map(|dense| Some(dense.into_owned())),
            None => unwritten(direct, spec, how.part).map(Some),
        };
        values.push(specs.iter().map(start).collect::<Result<_>>()?);
    }
    let mut writes = 0;
    for (row, specs) in values.iter_mut().zip(direct.output_specs()) {
        let mut places = Vec::new();
        for (dense, spec) in row.iter_mut().zip(specs) {
            if let Some(dense) = dense {
                lent.write(dense, spec)?;
                places.push(OperandPosition::Dense(writes));
                writes += 1;
            } else {
                lent.pool.extend(PooledStorage::of(spec.storage));
                places.push(OperandPosition::Pooled(lent.pool.len() - 1));
            }
        }
        wiring.outputs.push(places);
    }
    let LentBuffers { lender, mut pool, .. } = lent;
    let call = part_of(direct.call(&wiring), how);
    let mut scratch = Scratch::default();
    let operands = lender.finish();
    let outcome = op.forward(&mut Forward::new(call, operands, &mut pool, &mut scratch));
    wiring.missing.checked(op.signature(), outcome)?;
    let mut found = Vec::new();
    for (slot, row) in values.into_iter().enumerate() {
        let mut storages = Vec::new();
        for (k, value) in row.into_iter().enumerate() {
            storages.push(match (value, wiring.outputs[slot][k]) {
                (None, OperandPosition::Pooled(i)) => stored(&pool[i], &direct.output_specs()[slot][k])?,
                (value, _) => value.unwrap_or(Dense::zeros(DType::F64, &[0])?).into(),
            });
        }
        found.push(storages);
    }
    Ok(found)
}

/// The input of a backward call: the outputs of the forward call, the gradients of these outputs, and the input slots whose
/// gradients are requested.
#[derive(Clone, Copy)]
pub(super) struct BackwardInput<'a> {
    pub(super) outputs: &'a [Vec<Variable>],
    pub(super) weights: &'a Weights,
    pub(super) wanted: &'a [usize],
}

/// Makes the memory for the wanted dense gradients.
fn gradient_memory(
    direct: &Direct,
    wanted: &[usize],
    how: CallOptions<'_>,
) -> Result<Vec<Vec<Option<Dense>>>> {
    let mut values: Vec<Vec<Option<Dense>>> = Vec::new();
    for (slot, vars) in direct.inputs().iter().enumerate() {
        let mut row = Vec::new();
        for (var, spec) in vars.iter().zip(&direct.input_specs()[slot]) {
            row.push(if !wanted.contains(&slot) || !spec.dtype.is_float() {
                None
            } else if how.in_place.contains(&slot) {
                Some(var.storage().to_dense()?.into_owned())
            } else {
                Some(unwritten(direct, spec, how.part)?)
            });
        }
        values.push(row);
    }
    Ok(values)
}

/// Lends the memory of the gradients for writing; returns the number of lent values.
fn lend_gradients<'a>(
    op: &dyn Op,
    specs: &[Vec<Spec>],
    values: &'a mut [Vec<Option<Dense>>],
    lent: &mut LentBuffers<'a>,
    wiring: &mut Wiring,
) -> Result<usize> {
    let mut writes = 0;
    for (slot, row) in values.iter_mut().enumerate() {
        let mut places = Vec::new();
        for (k, value) in row.iter_mut().enumerate() {
            let kind = match specs[slot][k].storage {
                StorageKind::Dense => op.gradient(slot, specs).storage,
                own => own,
            };
            let index = match (value, PooledStorage::of(kind)) {
                (None, _) => OperandPosition::Absent,
                (Some(_), Some(empty)) => {
                    lent.pool.push(empty);
                    OperandPosition::Pooled(lent.pool.len() - 1)
                }
                (Some(dense), None) => {
                    lent.write(dense, &specs[slot][k])?;
                    writes += 1;
                    OperandPosition::Dense(writes - 1)
                }
            };
            places.push((index, Assign::Write));
        }
        wiring.input_gradients.push(places);
    }
    Ok(writes)
}

/// Runs a backward call; returns the gradients and, if `how.results` is true, the outputs.
pub(super) fn backward(
    op: &dyn Op,
    direct: &Direct,
    given: BackwardInput<'_>,
    how: CallOptions<'_>,
    scratch: &mut Scratch,
) -> Result<(InputGradients, Vec<Vec<Storage>>)> {
    let BackwardInput { outputs, weights, wanted } = given;
    let specs = direct.input_specs();
    let reads = if how.unveiled { ReadSlots::everything() } else { reads(op, direct, wanted) };
    let mut wiring = Wiring { in_place: how.in_place.to_vec(), ..Wiring::default() };
    let mut room = OperandRoom::default();
    let mut lent = LentBuffers { lender: Operands::lent(&mut room), reads: 0, pool: Vec::new() };
    for (slot, vars) in direct.inputs().iter().enumerate() {
        let bound = reads.has_input(slot) && !how.in_place.contains(&slot);
        let values = vars.iter().map(|v| bound.then(|| v.storage()));
        wiring.inputs.push(lent.slot(values, &specs[slot], how.part)?);
    }
    for (slot, vars) in outputs.iter().enumerate() {
        let bound = reads.has_output(slot) && !how.results;
        let values = vars.iter().map(|v| bound.then(|| v.storage()));
        wiring.outputs.push(lent.slot(values, &direct.output_specs()[slot], how.part)?);
    }
    for (slot, values) in weights.iter().enumerate() {
        let values = values.iter().map(Option::as_ref);
        wiring.output_gradients.push(lent.slot(values, &direct.output_specs()[slot], how.part)?);
    }
    let mut values = gradient_memory(direct, wanted, how)?;
    let mut results: Vec<Vec<Dense>> = Vec::new();
    for specs in direct.output_specs().iter().filter(|_| how.results) {
        results.push(specs.iter().map(|s| unwritten(direct, s, how.part)).collect::<Result<_>>()?);
    }
    let mut writes = lend_gradients(op, specs, &mut values, &mut lent, &mut wiring)?;
    for (row, specs) in results.iter_mut().zip(direct.output_specs()) {
        let mut places = Vec::new();
        for (dense, spec) in row.iter_mut().zip(specs) {
            lent.write(dense, spec)?;
            places.push(OperandPosition::Dense(writes));
            writes += 1;
        }
        wiring.results.push(places);
    }
    let LentBuffers { lender, mut pool, .. } = lent;
    let call = part_of(direct.call(&wiring), how);
    let operands = lender.finish();
    let outcome = op.backward(&mut Backward::new(call, operands, &mut pool, scratch));
    wiring.missing.checked(op.signature(), outcome)?;
    let mut gradients: InputGradients = Vec::new();
    for (slot, row) in values.into_iter().enumerate() {
        let mut found = Vec::new();
        for (k, value) in row.into_iter().enumerate() {
            found.push(match (wiring.input_gradients[slot][k].0, value) {
                (OperandPosition::Pooled(i), _) => Some(stored(&pool[i], &specs[slot][k])?),
                (_, value) => value.map(Storage::from),
            });
        }
        gradients.push(found);
    }
    let results = results.into_iter().map(|row| row.into_iter().map(Storage::from).collect()).collect();
    Ok((gradients, results))
}

/// Returns all slots that the operator declares as read for the gradients of the slots in `wanted`.
pub(super) fn reads(op: &dyn Op, direct: &Direct, wanted: &[usize]) -> ReadSlots {
    let gradient_reads = |&slot: &usize| op.gradient(slot, direct.input_specs()).reads;
    wanted.iter().map(gradient_reads).fold(ReadSlots::nothing(), ReadSlots::union)
}

/// Prepares the constants of an operator once, for several calls with the same constants.
pub(super) fn prepare(
    op: &dyn Op,
    direct: &Direct,
    pass: Pass,
    wanted: &[usize],
    prepared: &mut CallCache,
) -> Result<()> {
    let bound = match pass {
        Pass::Forward => ReadSlots::everything(),
        Pass::Backward => reads(op, direct, wanted),
    };
    let none = RowSubset::Rows(0..0);
    let mut room = OperandRoom::default();
    let mut lent = LentBuffers { lender: Operands::lent(&mut room), reads: 0, pool: Vec::new() };
    let mut constants = Vec::new();
    for (slot, (vars, specs)) in direct.inputs().iter().zip(direct.input_specs()).enumerate() {
        let first = lent.reads;
        let values = vars.iter().map(|v| bound.has_input(slot).then(|| v.storage()));
        // Batched operands are empty here, since their buffers may not exist before a run.
        lent.slot(values, specs, Some(&none))?;
        let constant = !specs.iter().any(Spec::batched);
        constants.push(first..if constant { lent.reads } else { first });
    }
    let flags: Vec<bool> = signature_slots(op).map(|slot| wanted.contains(&slot)).collect();
    let wanted = if pass == Pass::Backward { &flags[..] } else { &[] };
    let operands = lent.lender.finish();
    let inputs = direct.input_specs();
    let wiring = Wiring::default();
    let call = direct.call(&wiring);
    let (literals, unit, threads) = (call.literals, call.run.unit, call.run.threads);
    op.prepare(&mut Prepare {
        pass,
        operands,
        constants: &constants,
        inputs,
        literals,
        wanted,
        unit,
        threads,
        prepared,
    })
}
