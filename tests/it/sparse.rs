//! Sparse variables in programs: feeds, steps, fallback to dense, and storages.

use ndarray::{Array1, array};
use unpadded::data::{Field, Loader, Samples};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::init;
use unpadded::op::Extent;
use unpadded::ops::Pool;
use unpadded::optimizer::Adagrad;
use unpadded::program::{Recurrence, VarId, backward};
use unpadded::tensor::{Coo, Csr, Storage, StorageKind};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Fallback, Lod, Mode, Program, Variable, ops};
use unpadded_text::{FirstIndex, LabelledRows, Target, TextFile};

use crate::models::Random;
use crate::trainer::Written;

/// Rows of which few numbers are not 0, in any order, some repeated.
pub(crate) fn random_csr(random: &mut Random, rows: usize, columns: usize, most: usize) -> Csr {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for _ in 0..rows {
        for _ in 0..random.below(most + 1) {
            indices.push(random.below(columns) as i64);
            values.push(random.below(1000) as f32 / 250.0 - 2.0);
        }
        indptr.push(indices.len() as i64);
    }
    Csr::new([rows, columns], indptr, indices, Array1::from(values)).unwrap()
}

/// Runs a program once; the values of `fetched`.
fn run(program: &Program, fetched: &[VarId], feeds: &[(VarId, Variable)]) -> Vec<Variable> {
    let mut executor = Executor::new(program, &ops::catalogue(), fetched, 2).unwrap();
    let feeds: Vec<(VarId, &Variable)> = feeds.iter().map(|(id, value)| (*id, value)).collect();
    let run = with!(Run::train(&feeds, 0), mode: Mode::Infer);
    executor.run(&mut Scope::of(program).unwrap(), &run).unwrap();
    fetched.iter().map(|&id| executor.fetch(id).unwrap()).collect()
}

#[test]
fn csr_and_coo_feeds_mean_the_same_and_come_back_in_canonical_form() {
    let csr = Csr::new([3, 4], vec![0, 3, 3, 4], vec![2, 0, 2, 1], array![1.0f32, 2.0, 4.0, 8.0]).unwrap();
    let coordinates = array![[2, 1], [0, 2], [0, 0], [0, 2]];
    let coo = Coo::new(&[3, 4], coordinates, array![8.0f32, 1.0, 2.0, 4.0]).unwrap();
    let dense = array![[2.0f32, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 8.0, 0.0, 0.0]];
    for (value, kind) in [(Storage::from(csr.clone()), StorageKind::Csr), (coo.into(), StorageKind::Coo)] {
        let net = Builder::new();
        let x = net.feed_stored("x", DType::F32, &[None, Some(4)], kind);
        let (whole, again) = (x.to_dense(), x.to_csr());
        let program = net.finish().unwrap();
        let feeds = [(x.id(), Variable::new(value.clone(), None).unwrap())];
        let found = run(&program, &[x.id(), whole.id(), again.id()], &feeds);
        assert_eq!(found[0].storage().kind(), kind);
        assert_eq!(*found[0].storage().to_dense().unwrap(), dense.clone().into());
        assert_eq!(found[1].as_slice::<f32>().unwrap(), dense.as_slice().unwrap());
        assert_eq!(found[2].storage(), &Storage::from(csr.clone().canonicalize().unwrap()));
    }
}

#[test]
fn what_a_step_reads_of_sparse_rows_is_computed_before_the_loop() {
    let mut random = Random(7);
    let lod = Lod::from_lengths1(&[3, 0, 1, 4]).unwrap();
    let bags = Variable::new(random_csr(&mut random, 8, 30, 4), Some(lod)).unwrap();
    let build = |inside: bool| {
        let net = Builder::new().seed(3).fallback(Fallback::Allow);
        let x = net.feed_csr("x", DType::F32, 30, 1);
        let before = if inside { x } else { x.to_dense().linear(5).tanh() };
        let last = net.recurrent(before, |step, x_t| {
            let x_t = if inside { x_t.to_dense().linear(5).tanh() } else { x_t };
            let state = step.memory(5);
            step.update(state, (state.linear(5) + x_t).tanh());
            step.last(state)
        });
        let loss = last.sum();
        let mut program = net.finish().unwrap();
        let pairs = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
        (program, x.id(), last.id(), pairs)
    };
    let [inside, outside] = [true, false].map(|inside| {
        let (program, x, last, pairs) = build(inside);
        let mut fetched = vec![last];
        fetched.extend(pairs.iter().map(|pair| pair.1));
        let made = run(&program, &fetched, &[(x, bags.clone())]);
        made.iter().map(|value| value.as_slice::<f32>().unwrap().to_vec()).collect::<Vec<_>>()
    });
    // The parameters are made in the same order, under the same names. A weight's gradient sums over rows in another order.
    assert_eq!((&inside[0], inside.len()), (&outside[0], outside.len()));
    for (a, b) in inside.iter().flatten().zip(outside.iter().flatten()) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} {b}");
    }
    assert!(inside[0].iter().any(|x| *x != 0.0));
}

