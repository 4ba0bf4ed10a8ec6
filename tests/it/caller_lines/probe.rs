//! An operator that calls its context wrongly.

use ndarray::array;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::op::{Attributes, Backward, CheckCase, Forward, Gradient, InferShape, Op, Spec};
use unpadded::ops;
use unpadded::program::backward;
use unpadded::{Builder, DType, Lod, Result, Var, Variable, operator};

operator! {
    /// An operator whose attribute names the call of its context that is to fail.
    struct Probe = probe { call: String }
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
}

impl Op for Probe {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(0, s.input(0).clone());
        match self.call.as_str() {
            "is_float" => s.is_float(1),
            "shape_literal" => s.literal(0).map(drop),
            _ => Ok(()),
        }
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        if let Some(mut out) = run.output::<f32>(0).ok().filter(|_| !self.call.starts_with("output")) {
            out.fill(0.0);
        }
        match self.call.as_str() {
            "input" => run.input::<f64>(0).map(drop),
            "input_at" => run.input_at::<f32>(0, 7).map(drop),
            "output_at" => run.output_at::<f32>(0, 7).map(drop),
            "fill_csr" => run.fill_csr(0, |_, _| Ok(())),
            _ => Ok(()),
        }
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        match self.call.as_str() {
            "output_gradient" => run.output_gradient::<f64>(0).map(drop),
            _ => run.gradient::<f64>(0).map(drop),
        }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Err(unpadded::Error::new("samples", "some", "none"))
    }
}

/// Appends the operator at the caller's line, runs it and its gradient.
#[track_caller]
pub(super) fn probed(call: &str) -> Result<()> {
    let mut registry = ops::catalogue();
    registry.add::<Probe>()?;
    let net = Builder::with_registry(registry);
    let (x, y) = (net.feed("x", DType::F32, &[1], 1), net.feed("y", DType::I64, &[], 0));
    net.watch(x);
    let inputs: [(&str, &[Var]); 2] = [("x", &[x]), ("y", &[y])];
    let out: Var = net.append("probe", &inputs, Attributes::new().with("call", call));
    let loss = net.sum(out);
    let (registry, mut program) = (net.registry(), net.finish()?);
    let gradients = backward::differentiate(&mut program, &registry, loss.id())?;
    let fed = Variable::sequences(array![[1.0f32]], Lod::from_lengths1(&[1])?)?;
    let label = Variable::dense(array![0i64]);
    let wanted = [loss.id(), gradients[&x.id()]];
    let mut executor = Executor::new(&program, &registry, &wanted, 1)?;
    executor.run(&mut Scope::of(&program)?, &Run::train(&[(x.id(), &fed), (y.id(), &label)], 0))
}
