//! Several trainers of one model over a key-value store: in step they equal one trainer, and asynchronously they learn.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ndarray::{Array1, Array2};
use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::{Embedding, EmbeddingBag};
use unpadded::op::Attributes;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::program::{Initializer, VarId};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalWorker, Rule, StoreTrainer, share};
use unpadded::tensor::{Dense, Storage, StorageKind};
use unpadded::{Builder, DType, Program, Result, Var, Variable, ops};

use crate::models::Random;
use crate::store::{ALONE, alone, says, store};

const WORDS: usize = 60;

pub(crate) struct Model {
    pub(crate) program: Program,
    pub(crate) words: VarId,
    pub(crate) label: VarId,
    pub(crate) loss: VarId,
}

/// A table, read word by word and as a bag, a recurrent layer, and a classifier, in f64.
pub(crate) fn model(optimizer: &dyn Optimizer) -> Model {
    let net = Builder::new().seed(5);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let table = Embedding::new(WORDS, 6).dtype(DType::F64).sparse();
    let x = words.embedding(table);
    let bag = words.embedding_bag(EmbeddingBag::new(WORDS, 5).dtype(DType::F64).sparse());
    let last = x.gru(7).dropout(0.2).sequence_pool(Pool::Last);
    let loss = (last.linear(3) + bag.linear(3)).cross_entropy(label).mean();
    let (words, label, loss) = (words.id(), label.id(), loss.id());
    let mut program = net.finish().unwrap();
    optimizer.minimize(&mut program, &ops::catalogue(), loss).unwrap();
    Model { program, words, label, loss }
}

