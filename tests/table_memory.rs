//! A row-sparse parameter takes memory for the rows that were touched, whatever its height, in training and in a predictor.
//!
//! A binary of its own, because its allocator counts.

#![allow(clippy::unwrap_used)]

#[path = "it/peak_memory.rs"]
mod peak_memory;

use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::init;
use unpadded::optimizer::{Adagrad, Optimizer};
use unpadded::{Builder, DType, Variable};

const WIDTH: usize = 64;

/// The most memory that a training takes which touches so many rows, a hundred a step.
fn peak(height: usize, rows: usize) -> usize {
    let step = height / rows;
    let (peak, touched) = peak_memory::of(|| {
        let net = Builder::new();
        let ids = net.feed("ids", DType::I64, &[], 0);
        let table = net.row_sparse_parameter("table", DType::F32, &[height, WIDTH], init::normal(0.1));
        let loss = net.lookup(ids, table, None, true).tanh().mean();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        Adagrad::new(0.1).minimize(&mut program, &registry, loss.id()).unwrap();
        let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        for first in (0..rows).step_by(100) {
            let fed: Vec<i64> = (first..first + 100).map(|row| (row * step) as i64).collect();
            let fed = Variable::from(ndarray::Array1::from(fed));
            executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], 0)).unwrap();
        }
        scope.value("table.sum").unwrap().as_selected_rows().unwrap().row_ids().len()
    });
    assert_eq!(touched, rows);
    peak
}

#[test]
fn memory_grows_with_the_rows_that_were_touched() {
    // The first training sets up what the process keeps.
    peak(1000, 100);
    let [few, many] = [1_000, 16_000].map(|rows| peak(1_000_000_000_000, rows));
    let low = peak(16_000, 16_000);
    println!("{few} bytes for 1,000 rows, {many} for 16,000, {low} for 16,000 of a table of as many");
    // The height costs nothing.
    assert!(many.abs_diff(low) < 4096, "{many} is not {low}");
    // A parameter and a sum, each with room to grow, an index, and the copy that was asked for.
    let row = WIDTH * size_of::<f32>();
    assert!(many - few < 15_000 * 6 * row, "{few}, {many}");
    assert!(many - few > 15_000 * 2 * row, "{few}, {many}");
}
