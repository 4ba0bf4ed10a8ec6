//! Checks that a program with one call gives the same bits as the direct call, for any number of threads and any old contents
//! of the buffers.

use super::call::Weights;
use super::case::{Case, CaseRun, SEED, STEP, salt_of};
use super::values::{Broken, Outcome, at_stored, ensure, filled, same_bits, within};
use crate::error::Result;
use crate::executor::{Executor, Run, Scope, Stage};
use crate::lod::Lod;
use crate::operator::call::{Direct, InputGradients};
use crate::operator::{Attributes, BlockId, Literal, Operand, Reach, Registry, Spec, VarId};
use crate::program::description::initialize::ZEROS;
use crate::program::{Append, Initializer, Program, VarDesc, VarKind, VarRole, backward};
use crate::tensor::{DType, Dense, StorageKind, Variable};

pub(super) const ROOT: BlockId = BlockId(0);

/// The least size of an output, in elements, for which a batch is large enough to be divided over threads.
const DIVIDED: usize = 3 << 14;

/// A function that changes how an executor divides work over threads; the function is called before the executor runs.
type Divide = fn(&mut Executor);

/// The number of threads and the division of work for each run of a check case. A check case is so small that it runs on one
/// thread by default. Therefore, the second run wakes all threads for any work, however small, and the third run divides all
/// work that can be divided.
const HOW: [(usize, Divide); 3] =
    [(1, |_| {}), (3, Executor::wake_all_threads), (3, Executor::divide_everything)];

/// A program without operators, with the operands of a check case as variables: constants in f32 or f64 are parameters, all
/// other operands are feeds.
pub(super) struct Model {
    pub(super) program: Program,
    /// The variables of the operands, by input slot.
    pub(super) vars: Vec<Vec<VarId>>,
    /// The parameters: each with the slot of its operand, and the index of the operand in the slot.
    pub(super) parameters: Vec<(VarId, usize, usize)>,
    pub(super) feeds: Vec<(VarId, usize, usize)>,
}

/// Adds a variable without an operator to the root block: a feed or a parameter.
pub(super) fn given(
    program: &mut Program,
    name: &str,
    spec: Spec,
    role: VarRole,
    graded: bool,
) -> Result<VarId> {
    let kept = role != VarRole::Feed;
    program.add_var(VarDesc {
        persistable: kept,
        trainable: role == VarRole::Parameter && graded,
        stop_gradient: !graded,
        initializer: kept.then(|| Initializer::new(ZEROS, Attributes::new())),
        ..VarDesc::new(program.fresh_name(name), ROOT, VarKind::Tensor(spec), role)
    })
}

fn literal(program: &mut Program, name: &str, value: Literal) -> Result<VarId> {
    let name = program.fresh_name(name);
    program.add_var(VarDesc {
        stop_gradient: true,
        ..VarDesc::new(name, ROOT, VarKind::Literal(value), VarRole::Literal)
    })
}

impl Model {
    /// Makes a program with the operands of a call as variables; operands that share levels in the call share levels in the
    /// program.
    pub(super) fn new(case: &Case<'_>, direct: &Direct) -> Result<Self> {
        let mut program = Program::new();
        program.seed = SEED;
        let levels = direct.input_specs().iter().flatten().flat_map(|spec| &spec.lod);
        for _ in 0..levels.map(|level| level.0 + 1).max().unwrap_or(0) {
            program.add_level();
        }
        let mut model = Model { program, vars: Vec::new(), parameters: Vec::new(), feeds: Vec::new() };
        for (slot, (declared, specs)) in
            case.op.signature().inputs.iter().zip(direct.input_specs()).enumerate()
        {
            let mut vars = Vec::new();
            for (k, spec) in specs.iter().enumerate() {
                let float = matches!(spec.dtype, DType::F32 | DType::F64);
                let constant = !spec.batched() && float && spec.storage == StorageKind::Dense;
                let (role, list) = match constant {
                    true => (VarRole::Parameter, &mut model.parameters),
                    false => (VarRole::Feed, &mut model.feeds),
                };
                let graded = declared.gradient && float;
                let var = given(&mut model.program, declared.name, spec.clone(), role, graded)?;
                list.push((var, slot, k));
                vars.push(var);
            }
            let theirs = case.sample.operands.iter().filter(|o| o.slot == declared.name);
            for literal in theirs.filter_map(|o| o.literal.clone()) {
                vars.push(self::literal(&mut model.program, declared.name, literal)?);
            }
            model.vars.push(vars);
        }
        Ok(model)
    }

