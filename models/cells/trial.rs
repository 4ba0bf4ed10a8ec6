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

/// Checks that the gradients of all parameters and of the input equal central differences, in f64 and on two threads.
#[cfg(test)]
pub(crate) fn gradients(cell: Cell) {
    use unpadded::executor::Stage;
    use unpadded::program::backward;
    use unpadded::{Lod, ops};

    let checked = || -> Result<()> {
        let net = Builder::new().seed(3);
        let x = net.feed("x", DType::F64, &[3], 1);
        net.watch(x);
        let y = cell(&net, x, 4);
        let loss = net.sum(net.mul(y, net.tanh(y)));
        let mut program = net.finish()?;
        let grads = backward::differentiate(&mut program, &ops::catalogue(), loss.id())?;
        let mut scope = Scope::of(&program)?;
        let lod = Lod::from_lengths1(&[3, 0, 5, 1])?;
        let rows = ndarray::Array2::from_shape_fn((9, 3), |(i, j)| ((3 * i + j) as f64 * 1.3).sin());
        let mut rows = Variable::sequences(rows, lod)?;
        let wrt: Vec<_> = program.trained_parameters().chain([x.id()]).collect();
        let wanted: Vec<_> = wrt.iter().map(|v| grads[v]).chain([loss.id()]).collect();
        let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 2)?;
        let mut run = |scope: &mut Scope, rows: &Variable| -> Result<Vec<Variable>> {
            executor.run(scope, &Run::train(&[(x.id(), rows)], 0).until(Stage::Gradients))?;
            wanted.iter().map(|&v| executor.fetch(v)).collect()
        };
        let at_once = run(&mut scope, &rows)?;
        for (&of, gradient) in wrt.iter().zip(&at_once) {
            let name = &program.var(of).name;
            let slopes = gradient.as_slice::<f64>()?;
            assert!(slopes.iter().any(|&slope| slope != 0.0), "no gradient reaches `{name}`");
            for (i, &slope) in slopes.iter().enumerate() {
                let mut moved = |by: f64| -> Result<f64> {
                    if of == x.id() {
                        rows.as_mut_slice::<f64>()?[i] += by;
                    } else {
                        let mut value = scope.get(name)?;
                        value.as_mut_slice::<f64>()?[i] += by;
                        scope.set(name, value)?;
                    }
                    Ok(run(&mut scope, &rows)?[wrt.len()].as_slice::<f64>()?[0])
                };
                let up = moved(1e-5)?;
                let expected = (up - moved(-2e-5)?) / 2e-5;
                moved(1e-5)?;
                let off = (slope - expected).abs() / expected.abs().max(1.0);
                assert!(off < 1e-6, "`{name}`[{i}] is {slope}, by differences {expected}");
            }
        }
        Ok(())
    };
    checked().unwrap_or_else(|error| panic!("{error}"));
}
