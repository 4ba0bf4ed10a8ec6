//! The reference interpreter: runs a program operator by operator, without compiling or rewriting it.
//!
//! [`interpret`] is slow, and it defines what a program *means*. Every operator runs in program order on whole values. A
//! `recurrent` is a plain loop: step *t* takes entry *t* of each sequence that is long enough, and runs the step block on these
//! entries. The tests compare the compiled executor with this interpreter; authors of operators can use it to inspect every
//! intermediate value of a run.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{AtCaller, Error, ErrorKind, Place, Result};
use crate::executor::reference::rows::{add_rows, part, put, select, zeros};
use crate::executor::reference::values::{BlockValues, OuterValues, computed_sparse, sum};
use crate::executor::run::request::{Run, Stage};
use crate::executor::run::scope::Scope;
use crate::kernels::{ViewMut, flush};
use crate::operator::call::Direct;
use crate::operator::context::RunFacts;
use crate::operator::keys::{Names, RowKey};
use crate::operator::{BlockId, Extent, Op, Operand, Registry, VarId};
use crate::program::description::initialize;
use crate::program::{
    OpDesc, Program, RECURRENT, Role, StepDesc, StepGradient, VarKind, VarPair, VarRole, grad_name,
};
use crate::tensor::{DType, Dense, SelectedRows, Storage, StorageKind, Variable};

/// Runs `program` without compiling it and returns every value of its root block: feeds, computed variables and (if `run.stage`
/// includes them) gradients. The interpreter skips update operators.
///
/// ```
/// use ndarray::array;
/// use unpadded::executor::{Run, Scope, interpret};
/// use unpadded::{Builder, DType, Lod, Variable};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[1], 1);
/// let sums = net.recurrent(x, |step, x| {
///     let before = step.memory(1);
///     let sum = before + x;
///     step.update(before, sum);
///     sum
/// });
/// let (registry, program) = (net.registry(), net.finish()?);
/// let fed = Variable::sequences(array![[1.0f32], [2.0], [5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
/// let run = [(x.id(), &fed)];
/// let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&run))?;
/// assert_eq!(values[&sums.id()].as_slice::<f32>()?, [1.0, 3.0, 5.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Errors
/// Fails if a feed or a parameter is missing, or if an operator rejects its operands.
#[track_caller]
pub fn interpret(
    program: &Program,
    registry: &Registry,
    scope: &mut Scope,
    run: &Run<'_>,
) -> Result<HashMap<VarId, Variable>> {
    Interpreter::new(program, registry, run).run(scope, run.feeds).at_caller()
}

/// A function that receives the values that an operator of the root block, or of a step block in it, has just computed. An
/// error from the function ends the run.
pub(super) type Watcher<'a> = dyn Fn(&Interpreter<'_>, &OpDesc, &BlockValues) -> Result<()> + 'a;

pub(super) struct Interpreter<'a> {
    pub(super) program: &'a Program,
    pub(super) registry: &'a Registry,
    pub(super) facts: RunFacts,
    pub(super) names: Names<'a>,
    pub(super) stage: Stage,
    /// The watcher function, and the operators of the root block after which it is called.
    pub(super) watcher: Option<(&'a Watcher<'a>, Vec<usize>)>,
}

/// An operator, the bound call of the operator, and its output variables by slot.
type Bound = (Arc<dyn Op>, Direct, Vec<Vec<VarId>>);
/// The values that a loop returns to the block that contains it, and the values of each step.
type Unrolled = (Vec<(VarId, Variable)>, Vec<BlockValues>);

/// The sequences over which a `recurrent` runs.
struct Sequences {
    /// The number of LoD levels above the level over which the loop runs.
    depth: usize,
    offsets: Vec<usize>,
}

impl Sequences {
    fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    fn steps(&self) -> usize {
        self.offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
    }

    /// Returns the sequences that have a step `t`, and for each of these sequences the index of the entry that the step reads.
    fn at(&self, t: usize, reverse: bool) -> (Vec<usize>, Vec<usize>) {
        let alive = (0..self.count()).filter(|&i| self.offsets[i + 1] - self.offsets[i] > t);
        alive.map(|i| (i, if reverse { self.offsets[i + 1] - 1 - t } else { self.offsets[i] + t })).unzip()
    }
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(program: &'a Program, registry: &'a Registry, run: &Run<'a>) -> Self {
        let facts =
            RunFacts { mode: run.mode, step: run.step, seed: program.seed, threads: 1, unit: program.unit };
        Self {
            program,
            registry,
            facts,
            names: Names { numbers: run.numbers, places: run.places },
            stage: run.stage,
            watcher: None,
        }
    }

