//! Checks that an operator in a step block gives the results of the reference interpreter: in loops over each level, with
//! static inputs, and computed before, in or after the loop.

use std::cell::Cell;
use std::fmt;

use super::case::Case;
use super::compiled::{Model, append, by_reference, copies, given, run};
use super::values::{Broken, Outcome, ensure, filled, near, same_bits, within};
use crate::error::{Error, Result};
use crate::executor::{Executor, Stage, interpret};
use crate::lod::Lod;
use crate::operator::call::Direct;
use crate::operator::{Attributes, Extent, LevelId, Levels, MatrixUnit, Reach, Spec, VarId};
use crate::ops::Pool;
use crate::program::description::initialize::UNIFORM;
use crate::program::{Builder, Initializer, Program, Recurrence, Step, Var, VarRole, backward};
use crate::tensor::{DType, Dense, Storage, StorageKind, Variable};

/// Returns the tolerance for gradients, which differ by rounding: the interpreter adds up the sums over steps in a
/// different order.
fn rounding(dtype: DType) -> f64 {
    if dtype == DType::F32 { 4e-6 } else { 1e-12 }
}

/// The tolerance for gradients that are computed from values in bf16.
const BF16_ROUNDING: f64 = 2e-2;

/// The time at which the compiler can compute an operator of a step block: before, in or after the loop. The time follows
/// from the dependence between the operator and a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtLoop {
    /// Before the loop: the memory depends on the operator, and the operator depends on no memory.
    Before,
    /// In the loop: the operator depends on the memory, and the memory depends on the operator.
    Inside,
    /// After the loop: the operator depends on the memory, and the memory does not depend on the operator.
    Behind,
}

/// A way to put an operator into a step block: how operands enter the block, and when the operator can be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    /// The level whose sequences are the steps of the loop; `None` if all operands are static inputs.
    level: Option<usize>,
    at: AtLoop,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "over level {level}")?,
            None => write!(f, "as static inputs")?,
        }
        f.write_str(match self.at {
            AtLoop::Before => ", before the loop",
            AtLoop::Inside => ", in the loop",
            AtLoop::Behind => ", behind the loop",
        })
    }
}

/// Returns the ways to check in the dtype `dtype`, for operands with `depth` levels. The ways over a level with the
/// operator in the loop are checked in f32 and in f64; every other way is checked in one of the two dtypes.
fn ways(depth: usize, dtype: DType) -> Vec<Way> {
    let single = dtype == DType::F32;
    let (over, fixed) = match single {
        true => ([AtLoop::Inside, AtLoop::Behind], AtLoop::Before),
        false => ([AtLoop::Before, AtLoop::Inside], AtLoop::Inside),
    };
    let levels = (0..depth).flat_map(|level| over.map(|at| Way { level: Some(level), at }));
    levels.chain([Way { level: None, at: fixed }]).collect()
}

/// The program of a check case, with the operator in a step block, and with the loss Σ weight · output.
struct Looped {
    model: Model,
    /// The step input that sets the number of steps if all operands are static inputs; `None` if some operand is a step input.
    ticks: Option<VarId>,
    weights: Vec<(VarId, Spec)>,
    outputs: Vec<VarId>,
    /// The gradients, each with the slot of its operand and the index of the operand in the slot.
    gradients: Vec<(VarId, usize, usize)>,
}

/// The weights of the outputs, and the loss, which is the sum of all products of weights and outputs; the loss is `None` if no
/// output has a gradient.
type Loss = (Vec<(VarId, Spec)>, Option<VarId>);

/// The reason why the program of a check case cannot be built.
enum NoProgram {
    /// The way is not allowed for these operands, for any operator.
    Illegal,
    /// The shape rule of the operator returns an error for the inputs in the step block.
    Refused(Error),
    Wrong(Error),
}

impl From<Error> for NoProgram {
    fn from(error: Error) -> Self {
        NoProgram::Wrong(error)
    }
}

