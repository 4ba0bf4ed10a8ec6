//! Operators as a user's crate defines them: registered beside the catalogue, called by an extension trait, held to
//! the same contract, run in step blocks, trained and saved.

use crate::refused::Outcome;
use ndarray::{Array2, array};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Lstm, init};
use unpadded::op::{
    Attributes, Backward, CheckCase, Direct, Facts, Float, Forward, Gradient, InferShape, LodEffect, Op,
    Operand, RowValue, Spec, StorageBound, numbers, testing,
};
use unpadded::ops::Pool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::{VarId, backward};
use unpadded::tensor::Dense;
use unpadded::{
    Builder, DType, Error, ErrorKind, Lod, Program, Registry, Result, Var, Variable, operator, ops,
    with_float,
};

operator! {
    /// out = x · sigmoid(slope · x), column by column.
    ///
    /// # Errors
    /// If there is not one slope for each column of `x`.
    struct Swish = "acme.swish" {}
    inputs { X = x: one, SLOPE = slope: one }
    outputs { OUT = out: one }
    trait BuildSwish, ApplySwish { fn swish_by(&self, x: Var, slope: Var) -> Var; }
}

operator! {
    /// out_t = factor · (x_t − the mean of x over its sequence).
    ///
    /// # Errors
    /// If `x` has no LoD.
    struct Centre = "acme.centre" { factor: f64 }
    inputs { X = x: one }
    outputs { OUT = out: one }
    trait BuildCentre, ApplyCentre { fn centre(&self, x: Var, factor: f64) -> Var; }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Op for Swish {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::SLOPE)?;
        s.constant(Self::SLOPE, &[s.input(Self::X).width()])?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => swish::<T>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => swish_gradients::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(Self::X).input(Self::SLOPE)
    }

    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, _| {
            Ok(sample.constant("slope", array![1.0, -0.5, 2.0]))
        })
    }
}

fn swish<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let (x, slope, mut out) =
        (run.input::<T>(Swish::X)?, run.input::<T>(Swish::SLOPE)?, run.output::<T>(Swish::OUT)?);
    for (out, x) in out.iter_mut().zip(x.iter()) {
        for ((out, &x), &slope) in out.iter_mut().zip(x).zip(slope.row(0)) {
            *out = x * T::from_f64(sigmoid((slope * x).to_f64()));
        }
    }
    Ok(())
}

fn swish_gradients<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(Swish::OUT)? else { return Ok(()) };
    let (x, slope) = (run.input::<T>(Swish::X)?, run.input::<T>(Swish::SLOPE)?);
    let gate = |x: T, slope: T| T::from_f64(sigmoid((slope * x).to_f64()));
    if let Some((mut dx, store)) = run.gradient::<T>(Swish::X)? {
        for (i, dx) in dx.iter_mut().enumerate() {
            for (j, dx) in dx.iter_mut().enumerate() {
                let (x, slope) = (x.row(i)[j], slope.row(0)[j]);
                let s = gate(x, slope);
                let d = dout.row(i)[j] * (s + x * slope * s * (T::ONE - s));
                store.put(dx, d);
            }
        }
    }
    if let Some((mut dslope, store)) = run.gradient::<T>(Swish::SLOPE)? {
        for (j, dslope) in dslope.row(0).iter_mut().enumerate() {
            let mut sum = T::ZERO;
            for i in 0..x.rows() {
                let (x, slope) = (x.row(i)[j], slope.row(0)[j]);
                let s = gate(x, slope);
                sum += dout.row(i)[j] * x * x * s * (T::ONE - s);
            }
            store.put(dslope, sum);
        }
    }
    Ok(())
}

impl Op for Centre {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            for rows in run.sequences(Self::X)?.iter() {
                for j in 0..x.width() {
                    let mean = self.mean(rows.clone().map(|i| x.row(i)[j]));
                    rows.clone().for_each(|i| out.row(i)[j] = T::from_f64(self.factor) * (x.row(i)[j] - mean));
                }
            }
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let Some(dout) = run.output_gradient::<T>(Self::OUT)? else { return Ok(()) };
            let Some((mut dx, store)) = run.gradient::<T>(Self::X)? else { return Ok(()) };
            for rows in run.sequences(Self::X)?.iter() {
                for j in 0..dout.width() {
                    let mean = self.mean(rows.clone().map(|i| dout.row(i)[j]));
                    for i in rows.clone() {
                        let d = T::from_f64(self.factor) * (dout.row(i)[j] - mean);
                        let dx = &mut dx.row(i)[j];
                        store.put(dx, d);
                    }
                }
            }
            Ok(())
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
    }

    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_sequences(&Centre { factor: 1.5 }.attributes(), |sample, lod| {
            Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), 3, 0), lod)?))
        })
    }
}

