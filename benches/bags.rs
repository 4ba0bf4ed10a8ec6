//! How fast is an embedding bag over a large table, forward and backward?
//!
//! `cargo bench --bench bags -- [--width 64] [--batch 256] [--threads 1] [--steps 20] [--pool sum]` draws bags of 5 to 500 ids,
//! evenly and by Zipf's law, over a table of 1,000,000 rows in f32, whose gradient is selected rows. It prints one line of
//! JSON for each of the two: the medians in milliseconds of forward and backward, and of a whole step of gradient descent.
//! `benches/peers/torch_bag.py` measures PyTorch and prints the same fields.

use std::time::Instant;

use ndarray::Array2;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::{EmbeddingBag, init};
use unpadded::ops::BagPool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::{Builder, DType, Variable, kernels};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VOCABULARY: usize = 1_000_000;
/// The number of drawn batches, which are used in turns: their rows together are far more than fit into a cache.
const BATCHES: usize = 8;

/// The distribution of the ids.
#[derive(Clone, Copy)]
enum Ids {
    /// All ids are equally likely.
    Uniform,
    /// The id of rank r has a probability proportional to 1 / r; the ranks are scattered over the table.
    Zipf,
}

struct Settings {
    width: usize,
    batch: usize,
    threads: usize,
    steps: usize,
    pool: String,
}

fn main() -> Outcome<()> {
    let mut settings = Settings { width: 64, batch: 256, threads: 1, steps: 20, pool: "sum".to_owned() };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(flag) = words.next() {
        let value = words.next().ok_or("a flag without a value")?;
        match flag.as_str() {
            "--width" => settings.width = value.parse()?,
            "--batch" => settings.batch = value.parse()?,
            "--threads" => settings.threads = value.parse()?,
            "--steps" => settings.steps = value.parse()?,
            "--pool" => settings.pool = value,
            _ => return Err(format!("no flag {flag}").into()),
        }
    }
    for (name, ids) in [("uniform", Ids::Uniform), ("zipf", Ids::Zipf)] {
        settings.measure(name, ids)?;
    }
    Ok(())
}

impl Settings {
    fn measure(&self, name: &str, ids: Ids) -> Outcome<()> {
        let &Settings { width, batch, threads, steps, ref pool } = self;
        let kind = match pool.as_str() {
            "mean" => BagPool::Mean,
            "max" => BagPool::Max,
            _ => BagPool::Sum,
        };
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], 1);
        let against = net.feed("against", DType::F32, &[width], 0);
        let weights = (pool == "weighted").then(|| net.feed_like("weights", DType::F32, &[], words));
        let bag = EmbeddingBag::new(VOCABULARY, width).pool(kind).sparse();
        let bag = bag.weight_init(init::uniform(-0.1, 0.1));
        let out = words.embedding_bag(weights.into_iter().fold(bag, EmbeddingBag::weighted));
        let loss = (out * against).sum();
        let (registry, mut program) = (net.registry(), net.finish()?);
        Sgd::new(0.01).minimize(&mut program, &registry, loss.id())?;
        let mut executor = Executor::new(&program, &registry, &[loss.id()], threads)?;
        let mut scope = Scope::of(&program)?;
        let gradient = Variable::dense(Array2::from_shape_fn((batch, width), |(i, j)| {
            kernels::random::uniform01::<f32>(3, [i as u32, j as u32, 0, 0]) - 0.5
        }));
        let batches = (0..BATCHES).map(|i| draw(ids, batch, i as u32)).collect::<Outcome<Vec<_>>>()?;
        let mut times = [Vec::new(), Vec::new()];
        for step in 0..steps + BATCHES {
            let (words_value, weights_value) = &batches[step % BATCHES];
            let mut feeds = vec![(words.id(), words_value), (against.id(), &gradient)];
            feeds.extend(weights.map(|weights| (weights.id(), weights_value)));
            let start = Instant::now();
            executor.run(&mut scope, &Run::train(&feeds, step as u64).until(Stage::Gradients))?;
            let middle = Instant::now();
            executor.update(&mut scope)?;
            let end = Instant::now();
            // Before, memory grows.
            if step >= BATCHES {
                times[0].push((middle - start).as_secs_f64() * 1e3);
                times[1].push((end - start).as_secs_f64() * 1e3);
            }
        }
        let [both, whole] = times.map(median);
        let count = batches.iter().map(|(words, _)| words.rows()).sum::<usize>() / BATCHES;
        println!(
            r#"{{"peer":"unpadded","pool":"{pool}","ids":"{name}","width":{width},"batch":{batch},"threads":{threads},"ids_a_batch":{count},"forward_backward_ms":{both:.2},"step_ms":{whole:.2}}}"#
        );
        Ok(())
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Draws bags, and a weight for each id.
fn draw(ids: Ids, bags: usize, salt: u32) -> Outcome<(Variable, Variable)> {
    let mut count = 0;
    let mut uniform = || {
        count += 1;
        kernels::random::uniform01::<f64>(7, [count, salt, 0, 0])
    };
    let (mut words, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..bags {
        let length = 5 + (uniform() * 496.0) as usize;
        let one = |_| {
            // The inverse of the distribution function of 1 / r, and a number that shares no factor with the height.
            let rank = match ids {
                Ids::Uniform => uniform() * VOCABULARY as f64,
                Ids::Zipf => (VOCABULARY as f64).powf(uniform()) - 1.0,
            };
            (rank as i64 * 7_919_317) % VOCABULARY as i64
        };
        words.push((0..length).map(one).collect::<Vec<i64>>());
        weights.push((0..length).map(|_| uniform() as f32).collect::<Vec<f32>>());
    }
    Ok((Variable::from_sequences(&words)?, Variable::from_sequences(&weights)?))
}
