//! The key-value store: pushing, pulling, merging, and refusals.

use std::thread;
use std::time::Duration;

use ndarray::{Array2, Ix2, arr0, array};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::op::{Attributes, Spec};
use unpadded::optimizer::{
    Adam, AnyOptimizer, Group, Lamb, Optimizer, OptimizerKind, OptimizerVariant, Options, Schedule, Sgd,
    SparseMode,
};
use unpadded::program::{BlockId, Initializer, VarDesc, VarId, VarKind, VarRole};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalStore, LocalWorker, Rule};
use unpadded::tensor::{Dense, SelectedRows, Storage, StorageKind};
use unpadded::{DType, ErrorKind, Program, Result, Variable, ops};

use crate::models::Random;

pub(crate) const ALONE: Consistency = Consistency::Asynchronous { staleness: None };

pub(crate) fn store(shards: usize) -> LocalStore {
    LocalStore::new(&ops::catalogue(), shards).unwrap()
}

/// The one worker of a store.
pub(crate) fn alone(store: &LocalStore) -> LocalWorker {
    store.workers(1, ALONE).unwrap().remove(0)
}

pub(crate) fn key(name: &str) -> Key {
    Key::from(name)
}

pub(crate) fn rule(optimizer: &dyn Optimizer) -> Rule {
    Rule::new(optimizer, &ops::catalogue()).unwrap()
}

fn f64s(value: &Dense) -> &[f64] {
    value.as_slice::<f64>().unwrap()
}