#[test]
fn sparse_rows_beside_a_memory_are_refused_by_name() {
    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 30, 1);
    net.recurrent(bags, |step, x_t| {
        let state = step.memory(30);
        step.update(state, state + x_t.to_dense());
        let mixed = x_t + state;
        (step.last(state), mixed)
    });
    let error = net.finish().unwrap_err();
    assert_eq!(error.all().count(), 1, "{error}");
    let text = error.to_string();
    let expected = "sparse rows in a step, which are computed and read before its loop: expected operators on step \
                    inputs and on variables from outside the step";
    assert!(text.contains("variable `bags.step`") && text.contains(expected), "{text}");
    assert!(text.contains("`memory`, which the step computes"), "{text}");

    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 30, 1);
    net.recurrent(bags, |step, _| {
        let state = step.memory(3);
        step.update(state, state.linear(3));
        step.last(state)
    });
    let text = net.finish().unwrap_err().to_string();
    let expected = "step inputs: expected a dense step input, or an input computed from a sparse step input";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn fallback_is_an_operator_and_a_warning_once_a_variable() {
    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 50, 0);
    for _ in 0..3 {
        bags.softmax();
    }
    bags.log_softmax();
    let warnings: Vec<String> = net.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let expected = "variable `bags` is csr, for which `x` of softmax #1 has no kernel: made dense, 200 × batch bytes; at";
    assert!(warnings[0].starts_with(expected), "{}", warnings[0]);
    assert!(warnings[0].contains("sparse.rs"), "{}", warnings[0]);
    let program = net.finish().unwrap();
    let conversions = program.root().ops.iter().filter(|op| op.kind == "to_dense").count();
    assert_eq!(conversions, 1);

    let net = Builder::new().fallback(Fallback::Allow);
    net.feed_csr("bags", DType::F32, 50, 0).softmax();
    assert!(net.warnings().is_empty());
    assert_eq!(net.program().unwrap().storage_report(&net.registry()).unwrap().fallbacks().count(), 1);

    let net = Builder::new().fallback(Fallback::Deny);
    net.feed_csr("bags", DType::F32, 50, 0).softmax();
    let text = net.finish().unwrap_err().to_string();
    assert!(
        text.contains("softmax #0: variable `bags`: storage of input `x`: expected dense, got csr"),
        "{text}"
    );
    assert!(text.contains("`to_dense`"), "{text}");
}

#[test]
fn a_run_takes_the_bytes_that_the_report_says() {
    let net = Builder::new().fallback(Fallback::Allow);
    let bags = net.feed_csr("bags", DType::F32, 40, 1);
    let wide = bags.softmax();
    let pooled = wide.sequence_pool(Pool::Sum);
    let again = wide.to_csr();
    let program = net.finish().unwrap();
    let report = program.storage_report(&ops::catalogue()).unwrap();
    let vars = [bags.id(), wide.id(), pooled.id(), again.id()];
    let mut executor = Executor::new(&program, &ops::catalogue(), &vars, 1).unwrap();
    let mut random = Random(5);
    for lengths in [vec![2, 0, 5], vec![1], vec![0, 0], vec![]] {
        let lod = Lod::from_lengths1(&lengths).unwrap();
        let value = random_csr(&mut random, lod.rows(), 40, 6);
        let entries = value.clone().canonicalize().unwrap().indices().len();
        let batch = lengths.len();
        let rows = |extent: Extent| match extent {
            Extent::Rows(_) => lod.rows(),
            Extent::Known(n) => n,
            _ => batch,
        };
        let value = Variable::new(value, Some(lod.clone())).unwrap();
        let feeds = [(bags.id(), &value)];
        executor.run(&mut Scope::of(&program).unwrap(), &Run::train(&feeds, 0)).unwrap();
        for variable in report.variables() {
            let Ok(measured) = executor.bytes_of(variable.var) else { continue };
            let stored = report.most(variable.var, &rows, &|_| entries);
            let text = variable.size.bytes(rows(variable.spec.rows()), stored);
            assert_eq!(measured, text, "{}", variable.name);
        }
        assert!(executor.bytes_of(bags).unwrap() > 0);
    }
    assert_eq!(report.fallbacks().count(), 1);
    assert!(executor.bytes_of(VarId(1000)).is_err());
}

