//! Workers of a key-value store on threads: no pushed gradient is lost, no worker is too far ahead, and a dead worker harms no
//! other.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ndarray::{Array2, array};
use unpadded::op::{Attributes, CheckCase, Facts, Forward, InferShape, LodEffect, Op};
use unpadded::optimizer::{Optimizer, Options, UpdateRule};
use unpadded::store::{Consistency, KeyValueStore, LocalStore, LocalWorker, Rule};
use unpadded::tensor::{SelectedRows, Storage};
use unpadded::{Result, operator, ops};

use crate::models::Random;
use crate::store::{ALONE, alone, key, says, store};

/// A worker whose thread panics is not waited for, and the gradients pushed in its round are dropped.
#[test]
fn a_worker_that_dies() {
    let store = store(2);
    let mut workers = store.workers(3, Consistency::Synchronous).unwrap();
    workers[0].init(&key("t"), Array2::<f64>::zeros((4, 1)).into()).unwrap();
    let died = thread::scope(|scope| {
        let [mut one, mut two, mut three] = <[LocalWorker; 3]>::try_from(workers).ok().unwrap();
        let ones = || Storage::from(Array2::<f64>::ones((4, 1)));
        let running = [
            scope.spawn(move || {
                one.push(&key("t"), ones(), 1.0).unwrap();
                one.pull(&key("t")).unwrap();
                one.push(&key("t"), ones(), 1.0).unwrap();
                let words = [
                    "variable `t`",
                    "round 2: expected the gradients of all 3 workers",
                    "worker 1, which has left",
                ];
                says(one.pull(&key("t")), &words);
                says(one.row_sparse_pull(&key("t"), vec![1]), &words);
                says(one.push(&key("t"), ones(), 1.0), &words);
            }),
            scope.spawn(move || {
                two.push(&key("t"), ones(), 1.0).unwrap();
                two.pull(&key("t")).unwrap();
                panic!("on purpose");
            }),
            scope.spawn(move || {
                three.push(&key("t"), ones(), 1.0).unwrap();
                three.pull(&key("t")).unwrap();
                three.push(&key("t"), ones(), 1.0).unwrap();
            }),
        ];
        running.map(|one| one.join().is_err())
    });
    assert_eq!(died, [false, true, false]);
    let mut worker = alone(&store);
    assert_eq!(worker.pull(&key("t")).unwrap(), Array2::<f64>::from_elem((4, 1), 3.0).into());
    says(store.workers(2, ALONE), &["workers of the store: expected no workers of an earlier call"]);
}