    pub(super) fn run(
        &self,
        scope: &mut Scope,
        feeds: &[(VarId, &Variable)],
    ) -> Result<HashMap<VarId, Variable>> {
        let mut root = BlockValues::default();
        for (id, var) in self.program.vars() {
            if var.persistable && var.spec().is_some() && scope.names().any(|name| name == var.name) {
                root.vars.insert(id, Variable::new(scope.value(&var.name)?, None)?);
            }
        }
        for &(id, value) in feeds {
            if self.program.vars().nth(id.0 as usize).is_none_or(|(_, var)| var.role != VarRole::Feed) {
                let got = self.program.called(id);
                return Err(Error::of(ErrorKind::Program, "feed", "a feed of the program", got));
            }
            root.define(self.program, id, value.clone())?;
        }
        self.block(BlockId(0), &mut root, None, &[])?;
        Ok(root.vars)
    }

    /// Runs the operators of a block in order. Very small numbers of the variables `flushed`, which are passed between steps,
    /// are set to zero.
    fn block(
        &self,
        block: BlockId,
        values: &mut BlockValues,
        around: Option<&OuterValues<'_>>,
        flushed: &[VarId],
    ) -> Result<()> {
        for (number, op) in self.program.block(block).ops.iter().enumerate() {
            if op.role == Role::Update || (op.role == Role::Backward && self.stage < Stage::Gradients) {
                continue;
            }
            let backward = if op.role == Role::Backward { ", backward" } else { "" };
            let look = |values: &BlockValues| match &self.watcher {
                Some((look, watched)) if block.0 > 0 || watched.contains(&number) => look(self, op, values),
                _ => Ok(()),
            };
            self.operator(op, values, around).and_then(|()| look(values)).map_err(|e| {
                e.at(Place {
                    operator: Some(format!("{} #{number}{backward}", op.kind)),
                    caller: Some(op.caller.clone()),
                    ..self.program.inside(block)
                })
            })?;
            for var in op.writes().filter(|v| flushed.contains(v)) {
                if let Some(value) = values.vars.get_mut(&var)
                    && value.dtype() == DType::F32
                {
                    let (rows, numbers) = (value.rows(), value.as_mut_slice::<f32>()?);
                    let width = numbers.len().checked_div(rows).unwrap_or(0);
                    flush(ViewMut::new(numbers, rows, width));
                }
            }
        }
        Ok(())
    }

    fn operator(
        &self,
        op: &OpDesc,
        values: &mut BlockValues,
        around: Option<&OuterValues<'_>>,
    ) -> Result<()> {
        match (op.step.as_deref(), op.role) {
            (Some(step), Role::Backward) => {
                let mut steps = values.loops.remove(&step.block).unwrap_or_default();
                let found = self.loop_backward(step, values, around, &mut steps);
                values.loops.insert(step.block, steps);
                found?.into_iter().try_for_each(|(var, value)| values.contribute(self.program, var, value))
            }
            (Some(step), _) => {
                let (results, steps) = self.loop_forward(step, values, around)?;
                values.loops.insert(step.block, steps);
                results.into_iter().try_for_each(|(var, value)| values.define(self.program, var, value))
            }
            (None, Role::Backward) => self.backward(op, values, around),
            (None, _) => self.forward(op, values, around),
        }
    }