#[test]
fn programs_with_sparse_variables_are_saved_and_shown() {
    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 40, 1);
    net.watch(bags);
    let loss = bags.softmax().square().sum();
    let mut program = net.finish().unwrap();
    backward::differentiate(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let loaded = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(loaded, program);
    assert!(program.to_string().contains("csr"), "{program}");
    let grad = program.find("bags@grad").unwrap();
    assert_eq!(program.spec(grad).unwrap().storage, StorageKind::Csr);
    let lod = Lod::from_lengths1(&[2, 1]).unwrap();
    let value = random_csr(&mut Random(9), 3, 40, 5);
    let fed = Variable::new(value.clone(), Some(lod)).unwrap();
    let found = run(&loaded, &[grad], &[(bags.id(), fed)]);
    let Storage::Csr(found) = found[0].storage() else { panic!("{:?}", found[0].storage().kind()) };
    let value = value.canonicalize().unwrap();
    assert_eq!((found.indptr(), found.indices()), (value.indptr(), value.indices()));
}

#[test]
fn what_is_fed_is_held_to_its_description() {
    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 40, 0);
    let dense = bags.to_dense();
    net.feed_csr("ids", DType::I64, 40, 0);
    net.feed_stored("cube", DType::F32, &[None, Some(2), Some(2)], StorageKind::Csr);
    let errors: Vec<String> = net.check().unwrap_err().all().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("dtype of a sparse feed: expected f32 or f64, got i64"), "{}", errors[0]);
    assert!(errors[1].contains("expected two dimensions for csr"), "{}", errors[1]);

    let net = Builder::new();
    let bags_again = net.feed_csr("bags", DType::F32, 40, 0);
    let whole = bags_again.to_dense();
    let program = net.finish().unwrap();
    let _ = (bags, dense);
    let mut executor = Executor::new(&program, &ops::catalogue(), &[whole.id()], 1).unwrap();
    let mut refused = |value: Variable, expected: &str| {
        let feeds = [(bags_again.id(), &value)];
        let text =
            executor.run(&mut Scope::of(&program).unwrap(), &Run::train(&feeds, 0)).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    };
    refused(Variable::from(ndarray::Array2::<f32>::zeros((1, 40))), "expected f32 csr, got f32 dense");
    refused(
        Variable::new(Csr::new([1, 41], vec![0, 0], vec![], Array1::<f32>::zeros(0)).unwrap(), None).unwrap(),
        "shape of a feed",
    );
    refused(
        Variable::new(Csr::new([1, 40], vec![0, 0], vec![], Array1::<f64>::zeros(0)).unwrap(), None).unwrap(),
        "expected f32 csr, got f64 csr",
    );
}

#[test]
fn a_trainer_says_once_what_was_made_dense_and_learns_from_csr_rows() {
    let text: String = (0..64)
        .map(|i| {
            let class = i % 2;
            format!("{} {}:1 {}:2\n", 2 * class - 1, 1 + 10 * class + i % 5, 21 + i % 7)
        })
        .collect();
    let text: &'static str = text.leak();
    let rows = LabelledRows::of_files([&TextFile::embedded("rows", text)], FirstIndex::One).unwrap();
    let classes = rows.classes().unwrap();
    let loader = |rows: &LabelledRows| rows.loader(["x", "class"], 30, Target::Class(&classes)).unwrap();
    let net = Builder::new();
    let x = net.feed_csr("x", DType::F32, 30, 0);
    let class = net.feed("class", DType::I64, &[], 0);
    let logits = x.sqrt().linear(2) + x.softmax().linear(2);
    let loss = logits.cross_entropy(class).mean();
    let message = Written::default();
    let trainer = Trainer::new(net, loss, &Adagrad::new(0.5)).unwrap();
    let mut trainer = trainer.progress(Progress::To(Box::new(message.clone())));
    let before = trainer.evaluate(&loader(&rows)).unwrap().loss();
    trainer.fit(&loader(&rows), &loader(&rows), Until::Epochs(3)).unwrap();
    trainer.fit(&loader(&rows), &loader(&rows), Until::Epochs(20)).unwrap();
    assert!(trainer.evaluate(&loader(&rows)).unwrap().loss() < before / 2.0);
    let message = String::from_utf8(message.0.lock().unwrap().clone()).unwrap();
    assert_eq!(message.matches("made dense, 120 × batch bytes").count(), 1, "{message}");
    let grad = trainer.program().find("linear_0.weight@grad").unwrap();
    assert_eq!(trainer.program().spec(grad).unwrap().storage, StorageKind::SelectedRows);
}

