//! Fused operators: `linear` and `cross_entropy`, which then never hold the logits of a whole batch. The results of fused
//! programs are compared with the reference interpreter, which fuses nothing.

use unpadded::executor::{Executor, Run, Scope, Stage, interpret};
use unpadded::layers::Linear;
use unpadded::layers::init::uniform;
use unpadded::op::{Attributes, CheckCase, Facts, Forward, Fusion, Hints, InferShape, Op};
use unpadded::ops::CrossEntropy;
use unpadded::program::{Step, VarId, backward};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Program, Result, Var, Variable, operator, ops};

use crate::models::Random;

const CLASSES: usize = 300;
const WIDTH: usize = 5;
const FUSED: &str = "as linear_cross_entropy";

/// The positions of the linear and the cross-entropy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Root,
    /// The linear in a step block, the cross-entropy behind it.
    LinearInside,
    BothInside,
}

/// Reduces the losses of the rows to one loss.
type Ending = fn(&Builder, Var, Var) -> Var;

fn mean(net: &Builder, loss: Var, _: Var) -> Var {
    net.mean(loss)
}

fn weighted_mean(net: &Builder, loss: Var, share: Var) -> Var {
    net.div(net.sum(loss), net.sum(share))
}

struct Model {
    program: Program,
    x: VarId,
    labels: VarId,
    logits: VarId,
    losses: VarId,
    loss: VarId,
    gradients: Vec<(VarId, VarId)>,
}

fn model(site: Where, dtype: DType, options: CrossEntropy, weighted: bool, ending: Ending) -> Model {
    model_of(CLASSES, site, dtype, (options, weighted), ending)
}

fn model_of(
    classes: usize,
    site: Where,
    dtype: DType,
    (options, weighted): (CrossEntropy, bool),
    ending: Ending,
) -> Model {
    let net = Builder::new();
    let x = net.feed("x", dtype, &[WIDTH], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let class_weights =
        weighted.then(|| net.parameter("class_weights", dtype, &[classes], uniform(0.5, 2.0)));
    let options = options.class_weights(class_weights);
    let cell = |step: &Step, x: Var| -> Var {
        let before = step.memory_of(dtype, &[WIDTH]);
        let h = step.tanh(step.add(step.linear(x, WIDTH), step.linear(before, WIDTH)));
        step.update(before, h);
        h
    };
    let (logits, (losses, share)) = match site {
        Where::Root => {
            let h = net.recurrent(x, cell);
            let logits = net.linear(h, classes);
            (logits, net.cross_entropy_with(logits, labels, options))
        }
        Where::LinearInside => {
            let inside = |step: &Step, x: Var| step.linear(cell(step, x), classes);
            let logits = net.recurrent(x, inside);
            (logits, net.cross_entropy_with(logits, labels, options))
        }
        Where::BothInside => {
            let inside = |step: &Step, (x, labels): (Var, Var)| {
                let logits = step.linear(cell(step, x), classes);
                step.cross_entropy_with(logits, labels, options)
            };
            let (losses, share) = net.recurrent((x, labels), inside);
            (losses, (losses, share))
        }
    };
    let loss = ending(&net, losses, share);
    let mut program = net.finish().unwrap();
    let gradients = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let [x, labels, logits, losses, loss] = [x, labels, logits, losses, loss].map(|v| v.id());
    Model { program, x, labels, logits, losses, loss, gradients }
}

/// Returns rows and labels for sequences of these lengths; with `ignore`, every fifth label is ignored.
fn batch(lengths: &[usize], dtype: DType, ignore: bool) -> [Variable; 2] {
    let rows: usize = lengths.iter().sum();
    let mut random = Random(7);
    let numbers: Vec<f64> = (0..rows * WIDTH).map(|_| random.below(2000) as f64 / 1000.0 - 1.0).collect();
    let labels: Vec<i64> =
        (0..rows).map(|i| if ignore && i % 5 == 2 { -1 } else { random.below(CLASSES) as i64 }).collect();
    let lod = Lod::from_lengths1(lengths).unwrap();
    let x = match dtype {
        DType::F32 => Dense::from_vec(&[rows, WIDTH], numbers.iter().map(|&x| x as f32).collect()).unwrap(),
        _ => Dense::from_vec(&[rows, WIDTH], numbers).unwrap(),
    };
    let lod = Some(lod);
    [x, Dense::from_vec(&[rows], labels).unwrap()].map(|values| Variable::new(values, lod.clone()).unwrap())
}

fn floats(value: &Variable) -> Vec<f64> {
    match value.dtype() {
        DType::F32 => value.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        _ => value.as_slice::<f64>().unwrap().to_vec(),
    }
}

impl Model {
    fn executor(&self, also: &[VarId], threads: usize) -> Executor {
        let mut fetch = vec![self.loss, self.losses];
        fetch.extend(self.gradients.iter().map(|(_, gradient)| *gradient));
        fetch.extend(also);
        let executor = Executor::new(&self.program, &ops::catalogue(), &fetch, threads).unwrap();
        if threads > 1 { crate::models::divided(executor) } else { executor }
    }

    fn feeds<'a>(&self, batch: &'a [Variable; 2]) -> [(VarId, &'a Variable); 2] {
        [(self.x, &batch[0]), (self.labels, &batch[1])]
    }

    /// Loss, losses and gradients.
    fn run(&self, executor: &mut Executor, scope: &mut Scope, batch: &[Variable; 2]) -> Vec<Vec<f64>> {
        executor.run(scope, &Run::train(&self.feeds(batch), 0).until(Stage::Gradients)).unwrap();
        let fetched = [self.loss, self.losses].into_iter().chain(self.gradients.iter().map(|(_, g)| *g));
        fetched.map(|var| floats(&executor.fetch(var).unwrap())).collect()
    }

    fn interpreted(&self, scope: &mut Scope, batch: &[Variable; 2]) -> Vec<Vec<f64>> {
        let feeds = self.feeds(batch);
        let run = Run::train(&feeds, 0).until(Stage::Gradients);
        let values = interpret(&self.program, &ops::catalogue(), scope, &run).unwrap();
        let fetched = [self.loss, self.losses].into_iter().chain(self.gradients.iter().map(|(_, g)| *g));
        fetched.map(|var| floats(&values[&var])).collect()
    }
}

#[track_caller]
fn close(ours: &[Vec<f64>], theirs: &[Vec<f64>], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.len(), theirs.len(), "{what}");
        let scale = theirs.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
        for (x, y) in ours.iter().zip(theirs) {
            assert!((x - y).abs() <= tolerance * scale, "{what}: {x} is not {y} ({scale})");
        }
    }
}

