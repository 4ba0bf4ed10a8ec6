//! With products in bf16, values that only products read are stored in bf16; no result changes.

use unpadded::executor::{Executor, Run, Scope, interpret};
use unpadded::layers::{Embedding, Linear, Lstm};
use unpadded::op::MatrixUnit;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::VarId;
use unpadded::{Builder, DType, Lod, Program, Var, Variable, ndarray, ops};

const LENGTHS: [usize; 7] = [5, 0, 41, 1, 17, 33, 2];

/// A model, the values outside of which a loop or a product reads, and its loss.
struct Model {
    program: Program,
    values: Vec<VarId>,
    loss: VarId,
}

/// Two layers of LSTMs of 24, of which the second has two directions; the last step, or the maximum, gives the logits.
fn model(unit: MatrixUnit, pool: Pool, dropout: bool) -> Model {
    let net = Builder::new().seed(5);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(50, 16).sparse());
    let first = net.lstm(x, Lstm::new(24));
    let first = if dropout { first.dropout(0.25) } else { first };
    let second: [Var; 2] = [false, true].map(|reversed| {
        let layer = Lstm::new(24);
        net.lstm(first, if reversed { layer.backwards() } else { layer })
    });
    let both = net.concat(&second);
    let logits = net.linear(net.sequence_pool(both, pool), 3);
    let loss = net.mean(net.cross_entropy(logits, label));
    let values = [x, first, second[0], second[1], both].map(|var| var.id()).to_vec();
    let registry = net.registry();
    let mut program = net.finish().unwrap();
    program.unit = unit;
    Adam::new(0.01).minimize(&mut program, &registry, loss.id()).unwrap();
    Model { program, values, loss: loss.id() }
}

fn batch(lengths: &[usize]) -> [Variable; 2] {
    let rows: usize = lengths.iter().sum();
    let words = ndarray::Array1::from_iter((0..rows as i64).map(|i| (i * 37 + 11) % 50));
    let labels = ndarray::Array1::from_iter((0..lengths.len() as i64).map(|i| i % 3));
    [Variable::sequences(words, Lod::from_lengths1(lengths).unwrap()).unwrap(), Variable::from(labels)]
}

impl Model {
    fn feeds<'a>(&self, batch: &'a [Variable; 2]) -> Vec<(VarId, &'a Variable)> {
        ["words", "label"].into_iter().map(|name| self.program.find(name).unwrap()).zip(batch).collect()
    }

    /// Trains for three steps; returns the loss of each step and, at the end, the bits of the parameters.
    fn trained(&self, also: &[VarId], threads: usize) -> (Vec<f64>, Vec<Vec<u32>>, String) {
        let fetched: Vec<VarId> = std::iter::once(self.loss).chain(also.iter().copied()).collect();
        let mut executor = Executor::new(&self.program, &ops::catalogue(), &fetched, threads).unwrap();
        if threads > 1 {
            executor.divide_everything();
        }
        let (mut scope, batch) = (Scope::of(&self.program).unwrap(), batch(&LENGTHS));
        let mut losses = Vec::new();
        for step in 0..3 {
            executor.run(&mut scope, &Run::train(&self.feeds(&batch), step)).unwrap();
            losses.push(f64::from(executor.fetch(self.loss).unwrap().as_slice::<f32>().unwrap()[0]));
        }
        let names: Vec<String> = scope.names().map(str::to_owned).collect();
        let values = names.iter().filter(|name| !name.contains("history") && !name.contains("settled"));
        let bits = values.map(|name| {
            let value = scope.get(name).unwrap();
            value.as_slice::<f32>().map(|all| all.iter().map(|x| x.to_bits()).collect()).unwrap_or_default()
        });
        let listing = executor.listing().to_string();
        (losses, bits.collect(), listing)
    }
}

/// Returns whether the listing has a buffer of bf16 numbers with this variable.
fn stores(listing: &str, variable: &str) -> bool {
    listing.lines().any(|line| line.contains(" bf16: ") && line.contains(&format!("{variable} (")))
}

