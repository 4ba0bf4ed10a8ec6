//! The memory that is said before a run, beside the memory that the run takes.
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

#[test]
fn what_is_said_is_what_is_taken() {
    for model in MODELS {
        let net = Builder::new().seed(3);
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        Adam::new(0.01).minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        for threads in [1, 2] {
            for (count, words) in [(8, 60), (64, 60), (20, 100)] {
                let documents = models::documents(count, 5, words, &mut Random(7));
                let values: Vec<Variable> = models::batch(model, &documents, 5);
                let feeds: Vec<_> = model
                    .feeds
                    .iter()
                    .zip(&values)
                    .map(|(feed, value)| (program.find(feed.name()).unwrap(), value))
                    .collect();
                let mut scope = Scope::of(&program).unwrap();
                let mut executor =
                    Executor::new(&program, &ops::catalogue(), &[made.loss.id()], threads).unwrap();
                let before = executor.counts(&feeds).unwrap();
                let (most, ()) = peak_memory::of(|| {
                    executor.run(&mut scope, &Run::train(&feeds, 0)).unwrap();
                });
                let counts = executor.counts_of_run();
                if before.is_exact() {
                    assert_eq!(before, counts);
                }
                let memory = executor.memory(&counts);
                let rows: usize = documents.iter().flatten().sum();
                let (said, buffers) = (memory.total() - memory.parameters - memory.state, executor.bytes());
                println!(
                    "{:28} {threads} threads {count:3} sequences {rows:5} rows: buffers {:9} {buffers:9} {:.3}; all {said:9} {most:9} {:.3}",
                    model.name,
                    memory.buffers,
                    memory.buffers as f64 / buffers as f64,
                    said as f64 / most as f64
                );
            }
        }
    }
}