const PLACES: [Where; 3] = [Where::Root, Where::LinearInside, Where::BothInside];
const LENGTHS: [usize; 6] = [3, 0, 17, 1, 40, 8];

fn options() -> [(CrossEntropy, bool); 3] {
    let smooth = CrossEntropy::default().ignore_index(-1).label_smoothing(0.1);
    let ignored = CrossEntropy::default().ignore_index(-1);
    [(CrossEntropy::default(), false), (ignored, false), (smooth, true)]
}

#[test]
fn it_computes_what_the_program_means() {
    for site in PLACES {
        for (option, weighted) in options() {
            for ending in [mean as Ending, weighted_mean] {
                for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12)] {
                    let model = model(site, dtype, option, weighted, ending);
                    let mut scope = Scope::of(&model.program).unwrap();
                    // All but the plain one ignore a label.
                    let ignore = option != CrossEntropy::default();
                    for lengths in [&LENGTHS[..], &[2], &[0, 0], &[]] {
                        if lengths.iter().sum::<usize>() == 0 && option != CrossEntropy::default() {
                            continue;
                        }
                        let batch = batch(lengths, dtype, ignore);
                        let mut executor = model.executor(&[], 2);
                        let listing = executor.listing().to_string();
                        assert!(listing.contains(FUSED), "{site:?}:\n{listing}");
                        let ours = model.run(&mut executor, &mut scope, &batch);
                        let theirs = model.interpreted(&mut scope, &batch);
                        if ours[0][0].is_nan() && theirs[0][0].is_nan() {
                            continue;
                        }
                        close(
                            &ours,
                            &theirs,
                            tolerance,
                            &format!("{site:?} {option:?} {dtype:?} {lengths:?}"),
                        );
                        assert!(site != Where::Root || ours[1] == theirs[1], "the losses have the same bits");
                        // A run that ends before the gradients has the same losses.
                        let feeds = model.feeds(&batch);
                        executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Forward)).unwrap();
                        assert_eq!(floats(&executor.fetch(model.losses).unwrap()), ours[1]);
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_are_central_differences() {
    let model = model(Where::BothInside, DType::F64, options()[2].0, true, mean);
    let batch = batch(&[3, 0, 5], DType::F64, true);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = model.executor(&[], 1);
    let computed = model.run(&mut executor, &mut scope, &batch);
    const STEP: f64 = 1e-5;
    for (&(parameter, _), gradient) in model.gradients.iter().zip(&computed[2..]) {
        let name = &model.program.var(parameter).name;
        let value = scope.get(name).unwrap();
        let numbers = value.as_slice::<f64>().unwrap().to_vec();
        for i in (0..numbers.len()).step_by(numbers.len() / 6 + 1) {
            let mut loss_at = |x: f64| {
                let mut changed = numbers.clone();
                changed[i] = x;
                scope.set(name, Dense::from_vec(value.shape(), changed).unwrap()).unwrap();
                model.run(&mut executor, &mut scope, &batch)[0][0]
            };
            let difference = (loss_at(numbers[i] + STEP) - loss_at(numbers[i] - STEP)) / (2.0 * STEP);
            assert!(
                (difference - gradient[i]).abs() < 1e-8,
                "{name}[{i}]: {} is not {difference}",
                gradient[i]
            );
        }
        scope.set(name, Dense::from_vec(value.shape(), numbers).unwrap()).unwrap();
    }
}

/// More rows than a chunk has, so that sums go over chunks; on any number of threads they have the same bits.
#[test]
fn threads_and_chunks_change_no_bit() {
    let model = model(Where::Root, DType::F32, options()[2].0, true, mean);
    let batch = batch(&[2000, 0, 2500, 700, 30], DType::F32, true);
    let mut scope = Scope::of(&model.program).unwrap();
    let one = model.run(&mut model.executor(&[], 1), &mut scope, &batch);
    for threads in [2, 3] {
        assert!(model.run(&mut model.executor(&[], threads), &mut scope, &batch) == one, "{threads} threads");
    }
    close(&one, &model.interpreted(&mut scope, &batch), 1e-4, "many chunks");
}

/// A training step does not pack a large weight for the logits: each thread packs a few columns at a time.
#[test]
fn a_large_weight_gives_the_same_numbers() {
    const MANY: usize = (4 << 20) / (WIDTH * size_of::<f32>()) + 1_000;
    let model = model_of(MANY, Where::Root, DType::F32, (CrossEntropy::default(), false), mean);
    let mut scope = Scope::of(&model.program).unwrap();
    let batch = batch(&[3, 0, 17], DType::F32, false);
    let ours = model.run(&mut model.executor(&[], 1), &mut scope, &batch);
    let theirs = model.interpreted(&mut scope, &batch);
    assert_eq!(ours[1], theirs[1], "the losses have the same bits");
    close(&ours, &theirs, 2e-5, "a large weight");
    for threads in [2, 3, 7] {
        assert_eq!(model.run(&mut model.executor(&[], threads), &mut scope, &batch), ours, "{threads}");
    }
}

#[test]
fn a_sequence_alone_has_the_losses_of_the_batch() {
    for site in PLACES {
        let model = model(site, DType::F32, options()[0].0, false, mean);
        let mut scope = Scope::of(&model.program).unwrap();
        let together = batch(&LENGTHS, DType::F32, false);
        let mut executor = model.executor(&[], 2);
        let all = model.run(&mut executor, &mut scope, &together);
        let mut first = 0;
        for length in LENGTHS {
            let rows = first..first + length;
            let x = together[0].as_slice::<f32>().unwrap()[first * WIDTH..rows.end * WIDTH].to_vec();
            let labels = together[1].as_slice::<i64>().unwrap()[rows.clone()].to_vec();
            let lod = Some(Lod::from_lengths1(&[length]).unwrap());
            let alone = [
                Variable::new(Dense::from_vec(&[length, WIDTH], x).unwrap(), lod.clone()).unwrap(),
                Variable::new(Dense::from_vec(&[length], labels).unwrap(), lod).unwrap(),
            ];
            assert!(model.run(&mut executor, &mut scope, &alone)[1] == all[1][rows], "{site:?}");
            first += length;
        }
    }
}

#[test]
fn inference_fuses_the_forward_alone() {
    let model = model(Where::LinearInside, DType::F32, options()[0].0, false, mean);
    let batch = batch(&LENGTHS, DType::F32, false);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = Executor::new(&model.program, &ops::catalogue(), &[model.losses], 2).unwrap();
    let listing = executor.listing().to_string();
    assert!(listing.contains(FUSED) && !listing.contains("gradients"), "{listing}");
    executor.run(&mut scope, &Run::infer(&model.feeds(&batch))).unwrap();
    let losses = floats(&executor.fetch(model.losses).unwrap());
    assert_eq!(losses, model.interpreted(&mut scope, &batch)[1]);
}

/// A wrong label is reported for the operator that the user wrote, with its sample and line.
#[test]
fn a_wrong_label_is_said_as_before() {
    let model = model(Where::Root, DType::F32, options()[0].0, false, mean);
    let mut wrong = batch(&LENGTHS, DType::F32, false);
    let labels = wrong[1].as_mut_slice::<i64>().unwrap();
    (labels[30], labels[50]) = (CLASSES as i64, -5);
    let mut scope = Scope::of(&model.program).unwrap();
    let feeds = model.feeds(&wrong);
    for stage in [Stage::Forward, Stage::Gradients] {
        let run = Run::train(&feeds, 0).until(stage);
        let mut fused = model.executor(&[], 2);
        let mut unfused = model.executor(&[model.logits], 2);
        let errors = [&mut fused, &mut unfused].map(|e| e.run(&mut scope, &run).unwrap_err().to_string());
        assert!(
            errors[0].contains("label of sample 4, position 9:") && errors[0].contains("cross_entropy #2"),
            "{}",
            errors[0]
        );
        let text = |error: &str| error.split("fuse.rs").next().unwrap().to_owned();
        assert_eq!(text(&errors[0]), text(&errors[1]));
    }
}

/// All three products are in the profile, where they are: a multiply-add is two operations.
#[test]
fn a_profile_counts_its_products() {
    let model = model(Where::Root, DType::F32, options()[0].0, false, mean);
    let batch = batch(&LENGTHS, DType::F32, false);
    let mut executor = model.executor(&[], 1);
    executor.start_profile();
    model.run(&mut executor, &mut Scope::of(&model.program).unwrap(), &batch);
    let profile = executor.take_profile().unwrap();
    let calls: Vec<_> = profile.entries.iter().filter(|e| e.operator == "cross_entropy #2").collect();
    let rows = LENGTHS.iter().sum::<usize>();
    let flops: u64 = calls.iter().map(|e| e.cost.flops).sum();
    assert_eq!(flops, (3 * 2 * rows * WIDTH * CLASSES + rows * CLASSES) as u64);
    assert_eq!(calls.iter().filter(|e| e.rows > 0).count(), 1, "the forward operator does not run beside it");
}

#[track_caller]
fn refused(executor: &Executor, why: &str) {
    let listing = executor.listing().to_string();
    assert!(!listing.contains(FUSED), "{listing}");
    let line = listing.lines().find(|line| line.contains("not fused: linear")).unwrap_or_default();
    assert!(line.contains(why), "`{line}` does not say `{why}`:\n{listing}");
}

#[test]
fn it_is_refused_with_a_reason() {
    let plain = |ending| model(Where::Root, DType::F32, options()[0].0, false, ending);
    // Fetched.
    let whole = plain(mean);
    refused(&whole.executor(&[whole.logits], 1), "is fetched");
    // The gradient of a squared loss depends on the loss.
    let squared = plain(|net, loss, _| net.mean(net.square(loss)));
    refused(&squared.executor(&[], 1), "depends on its value");
    // Read by another operator.
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[WIDTH], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let logits = net.linear(x, CLASSES);
    let loss = net.mean(net.cross_entropy(logits, labels));
    let other = net.mean(net.max_features(logits));
    let few = net.linear(x, 3);
    let narrow = net.mean(net.cross_entropy(few, labels));
    let program = net.finish().unwrap();
    let executor = |wanted: &[Var]| {
        let wanted: Vec<VarId> = wanted.iter().map(|v| v.id()).collect();
        Executor::new(&program, &ops::catalogue(), &wanted, 1).unwrap()
    };
    refused(&executor(&[loss, other]), "max_features #3 reads `linear` too");
    refused(&executor(&[narrow]), "3 numbers a row are too few");
    assert!(executor(&[loss]).listing().to_string().contains(FUSED), "what is not needed is not in the way");
    // A memory keeps the logits.
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[WIDTH], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let logits = net.recurrent(x, |step, x| {
        let before = step.memory(CLASSES);
        let logits = step.linear(step.concat(&[x, before]), CLASSES);
        step.update(before, logits);
        logits
    });
    let loss = net.mean(net.cross_entropy(logits, labels));
    let executor = Executor::new(&net.finish().unwrap(), &ops::catalogue(), &[loss.id()], 1).unwrap();
    refused(&executor, "a memory keeps");
}

operator! {
    /// A user's operator: Σ x² of each row.
    struct Energy = "acme.energy" {}
    inputs { X = x: one }
    outputs { OUT = out: one }
}

operator! {
    /// The fused form after a `linear`.
    struct LinearEnergy = "acme.linear_energy" {}
    inputs { X = input: one, MATRIX = matrix: one }
    outputs { OUT = out: one }
}

const ENERGY: Facts = Facts::row_wise();

fn rows_of(s: &mut InferShape<'_>) -> Result<()> {
    let mut out = s.input(0).clone();
    out.shape.truncate(1);
    s.set(0, out);
    Ok(())
}

impl Op for Energy {
    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
    fn facts(&self) -> Facts {
        ENERGY
    }
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        rows_of(s)
    }
    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let x = run.input::<f32>(0)?;
        for (out, x) in run.output::<f32>(0)?.iter_mut().zip(x.iter()) {
            out[0] = x.iter().map(|x| x * x).sum();
        }
        Ok(())
    }
    fn hints(&self) -> Hints {
        const FUSIONS: &[Fusion] = &[Fusion {
            slot: "x",
            producer: "linear",
            into: "acme.linear_energy",
            producer_slots: &[("x", "input"), ("weight", "matrix")],
            own_slots: &[],
            by_others: &[],
            least_width: 2,
        }];
        Hints { fusions: FUSIONS, ..Hints::default() }
    }
}

