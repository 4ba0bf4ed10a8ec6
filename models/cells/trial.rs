//! The tests of every cell in this folder: its gradients, and a task to learn.
#[path = "../draws.rs"]
mod draws;

use draws::Draws;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, DType, Result, Var, Variable};

/// Appends a layer over `x` with outputs of the given width.
pub(crate) type Cell = fn(&Builder, Var, usize) -> Var;

/// The number of symbols to recall, and also the number of symbols without a meaning.
const SYMBOLS: usize = 4;

/// Trains on recall, and returns the loss of each step: a sequence starts with one of four symbols, up to eight symbols without a
/// meaning follow, and at the end the layer has to recall the first symbol.
pub(crate) fn train(cell: Cell, steps: u64) -> Result<Vec<f64>> {
    let net = Builder::new().seed(1);
    let symbols = net.feed("symbols", DType::I64, &[], 1);
    let answer = net.feed("first", DType::I64, &[], 0);
    let x = net.embedding(symbols, Embedding::new(2 * SYMBOLS, 16));
    let last = net.sequence_pool(cell(&net, x, 16), Pool::Last);
    let loss = net.mean(net.cross_entropy(net.linear(last, SYMBOLS), answer));
    let registry = net.registry();
    let mut program = net.finish()?;
    Adam::new(1e-2).minimize(&mut program, &registry, loss.id())?;
    let mut executor = Executor::new(&program, &registry, &[loss.id()], 1)?;
    let mut scope = Scope::of(&program)?;
    let mut draws = Draws::new(7);
    let one_step = |step| {
        let mut sequence = |_| {
            let (first, noise) = (draws.one_of(0..SYMBOLS), draws.one_of(0..9));
            let noise = (0..noise).map(|_| draws.one_of(SYMBOLS..2 * SYMBOLS) as i64);
            std::iter::once(first as i64).chain(noise).collect::<Vec<i64>>()
        };
        let sequences: Vec<Vec<i64>> = (0..32).map(&mut sequence).collect();
        let first: Vec<i64> = sequences.iter().map(|sequence| sequence[0]).collect();
        let given = [Variable::from_sequences(&sequences)?, Variable::dense(ndarray::Array1::from(first))];
        let feeds = [(symbols.id(), &given[0]), (answer.id(), &given[1])];
        executor.run(&mut scope, &Run::train(&feeds, step))?;
        executor.scalar(loss)
    };
    (0..steps).map(one_step).collect()
}

/// Checks that the loss of [`train`] falls to less than half.
#[cfg(test)]
pub(crate) fn learns(cell: Cell) {
    let losses = train(cell, 100).unwrap_or_else(|error| panic!("{error}"));
    let (start, end) = (losses[0], losses[95..].iter().sum::<f64>() / 5.0);
    assert!(end < start / 2.0, "the loss was {start}, and is {end} in the end");
}

/// Checks that the gradients of all parameters and of the input equal central differences, in f64.
#[cfg(test)]
pub(crate) fn gradients(cell: Cell) {
    use unpadded::{Lod, op::testing};

    let lod = Lod::from_lengths1(&[3, 0, 5, 1]).unwrap();
    let rows = ndarray::Array2::from_shape_fn((9, 3), |(i, j)| ((3 * i + j) as f64 * 1.3).sin());
    let rows = Variable::sequences(rows, lod).unwrap();
    testing::check_gradients(Builder::new().seed(3), &[rows], &|net, inputs| vec![cell(net, inputs[0], 4)])
        .unwrap();
}
