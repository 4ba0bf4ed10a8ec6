//! Direct calls of an operator on values, without a program. Tests, notebooks, data preparation and the reference interpreter use
//! direct calls.

mod intake;
mod lend;

use std::sync::Arc;

pub(crate) use intake::{DuplicateRows, Intake};
#[cfg(any(feature = "testing", doc))]
pub(crate) use lend::two_dimensional;
use lend::{lend_reads, lend_write, table};
pub(crate) use lend::{pooled, stored};

use super::context::{Backward, Call, Forward, OperandPosition, RunFacts, Scratch, Wiring};
use super::entries::PooledStorage;
use super::facts::ReadSlots;
use super::keys::{Keys, Names, RowKey};
use super::levels::LevelTable;
use super::literals::Literals;
use super::op::Op;
use super::registry::Registry;
use super::sample::Operand;
use super::signature::{Signature, Slot};
use super::table::RowStart;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Assign;
use crate::kernels::arena::{Lender, OperandRoom, Operands};
use crate::lod::Lod;
use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{Extent, LevelId, Levels, Spec};
use crate::tensor::{DType, Dense, Storage, StorageKind, Variable};

mod making;

/// An operator with bound inputs, ready to be called.
pub struct Direct {
    op: Arc<dyn Op>,
    inputs: Vec<Vec<Variable>>,
    input_specs: Vec<Vec<Spec>>,
    literals: Vec<Vec<Literal>>,
    /// The row-sparse parameters whose initial values are given: for each parameter, its input slot, its index in the
    /// slot, and the initial values of its unlisted rows. Other row-sparse parameters start with zeros.
    starts: Vec<(usize, usize, RowStart)>,
    output_specs: Vec<Vec<Spec>>,
    updated: Vec<Vec<Variable>>,
    levels: LevelTable,
    /// The number of distinct LoD levels of the operands. These levels have the indices from 0 on, and the levels that
    /// the operator makes have the next indices.
    bound: u32,
    batch: usize,
    numbers: Vec<u64>,
    places: Vec<u64>,
    keys: Option<Vec<RowKey>>,
    stream: u64,
    run: RunFacts,
}

/// The contents of an output's memory before the call.
enum Start {
    Dense(Dense),
    Pooled(PooledStorage),
}

/// The gradients of the inputs, by slot and by variable of the slot; `None` if no gradient was requested.
pub(crate) type InputGradients = Vec<Vec<Option<Storage>>>;

impl Direct {
    /// Binds the operands to the input slots, and runs the shape rule. Operands with equal LoDs share their LoD levels.
    ///
    /// # Errors
    /// Fails if an operand does not fit its slot.
    #[track_caller]
    pub fn new(op: Arc<dyn Op>, operands: &[Operand]) -> Result<Self> {
        Self::bound(op, operands).and_then(Self::made).at_caller()
    }

    /// Binds the operands to the input slots, without running the shape rule.
    pub(crate) fn bound(op: Arc<dyn Op>, operands: &[Operand]) -> Result<Self> {
        let signature = op.signature();
        let mut direct = Direct {
            op,
            inputs: vec![Vec::new(); signature.inputs.len()],
            input_specs: vec![Vec::new(); signature.inputs.len()],
            literals: vec![Vec::new(); signature.inputs.len()],
            starts: Vec::new(),
            output_specs: Vec::new(),
            updated: vec![Vec::new(); signature.outputs.len()],
            levels: LevelTable::default(),
            bound: 0,
            batch: usize::MAX,
            numbers: Vec::new(),
            places: Vec::new(),
            keys: None,
            stream: 0,
            run: RunFacts { threads: 1, ..RunFacts::default() },
        };
        let mut bound: Vec<Arc<Lod>> = Vec::new();
        for operand in operands {
            direct.bind(signature, operand, &mut bound)?;
        }
        let tensors = direct.inputs.iter().map(Vec::len);
        let counts = tensors.zip(&direct.literals).map(|(tensors, literals)| tensors + literals.len());
        for (slot, given) in signature.inputs.iter().zip(counts) {
            if !slot.arity.takes(given) {
                let (expected, got) = (slot.arity.to_string(), given.to_string());
                return Err(Error::of(ErrorKind::Program, format!("input `{}`", slot.name), expected, got));
            }
        }
        direct.bound = bound.len() as u32;
        Ok(direct)
    }

