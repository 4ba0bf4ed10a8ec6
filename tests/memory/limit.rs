//! The memory limit of a training beside the memory that the training takes: batches by memory, and batches that are divided.
//!
//! `UNPADDED_THOROUGH=50` trains on 100,000 batches under 50 limits.

use unpadded::data::{Batching, Field, Loader, Samples};
use unpadded::kernels::random::uniform01;
use unpadded::layers::Embedding;
use unpadded::optimizer::Adam;
use unpadded::train::{Progress, Report, Trainer, Until};
use unpadded::{Builder, DType};

use crate::peak_memory;

const HEIGHT: i64 = 200;

/// Sentences with lengths as in PTB or ATIS, or by Zipf's law up to 400.
fn sentences(kind: usize, count: u32) -> Samples {
    let draw = |sentence: u32, k: u32| uniform01::<f64>(7 + kind as u64, [sentence, k, 0, 0]);
    let normal = |i: u32| {
        let radius = (-2.0 * (1.0 - draw(i, 0)).ln()).sqrt();
        radius * (std::f64::consts::TAU * draw(i, 1)).cos()
    };
    let length = |i: u32| match kind {
        0 => (20.0 * (0.5 * normal(i)).exp()).clamp(2.0, 80.0),
        1 => (11.0 * (0.35 * normal(i)).exp()).clamp(2.0, 46.0),
        _ => (1.0 / (1.0 - draw(i, 0))).clamp(1.0, 400.0),
    };
    let ids = |i: u32| (0..length(i) as u32).map(|k| (draw(i, k + 2) * HEIGHT as f64) as i64).collect();
    (0..count).map(|i| vec![Field::Ints(ids(i))]).collect()
}

/// Trains an epoch under exact or lazy updates, and returns the report and the peak memory in bytes.
fn trained(limit: u64, (kind, exact): (usize, bool), count: u32, batching: Batching) -> (usize, Report) {
    peak_memory::of(|| {
        let loader = Loader::new(sentences(kind, count), &["words"]).unwrap().batching(batching).shuffle(1);
        let dev: Samples = vec![vec![Field::from(vec![1i64, 2])]].into_iter().collect();
        let dev = Loader::new(dev, &["words"]).unwrap();
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let h = words.embedding(Embedding::new(HEIGHT as usize, 16).sparse()).lstm(16);
        let loss = h.linear(HEIGHT as usize).cross_entropy(words).mean();
        let adam = Adam::new(1e-3);
        let trainer = Trainer::new(net, loss, &if exact { adam } else { adam.lazy() }).unwrap();
        let mut trainer = trainer.threads(2).memory_limit(limit).progress(Progress::Quiet);
        trainer.fit(&loader, &dev, Until::Epochs(1)).unwrap()
    })
}

#[test]
fn no_training_takes_more_than_its_limit() {
    own_process!();
    let times = std::env::var("UNPADDED_THOROUGH").map_or(1, |times| times.parse::<u64>().unwrap());
    let (mut batches, mut least, mut most) = (0, f64::MAX, 0.0f64);
    for number in 0..times.max(6) {
        let kind = (number as usize % 3, number % 2 == 1);
        // The samples, the parameters and the allowance for lists take a constant part.
        let limit = 2_500_000 + 300_000 * number;
        let count = if times > 1 { 20_000 } else { 600 };
        // The limit does not count the programs. One sentence needs all of them.
        let (programs, _) = trained(limit, kind, 1, Batching::Memory);
        let limit_with = limit + programs as u64;
        let (peak, report) = trained(limit, kind, count, Batching::Memory);
        assert!(peak as u64 <= limit_with, "{number}: {peak} of {limit} bytes, {:?}", report.memory);
        assert_eq!(report.divided, 0);
        batches += report.steps;
        (least, most) = (least.min(peak as f64 / limit as f64), most.max(peak as f64 / limit as f64));
        // Batches of a fixed number of sentences are divided to fit.
        let (peak, report) = trained(limit, kind, 600, Batching::Sequences(300));
        assert!(peak as u64 <= limit_with, "{number}: {peak} of {limit} bytes, divided, {:?}", report.memory);
        assert!(report.divided > 0 || limit > 4_000_000, "{number}: {:?}", report.memory);
        batches += report.steps;
    }
    println!("{batches} batches under {} limits; peak over limit {least:.2} to {most:.2}", times.max(6));
}