#[track_caller]
pub(crate) fn says(outcome: Result<impl Sized>, words: &[&str]) {
    let message = outcome.map(drop).unwrap_err().to_string();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

/// Numbers that differ from one another and from one `salt` to the next.
pub(crate) fn numbers(shape: (usize, usize), salt: u64) -> Array2<f64> {
    Array2::from_shape_fn(shape, |(i, j)| ((i * shape.1 + j) as f64 * 0.7 + salt as f64).sin())
}

/// Some rows of a table, some of them twice.
pub(crate) fn some_rows(height: usize, width: usize, count: usize, salt: u64) -> SelectedRows {
    let mut random = Random(salt);
    let ids = (0..count).map(|_| random.below(height) as i64).collect();
    SelectedRows::new(height, ids, numbers((count, width), salt)).unwrap()
}

#[test]
fn keys_are_names_and_numbers() {
    let store = store(3);
    let mut worker = alone(&store);
    let table = numbers((7, 2), 1);
    worker.init(&key("7"), table.clone().into()).unwrap();
    worker.init(&Key::from(7), arr0(0.5f32).into()).unwrap();
    worker
        .init(&key(""), SelectedRows::new(4, vec![3, 1, 3], array![[1.0f32], [2.0], [5.0]]).unwrap().into())
        .unwrap();
    assert_eq!(worker.pull(&key("7")).unwrap(), table.into());
    assert_eq!(worker.pull(&Key::from(7)).unwrap(), arr0(0.5f32).into());
    assert_eq!(worker.pull(&key("")).unwrap(), array![[0.0f32], [2.0], [0.0], [6.0]].into());
    assert_eq!((key("a").to_string(), Key::from(7).to_string()), ("a".to_owned(), "#7".to_owned()));
}

#[test]
fn rows_come_in_the_order_of_their_numbers() {
    for shards in [1, 2, 5, 100] {
        let mut worker = alone(&store(shards));
        let table = Dense::from(numbers((11, 3), 2));
        worker.init(&key("t"), table.clone().into()).unwrap();
        for ids in [vec![10, 0, 3, 3, 10, 4], vec![], (0..11).rev().collect()] {
            let places: Vec<usize> = ids.iter().map(|&id| id as usize).collect();
            assert_eq!(worker.row_sparse_pull(&key("t"), ids).unwrap(), table.gather_rows(&places).unwrap());
        }
        // Of a vector, rows are numbers; of a higher rank, they are of that rank less one.
        worker.init(&key("v"), array![1.0f32, 2.0, 3.0].into()).unwrap();
        assert_eq!(worker.row_sparse_pull(&key("v"), vec![2, 0]).unwrap(), array![3.0f32, 1.0].into());
        let cube = Dense::zeros(DType::F32, &[4, 2, 3]).unwrap();
        worker.init(&key("c"), cube.into()).unwrap();
        assert_eq!(worker.row_sparse_pull(&key("c"), vec![2, 0]).unwrap().shape(), [2, 2, 3]);
    }
}

#[test]
fn what_a_store_has_not_is_named() {
    let mut worker = alone(&store(2));
    worker.init(&key("t"), numbers((5, 2), 1).into()).unwrap();
    worker.init(&key("one"), arr0(1.0f32).into()).unwrap();
    let zeros = || Storage::from(Array2::<f64>::zeros((5, 2)));
    for missing in [key("u"), Key::from(5)] {
        let words = [&*format!("variable `{missing}`"), "expected a key that `init` made, got none"];
        says(worker.push(&missing, zeros(), 1.0), &words);
        says(worker.pull(&missing), &words);
        says(worker.row_sparse_pull(&missing, vec![0]), &words);
        says(worker.set_rule(&missing, rule(&Sgd::new(0.1))), &words);
    }
    says(worker.init(&key("t"), zeros()), &["variable `t`", "a new key"]);
    for (ids, slot, got) in
        [(vec![0, 5], 1, "5"), (vec![-1], 0, "-1"), (vec![2, 3, i64::MAX], 2, "9223372036854775807")]
    {
        let words =
            ["variable `t`", &format!("row at place {slot}"), "below the height of 5", &format!("got {got}")];
        says(worker.row_sparse_pull(&key("t"), ids), &words);
    }
    says(worker.row_sparse_pull(&key("one"), vec![0]), &["variable `one`", "a value that has rows"]);
    assert_eq!(worker.pull(&key("t")).unwrap(), numbers((5, 2), 1).into());
}

#[test]
fn gradients_that_do_not_fit_change_nothing() {
    let rows = |height, id| Storage::from(SelectedRows::new(height, vec![id], array![[1.0, 2.0]]).unwrap());
    let with = |number: f64| {
        let mut values = Array2::zeros((5, 2));
        values[[3, 1]] = number;
        values
    };
    let nan_row = SelectedRows::new(5, vec![4, 2], array![[1.0, 1.0], [f64::INFINITY, 0.0]]).unwrap();
    let cases: Vec<(Storage, &[&str])> = vec![
        (
            Array2::<f32>::zeros((5, 2)).into(),
            &["expected dense or selected rows, f64[5, 2], got dense f32[5, 2]"],
        ),
        (Array2::<f64>::zeros((5, 3)).into(), &["f64[5, 2]", "got dense f64[5, 3]"]),
        (Array2::<f64>::zeros((6, 2)).into(), &["got dense f64[6, 2]"]),
        (rows(6, 5), &["f64[5, 2], got selected_rows f64[6, 2]"]),
        (Storage::from(with(1.0)).convert(StorageKind::Csr).unwrap(), &["dense or selected rows", "got csr"]),
        (with(f64::NAN).into(), &["gradient: expected finite numbers, got NaN at [3, 1]"]),
        (nan_row.into(), &["gradient: expected finite numbers, got inf at [1, 0]"]),
    ];
    for mode in [ALONE, Consistency::Synchronous] {
        let store = store(2);
        let mut worker = store.workers(1, mode).unwrap().remove(0);
        let start = numbers((5, 2), 1);
        worker.init(&key("t"), start.clone().into()).unwrap();
        worker.set_rule(&key("t"), rule(&Sgd::new(0.5).momentum(0.5).lazy())).unwrap();
        worker.init(&key("m"), start.clone().into()).unwrap();
        worker.set_rule(&key("m"), rule(&Adam::new(0.5).weight_decay(0.5))).unwrap();
        for (gradient, words) in &cases {
            let outcome = worker.push(&key("t"), gradient.clone(), 1.0);
            says(outcome.clone(), &[&["variable `t`", file!()], *words].concat());
            let finite = outcome.unwrap_err().kind() != ErrorKind::NotFinite;
            assert_eq!(finite, !words[0].contains("finite"));
        }
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            let words = ["weight of a gradient", "a finite number from 0"];
            says(worker.push(&key("t"), with(1.0).into(), weight), &words);
        }
        // Decay that is added to the gradient of Adam moves all rows at once.
        says(
            worker.push(&key("m"), rows(5, 1), 1.0),
            &["variable `m`", "moves the untouched rows too", "`.lazy()`"],
        );
        assert_eq!(worker.pull(&key("t")).unwrap(), start.clone().into());
        assert_eq!(worker.pull(&key("m")).unwrap(), start.into());
        worker.init(&key("one"), arr0(1.0f64).into()).unwrap();
        says(worker.push(&key("one"), rows(1, 0), 1.0), &["gradient", "f64[], got selected_rows f64[1, 2]"]);
    }
    let error = SelectedRows::new(5, vec![-1], array![[1.0, 2.0]]).unwrap_err().to_string();
    assert!(error.contains("0 or more and below the table's height of 5"), "{error}");
}