    /// Binds the operands to the operator of the kind `kind` in a registry, as [`Self::new`] does.
    ///
    /// # Errors
    /// Fails if the kind is not registered, or if an operand does not fit its slot.
    #[track_caller]
    pub fn of(
        registry: &Registry,
        kind: &str,
        attributes: &Attributes,
        operands: &[Operand],
    ) -> Result<Self> {
        Self::new(registry.parse(kind, attributes)?, operands)
    }

    /// Sets the facts of the run, and the index of each sequence in the data set.
    #[must_use]
    pub fn run_as(mut self, run: RunFacts, numbers: &[u64]) -> Self {
        self.run = run;
        self.numbers = numbers.to_vec();
        self
    }

    /// Sets the position of the first row of each sequence of the batch, for operands that are windows of longer
    /// sequences.
    pub(crate) fn placed(mut self, places: &[u64]) -> Self {
        self.places = places.to_vec();
        self
    }

    /// Sets the inputs of the random generator: the operator's number `stream`, and a key for each row. With `None`, the keys
    /// of the rows follow from the LoD and the indices of the sequences in the data set.
    #[must_use]
    pub(crate) fn keyed(mut self, stream: u64, keys: Option<Vec<RowKey>>) -> Self {
        self.stream = stream;
        self.keys = keys;
        self
    }

    /// Treats variable `k` of an input slot, which is given as selected rows, as a row-sparse parameter. The rows that
    /// are not listed have the initial values `start`.
    pub(crate) fn starting(mut self, slot: usize, k: usize, start: RowStart) -> Self {
        self.starts.push((slot, k, start));
        self
    }