impl Op for LinearEnergy {
    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
    fn facts(&self) -> Facts {
        ENERGY
    }
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        rows_of(s)
    }
    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, matrix) = (run.input::<f32>(0)?, run.input::<f32>(1)?);
        for (out, x) in run.output::<f32>(0)?.iter_mut().zip(x.iter()) {
            let product = |j| x.iter().zip(matrix.iter()).map(|(x, row)| x * row[j]).sum::<f32>();
            out[0] = (0..matrix.width()).map(|j| product(j) * product(j)).sum();
        }
        Ok(())
    }
}

#[test]
fn a_users_operators_take_part() {
    let mut registry = ops::catalogue();
    registry.add::<Energy>().unwrap().add::<LinearEnergy>().unwrap();
    let net = Builder::with_registry(registry.clone());
    let x = net.feed("x", DType::F32, &[WIDTH], 1);
    let energy = |layer: Linear| {
        let y = net.linear(x, layer);
        net.append::<Var>("acme.energy", &[("x", &[y])], Attributes::new())
    };
    let (fused, biased) = (energy(Linear::new(4).without_bias()), energy(Linear::new(4)));
    let program = net.finish().unwrap();
    let wanted = [fused.id(), biased.id()];
    let mut executor = Executor::new(&program, &registry, &wanted, 1).unwrap();
    let listing = executor.listing().to_string();
    assert!(listing.contains("linear #0 and acme.energy #1 as acme.linear_energy"), "{listing}");
    // It has no slot for a bias.
    assert!(listing.contains("not fused: linear #2 and acme.energy #3: no operator"), "{listing}");
    let mut scope = Scope::of(&program).unwrap();
    let batch = batch(&LENGTHS, DType::F32, false);
    let feeds = [(x.id(), &batch[0])];
    executor.run(&mut scope, &Run::infer(&feeds)).unwrap();
    let values = interpret(&program, &registry, &mut scope, &Run::infer(&feeds)).unwrap();
    for var in wanted {
        close(&[floats(&executor.fetch(var).unwrap())], &[floats(&values[&var])], 1e-5, "energy");
    }
}
