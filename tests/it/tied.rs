//! Products with transposed weights, and their purpose: one table that embeds words and computes logits.

use crate::refused::Outcome;
use unpadded::executor::{Executor, Run, Scope, Stage, interpret};
use unpadded::layers::init;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::{VarId, backward};
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{Builder, DType, Lod, Program, Var, Variable, ops};

use crate::models::Random;

const WORDS: usize = 300;
const WIDTH: usize = 6;
const LENGTHS: [usize; 5] = [3, 0, 17, 1, 30];

/// The use of the language model's table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct How {
    /// The table makes the logits too; else a parameter of its own does, transposed as well.
    tied: bool,
    sparse: bool,
    /// The logits are fetched, so that nothing is fused.
    whole: bool,
}

struct Model {
    program: Program,
    words: VarId,
    labels: VarId,
    logits: VarId,
    loss: VarId,
}

/// Embedding, a cell, logits, loss.
fn model(how: How) -> Model {
    let net = Builder::new().seed(4);
    let words = net.feed("words", DType::I64, &[], 1);
    let labels = net.feed_like("labels", DType::I64, &[], words);
    let own = |name| net.parameter(name, DType::F64, &[WORDS, WIDTH], init::normal(0.4));
    let table = own("embed.weight");
    let x = net.lookup(words, table, None, how.sparse);
    let cell = net.recurrent(x, |step, x| {
        let before = step.memory_of(DType::F64, &[WIDTH]);
        let h = step.tanh(step.add(step.linear(x, WIDTH), step.linear(before, WIDTH)));
        step.update(before, h);
        h
    });
    let weight = if how.tied { table } else { own("own") };
    let bias = net.parameter("bias", DType::F64, &[WORDS], init::normal(0.1));
    let logits = net.product_transposed(cell, weight, Some(bias));
    let loss = net.mean(net.cross_entropy(logits, labels));
    let [words, labels, logits, loss] = [words, labels, logits, loss].map(Var::id);
    Model { program: net.finish().unwrap(), words, labels, logits, loss }
}

fn ids(salt: u64) -> Variable {
    let lod = Lod::from_lengths1(&LENGTHS).unwrap();
    let mut random = Random(salt);
    let ids: Vec<i64> = (0..lod.rows()).map(|_| random.below(WORDS) as i64).collect();
    Variable::new(Dense::from_vec(&[ids.len()], ids).unwrap(), Some(lod)).unwrap()
}

fn floats(value: &Variable) -> Vec<f64> {
    value.storage().to_dense().unwrap().as_slice::<f64>().unwrap().to_vec()
}

/// The loss and the gradient of each parameter by name; with the gradient of the table as it is stored.
fn gradients(how: How, threads: usize) -> (Vec<(String, Vec<f64>)>, StorageKind, String) {
    let mut model = model(how);
    let grads = backward::append(&mut model.program, &ops::catalogue(), model.loss).unwrap();
    let mut scope = Scope::of(&model.program).unwrap();
    // Both tables of the untied model are the one of the tied.
    if !how.tied {
        let table = scope.get("embed.weight").unwrap();
        scope.set("own", table).unwrap();
    }
    let mut wanted: Vec<VarId> = grads.iter().map(|(_, g)| *g).chain([model.loss]).collect();
    wanted.extend(how.whole.then_some(model.logits));
    let mut executor = Executor::new(&model.program, &ops::catalogue(), &wanted, threads).unwrap();
    if threads > 1 {
        executor.divide_everything();
    }
    let (words, labels) = (ids(1), ids(2));
    let feeds = [(model.words, &words), (model.labels, &labels)];
    executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Gradients)).unwrap();
    let name = |var: VarId| model.program.var(var).name.clone();
    let mut found: Vec<(String, Vec<f64>)> =
        grads.iter().map(|&(p, g)| (name(p), floats(&executor.fetch(g).unwrap()))).collect();
    found.push(("loss".into(), floats(&executor.fetch(model.loss).unwrap())));
    let table = grads.iter().find(|(p, _)| name(*p) == "embed.weight").unwrap().1;
    let stored = executor.fetch(table).unwrap().storage().kind();
    (found, stored, executor.listing().to_string())
}

fn of<'a>(found: &'a [(String, Vec<f64>)], name: &str) -> &'a [f64] {
    &found.iter().find(|(n, _)| n == name).unwrap().1
}

#[track_caller]
fn close(ours: &[f64], theirs: &[f64], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (x, y)) in ours.iter().zip(theirs).enumerate() {
        assert!((x - y).abs() <= 1e-12 * y.abs().max(1.0), "{what}[{i}]: {x} is not {y}");
    }
}