#[test]
fn values_that_only_products_read_are_stored_in_bf16() {
    for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
        let (_, _, listing) = model(unit, Pool::Last, false).trained(&[], 1);
        assert!(listing.contains("stores `embedding` in bf16, since only products read it"), "{listing}");
        // The states of the three loops, as memories, and outside of the loops up to the last product.
        for variable in ["embedding", "lstm_cell.h", "lstm_cell.h.steps", "concat", "sequence_pool"] {
            assert!(stores(&listing, variable), "{variable}\n{listing}");
        }
        assert!(!stores(&listing, "lstm_cell.c"), "the cell reads its state in f32\n{listing}");
        // The gates are saved for the backward pass, and their gradient is written over them.
        assert!(listing.contains("saves `add` in bf16 for the backward pass"), "{listing}");
        assert!(
            stores(&listing, "add.bf16") && listing.contains("a value of the step is rounded"),
            "{listing}"
        );
        // The maximum is not a product, and so is no value from which it is computed by copies.
        let (_, _, listing) = model(unit, Pool::Max, false).trained(&[], 1);
        assert!(stores(&listing, "embedding") && !stores(&listing, "concat"), "{listing}");
        // Dropout reads the states in f32; what it writes is stored in bf16.
        let (_, _, listing) = model(unit, Pool::Last, true).trained(&[], 1);
        assert!(stores(&listing, "dropout"), "{listing}");
    }
    let (_, _, listing) = model(MatrixUnit::F32, Pool::Last, false).trained(&[], 1);
    assert!(!listing.contains(" bf16: ") && !listing.contains("round_bf16"), "{listing}");
}

/// A training has the same bits if the values are fetched, and so stored in f32.
#[test]
fn storage_in_bf16_changes_no_bit() {
    for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
        for (pool, dropout) in [(Pool::Last, false), (Pool::First, true), (Pool::Max, false)] {
            let model = model(unit, pool, dropout);
            let (losses, bits, listing) = model.trained(&model.values, 1);
            assert!(!stores(&listing, "embedding") && !stores(&listing, "concat"), "{listing}");
            for threads in [1, 2, 3, 7] {
                let (ours, ours_bits, _) = model.trained(&[], threads);
                assert_eq!(ours, losses, "{unit} {pool:?} {threads}");
                assert!(ours_bits == bits, "{unit} {pool:?} {threads}: other parameters");
            }
        }
    }
}

#[test]
fn the_interpreter_gives_the_same_loss() {
    for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
        let model = model(unit, Pool::Last, false);
        let batch = batch(&LENGTHS);
        let feeds = model.feeds(&batch);
        let mut scope = Scope::of(&model.program).unwrap();
        let run = Run::infer(&feeds);
        let values = interpret(&model.program, &ops::catalogue(), &mut scope, &run).unwrap();
        let mut executor = Executor::new(&model.program, &ops::catalogue(), &[model.loss], 2).unwrap();
        executor.run(&mut scope, &run).unwrap();
        let [ours, theirs] = [&executor.fetch(model.loss).unwrap(), &values[&model.loss]]
            .map(|loss| loss.as_slice::<f32>().unwrap()[0].to_bits());
        assert_eq!(ours, theirs, "{unit}");
    }
}

/// A state below 1e-30 becomes zero when it passes to the next step, whether an operator computes it or copies it together.
#[test]
fn very_small_states_become_zero() {
    for copied in [false, true] {
        let net = Builder::new().seed(5);
        let x = net.feed("x", DType::F32, &[2], 1);
        let out = net.recurrent(x, |step, x| {
            let state = step.memory(2);
            let product = state.linear(Linear::new(2).without_bias());
            let [a, b] = x.scale(1e-31, 0.0).split([1, 1]);
            step.update(state, if copied { step.concat(&[a.tanh(), b.tanh()]) } else { x.scale(1e-31, 0.0) });
            product
        });
        let registry = net.registry();
        let mut program = net.finish().unwrap();
        program.unit = MatrixUnit::Bf16Pairs;
        let lod = Lod::from_lengths1(&[3, 5]).unwrap();
        let rows =
            ndarray::Array2::from_shape_fn((8, 2), |(i, j)| if (i + j) % 3 == 0 { 1e3f32 } else { 1.0 });
        let x_fed = Variable::sequences(rows, lod).unwrap();
        let feeds = [(x.id(), &x_fed)];
        let mut scope = Scope::of(&program).unwrap();
        let expected = interpret(&program, &registry, &mut scope, &Run::infer(&feeds)).unwrap();
        let expected = expected[&out.id()].as_slice::<f32>().unwrap().to_vec();
        assert!(expected.contains(&0.0) && expected.iter().any(|x| x.abs() > 1e-30), "{expected:?}");
        let mut executor = Executor::new(&program, &registry, &[out.id()], 1).unwrap();
        executor.run(&mut scope, &Run::infer(&feeds)).unwrap();
        assert_eq!(executor.fetch(out).unwrap().as_slice::<f32>().unwrap(), expected, "copied {copied}");
    }
}