impl Centre {
    fn mean<T: RowValue>(&self, numbers: impl ExactSizeIterator<Item = T>) -> T {
        let count = numbers.len();
        numbers.fold(T::ZERO, |sum, x| sum + x) / T::from_f64(count.max(1) as f64)
    }
}

/// A layer of the user's crate: the operator with a slope to learn for each column.
trait Acme {
    fn swish(&self, x: Var) -> Var;
}

impl Acme for Builder {
    #[track_caller]
    fn swish(&self, x: Var) -> Var {
        let Some(spec) = self.spec(x) else { return self.unknown() };
        x.swish_by(self.parameter("swish.slope", x, &[spec.width()], init::constant(1.0)))
    }
}

fn registry() -> Registry {
    let mut registry = ops::catalogue();
    registry.add::<Swish>().unwrap().add::<Centre>().unwrap();
    registry
}

#[test]
fn it_keeps_the_contract_of_the_catalogue() {
    let mut own = Registry::empty();
    own.add::<Swish>().unwrap().add::<Centre>().unwrap();
    testing::check(&own).unwrap();
    let twice = own.add::<Swish>().err().unwrap().to_string();
    assert!(
        twice.starts_with("registry: expected each kind once, got `acme.swish` twice (at tests/it/"),
        "{twice}"
    );
}

#[test]
fn it_can_be_called_at_once() {
    let x =
        Variable::sequences(array![[1.0f64], [3.0], [5.0]], Lod::from_lengths1(&[2, 0, 1]).unwrap()).unwrap();
    let attributes = Attributes::new().with("factor", 2.0);
    let call = Direct::of(&registry(), "acme.centre", &attributes, &[Operand::batch("x", x)]).unwrap();
    assert_eq!(call.forward().unwrap()[0][0].as_slice::<f64>().unwrap(), [-2.0, 2.0, 0.0]);
}

#[test]
fn its_shape_errors_point_at_the_users_line() {
    let net = Builder::with_registry(registry());
    let label = net.feed("label", DType::F32, &[2], 0);
    let error = net.centre(label, 1.0).refused().to_string();
    let expected =
        "acme.centre #0: input `x`: expected sequences (a LoD of at least one level), got f32[batch, 2]";
    assert!(error.starts_with(expected) && error.contains(file!()), "{error}");
    let plain = Builder::new();
    let x = plain.feed("x", DType::F32, &[2], 1);
    let error = plain.swish(x).refused();
    assert_eq!(error.kind(), ErrorKind::Program);
    assert!(error.to_string().contains("got `acme.swish`"), "{error}");
}

/// The user's operators before, in and behind a loop, on words of sentences.
fn model(dtype: DType) -> (Builder, Var, Var) {
    let net = Builder::with_registry(registry());
    let x = net.feed("x", dtype, &[4], 1);
    net.watch(x);
    let centred = net.centre(x, 0.7);
    let (h, last) = net.recurrent(centred, |step, x_t| {
        let h_prev = step.memory_of(dtype, &[5]);
        // Leaves the loop: no memory reaches it.
        let seen = step.swish(step.linear(x_t, 5));
        // Stays in it.
        let h = step.swish(step.add(seen, step.linear(h_prev, 5)));
        step.update(h_prev, h);
        // Behind it: no memory needs it.
        (step.swish(h), step.last(h_prev))
    });
    let pooled = net.sequence_pool(net.centre(net.square(h), 2.0), Pool::Max);
    let loss = net.add(net.sum(pooled), net.sum(net.square(last)));
    (net, x, loss)
}

fn words(lengths: &[usize]) -> Variable {
    let lod = Lod::from_lengths1(lengths).unwrap();
    let numbers = Array2::from_shape_fn((lod.rows(), 4), |(i, j)| ((4 * i + j) as f64 * 1.3).sin());
    Variable::sequences(numbers, lod).unwrap()
}

