//! The check of the gradients of a layer, a cell or a whole model.

use crate::error::{AtCaller, Error, Result};
use crate::executor::{Executor, Run, Scope, Stage, interpret};
use crate::operator::VarId;
use crate::program::description::initialize::constant;
use crate::program::{Builder, Program, Var, backward};
use crate::tensor::{DType, Dense, Variable};

use super::values::filled;

const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 1e-6;

/// Checks the gradients of a layer, a cell or a model: the gradients of every parameter and of every input in f64 must equal
/// central differences, both interpreted and compiled.
///
/// `build` gets the builder `net` and a feed for each of `inputs`, and returns the outputs, of which every number has an
/// irregular weight in the loss. Inputs with equal LoDs share their sequences. The model computes in f64, in training mode, and
/// draws the same random numbers in each run. Each number of a parameter has its initial value plus an irregular number from
/// −0.1 to 0.1. The check runs the model twice per number, so keep the model small.
///
/// ```
/// use unpadded::op::testing;
/// use unpadded::{Builder, Variable};
/// let words = Variable::from_sequences(&[vec![0.5], vec![], vec![-1.0, 0.25, 2.0]])?;
/// testing::check_gradients(Builder::new(), &[words], &|_net, inputs| vec![inputs[0].linear(3).gru(4)])?;
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Errors
/// Returns an error with the number whose gradient differs most. Also if no gradient reaches a parameter or an input, if a
/// parameter or an output is not f64, or if `build` makes a mistake.
#[track_caller]
pub fn check_gradients(
    net: Builder,
    inputs: &[Variable],
    build: &dyn Fn(&Builder, &[Var]) -> Vec<Var>,
) -> Result<()> {
    check(net, inputs, build).at_caller()
}

/// Appends a feed for each input; inputs with the same LoD have the same sequences.
fn feed_inputs(net: &Builder, inputs: &[Variable]) -> Vec<Var> {
    let mut feeds: Vec<Var> = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let (name, dims) = (format!("input_{i}"), input.shape().get(1..).unwrap_or_default());
        let like = feeds.iter().zip(inputs).find(|(_, other)| other.lod() == input.lod());
        feeds.push(match (like, input.lod()) {
            (Some((&like, _)), Some(_)) => net.feed_like(&name, input.dtype(), dims, like),
            (_, lod) => net.feed(&name, input.dtype(), dims, lod.map_or(0, |lod| lod.levels())),
        });
    }
    feeds
}

/// Adds a number to each number of the parameters: ten times smaller numbers to the trained parameters.
fn move_parameters(program: &Program, scope: &mut Scope) -> Result<()> {
    for (salt, id) in program.parameters().enumerate() {
        let (name, share) = (&program.var(id).name, if program.var(id).stop_gradient { 1.0 } else { 0.1 });
        let mut value: Dense = scope.get(name)?;
        if value.dtype() != DType::F64 {
            return Err(Error::new(format!("parameter `{name}`"), "f64", value.dtype().to_string()));
        }
        let moves = filled(value.shape(), DType::F64, salt)?;
        let numbers = value.as_mut_slice::<f64>()?.iter_mut();
        numbers.zip(moves.as_slice::<f64>()?).for_each(|(x, by)| *x += share * by);
        scope.set(name, value)?;
    }
    Ok(())
}