/// The gradient of the tied table is the sum of the gradients of two tables with the same numbers: one gradient is by rows if the
/// embedding is sparse, the sum is dense.
#[test]
fn the_gradient_of_a_tied_table_is_the_sum_over_its_uses() {
    for (sparse, whole) in [(false, false), (true, false), (true, true)] {
        let (tied, stored, listing) = gradients(How { tied: true, sparse, whole }, 1);
        assert_eq!(stored, StorageKind::Dense);
        assert_eq!(listing.contains("as linear_cross_entropy"), !whole, "{listing}");
        let (apart, rows, _) = gradients(How { tied: false, sparse, whole: true }, 1);
        assert_eq!(rows, if sparse { StorageKind::SelectedRows } else { StorageKind::Dense });
        let both = of(&apart, "embed.weight").iter().zip(of(&apart, "own")).map(|(a, b)| a + b);
        close(of(&tied, "embed.weight"), &both.collect::<Vec<_>>(), "the table");
        for name in ["loss", "bias", "linear_0.weight", "linear_1.weight"] {
            close(of(&tied, name), of(&apart, name), name);
        }
        for threads in [2, 3] {
            let (again, _, _) = gradients(How { tied: true, sparse, whole }, threads);
            assert!(again == tied, "{threads} threads");
        }
    }
}

/// Central differences by some numbers of the tied table.
#[test]
fn the_gradient_of_a_tied_table_is_its_difference() {
    for whole in [false, true] {
        let how = How { tied: true, sparse: true, whole };
        let (found, _, _) = gradients(how, 2);
        let model = model(how);
        let (words, labels) = (ids(1), ids(2));
        let feeds = [(model.words, &words), (model.labels, &labels)];
        let mut scope = Scope::of(&model.program).unwrap();
        let mut executor = Executor::new(&model.program, &ops::catalogue(), &[model.loss], 1).unwrap();
        let table = scope.get("embed.weight").unwrap();
        let numbers = table.as_slice::<f64>().unwrap().to_vec();
        let looked_up = words.as_slice::<i64>().unwrap()[0] as usize * WIDTH;
        for i in (0..numbers.len()).step_by(173).chain(looked_up..looked_up + WIDTH) {
            let mut loss_at = |by: f64| {
                let mut moved = numbers.clone();
                moved[i] += by;
                scope.set("embed.weight", Dense::from_vec(table.shape(), moved).unwrap()).unwrap();
                executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Forward)).unwrap();
                floats(&executor.fetch(model.loss).unwrap())[0]
            };
            let expected = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
            let got = of(&found, "embed.weight")[i];
            assert!((got - expected).abs() < 1e-9, "[{i}]: {got} is not {expected}");
        }
    }
}

/// An optimizer that refuses rows without `.lazy()` takes the tied table, whose gradient is dense; a step with a sparse
/// embedding is that with a dense one.
#[test]
fn optimizers_update_a_tied_table_as_a_dense_one() {
    let step = |sparse| {
        let mut model = model(How { tied: true, sparse, whole: false });
        Adam::new(0.01).minimize(&mut model.program, &ops::catalogue(), model.loss).unwrap();
        let mut scope = Scope::of(&model.program).unwrap();
        let mut executor = Executor::new(&model.program, &ops::catalogue(), &[model.loss], 2).unwrap();
        let (words, labels) = (ids(1), ids(2));
        let feeds = [(model.words, &words), (model.labels, &labels)];
        let before = scope.get("embed.weight").unwrap().as_slice::<f64>().unwrap().to_vec();
        (0..3).for_each(|k| executor.run(&mut scope, &Run::train(&feeds, k)).unwrap());
        let after = scope.get("embed.weight").unwrap().as_slice::<f64>().unwrap().to_vec();
        assert!(before.iter().zip(&after).all(|(a, b)| a != b), "every row is a class, and moves");
        after
    };
    close(&step(true), &step(false), "the table after three steps");
}

