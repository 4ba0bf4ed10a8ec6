//! The store over the ranks of a world, on threads: the numbers of a store in one process, whoever fails, and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ndarray::{Array2, arr0, array};
use unpadded::parallel::{Communicator, Lost, World};
use unpadded::store::{Key, KeyValueStore, LocalWorker, Mode, Rule, WorldStore};
use unpadded::tensor::{Dense, SelectedRows, Storage};
use unpadded::{DType, Error, Result, ops};

use crate::models::Random;
use crate::store::{alone, key, numbers, rule, rules, says, some_rows, store};
use crate::store_exact::exact_rules;

type Message = std::result::Result<Vec<u8>, String>;

/// Channels between threads.
struct Lines {
    rank: usize,
    to: Vec<Sender<Message>>,
    from: Vec<Receiver<Message>>,
}

impl Lines {
    fn all(size: usize) -> Vec<Self> {
        let mut lines: Vec<Self> =
            (0..size).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..size {
            for to in 0..size {
                let (sender, receiver) = channel();
                lines[from].to.push(sender);
                lines[to].from.push(receiver);
            }
        }
        lines
    }
}

impl Communicator for Lines {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(
        &mut self,
        _: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> std::result::Result<(), Lost> {
        for rank in (0..self.size()).filter(|rank| *rank != self.rank) {
            drop(self.to[rank].send(Ok(messages[rank].to_vec())));
        }
        for rank in (0..self.size()).filter(|rank| *rank != self.rank) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.from[rank].recv_timeout(left) {
                Ok(Ok(message)) => received[rank] = message,
                Ok(Err(reason)) => return Err(Lost::Left { rank, reason }),
                Err(_) => return Err(Lost::Late { ranks: vec![rank] }),
            }
        }
        Ok(())
    }

    fn leave(&mut self, reason: &str) {
        self.to.iter().for_each(|to| drop(to.send(Err(reason.to_owned()))));
    }
}

/// What `body` returns on each of so many ranks.
pub(crate) fn ranks<T: Send>(size: usize, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = |lines| {
            let body = &body;
            scope.spawn(move || body(World::new(lines).deadline(Duration::from_secs(20))))
        };
        let running: Vec<_> = Lines::all(size).into_iter().map(run).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// The same of the workers of a store in one process, in as many shards.
fn workers<T: Send>(count: usize, body: impl Fn(usize, LocalWorker) -> T + Sync) -> Vec<T> {
    let workers = store(count).workers(count, Mode::Synchronous).unwrap();
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

/// What a worker sees: the rows of each step, sums, and in the end the values.
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
        let rule = rule(&*optimizer);
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