fn check(net: Builder, inputs: &[Variable], build: &dyn Fn(&Builder, &[Var]) -> Vec<Var>) -> Result<()> {
    let feeds = feed_inputs(&net, inputs);
    let mut fed: Vec<(VarId, Variable)> = feeds.iter().map(|feed| feed.id()).zip(inputs.to_vec()).collect();
    let watched = feeds.iter().zip(inputs).filter(|(_, input)| input.dtype() == DType::F64);
    let watched: Vec<Var> = watched.map(|(&feed, _)| feed).collect();
    watched.iter().for_each(|&feed| net.watch(feed));
    let outputs = build(&net, &feeds);
    for (k, &output) in outputs.iter().enumerate() {
        if let Some(spec) = net.spec(output).filter(|spec| spec.dtype != DType::F64) {
            return Err(Error::new(format!("output {k} of the model"), "f64", spec.dtype.to_string()));
        }
    }
    let terms = outputs.into_iter().enumerate().filter_map(|(k, output)| {
        let spec = net.spec(output)?;
        let columns = net.parameter(&format!("columns_{k}"), spec.dtype, &[spec.width()], constant(0.0));
        net.stop_gradient(columns);
        Some(net.sum(net.mul(output, columns)))
    });
    let loss = terms.reduce(|a, b| net.add(a, b));
    let (registry, mut program) = (net.registry(), net.finish()?);
    let loss = loss.ok_or_else(|| Error::new("outputs of the model", "at least one", "none"))?.id();
    let gradients = backward::differentiate(&mut program, &registry, loss)?;
    let mut scope = Scope::of(&program)?;
    move_parameters(&program, &mut scope)?;
    let wrt: Vec<VarId> = program.trained_parameters().chain(watched.iter().map(|var| var.id())).collect();
    let unreached = |id: VarId| {
        Error::new(format!("gradient of `{}`", program.var(id).name), "a number that is not 0", "none")
    };
    let gradient = |&id: &VarId| gradients.get(&id).copied().ok_or_else(|| unreached(id));
    let mut wanted = wrt.iter().map(gradient).collect::<Result<Vec<_>>>()?;
    let first: Vec<_> = fed.iter().map(|(id, value)| (*id, value)).collect();
    let run = Run::train(&first, 0).until(Stage::Gradients);
    let interpreted = interpret(&program, &registry, &mut scope, &run)?;
    let interpreted: Vec<Variable> = wanted.iter().filter_map(|id| interpreted.get(id).cloned()).collect();
    wanted.push(loss);
    let mut executor = Executor::new(&program, &registry, &wanted, 2)?;
    let mut run = |scope: &mut Scope, fed: &[(VarId, Variable)]| -> Result<Vec<Variable>> {
        let fed: Vec<_> = fed.iter().map(|(id, value)| (*id, value)).collect();
        executor.run(scope, &Run::train(&fed, 0).until(Stage::Gradients))?;
        wanted.iter().map(|&id| executor.fetch(id)).collect()
    };
    let compiled = run(&mut scope, &fed)?;
    let mut worst = (TOLERANCE, Ok(()));
    for ((&id, compiled), interpreted) in wrt.iter().zip(&compiled).zip(&interpreted) {
        let name = &program.var(id).name;
        let [compiled, interpreted] = [compiled, interpreted].map(|found| found.storage().to_dense());
        let (compiled, interpreted) = (compiled?, interpreted?);
        let slopes =
            [("compiled", compiled.as_slice::<f64>()?), ("interpreted", interpreted.as_slice::<f64>()?)];
        if slopes.iter().any(|(_, slopes)| slopes.iter().all(|&slope| slope == 0.0)) {
            return Err(unreached(id));
        }
        for i in 0..compiled.len() {
            let mut moved = |by: f64| -> Result<f64> {
                if let Some((_, input)) = fed.iter_mut().find(|(feed, _)| *feed == id) {
                    input.as_mut_slice::<f64>()?[i] += by;
                } else {
                    let mut value: Dense = scope.get(name)?;
                    value.as_mut_slice::<f64>()?[i] += by;
                    scope.set(name, value)?;
                }
                Ok(run(&mut scope, &fed)?[wrt.len()].as_slice::<f64>()?[0])
            };
            let up = moved(STEP)?;
            let expected = (up - moved(-2.0 * STEP)?) / (2.0 * STEP);
            moved(STEP)?;
            for (how, slopes) in slopes {
                let off = (slopes[i] - expected).abs() / expected.abs().max(1.0);
                // A gradient that is NaN is the worst.
                if off > worst.0 || off.is_nan() {
                    let expected = format!("{expected}, by central differences");
                    let (what, got) =
                        (format!("gradient of `{name}`, number {i}"), format!("{} ({how})", slopes[i]));
                    worst = (off, Err(Error::new(what, expected, got)));
                }
            }
        }
    }
    worst.1
}