#[test]
fn a_sparse_constant_has_its_gradient_in_loops_in_loops_too() {
    let lod = Lod::from_lengths(&[vec![2, 0, 1], vec![3, 1, 2]]).unwrap();
    let numbers = ndarray::Array2::from_shape_fn((6, 3), |(i, j)| ((i * 3 + j) as f32 * 0.7).sin());
    let value = Variable::sequences(numbers, lod).unwrap();
    let [sparse, dense] = [true, false].map(|sparse| {
        let net = Builder::new().seed(5);
        let x = net.feed("x", DType::F32, &[3], 2);
        let weight = net.parameter("weight", DType::F32, &[3, 3], init::uniform(-0.8, 0.8));
        let over = Recurrence { level: Some(0), ..Recurrence::default() };
        let out = net.recurrent_with(over, x, |step, words| {
            let state = step.memory(3);
            let inner = step.recurrent(words, |inner, x_t| {
                let h = inner.memory_from(state);
                let c = if sparse { weight.to_csr().tanh().to_dense() } else { weight.tanh() };
                inner.update(h, (x_t + h.product(c, None)).tanh());
                inner.last(h)
            });
            step.update(state, inner);
            step.last(state)
        });
        let loss = out.sum();
        let mut program = net.finish().unwrap();
        let pairs = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
        let found = run(&program, &[pairs[0].1], &[(x.id(), value.clone())]);
        found[0].as_slice::<f32>().unwrap().to_vec()
    });
    assert!(dense.iter().all(|g| *g != 0.0), "{dense:?}");
    for (a, b) in sparse.iter().zip(&dense) {
        assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{sparse:?} {dense:?}");
    }
}

#[test]
fn a_number_that_is_none_is_named_by_its_row_and_sizes_that_no_memory_has_are_errors() {
    let net = Builder::new();
    let bags = net.feed_csr("bags", DType::F32, 3, 0);
    let twice = bags.scale(2.0, 0.0);
    let loss = twice.linear(2).sum();
    let trainer = Trainer::new(net, loss, &Adagrad::new(0.1)).unwrap();
    let mut trainer = trainer.progress(Progress::Quiet);
    let samples: Samples = [0.5f32, f32::NAN]
        .map(|x| vec![Field::Sparse { columns: 3, indices: vec![1], values: vec![x] }])
        .into_iter()
        .collect();
    let data = Loader::new(samples, &["bags"]).unwrap();
    let text = trainer.fit(&data, &data, Until::Epochs(1)).unwrap_err().to_string();
    assert!(text.contains("`bags`") && text.contains("got NaN in row 1"), "{text}");

    let net = Builder::new().fallback(Fallback::Allow);
    let wide = net.feed_csr("wide", DType::F32, 1 << 58, 0);
    let dense = wide.softmax();
    let mean = wide.mean();
    let program = net.finish().unwrap();
    for (wanted, expected) in [(dense, "memory of a variable"), (mean, "numbers of `x`")] {
        let value = Csr::new([64, 1 << 58], vec![0; 65], vec![], Array1::<f32>::zeros(0)).unwrap();
        let value = Variable::new(value, None).unwrap();
        let mut executor = Executor::new(&program, &ops::catalogue(), &[wanted.id()], 1).unwrap();
        let feeds = [(wide.id(), &value)];
        let text =
            executor.run(&mut Scope::of(&program).unwrap(), &Run::infer(&feeds)).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
