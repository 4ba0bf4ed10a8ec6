//! How many rows a second go into a key-value store and out of it, with several workers?
//!
//! `cargo bench --bench store -- [--rows 1000000] [--width 64] [--batch 4096] [--shards 16] [--seconds 1]` makes a table of f32
//! under several rules, and lets 1, 2 and 4 workers, each on a thread, push gradients of drawn rows, evenly and by Zipf's law,
//! and pull such rows. It prints one line of JSON for each: rows a second of all workers together, as they are drawn, repeated
//! ones too. The gradient is copied for each push, as a worker would make one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ndarray::Array2;
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalStore, LocalWorker, Rule};
use unpadded::tensor::{Dense, SelectedRows};
use unpadded::{DType, kernels, ops};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Lists of rows that each worker draws, and takes in turns: together far more rows than fit into a cache.
const DRAWN: u32 = 64;

/// The distribution of the rows.
#[derive(Clone, Copy)]
enum Ids {
    /// All rows are equally likely.
    Uniform,
    /// The row of rank r has a probability proportional to 1 / r; the ranks are scattered over the table.
    Zipf,
}

#[derive(Clone, Copy)]
struct Settings {
    rows: usize,
    width: usize,
    batch: usize,
    shards: usize,
    seconds: f64,
}

fn main() -> Outcome<()> {
    let mut settings = Settings { rows: 1_000_000, width: 64, batch: 4096, shards: 16, seconds: 1.0 };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(flag) = words.next() {
        let value = words.next().ok_or("a flag without a value")?;
        match flag.as_str() {
            "--rows" => settings.rows = value.parse()?,
            "--width" => settings.width = value.parse()?,
            "--batch" => settings.batch = value.parse()?,
            "--shards" => settings.shards = value.parse()?,
            "--seconds" => settings.seconds = value.parse()?,
            _ => return Err(format!("no flag {flag}").into()),
        }
    }
    let number = |(i, j): (usize, usize)| ((i * 31 + j * 7) % 13) as f32 / 13.0 - 0.5;
    let values = Dense::from(Array2::from_shape_fn((settings.batch, settings.width), number));
    let rules: [(&str, &dyn Optimizer); 4] = [
        ("sgd", &Sgd::new(0.01)),
        ("adagrad", &Adagrad::new(0.01)),
        ("adam lazy", &Adam::new(1e-3).lazy()),
        ("adam exact", &Adam::new(1e-3)),
    ];
    for (name, optimizer) in rules {
        let store = LocalStore::new(&ops::catalogue(), settings.shards)?;
        let key = Key::from("table");
        let mut worker = workers(&store, 1)?.remove(0);
        worker.init(&key, Dense::zeros(DType::F32, &[settings.rows, settings.width])?.into())?;
        worker.set_rule(&key, Rule::new(optimizer, &ops::catalogue())?)?;
        drop(worker);
        for (law, ids) in [("uniform", Ids::Uniform), ("zipf", Ids::Zipf)] {
            for count in [1, 2, 4] {
                let pushed = settings.measure(workers(&store, count)?, ids, |worker, ids| {
                    let gradient = SelectedRows::new(settings.rows, ids.to_vec(), values.clone())?;
                    worker.push(&key, gradient.into(), 1.0)
                })?;
                let pulled = settings.measure(workers(&store, count)?, ids, |worker, ids| {
                    worker.row_sparse_pull(&key, ids.to_vec()).map(drop)
                })?;
                let Settings { rows, width, batch, shards, .. } = settings;
                println!(
                    r#"{{"peer":"unpadded","bench":"store","opt":"{name}","ids":"{law}","V":{rows},"width":{width},"batch":{batch},"shards":{shards},"workers":{count},"rows_pushed_per_s":{pushed:.0},"rows_pulled_per_s":{pulled:.0}}}"#
                );
            }
        }
    }
    Ok(())
}

fn workers(store: &LocalStore, count: usize) -> Outcome<Vec<LocalWorker>> {
    Ok(store.workers(count, Consistency::Asynchronous { staleness: None })?)
}

impl Settings {
    /// Measures the rows per second through `call`, on one thread per worker.
    fn measure(
        &self,
        workers: Vec<LocalWorker>,
        ids: Ids,
        call: impl Fn(&mut LocalWorker, &[i64]) -> unpadded::Result<()> + Sync,
    ) -> Outcome<f64> {
        let drawn: Vec<Vec<Vec<i64>>> = (0..workers.len())
            .map(|worker| (0..DRAWN).map(|list| self.draw(ids, worker as u32, list)).collect())
            .collect();
        let (start, calls) = (Instant::now(), AtomicU64::new(0));
        let end = start + Duration::from_secs_f64(self.seconds);
        thread::scope(|scope| {
            let run = |(mut worker, drawn): (LocalWorker, Vec<Vec<i64>>)| {
                let (call, calls) = (&call, &calls);
                scope.spawn(move || {
                    for ids in drawn.iter().cycle() {
                        if Instant::now() >= end {
                            break;
                        }
                        call(&mut worker, ids)?;
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), unpadded::Error>(())
                })
            };
            let running: Vec<_> = workers.into_iter().zip(drawn).map(run).collect();
            running
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| "a worker panicked")?.map_err(Into::into))
        })
        .map_err(|e: Box<dyn std::error::Error>| e)?;
        let rows = calls.into_inner() as f64 * self.batch as f64;
        Ok(rows / start.elapsed().as_secs_f64())
    }

    /// The rows of a batch.
    fn draw(&self, ids: Ids, worker: u32, list: u32) -> Vec<i64> {
        let id = |k: usize| {
            let uniform = kernels::random::uniform01::<f64>(7, [k as u32, list, worker, 0]);
            // The inverse of the distribution function of 1 / r, and a number that shares no factor with the height.
            let rank = match ids {
                Ids::Uniform => uniform * self.rows as f64,
                Ids::Zipf => (self.rows as f64).powf(uniform) - 1.0,
            };
            (rank as i64 * 7_919_317) % self.rows as i64
        };
        (0..self.batch).map(id).collect()
    }
}