/// Words of one of three classes, in ragged sequences, and the classes.
pub(crate) fn batch(number: u64, sequences: usize) -> [Variable; 2] {
    let mut random = Random(31 * number + 7);
    let (mut words, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..sequences {
        let class = random.below(3);
        let length = 1 + random.below(7);
        // Every other word determines the class.
        let word = |random: &mut Random| match random.below(2) {
            0 => random.below(WORDS),
            _ => 3 * random.below(WORDS / 3) + class,
        };
        words.push((0..length).map(|_| word(&mut random) as i64).collect::<Vec<i64>>());
        labels.push(class as i64);
    }
    [Variable::from_sequences(&words).unwrap(), Variable::dense(Array1::from(labels))]
}

/// A store that counts the rows and tables that pass through it.
struct Counted {
    worker: LocalWorker,
    counts: &'static Counts,
}

#[derive(Default)]
struct Counts {
    /// A part of the names of the parameters whose gradients are rows.
    table: &'static str,
    rows_pulled: AtomicUsize,
    rows_pushed: AtomicUsize,
    tables_pulled: AtomicUsize,
}

impl KeyValueStore for Counted {
    fn init(&mut self, key: &Key, value: Storage) -> Result<()> {
        self.worker.init(key, value)
    }
    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()> {
        self.worker.set_rule(key, rule)
    }
    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()> {
        if let Storage::SelectedRows(rows) = &gradient {
            self.counts.rows_pushed.fetch_add(rows.row_ids().len(), Ordering::SeqCst);
        }
        assert_eq!(gradient.kind() == StorageKind::SelectedRows, key.to_string().contains(self.counts.table));
        self.worker.push(key, gradient, weight)
    }
    fn pull(&mut self, key: &Key) -> Result<Dense> {
        self.counts
            .tables_pulled
            .fetch_add(usize::from(key.to_string().contains(self.counts.table)), Ordering::SeqCst);
        self.worker.pull(key)
    }
    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense> {
        self.counts.rows_pulled.fetch_add(ids.len(), Ordering::SeqCst);
        self.worker.row_sparse_pull(key, ids)
    }
    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>> {
        self.worker.sum(numbers)
    }
    fn end_round(&mut self) -> Result<()> {
        self.worker.end_round()
    }
    fn save(&mut self, path: &std::path::Path) -> Result<()> {
        self.worker.save(path)
    }
    fn restore(&mut self, path: &std::path::Path) -> Result<()> {
        self.worker.restore(path)
    }
}

const STEPS: u64 = 60;
const SEQUENCES: usize = 10;

/// The part of a batch that a worker gets: of unlike sizes, and sometimes nothing.
pub(crate) fn part(worker: usize, workers: usize, step: u64) -> std::ops::Range<usize> {
    let bound = |at: usize| match at {
        0 => 0,
        at if at == workers => SEQUENCES,
        at => (SEQUENCES * at / workers + step as usize % 3).min(SEQUENCES),
    };
    let bound = |at| if step % 10 == 9 && at > 0 { SEQUENCES } else { bound(at) };
    bound(worker)..bound(worker + 1)
}

/// Parameters after some steps of several workers, and the loss of each step on the joined batch.
fn together(model: &Model, workers: usize) -> (Vec<(String, Dense)>, Vec<f64>) {
    let values = store(3);
    let mut handles = values.workers(workers, Consistency::Synchronous).unwrap();
    share(&model.program, &mut Scope::of(&model.program).unwrap(), &mut handles[0]).unwrap();
    let counts: &'static Counts = Box::leak(Box::new(Counts { table: "embedding", ..Counts::default() }));
    let mut losses = vec![0.0; STEPS as usize];
    thread::scope(|scope| {
        let run = |(number, worker): (usize, LocalWorker)| {
            scope.spawn(move || {
                let worker = Counted { worker, counts };
                let mut trainer =
                    StoreTrainer::new(&model.program, &ops::catalogue(), model.loss, worker).unwrap();
                let mut losses = Vec::new();
                for step in 0..STEPS {
                    let part = part(number, workers, step);
                    let [words, label] =
                        batch(step, SEQUENCES).map(|x| x.slice_sequences(part.clone()).unwrap());
                    let numbers: Vec<u64> = part.clone().map(|i| i as u64).collect();
                    let feeds = [(model.words, &words), (model.label, &label)];
                    losses
                        .push(trainer.step(&feeds, &numbers).unwrap() * part.len() as f64 / SEQUENCES as f64);
                }
                losses
            })
        };
        let running: Vec<_> = handles.into_iter().enumerate().map(run).collect();
        for one in running {
            losses.iter_mut().zip(one.join().unwrap()).for_each(|(sum, loss)| *sum += loss);
        }
    });
    // Only the rows of a batch travel: at most one a word and table, of 2 tables.
    let most = 2 * SEQUENCES * 7 * STEPS as usize;
    let Counts { rows_pulled, rows_pushed, tables_pulled, .. } = counts;
    for rows in [rows_pulled, rows_pushed] {
        assert!((1..most).contains(&rows.load(Ordering::SeqCst)));
    }
    assert_eq!(tables_pulled.load(Ordering::SeqCst), 0);
    let mut worker = alone(&values);
    let names = model.program.trained_parameters().map(|id| model.program.var(id).name.clone());
    (names.map(|name| (name.clone(), worker.pull(&Key::from(&*name)).unwrap())).collect(), losses)
}

/// Returns the parameters and losses of one trainer on the joined batches.
fn one(model: &Model) -> (Vec<(String, Dense)>, Vec<f64>) {
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = Executor::new(&model.program, &ops::catalogue(), &[model.loss], 1).unwrap();
    let numbers: Vec<u64> = (0..SEQUENCES as u64).collect();
    let losses = (0..STEPS).map(|step| {
        let [words, label] = batch(step, SEQUENCES);
        let feeds = [(model.words, &words), (model.label, &label)];
        executor.run(&mut scope, &Run::train(&feeds, step).numbers(&numbers)).unwrap();
        executor.scalar(model.loss).unwrap()
    });
    let losses = losses.collect();
    settle(&model.program, &ops::catalogue(), &mut scope, 1).unwrap();
    let names = model.program.trained_parameters().map(|id| model.program.var(id).name.clone());
    (names.map(|name| (name.clone(), scope.get(&name).unwrap())).collect(), losses)
}

#[test]
fn workers_that_keep_step_are_one_trainer() {
    let optimizers: [Box<dyn Optimizer>; 5] = [
        Box::new(Sgd::new(0.3)),
        Box::new(Adagrad::new(0.1)),
        Box::new(Adam::new(0.02).lazy()),
        Box::new(Adam::new(0.02)),
        Box::new(Sgd::new(0.1).momentum(0.9).weight_decay(0.001)),
    ];
    for optimizer in optimizers {
        let model = model(&*optimizer);
        let (expected, losses) = one(&model);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        assert!(mean(&losses[50..]) < 0.8 * mean(&losses[..10]), "it learns");
        for workers in [2, 4] {
            let (got, got_losses) = together(&model, workers);
            assert_eq!(got.len(), expected.len());
            let start = Scope::of(&model.program).unwrap().clone();
            for ((name, got), (_, expected)) in got.iter().zip(&expected) {
                assert_ne!(&start.clone().get(name).unwrap(), got, "`{name}` moves");
                for (a, b) in got.as_slice::<f64>().unwrap().iter().zip(expected.as_slice::<f64>().unwrap()) {
                    assert!((a - b).abs() < 1e-6, "{workers} workers, `{name}`: {a} for {b}");
                }
            }
            for (a, b) in got_losses.iter().zip(&losses) {
                assert!((a - b).abs() < 1e-6, "{workers} workers: loss {a} for {b}");
            }
            // And again, with the same bits whatever the threads do.
            let (again, _) = together(&model, workers);
            assert!(again.iter().zip(&got).all(|((_, a), (_, b))| a.bits_eq(b)));
        }
    }
}

/// Without waiting for each round's end they learn as well, each on batches of its own, and none is too far ahead.
#[test]
fn workers_that_run_ahead_learn() {
    const WORKERS: usize = 3;
    for staleness in [0, 2] {
        let model = model(&Adagrad::new(0.1));
        let values = store(3);
        let mut handles =
            values.workers(WORKERS, Consistency::Asynchronous { staleness: Some(staleness) }).unwrap();
        share(&model.program, &mut Scope::of(&model.program).unwrap(), &mut handles[0]).unwrap();
        let begun: [AtomicU64; WORKERS] = Default::default();
        let losses: Vec<Vec<f64>> = thread::scope(|scope| {
            let run = |(number, worker): (usize, LocalWorker)| {
                let (model, begun) = (&model, &begun);
                scope.spawn(move || {
                    let mut trainer =
                        StoreTrainer::new(&model.program, &ops::catalogue(), model.loss, worker).unwrap();
                    let mut losses = Vec::new();
                    for step in 0..STEPS {
                        let [words, label] = batch(WORKERS as u64 * step + number as u64, SEQUENCES);
                        let feeds = [(model.words, &words), (model.label, &label)];
                        // Its step ends its round, and may wait. A worker that has begun round r has ended round r − 1.
                        begun[number].store(step + 1, Ordering::SeqCst);
                        losses.push(trainer.step(&feeds, &[]).unwrap());
                        let slowest = begun.iter().map(|one| one.load(Ordering::SeqCst)).min().unwrap();
                        assert!(step < slowest + staleness, "step {step} done beside one in its {slowest}th");
                    }
                    losses
                })
            };
            let running: Vec<_> = handles.into_iter().enumerate().map(run).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for losses in losses {
            let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
            let (first, last) = (mean(&losses[..10]), mean(&losses[50..]));
            // The machine decides how far the workers are apart, and how fast they learn.
            assert!(last < 0.92 * first, "{last} after {first}");
        }
    }
}

#[test]
fn what_several_trainers_cannot_share() {
    let make = |optimizer: Option<&dyn Optimizer>, row_sparse: bool, of_rows: bool| {
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], 1);
        let table = Embedding::new(9, 2);
        let x = words.embedding(if row_sparse { table.row_sparse() } else { table.sparse() });
        let y = x.linear(1);
        let rows = y * y;
        let loss = if of_rows { rows.mean() } else { (y - y.mean()).square().mean() };
        let mut program = net.finish().unwrap();
        if let Some(optimizer) = optimizer {
            optimizer.minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
        }
        (program, loss.id())
    };
    let shared = |program: &Program| {
        let mut worker = alone(&store(2));
        let shared = share(program, &mut Scope::of(program).unwrap(), &mut worker);
        // Either all keys are there or none.
        let made = program
            .trained_parameters()
            .filter(|&id| worker.pull(&Key::from(&*program.var(id).name)).is_ok())
            .count();
        assert_eq!(made > 0, shared.is_ok());
        shared.map(|()| worker)
    };
    let sgd = Sgd::new(0.1);
    let (program, loss) = make(None, false, true);
    says(shared(&program), &["parameters of a store", "got a program without updates", file!()]);
    says(
        StoreTrainer::new(&program, &ops::catalogue(), loss, alone(&store(1))),
        &["a program without updates", file!()],
    );
    let (program, _) = make(Some(&sgd), true, true);
    says(shared(&program), &["variable `embedding_0.weight`", "a row-sparse parameter"]);
    let (program, _) = make(Some(&Sgd::new(0.1).clip_global_norm(1.0)), false, true);
    says(shared(&program), &["variable `embedding_0.weight`", "each row by itself, got `global_norm`"]);
    let (program, loss) = make(Some(&sgd), false, false);
    let worker = shared(&program).unwrap();
    let words = [
        "expected sums and means over rows",
        "a number of the whole batch",
        "workers of a store take no weight of a batch",
        file!(),
    ];
    says(StoreTrainer::new(&program, &ops::catalogue(), loss, worker), &words);
    // A store without the parameters.
    let (program, loss) = make(Some(&sgd), false, true);
    let mut trainer = StoreTrainer::new(&program, &ops::catalogue(), loss, alone(&store(1))).unwrap();
    let words = program.find("words").unwrap();
    let fed = Variable::from_sequences(&[vec![1i64]]).unwrap();
    says(
        trainer.step(&[(words, &fed)], &[]),
        &["variable `embedding_0.weight`", "a key that `init` made", file!()],
    );
    // An id beyond the table, and numbers that are not finite: named, and nothing is pushed.
    let mut trainer =
        StoreTrainer::new(&program, &ops::catalogue(), loss, shared(&program).unwrap()).unwrap();
    let before = trainer.scope().unwrap().get("embedding_0.weight").unwrap();
    for id in [9, -1] {
        let fed = Variable::from_sequences(&[vec![1i64, id]]).unwrap();
        says(trainer.step(&[(words, &fed)], &[]), &["embedding", &id.to_string(), "9"]);
    }
    assert_eq!(trainer.scope().unwrap().get("embedding_0.weight").unwrap(), before);
    trainer.step(&[(words, &fed)], &[]).unwrap();
    assert_ne!(trainer.scope().unwrap().get("embedding_0.weight").unwrap(), before);
}

/// A loss that is not finite is found before anything is pushed.
#[test]
fn a_loss_beyond_all_numbers() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let y = x.linear(1);
    let loss = (y * y).mean();
    let (words, loss) = (x.id(), loss.id());
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss).unwrap();
    let values = store(1);
    let mut workers = values.workers(1, ALONE).unwrap();
    share(&program, &mut Scope::of(&program).unwrap(), &mut workers[0]).unwrap();
    let mut trainer = StoreTrainer::new(&program, &ops::catalogue(), loss, workers.remove(0)).unwrap();
    let large = Variable::dense(ndarray::array![[3e38f32, -1e38]]);
    let before = trainer.scope().unwrap().get("linear_0.weight").unwrap();
    let error = trainer.step(&[(words, &large)], &[]).unwrap_err();
    assert_eq!(error.kind(), unpadded::ErrorKind::NotFinite);
    says(Err::<(), _>(error), &["loss", "nothing was pushed"]);
    assert_eq!(trainer.scope().unwrap().get("linear_0.weight").unwrap(), before);
}