    /// In the pool, replaces the selected rows of an input slot by row-sparse parameters with these rows.
    fn lend_tables(&self, slot: usize, places: &[OperandPosition], pool: &mut [PooledStorage]) -> Result<()> {
        for (_, k, start) in self.starts.iter().filter(|(owner, ..)| *owner == slot) {
            if let Some(&OperandPosition::Pooled(i)) = places.get(*k) {
                pool[i] = table(self.inputs[slot][*k].storage().as_selected_rows()?, start.clone())?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, signature: Signature, operand: &Operand, bound: &mut Vec<Arc<Lod>>) -> Result<()> {
        let value = &operand.value;
        if let Some(i) = signature.outputs.iter().position(|s| s.updated && s.name == operand.slot) {
            self.updated[i].push(value.clone());
            return Ok(());
        }
        let Some(slot) = signature.inputs.iter().position(|s| s.name == operand.slot) else {
            let names: Vec<&str> = signature.inputs.iter().map(|s| s.name).collect();
            return Err(Error::of(
                ErrorKind::Program,
                "input slot",
                format!("one of {}", names.join(", ")),
                &operand.slot,
            ));
        };
        if operand.literal.is_some() != signature.inputs[slot].literal {
            let got = operand
                .literal
                .as_ref()
                .map_or("a tensor".to_owned(), |l| format!("a literal, {}", l.shown()));
            let (what, expected) = (format!("input `{}`", operand.slot), signature.inputs[slot].wanted());
            return Err(Error::of(ErrorKind::Program, what, expected, got));
        }
        if let Some(literal) = &operand.literal {
            self.literals[slot].push(literal.clone());
            return Ok(());
        }
        let mut levels = Levels::new();
        if let Some(lod) = value.lod() {
            for k in 0..lod.levels() {
                let mut part = lod;
                for _ in k + 1..lod.levels() {
                    part = part.upper().ok_or_else(|| Error::new("LoD", "an upper level", "none"))?;
                }
                let id = bound.iter().position(|known| known == part).unwrap_or_else(|| {
                    bound.push(part.clone());
                    bound.len() - 1
                });
                let id = LevelId(id as u32);
                self.levels.set(id, Some(bound[id.0 as usize].clone()));
                levels
                    .try_push(id)
                    .map_err(|_| Error::new("LoD", "fewer levels", lod.levels().to_string()))?;
            }
        }
        let shape = value.shape();
        let mut spec = Spec::fixed(value.dtype(), shape)?;
        spec.storage = value.storage().kind();
        if operand.batched {
            let rows = *shape.first().ok_or_else(|| Error::new("a batched operand", "rows", "a scalar"))?;
            let sequences = value.lod().map_or(rows, |lod| lod.sequences());
            if self.batch != usize::MAX && self.batch != sequences {
                return Err(Error::new(
                    format!("sequences of `{}`", operand.slot),
                    self.batch.to_string(),
                    sequences.to_string(),
                ));
            }
            self.batch = sequences;
            spec.shape[0] = levels.last().map_or(Extent::Batch, |&l| Extent::Rows(l));
            spec.lod = levels;
        }
        // Operands with equal LoDs share one `Arc`, so that operators can compare LoDs by pointer.
        let lod = self.levels.lod(&spec.lod).cloned();
        self.inputs[slot].push(value.clone().with_lod(lod)?);
        self.input_specs[slot].push(spec);
        Ok(())
    }

    #[cfg(any(feature = "testing", doc))]
    pub(crate) fn output_specs(&self) -> &[Vec<Spec>] {
        &self.output_specs
    }

    #[cfg(any(feature = "testing", doc))]
    pub(crate) fn input_specs(&self) -> &[Vec<Spec>] {
        &self.input_specs
    }

    #[cfg(any(feature = "testing", doc))]
    pub(crate) fn inputs(&self) -> &[Vec<Variable>] {
        &self.inputs
    }

    fn extent(&self, extent: Extent) -> usize {
        match extent {
            Extent::Known(n) => n,
            Extent::Rows(level) => self.levels.get(level).map_or(0, |lod| lod.rows()),
            _ => {
                if self.batch == usize::MAX {
                    0
                } else {
                    self.batch
                }
            }
        }
    }

    /// Returns memory for an output. Floats in the memory are NaN, so that a test detects an operator that relies on zeros.
    pub(crate) fn unwritten(&self, spec: &Spec) -> Result<Dense> {
        let shape: Vec<usize> = spec.shape.iter().map(|&e| self.extent(e)).collect();
        let mut dense = Dense::zeros(spec.dtype, &shape)?;
        match spec.dtype {
            DType::F32 => dense.as_mut_slice::<f32>()?.fill(f32::NAN),
            DType::F64 => dense.as_mut_slice::<f64>()?.fill(f64::NAN),
            _ => {}
        }
        Ok(dense)
    }

    fn keys(&self) -> Keys<'_> {
        match &self.keys {
            Some(keys) => Keys::Listed(keys),
            None => {
                let spec = self.output_specs.first().and_then(|s| s.first());
                let lod = spec.and_then(|s| self.levels.lod(&s.lod));
                // A constant has rows too, but the rows of a constant are not sequences.
                let numbers = if spec.is_some_and(Spec::batched) { &self.numbers[..] } else { &[] };
                Keys::Natural { names: Names { numbers, places: &self.places }, lod, first: 0 }
            }
        }
    }

    /// Finds the top-level sequence that contains row `row`. Returns the sequence's index in the data set, and the
    /// row's position in the sequence; `None` if no operand is batched.
    fn sample(&self, row: usize) -> Option<(u64, Option<usize>)> {
        let spec = self.input_specs.iter().flatten().find(|spec| spec.batched())?;
        let names = Names { numbers: &self.numbers, places: &self.places };
        let natural = Keys::Natural { names, lod: self.levels.lod(&spec.lod), first: 0 };
        self.keys.as_deref().map_or(natural, Keys::Listed).sample(row)
    }

    pub(crate) fn call<'a>(&'a self, wiring: &'a Wiring) -> Call<'a> {
        Call {
            signature: self.op.signature(),
            wiring,
            inputs: &self.input_specs,
            literals: Literals { signature: self.op.signature(), values: &self.literals },
            outputs: &self.output_specs,
            levels: &self.levels,
            run: self.run,
            stream: self.stream,
            keys: self.keys(),
            sequences: None,
            prepared: None,
        }
    }

    /// Runs `forward` of the operator, and returns the outputs by slot.
    ///
    /// # Errors
    /// Fails if the operator returns an error.
    #[track_caller]
    pub fn forward(&self) -> Result<Vec<Vec<Variable>>> {
        self.run_forward().at_caller()
    }

    fn run_forward(&self) -> Result<Vec<Vec<Variable>>> {
        let signature = self.op.signature();
        let mut pool = Vec::new();
        let mut wiring = Wiring::default();
        let mut room = OperandRoom::default();
        let mut lender = Operands::lent(&mut room);
        let mut reads = 0;
        for (slot, (vars, specs)) in self.inputs.iter().zip(&self.input_specs).enumerate() {
            let values = vars.iter().map(|v| Some(v.storage()));
            let repeated = self.repeated();
            let places = lend_reads(values, specs, &mut lender, &mut reads, &mut pool, repeated)?;
            self.lend_tables(slot, &places, &mut pool)?;
            wiring.inputs.push(places);
        }
        let mut values = Vec::new();
        let (mut writes, mut rows) = (0, pool.len());
        for (slot, (specs, given)) in
            signature.outputs.iter().zip(self.output_specs.iter().zip(&self.updated))
        {
            for (k, spec) in specs.iter().enumerate() {
                values.push(match self.start(slot, spec, given.get(k))? {
                    Start::Dense(dense) => Some(dense),
                    Start::Pooled(buffer) => {
                        pool.push(buffer);
                        None
                    }
                });
            }
        }
        let mut rest = values.as_mut_slice();
        for specs in &self.output_specs {
            let mut places = Vec::new();
            for spec in specs {
                let Some((value, others)) = std::mem::take(&mut rest).split_first_mut() else { break };
                rest = others;
                if let Some(dense) = value {
                    lend_write(dense, spec, &mut lender)?;
                    places.push(OperandPosition::Dense(writes));
                    writes += 1;
                } else {
                    places.push(OperandPosition::Pooled(rows));
                    rows += 1;
                }
            }
            wiring.outputs.push(places);
        }
        let mut scratch = Scratch::default();
        let operands = lender.finish();
        let outcome =
            self.op.forward(&mut Forward::new(self.call(&wiring), operands, &mut pool, &mut scratch));
        wiring.missing.checked(signature, outcome).map_err(|e| e.of_sample(|row| self.sample(row)))?;
        let mut values = values.into_iter();
        let mut out = Vec::new();
        for (specs, places) in self.output_specs.iter().zip(&wiring.outputs) {
            let mut vars = Vec::new();
            for (spec, position) in specs.iter().zip(places) {
                let storage = match (position, values.next().flatten()) {
                    (_, Some(dense)) => Storage::from(dense),
                    (OperandPosition::Pooled(i), None) => stored(&pool[*i], spec)?,
                    _ => return Err(Error::new("outputs", "one output per spec", "fewer outputs")),
                };
                vars.push(Variable::new(storage, self.levels.lod(&spec.lod).cloned())?);
            }
            out.push(vars);
        }
        Ok(out)
    }

    /// Returns how selected rows that list a row several times are bound. An update rule reads gradients, which may
    /// list a row several times, so its selected rows are bound unchanged. For all other operators, the repeated rows
    /// of an input are added up.
    fn repeated(&self) -> DuplicateRows {
        let updates = self.op.signature().outputs.iter().any(|slot| slot.updated);
        if updates { DuplicateRows::Kept } else { DuplicateRows::Added }
    }

    /// Returns the contents of an output's memory before the call: for an output that is updated in place, the value to update.
    /// The memory of any other output comes from [`Self::unwritten`], or is an empty buffer if the output is sparse.
    fn start(&self, slot: &Slot, spec: &Spec, given: Option<&Variable>) -> Result<Start> {
        if !slot.updated {
            return match PooledStorage::of(spec.storage) {
                Some(empty) => Ok(Start::Pooled(empty)),
                None => self.unwritten(spec).map(Start::Dense),
            };
        }
        let given = given
            .ok_or_else(|| Error::new(format!("output `{}`", slot.name), "a value to update", "none"))?;
        let fits = given.dtype() == spec.dtype && given.storage().kind() == spec.storage;
        match given.storage() {
            Storage::Dense(dense) if fits => Ok(Start::Dense(dense.clone())),
            Storage::SelectedRows(rows) if fits && slot.table => {
                table(rows, RowStart::zeros()).map(Start::Pooled)
            }
            other => {
                let pooled = if fits { pooled(other, DuplicateRows::Kept)? } else { None };
                pooled.map(Start::Pooled).ok_or_else(|| {
                    let got = format!("{} {}", other.dtype(), other.kind());
                    Error::new(format!("output `{}`", slot.name), spec.to_string(), got)
                })
            }
        }
    }

    /// Runs `backward` of the operator for the input slots for which `wanted` returns true. `outputs` has the forward
    /// outputs; `gradients` has the gradient of each output, or `None` if no gradient reaches the output. If `before`
    /// has a value for a gradient, the gradient is added to this value. A dense value in `before` stays dense, even if
    /// the operator can write the gradient as selected rows.
    ///
    /// # Errors
    /// Fails if the operator returns an error.
    #[track_caller]
    pub fn backward(
        &self,
        outputs: &[Vec<Variable>],
        gradients: &[Vec<Option<Storage>>],
        wanted: &dyn Fn(usize) -> bool,
        before: Option<&InputGradients>,
    ) -> Result<InputGradients> {
        self.run_backward(outputs, gradients, wanted, before).at_caller()
    }

    fn run_backward(
        &self,
        outputs: &[Vec<Variable>],
        gradients: &[Vec<Option<Storage>>],
        wanted: &dyn Fn(usize) -> bool,
        before: Option<&InputGradients>,
    ) -> Result<InputGradients> {
        let signature = self.op.signature();
        for (what, given) in [("outputs", outputs.len()), ("gradients of outputs", gradients.len())] {
            if given != signature.outputs.len() {
                let expected = format!("{}, one for each slot", signature.outputs.len());
                return Err(Error::of(ErrorKind::Program, what, expected, given.to_string()));
            }
        }
        let needs = (0..signature.inputs.len())
            .filter(|&slot| wanted(slot))
            .fold(ReadSlots::nothing(), |n, slot| n.union(self.op.gradient(slot, &self.input_specs).reads));
        let mut pool = Vec::new();
        let mut wiring = Wiring::default();
        let mut room = OperandRoom::default();
        let mut lender = Operands::lent(&mut room);
        let (mut reads, kept) = (0, DuplicateRows::Kept);
        // Only values that the operator declares to read are bound, so that an operator with a wrong declaration fails.
        for (slot, vars) in self.inputs.iter().enumerate() {
            let values = vars.iter().map(|v| needs.has_input(slot).then(|| v.storage()));
            let (specs, repeated) = (&self.input_specs[slot], self.repeated());
            let places = lend_reads(values, specs, &mut lender, &mut reads, &mut pool, repeated)?;
            self.lend_tables(slot, &places, &mut pool)?;
            wiring.inputs.push(places);
        }
        for (slot, vars) in outputs.iter().enumerate() {
            let values = vars.iter().map(|v| needs.has_output(slot).then(|| v.storage()));
            let specs = &self.output_specs[slot];
            wiring.outputs.push(lend_reads(values, specs, &mut lender, &mut reads, &mut pool, kept)?);
        }
        for (slot, values) in gradients.iter().enumerate() {
            let values = values.iter().map(Option::as_ref);
            let specs = &self.output_specs[slot];
            let places = lend_reads(values, specs, &mut lender, &mut reads, &mut pool, kept)?;
            wiring.output_gradients.push(places);
        }
        let mut values = self.gradient_memory(wanted, before)?;
        wiring.input_gradients = self.lend_gradients(&mut values, before, &mut lender, &mut pool)?;
        let mut scratch = Scratch::default();
        let operands = lender.finish();
        let outcome =
            self.op.backward(&mut Backward::new(self.call(&wiring), operands, &mut pool, &mut scratch));
        wiring.missing.checked(self.op.signature(), outcome)?;
        let mut out = Vec::new();
        for (slot, row) in values.into_iter().enumerate() {
            let mut gradients = Vec::new();
            for (k, value) in row.into_iter().enumerate() {
                gradients.push(match (wiring.input_gradients[slot][k].0, value) {
                    (OperandPosition::Absent, _) | (_, None) => None,
                    (OperandPosition::Pooled(i), _) => Some(stored(&pool[i], &self.input_specs[slot][k])?),
                    (OperandPosition::Dense(_), Some(dense)) => Some(dense.into()),
                });
            }
            out.push(gradients);
        }
        Ok(out)
    }

    /// Makes the memory for the wanted dense gradients; a gradient starts with its value in `before`.
    fn gradient_memory(
        &self,
        wanted: &dyn Fn(usize) -> bool,
        before: Option<&InputGradients>,
    ) -> Result<Vec<Vec<Option<Dense>>>> {
        let memory = |slot: usize, k: usize, spec: &Spec| {
            if !(wanted(slot) && self.op.signature().inputs[slot].gradient && spec.dtype.is_float()) {
                return Ok(None);
            }
            Ok(Some(match given(before, slot, k) {
                Some(Storage::Dense(dense)) => dense.clone(),
                // A sparse variable needs no dense memory, and its shape may be larger than memory.
                _ if spec.storage != StorageKind::Dense => Dense::zeros(spec.dtype, &[0])?,
                _ => self.unwritten(spec)?,
            }))
        };
        let slots = self.input_specs.iter().enumerate();
        slots
            .map(|(slot, specs)| specs.iter().enumerate().map(|(k, spec)| memory(slot, k, spec)).collect())
            .collect()
    }

    /// Lends the memory of the gradients for writing; returns the position of each gradient.
    fn lend_gradients<'a>(
        &self,
        values: &'a mut [Vec<Option<Dense>>],
        before: Option<&InputGradients>,
        lender: &mut Lender<'a>,
        pool: &mut Vec<PooledStorage>,
    ) -> Result<Vec<Vec<(OperandPosition, Assign)>>> {
        let mut all = Vec::new();
        let mut writes = 0;
        for (slot, row) in values.iter_mut().enumerate() {
            let mut places = Vec::new();
            for (k, value) in row.iter_mut().enumerate() {
                let assign = if given(before, slot, k).is_some() { Assign::Add } else { Assign::Write };
                // The gradient of a sparse variable has the storage of the variable; the gradient of a dense variable has the
                // storage that the operator declares.
                let own = self.input_specs[slot][k].storage;
                let kind = match own {
                    StorageKind::Dense => self.op.gradient(slot, &self.input_specs).storage,
                    own => own,
                };
                places.push(match (value, given(before, slot, k), PooledStorage::of(kind)) {
                    (None, ..) => (OperandPosition::Absent, assign),
                    (Some(_), None, Some(empty)) => {
                        pool.push(empty);
                        (OperandPosition::Pooled(pool.len() - 1), assign)
                    }
                    (Some(_), Some(before), Some(mut buffer)) if before.kind() == kind => {
                        Intake::default().take_in(&mut buffer, before, DuplicateRows::Kept)?;
                        pool.push(buffer);
                        (OperandPosition::Pooled(pool.len() - 1), assign)
                    }
                    (Some(dense), given, _) => {
                        if let Some(other) = given.filter(|given| given.kind() != StorageKind::Dense) {
                            *dense = other.to_dense()?.into_owned();
                        }
                        lend_write(dense, &self.input_specs[slot][k], lender)?;
                        writes += 1;
                        (OperandPosition::Dense(writes - 1), assign)
                    }
                });
            }
            all.push(places);
        }
        Ok(all)
    }
}

/// Returns the value to which a gradient is added.
fn given(before: Option<&InputGradients>, slot: usize, k: usize) -> Option<&Storage> {
    before?.get(slot)?.get(k)?.as_ref()
}

impl dyn Op {
    /// Calls the operator on values; returns the variables of all output slots, in the order of the slots.
    ///
    /// # Errors
    /// Fails if an operand does not fit its slot, or if the operator returns an error.
    #[track_caller]
    pub fn call(self: Arc<Self>, operands: &[Operand]) -> Result<Vec<Variable>> {
        Ok(Direct::new(self, operands)?.forward()?.into_iter().flatten().collect())
    }
}
