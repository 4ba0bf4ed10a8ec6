//! Row-wise calls that run chunk by chunk: with more rows than a chunk has, at the root, and before, in and after a loop, they
//! compute the results of whole calls.

use unpadded::executor::{Executor, Run, Scope, Stage, interpret};
use unpadded::program::{Step, VarId, backward};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Program, Result, Var, Variable, ops};

use crate::models::Random;

/// A row of a chain of ten calls is some ten kilobytes, so that a chunk has some fifty rows.
const WIDTH: usize = 256;

struct Model {
    program: Program,
    x: VarId,
    ids: VarId,
    y: VarId,
    wanted: Vec<VarId>,
}

/// A gated average with gates that see the input alone, random numbers, a product whose weight's gradient lies between
/// chained calls, and operators behind the loop.
fn cell(step: &Step, x: Var) -> Var {
    let before = step.memory(WIDTH);
    let x = step.dropout(step.linear(x, WIDTH), 0.25);
    let keep = step.sigmoid(step.linear(x, WIDTH));
    let fresh = step.mul(step.scale(keep, -1.0, 1.0), step.tanh(x));
    let h = step.add(step.mul(before, keep), step.square(fresh));
    step.update(before, h);
    step.mul(step.tanh(step.linear(h, WIDTH)), step.sigmoid(h))
}

fn model() -> Model {
    let net = Builder::new().seed(5);
    let x = net.feed("x", DType::F32, &[3], 1);
    let ids = net.feed_like("ids", DType::I64, &[], x);
    let y = net.recurrent(x, cell);
    let table = net.parameter("table", DType::F32, &[7, 3], unpadded::layers::init::uniform(-1.0, 1.0));
    let looked_up = net.recurrent((x, ids), |step: &Step, (x, ids): (Var, Var)| {
        let before = step.memory(3);
        let row = step.tanh(step.lookup(ids, table, None, false));
        let h = step.add(step.mul(before, row), x);
        step.update(before, h);
        h
    });
    let loss = net.add(net.sum(net.mul(y, y)), net.sum(looked_up));
    let mut program = net.finish().unwrap();
    let gradients = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let wanted = [y.id(), loss.id()].into_iter().chain(gradients.iter().map(|(_, gradient)| *gradient));
    Model { x: x.id(), ids: ids.id(), y: y.id(), wanted: wanted.collect(), program }
}

fn batch(lengths: &[usize]) -> [Variable; 2] {
    let (rows, mut random) = (lengths.iter().sum::<usize>(), Random(3));
    let numbers: Vec<f32> = (0..rows * 3).map(|_| random.below(2000) as f32 / 1000.0 - 1.0).collect();
    let ids: Vec<i64> = (0..rows).map(|_| random.below(7) as i64).collect();
    let lod = Some(Lod::from_lengths1(lengths).unwrap());
    let x = Dense::from_vec(&[rows, 3], numbers).unwrap();
    [x, Dense::from_vec(&[rows], ids).unwrap()].map(|values| Variable::new(values, lod.clone()).unwrap())
}

/// Some hundred sequences at the first steps, so that a step has several chunks too.
fn lengths() -> Vec<usize> {
    let mut random = Random(11);
    (0..300).map(|_| random.below(6)).collect()
}

impl Model {
    /// Compares the results of a run with the interpreter: outputs bit for bit, gradients up to rounding.
    #[track_caller]
    fn is_as_interpreted(&self, one: &[Vec<f32>], batch: &[Variable], numbers: &[u64]) {
        let mut scope = Scope::of(&self.program).unwrap();
        let feeds = [(self.x, &batch[0]), (self.ids, &batch[1])];
        let run = Run::train(&feeds, 4).numbers(numbers).until(Stage::Gradients);
        let plain = interpret(&self.program, &ops::catalogue(), &mut scope, &run).unwrap();
        assert!(one[0] == plain[&self.y].as_slice::<f32>().unwrap(), "forward");
        for (ours, var) in one.iter().zip(&self.wanted) {
            let theirs = plain[var].as_slice::<f32>().unwrap();
            let scale = theirs.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
            let off = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off <= 1e-4 * scale, "`{}`: {off} of {scale}", self.program.var(*var).name);
        }
    }

    fn executor(&self, threads: usize) -> Executor {
        let executor = Executor::new(&self.program, &ops::catalogue(), &self.wanted, threads).unwrap();
        if threads == 3 { crate::models::divided(executor) } else { executor }
    }

    fn run(&self, executor: &mut Executor, batch: &[Variable; 2], numbers: &[u64]) -> Result<Vec<Vec<f32>>> {
        let mut scope = Scope::of(&self.program)?;
        let feeds = [(self.x, &batch[0]), (self.ids, &batch[1])];
        executor.run(&mut scope, &Run::train(&feeds, 4).numbers(numbers).until(Stage::Gradients))?;
        self.wanted.iter().map(|&v| Ok(executor.fetch(v)?.as_slice::<f32>()?.to_vec())).collect()
    }
}

#[test]
fn chunks_and_threads_change_no_bit() {
    let (model, lengths) = (model(), lengths());
    let (batch, numbers) = (batch(&lengths), (0..300).collect::<Vec<u64>>());
    let listing = model.executor(1).listing().to_string();
    assert!(listing.matches("calls in turn on every").count() >= 5, "{listing}");
    let one = model.run(&mut model.executor(1), &batch, &numbers).unwrap();
    for threads in [2, 3] {
        let other = model.run(&mut model.executor(threads), &batch, &numbers).unwrap();
        assert!(other == one, "{threads} threads");
    }
    model.is_as_interpreted(&one, &batch, &numbers);
}