type RowLoss = fn(root: Var, y: Var, x: Var) -> Var;

/// Returns the losses of two workers in each step, the second with other rows: √(x w) and y v, of 1 word and of one number per
/// sequence.
fn in_step(loss: RowLoss, steps: [[f64; 2]; 4]) -> [Vec<Result<f64>>; 2] {
    let net = Builder::new().seed(2);
    let (x, y) = (net.feed("x", DType::F64, &[], 1), net.feed("y", DType::F64, &[], 0));
    let one = || Initializer::new("constant", Attributes::new().with("value", 1.0));
    let [w, v] = ["w", "v"].map(|name| net.parameter(name, DType::F64, &[], one()));
    let loss = loss((x * w).sqrt(), y * v, x).id();
    let (x, y, mut program) = (x.id(), y.id(), net.finish().unwrap());
    Sgd::new(1e-3).minimize(&mut program, &ops::catalogue(), loss).unwrap();
    let mut handles = store(1).workers(2, Consistency::Synchronous).unwrap();
    share(&program, &mut Scope::of(&program).unwrap(), &mut handles[0]).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    // A worker that waits for ever does not hold the test.
    for (number, worker) in handles.into_iter().enumerate() {
        let (program, send) = (program.clone(), send.clone());
        thread::spawn(move || {
            let mut trainer = StoreTrainer::new(&program, &ops::catalogue(), loss, worker).unwrap();
            let step = |step: &[f64; 2]| {
                let row = Variable::from_sequences(&[vec![step[number]]]).unwrap();
                let label = Variable::dense(Array1::from(vec![0.5]));
                trainer.step(&[(x, &row), (y, &label)], &[])
            };
            let outcomes = steps.iter().map(step).collect::<Vec<_>>();
            drop(trainer);
            send.send((number, outcomes)).unwrap();
        });
    }
    let mut outcomes = [Vec::new(), Vec::new()];
    for _ in 0..2 {
        let (number, from) = receive.recv_timeout(Duration::from_secs(60)).expect("no worker waits for ever");
        outcomes[number] = from;
    }
    outcomes
}

