//! Bit-identical results on any number of threads, and for a sequence alone, in any batch and in any order of the batch.

use std::collections::HashMap;

use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::{VarId, backward};
use unpadded::{Builder, Mode, Program, Variable, ops};

use crate::models::{self, Model, Random};

/// A model with its gradients, and the variables that are compared.
struct Differentiated {
    program: Program,
    feeds: Vec<VarId>,
    /// Values with rows of the batch: outputs and the gradients of feeds.
    rows: Vec<VarId>,
    /// Gradients of parameters.
    parameters: Vec<VarId>,
}

impl Differentiated {
    fn new(model: &Model) -> Self {
        let net = Builder::new().seed(5);
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        let feeds: Vec<VarId> = model.feeds.iter().map(|f| program.find(f.name()).unwrap()).collect();
        let grads: HashMap<VarId, VarId> =
            backward::differentiate(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        let inputs = feeds.iter().filter_map(|f| grads.get(f).copied());
        let rows: Vec<VarId> = made.outputs.iter().map(|v| v.id()).chain(inputs).collect();
        assert!(rows.len() > made.outputs.len(), "{}: no feed has a gradient", model.name);
        let parameters: Vec<VarId> = program.trained_parameters().map(|p| grads[&p]).collect();
        assert!(!parameters.is_empty());
        Self { program, feeds, rows, parameters }
    }

    fn executor(&self, threads: usize) -> Executor {
        let wanted: Vec<VarId> = self.rows.iter().chain(&self.parameters).copied().collect();
        let executor = Executor::new(&self.program, &ops::catalogue(), &wanted, threads).unwrap();
        if threads == 3 { models::divided(executor) } else { executor }
    }

    /// Values by variable after a run that trains, without updates.
    fn run(
        &self,
        exe: &mut Executor,
        values: &[Variable],
        numbers: &[u64],
    ) -> (Vec<Variable>, Vec<Variable>) {
        let feeds: Vec<(VarId, &Variable)> = self.feeds.iter().copied().zip(values).collect();
        let mut scope = Scope::of(&self.program).unwrap();
        exe.run(&mut scope, &Run::train(&feeds, 3).numbers(numbers).until(Stage::Gradients)).unwrap();
        let mut fetch = |ids: &[VarId]| ids.iter().map(|&id| exe.fetch(id).unwrap()).collect();
        (fetch(&self.rows), fetch(&self.parameters))
    }
}

#[track_caller]
fn same(got: &Variable, expected: &Variable, what: &str) {
    assert_eq!(got.shape(), expected.shape(), "{what}");
    assert_eq!(got.lod(), expected.lod(), "{what}");
    let (a, b) = (got.storage().to_dense().unwrap(), expected.storage().to_dense().unwrap());
    let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
    let width = (a.len() / got.rows().max(1)).max(1);
    let bad = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    if let Some(i) = bad {
        let count = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        panic!(
            "{what}: {count} of {} differ, first row {} column {}: {} for {}",
            a.len(),
            i / width,
            i % width,
            a[i],
            b[i]
        );
    }
    assert!(a.iter().all(|x| x.is_finite()), "{what}: not finite");
}

const SEQUENCES: usize = 64;

/// Compares the results of many sequences of up to `words` words, which are most sensitive to a difference.
fn check(model: Model, words: usize) {
    let this = Differentiated::new(&model);
    let mut random = Random(17);
    let documents = models::documents(SEQUENCES, 6, words, &mut random);
    let values = models::batch(&model, &documents, 29);
    let numbers: Vec<u64> = (0..SEQUENCES as u64).map(|i| 1000 + 7 * i).collect();
    let mut alone = this.executor(1);
    let (rows, parameters) = this.run(&mut alone, &values, &numbers);
    let name = |i: usize| format!("{}: `{}`", model.name, this.program.var(this.rows[i]).name);

    for threads in [1, 2, 3] {
        let mut exe = this.executor(threads);
        for again in 0..2 {
            let (r, p) = this.run(&mut exe, &values, &numbers);
            for (i, (got, expected)) in r.iter().zip(&rows).enumerate() {
                same(got, expected, &format!("{}, {threads} threads, run {again}", name(i)));
            }
            for (i, (got, expected)) in p.iter().zip(&parameters).enumerate() {
                let name = &this.program.var(this.parameters[i]).name;
                same(got, expected, &format!("{}: `{name}`, {threads} threads, run {again}", model.name));
            }
        }
    }

    let mut two = this.executor(2);
    let mut part = |sequences: &[usize], what: &str| {
        let values: Vec<Variable> = values.iter().map(|v| models::take(v, sequences)).collect();
        let numbers: Vec<u64> = sequences.iter().map(|&i| numbers[i]).collect();
        for exe in [&mut alone, &mut two] {
            let (r, _) = this.run(exe, &values, &numbers);
            for (i, (got, expected)) in r.iter().zip(&rows).enumerate() {
                same(got, &models::take(expected, sequences), &format!("{}, {what} {sequences:?}", name(i)));
            }
        }
    };
    for i in (0..SEQUENCES).step_by(3) {
        part(&[i], "alone");
    }
    let reversed: Vec<usize> = (0..SEQUENCES).rev().collect();
    part(&reversed, "all, reversed");
    let mut shuffled: Vec<usize> = (0..SEQUENCES).collect();
    shuffled.sort_by_key(|i| i * 37 % 61);
    part(&shuffled, "all, shuffled");
    for size in [2, 5, 13, 31] {
        part(&shuffled[..size], "some");
        part(&shuffled[size..], "the others");
    }
}

/// A test for each model: the words of the longest sentence.
macro_rules! tests {
    ($($test:ident: $model:ident, $words:expr;)*) => {$(
        #[test]
        fn $test() {
            check(models::$model, $words);
        }
    )*};
}
tests! {
    classifier: CLASSIFIER, 100;
    stacked_with_dropout: STACKED, 100;
    reversed_gru: REVERSED, 100;
    nested: NESTED, 100;
    loop_in_a_loop: LOOP_IN_LOOP, 60;
    own_cell: OWN_CELL, 100;
    static_rows: STATIC_ROWS, 100;
    attention: ATTENTION, 40;
}

/// A long sequence continues alone, where threads share the columns of its products; they start to share sooner, since the
/// weights are large.
#[test]
fn a_long_sequence_among_short_ones() {
    let this = Differentiated::new(&models::WIDE);
    let numbers: Vec<u64> = (0..40).collect();
    let run = |lengths: &[usize], threads: usize| {
        let documents: Vec<Vec<usize>> = lengths.iter().map(|&n| vec![n]).collect();
        let values = models::batch(&models::WIDE, &documents, 29);
        this.run(&mut this.executor(threads), &values, &numbers[..lengths.len()])
    };
    let many: Vec<usize> = (0..40).map(|i| i * 5 % 9).collect();
    for lengths in [vec![3, 60, 0, 3, 2], vec![40], vec![9, 30, 30], many] {
        let (rows, parameters) = run(&lengths, 1);
        for threads in [2, 3, 7] {
            let (r, p) = run(&lengths, threads);
            for (got, expected) in r.iter().zip(&rows).chain(p.iter().zip(&parameters)) {
                same(got, expected, &format!("{lengths:?} on {threads} threads"));
            }
        }
    }
}

/// Without `numbers` sequences are numbered by their place; another step or number draws other numbers; inferring
/// draws none.
#[test]
fn dropout_depends_on_the_sequence_number_and_the_step() {
    let net = Builder::new();
    let made = (models::STACKED.build)(&net);
    let program = net.finish().unwrap();
    let mut random = Random(3);
    let documents = models::documents(8, 3, 12, &mut random);
    let values = models::batch(&models::STACKED, &documents, 1);
    let feeds = [(program.find("x").unwrap(), &values[0])];
    let out = made.outputs[0].id();
    let mut exe = Executor::new(&program, &ops::catalogue(), &[out], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut run = |run: Run<'_>| {
        exe.run(&mut scope, &run.until(Stage::Forward)).unwrap();
        exe.fetch(out).unwrap()
    };
    let plain = run(Run::train(&feeds, 1));
    let counted: Vec<u64> = (0..8).collect();
    assert_eq!(plain, run(Run::train(&feeds, 1).numbers(&counted)));
    let others: Vec<u64> = (8..16).collect();
    assert_ne!(plain, run(Run::train(&feeds, 1).numbers(&others)));
    assert_ne!(plain, run(Run::train(&feeds, 2)));
    let inferred = run(Run::infer(&feeds));
    assert_eq!(inferred, run(with!(Run::train(&feeds, 9), mode: Mode::Infer)));
    assert_ne!(inferred, plain);
}

#[test]
fn training_gives_the_same_parameters_on_any_number_of_threads() {
    for model in [models::TRAINED, models::TRAINED_NESTED, models::STATIC_ROWS] {
        let net = Builder::new();
        let made = (model.build)(&net);
        let mut program = net.finish().unwrap();
        let adam = Adam::new(1e-2).lazy().clip_global_norm(1.0);
        adam.minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
        let feeds: Vec<VarId> = model.feeds.iter().map(|f| program.find(f.name()).unwrap()).collect();
        let train = |threads| {
            let exe = Executor::new(&program, &ops::catalogue(), &[made.loss.id()], threads).unwrap();
            let mut exe = if threads == 3 { models::divided(exe) } else { exe };
            let mut scope = Scope::of(&program).unwrap();
            let mut losses = Vec::new();
            for step in 0..5 {
                let documents = models::documents(SEQUENCES, 6, 80, &mut Random(step));
                let values = models::batch(&model, &documents, step + 100);
                let feeds: Vec<(VarId, &Variable)> = feeds.iter().copied().zip(&values).collect();
                exe.run(&mut scope, &Run::train(&feeds, step)).unwrap();
                losses.push(exe.scalar(made.loss).unwrap().to_bits());
            }
            let names: Vec<String> = scope.names().map(str::to_owned).collect();
            let values: Vec<_> = names.iter().map(|n| scope.get(n).unwrap()).collect();
            (losses, names, values)
        };
        let one = train(1);
        for threads in [2, 3] {
            let more = train(threads);
            assert_eq!(one.0, more.0, "{}: losses on {threads} threads", model.name);
            for ((name, a), b) in one.1.iter().zip(&one.2).zip(&more.2) {
                assert!(a.bits_eq(b), "{}: `{name}` on {threads} threads", model.name);
            }
        }
    }
}