    /// Binds an operator to its operands. Returns the operator, the bound call, and the output variables by slot.
    fn direct(&self, op: &OpDesc, values: &BlockValues, around: Option<&OuterValues<'_>>) -> Result<Bound> {
        let instance = self.registry.parse(&op.kind, &op.attributes)?;
        let signature = instance.signature();
        let mut operands = Vec::new();
        for slot in signature.inputs {
            for &var in op.input(slot.name) {
                if let VarKind::Literal(literal) = &self.program.var(var).kind {
                    operands.push(Operand::literal(slot.name, literal.clone()));
                    continue;
                }
                let batched = self.program.spec(var)?.batched();
                let value = values.value(self.program, var, around)?.clone();
                operands.push(Operand { batched, ..Operand::constant(slot.name, value) });
            }
        }
        for slot in signature.outputs.iter().filter(|slot| slot.updated) {
            for &var in
                op.outputs.iter().filter(|bound| bound.slot == slot.name).flat_map(|bound| &bound.vars)
            {
                operands.push(Operand::constant(slot.name, values.value(self.program, var, around)?.clone()));
            }
        }
        let bound = if op.role == Role::Backward { &op.inputs } else { &op.outputs };
        let outputs = Program::slots_of(signature.outputs, bound, "");
        let stream = outputs.iter().flatten().next().map_or(0, |v| u64::from(v.0));
        let keys = match (&values.keys, outputs.iter().flatten().next()) {
            (Some(known), Some(&var)) if instance.facts().random => {
                let spec = self.program.spec(var)?;
                let missing = || {
                    let expected = "rows of a step input or of a static input";
                    Error::of(
                        ErrorKind::Program,
                        "random operator in a step block",
                        expected,
                        spec.to_string(),
                    )
                };
                if spec.batched() {
                    Some(known.get(&spec.rows()).cloned().ok_or_else(missing)?)
                } else {
                    None
                }
            }
            // Errors name rows by the row keys of the first batched operand.
            (Some(known), Some(_)) => {
                let mut rows = op.reads().filter_map(|v| self.program.var(v).spec().filter(|s| s.batched()));
                Some(rows.next().and_then(|spec| known.get(&spec.rows()).cloned()).unwrap_or_default())
            }
            _ => None,
        };
        let names = if values.keys.is_none() { self.names } else { Names::default() };
        let mut direct = Direct::bound(instance.clone(), &operands)?.run_as(self.facts, names.numbers);
        for (at, slot) in signature.inputs.iter().enumerate().filter(|(_, slot)| slot.table) {
            let vars = op.input(slot.name).iter().map(|&var| self.program.var(var));
            for (k, var) in vars.enumerate().filter(|(_, var)| var.is_row_sparse()) {
                let dims: Vec<usize> =
                    var.spec().into_iter().flat_map(|s| &s.shape).filter_map(|e| e.known()).collect();
                direct = direct.starting(at, k, initialize::start_of(var, &dims, self.program.seed)?);
            }
        }
        let direct = direct.placed(names.places).keyed(stream, keys).made()?;
        Ok((instance, direct, outputs))
    }

    fn forward(&self, op: &OpDesc, values: &mut BlockValues, around: Option<&OuterValues<'_>>) -> Result<()> {
        let (_, direct, outputs) = self.direct(op, values, around)?;
        for (vars, results) in outputs.iter().zip(direct.forward()?) {
            for (&var, value) in vars.iter().zip(results) {
                values.define(self.program, var, value)?;
                self.name_made(values, var)?;
            }
        }
        Ok(())
    }

    /// Sets the row keys for sequences that an operator has made in a step. The key of a new row is derived from the key of the
    /// row from which its sequence was made, and from the position in that sequence.
    fn name_made(&self, values: &mut BlockValues, var: VarId) -> Result<()> {
        let BlockValues { keys: Some(keys), levels, .. } = values else { return Ok(()) };
        let mut above = keys.keys().copied().find(|extent| matches!(extent, Extent::Alive(_)));
        for &level in &self.program.spec(var)?.lod {
            let rows = Extent::Rows(level);
            if let (None, Some(known), Some(lod)) =
                (keys.get(&rows), above.and_then(|above| keys.get(&above)), levels.get(&level))
            {
                let each = known.iter().zip(lod.offsets().windows(2));
                let made =
                    each.flat_map(|(key, pair)| (0..pair[1] - pair[0]).map(|k| RowKey::below(*key, k)));
                let made = made.collect();
                keys.insert(rows, made);
            }
            above = Some(rows);
        }
        Ok(())
    }

