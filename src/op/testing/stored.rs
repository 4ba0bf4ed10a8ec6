//! Checks that an operator gives the same results if its inputs are stored in bf16.

use super::case::Case;
use super::compiled::{Model, ROOT, append, by_reference, given, run};
use super::values::{Broken, Outcome, ensure, filled, near, same_bits};
use crate::error::Result;
use crate::executor::{Executor, Stage, interpret};
use crate::operator::call::Direct;
use crate::operator::{MatrixUnit, Spec, VarId};
use crate::program::{Append, VarRole, backward};
use crate::tensor::{DType, Dense, StorageKind, Variable};

/// How far a gradient may differ from the interpreter's gradient, which sums in another order.
const ROUNDING: f64 = 4e-6;

/// The program of a check case with products in bf16: each input is computed, and each output is multiplied if the operator copies
/// numbers, so that only products read it.
struct Bf16Program {
    model: Model,
    outputs: Vec<VarId>,
    gradients: Vec<VarId>,
    /// The values of the parameters that the operator does not have, by name.
    weights: Vec<(String, Dense)>,
}

impl Bf16Program {
    fn new(case: &Case<'_>, direct: &Direct, unit: MatrixUnit) -> Result<Self> {
        let (registry, hints, signature) = (case.registry, case.op.hints(), case.op.signature());
        let mut model = Model::new(case, direct)?;
        model.program.unit = unit;
        let mut bound = model.inputs(case);
        for (slot, vars) in bound.iter_mut() {
            let copied = hints.copies && signature.inputs.first().is_some_and(|first| first.name == *slot);
            for var in vars.iter_mut().filter(|_| copied || hints.takes_bf16.contains(slot)) {
                *var = append(&mut model.program, registry, "assign", &[("x", *var)])?;
            }
        }
        let call = Append {
            inputs: bound,
            attributes: case.sample.attributes.clone(),
            ..Append::forward(case.kind)
        };
        let made = model.program.append(registry, ROOT, call)?;
        let (mut outputs, mut weights) = (Vec::new(), Vec::new());
        for &var in made.iter().flatten() {
            let program = &mut model.program;
            let spec = program.spec(var)?.clone();
            outputs.push(match hints.copies {
                false => var,
                true => {
                    let shape = [spec.width(), 2];
                    let fixed = Spec::fixed(DType::F32, &shape)?;
                    let weight = given(program, "weight", fixed, VarRole::Parameter, true)?;
                    weights.push((program.var(weight).name.clone(), filled(&shape, DType::F32, 5)?));
                    append(program, registry, "linear", &[("x", var), ("weight", weight)])?
                }
            });
        }
        let mut gradients = Vec::new();
        if let Some(&out) = outputs.first().filter(|&&out| !model.program.var(out).stop_gradient) {
            let loss = append(&mut model.program, registry, "sum", &[("x", out)])?;
            let found = backward::differentiate(&mut model.program, registry, loss)?;
            let given = model.parameters.iter().chain(&model.feeds).map(|&(var, ..)| var);
            gradients.extend(given.filter_map(|var| found.get(&var).copied()));
        }
        Ok(Self { model, outputs, gradients, weights })
    }
}

impl Case<'_> {
    /// Checks that a program whose operator reads inputs that are stored in bf16 has the values of the interpreter bit for bit, and
    /// the gradients up to rounding, on 1 and 3 threads.
    pub(super) fn stored(&self) -> Outcome {
        let (hints, signature) = (self.op.hints(), self.op.signature());
        ensure(!hints.takes_bf16_gradient || hints.multiplies && signature.outputs.len() == 1, || {
            "`takes_bf16_gradient` without `multiplies`, or with several outputs".into()
        })?;
        if hints.takes_bf16.is_empty() && !hints.copies {
            return Ok(());
        }
        ensure(hints.takes_bf16.is_empty() || hints.multiplies, || {
            "`takes_bf16` without `multiplies`".into()
        })?;
        let known = |slot: &str| signature.inputs.iter().any(|input| input.name == slot);
        let unknown = hints.takes_bf16.iter().find(|slot| !known(slot));
        ensure(unknown.is_none(), || format!("`takes_bf16` names {unknown:?}, which is no input"))?;
        let direct = Direct::new(self.op.clone(), &self.operands(DType::F32)?)?;
        let inputs = signature.inputs.iter().zip(direct.input_specs()).enumerate();
        let mut read = inputs
            .filter(|(at, (input, _))| hints.copies && *at == 0 || hints.takes_bf16.contains(&input.name));
        let rows =
            |spec: &Spec| spec.batched() && spec.dtype == DType::F32 && spec.storage == StorageKind::Dense;
        if !read.all(|(_, (_, specs))| specs.iter().all(rows)) {
            return Ok(());
        }
        for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
            let program = Bf16Program::new(self, &direct, unit)?;
            let feeds: Vec<(VarId, Variable)> = program
                .model
                .feeds
                .iter()
                .map(|&(var, slot, k)| (var, direct.inputs()[slot][k].clone()))
                .collect();
            let (fed, numbers) = (by_reference(&feeds), self.numbers());
            let run = run(self, &fed, &numbers, Stage::Gradients);
            let scope = || {
                let mut scope = program.model.scope(&direct)?;
                for (name, value) in &program.weights {
                    scope.set(name, value.clone())?;
                }
                Ok::<_, crate::error::Error>(scope)
            };
            let expected = interpret(&program.model.program, self.registry, &mut scope()?, &run)?;
            let expected = |var: &VarId| {
                let value = expected.get(var).map(Variable::storage);
                value.ok_or_else(|| Broken("the interpreter has no value".to_owned()))
            };
            let fetched: Vec<VarId> = program.outputs.iter().chain(&program.gradients).copied().collect();
            for threads in [1, 3] {
                let mut executor = Executor::new(&program.model.program, self.registry, &fetched, threads)?;
                ensure(executor.stores(DType::BF16), || "no value is stored in bf16".into())?;
                executor.divide_everything();
                executor.run(&mut scope()?, &run)?;
                for var in &program.outputs {
                    same_bits(
                        executor.fetch(*var)?.storage(),
                        expected(var)?,
                        format!("in {unit}, an output"),
                    )?;
                }
                for var in &program.gradients {
                    let name = format!("in {unit}, a gradient");
                    near(executor.fetch(*var)?.storage(), expected(var)?, ROUNDING, name)?;
                }
            }
        }
        Ok(())
    }
}