#[test]
fn values_that_no_key_can_have() {
    let mut worker = alone(&store(2));
    says(worker.init(&key("i"), array![1i64].into()), &["variable `i`", "f32 or f64", "got i64 dense"]);
    let csr = Storage::from(array![[1.0]]).convert(StorageKind::Csr).unwrap();
    says(worker.init(&key("s"), csr), &["dense or selected rows", "got f64 csr"]);
    says(worker.init(&key("n"), array![1.0, f64::NAN].into()), &["value of a key", "NaN at [1]"]);
    says(worker.pull(&key("n")), &["got none"]);
    for shards in [0, 100_000] {
        says(LocalStore::new(&ops::catalogue(), shards), &["shards: expected 1 to 1024"]);
        says(store(1).workers(shards, ALONE), &["workers: expected 1 to 1024"]);
    }
    // No rows, and rows of no number.
    worker.init(&key("none"), Array2::<f32>::zeros((0, 3)).into()).unwrap();
    worker.init(&key("narrow"), Array2::<f32>::zeros((3, 0)).into()).unwrap();
    for (name, shape) in [("none", [0, 3]), ("narrow", [3, 0])] {
        worker.push(&key(name), Dense::zeros(DType::F32, &shape).unwrap().into(), 1.0).unwrap();
        assert_eq!(worker.pull(&key(name)).unwrap().shape(), shape);
    }
    assert_eq!(worker.row_sparse_pull(&key("narrow"), vec![2, 2]).unwrap().shape(), [2, 0]);
}

/// A program of a value and the rule that moves it, as a training has it.
struct Whole {
    executor: Executor,
    scope: Scope,
    grad: VarId,
    steps: u64,
}

impl Whole {
    fn new(optimizer: &dyn Optimizer, start: &Dense, storage: StorageKind) -> Self {
        let mut program = Program::new();
        let spec = Spec::fixed(start.dtype(), start.shape()).unwrap();
        let var = |name: &str, role, spec| {
            let mut var = VarDesc::new(name, BlockId(0), VarKind::Tensor(spec), role);
            var.persistable = role == VarRole::Parameter;
            var.trainable = var.persistable;
            var.stop_gradient = true;
            var.initializer = var.persistable.then(|| Initializer::new("zeros", Attributes::new()));
            var
        };
        let param = program.add_var(var("value", VarRole::Parameter, spec.clone())).unwrap();
        let grad = program.add_var(var("grad", VarRole::Feed, spec.stored(storage)));
        let grad = grad.unwrap();
        optimizer.update(&mut program, &ops::catalogue(), vec![(param, grad)]).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        scope.set("value", start.clone()).unwrap();
        let executor = Executor::new(&program, &ops::catalogue(), &[], 1).unwrap();
        Self { executor, scope, grad, steps: 0 }
    }

    fn step(&mut self, gradient: Storage) -> Dense {
        let fed = Variable::new(gradient, None).unwrap();
        self.executor.run(&mut self.scope, &Run::train(&[(self.grad, &fed)], self.steps)).unwrap();
        self.steps += 1;
        self.scope.get("value").unwrap()
    }
}

/// Rules that update rows by themselves, each with the setting for gradients of selected rows.
pub(crate) fn rules() -> Vec<AnyOptimizer> {
    let options: [fn(&mut Options); 3] =
        [|_| {}, |rule| rule.clip_value = Some(0.5), |rule| rule.schedule = Schedule::step(3, 0.5)];
    let rules = OptimizerKind::variants().into_iter().filter(OptimizerVariant::is_by_rows);
    let rules = rules.zip(options.iter().cycle());
    let made = |(rule, change): (OptimizerVariant, &fn(&mut Options))| {
        rule.with(|options| {
            change(options);
            options.mode = SparseMode::Lazy;
        })
    };
    rules.map(made).collect()
}