    /// Returns the names of the input slots that have variables, each with its variables.
    pub(super) fn inputs(&self, case: &Case<'_>) -> Vec<(&'static str, Vec<VarId>)> {
        let slots = case.op.signature().inputs.iter().zip(&self.vars);
        slots.filter(|(_, vars)| !vars.is_empty()).map(|(slot, vars)| (slot.name, vars.clone())).collect()
    }

    /// Returns a scope in which each parameter has the value of its operand in the call.
    pub(super) fn scope(&self, direct: &Direct) -> Result<Scope> {
        let mut scope = Scope::of(&self.program)?;
        for &(var, slot, k) in &self.parameters {
            let value = direct.inputs()[slot][k].storage().as_dense()?.clone();
            scope.set(&self.program.var(var).name, value)?;
        }
        Ok(scope)
    }
}

/// Appends an operator to the root block; returns the first output variable.
pub(super) fn append(
    program: &mut Program,
    registry: &Registry,
    kind: &str,
    inputs: &[(&str, VarId)],
) -> Result<VarId> {
    let inputs = inputs.iter().map(|&(slot, var)| (slot, vec![var])).collect();
    let made = program.append(registry, ROOT, Append { inputs, ..Append::forward(kind) })?;
    let out = made.first().and_then(|vars| vars.first()).copied();
    out.ok_or_else(|| crate::error::Error::new(format!("operator `{kind}`"), "an output", "none"))
}

/// The feed `fed` with the weights by which a program multiplies output `k` of the output slot `slot`.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    slot: usize,
    k: usize,
    fed: VarId,
    /// Whether one row of weights is fed for all rows of the output, because the number of rows is unknown before a
    /// run.
    repeated: bool,
}

/// The program of a check case, with the loss Σ weight · output.
struct WeightedProgram {
    model: Model,
    outputs: Vec<Vec<VarId>>,
    weighted: Vec<Weighted>,
    /// The gradient of each operand, by slot and by index in the slot; `None` if the gradient of an operand cannot be
    /// requested.
    gradients: Vec<Vec<Option<VarId>>>,
}

impl WeightedProgram {
    fn new(case: &Case<'_>, direct: &Direct) -> Result<Self> {
        let registry = case.registry;
        let mut model = Model::new(case, direct)?;
        let levels = model.program.levels;
        let call = Append {
            inputs: model.inputs(case),
            attributes: case.sample.attributes.clone(),
            ..Append::forward(case.kind)
        };
        let outputs = model.program.append(registry, ROOT, call)?;
        let mut weighted = Vec::new();
        let mut loss: Option<VarId> = None;
        for (slot, vars) in outputs.iter().enumerate() {
            for (k, &var) in vars.iter().enumerate() {
                let program = &mut model.program;
                let spec = program.spec(var)?.clone();
                let float = matches!(spec.dtype, DType::F32 | DType::F64);
                let alike = loss.is_none_or(|loss| program.spec(loss).is_ok_and(|s| s.dtype == spec.dtype));
                if !float || !alike || program.var(var).stop_gradient {
                    continue;
                }
                let sparse = spec.storage != StorageKind::Dense;
                let spec = spec.stored(StorageKind::Dense);
                let var = match sparse {
                    true => append(program, registry, "to_dense", &[("x", var)])?,
                    false => var,
                };
                let repeated = spec.lod.iter().any(|level| level.0 >= levels);
                let fed_spec = if repeated { Spec::fixed(spec.dtype, &[spec.width()])? } else { spec };
                let fed = given(program, "weights", fed_spec, VarRole::Feed, false)?;
                let product = append(program, registry, "mul", &[("x", var), ("y", fed)])?;
                let sum = append(program, registry, "sum", &[("x", product)])?;
                loss = Some(match loss {
                    Some(loss) => append(program, registry, "add", &[("x", loss), ("y", sum)])?,
                    None => sum,
                });
                weighted.push(Weighted { slot, k, fed, repeated });
            }
        }
        let mut gradients: Vec<Vec<Option<VarId>>> =
            model.vars.iter().map(|vars| vec![None; vars.len()]).collect();
        if let Some(loss) = loss {
            let found = backward::differentiate(&mut model.program, registry, loss)?;
            for (row, vars) in gradients.iter_mut().zip(&model.vars) {
                for (gradient, var) in row.iter_mut().zip(vars) {
                    *gradient = found.get(var).copied();
                }
            }
        }
        Ok(WeightedProgram { model, outputs, weighted, gradients })
    }

