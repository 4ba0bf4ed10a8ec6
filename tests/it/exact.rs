//! Exact sparse updates: deferred updates of rows are applied before the rows are read, so that a training has the numbers of a
//! training with dense gradients.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batching, Field, Loader, Samples};
use unpadded::executor::{Executor, Run, Scope, interpret, settle};
use unpadded::layers::{Embedding, init};
use unpadded::ops::Pool;
use unpadded::optimizer::{
    Adam, AdamW, AnyOptimizer, Group, Optimizer, OptimizerKind, Options, RATE_SCALE, Schedule,
};
use unpadded::predict::Predictor;
use unpadded::program::{Role, VarId};
use unpadded::tensor::Storage;
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Program, Registry, Var, Variable, ops};

use crate::models::Random;

pub(crate) const HEIGHT: usize = 40;
pub(crate) const WIDTH: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gradient {
    Dense,
    Rows,
}

pub(crate) struct Model {
    pub(crate) program: Program,
    pub(crate) registry: Registry,
    pub(crate) words: VarId,
    pub(crate) loss: VarId,
}

/// A table that is looked up at the root, in a step block and pooled, a cell and a loss.
pub(crate) fn model(dtype: DType, gradient: Gradient, optimizer: &dyn Optimizer) -> Model {
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
pub(crate) fn batch(random: &mut Random, step: u64) -> Variable {
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

/// Every variant of every rule whose exact updates of rows are possible, each with the options of a training that its number
/// selects.
pub(crate) fn rules() -> Vec<(&'static str, AnyOptimizer)> {
    let options: [fn(&mut Options); 10] = [
        |_| {},
        |values| values.schedule = Schedule::cosine_to(700, 0.01 * values.rate).warm_up(20),
        |values| values.schedule = Schedule::step(150, 0.5),
        |values| values.schedule = Schedule::piecewise([(100, 0.5), (300, 0.1), (500, 2.0)]).warm_up(50),
        |values| values.schedule = Schedule::inverse_sqrt(100).warm_up(100),
        |values| values.groups.push(Group::of(["table"]).rate(0.3)),
        |values| values.schedule = Schedule::linear_to(800, 0.1 * values.rate),
        |values| (values.schedule, values.max_norm) = (Schedule::step_after(200, 90, 0.7), Some(0.05)),
        |values| (values.schedule, values.clip_value) = (Schedule::one_cycle(600, 0.3), Some(0.01)),
        |values| (values.schedule, values.clip_norm) = (Schedule::linear(600), Some(0.02)),
    ];
    let exact = OptimizerKind::variants().into_iter().filter(|values| values.owes.at_once().is_none());
    exact.zip(options.iter().cycle()).map(|(values, change)| (values.name, values.with(change))).collect()
}

pub(crate) fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max)
}

#[test]
fn exact_sparse_updates_have_the_numbers_of_dense_ones() {
    for (name, optimizer) in rules() {
        for (dtype, most) in [(DType::F64, 1e-6), (DType::F32, 1e-4)] {
            let dense = train(dtype, Gradient::Dense, &optimizer, (1000, 1), |step| step);
            let rows = train(dtype, Gradient::Rows, &optimizer, (1000, 1), |step| step);
            let (table, losses) = (farthest(&rows.0, &dense.0), farthest(&rows.1, &dense.1));
            println!("{name} {dtype}: {table:.1e} {losses:.1e}");
            assert!(table < most && losses < most, "{name}, {dtype}: table {table:e}, losses {losses:e}");
            let threads = train(dtype, Gradient::Rows, &optimizer, (200, 3), |step| step);
            let one = train(dtype, Gradient::Rows, &optimizer, (200, 1), |step| step);
            assert!(threads == one, "{name}: the bits depend on threads");
        }
    }
}

/// Steps of a round: some batches at random, then ten thousand in which one row alone is read.
const ROUND: u64 = 10_500;