#[test]
fn its_gradients_in_a_step_block_are_central_differences() {
    let (net, x, loss) = model(DType::F64);
    let mut program = net.finish().unwrap();
    let grads = backward::differentiate(&mut program, &registry(), loss.id()).unwrap();
    let parameters: Vec<VarId> = program.trained_parameters().collect();
    assert_eq!(parameters.len(), 3 + 4);
    let wanted: Vec<VarId> =
        parameters.iter().chain([&x.id()]).map(|v| grads[v]).chain([loss.id()]).collect();
    let mut exe = Executor::new(&program, &registry(), &wanted, 2).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut value = words(&[3, 0, 4, 1]);
    let mut run = |scope: &mut Scope, value: &Variable| {
        exe.run(scope, &Run::train(&[(x.id(), value)], 0)).unwrap();
        let all: Vec<Variable> = wanted.iter().map(|&v| exe.fetch(v).unwrap()).collect();
        all
    };
    let at_once = run(&mut scope, &value);
    let close = |g: f64, up: f64, down: f64, what: &str| {
        let expected = (up - down) / 2e-5;
        assert!(
            (g - expected).abs() <= 1e-6 * expected.abs().max(1.0),
            "{what}: {g}, by differences {expected}"
        );
    };
    let last = wanted.len() - 1;
    let number = |all: &[Variable]| all[last].as_slice::<f64>().unwrap()[0];
    for (k, &parameter) in parameters.iter().enumerate() {
        let name = program.var(parameter).name.clone();
        let start = scope.get(&name).unwrap();
        for i in 0..start.len() {
            let mut moved = |by: f64| {
                let mut to: Dense = start.clone();
                to.as_mut_slice::<f64>().unwrap()[i] += by;
                scope.set(&name, to).unwrap();
                number(&run(&mut scope, &value))
            };
            let (up, down) = (moved(1e-5), moved(-1e-5));
            close(at_once[k].as_slice::<f64>().unwrap()[i], up, down, &name);
        }
        scope.set(&name, start).unwrap();
    }
    let input = at_once[parameters.len()].as_slice::<f64>().unwrap();
    for (i, &g) in input.iter().enumerate() {
        let mut moved = |by: f64| {
            value.as_mut_slice::<f64>().unwrap()[i] += by;
            let loss = number(&run(&mut scope, &value));
            value.as_mut_slice::<f64>().unwrap()[i] -= by;
            loss
        };
        let (up, down) = (moved(1e-5), moved(-1e-5));
        close(g, up, down, "x");
    }
}

#[test]
fn it_is_trained_saved_and_loaded() {
    let (net, x, loss) = model(DType::F32);
    let mut program = net.finish().unwrap();
    Sgd::new(0.05).clip_global_norm(1.0).minimize(&mut program, &registry(), loss.id()).unwrap();
    let value = words(&[3, 0, 4, 1]);
    let value =
        Variable::new(value.storage().to_dense().unwrap().cast(DType::F32), value.lod().cloned()).unwrap();
    let train = |program: &Program| {
        let mut exe = Executor::new(program, &registry(), &[loss.id()], 1).unwrap();
        let mut scope = Scope::of(program).unwrap();
        let mut losses = Vec::new();
        for step in 0..20 {
            exe.run(&mut scope, &Run::train(&[(x.id(), &value)], step)).unwrap();
            losses.push(exe.scalar(loss).unwrap());
        }
        (losses, scope.get("swish.slope").unwrap())
    };
    let (losses, slope) = train(&program);
    assert!(losses[19] < losses[0], "{losses:?}");
    assert!(slope.as_slice::<f32>().unwrap().iter().any(|&s| s != 1.0));

    // Read back, with and without the user's operators.
    let loaded = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(loaded, program);
    assert_eq!((loaded.to_string(), loaded.dot()), (program.to_string(), program.dot()));
    assert_eq!(train(&loaded), (losses, slope));
    let unknown =
        |registry: &Registry| -> Error { Executor::new(&loaded, registry, &[loss.id()], 1).err().unwrap() };
    let error = unknown(&ops::catalogue());
    assert_eq!(error.kind(), ErrorKind::Program);
    let message = error.to_string();
    assert!(message.starts_with("acme.") && message.contains(file!()), "{message}");
    let words = ["operator kind: expected one of abs, ", ", got `acme."];
    assert!(words.iter().all(|words| message.contains(words)), "{message}");
}

/// A step of a recurrent layer of the crate's own beside the user's operators.
#[test]
fn it_stands_among_layers() {
    let net = Builder::with_registry(registry());
    let x = net.feed("x", DType::F32, &[4], 2);
    let h = net.swish(net.lstm(net.centre(x, 1.0), Lstm::new(3)));
    let last = net.centre(net.sequence_pool(h, Pool::Last), 1.0);
    assert_eq!(net.spec(last).unwrap().to_string(), "f32[rows0, 3] lod(0)");
}