    /// Runs the direct call with the weights that are fed to the program; the result is the reference for the program.
    fn reference(&self, case: &Case<'_>, operands: &[Operand], numbers: &[u64]) -> Result<CaseRun> {
        let stream = self.outputs.iter().flatten().next().map_or(0, |var| u64::from(var.0));
        let direct = Direct::new(case.op.clone(), operands)?.run_as(case.run_facts(), numbers);
        let mut ran = CaseRun::new(direct.keyed(stream, None))?;
        let mut weights: Weights = ran.weights.iter().map(|row| vec![None; row.len()]).collect();
        for &Weighted { slot, k, repeated, .. } in &self.weighted {
            let output = ran.outputs[slot][k].storage();
            weights[slot][k] = match repeated {
                false => ran.weights[slot][k].take(),
                true => {
                    let spec = &ran.direct.output_specs()[slot][k];
                    let row = row_of_weights(spec)?;
                    let rows = vec![&row; output.rows()];
                    let whole = match rows.is_empty() {
                        true => Dense::zeros(output.dtype(), output.shape())?,
                        false => Dense::concat_rows(&rows)?.reshape(output.shape())?,
                    };
                    Some(at_stored(output, &whole)?)
                }
            };
        }
        ran.weights = weights;
        Ok(ran)
    }

    /// Returns the feeds of a run: the batched operands and the weights.
    fn feeds(&self, ran: &CaseRun) -> Result<Vec<(VarId, Variable)>> {
        let mut feeds = Vec::new();
        for &(var, slot, k) in &self.model.feeds {
            feeds.push((var, ran.direct.inputs()[slot][k].clone()));
        }
        for &Weighted { slot, k, fed, repeated } in &self.weighted {
            let value = match repeated {
                true => {
                    let spec = &ran.direct.output_specs()[slot][k];
                    Variable::dense(row_of_weights(spec)?.reshape(&[spec.width()])?)
                }
                false => {
                    let output = &ran.outputs[slot][k];
                    let weights = filled(output.shape(), output.dtype(), salt_of(slot, k))?;
                    Variable::new(weights, output.lod().cloned())?
                }
            };
            feeds.push((fed, value));
        }
        Ok(feeds)
    }

    /// Returns the variables that a run fetches: the dense outputs and the gradients.
    fn fetched(&self) -> Vec<VarId> {
        let outputs = self.outputs.iter().flatten();
        outputs.chain(self.gradients.iter().flatten().flatten()).copied().collect()
    }