/// In shards or whole, a rule has the bits that it has in a program.
#[test]
fn every_rule_is_that_of_a_program() {
    for optimizer in rules() {
        for storage in [StorageKind::Dense, StorageKind::SelectedRows] {
            let start = Dense::from(numbers((9, 4), 1));
            let mut whole = Whole::new(&optimizer, &start, storage);
            let mut workers = [1, 2, 4].map(|shards| alone(&store(shards)));
            for worker in &mut workers {
                worker.init(&key("t"), start.clone().into()).unwrap();
                worker.set_rule(&key("t"), rule(&optimizer)).unwrap();
            }
            let mut last = start;
            for step in 0..8 {
                let gradient = || match storage {
                    StorageKind::Dense => Storage::from(numbers((9, 4), 10 + step)),
                    // One has no row at all.
                    _ => some_rows(9, 4, if step == 4 { 0 } else { 5 }, 10 + step).into(),
                };
                let expected = whole.step(gradient());
                assert!(step == 4 || expected != last, "it moves");
                for worker in &mut workers {
                    worker.push(&key("t"), gradient(), 3.0).unwrap();
                    let got = worker.pull(&key("t")).unwrap();
                    assert!(
                        got.bits_eq(&expected),
                        "{:?} {storage} step {step}",
                        optimizer.rule().unwrap().kind
                    );
                }
                last = expected;
            }
        }
    }
}

#[test]
fn rules_that_need_more_than_a_row_are_refused() {
    let catalogue = ops::catalogue();
    let made = |optimizer: &dyn Optimizer| Rule::new(optimizer, &catalogue);
    let by_rows = "update operators that take each row by itself";
    says(made(&Sgd::new(0.1).clip_norm(1.0)), &["rule of a key", by_rows, "got `global_norm`", file!()]);
    says(made(&Adam::new(0.1).clip_global_norm(1.0)), &[by_rows, "got `global_norm`"]);
    says(made(&Lamb::new(0.1)), &[by_rows, "got `lamb`"]);
    says(made(&Adam::new(0.1).adjustable()), &["a rate by a schedule", "`adjustable`"]);
    says(made(&Adam::new(0.1).group(Group::of(["a"]))), &["an optimizer without groups"]);
    says(made(&Adam::new(-0.1)), &["0"]);
    let mut worker = alone(&store(2));
    worker.init(&key("t"), numbers((5, 2), 1).into()).unwrap();
    worker.set_rule(&key("t"), rule(&Adam::new(0.1))).unwrap();
    worker.push(&key("t"), numbers((5, 2), 2).into(), 1.0).unwrap();
    says(worker.set_rule(&key("t"), rule(&Sgd::new(0.1))), &["none yet", "got `adam`"]);
}

#[test]
fn without_a_rule_a_push_adds() {
    let mut worker = alone(&store(3));
    worker.init(&key("t"), Array2::<f32>::zeros((5, 2)).into()).unwrap();
    worker.push(&key("t"), Array2::<f32>::ones((5, 2)).into(), 2.0).unwrap();
    let rows = SelectedRows::new(5, vec![4, 0, 4], array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]).unwrap();
    worker.push(&key("t"), rows.into(), 0.5).unwrap();
    let expected = array![[3.5f32, 4.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [5.0, 6.0]];
    assert_eq!(worker.pull(&key("t")).unwrap(), expected.into());
}