#[test]
fn rows_that_are_not_read_for_ten_thousand_updates_are_where_the_dense_rule_has_them() {
    for (name, optimizer) in rules() {
        // The table after the first gap, and after all.
        let run = |dtype, gradient, steps: u64| {
            let Model { program, registry, words, loss } = model(dtype, gradient, &optimizer);
            let mut executor = Executor::new(&program, &registry, &[loss], 1).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            let mut random = Random(9);
            let all = Variable::from_sequences(&[(0..HEIGHT as i64).collect::<Vec<_>>()]).unwrap();
            let mut tables = Vec::new();
            for step in 0..steps {
                let words_of = if step % ROUND < 500 {
                    batch(&mut random, step)
                } else {
                    Variable::from_sequences(&[vec![1i64]]).unwrap()
                };
                executor.run(&mut scope, &Run::train(&[(words, &words_of)], step)).unwrap();
                if [ROUND, steps].contains(&(step + 1)) {
                    executor.run(&mut scope, &Run::infer(&[(words, &all)])).unwrap();
                    tables.push(numbers(&scope.value("table").unwrap()));
                }
            }
            tables
        };
        let dense = run(DType::F64, Gradient::Dense, 2 * ROUND + 500);
        let rows = run(DType::F64, Gradient::Rows, 2 * ROUND + 500);
        let off = [0, 1].map(|k| farthest(&rows[k], &dense[k]));
        println!("{name}: {off:?}");
        assert!(off.iter().all(|&off| off < 1e-6), "{name}: {off:?}");
        // In f32 the dense rule itself is rounded ten thousand times, and row 1 is trained on what is left of its gradient; the
        // others make their moves at once, and are where they are in f64.
        let rows = run(DType::F32, Gradient::Rows, ROUND);
        let others = |table: &[f64]| [&table[..WIDTH], &table[2 * WIDTH..]].concat();
        let off = farthest(&others(&rows[0]), &others(&dense[0]));
        assert!(off < 1e-4, "{name} in f32: {off:e}");
        println!("{name} in f32: {off:.1e}");
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

/// Each of two tables that one step block reads is settled before it.
#[test]
fn a_step_block_may_read_several_tables() {
    let train = |rows: bool| {
        let net = Builder::new().seed(4);
        let words = net.feed("words", DType::I64, &[], 1);
        let [a, b] = ["a", "b"]
            .map(|name| net.parameter(name, DType::F64, &[HEIGHT, WIDTH], init::uniform(-0.5, 0.5)));
        let both = net.recurrent(words, |step, word| {
            // The rows of `b` that are read are known only in the step, so that all rows are settled.
            step.mul(step.lookup(word, a, None, rows), step.lookup(step.assign(word), b, None, rows))
        });
        let loss = net.sum(net.tanh(both));
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        Adam::new(0.02).minimize(&mut program, &registry, loss.id()).unwrap();
        let ops = &program.root().ops;
        let reader = ops.iter().position(|op| op.step.is_some()).unwrap();
        let values = |table: Var| -> Vec<_> {
            let settles = ops[..reader].iter().filter(|op| op.role == Role::Settle);
            settles
                .filter(|op| op.output("param") == [table.id()])
                .map(|op| op.input("ids").to_vec())
                .collect()
        };
        let settled = if rows { (vec![vec![words.id()]], vec![vec![]]) } else { (vec![], vec![]) };
        assert_eq!((values(a), values(b)), settled, "{program}");
        let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
        let (mut scope, mut random) = (Scope::of(&program).unwrap(), Random(8));
        for step in 0..60 {
            let batch = batch(&mut random, step);
            executor.run(&mut scope, &Run::train(&[(words.id(), &batch)], step)).unwrap();
        }
        settle(&program, &registry, &mut scope, 1).unwrap();
        ["a", "b"].map(|name| numbers(&scope.value(name).unwrap()))
    };
    for (rows, dense) in train(true).iter().zip(&train(false)) {
        let off = farthest(rows, dense);
        assert!(off < 1e-9, "{off:e}");
    }
}

/// Enough rows owe updates that threads share the rows.
#[test]
fn many_rows_are_settled_with_the_same_bits_on_any_number_of_threads() {
    const ROWS: usize = 3000;
    for (name, optimizer) in rules() {
        let net = Builder::new().seed(4);
        let words = net.feed("words", DType::I64, &[], 1);
        let table = net.parameter("table", DType::F32, &[ROWS, 48], init::uniform(-0.5, 0.5));
        let loss = net.sum(net.tanh(net.lookup(words, table, None, true)));
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        optimizer.minimize(&mut program, &registry, loss.id()).unwrap();
        let train = |threads| {
            let mut executor = Executor::new(&program, &registry, &[], threads).unwrap();
            let (mut scope, mut random) = (Scope::of(&program).unwrap(), Random(8));
            for step in 0..12 {
                let count = if step % 3 == 0 { ROWS } else { 5 };
                let ids: Vec<i64> = (0..count).map(|_| random.below(ROWS) as i64).collect();
                let batch = Variable::from_sequences(&[ids]).unwrap();
                executor.run(&mut scope, &Run::train(&[(words.id(), &batch)], step)).unwrap();
            }
            let before = scope.get("table").unwrap();
            settle(&program, &registry, &mut scope, threads).unwrap();
            (before, scope.get("table").unwrap())
        };
        let one = train(1);
        for threads in [2, 3] {
            let found = train(threads);
            assert!(one.0.bits_eq(&found.0) && one.1.bits_eq(&found.1), "{name} on {threads} threads");
        }
    }
}

#[test]
fn one_executor_trains_two_scopes_as_two_would() {
    let optimizer = Adam::new(0.02).adjustable();
    let Model { program, registry, words, loss } = model(DType::F32, Gradient::Rows, &optimizer);
    let start = |scale: f32| {
        let mut scope = Scope::of(&program).unwrap();
        scope.set(RATE_SCALE, unpadded::tensor::Dense::from_vec(&[], vec![scale]).unwrap()).unwrap();
        scope
    };
    let table = |scope: &mut Scope| scope.get("table").unwrap().as_slice::<f32>().unwrap().to_vec();
    let executor = || Executor::new(&program, &registry, &[loss], 1).unwrap();
    let train = |executor: &mut Executor, scope: &mut Scope, step: u64| {
        let batch = batch(&mut Random(step), step);
        executor.run(scope, &Run::train(&[(words, &batch)], step)).unwrap();
    };
    let (mut shared, mut both) = (executor(), [start(1.0), start(0.5)]);
    for step in 0..400 {
        both.iter_mut().for_each(|scope| train(&mut shared, scope, step));
    }
    for (scale, found) in [1.0, 0.5].into_iter().zip(&mut both) {
        let (mut own, mut scope) = (executor(), start(scale));
        (0..400).for_each(|step| train(&mut own, &mut scope, step));
        assert!(table(&mut scope) == table(found), "at a scale of {scale}");
    }
    let [one, half] = &mut both;
    assert!(table(one) != table(half));
}

/// A trainer whose table has many rows that few batches touch.
pub(crate) fn trainer(gradient: Gradient) -> Trainer {
    trainer_with(gradient, &AdamW::new(0.02).weight_decay(0.1))
}

pub(crate) fn trainer_with(gradient: Gradient, optimizer: &dyn Optimizer) -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let table = Embedding::new(200, 6);
    let table = if gradient == Gradient::Rows { table.sparse() } else { table };
    let logits = words.embedding(table).sequence_pool(Pool::Sum).linear(2);
    let loss = logits.cross_entropy(label).mean();
    Trainer::new(net, loss, optimizer).unwrap().output("logits", logits).progress(Progress::Quiet).threads(1)
}

pub(crate) fn loader() -> Loader {
    let mut random = Random(4);
    let sample = |_| {
        let words: Vec<i64> =
            (0..1 + random.below(4)).map(|_| (random.below(14) * random.below(14)) as i64).collect();
        let label = words.iter().sum::<i64>() % 2;
        vec![Field::from(words), label.into()]
    };
    let samples: Samples = (0..120).map(sample).collect();
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(6)).shuffle(2)
}