/// If one worker's gradient is not finite after the workers have met, each worker gets an error, and all continue.
#[test]
fn a_gradient_that_is_not_finite_fails_the_step_of_all_workers() {
    let counted: RowLoss = |x, y, _| x.mean() + y.mean() * 0.3;
    let by_value: RowLoss = |x, y, _| x.mean() * y.mean();
    // The square root of 0 has no gradient.
    let (bad, good) =
        ([[1.0, 4.0], [1.0, 0.0], [2.0, 3.0], [1.0, 1.0]], [[1.0, 4.0], [2.0, 3.0], [1.0, 1.0], [1.0, 1.0]]);
    for loss in [counted, by_value] {
        let [[one, two], [expected, _]] = [in_step(loss, bad), in_step(loss, good)];
        for (outcomes, words) in
            [(&one, "the gradients of all workers, got no gradients of 1 of 2 workers"), (&two, "`w`")]
        {
            let losses: Vec<Option<f64>> =
                outcomes.iter().map(|outcome| outcome.as_ref().ok().copied()).collect();
            let wanted: Vec<f64> = expected[..3].iter().map(|outcome| *outcome.as_ref().unwrap()).collect();
            assert_eq!(losses, [Some(wanted[0]), None, Some(wanted[1]), Some(wanted[2])]);
            let error = outcomes[1].as_ref().unwrap_err();
            assert_eq!(error.kind(), unpadded::ErrorKind::NotFinite, "{error}");
            let error = error.to_string();
            assert!(error.contains(words) && error.contains("nothing was pushed"), "{error}");
        }
    }
}