    fn backward(
        &self,
        op: &OpDesc,
        values: &mut BlockValues,
        around: Option<&OuterValues<'_>>,
    ) -> Result<()> {
        let (instance, direct, outputs) = self.direct(op, values, around)?;
        let signature = instance.signature();
        let specs = self.program.input_specs(signature, op)?;
        let gradient = |var: &VarId| values.vars.get(var).map(|v| v.storage().clone());
        let incoming: Vec<Vec<Option<Storage>>> =
            Program::slots_of(signature.outputs, &op.inputs, &grad_name(""))
                .iter()
                .map(|vars| vars.iter().map(gradient).collect())
                .collect();
        let results: Vec<Vec<Variable>> = outputs
            .iter()
            .map(|vars| vars.iter().map(|&v| values.value(self.program, v, around).cloned()).collect())
            .collect::<Result<_>>()?;
        let grads = Program::slots_of(signature.inputs, &op.outputs, &grad_name(""));
        // If an operator reads one variable in two slots, the gradient of each slot is added separately.
        let mut seen: Vec<VarId> = Vec::new();
        let mut before = Vec::new();
        for (slot, vars) in grads.iter().enumerate() {
            let mut row = Vec::new();
            for &var in vars {
                if var == VarId::NONE {
                    row.push(None);
                    continue;
                }
                let first = !seen.contains(&var);
                seen.push(var);
                let dense = self.program.spec(var)?.storage == StorageKind::Dense;
                row.push(match values.vars.get(&var).filter(|_| first) {
                    Some(value) => Some(value.storage().clone()),
                    None if dense && instance.gradient(slot, &specs).storage != StorageKind::Dense => {
                        Some(self.nothing(var, None)?)
                    }
                    None => None,
                });
            }
            before.push(row);
        }
        let wanted = |slot: usize| grads[slot].iter().any(|&v| v != VarId::NONE);
        let found = direct.backward(&results, &incoming, &wanted, Some(&before))?;
        let mut written: Vec<VarId> = Vec::new();
        for (&var, value) in grads.iter().flatten().zip(found.into_iter().zip(&grads).flat_map(|(f, v)| {
            // For an input slot without a gradient variable, `found` may still contain computed values, which are skipped.
            f.into_iter().take(v.len())
        })) {
            let (true, Some(value)) = (var != VarId::NONE, value) else { continue };
            if !written.contains(&var) {
                values.vars.remove(&var);
                written.push(var);
            }
            values.contribute(self.program, var, value)?;
        }
        Ok(())
    }

    fn loop_forward(
        &self,
        step: &StepDesc,
        values: &BlockValues,
        around: Option<&OuterValues<'_>>,
    ) -> Result<Unrolled> {
        let sequences = self.sequences(step, values, around)?;
        let mut memories = Vec::new();
        for m in &step.memories {
            let spec = self.program.spec(m.previous)?;
            memories.push(match m.initial {
                Some(var) => values.value(self.program, var, around)?.storage().as_dense()?.clone(),
                None => zeros(spec, sequences.count())?,
            });
        }
        let nexts: Vec<VarId> = step.memories.iter().map(|m| m.next).collect();
        let mut steps = Vec::new();
        for t in 0..sequences.steps() {
            let mut inner = self.step(step, &sequences, t, values, around)?;
            for (m, memory) in step.memories.iter().zip(&memories) {
                let rows = Variable::dense(memory.gather_rows(&inner.alive)?);
                inner.define(self.program, m.previous, rows)?;
            }
            self.block(step.block, &mut inner, Some(&OuterValues { values, around }), &nexts)?;
            for (m, memory) in step.memories.iter().zip(&mut memories) {
                put(memory, &inner.alive, inner.value(self.program, m.next, None)?.storage().as_dense()?)?;
            }
            steps.push(inner);
        }
        let mut results = Vec::new();
        for pair in &step.outputs {
            let lod = values.lod(self.program, pair.outer)?;
            let rows = lod.as_ref().map_or(0, |lod| lod.rows());
            let mut all = zeros(self.program.spec(pair.outer)?, rows)?;
            for inner in &steps {
                let (rows, _) = select(lod.as_ref(), sequences.depth + 1, &inner.entries)?;
                put(&mut all, &rows, inner.value(self.program, pair.inner, None)?.storage().as_dense()?)?;
            }
            results.push((pair.outer, Variable::new(all, lod)?));
        }
        for (m, memory) in step.memories.iter().zip(memories) {
            if let Some(last) = m.last {
                results.push((last, Variable::new(memory, values.lod(self.program, last)?)?));
            }
        }
        Ok((results, steps))
    }