#[test]
fn a_sequence_alone_has_the_bits_of_the_batch() {
    let (model, lengths) = (model(), lengths());
    let (together, mut executor) = (batch(&lengths), model.executor(2));
    let numbers: Vec<u64> = (0..300).collect();
    let all = model.run(&mut executor, &together, &numbers).unwrap().swap_remove(0);
    for sequence in [0, 1, 57, 120, 299] {
        let alone = [0, 1].map(|i| crate::models::take(&together[i], &[sequence]));
        let y = model.run(&mut executor, &alone, &[sequence as u64]).unwrap().swap_remove(0);
        let first: usize = lengths[..sequence].iter().sum();
        assert!(y == all[first * WIDTH..(first + lengths[sequence]) * WIDTH], "sequence {sequence}");
    }
}

/// An error in a chunk equals the error of the whole call: it names the row of the batch.
#[test]
fn a_wrong_row_is_named_as_in_a_whole_call() {
    let (model, lengths) = (model(), lengths());
    let mut wrong = batch(&lengths);
    wrong[1].as_mut_slice::<i64>().unwrap()[480] = 9;
    let numbers: Vec<u64> = (0..300).collect();
    let text = |threads| model.run(&mut model.executor(threads), &wrong, &numbers).unwrap_err().to_string();
    let one = text(1);
    assert!(one.contains("lookup") || one.contains("embedding"), "{one}");
    assert!(one.contains("9") && one.contains(file!()), "{one}");
    assert_eq!(text(2), one);
    let mut executor = model.executor(2);
    model.run(&mut executor, &wrong, &numbers).unwrap_err();
    let right = batch(&lengths);
    let after = model.run(&mut executor, &right, &numbers).unwrap();
    assert!(
        after == model.run(&mut model.executor(2), &right, &numbers).unwrap(),
        "a run after a failed one"
    );
}

/// A feed-forward net over rows without steps: gates, dropout, a number a row beside rows, gradients of constants between
/// gradients of rows.
fn feed_forward() -> Model {
    let net = Builder::new().seed(5);
    let x = net.feed("x", DType::F32, &[3], 1);
    let ids = net.feed_like("ids", DType::I64, &[], x);
    let h = x.linear(WIDTH).dropout(0.25).tanh();
    let scale = net.parameter("scale", DType::F32, &[WIDTH], unpadded::layers::init::uniform(0.5, 1.5));
    let gate = (h * scale).sigmoid();
    let y = (gate * h + h.square()).linear(WIDTH).tanh();
    let table = net.parameter("table", DType::F32, &[7, WIDTH], unpadded::layers::init::uniform(-1.0, 1.0));
    let y = (ids.lookup(table, None, false).tanh() * y + y).sigmoid();
    let loss = (y * y).sum();
    let mut program = net.finish().unwrap();
    let gradients = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let wanted = [y.id(), loss.id()].into_iter().chain(gradients.iter().map(|(_, gradient)| *gradient));
    Model { x: x.id(), ids: ids.id(), y: y.id(), wanted: wanted.collect(), program }
}

#[test]
fn at_the_root_chunks_and_threads_change_no_bit() {
    let (model, lengths) = (feed_forward(), lengths());
    let (batch, numbers) = (batch(&lengths), (0..300).map(|i| i * 3 + 1).collect::<Vec<u64>>());
    let listing = model.executor(1).listing().to_string();
    assert!(listing.matches("\n  these ").count() >= 4, "{listing}");
    let one = model.run(&mut model.executor(1), &batch, &numbers).unwrap();
    model.is_as_interpreted(&one, &batch, &numbers);
    for threads in [2, 3] {
        let other = model.run(&mut model.executor(threads), &batch, &numbers).unwrap();
        assert!(other == one, "{threads} threads");
    }
    let mut wrong = self::batch(&lengths);
    wrong[1].as_mut_slice::<i64>().unwrap()[480] = 9;
    let text = |threads| model.run(&mut model.executor(threads), &wrong, &numbers).unwrap_err().to_string();
    let first = text(1);
    assert!(first.contains("position") && first.contains("got 9") && first.contains(file!()), "{first}");
    assert!(text(2) == first && text(3) == first, "{first} is not {} or {}", text(2), text(3));
}

/// Values that a chain alone needs take turns in few buffers, as they would if it were no chain.
#[test]
fn a_chain_at_the_root_takes_no_more_memory() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[WIDTH], 0);
    let y = (0..8).fold(x, |y, _| (y * 0.5).tanh());
    let program = net.finish().unwrap();
    let mut executor = Executor::new(&program, &ops::catalogue(), &[y.id()], 1).unwrap();
    assert!(executor.listing().to_string().contains("these 16 calls in turn"), "{}", executor.listing());
    let rows = Variable::from(ndarray::Array2::<f32>::from_elem((1000, WIDTH), 0.75));
    executor.run(&mut Scope::of(&program).unwrap(), &Run::infer(&[(x.id(), &rows)])).unwrap();
    let expected = (0..8).fold(0.75f64, |y, _| (y * 0.5).tanh());
    let last = executor.fetch(y).unwrap();
    assert!(last.as_slice::<f32>().unwrap().iter().all(|&y| (f64::from(y) - expected).abs() < 1e-6));
    let of_rows = 1000 * WIDTH * size_of::<f32>();
    // And the feed: a failed call is searched again from the inputs of the chain.
    assert_eq!(executor.bytes(), 3 * of_rows);
}