/// A worker that fails when the others wait for its gradient alone does not wait for them in its next step.
#[test]
fn a_worker_that_owes_its_gradient_is_not_waited_for() {
    // The difference is 0, and its gradient for the second worker's number beyond all numbers.
    let steep: RowLoss = |root, _, x| (root - x.sqrt()).mean() * 1e200;
    let [one, two] = in_step(steep, [[1.0, 1e300], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]);
    let [one, two] =
        [one, two].map(|outcomes| outcomes.into_iter().map(|outcome| outcome.map_err(|e| e.to_string())));
    let (one, two): (Vec<_>, Vec<_>) = (one.collect(), two.collect());
    assert_eq!(one[0], Ok(0.0));
    assert!(one[1].as_ref().is_err_and(|e| e.contains("none of worker 1, which has left")), "{one:?}");
    assert!(two[0].as_ref().is_err_and(|e| e.contains("`w`") && e.contains("nothing was pushed")), "{two:?}");
    for again in &two[1..] {
        assert!(again.as_ref().is_err_and(|e| e.contains("drop this trainer")), "{two:?}");
    }
}

/// A batch norm sees the part of each worker by itself.
#[test]
fn an_operator_that_looks_at_a_whole_batch_is_warned_of() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let (line, y) = (line!(), net.layer(unpadded::layers::Norm::batch()).of(x.linear(2)));
    let loss = y.square().mean().id();
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss).unwrap();
    let mut worker = alone(&store(1));
    share(&program, &mut Scope::of(&program).unwrap(), &mut worker).unwrap();
    let warnings = StoreTrainer::new(&program, &ops::catalogue(), loss, worker).unwrap().warnings();
    let words = format!("warning: `batch_norm`, called at {}:{line}:", file!());
    assert!(warnings.len() == 1 && warnings[0].starts_with(&words), "{warnings:?}");
}

