//! Rules that move rows without a gradient, too: in a store these have the numbers of dense gradients whenever they are pulled.

use ndarray::array;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::init;
use unpadded::op::Debt;
use unpadded::optimizer::{Adam, AdamW, AnyOptimizer, Optimizer, OptimizerKind, Options, Schedule};
use unpadded::program::VarId;
use unpadded::store::{KeyValueStore, LocalWorker};
use unpadded::tensor::{Dense, SelectedRows, Storage, StorageKind};
use unpadded::{Builder, DType, Variable, ops};

use crate::models::Random;
use crate::store::{alone, key, numbers, rule, says, some_rows, store};

/// Rules under which untouched rows move.
pub(crate) fn exact_rules() -> Vec<AnyOptimizer> {
    let options: [fn(&mut Options); 3] =
        [|_| {}, |build| build.clip_value = Some(0.5), |build| build.schedule = Schedule::step(7, 0.5)];
    let owing = OptimizerKind::variants().into_iter().filter(|build| build.owes == Debt::Later);
    owing.zip(options.iter().cycle()).map(|(build, change)| build.with(change)).collect()
}

const SHAPE: (usize, usize) = (9, 4);

/// The rule on dense gradients, in a program.
struct Reference {
    executor: Executor,
    scope: Scope,
    grad: VarId,
    steps: u64,
}

impl Reference {
    fn new(optimizer: &dyn Optimizer, start: &Dense) -> Self {
        let net = Builder::new();
        let param = net.parameter("t", DType::F64, start.shape(), init::constant(0.0));
        let grad = net.feed_stored("grad", DType::F64, &[Some(SHAPE.0), Some(SHAPE.1)], StorageKind::Dense);
        let mut program = net.finish().unwrap();
        optimizer.update(&mut program, &ops::catalogue(), vec![(param.id(), grad.id())]).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        scope.set("t", start.clone()).unwrap();
        let executor = Executor::new(&program, &ops::catalogue(), &[], 1).unwrap();
        Self { executor, scope, grad: grad.id(), steps: 0 }
    }

    fn step(&mut self, gradient: Storage) {
        let fed = Variable::new(gradient, None).unwrap();
        self.executor.run(&mut self.scope, &Run::train(&[(self.grad, &fed)], self.steps)).unwrap();
        self.steps += 1;
    }

    fn value(&mut self) -> Dense {
        self.scope.get("t").unwrap()
    }
}

#[track_caller]
pub(crate) fn near(got: &Dense, expected: &Dense, what: &str) {
    let (got, expected) = (got.as_slice::<f64>().unwrap(), expected.as_slice::<f64>().unwrap());
    assert_eq!(got.len(), expected.len());
    for (a, b) in got.iter().zip(expected) {
        assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{what}: {a} for {b}");
    }
}

fn begun(optimizer: &dyn Optimizer, start: &Dense, shards: usize) -> LocalWorker {
    let mut worker = alone(&store(shards));
    worker.init(&key("t"), start.clone().into()).unwrap();
    worker.set_rule(&key("t"), rule(optimizer)).unwrap();
    worker
}

/// Few rows at a time, none at all, and now and then a dense gradient, which shards see in turn.
fn gradient(step: u64) -> Storage {
    match step % 11 {
        4 => some_rows(SHAPE.0, SHAPE.1, 0, step).into(),
        9 if step > 60 => numbers(SHAPE, step).into(),
        _ => some_rows(SHAPE.0, SHAPE.1, 2, step).into(),
    }
}

#[test]
fn rows_without_a_gradient_move_as_under_the_dense_rule() {
    for optimizer in exact_rules() {
        let start = Dense::from(numbers(SHAPE, 1));
        let mut dense = Reference::new(&optimizer, &start);
        let mut workers = [1, 2, 4].map(|shards| begun(&optimizer, &start, shards));
        let mut random = Random(3);
        let what = format!("{:?}", optimizer.rule().unwrap());
        for step in 0..150 {
            dense.step(gradient(step).into_dense().unwrap().into());
            let ids: Vec<i64> = (0..3).map(|_| random.below(SHAPE.0) as i64).collect();
            let places: Vec<usize> = ids.iter().map(|&id| id as usize).collect();
            for worker in &mut workers {
                worker.push(&key("t"), gradient(step), 1.0).unwrap();
                if step % 3 == 0 {
                    let rows = worker.row_sparse_pull(&key("t"), ids.clone()).unwrap();
                    near(&rows, &dense.value().gather_rows(&places).unwrap(), &what);
                }
                if step % 40 == 39 {
                    near(&worker.pull(&key("t")).unwrap(), &dense.value(), &what);
                }
            }
        }
        let end = dense.value();
        assert!(end != start);
        for worker in &mut workers {
            near(&worker.pull(&key("t")).unwrap(), &end, &what);
        }
    }
}

/// A row that is touched for the last time owes more updates than the store remembers.
#[test]
fn a_gap_may_be_longer_than_the_history() {
    let optimizer = AdamW::new(0.001).weight_decay(0.01);
    let start = Dense::from(numbers((9, 1), 1));
    let mut worker = begun(&optimizer, &start, 2);
    let mut other = begun(&optimizer, &start, 2);
    let first = |worker: &mut LocalWorker| worker.push(&key("t"), some_rows(9, 1, 9, 1).into(), 1.0).unwrap();
    first(&mut worker);
    first(&mut other);
    for step in 0..20_000u64 {
        let one = || Storage::from(SelectedRows::new(9, vec![3], array![[(step as f64).cos()]]).unwrap());
        worker.push(&key("t"), one(), 1.0).unwrap();
        other.push(&key("t"), one(), 1.0).unwrap();
        // The other one is looked at often.
        if step % 500 == 0 {
            other.pull(&key("t")).unwrap();
        }
    }
    near(&worker.pull(&key("t")).unwrap(), &other.pull(&key("t")).unwrap(), "after 20,000 updates");
}

#[test]
fn a_rule_whose_moves_cannot_wait_takes_dense_gradients_alone() {
    let mut worker = begun(&Adam::new(0.1).weight_decay(0.1), &Dense::from(numbers(SHAPE, 1)), 2);
    let rows = || Storage::from(some_rows(SHAPE.0, SHAPE.1, 3, 1));
    says(worker.push(&key("t"), rows(), 1.0), &["variable `t`", "gradient of selected rows", "`.lazy()`"]);
    assert_eq!(worker.pull(&key("t")).unwrap(), numbers(SHAPE, 1).into());
    worker.push(&key("t"), numbers(SHAPE, 2).into(), 1.0).unwrap();
    assert_ne!(worker.pull(&key("t")).unwrap(), numbers(SHAPE, 1).into());
}