impl Case<'_> {
    /// Checks that the operator in a step block, in every allowed way, has the values of the interpreter bit for bit, and the
    /// gradients up to rounding. The gradients must have the same bits on 1 and 3 threads, before and after runs on other
    /// batches.
    pub(super) fn in_steps(&self) -> Outcome {
        let reach = self.op.facts().reach;
        if self.updates() || reach == Reach::Batch || !self.sample.operands.iter().any(|o| o.batched) {
            return Ok(());
        }
        for dtype in [DType::F32, DType::F64] {
            let operands = self.operands(dtype)?;
            let direct = Direct::new(self.op.clone(), &operands)?;
            let depth = direct.input_specs().iter().flatten().map(|s| s.lod.len()).max().unwrap_or(0);
            for way in ways(depth, dtype) {
                let looped = match self.looped(&direct, way, dtype, false) {
                    Ok(looped) => looped,
                    Err(NoProgram::Illegal) => continue,
                    // In a step, an operand may have one row and no sequences, and a sequence-wise operator may return an error
                    // for such an operand.
                    Err(NoProgram::Refused(_)) if reach == Reach::Sequence && way.level.is_some() => continue,
                    Err(NoProgram::Refused(e) | NoProgram::Wrong(e)) => {
                        return Err(Broken(format!("{dtype}, {way}: {e}")));
                    }
                };
                within(self.same_as_interpreted(&looped, (dtype, rounding(dtype))), || {
                    format!("{dtype}, {way}")
                })?;
            }
        }
        Ok(())
    }

    /// Checks that a program whose operator reads values in the backward pass that are saved in bf16 has the values of the
    /// interpreter bit for bit, and the gradients up to rounding to bf16.
    pub(super) fn saved(&self) -> Outcome {
        let slots = self.op.hints().saves_bf16;
        let direct = Direct::new(self.op.clone(), &self.operands(DType::F32)?)?;
        if slots.is_empty() || direct.input_specs().iter().flatten().all(|spec| spec.lod.is_empty()) {
            return Ok(());
        }
        let names: Vec<&str> = self.op.signature().inputs.iter().map(|slot| slot.name).collect();
        let unknown = slots.iter().find(|slot| !names.contains(slot));
        ensure(unknown.is_none(), || format!("`saves_bf16` names {unknown:?}, which is no input"))?;
        for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
            let way = Way { level: Some(0), at: AtLoop::Inside };
            let mut looped = match self.looped(&direct, way, DType::F32, true) {
                Ok(looped) => looped,
                Err(NoProgram::Illegal) => return Ok(()),
                Err(NoProgram::Refused(e) | NoProgram::Wrong(e)) => {
                    return Err(Broken(format!("{unit}: {e}")));
                }
            };
            looped.model.program.unit = unit;
            let gradients: Vec<VarId> = looped.gradients.iter().map(|(var, ..)| *var).collect();
            let executor = Executor::new(&looped.model.program, self.registry, &gradients, 1)?;
            ensure(executor.stores(DType::BF16), || "no value is saved in bf16".into())?;
            within(self.same_as_interpreted(&looped, (DType::F32, BF16_ROUNDING)), || unit.to_string())?;
        }
        Ok(())
    }

    /// Builds the program with the operator in a step block; if `multiplied` is true, a product computes each operand that the
    /// operator may save in bf16.
    fn looped(
        &self,
        direct: &Direct,
        way: Way,
        dtype: DType,
        multiplied: bool,
    ) -> std::result::Result<Looped, NoProgram> {
        let Model { mut program, vars, parameters, feeds } = Model::new(self, direct)?;
        let slots = || vars.iter().zip(direct.input_specs());
        let batched = || slots().flat_map(|(vars, specs)| vars.iter().copied().zip(specs));
        let batched = || batched().filter(|(_, spec)| spec.batched());
        // An operator with a batched operand or output that is sparse must be computed before the loop.
        let made = direct.output_specs().iter().flatten().filter(|spec| spec.batched());
        let sparse = |spec: &Spec| spec.storage != StorageKind::Dense;
        if way.at != AtLoop::Before && (batched().any(|(_, spec)| sparse(spec)) || made.clone().any(sparse)) {
            return Err(NoProgram::Illegal);
        }
        let mut ticks = None;
        let inputs: Vec<VarId> = match way.level {
            Some(level) => {
                let deepest = batched().map(|(_, spec)| &spec.lod).max_by_key(|lod| lod.len());
                let main: Levels = deepest.cloned().unwrap_or_default();
                let under = |lod: &Levels| lod.len() > level && lod[..=level] == main[..=level];
                let above = level.checked_sub(1).map_or(Extent::Batch, |i| Extent::Rows(main[i]));
                let captured = |spec: &Spec| {
                    spec.lod.len() >= level
                        && spec.lod[..level] == main[..level]
                        && (spec.lod.len() > level || spec.rows() == above)
                };
                if !batched().all(|(_, spec)| under(&spec.lod) || captured(spec)) {
                    return Err(NoProgram::Illegal);
                }
                batched().filter(|(_, spec)| under(&spec.lod)).map(|(var, _)| var).collect()
            }
            None => {
                let level = program.add_level();
                let lod: Levels = [level].into_iter().collect();
                let spec = Spec::rows_of(dtype, Extent::Rows(level), &[1], lod)?;
                let var = given(&mut program, "ticks", spec, VarRole::Feed, false)?;
                ticks = Some(var);
                vec![var]
            }
        };
        let net = Builder::over(program, self.registry.clone());
        let refused = Cell::new(false);
        let options = Recurrence { level: way.level, reverse: way.at == AtLoop::Inside };
        let outer: Vec<Var> = inputs.iter().map(|&var| net.var(var)).collect();
        let made = net.recurrent_with(options, outer, |step, inner: Vec<Var>| {
            let seen = |var: VarId| match inputs.iter().position(|&input| input == var) {
                Some(i) => inner[i],
                None => step.var(var),
            };
            let bound: Vec<Vec<Var>> =
                vars.iter().map(|vars| vars.iter().map(|&var| seen(var)).collect()).collect();
            let tick = ticks.map(|_| inner[0]);
            let net = multiplied.then_some(&net);
            self.step(step, bound, direct, (way, dtype, tick), (net, &refused))
        });
        let wrong = |error| if refused.get() { NoProgram::Refused(error) } else { NoProgram::Wrong(error) };
        let outputs: Vec<VarId> = made.iter().map(|var| var.id()).collect();
        let mut program = net.finish().map_err(wrong)?;
        let (weights, loss) = self.weighted(&mut program, &outputs, dtype)?;
        let mut gradients = Vec::new();
        if let Some(loss) = loss.filter(|_| !self.op.hints().multiplies_codes) {
            let found = backward::differentiate(&mut program, self.registry, loss)?;
            for (slot, vars) in vars.iter().enumerate() {
                let known = vars.iter().enumerate().filter_map(|(k, var)| Some((*found.get(var)?, slot, k)));
                gradients.extend(known);
            }
        }
        let model = Model { program, vars, parameters, feeds };
        Ok(Looped { model, ticks, weights, outputs, gradients })
    }

    /// Replaces the operands that the operator may save in bf16 by their products with a parameter.
    fn multiplied(&self, net: &Builder, step: &Step, mut bound: Vec<Vec<Var>>) -> Vec<Vec<Var>> {
        let slots = self.op.signature().inputs.iter().zip(&mut bound);
        for (slot, vars) in slots.filter(|(slot, _)| self.op.hints().saves_bf16.contains(&slot.name)) {
            for var in vars {
                let width = step.spec_of_tensor(*var).map_or(1, |spec| spec.width());
                let uniform =
                    Initializer::new(UNIFORM, Attributes::new().with("low", -1.0).with("high", 1.0));
                let weight = net.parameter(slot.name, DType::F32, &[width, width], uniform);
                *var = step.product(*var, weight, None);
            }
        }
        bound
    }

    /// Appends the step block's operators: the checked operator, and the update of a memory. `way` decides whether the
    /// operator reads the memory, and whether the memory's next value depends on the operator.
    fn step(
        &self,
        step: &Step,
        mut bound: Vec<Vec<Var>>,
        direct: &Direct,
        (way, dtype, tick): (Way, DType, Option<Var>),
        (net, refused): (Option<&Builder>, &Cell<bool>),
    ) -> Vec<Var> {
        let memory = step.memory_of(dtype, &[1]);
        if way.at != AtLoop::Before {
            let operand = direct.input_specs().iter().enumerate().find_map(|(slot, specs)| {
                let k = specs.iter().position(|spec| spec.batched() && spec.dtype == dtype)?;
                Some((slot, k))
            });
            if let Some((slot, k)) = operand {
                let known = |spec: Spec| spec.lod.len();
                let (levels, outer) = (
                    step.spec_of_tensor(bound[slot][k]).map_or(0, known),
                    direct.input_specs()[slot][k].lod.len(),
                );
                // The spec of a variable from outside the loop, which is not a step input, has all levels. In the step
                // block, such a variable has only the levels below the level of the loop.
                let levels = if levels == outer { outer - way.level.unwrap_or(0) } else { levels };
                bound[slot][k] = moved(bound[slot][k], memory, levels);
            }
        }
        if let Some(net) = net {
            bound = self.multiplied(net, step, bound);
        }
        let slots = self.op.signature().inputs.iter().zip(&bound);
        let inputs: Vec<(&str, &[Var])> =
            slots.filter(|(_, vars)| !vars.is_empty()).map(|(slot, vars)| (slot.name, &vars[..])).collect();
        let before = step.errors();
        let outputs: Vec<Var> = step.append(self.kind, &inputs, self.sample.attributes.clone());
        refused.set(step.errors() > before);
        let mut next = memory.scale(0.5, 0.125);
        if let Some(tick) = tick {
            next = next + tick;
        }
        let mut returned = Vec::new();
        let mut known: Vec<LevelId> = Vec::new();
        for &var in bound.iter().flatten() {
            // A literal operand has no levels.
            known.extend(step.spec_of_tensor(var).iter().flat_map(|spec| &spec.lod));
        }
        for out in outputs {
            let Some(spec) = step.spec(out).filter(Spec::batched) else { continue };
            let out = if spec.storage == StorageKind::Dense { out } else { out.to_dense() };
            let mut row = out;
            let float = spec.dtype == dtype;
            // The step's outputs do not have the levels of a static input, nor levels that the operator makes.
            let made = !spec.lod.iter().all(|level| known.contains(level));
            let inside = spec.lod.is_empty() || (way.level.is_some() && !made);
            if inside {
                returned.push(out);
            }
            if !float {
                if made && spec.lod.len() == 1 {
                    returned.push(out.lod_of());
                }
                continue;
            }
            for _ in 0..spec.lod.len() {
                row = row.sequence_pool(Pool::Sum);
            }
            let row = row.sum_features() * 0.0625;
            if !inside {
                returned.push(row);
            }
            if way.at != AtLoop::Behind {
                next = next + row;
            }
        }
        step.update(memory, next.tanh());
        returned.push(step.last(memory));
        returned
    }

    /// Appends the loss Σ weight · output for the outputs of a step block; returns the weights and the loss.
    fn weighted(&self, program: &mut Program, outputs: &[VarId], dtype: DType) -> Result<Loss> {
        let (mut weights, mut loss) = (Vec::new(), None);
        for &var in outputs {
            let spec = program.spec(var)?.clone();
            if spec.dtype != dtype || program.var(var).stop_gradient {
                continue;
            }
            let fed = given(program, "weights", spec.clone(), VarRole::Feed, false)?;
            let product = append(program, self.registry, "mul", &[("x", var), ("y", fed)])?;
            let sum = append(program, self.registry, "sum", &[("x", product)])?;
            loss = Some(match loss {
                Some(loss) => append(program, self.registry, "add", &[("x", loss), ("y", sum)])?,
                None => sum,
            });
            weights.push((fed, spec));
        }
        Ok((weights, loss))
    }

    fn same_as_interpreted(&self, looped: &Looped, (dtype, tolerance): (DType, f64)) -> Outcome {
        let operands = self.operands(dtype)?;
        let program = &looped.model.program;
        let mut known = Vec::new();
        for operands in [Some(operands.clone()), copies(&operands, 3)].into_iter().flatten() {
            let numbers = self.numbers_of(&operands);
            let direct = Direct::new(self.op.clone(), &operands)?;
            let feeds = looped.feeds(&direct, numbers.len())?;
            let mut scope = looped.model.scope(&direct)?;
            let fed = by_reference(&feeds);
            let values =
                interpret(program, self.registry, &mut scope, &run(self, &fed, &numbers, Stage::Gradients))?;
            known.push((numbers, direct, feeds, values));
        }
        let gradients = looped.gradients.iter().map(|(var, ..)| *var);
        let fetched: Vec<VarId> = looped.outputs.iter().copied().chain(gradients).collect();
        // The gradients of each batch, computed on one thread: one list per batch.
        let mut first: Vec<Vec<Storage>> = Vec::new();
        for threads in [1, 3] {
            let mut executor = Executor::new(program, self.registry, &fetched, threads)?;
            if threads > 1 {
                executor.divide_everything();
            }
            let order: &[usize] = if threads == 1 { &[0, 1, 0] } else { &[1, 0] };
            for (turn, &batch) in order.iter().enumerate() {
                let Some((numbers, direct, feeds, values)) = known.get(batch) else { continue };
                let location = || {
                    let copies = if batch > 0 { ", copies of the batch" } else { "" };
                    let used = if turn > 0 { ", on used buffers" } else { "" };
                    format!("{threads} threads{copies}{used}")
                };
                let mut scope = looped.model.scope(direct)?;
                let fed = by_reference(feeds);
                let ran = executor.run(&mut scope, &run(self, &fed, numbers, Stage::Gradients));
                within(ran.map_err(Broken::from), location)?;
                let value = |var: &VarId| {
                    let found = values.get(var).map(Variable::storage);
                    found.ok_or_else(|| Broken("the interpreter has no value".to_owned()))
                };
                for (k, var) in looped.outputs.iter().enumerate() {
                    let found = executor.fetch(*var)?;
                    within(same_bits(found.storage(), value(var)?, format!("output {k}")), location)?;
                }
                let mut found = Vec::new();
                for (var, slot, k) in &looped.gradients {
                    let name = format!("gradient of `{}`[{k}]", self.input_name(*slot));
                    let storage = executor.fetch(*var)?.into_parts().0;
                    within(near(&storage, value(var)?, tolerance, name), location)?;
                    found.push(storage);
                }
                match first.get(batch) {
                    None => first.push(found),
                    Some(first) => {
                        for ((a, b), (_, slot, k)) in found.iter().zip(first).zip(&looped.gradients) {
                            let name = format!("gradient of `{}`[{k}]", self.input_name(*slot));
                            within(same_bits(a, b, name), location)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Multiplies an operand that has `levels` levels in the step by a positive function of the memory, about 0.9 to 1.1, so that
/// the signs of the numbers do not change.
fn moved(x: Var, memory: Var, levels: usize) -> Var {
    let mut factor = (memory * 0.0625).exp();
    // With one level, the factor of a sequence is repeated for the rows of the sequence; operands with more levels are returned
    // unchanged.
    match levels {
        0 => {}
        1 => factor = factor.sequence_expand_as(x),
        _ => return x,
    }
    x * factor
}

impl Looped {
    /// Returns the feeds of a run: the operands, the input that sets the number of steps, and the weights.
    fn feeds(&self, direct: &Direct, batch: usize) -> Result<Vec<(VarId, Variable)>> {
        let mut feeds = Vec::new();
        for &(var, slot, k) in &self.model.feeds {
            feeds.push((var, direct.inputs()[slot][k].clone()));
        }
        let lengths: Vec<usize> = (0..batch).map(|i| [2, 0, 3, 1][i % 4]).collect();
        let counted = Lod::from_lengths1(&lengths)?;
        let mut own: Option<(LevelId, std::sync::Arc<Lod>)> = None;
        if let Some(ticks) = self.ticks {
            let spec = self.model.program.spec(ticks)?;
            let value = filled(&[counted.rows(), 1], spec.dtype, 30)?;
            own = spec.lod.last().map(|&level| (level, counted.clone()));
            feeds.push((ticks, Variable::new(value, Some(counted))?));
        }
        for (fed, spec) in &self.weights {
            let lod = match spec.lod.last() {
                None => None,
                Some(level) => match &own {
                    Some((known, lod)) if known == level => Some(lod.clone()),
                    _ => lod_of(direct, *level),
                },
            };
            let rows = lod.as_ref().map_or(batch, |lod| lod.rows());
            let mut shape = vec![rows];
            shape.extend(spec.shape.iter().skip(1).map(|e| e.known().unwrap_or(1)));
            let value: Dense = filled(&shape, spec.dtype, 20)?;
            feeds.push((*fed, Variable::new(value, lod)?));
        }
        Ok(feeds)
    }
}

/// Returns the LoD of an operand from the top down to the level `level`; `None` if no operand has this level.
fn lod_of(direct: &Direct, level: LevelId) -> Option<std::sync::Arc<Lod>> {
    let pairs = direct.inputs().iter().flatten().zip(direct.input_specs().iter().flatten());
    for (var, spec) in pairs {
        let Some(at) = spec.lod.iter().position(|l| *l == level) else { continue };
        let mut lod = var.lod()?.clone();
        while lod.levels() > at + 1 {
            lod = lod.upper()?.clone();
        }
        return Some(lod);
    }
    None
}
