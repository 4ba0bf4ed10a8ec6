//! The memory that [`Executor::memory`] computes before a run, beside the memory that the run takes.
//!
//! A binary of its own, because its allocator counts.

#![allow(clippy::unwrap_used)]

#[path = "it/models.rs"]
mod models;
#[path = "it/peak_memory.rs"]
mod peak_memory;

use models::{Model, Random};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, Variable, ops};

const MODELS: [&Model; 13] = [
    &models::CLASSIFIER,
    &models::STACKED,
    &models::REVERSED,
    &models::NESTED,
    &models::LOOP_IN_LOOP,
    &models::ERASED,
    &models::OWN_CELL,
    &models::STATIC_ROWS,
    &models::ATTENTION,
    &models::TRAINED,
    &models::WIDE,
    &models::MANY_CLASSES,
    &models::TRAINED_NESTED,
];

/// Bytes beyond the measured peak that the figures may have, beside 15 %.
const SLACK: usize = 256 << 10;

#[test]
fn the_computed_memory_is_the_peak_of_a_run() {
    for model in MODELS {
        let net = Builder::new().seed(3);
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        Adam::new(0.01).minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        for (threads, count, words) in [(1, 8, 60), (2, 8, 60), (1, 64, 60), (2, 64, 60), (2, 20, 100)] {
            let documents = models::documents(count, 5, words, &mut Random(7));
            let values: Vec<Variable> = models::batch(model, &documents, 5);
            let fed = model.feeds.iter().zip(&values);
            let feeds: Vec<_> =
                fed.map(|(feed, value)| (program.find(feed.name()).unwrap(), value)).collect();
            let mut scope = Scope::of(&program).unwrap();
            let wanted = [made.loss.id()];
            let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, threads).unwrap();
            let before = executor.counts(&feeds).unwrap();
            let (peak, ()) = peak_memory::of(|| {
                executor.run(&mut scope, &Run::train(&feeds, 0)).unwrap();
            });
            // Only a run knows the rows that `sequence_erase` keeps.
            let counts = executor.counts_of_run();
            assert!(!before.is_exact() || before == counts, "{}: {before:?}, {counts:?}", model.name);
            let memory = executor.memory(&counts);
            let computed = memory.total() - memory.parameters - memory.state;
            let told = format!(
                "{}, {threads} threads, {count} sequences: {computed} bytes computed, {peak} measured\n{memory:?}",
                model.name
            );
            println!("{:.3} {told}", computed as f64 / peak as f64);
            assert!(memory.buffers >= executor.bytes(), "buffers of {}: {told}", executor.bytes());
            assert!(computed >= peak, "{told}");
            assert!(computed <= peak + peak * 15 / 100 + SLACK, "{told}");
        }
    }
}
