//! The store over the ranks of a world, on threads: its numbers equal a store in one process; failures of ranks; and its files.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ndarray::{arr0, array};
use unpadded::optimizer::{Adam, Options, Sgd};
use unpadded::parallel::{Communicator, ExchangeFailure, World, threads};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalWorker, Rule, WorldStore};
use unpadded::tensor::{Dense, Storage};
use unpadded::{DType, Result, ops};

use crate::models::Random;
use crate::store::{alone, key, numbers, rule, rules, says, some_rows, store};
use crate::store_exact::exact_rules;
use crate::store_workers::{Fragile, FragileRule};

/// Runs `body` on `size` ranks, and returns the result of each.
pub(crate) fn ranks<T: Send>(size: usize, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = |rank| {
            let body = &body;
            scope.spawn(move || body(World::new(rank).deadline(Duration::from_secs(20))))
        };
        let running: Vec<_> = threads(size).into_iter().map(run).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Runs `body` on each worker of a store in one process, with a shard per worker, and returns the results.
pub(crate) fn workers<T: Send>(count: usize, body: impl Fn(usize, LocalWorker) -> T + Sync) -> Vec<T> {
    let workers = store(count).workers(count, Consistency::Synchronous).unwrap();
    thread::scope(|scope| {
        let run = |(number, worker)| {
            let body = &body;
            scope.spawn(move || body(number, worker))
        };
        let running: Vec<_> = workers.into_iter().enumerate().map(run).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn over(world: World) -> WorldStore {
    WorldStore::new(&ops::catalogue(), world)
}

const SHAPE: (usize, usize) = (17, 3);

/// A table, a bias and a matrix of few rows under a rule, and a number without one.
fn keys(store: &mut dyn KeyValueStore, rule: &Rule) -> Result<()> {
    store.init(&key("t"), numbers(SHAPE, 1).into())?;
    store.init(&key("bias"), array![1.0f32, 2.0, 3.0, 4.0].into())?;
    store.init(&key("small"), numbers((2, 5), 2).into())?;
    for name in ["t", "bias", "small"] {
        store.set_rule(&key(name), rule.clone())?;
    }
    store.init(&Key::from(7), arr0(0.0).into())
}

/// The gradients of a worker in a step: of the table rows, none of them, or dense.
fn push(store: &mut dyn KeyValueStore, rank: usize, step: u64) -> Result<()> {
    let salt = step * 10 + rank as u64;
    let mut random = Random(salt);
    let table: Storage = match step % 7 {
        // Nobody touches a row.
        3 => some_rows(SHAPE.0, SHAPE.1, 0, salt).into(),
        5 => numbers(SHAPE, salt).into(),
        // One worker touches none.
        _ if step as usize % 3 == rank => some_rows(SHAPE.0, SHAPE.1, 0, salt).into(),
        _ => some_rows(SHAPE.0, SHAPE.1, 1 + random.below(6), salt).into(),
    };
    let weight = random.below(5) as f64;
    store.push(&key("t"), table, weight)?;
    store.push(&key("bias"), array![0.5f32, -(salt as f32), 0.25, rank as f32].into(), weight)?;
    store.push(&key("small"), numbers((2, 5), salt).into(), weight)?;
    store.push(&Key::from(7), arr0(1.0 + rank as f64).into(), weight)?;
    store.end_round()
}

/// Returns the numbers that a worker sees: the rows of each step, sums, and at the end the values.
fn trained(store: &mut dyn KeyValueStore, rank: usize, steps: std::ops::Range<u64>) -> Result<Vec<Dense>> {
    let mut seen = Vec::new();
    for step in steps {
        let mut random = Random(77 * step + rank as u64);
        let ids = (0..random.below(6)).map(|_| random.below(SHAPE.0) as i64).collect();
        seen.push(store.row_sparse_pull(&key("t"), ids)?);
        seen.push(Dense::from_vec(&[2], store.sum(&[0.1 * rank as f64, step as f64])?)?);
        push(store, rank, step)?;
    }
    seen.extend(all(store)?);
    Ok(seen)
}

fn all(store: &mut dyn KeyValueStore) -> Result<Vec<Dense>> {
    [key("t"), key("bias"), key("small"), Key::from(7)].iter().map(|key| store.pull(key)).collect()
}

#[track_caller]
fn same(one: &[Dense], two: &[Dense]) {
    assert_eq!(one.len(), two.len());
    for (i, (one, two)) in one.iter().zip(two).enumerate() {
        assert!(one.bits_eq(two), "value {i}: {one:?} is not {two:?}");
    }
}

/// Every rule, lazy and exact, on one, two and three ranks.
#[test]
fn ranks_are_workers_to_the_bit() {
    for optimizer in rules().into_iter().chain(exact_rules()) {
        let rule = rule(&optimizer);
        for size in [1, 2, 3] {
            let expected = workers(size, |number, mut worker| {
                if number == 0 {
                    keys(&mut worker, &rule).unwrap();
                }
                worker.sum(&[]).unwrap();
                trained(&mut worker, number, 0..15).unwrap()
            });
            let got = ranks(size, |world| {
                let rank = world.rank();
                let mut store = over(world);
                keys(&mut store, &rule).unwrap();
                trained(&mut store, rank, 0..15).unwrap()
            });
            got.iter().zip(&expected).for_each(|(got, expected)| same(got, expected));
        }
    }
}

/// If a rank fails, all ranks return an error that names it, nothing changes, and all continue.
#[test]
fn an_error_of_one_rank_is_one_of_all() {
    type Wrong = fn(&mut WorldStore, usize) -> Result<()>;
    let wrong: [(Wrong, &str); 6] = [
        (|store, rank| store.push(&key("bias"), one(rank, f32::NAN), 1.0), "NaN at [0]"),
        (|store, rank| store.push(&key("bias"), one(0, 1.0), if rank == 1 { -1.0 } else { 1.0 }), "got -1"),
        (
            |store, rank| store.row_sparse_pull(&key("t"), vec![if rank == 1 { 17 } else { 3 }]).map(drop),
            "got 17",
        ),
        (|store, rank| store.init(&key("u"), one(rank, f32::NAN)), "NaN at [0]"),
        (
            |store, rank| match rank {
                1 => store.init(&key("u"), array![1.0, 2.0].into()),
                _ => store.init(&key("u"), array![1.0].into()),
            },
            "f64[2]",
        ),
        // Each number is finite, and their sum is not. It is found by the rank that adds them up, and comes with the next call.
        (
            |store, _| {
                store.push(&Key::from(7), arr0(f64::MAX).into(), 1.0)?;
                store.end_round()
            },
            "sum of gradients",
        ),
    ];
    for (wrong, words) in wrong {
        ranks(3, |world| {
            let rank = world.rank();
            let mut store = over(world);
            keys(&mut store, &rule(&Adam::new(0.1))).unwrap();
            push(&mut store, rank, 0).unwrap();
            let before = all(&mut store).unwrap();
            let message = wrong(&mut store, rank).unwrap_err().to_string();
            assert!(message.contains(words), "rank {rank}: {message}");
            // That number is on rank 0.
            assert!(
                rank == 1 || message.contains("rank ") || rank == 0 && words.starts_with("sum"),
                "rank {rank}: {message}"
            );
            same(&all(&mut store).unwrap(), &before);
            push(&mut store, rank, 1).unwrap();
        });
    }
}

/// An update that fails on the rank that has the row is an error on all, also if another push comes before they hear of it.
#[test]
fn an_update_that_breaks_off_on_one_rank() {
    let mut registry = ops::catalogue();
    registry.add::<Fragile>().unwrap();
    let text = ranks(2, |world| {
        let mut store = WorldStore::new(&registry, world);
        let ones = || Storage::from(array![[1.0], [1.0], [1.0], [1.0]]);
        for name in ["t", "u"] {
            store.init(&key(name), ones()).unwrap();
            let rule = Rule::new(&FragileRule(Options::new(1.0)), &registry).unwrap();
            store.set_rule(&key(name), rule).unwrap();
        }
        // Rank 1 has the row of the number at which the operator fails.
        store.push(&key("t"), array![[1.0], [14.0], [1.0], [1.0]].into(), 1.0).unwrap();
        let second = store.push(&key("u"), ones(), 1.0);
        second.and_then(|()| store.end_round()).unwrap_err().to_string()
    });
    assert!(text[0].contains("a failure of rank 1") && text[0].contains("variable `t`"), "{}", text[0]);
    assert!(text[1].contains("variable `t`"), "{}", text[1]);
}

/// Gradients pushed before a failed restore are applied as without the restore.
#[test]
fn a_restore_that_fails_changes_nothing() {
    let folder = folder("refused");
    let all_of = |restores: bool| {
        let values = ranks(2, |world| {
            let rank = world.rank();
            let mut store = over(world);
            keys(&mut store, &rule(&Adam::new(0.1))).unwrap();
            push(&mut store, rank, 0).unwrap();
            store.push(&key("bias"), one(0, 1.0), 1.0).unwrap();
            if restores {
                store.restore(&folder.join("none")).unwrap_err();
            }
            all(&mut store).unwrap()
        });
        values.into_iter().next().unwrap()
    };
    same(&all_of(true), &all_of(false));
    fs::remove_dir_all(&folder).unwrap();
}

/// A vector whose first number is `x` on rank 1.
fn one(rank: usize, x: f32) -> Storage {
    array![if rank == 1 { x } else { 0.5 }, 1.0, 2.0, 3.0].into()
}

#[test]
fn ranks_that_make_other_calls_are_refused() {
    let messages = ranks(2, |world| {
        let rank = world.rank();
        let mut store = over(world);
        keys(&mut store, &rule(&Sgd::new(0.1))).unwrap();
        let called = match rank {
            0 => store.pull(&key("t")).map(drop),
            _ => store.sum(&[1.0]).map(drop),
        };
        called.unwrap_err().to_string()
    });
    assert!(
        messages[0].contains("call of the store on rank 1: expected pulling a value of `t`"),
        "{messages:?}"
    );
    assert!(messages[0].contains("got adding up numbers"), "{messages:?}");
    let messages = ranks(2, |world| {
        let rank = world.rank();
        let mut store = over(world);
        keys(&mut store, &rule(&Sgd::new(0.1))).unwrap();
        store.pull(&key(["t", "bias"][rank])).unwrap_err().to_string()
    });
    assert!(messages[1].contains("got pulling a value of another key"), "{messages:?}");
}

#[test]
fn a_table_of_fewer_rows_than_ranks_is_refused() {
    ranks(3, |world| {
        let mut store = over(world);
        store.init(&key("t"), numbers((2, 4), 1).into()).unwrap();
        let words = ["expected at least 3 rows, one per rank: use fewer ranks", "got 2"];
        says(store.push(&key("t"), some_rows(2, 4, 1, 1).into(), 1.0), &words);
        says(store.row_sparse_pull(&key("t"), vec![0]), &words);
        store.push(&key("t"), numbers((2, 4), 1).into(), 1.0).unwrap();
        store.pull(&key("t")).unwrap();
    });
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unpadded-world-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    fs::create_dir(&folder).unwrap();
    folder
}

fn names(folder: &PathBuf) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// On any number of ranks, and in one process.
#[test]
fn what_ranks_save_goes_on_elsewhere() {
    let folder = folder("saved");
    let file = folder.join("store");
    for optimizer in
        [&Sgd::new(0.1) as &dyn unpadded::optimizer::Optimizer, &Adam::new(0.1).lazy(), &Adam::new(0.1)]
    {
        let rule = rule(optimizer);
        for size in [1, 3] {
            let saved = ranks(size, |world| {
                let rank = world.rank();
                let mut store = over(world);
                keys(&mut store, &rule).unwrap();
                (0..5).for_each(|step| push(&mut store, rank, step).unwrap());
                store.save(&file).unwrap();
                let saved = all(&mut store).unwrap();
                // The next save has other file names, and removes the files of the first once it is complete.
                store.save(&file).unwrap();
                push(&mut store, rank, 5).unwrap();
                store.restore(&file).unwrap();
                same(&all(&mut store).unwrap(), &saved);
                saved
            });
            let files: Vec<String> = (0..size).map(|rank| format!("store.b.{rank}-of-{size}")).collect();
            let files = if size == 1 { Vec::new() } else { files };
            assert_eq!(names(&folder), [vec!["store".to_owned()], files].concat());
            // One worker makes all further steps, so that the number of workers makes no difference.
            let go_on = |store: &mut dyn KeyValueStore| {
                for step in 5..8 {
                    let rows = some_rows(SHAPE.0, SHAPE.1, 4, step);
                    store.push(&key("t"), rows.into(), 1.0).unwrap();
                }
                store.end_round().unwrap();
                all(store).unwrap()
            };
            let mut local = alone(&store(2));
            keys(&mut local, &rule).unwrap();
            local.restore(&file).unwrap();
            same(&all(&mut local).unwrap(), &saved[0]);
            let end = go_on(&mut local);
            for size in [1, 2, 3, 4] {
                ranks(size, |world| {
                    let mut store = over(world);
                    keys(&mut store, &rule).unwrap();
                    store.restore(&file).unwrap();
                    same(&all(&mut store).unwrap(), &saved[0]);
                    // The mean of equal gradients is each of them, up to rounding.
                    let got = go_on(&mut store);
                    got.iter().zip(&end).for_each(|(got, end)| near(got, end));
                });
            }
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[track_caller]
fn near(got: &Dense, expected: &Dense) {
    let numbers = |x: &Dense| x.cast(DType::F64).as_slice::<f64>().unwrap().to_vec();
    for (a, b) in numbers(got).iter().zip(numbers(expected)) {
        assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} for {b}");
    }
}

/// Missing, damaged and mixed files are named, on every rank, and the store stays as it was.
#[test]
fn files_that_are_no_set_are_refused() {
    let folder = folder("refused");
    let file = folder.join("store");
    let save = |steps: u64| {
        ranks(3, |world| {
            let rank = world.rank();
            let mut store = over(world);
            keys(&mut store, &rule(&Adam::new(0.1))).unwrap();
            (0..steps).for_each(|step| push(&mut store, rank, step).unwrap());
            store.save(&file).unwrap();
        });
    };
    save(1);
    let first: Vec<Vec<u8>> =
        (0..3).map(|rank| fs::read(folder.join(format!("store.a.{rank}-of-3"))).unwrap()).collect();
    save(2);
    let second: Vec<PathBuf> = (0..3).map(|rank| folder.join(format!("store.b.{rank}-of-3"))).collect();
    let whole = fs::read(&second[1]).unwrap();
    let refused = |size: usize, words: &[&str]| {
        let messages = ranks(size, |world| {
            let rank = world.rank();
            let mut store = over(world);
            keys(&mut store, &rule(&Adam::new(0.1))).unwrap();
            push(&mut store, rank, 7).unwrap();
            let before = all(&mut store).unwrap();
            let message = store.restore(&file).unwrap_err().to_string();
            same(&all(&mut store).unwrap(), &before);
            push(&mut store, rank, 8).unwrap();
            message
        });
        for message in messages {
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    };
    for size in [2, 3] {
        fs::remove_file(&second[1]).unwrap();
        refused(size, &["store.b.1-of-3`", "got none", "a set of 3 files"]);
        fs::write(&second[1], &first[1]).unwrap();
        refused(size, &["store.b.1-of-3`", "of another set"]);
        let mut damaged = whole.clone();
        damaged[100] ^= 1;
        fs::write(&second[1], damaged).unwrap();
        refused(size, &["store.b.1-of-3`", "damaged"]);
        fs::write(&second[1], &whole).unwrap();
    }
    let head = fs::read(&file).unwrap();
    fs::write(&file, &head[..head.len() - 3]).unwrap();
    refused(2, &["store`", "cut short"]);
    fs::write(&file, &head).unwrap();
    // A save that fails on one rank leaves the previous set, and the next save removes its remains.
    fs::create_dir(folder.join("store.a.2-of-3")).unwrap();
    ranks(3, |world| {
        let rank = world.rank();
        let mut store = over(world);
        keys(&mut store, &rule(&Adam::new(0.1))).unwrap();
        says(store.save(&file), &["store.a.2-of-3`", "got a folder"]);
        store.restore(&file).unwrap();
        if rank == 0 {
            assert!(folder.join("store.a.1-of-3").is_file());
            fs::remove_dir(folder.join("store.a.2-of-3")).unwrap();
        }
        store.sum(&[]).unwrap();
        store.save(&file).unwrap();
    });
    assert_eq!(names(&folder), ["store", "store.a.0-of-3", "store.a.1-of-3", "store.a.2-of-3"]);
    fs::remove_dir_all(folder).unwrap();
}

/// A communicator that says these numbers of itself and exchanges nothing.
struct Numbers {
    rank: usize,
    size: usize,
}

impl Communicator for Numbers {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        _: &str,
        _: &[&[u8]],
        _: &mut [Vec<u8>],
        _: Instant,
    ) -> Result<(), ExchangeFailure> {
        Ok(())
    }

    fn leave(&mut self, _: &str) {}
}

#[test]
fn a_communicator_whose_rank_is_not_below_its_size_is_refused() {
    for (rank, size) in [(0, 0), (2, 2)] {
        let world = World::new(Numbers { rank, size });
        let error = WorldStore::new(&ops::catalogue(), world).init(&key("t"), numbers((3, 2), 1).into());
        let expected =
            format!("rank of a communicator: expected a number below its size, {size}, got {rank}");
        says(error, &[&expected]);
    }
}
