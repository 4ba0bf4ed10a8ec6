//! Exact sparse updates: what rows owe is made up for before they are read, so that a training has the numbers of the one with
//! dense gradients.

use unpadded::executor::{Executor, Run, Scope, interpret, settle};
use unpadded::layers::init;
use unpadded::optimizer::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Group, Lion, NAdam, Optimizer, RmsProp, Schedule, Sgd,
};
use unpadded::program::{Program, Registry, Role, VarId};
use unpadded::{Builder, DType, Var, Variable};

use crate::models::Random;

const HEIGHT: usize = 40;
const WIDTH: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Gradient {
    Dense,
    Rows,
}

struct Model {
    program: Program,
    registry: Registry,
    words: VarId,
    loss: VarId,
}

/// A table that is looked up at the root, in a step block and pooled, a cell and a loss.
fn model(dtype: DType, gradient: Gradient, optimizer: &dyn Optimizer) -> Model {
    let net = Builder::new().seed(6);
    let rows = gradient == Gradient::Rows;
    let words = net.feed("words", DType::I64, &[], 1);
    let weight = net.parameter("table", dtype, &[HEIGHT, WIDTH], init::embedding(0.5, Some(3)));
    let x = net.lookup(words, weight, Some(3), rows);
    let h = net.recurrent(words, |step, word| {
        let before = step.memory_of(dtype, &[WIDTH]);
        let x = step.lookup(word, weight, None, rows);
        let h = step.tanh(step.add(step.linear(x, WIDTH), step.linear(before, WIDTH)));
        step.update(before, h);
        h
    });
    let loss = net.mean(net.tanh(net.linear(net.add(x, h), 3)));
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let [words, loss] = [words, loss].map(Var::id);
    optimizer.minimize(&mut program, &registry, loss).unwrap();
    Model { program, registry, words, loss }
}

/// Batches in which some ids are frequent, most are rare, and some batches are empty.
fn batch(random: &mut Random, step: u64) -> Variable {
    let sequences = match step % 17 {
        16 => vec![vec![]],
        _ => (0..3)
            .map(|_| {
                (0..random.below(5))
                    .map(|_| match random.below(8) {
                        0 => random.below(HEIGHT) as i64,
                        _ => random.below(4) as i64,
                    })
                    .collect::<Vec<_>>()
            })
            .collect(),
    };
    Variable::from_sequences(&sequences).unwrap()
}

/// The table and the loss of each hundredth step, after training on batches whose steps are numbered by `number`.
fn train(
    dtype: DType,
    gradient: Gradient,
    optimizer: &dyn Optimizer,
    (steps, threads): (u64, usize),
    number: impl Fn(u64) -> u64,
) -> (Vec<f64>, Vec<f64>) {
    let Model { program, registry, words, loss } = model(dtype, gradient, optimizer);
    let mut executor = Executor::new(&program, &registry, &[loss], threads).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut random = Random(5);
    let mut losses = Vec::new();
    for step in 0..steps {
        let batch = batch(&mut random, step);
        executor.run(&mut scope, &Run::train(&[(words, &batch)], number(step))).unwrap();
        if step % 100 == 99 {
            losses.push(executor.scalar(loss).unwrap());
        }
    }
    settle(&program, &registry, &mut scope, threads).unwrap();
    let table = scope.get("table").unwrap().cast(DType::F64);
    (table.as_slice::<f64>().unwrap().to_vec(), losses)
}