    fn hold(
        &self,
        case: &Case<'_>,
        executor: &mut Executor,
        ran: &CaseRun,
        gradients: &InputGradients,
    ) -> Outcome {
        for (slot, vars) in self.outputs.iter().enumerate() {
            for (k, &var) in vars.iter().enumerate() {
                let (got, expected) = (executor.fetch(var)?, &ran.outputs[slot][k]);
                let name = format!("`{}`[{k}]", case.output_name(slot));
                same_bits(got.storage(), expected.storage(), &name)?;
                ensure(Lod::same(got.lod(), expected.lod()), || format!("{name}: another LoD"))?;
            }
        }
        for (slot, row) in self.gradients.iter().enumerate() {
            for (k, &var) in row.iter().enumerate() {
                let expected = gradients.get(slot).and_then(|row| row.get(k)?.as_ref());
                let name = format!("gradient of `{}`[{k}]", case.input_name(slot));
                match (var, expected) {
                    (Some(var), Some(expected)) => {
                        same_bits(executor.fetch(var)?.storage(), expected, name)?;
                    }
                    (None, None) => {}
                    (Some(_), None) => return Err(Broken(format!("{name}: only the program has one"))),
                    (None, Some(_)) => return Err(Broken(format!("{name}: the program has none"))),
                }
            }
        }
        Ok(())
    }
}

/// Returns one row of weights, for an output whose number of rows is unknown before a run.
fn row_of_weights(spec: &Spec) -> Result<Dense> {
    filled(&[1, spec.width()], spec.dtype, 90)
}

/// Returns the operands of `count` copies of a batch, one copy after the other; `None` if the operands of the copies cannot be
/// merged.
pub(super) fn copies(operands: &[Operand], count: usize) -> Option<Vec<Operand>> {
    let more = |o: &Operand| {
        let value =
            if o.batched { Variable::merge(&vec![o.value.clone(); count]).ok()? } else { o.value.clone() };
        Some(Operand { value, ..o.clone() })
    };
    operands.iter().any(|o| o.batched).then(|| operands.iter().map(more).collect()).flatten()
}

/// Returns the description of a run with these feeds, for the executor or the interpreter.
pub(super) fn run<'a>(
    case: &Case<'_>,
    feeds: &'a [(VarId, &'a Variable)],
    numbers: &'a [u64],
    stage: Stage,
) -> Run<'a> {
    Run { feeds, mode: case.mode, step: STEP, numbers, places: &[], stage }
}

/// Returns the feeds with references to their values, as the executor requires.
pub(super) fn by_reference(feeds: &[(VarId, Variable)]) -> Vec<(VarId, &Variable)> {
    feeds.iter().map(|(var, value)| (*var, value)).collect()
}