pub(crate) fn numbers(value: &Storage) -> Vec<f64> {
    value.to_dense().unwrap().cast(DType::F64).as_slice::<f64>().unwrap().to_vec()
}

#[test]
fn a_training_is_the_dense_one_and_is_resumed_to_the_bit_wherever_it_was_saved() {
    let data = loader();
    let mut dense = trainer(Gradient::Dense);
    let expected = dense.fit(&data, &data, Until::Epochs(3)).unwrap();
    let mut whole = trainer(Gradient::Rows);
    let report = whole.fit(&data, &data, Until::Epochs(3)).unwrap();
    let [loss, dense_loss] = [&report, &expected].map(|r| r.last.get("loss").unwrap());
    assert!((loss - dense_loss).abs() < 1e-5, "{loss} is not {dense_loss}");
    let table = |trainer: &mut Trainer| numbers(&trainer.scope().value("embedding_0.weight").unwrap());
    let off = farthest(&table(&mut whole), &table(&mut dense));
    assert!(off < 1e-5, "{off}");

    for stop in [7, 20, 33] {
        let folder = std::env::temp_dir().join(format!("unpadded-exact-{}-{stop}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("training.ckpt");
        let mut first = trainer(Gradient::Rows);
        first.fit(&data, &data, Until::Steps(stop)).unwrap();
        first.save(&file).unwrap();
        let mut second = trainer(Gradient::Rows);
        second.resume(&file).unwrap();
        let again = second.fit(&data, &data, Until::Epochs(3)).unwrap();
        assert_eq!(again.last, report.last, "saved at step {stop}");
        let names: Vec<String> = whole.scope().names().map(str::to_owned).collect();
        for name in &names {
            let [a, b] = [&mut whole, &mut second].map(|t| t.scope().value(name).unwrap());
            assert_eq!(a, b, "{name}, saved at step {stop}");
        }

        // The saved rows owe updates, which are applied before the file is used for prediction or as a start.
        let saved = with!(Checkpoint::load(&file).unwrap(), best: Default::default());
        let mut at_stop = trainer(Gradient::Dense);
        at_stop.fit(&data, &data, Until::Steps(stop)).unwrap();
        let words = Variable::from_sequences(&[(0..200).collect::<Vec<i64>>(), vec![199, 3]]).unwrap();
        let predict = |checkpoint: Checkpoint| {
            let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap();
            numbers(predictor.run(&[("words", &words)], &["logits"]).unwrap()[0].storage())
        };
        let expected = predict(with!(dense_checkpoint(&mut at_stop), best: Default::default()));
        let bare = saved.clone().for_inference(&ops::catalogue()).unwrap();
        if stop == 7 {
            // Before an epoch has ended there are no best parameters.
            let mut early = trainer(Gradient::Rows);
            early.fit(&data, &data, Until::Steps(stop)).unwrap();
            assert!(farthest(&predict(early.for_inference().unwrap()), &expected) < 1e-5);
        }
        for found in [
            predict(saved.clone()),
            predict(bare),
            predict(saved.clone().settled(&ops::catalogue()).unwrap()),
        ] {
            assert!(
                farthest(&found, &expected) < 1e-5,
                "{found:?} is not {expected:?}, saved at step {stop}"
            );
        }
        if stop % 20 != 0 {
            let owed = farthest(
                &numbers(&saved.tensors["embedding_0.weight"]),
                &numbers(&saved.clone().settled(&ops::catalogue()).unwrap().tensors["embedding_0.weight"]),
            );
            assert!(owed > 1e-4, "nothing was owed at step {stop}");
        }
        let mut fresh = trainer(Gradient::Rows);
        fresh.load_parameters(&saved).unwrap();
        assert!(farthest(&table(&mut fresh), &table(&mut at_stop)) < 1e-5);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Returns the checkpoint that a trainer would save.
fn dense_checkpoint(trainer: &mut Trainer) -> Checkpoint {
    let file = std::env::temp_dir().join(format!("unpadded-exact-dense-{}.ckpt", std::process::id()));
    trainer.save(&file).unwrap();
    let checkpoint = Checkpoint::load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    checkpoint
}

#[test]
fn a_parameter_that_is_set_owes_nothing() {
    let data = loader();
    let mut trainer = trainer(Gradient::Rows);
    trainer.fit(&data, &data, Until::Steps(7)).unwrap();
    let ones = unpadded::tensor::Dense::from_vec(&[200, 6], vec![1.0f32; 1200]).unwrap();
    trainer.set_parameter("embedding_0.weight", ones).unwrap();
    trainer.evaluate(&data).unwrap();
    assert!(numbers(&trainer.scope().value("embedding_0.weight").unwrap()).iter().all(|&x| x == 1.0));
}
