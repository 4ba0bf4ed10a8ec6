//! Batches as large as a memory limit allows, beside batches of a fixed number of sentences that fits the same limit, in turns;
//! first the time to compute the memory of a step.

use std::hint::black_box;
use std::time::Instant;

use unpadded::data::{Batching, Data, Field, Loader, Samples};
use unpadded::layers::Embedding;
use unpadded::optimizer::Adam;
use unpadded::train::{Progress, Report, Trainer, Until};
use unpadded::{Builder, DType};

use crate::Outcome;
use crate::data;

const HEIGHT: usize = 5_000;
const SENTENCES: usize = 3_000;
const ROUNDS: usize = 7;

/// Distributions of lengths: words of sentences in the Penn Treebank (median 20), of requests in ATIS (median 11), and lengths
/// by Zipf's law up to 400.
const LENGTHS: [&str; 3] = ["ptb", "atis", "zipf"];

fn trainer(threads: usize, limit: u64) -> Outcome<Trainer> {
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let h = words.embedding(Embedding::new(HEIGHT, 128).sparse()).lstm(128);
    let loss = h.linear(HEIGHT).cross_entropy(words).mean();
    let trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    Ok(trainer.threads(threads).memory_limit(limit).progress(Progress::Quiet))
}

fn fit(threads: usize, limit: u64, samples: &Samples, batching: Batching) -> Outcome<Report> {
    let loader = Loader::new(samples.clone(), &["words"])?.batching(batching).shuffle(1).prefetch(4);
    let dev: Samples = vec![vec![Field::from(vec![1i64, 2])]].into_iter().collect();
    let dev = Loader::new(dev, &["words"])?;
    Ok(trainer(threads, limit)?.fit(&loader, &dev, Until::Epochs(1))?)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Returns the largest power of two, times 1 or 1.5, with which all batches of an epoch fit the limit.
fn largest(threads: usize, limit: u64, samples: &Samples) -> Outcome<usize> {
    let mut sizes: Vec<usize> =
        (1..11).flat_map(|k| [1 << k, 3 << k >> 1]).filter(|&n| n <= SENTENCES).collect();
    sizes.sort_unstable();
    // Memory is computed in less time than a training takes, but does not include the samples and the batches made in advance.
    let mut trainer = trainer(threads, limit)?;
    let mut fits = |size: usize| -> Outcome<bool> {
        let loader = Loader::new(samples.clone(), &["words"])?.batching(Batching::Sequences(size)).shuffle(1);
        for batch in loader.batches(Some(0), 0)? {
            let memory = trainer.memory(&batch?)?;
            let decisive = memory.total() - memory.kept - memory.packed - memory.scratch - memory.lists;
            if decisive as u64 > limit - limit / 8 {
                return Ok(false);
            }
        }
        Ok(true)
    };
    while let Some(size) = sizes.pop() {
        if fits(size)? && fit(threads, limit, samples, Batching::Sequences(size))?.divided == 0 {
            return Ok(size);
        }
    }
    Ok(1)
}

/// Prints the time in which a trainer computes the memory of a step, in microseconds: the median of several batches.
fn asking(threads: usize) -> Outcome<()> {
    const ASKED: usize = 1_000;
    let samples: Samples =
        data::sentences_of("ptb", HEIGHT, SENTENCES).into_iter().map(|ids| vec![Field::from(ids)]).collect();
    let loader = Loader::new(samples, &["words"])?.batching(Batching::Sequences(32));
    let mut trainer = trainer(threads, 1 << 30)?;
    let mut times = Vec::new();
    for batch in loader.batches(None, 0)? {
        let batch = batch?;
        trainer.memory(&batch)?;
        let began = Instant::now();
        for _ in 0..ASKED {
            black_box(trainer.memory(black_box(&batch))?);
        }
        times.push(began.elapsed().as_secs_f64() / ASKED as f64 * 1e6);
    }
    println!(r#"{{"bench":"asking","threads":{threads},"us":{:.2}}}"#, median(times));
    Ok(())
}

pub(crate) fn run(threads: usize) -> Outcome<()> {
    asking(threads)?;
    for kind in LENGTHS {
        let samples: Samples = data::sentences_of(kind, HEIGHT, SENTENCES)
            .into_iter()
            .map(|ids| vec![Field::from(ids)])
            .collect();
        for mb in [40u64, 80, 160] {
            let limit = mb * 1_000_000;
            let by_hand = largest(threads, limit, &samples)?;
            let (mut hand, mut memory, mut ratios, mut steps) = (Vec::new(), Vec::new(), Vec::new(), [0, 0]);
            for _ in 0..ROUNDS {
                let by_size = fit(threads, limit, &samples, Batching::Sequences(by_hand))?;
                let by_memory = fit(threads, limit, &samples, Batching::Memory)?;
                assert_eq!([by_size.divided, by_memory.divided], [0, 0]);
                hand.push(by_size.tokens_per_s);
                memory.push(by_memory.tokens_per_s);
                ratios.push(by_memory.tokens_per_s / by_size.tokens_per_s);
                steps = [by_size.steps, by_memory.steps];
            }
            let [hand, memory, ratio] = [hand, memory, ratios].map(median);
            println!(
                concat!(
                    r#"{{"bench":"batching","lengths":"{}","limit_mb":{},"threads":{},"by_hand":{},"#,
                    r#""by_hand_per_s":{:.0},"by_memory_per_s":{:.0},"ratio":{:.3},"steps":[{},{}]}}"#
                ),
                kind, mb, threads, by_hand, hand, memory, ratio, steps[0], steps[1],
            );
        }
    }
    Ok(())
}