impl Case<'_> {
    /// Checks that a program with one call gives the values and gradients of the direct call bit for bit, on 1 and 3 threads,
    /// before and after runs on other batches.
    pub(super) fn compiled(&self) -> Outcome {
        if self.updates() {
            return self.updated();
        }
        for dtype in [DType::F32, DType::F64] {
            let operands = self.operands(dtype)?;
            let direct = Direct::new(self.op.clone(), &operands)?;
            let alone = WeightedProgram::new(self, &direct)?;
            let batches = self.batches(&direct, &operands, dtype);
            // For each batch: the numbers of its sequences, the direct call with its outputs, and the gradients.
            let mut known = Vec::new();
            for (number, operands) in batches.into_iter().enumerate() {
                let numbers = self.numbers_of(&operands);
                let ran = match alone.reference(self, &operands, &numbers) {
                    Ok(ran) => ran,
                    // For the check case itself, an error of the direct call breaks the rule. For copies of the check
                    // case, an error breaks the rule only if sequences do not depend on each other.
                    Err(error) if number == 0 || self.op.facts().reach < Reach::Batch => {
                        return Err(error.into());
                    }
                    Err(_) => continue,
                };
                let slots = if alone.weighted.is_empty() { Vec::new() } else { self.slots(&ran) };
                let gradients = if slots.is_empty() { Vec::new() } else { ran.gradients(&slots, None)? };
                known.push((numbers, ran, gradients));
            }
            for (threads, divide) in HOW {
                let program = &alone.model.program;
                let mut executor = Executor::new(program, self.registry, &alone.fetched(), threads)?;
                divide(&mut executor);
                let mut scope = alone.model.scope(&direct)?;
                // The executor runs the check case, then larger batches, then the check case again.
                let order = (0..known.len()).chain(known.len().checked_sub(1).map(|_| 0));
                for (turn, batch) in order.enumerate() {
                    let (numbers, ran, gradients) = &known[batch];
                    let feeds = alone.feeds(ran)?;
                    let fed = by_reference(&feeds);
                    let outcome = executor
                        .run(&mut scope, &run(self, &fed, numbers, Stage::Gradients))
                        .map_err(Broken::from)
                        .and_then(|()| alone.hold(self, &mut executor, ran, gradients));
                    within(outcome, || {
                        let copies = if batch > 0 { ", many copies of the batch" } else { "" };
                        let used = if turn > 0 { ", on used buffers" } else { "" };
                        format!("{dtype}, {threads} threads{copies}{used}")
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Returns the batches of a check case: the check case itself, three copies of it, and enough copies to be divided over
    /// threads.
    fn batches(&self, direct: &Direct, operands: &[Operand], dtype: DType) -> Vec<Vec<Operand>> {
        let mut batches = vec![operands.to_vec()];
        batches.extend(copies(operands, 3));
        let numbers: usize = direct
            .output_specs()
            .iter()
            .flatten()
            .filter(|s| s.batched())
            .map(Spec::width)
            .max()
            .unwrap_or(0)
            * operands.iter().filter(|o| o.batched).map(|o| o.value.rows()).max().unwrap_or(0);
        if self.wide && numbers > 0 && dtype == DType::F32 {
            batches.extend(copies(operands, DIVIDED.div_ceil(numbers)));
        }
        batches
    }

    /// Returns the index in the data set of each sequence of a batch; the list is empty if no operand is batched.
    pub(super) fn numbers_of(&self, operands: &[Operand]) -> Vec<u64> {
        let batch = operands.iter().find(|o| o.batched).map_or(0, |o| o.value.batch_size());
        (0..batch as u64).map(|i| 100 + 7 * i).collect()
    }

    /// Checks that an update rule in a program changes the parameters and states as the direct call does.
    fn updated(&self) -> Outcome {
        for dtype in [DType::F32, DType::F64] {
            let operands = self.operands(dtype)?;
            let direct = Direct::new(self.op.clone(), &operands)?.run_as(self.run_facts(), &[]);
            let expected = direct.forward()?;
            let mut model = Model::new(self, &direct)?;
            let mut updated = Vec::new();
            let mut fresh = Vec::new();
            for (slot, specs) in self.op.signature().outputs.iter().zip(direct.output_specs()) {
                let start = operands.iter().find(|o| o.slot == slot.name);
                let (Some(spec), true, Some(start)) = (specs.first(), slot.updated, start) else { continue };
                let var = given(&mut model.program, slot.name, spec.clone(), VarRole::State, false)?;
                updated.push((slot.name, var));
                fresh.push((var, start.value.storage().as_dense()?.clone()));
            }
            let call = Append {
                inputs: model.inputs(self),
                updated: updated.clone(),
                attributes: self.sample.attributes.clone(),
                role: crate::program::Role::Update,
                ..Append::forward(self.kind)
            };
            let outputs = model.program.append(self.registry, ROOT, call)?;
            let mut feeds = Vec::new();
            for &(var, slot, k) in &model.feeds {
                feeds.push((var, direct.inputs()[slot][k].clone()));
            }
            let fed = by_reference(&feeds);
            for (threads, divide) in HOW {
                let mut executor = Executor::new(&model.program, self.registry, &[], threads)?;
                divide(&mut executor);
                let mut scope = model.scope(&direct)?;
                for turn in 0..2 {
                    for (var, value) in &fresh {
                        scope.set(&model.program.var(*var).name, value.clone())?;
                    }
                    executor.run(&mut scope, &run(self, &fed, &[], Stage::Updates))?;
                    for (slot, vars) in outputs.iter().enumerate() {
                        for (k, &var) in vars.iter().enumerate() {
                            let got = scope.get(&model.program.var(var).name)?;
                            let name = format!("`{}`[{k}]", self.output_name(slot));
                            let outcome = same_bits(&got.into(), expected[slot][k].storage(), name);
                            within(outcome, || format!("{dtype}, {threads} threads, run {turn}"))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
