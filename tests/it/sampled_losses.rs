//! Losses over many classes against their formulas written out, with the very samples that were drawn; and probabilities that add
//! up to 1.

use ndarray::{Array1, Array2};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::init;
use unpadded::ops::{ClassTree, SampledClasses, Side};
use unpadded::optimizer::{Optimizer, Schedule, Sgd};
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Lod, Mode, Var, Variable};

const CLASSES: usize = 11;
const WIDTH: usize = 3;
const SAMPLES: usize = 6;

fn numbers(rows: usize, width: usize, salt: f64) -> Array2<f64> {
    Array2::from_shape_fn((rows, width), |(i, j)| ((i * width + j) as f64 * 1.3 + salt).sin())
}

/// The loss of each row and the classes drawn for it, by an operator over rows in sequences of these lengths.
struct Drawn {
    losses: Vec<f64>,
    samples: Vec<i64>,
}

fn run(
    lengths: &[usize],
    mode: Mode,
    threads: usize,
    operator: impl Fn(&Builder, Var, Var, Var, SampledClasses) -> (Var, Var),
) -> Drawn {
    let net = Builder::new().seed(3);
    let x = net.feed("x", DType::F64, &[WIDTH], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let table = net.parameter("table", DType::F64, &[CLASSES, WIDTH], init::zeros());
    let bias = net.parameter("bias", DType::F64, &[CLASSES], init::zeros());
    let options = SampledClasses::new(SAMPLES).bias(bias);
    let (loss, samples) = operator(&net, x, table, labels, options);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut executor = Executor::new(&program, &registry, &[loss.id(), samples.id()], threads).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    scope.set("table", numbers(CLASSES, WIDTH, 0.5)).unwrap();
    scope.set("bias", numbers(1, CLASSES, 2.5).remove_axis(ndarray::Axis(0))).unwrap();
    let lod = Lod::from_lengths1(lengths).unwrap();
    let rows = Variable::sequences(numbers(lod.rows(), WIDTH, 1.5), lod.clone()).unwrap();
    let classes = Array1::from_iter((0..lod.rows()).map(|row| label(row) as i64));
    let classes = Variable::sequences(classes, lod).unwrap();
    let fed = [(x.id(), &rows), (labels.id(), &classes)];
    executor.run(&mut scope, &with!(Run::train(&fed, 4), mode)).unwrap();
    let losses = executor.fetch(loss.id()).unwrap().as_slice::<f64>().unwrap().to_vec();
    let samples = executor.fetch(samples.id()).unwrap().as_slice::<i64>().unwrap().to_vec();
    Drawn { losses, samples }
}

fn label(row: usize) -> usize {
    row * 2 % CLASSES
}

/// Returns the expected frequency of a class among the samples.
fn expected(class: usize) -> f64 {
    let share = ((class + 2) as f64 / (class + 1) as f64).ln() / ((CLASSES + 1) as f64).ln();
    SAMPLES as f64 * share
}

fn score(row: usize, class: usize, rows: usize) -> f64 {
    let (x, table, bias) =
        (numbers(rows, WIDTH, 1.5), numbers(CLASSES, WIDTH, 0.5), numbers(1, CLASSES, 2.5));
    x.row(row).dot(&table.row(class)) + bias[[0, class]]
}

fn close(got: &[f64], expected: impl Fn(usize) -> f64) {
    for (row, got) in got.iter().enumerate() {
        let expected = expected(row);
        assert!((got - expected).abs() < 1e-10, "row {row}: {got} instead of {expected}");
    }
}

#[test]
fn nce_is_its_formula_with_the_samples_that_were_drawn() {
    let lengths = [4, 0, 3];
    let shifted = |row, class| score(row, class, 7) - expected(class).ln();
    for threads in [1, 2] {
        let Drawn { losses, samples } =
            run(&lengths, Mode::Train, threads, |net, x, table, labels, options| {
                net.nce(x, table, labels, options)
            });
        assert!(samples.iter().all(|&class| (0..CLASSES as i64).contains(&class)), "{samples:?}");
        close(&losses, |row| {
            let drawn = &samples[row * SAMPLES..(row + 1) * SAMPLES];
            let noise = drawn.iter().map(|&class| shifted(row, class as usize).exp().ln_1p()).sum::<f64>();
            (-shifted(row, label(row))).exp().ln_1p() + noise
        });
    }
    let Drawn { losses, samples } =
        run(&lengths, Mode::Infer, 1, |net, x, table, labels, options| net.nce(x, table, labels, options));
    assert!(samples.iter().all(|&class| class == -1));
    close(&losses, |row| {
        let noise =
            (0..CLASSES).map(|class| expected(class) * shifted(row, class).exp().ln_1p()).sum::<f64>();
        (-shifted(row, label(row))).exp().ln_1p() + noise
    });
}

#[test]
fn sampled_softmax_is_its_formula_and_counts_the_label_among_the_samples() {
    let operator = |net: &Builder, x, table, labels, options| net.sampled_softmax(x, table, labels, options);
    let lengths = [9, 0, 12];
    let shifted = |row, class| (score(row, class, 21) - expected(class).ln()).exp();
    let Drawn { losses, samples } = run(&lengths, Mode::Train, 1, operator);
    let hit = |row: usize| samples[row * SAMPLES..(row + 1) * SAMPLES].contains(&(label(row) as i64));
    assert!((0..21).any(hit), "no sample was a label");
    close(&losses, |row| {
        let others = samples[row * SAMPLES..(row + 1) * SAMPLES].iter().map(|&class| class as usize);
        let others = others.map(|class| shifted(row, class)).sum::<f64>();
        let own = shifted(row, label(row));
        -(own / (own + others)).ln()
    });
    let Drawn { losses, .. } = run(&lengths, Mode::Infer, 1, operator);
    close(&losses, |row| {
        let all = (0..CLASSES).map(|class| score(row, class, 21).exp()).sum::<f64>();
        all.ln() - score(row, label(row), 21)
    });
}

/// The cross-entropy that a softmax over all classes comes to when it has learnt 20 classes by a sampled one, beside their
/// entropy.
#[test]
fn a_sampled_softmax_learns_how_frequent_the_classes_are() {
    let classes = 20;
    let count = |class: usize| (140.0 / (class + 1) as f64).round() as usize; // Zipf's law
    let labels: Vec<i64> = (0..classes).flat_map(|class| vec![class as i64; count(class)]).collect();
    let share = |class| count(class) as f64 / labels.len() as f64;
    let entropy: f64 = -(0..classes).map(|class| share(class) * share(class).ln()).sum::<f64>();
    for samples in [5, 20] {
        let net = Builder::new().seed(4);
        let x = net.feed("x", DType::F64, &[1], 1);
        let wanted = net.feed_like("labels", DType::I64, &[], x);
        let table = net.parameter("table", DType::F64, &[classes, 1], init::zeros());
        let loss = x.sampled_softmax_loss(table, wanted, samples).mean();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        // Steps that become shorter: noise of the samples is averaged out.
        let rate = Schedule::piecewise([(20, 0.2), (40, 0.04)]);
        Sgd::new(5.0).schedule(rate).minimize(&mut program, &registry, loss.id()).unwrap();
        let mut executor = Executor::new(&program, &registry, &[loss.id()], 2).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let lod = Lod::from_lengths1(&[labels.len()]).unwrap();
        let ones = Variable::sequences(Array2::from_elem((labels.len(), 1), 1.0), lod.clone()).unwrap();
        let labels = Variable::sequences(Array1::from(labels.clone()), lod).unwrap();
        let fed = [(x.id(), &ones), (wanted.id(), &labels)];
        for step in 0..60 {
            executor.run(&mut scope, &Run::train(&fed, step)).unwrap();
        }
        executor.run(&mut scope, &Run::infer(&fed)).unwrap(); // over all classes
        let reached = executor.scalar(loss).unwrap();
        assert!((reached - entropy).abs() < 0.003, "{samples} samples: {reached} instead of {entropy}");
    }
}

#[test]
fn samples_of_a_sequence_do_not_depend_on_the_batch() {
    let operator = |net: &Builder, x, table, labels, options| net.nce(x, table, labels, options);
    let (alone, before) = (run(&[4], Mode::Train, 1, operator), run(&[4, 3, 9], Mode::Train, 2, operator));
    assert_eq!(alone.samples, before.samples[..4 * SAMPLES]);
    assert_eq!(alone.losses, before.losses[..4]);
}

/// Classes lie closer together than numbers of 24 bits do: of the upper half of ten million, these reach one in five.
#[test]
fn rare_classes_of_very_many_are_drawn_too() {
    const MANY: usize = 10_000_000;
    let net = Builder::new().seed(3);
    let x = net.feed("x", DType::F32, &[1], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let table = net.parameter("table", DType::F32, &[MANY, 1], init::zeros());
    let (_, samples) = net.nce(x, table, labels, SampledClasses::new(2_000));
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut executor = Executor::new(&program, &registry, &[samples.id()], 1).unwrap();
    let lod = Lod::from_lengths1(&[10]).unwrap();
    let rows = Variable::sequences(Array2::<f32>::zeros((10, 1)), lod.clone()).unwrap();
    let classes = Variable::sequences(Array1::<i64>::zeros(10), lod).unwrap();
    let fed = [(x.id(), &rows), (labels.id(), &classes)];
    executor.run(&mut Scope::of(&program).unwrap(), &Run::train(&fed, 4)).unwrap();
    let samples = executor.fetch(samples.id()).unwrap().as_slice::<i64>().unwrap().to_vec();
    let upper: Vec<i64> = samples.into_iter().filter(|&class| class >= MANY as i64 / 2).collect();
    // ln 2 / ln 10^7 of 20,000 samples.
    assert!((700..1_030).contains(&upper.len()), "{}", upper.len());
    let (whole, steps) = ((MANY as f64).ln_1p(), f64::from(1 << 24));
    let by_24_bits = |class: &&i64| {
        let first = ((**class as f64).ln_1p() / whole * steps).ceil();
        ((first / steps * whole).exp_m1() as i64) == **class
    };
    let reached = upper.iter().filter(by_24_bits).count();
    assert!(2 * reached < upper.len(), "{reached} of {}", upper.len());
}

/// e^−loss of each class for one row.
fn probabilities(classes: usize, nodes: usize, tree: &ClassTree) -> Vec<f64> {
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[WIDTH], 0);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let table = net.parameter("nodes", DType::F64, &[nodes, WIDTH], init::zeros());
    let bias = net.parameter("bias", DType::F64, &[nodes], init::zeros());
    let loss = x.hierarchical_sigmoid(table, Some(bias), labels, tree.clone());
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut executor = Executor::new(&program, &registry, &[loss.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    scope.set("nodes", numbers(nodes, WIDTH, 0.7)).unwrap();
    scope.set("bias", numbers(1, nodes, 1.1).remove_axis(ndarray::Axis(0))).unwrap();
    let rows = Variable::dense(Array2::from_shape_fn((classes, WIDTH), |(_, j)| j as f64 - 0.6));
    let every = Variable::dense(Array1::from_iter(0..classes as i64));
    executor.run(&mut scope, &Run::infer(&[(x.id(), &rows), (labels.id(), &every)])).unwrap();
    executor.fetch(loss.id()).unwrap().as_slice::<f64>().unwrap().iter().map(|loss| (-loss).exp()).collect()
}

#[test]
fn the_probabilities_of_a_hierarchical_sigmoid_add_up_to_1() {
    for classes in 1..10 {
        let all = probabilities(classes, classes - 1, &ClassTree::Complete(classes));
        assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{classes} classes: {all:?}");
        assert!(all.iter().all(|&p| p > 0.0));
    }
    let (left, right) = (Side::Left, Side::Right);
    let tree = ClassTree::Paths(vec![
        vec![(2, right), (0, left)],
        vec![(2, left)],
        vec![(2, right), (0, right), (1, left)],
        vec![(2, right), (0, right), (1, right)],
    ]);
    let all = probabilities(4, 3, &tree);
    assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{all:?}");
}

#[test]
fn trees_that_do_not_fit_the_table_are_refused() {
    let refusal = |rows, tree| {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[2], 1);
        let labels = net.feed_like("labels", DType::I64, &[], x);
        let table = net.parameter("nodes", DType::F32, &[rows, 2], init::zeros());
        let _ = x.hierarchical_sigmoid(table, None, labels, tree);
        net.finish().unwrap_err().to_string()
    };
    assert!(refusal(4, ClassTree::Complete(4)).contains("3 rows, one for each node of the tree"));
    assert!(
        refusal(2, ClassTree::Paths(vec![vec![(2, Side::Left)]]))
            .contains("below 2, the rows of `weight`, got 2")
    );
}

#[test]
fn tables_of_classes_learn_by_selected_rows_as_by_dense_ones() {
    let mut of_each: Vec<Vec<f64>> = Vec::new();
    for sparse in [StorageKind::SelectedRows, StorageKind::Dense] {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[2], 1);
        let labels = net.feed_like("labels", DType::I64, &[], x);
        let table = net.parameter("table", DType::F32, &[100, 2], init::normal(0.1));
        let options = SampledClasses::new(3).gradient(sparse);
        let loss = x.nce(table, labels, options).0.mean();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        let minimized = Sgd::new(0.5).minimize(&mut program, &registry, loss.id()).unwrap();
        let gradient = minimized.gradients[0].1;
        assert_eq!(program.spec(gradient).unwrap().storage, sparse);
        let mut executor = Executor::new(&program, &registry, &[loss.id()], 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let lod = Lod::from_lengths1(&[2, 0, 1]).unwrap();
        let rows = Array2::from_shape_fn((3, 2), |(i, j)| (i + 2 * j) as f32 * 0.3 - 0.4);
        let rows = Variable::sequences(rows, lod.clone()).unwrap();
        let classes = Variable::sequences(Array1::from(vec![5i64, 50, 99]), lod).unwrap();
        let fed = [(x.id(), &rows), (labels.id(), &classes)];
        let mut losses = Vec::new();
        for step in 0..200 {
            executor.run(&mut scope, &Run::train(&fed, step)).unwrap();
            losses.push(executor.scalar(loss).unwrap());
        }
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[180..]) < mean(&losses[..20]), "{losses:?}");
        of_each.push(losses);
    }
    let alike = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4;
    assert!(of_each[0].iter().zip(&of_each[1]).all(alike), "{of_each:?}");
}