/// The store applies the weighted mean of the pushed gradients, with the same bits in any order of the workers.
#[test]
fn a_round_merges_in_the_order_of_the_workers() {
    let weights = [2.0, 0.0, 5.0, 1.0];
    // One in four mixed gradients is dense.
    let gradient = |worker: usize, round: u64, mixed: bool| -> Storage {
        match mixed && worker != 2 {
            true => some_rows(9, 4, 6, 7 * round + worker as u64).into(),
            false => numbers((9, 4), 7 * round + worker as u64).into(),
        }
    };
    for (mixed, optimizer) in [(false, Adam::new(0.1)), (true, Adam::new(0.1).lazy())] {
        let start = Dense::from(numbers((9, 4), 1));
        let mut expected = Whole::new(&optimizer, &start, StorageKind::Dense);
        let mut results: Vec<Dense> = Vec::new();
        for turn in 0..3u64 {
            let store = store(3);
            let mut workers = store.workers(4, Consistency::Synchronous).unwrap();
            workers[0].init(&key("t"), start.clone().into()).unwrap();
            workers[0].set_rule(&key("t"), rule(&optimizer)).unwrap();
            let seen: Vec<Vec<Dense>> = thread::scope(|scope| {
                let run = |(number, mut worker): (usize, LocalWorker)| {
                    scope.spawn(move || {
                        let mut seen = Vec::new();
                        for round in 0..10 {
                            let late = Random(turn * 100 + 10 * round + number as u64).below(3) as u64;
                            thread::sleep(Duration::from_millis(late));
                            worker.push(&key("t"), gradient(number, round, mixed), weights[number]).unwrap();
                            seen.push(worker.pull(&key("t")).unwrap());
                        }
                        seen
                    })
                };
                let running: Vec<_> = workers.into_iter().enumerate().map(run).collect();
                running.into_iter().map(|one| one.join().unwrap()).collect()
            });
            // Every worker sees every round.
            assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
            results.push(seen[0][9].clone());
            if turn == 0 {
                for (round, seen) in (0..).zip(&seen[0]) {
                    let mut mean = Array2::<f64>::zeros((9, 4));
                    for (worker, weight) in weights.iter().enumerate() {
                        let dense = gradient(worker, round, mixed).into_dense().unwrap();
                        mean.scaled_add(
                            weight / 8.0,
                            &dense.view::<f64>().unwrap().into_dimensionality::<Ix2>().unwrap(),
                        );
                    }
                    let expected = expected.step(mean.into());
                    for (a, b) in f64s(seen).iter().zip(f64s(&expected)) {
                        assert!((a - b).abs() < 1e-12, "round {round}: {a} for {b}");
                    }
                }
            }
        }
        assert!(results.iter().all(|result| result.bits_eq(&results[0])));
    }
}

/// Gradients that are all of selected rows stay so: Adam that is lazy leaves the others where they are.
#[test]
fn rounds_of_rows_touch_those_alone() {
    let store = store(2);
    let mut workers = store.workers(2, Consistency::Synchronous).unwrap();
    let start = Dense::from(numbers((6, 1), 1));
    workers[0].init(&key("t"), start.clone().into()).unwrap();
    workers[0].set_rule(&key("t"), rule(&Adam::new(0.1).lazy())).unwrap();
    for round in 0..3 {
        for (worker, ids) in workers.iter_mut().zip([vec![1, 4, 1], vec![4]]) {
            let ones = Array2::<f64>::ones((ids.len(), 1));
            let rows = SelectedRows::new(6, ids, ones).unwrap();
            worker.push(&key("t"), rows.into(), 1.0).unwrap();
        }
        let now = workers[1].pull(&key("t")).unwrap();
        let moved: Vec<usize> = (0..6).filter(|&i| f64s(&now)[i] != f64s(&start)[i]).collect();
        assert_eq!(moved, [1, 4], "round {round}");
    }
    // Nobody has a sample: nothing is merged, and the step is counted.
    for worker in &mut workers {
        worker.push(&key("t"), some_rows(6, 1, 0, 1).into(), 0.0).unwrap();
    }
    workers[0].pull(&key("t")).unwrap();
}

/// The sum of finite gradients may overflow; then no parameter moves, and all workers get an error.
#[test]
fn sums_beyond_all_numbers() {
    let store = store(2);
    let mut workers = store.workers(2, Consistency::Synchronous).unwrap();
    let start = Array2::<f32>::zeros((4, 1));
    workers[0].init(&key("t"), start.clone().into()).unwrap();
    let large = || Storage::from(SelectedRows::new(4, vec![0, 3], array![[1.0f32], [3e38]]).unwrap());
    workers[0].push(&key("t"), large(), 1.0).unwrap();
    says(
        workers[1].push(&key("t"), large(), 1.0),
        &["sum of gradients", "finite numbers, got -inf at [1, 0]"],
    );
    says(workers[0].pull(&key("t")), &["variable `t`", "sum of gradients"]);
    says(workers[0].push(&key("t"), large(), 1.0), &["sum of gradients"]);
    drop(workers);
    let mut worker = alone(&store);
    assert_eq!(worker.pull(&key("t")).unwrap(), start.into());
    // Equal rows of one gradient, too.
    let rows = SelectedRows::new(4, vec![0, 3, 3], array![[1.0f32], [3e38], [3e38]]).unwrap();
    says(worker.push(&key("t"), rows.into(), 1.0), &["sum of gradients"]);
    assert_eq!(worker.pull(&key("t")).unwrap(), Array2::<f32>::zeros((4, 1)).into());
}