    /// Returns the values with which step `t` begins: the step inputs and static inputs, with their row keys.
    fn step(
        &self,
        step: &StepDesc,
        sequences: &Sequences,
        t: usize,
        values: &BlockValues,
        around: Option<&OuterValues<'_>>,
    ) -> Result<BlockValues> {
        let (alive, entries) = sequences.at(t, step.reverse);
        let mut inner = BlockValues { alive, entries, ..BlockValues::default() };
        let mut keys: HashMap<Extent, Vec<RowKey>> = HashMap::new();
        if let Some(own) = self.keys(values, Extent::Rows(step.level), &inner.entries, 0) {
            keys.insert(Extent::Alive(step.block), own);
        }
        let inputs = step.inputs.iter().map(|p| (p, sequences.depth + 1, inner.entries.clone(), 0));
        let again = (t as u64 + 1) << 32;
        let statics = step.statics.iter().map(|p| (p, sequences.depth, inner.alive.clone(), again));
        for (pair, depth, origin, later) in inputs.chain(statics).collect::<Vec<_>>() {
            let value = values.value(self.program, pair.outer, around)?;
            let (rows, lod) = select(value.lod(), depth, &origin)?;
            let dense = value.storage().as_dense()?.gather_rows(&rows)?;
            inner.define(self.program, pair.inner, Variable::new(dense, lod)?)?;
            let (outer, levels) = (self.program.spec(pair.outer)?, &self.program.spec(pair.inner)?.lod);
            for (k, &level) in levels.iter().enumerate() {
                let (rows, _) = select(part(value.lod(), depth + k + 1).as_ref(), depth, &origin)?;
                if let Some(found) = self.keys(values, Extent::Rows(outer.lod[depth + k]), &rows, later) {
                    keys.insert(Extent::Rows(level), found);
                }
            }
        }
        inner.keys = Some(keys);
        Ok(inner)
    }

    /// Returns the keys of the rows with the indices `rows` in `extent`, with `later` added to the position in each key. `None`
    /// if the rows have no keys.
    pub(super) fn keys(
        &self,
        values: &BlockValues,
        extent: Extent,
        rows: &[usize],
        later: u64,
    ) -> Option<Vec<RowKey>> {
        let known = values.keys.as_ref();
        let key = |&row: &usize| match known {
            Some(known) => known.get(&extent)?.get(row).copied(),
            None => {
                let lod = if let Extent::Rows(level) = extent { values.levels.get(&level) } else { None };
                Some(self.names.key(lod, row))
            }
        };
        let moved = |key: RowKey| RowKey { position: key.position + later, ..key };
        rows.iter().map(|row| key(row).map(moved)).collect()
    }