fn rules() -> Vec<(&'static str, Box<dyn Optimizer>)> {
    let cosine = || Schedule::cosine_to(700, 1e-4).warm_up(20);
    let triangle = || Schedule::one_cycle(600, 0.3);
    let halves = || Schedule::step(150, 0.5);
    vec![
        ("sgd with decay", Box::new(Sgd::new(0.1).weight_decay(0.01).schedule(cosine()))),
        ("momentum", Box::new(Sgd::new(0.02).momentum(0.9).schedule(halves()))),
        ("momentum with decay", Box::new(Sgd::new(0.02).momentum(0.95).weight_decay(0.02))),
        ("nesterov", Box::new(Sgd::new(0.02).momentum(0.8).nesterov().weight_decay(0.01).schedule(cosine()))),
        ("adam", Box::new(Adam::new(0.01))),
        ("adam, clipped", Box::new(Adam::new(0.01).clip_global_norm(0.05).schedule(cosine()))),
        ("adam, other betas", Box::new(Adam::new(0.01).betas(0.5, 0.9).epsilon(1e-4).schedule(halves()))),
        ("adam, slow betas", Box::new(Adam::new(0.003).betas(0.97, 0.9999))),
        ("adam without beta1", Box::new(Adam::new(0.003).betas(0.0, 0.99))),
        ("adamw", Box::new(AdamW::new(0.01).weight_decay(0.05).schedule(cosine()))),
        ("adamw, clipped by value", Box::new(AdamW::new(0.01).clip_value(0.01).schedule(triangle()))),
        ("amsgrad", Box::new(Adam::new(0.01).amsgrad().clip_norm(0.02).schedule(halves()))),
        ("nadam", Box::new(NAdam::new(0.01).schedule(cosine()))),
        ("adamax", Box::new(Adamax::new(0.01).weight_decay(0.03).decoupled())),
        ("lion", Box::new(Lion::new(0.001).weight_decay(0.05).schedule(cosine()))),
        ("adagrad", Box::new(Adagrad::new(0.05).rate_decay(0.01))),
        (
            "adagrad with decay",
            Box::new(Adagrad::new(0.05).weight_decay(0.02).decoupled().schedule(halves())),
        ),
        ("ftrl", Box::new(Ftrl::new(0.05).l1(0.001).l2(0.1))),
        ("rmsprop", Box::new(RmsProp::new(0.01).weight_decay(0.1).decoupled())),
        ("rmsprop with momentum", Box::new(RmsProp::new(0.005).momentum(0.8).schedule(cosine()))),
        ("rmsprop, centred", Box::new(RmsProp::new(0.005).centred().epsilon(1e-3))),
        ("rmsprop, both", Box::new(RmsProp::new(0.005).centred().epsilon(1e-3).momentum(0.7))),
        ("adadelta", Box::new(Adadelta::new(0.5).weight_decay(0.01).decoupled())),
        ("adam at a rate of its own", Box::new(Adam::new(0.01).group(Group::of(["table"]).rate(0.3)))),
    ]
}

fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max)
}

#[test]
fn exact_sparse_updates_have_the_numbers_of_dense_ones() {
    for (name, optimizer) in rules() {
        for (dtype, most) in [(DType::F64, 1e-6), (DType::F32, 1e-4)] {
            let dense = train(dtype, Gradient::Dense, &*optimizer, (1000, 1), |step| step);
            let rows = train(dtype, Gradient::Rows, &*optimizer, (1000, 1), |step| step);
            let (table, losses) = (farthest(&rows.0, &dense.0), farthest(&rows.1, &dense.1));
            println!("{name} {dtype}: {table:.1e} {losses:.1e}");
            assert!(table < most && losses < most, "{name}, {dtype}: table {table:e}, losses {losses:e}");
            let threads = train(dtype, Gradient::Rows, &*optimizer, (200, 3), |step| step);
            let one = train(dtype, Gradient::Rows, &*optimizer, (200, 1), |step| step);
            assert!(threads == one, "{name}: the bits depend on threads");
        }
    }
}

#[test]
fn rows_that_are_not_read_for_ten_thousand_updates_are_where_the_dense_rule_has_them() {
    for (name, optimizer) in rules() {
        let run = |gradient| {
            let Model { program, registry, words, loss } = model(DType::F64, gradient, &*optimizer);
            let mut executor = Executor::new(&program, &registry, &[loss], 1).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            let mut random = Random(9);
            for step in 0..21_000u64 {
                let words_of = if step % 10_000 < 900 {
                    batch(&mut random, step)
                } else {
                    Variable::from_sequences(&[vec![1i64]]).unwrap()
                };
                executor.run(&mut scope, &Run::train(&[(words, &words_of)], step)).unwrap();
            }
            let all = Variable::from_sequences(&[(0..HEIGHT as i64).collect::<Vec<_>>()]).unwrap();
            executor.run(&mut scope, &Run::infer(&[(words, &all)])).unwrap();
            scope.get("table").unwrap().as_slice::<f64>().unwrap().to_vec()
        };
        let off = farthest(&run(Gradient::Rows), &run(Gradient::Dense));
        println!("{name}: {off:.1e}");
        assert!(off < 1e-6, "{name}: {off:e}");
    }
}

#[test]
fn a_settle_stands_before_every_reader_and_the_interpreter_runs_it() {
    let Model { program, registry, words, loss } = model(DType::F64, Gradient::Rows, &Adam::new(0.05));
    let roles: Vec<Role> = program.root().ops.iter().map(|op| op.role).collect();
    assert_eq!(roles.iter().filter(|role| **role == Role::Settle).count(), 2, "{program}");
    assert_eq!(roles[0], Role::Settle);
    let mut scope = Scope::of(&program).unwrap();
    let mut executor = Executor::new(&program, &registry, &[loss], 1).unwrap();
    let mut random = Random(2);
    for step in 0..40 {
        let batch = batch(&mut random, step);
        let feeds = [(words, &batch)];
        let expected = interpret(&program, &registry, &mut scope, &Run::infer(&feeds)).unwrap();
        let expected = expected[&loss].as_slice::<f64>().unwrap()[0];
        executor.run(&mut scope, &Run::train(&feeds, step)).unwrap();
        let found = executor.scalar(loss).unwrap();
        assert!((found - expected).abs() < 1e-12, "step {step}: {found} is not {expected}");
    }
}