/// Transposed weights give the same bits, with one weight or many, with and without a bias.
#[test]
fn a_transposed_weight_gives_the_same_bits() {
    let build = |transposed: bool| {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[7], 1);
        net.watch(x);
        let dims = if transposed { [40, 7] } else { [7, 40] };
        let w = net.parameter("w", DType::F32, &dims, init::zeros());
        let b = net.parameter("b", DType::F32, &[40], init::normal(1.0));
        let y = match transposed {
            true => net.product_transposed(x, w, Some(b)),
            false => net.product(x, w, Some(b)),
        };
        let loss = net.sum(net.square(y));
        let mut program = net.finish().unwrap();
        let grads = backward::differentiate(&mut program, &ops::catalogue(), loss.id()).unwrap();
        let wanted = [y.id(), grads[&x.id()], grads[&b.id()], grads[&w.id()]];
        let number = |row: usize, column: usize| ((row * 40 + column) as f32 * 1.7).sin();
        let turned = |k: usize| if transposed { number(k % 7, k / 7) } else { number(k / 40, k % 40) };
        let mut scope = Scope::of(&program).unwrap();
        scope.set("w", Dense::from_vec(&dims, (0..280).map(turned).collect()).unwrap()).unwrap();
        let lod = Lod::from_lengths1(&LENGTHS).unwrap();
        let rows: Vec<f32> = (0..lod.rows() * 7).map(|i| (i as f32 * 0.9).cos()).collect();
        let rows = Dense::from_vec(&[lod.rows(), 7], rows).unwrap();
        let rows = Variable::new(rows, Some(lod)).unwrap();
        let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 2).unwrap();
        executor.run(&mut scope, &Run::train(&[(x.id(), &rows)], 0).until(Stage::Gradients)).unwrap();
        let fetched = wanted.map(|v| executor.fetch(v).unwrap().as_slice::<f32>().unwrap().to_vec());
        let [y, dx, db, dw] = fetched;
        let at = |k: usize| if transposed { dw[k % 40 * 7 + k / 40] } else { dw[k] };
        [y, dx, db, (0..280).map(at).collect()]
    };
    assert!(build(true) == build(false));
}

/// Products in a loop that read one variable are merged: products with transposed weights into one, the others into another.
#[test]
fn merging_keeps_transposed_weights_apart() {
    let net = Builder::new().seed(5);
    let x = net.feed("x", DType::F64, &[WIDTH], 1);
    let weight = |name: &str, dims: &[usize]| net.parameter(name, DType::F64, dims, init::uniform(-0.4, 0.4));
    // The transposed weights of the square ones have the same shape.
    let w: Vec<Var> = (0..3).map(|k| weight(&format!("w{k}"), &[WIDTH, WIDTH])).collect();
    let narrow = weight("narrow", &[2, WIDTH]);
    let y = net.recurrent(x, |step, x| {
        let h = step.memory_of(DType::F64, &[WIDTH]);
        let (a, b) = (step.product(h, w[0], None), step.product_transposed(h, w[1], None));
        let (c, d) = (step.product(h, w[2], None), step.product_transposed(h, narrow, None));
        let seen = step.concat(&[step.tanh(a), step.sigmoid(b), step.square(c), step.tanh(d), x]);
        let next = step.tanh(step.linear(seen, WIDTH));
        step.update(h, next);
        next
    });
    let loss = net.sum(net.square(y));
    let mut program = net.finish().unwrap();
    let grads = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let wanted: Vec<VarId> = [y.id(), loss.id()].into_iter().chain(grads.iter().map(|(_, g)| *g)).collect();
    let mut scope = Scope::of(&program).unwrap();
    let lod = Lod::from_lengths1(&LENGTHS).unwrap();
    let rows: Vec<f64> = (0..lod.rows() * WIDTH).map(|i| (i as f64 * 0.9).cos()).collect();
    let rows = Variable::new(Dense::from_vec(&[lod.rows(), WIDTH], rows).unwrap(), Some(lod)).unwrap();
    let feeds = [(x.id(), &rows)];
    let run = Run::train(&feeds, 0).until(Stage::Gradients);
    let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 2).unwrap();
    let listing = executor.listing().to_string();
    for text in ["linear #0, linear #2 as one", "linear #1, linear #3 as one"] {
        assert!(listing.contains(text), "{text}\nis not in\n{listing}");
    }
    executor.run(&mut scope, &run).unwrap();
    let plain = interpret(&program, &ops::catalogue(), &mut scope, &run).unwrap();
    for &var in &wanted {
        let name = &program.var(var).name;
        close(&floats(&executor.fetch(var).unwrap()), &floats(&plain[&var]), name);
    }
}

/// A product has the attribute for transposed weights only if its weight lies transposed: other programs are unchanged.
#[test]
fn what_is_not_transposed_is_not_written() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    net.linear(x, 3);
    let w = net.parameter("w", DType::F32, &[3, 4], init::zeros());
    net.product_transposed(x, w, None);
    let program = net.finish().unwrap();
    let text: Vec<String> = program.root().ops.iter().map(|op| format!("{:?}", op.attributes)).collect();
    assert_eq!(text, ["Attributes({})", "Attributes({\"transposed\": Bool(true)})"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let w = net.parameter("w", DType::F32, &[4, 3], init::zeros());
    let error = |made: Var| made.refused().to_string();
    let wrong = error(net.product_transposed(x, w, None));
    assert!(wrong.contains("`x`: expected rows of 3 numbers, since the width of `weight` is 3"), "{wrong}");
    let wrong = error(net.product_transposed(w, x, None));
    assert!(wrong.contains("`weight`: expected a constant of shape [out, in]"), "{wrong}");
    assert!(wrong.contains(file!()), "{wrong}");
}