    fn loop_backward(
        &self,
        step: &StepDesc,
        values: &BlockValues,
        around: Option<&OuterValues<'_>>,
        steps: &mut [BlockValues],
    ) -> Result<Vec<(VarId, Storage)>> {
        let Some(gradient) = step.gradient.as_deref() else {
            return Err(Error::of(ErrorKind::Program, RECURRENT, "a gradient block", "none"));
        };
        let StepGradient { block, outputs, inputs, statics, constants, memories } = gradient;
        let sequences = self.sequences(step, values, around)?;
        // At the last step of each sequence, the memory's gradient starts with the gradient of the memory's last value.
        let mut passed = Vec::new();
        for m in memories {
            let spec = self.program.spec(m.next)?;
            passed.push(match m.last.and_then(|v| values.vars.get(&v)) {
                Some(last) => last.storage().as_dense()?.clone(),
                None => zeros(spec, sequences.count())?,
            });
        }
        let whole = |pairs: &[VarPair]| -> Result<Vec<Storage>> {
            pairs.iter().map(|p| self.nothing(p.outer, Some(values))).collect()
        };
        let (mut to_inputs, mut to_statics) = (whole(inputs)?, whole(statics)?);
        let mut to_constants: Vec<Storage> = constants
            .iter()
            .map(|&v| match computed_sparse(self.program, v) {
                Some(original) => self.nothing_stored(v, values.value(self.program, original, around)?),
                None => self.nothing(v, None),
            })
            .collect::<Result<_>>()?;
        let previous: Vec<VarId> = memories.iter().filter_map(|m| m.previous).collect();
        for inner in steps.iter_mut().rev() {
            for pair in outputs {
                if let Some(value) = values.vars.get(&pair.outer) {
                    let (rows, _) = select(value.lod(), sequences.depth + 1, &inner.entries)?;
                    let rows = value.storage().as_dense()?.gather_rows(&rows)?;
                    inner.contribute(self.program, pair.inner, rows.into())?;
                }
            }
            for (m, passed) in memories.iter().zip(&passed) {
                inner.contribute(self.program, m.next, passed.gather_rows(&inner.alive)?.into())?;
            }
            self.block(*block, inner, Some(&OuterValues { values, around }), &previous)?;
            for (m, passed) in memories.iter().zip(&mut passed) {
                let value = match m.previous.and_then(|v| inner.vars.get(&v)) {
                    Some(value) => value.storage().as_dense()?.clone(),
                    None => zeros(self.program.spec(m.next)?, inner.alive.len())?,
                };
                put(passed, &inner.alive, &value)?;
            }
            let moves = inputs.iter().zip(&mut to_inputs).map(|m| (m, sequences.depth + 1, &inner.entries));
            let still = statics.iter().zip(&mut to_statics).map(|m| (m, sequences.depth, &inner.alive));
            for ((pair, to), depth, original) in moves.chain(still) {
                let Some(value) = inner.vars.get(&pair.inner) else { continue };
                let (rows, _) = select(values.lod(self.program, pair.outer)?.as_ref(), depth, original)?;
                add_rows(to.as_dense_mut()?, &rows, value.storage().as_dense()?)?;
            }
            for (var, to) in constants.iter().zip(&mut to_constants) {
                if let Some(value) = inner.vars.remove(var) {
                    *to = sum(self.program, *var, to, value.storage())?;
                }
            }
        }
        let pairs = inputs.iter().chain(statics).map(|p| p.outer).chain(constants.iter().copied());
        let mut found: Vec<(VarId, Storage)> =
            pairs.zip(to_inputs.into_iter().chain(to_statics).chain(to_constants)).collect();
        for (m, passed) in memories.iter().zip(passed) {
            found.extend(m.initial.map(|v| (v, passed.into())));
        }
        Ok(found)
    }

    fn sequences(
        &self,
        step: &StepDesc,
        values: &BlockValues,
        around: Option<&OuterValues<'_>>,
    ) -> Result<Sequences> {
        let missing =
            || Error::of(ErrorKind::Program, RECURRENT, "a step input with the level of the loop", "none");
        let first = step.inputs.first().ok_or_else(missing)?.outer;
        let lod = values.value(self.program, first, around)?.lod().ok_or_else(missing)?;
        let at = self.program.spec(first)?.lod.iter().position(|&l| l == step.level).ok_or_else(missing)?;
        Ok(Sequences { depth: at, offsets: lod.level(at)?.to_vec() })
    }

    /// Returns the gradient of a sparse value to which no operator has contributed: zeros at all stored entries.
    fn nothing_stored(&self, gradient: VarId, value: &Variable) -> Result<Storage> {
        match value.storage() {
            Storage::SelectedRows(rows) => {
                let zeros = zeros(self.program.spec(gradient)?, rows.row_ids().len())?;
                Ok(SelectedRows::new(rows.height(), rows.row_ids().to_vec(), zeros)?.into())
            }
            _ => self.nothing(gradient, None),
        }
    }

    /// Returns the gradient of a variable to which no operator has contributed: zeros. The gradient of a batched
    /// variable has as many rows as the variable has in `values`.
    fn nothing(&self, var: VarId, values: Option<&BlockValues>) -> Result<Storage> {
        let spec = self.program.spec(var)?;
        if spec.storage == StorageKind::SelectedRows {
            let height = spec.shape[0].known().unwrap_or(0);
            return Ok(SelectedRows::new(height, Vec::new(), zeros(spec, 0)?)?.into());
        }
        // A gradient has as many rows as its variable.
        let differentiated = self.program.var(var).gradient_of.unwrap_or(var);
        let rows = values.and_then(|f| f.vars.get(&differentiated)).map_or(0, Variable::rows);
        if spec.batched() {
            return Ok(zeros(spec, rows)?.into());
        }
        let shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(0)).collect();
        Ok(Dense::zeros(spec.dtype, &shape)?.into())
    }
}