operator! {
    /// The operator itself, but for a `fault`: it uses a slot that it lacks, or declares a shape without dimensions.
    struct Faulty = "acme.faulty" { fault: usize }
    inputs { X = x: one }
    outputs { OUT = out: one }
    trait BuildFaulty, ApplyFaulty { fn faulty(&self, x: Var, fault: usize) -> Var; }
}

/// A slot that the operator lacks.
const NO: usize = 7;

impl Op for Faulty {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(if self.fault == 1 { NO } else { Self::X }))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let mut spec = s.input(Self::X).clone();
        match self.fault {
            2 => spec.shape.clear(),
            3 => drop(s.input(NO).clone()),
            4 => s.set(NO, spec.clone()),
            5 => drop(s.many(NO).to_vec()),
            6 => drop(s.optional(NO).cloned()),
            7 => s.same_rows(Self::X, NO)?,
            8 => drop(s.literal(NO)?),
            _ => {}
        }
        s.set(Self::OUT, spec);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        match self.fault {
            10 => drop(run.input::<f32>(NO)?),
            11 => _ = run.output::<f32>(NO)?,
            12 => assert_ne!(run.dtype(NO), DType::F32),
            13 => assert_eq!(run.input_spec(NO), run.output_spec(NO)),
            14 => assert_eq!(run.count(NO) + run.output_count(NO), 0),
            15 => drop(run.sequences(NO)?),
            16 => assert!(run.rows(NO).is_none() && run.optional::<f32>(NO)?.is_none()),
            _ => {}
        }
        let (x, mut out) = (run.input::<f32>(Self::X)?, run.output::<f32>(Self::OUT)?);
        out.iter_mut().zip(x.iter()).for_each(|(out, x)| out.copy_from_slice(x));
        Ok(())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        match self.fault {
            17 => _ = run.gradient::<f32>(NO)?,
            18 => drop(run.output_gradient::<f32>(NO)?),
            19 => drop(run.output::<f32>(NO)?),
            _ => assert!(!run.wants(NO)),
        }
        Ok(())
    }

    fn stored(&self, _: usize) -> StorageBound {
        if self.fault == 9 { StorageBound::Least(&[0, NO]) } else { StorageBound::Everything }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_slot_that_it_lacks_is_an_error_that_names_it() {
    let mut registry = ops::catalogue();
    registry.add::<Faulty>().unwrap();
    let value = Variable::from_sequences(&[vec![1.0f32, 2.0], vec![], vec![3.0]]).unwrap();
    let trained = |fault: usize| -> Result<()> {
        let net = Builder::with_registry(registry.clone());
        let x = net.feed("x", DType::F32, &[], 1);
        net.watch(x);
        let loss = net.faulty(x, fault).sum();
        let mut program = net.finish()?;
        let grads = backward::differentiate(&mut program, &registry, loss.id())?;
        let mut exe = Executor::new(&program, &registry, &[grads[&x.id()]], 1)?;
        exe.run(&mut Scope::of(&program)?, &Run::train(&[(x.id(), &value)], 0))
    };
    let called = |fault: usize| -> Result<()> {
        let (attributes, x) = (Attributes::new().with("fault", fault), Operand::batch("x", value.clone()));
        Direct::of(&registry, "acme.faulty", &attributes, &[x])?.forward().map(drop)
    };
    called(0).unwrap();
    // Fault 20 is that `backward` asks whether the slot is wanted.
    for fault in 1..=20 {
        let message = trained(fault).unwrap_err().to_string();
        assert!(message.starts_with("acme.faulty #") && message.contains(file!()), "{fault}: {message}");
        let expected = match fault {
            2 => "shape: expected the rows of its last LoD level first, got f32[] with 1 level",
            _ => {
                "slot 7, which the operator uses: expected a variable in a slot of the operator (x, out), got none"
            }
        };
        assert!(message.contains(expected), "{fault}: {message}");
        if fault < 17 {
            // Without a program, a message has the LoD as it is written.
            let (message, expected) =
                (called(fault).unwrap_err(), expected.replace("with 1 level", "lod(0)"));
            assert!(message.to_string().starts_with(&expected), "{fault}: {message}");
        }
    }
}