/// 1,000,000 random pushes by four threads: integers add up exactly in any order, so a lost one would show.
#[test]
fn no_push_is_lost() {
    const PUSHES: usize = 1_000_000;
    const HEIGHT: usize = 97;
    const WORKERS: usize = 4;
    let store = store(5);
    let mut workers = store.workers(WORKERS, ALONE).unwrap();
    workers[0].init(&key("t"), Array2::<f64>::zeros((HEIGHT, 2)).into()).unwrap();
    let expected: Vec<[f64; HEIGHT]> = thread::scope(|scope| {
        let run = |(number, mut worker): (usize, LocalWorker)| {
            scope.spawn(move || {
                let (mut random, mut expected) = (Random(number as u64), [0.0; HEIGHT]);
                for _ in 0..PUSHES / WORKERS {
                    let (id, amount) = (random.below(HEIGHT), random.below(1000) as f64);
                    expected[id] += amount;
                    let row = SelectedRows::new(HEIGHT, vec![id as i64], array![[amount, 1.0]]).unwrap();
                    worker.push(&key("t"), row.into(), 1.0).unwrap();
                }
                expected
            })
        };
        let running: Vec<_> = workers.into_iter().enumerate().map(run).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let sums = alone(&store).pull(&key("t")).unwrap();
    let sums = sums.view::<f64>().unwrap();
    assert_eq!(sums.outer_iter().map(|row| row[1]).sum::<f64>(), PUSHES as f64);
    for id in 0..HEIGHT {
        assert_eq!(sums[[id, 0]], expected.iter().map(|one| one[id]).sum::<f64>(), "row {id}");
    }
}

/// No worker is further ahead than allowed, and a faster worker waits at the bound.
#[test]
fn staleness_is_bounded() {
    const ROUNDS: u64 = 40;
    for staleness in [0, 2, 5] {
        let store = store(2);
        let mode = Consistency::Asynchronous { staleness: Some(staleness) };
        let mut workers = store.workers(3, mode).unwrap();
        workers[0].init(&key("t"), Array2::<f64>::zeros((4, 1)).into()).unwrap();
        let ended: [AtomicU64; 3] = Default::default();
        let most = AtomicU64::new(0);
        thread::scope(|scope| {
            for (number, mut worker) in workers.into_iter().enumerate() {
                let (ended, most) = (&ended, &most);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        // The first one takes its time.
                        if number == 0 {
                            thread::sleep(Duration::from_millis(2));
                        }
                        worker.push(&key("t"), Array2::<f64>::ones((4, 1)).into(), 1.0).unwrap();
                        // This count is at least the count of the store.
                        ended[number].store(round, Ordering::SeqCst);
                        worker.end_round().unwrap();
                        let slowest = ended.iter().map(|one| one.load(Ordering::SeqCst)).min().unwrap();
                        assert!(round <= slowest + staleness, "{round} beside {slowest}");
                        most.fetch_max(round - slowest, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), staleness, "they are as far ahead as they may be");
        let mut worker = alone(&store);
        assert_eq!(worker.pull(&key("t")).unwrap(), Array2::from_elem((4, 1), (3 * ROUNDS) as f64).into());
    }
}

#[test]
fn who_is_too_far_ahead_of_one_that_left_is_told() {
    let store = store(1);
    let mode = Consistency::Asynchronous { staleness: Some(1) };
    let mut workers = store.workers(2, mode).unwrap();
    drop(workers.remove(1));
    workers[0].end_round().unwrap();
    let words = ["round 3: expected every worker to have ended round 1", "worker 1, which left after 0"];
    says(workers[0].end_round(), &words);
    // Without a bound nobody is waited for.
    drop(workers);
    let mut workers = store.workers(2, ALONE).unwrap();
    drop(workers.remove(1));
    (0..5).for_each(|_| workers[0].end_round().unwrap());
}

operator! {
    /// Adds the gradient row by row. A 13 panics, a 14 fails, both amid the rows.
    pub(crate) struct Fragile = "test.fragile" { mode: String }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient() }
    outputs { PARAM = param: one.updated() }
}

impl Op for Fragile {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(Self::PARAM, s.input(Self::GRAD).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (grad, mut param) = (run.input::<f64>(Self::GRAD)?, run.output::<f64>(Self::PARAM)?);
        for (param, grad) in param.iter_mut().zip(grad.iter()) {
            assert!(grad[0] != 13.0, "on purpose");
            if grad[0] == 14.0 {
                return Err(unpadded::Error::new("number", "another", "14"));
            }
            param[0] += grad[0];
        }
        Ok(())
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

pub(crate) struct FragileRule(pub(crate) Options);

impl Optimizer for FragileRule {
    fn options(&self) -> &Options {
        &self.0
    }

    fn rule(&self) -> Result<UpdateRule> {
        Ok(UpdateRule { kind: "test.fragile", attributes: Attributes::new() })
    }
}

/// An operator that fails amid its rows leaves its key half updated: the store reports the key from then on, serves all other
/// keys, and is whole again after a restore.
#[test]
fn an_update_that_breaks_off() {
    let file = std::env::temp_dir().join(format!("unpadded-store-broken-{}", std::process::id()));
    for (mode, number) in
        [(ALONE, 13.0), (ALONE, 14.0), (Consistency::Synchronous, 13.0), (Consistency::Synchronous, 14.0)]
    {
        let mut registry = ops::catalogue();
        registry.add::<Fragile>().unwrap();
        let store = LocalStore::new(&registry, 2).unwrap();
        let mut workers = store.workers(2, mode).unwrap();
        let start = array![[1.0], [2.0], [3.0], [4.0]];
        for name in ["t", "u"] {
            workers[0].init(&key(name), start.clone().into()).unwrap();
            workers[0]
                .set_rule(&key(name), Rule::new(&FragileRule(Options::new(1.0)), &registry).unwrap())
                .unwrap();
        }
        workers[0].save(&file).unwrap();
        let bad = array![[1.0], [1.0], [number], [1.0]];
        let gathered = Barrier::new(2);
        thread::scope(|scope| {
            for mut worker in workers {
                let (bad, gathered) = (&bad, &gathered);
                scope.spawn(move || {
                    gathered.wait();
                    let push =
                        std::panic::AssertUnwindSafe(|| worker.push(&key("t"), bad.clone().into(), 1.0));
                    let push = std::panic::catch_unwind(push);
                    // A worker that does not apply the update gets the error, too.
                    if let Ok(Ok(())) = push {
                        assert!(worker.pull(&key("t")).is_err());
                    }
                    gathered.wait();
                    worker.push(&key("u"), Array2::<f64>::ones((4, 1)).into(), 1.0).unwrap();
                });
            }
        });
        let mut worker = alone(&store);
        let expected = if mode == ALONE { &start + 2.0 } else { &start + 1.0 };
        assert_eq!(worker.pull(&key("u")).unwrap(), expected.into());
        let words = ["variable `t`", "half updated", "restore the store"];
        says(worker.pull(&key("t")), &words);
        says(worker.row_sparse_pull(&key("t"), vec![0]), &words);
        says(worker.push(&key("t"), Array2::<f64>::ones((4, 1)).into(), 1.0), &words);
        says(worker.save(&file), &words);
        worker.restore(&file).unwrap();
        assert_eq!(worker.pull(&key("t")).unwrap(), start.into());
        worker.push(&key("t"), Array2::<f64>::ones((4, 1)).into(), 1.0).unwrap();
    }
    std::fs::remove_file(file).unwrap();
}