/// A classifier of sparse rows: only the occurring columns of its weight are sent.
#[test]
fn rows_of_a_sparse_product_travel_alone() {
    const COLUMNS: usize = 40;
    let net = Builder::new().seed(2);
    let x = net.feed_csr("x", DType::F64, COLUMNS, 0);
    let label = net.feed("label", DType::I64, &[], 0);
    let loss = x.linear(3).cross_entropy(label).mean();
    let (x, label, loss) = (x.id(), label.id(), loss.id());
    let mut program = net.finish().unwrap();
    Adagrad::new(0.3).minimize(&mut program, &ops::catalogue(), loss).unwrap();
    let batch = |step: u64| {
        let mut random = Random(step);
        let mut rows = Array2::<f64>::zeros((6, COLUMNS));
        for mut row in rows.outer_iter_mut() {
            (0..3).for_each(|_| row[random.below(COLUMNS)] = 1.0);
        }
        let labels = Array1::from_shape_fn(6, |i| i64::from(rows[[i, 0]] + rows[[i, 1]] > 0.0));
        let csr = Storage::from(rows).convert(StorageKind::Csr).unwrap();
        [Variable::new(csr, None).unwrap(), Variable::dense(labels)]
    };
    let (mut scope, catalogue) = (Scope::of(&program).unwrap(), ops::catalogue());
    let mut executor = Executor::new(&program, &catalogue, &[loss], 1).unwrap();
    let values = store(2);
    let mut workers = values.workers(2, Consistency::Synchronous).unwrap();
    share(&program, &mut Scope::of(&program).unwrap(), &mut workers[0]).unwrap();
    let counts: &'static Counts = Box::leak(Box::new(Counts { table: "weight", ..Counts::default() }));
    let trainer = |worker| StoreTrainer::new(&program, &catalogue, loss, Counted { worker, counts }).unwrap();
    let mut trainers: Vec<_> = workers.into_iter().map(trainer).collect();
    for step in 0..20 {
        let [rows, labels] = batch(step);
        executor.run(&mut scope, &Run::train(&[(x, &rows), (label, &labels)], step)).unwrap();
        // One after another on this thread: a push does not wait for the others.
        for (trainer, part) in trainers.iter_mut().zip([0..4, 4..6]) {
            let [rows, labels] =
                [&rows, &labels].map(|variable| variable.slice_sequences(part.clone()).unwrap());
            trainer.step(&[(x, &rows), (label, &labels)], &[]).unwrap();
        }
    }
    let pulled = counts.rows_pulled.load(Ordering::SeqCst);
    assert!((1..=20 * 18).contains(&pulled), "{pulled}");
    assert_eq!(counts.rows_pushed.load(Ordering::SeqCst), pulled);
    for name in ["linear_0.weight", "linear_0.bias"] {
        let (got, expected) = (trainers[0].scope().unwrap().get(name).unwrap(), scope.get(name).unwrap());
        for (a, b) in got.as_slice::<f64>().unwrap().iter().zip(expected.as_slice::<f64>().unwrap()) {
            assert!((a - b).abs() < 1e-12, "`{name}`: {a} for {b}");
        }
    }
}

/// Saved amid a training, restored into another store, with other trainers: the same bits as without a pause.
#[test]
fn a_training_goes_on_where_it_was_saved() {
    let model = model(&Adam::new(0.02).lazy());
    let file = std::env::temp_dir().join(format!("unpadded-store-training-{}", std::process::id()));
    let start = |from: u64| {
        let values = store(3);
        let mut workers = values.workers(2, Consistency::Synchronous).unwrap();
        share(&model.program, &mut Scope::of(&model.program).unwrap(), &mut workers[0]).unwrap();
        let trainer =
            |worker| StoreTrainer::new(&model.program, &ops::catalogue(), model.loss, worker).unwrap();
        workers.into_iter().map(|worker| trainer(worker).from_step(from)).collect::<Vec<_>>()
    };
    let train = |trainers: &mut Vec<StoreTrainer<LocalWorker>>, steps: std::ops::Range<u64>| {
        for step in steps {
            let [words, label] = batch(step, SEQUENCES);
            for (trainer, part) in trainers.iter_mut().zip([0..6, 6..SEQUENCES]) {
                let [words, label] = [&words, &label].map(|x| x.slice_sequences(part.clone()).unwrap());
                trainer.step(&[(model.words, &words), (model.label, &label)], &[]).unwrap();
            }
        }
    };
    let mut whole = start(0);
    train(&mut whole, 0..8);
    whole[1].store().save(&file).unwrap();
    train(&mut whole, 8..16);
    let mut resumed = start(8);
    resumed[0].store().restore(&file).unwrap();
    train(&mut resumed, 8..16);
    for name in model.program.trained_parameters().map(|id| &model.program.var(id).name) {
        let [one, two] = [&mut whole, &mut resumed].map(|all| all[0].scope().unwrap().get(name).unwrap());
        assert!(one.bits_eq(&two), "`{name}`");
    }
    std::fs::remove_file(file).unwrap();
}
