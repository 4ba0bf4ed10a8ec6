//! A run in two halves: gradients that are read, replaced, and then used by the updates.

use ndarray::{Array2, array};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::init;
use unpadded::optimizer::{Adam, Minimization, Optimizer, Sgd};
use unpadded::program::{Append, BlockId, VarId};
use unpadded::tensor::{Dense, SelectedRows, Storage, StorageKind};
use unpadded::{Builder, DType, Error, ErrorKind, Lod, Program, Var, Variable, ops};

use crate::models::Random;

const WORDS: usize = 300;
const WIDTH: usize = 24;
const FUSED: &str = "as linear_cross_entropy";

/// A language model: a table of words, two recurrent layers, logits.
struct Model {
    program: Program,
    words: VarId,
    labels: VarId,
    hidden: VarId,
    logits: VarId,
    loss: VarId,
    made: Minimization,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Table {
    Dense,
    SelectedRows,
}

fn model(table: Table, optimizer: &dyn Fn(&mut Program, VarId) -> Minimization) -> Model {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let labels = net.feed_like("labels", DType::I64, &[], words);
    let weights = net.parameter("table", DType::F32, &[WORDS, WIDTH], init::normal(0.4));
    let x = net.lookup(words, weights, None, table == Table::SelectedRows);
    let layer = |x: Var| {
        net.recurrent(x, |step, x| {
            let before = step.memory(WIDTH);
            let h = step.tanh(step.add(step.linear(x, WIDTH), step.linear(before, WIDTH)));
            step.update(before, h);
            h
        })
    };
    let hidden = layer(x.dropout(0.2));
    let logits = net.linear(layer(hidden), WORDS);
    let loss = net.mean(net.cross_entropy(logits, labels));
    let [words, labels, hidden, logits, loss] = [words, labels, hidden, logits, loss].map(Var::id);
    let mut program = net.finish().unwrap();
    let made = optimizer(&mut program, loss);
    Model { program, words, labels, hidden, logits, loss, made }
}

fn adam(program: &mut Program, loss: VarId) -> Minimization {
    Adam::new(0.05).lazy().clip_global_norm(0.5).minimize(program, &ops::catalogue(), loss).unwrap()
}

/// Rate 1: a parameter moves by its gradient.
fn sgd(program: &mut Program, loss: VarId) -> Minimization {
    Sgd::new(1.0).minimize(program, &ops::catalogue(), loss).unwrap()
}

impl Model {
    fn executor(&self, fetch: &[VarId], threads: usize) -> Executor {
        let executor = Executor::new(&self.program, &ops::catalogue(), fetch, threads).unwrap();
        if threads > 1 { crate::models::divided(executor) } else { executor }
    }

    fn param(&self, name: &str) -> VarId {
        self.program.find(name).unwrap()
    }
}

/// A batch for words and labels, another for each number.
fn batch(number: u64) -> [Variable; 2] {
    batch_of(number, &[4, 0, 9, 1, 7])
}

fn batch_of(number: u64, lengths: &[usize]) -> [Variable; 2] {
    let lod = Lod::from_lengths1(lengths).unwrap();
    [0, 1].map(|which| {
        let mut random = Random(100 * number + which);
        let ids: Vec<i64> = (0..lod.rows()).map(|_| random.below(WORDS) as i64).collect();
        Variable::new(Dense::from_vec(&[ids.len()], ids).unwrap(), Some(lod.clone())).unwrap()
    })
}

/// All that is in a scope: parameters and the optimizer's state.
fn contents(scope: &mut Scope) -> Vec<(String, Dense)> {
    let names: Vec<String> = scope.names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), scope.get(&name).unwrap())).collect()
}

#[track_caller]
fn same_contents(one: &mut Scope, two: &mut Scope, what: &str) {
    for ((name, a), (_, b)) in contents(one).iter().zip(&contents(two)) {
        assert!(a.bits_eq(b), "{what}: `{name}`");
    }
}

fn floats(storage: &Storage) -> Vec<f32> {
    storage.to_dense().unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[track_caller]
fn says(error: &Error, expected: &str) {
    let (message, line) = (error.to_string(), format!(" (at {}:", file!()));
    assert_eq!(message.rsplit_once(&line).map(|(text, _)| text), Some(expected), "{message}");
}

/// Parameters, optimizer state and fetched values have the bits of whole runs, whatever is fused or fetched.
#[test]
fn two_halves_have_the_bits_of_one_run() {
    for table in [Table::Dense, Table::SelectedRows] {
        let model = model(table, &adam);
        let fetches = [vec![model.loss], vec![model.loss, model.hidden], vec![model.loss, model.logits]];
        for (fetch, threads) in fetches.iter().flat_map(|fetch| [1, 3].map(|threads| (fetch, threads))) {
            let what = format!("{table:?}, {} fetched, {threads} threads", fetch.len());
            let (mut whole, mut halves) = (model.executor(fetch, threads), model.executor(fetch, threads));
            let listing = whole.listing().to_string();
            assert_eq!(listing.contains(FUSED), !fetch.contains(&model.logits), "{what}\n{listing}");
            let (mut one, mut two) = (Scope::of(&model.program).unwrap(), Scope::of(&model.program).unwrap());
            for step in 0..3 {
                // Enough sequences that threads share the loops, the logits and the updates.
                let [words, labels] = batch_of(step, &[4, 0, 9, 1, 7].repeat(25));
                let run = &[(model.words, &words), (model.labels, &labels)];
                let run = Run::train(run, step);
                whole.run(&mut one, &run).unwrap();
                let before = contents(&mut two);
                halves.run(&mut two, &run.until(Stage::Gradients)).unwrap();
                assert!(before == contents(&mut two), "{what}: the first half updates nothing");
                halves.update(&mut two).unwrap();
                same_contents(&mut one, &mut two, &what);
                for &var in fetch {
                    assert!(whole.fetch(var).unwrap() == halves.fetch(var).unwrap(), "{what}");
                }
            }
        }
    }
}

/// All gradients are available at the same time, though buffers are reused: they equal the gradients of a program that fetches
/// each of them from a buffer of its own.
#[test]
fn every_gradient_can_be_read() {
    for table in [Table::Dense, Table::SelectedRows] {
        let model = model(table, &adam);
        let [words, labels] = batch(5);
        let feeds = [(model.words, &words), (model.labels, &labels)];
        let run = Run::train(&feeds, 0).until(Stage::Gradients);
        let grads: Vec<VarId> = model.made.gradients.iter().map(|&(_, grad)| grad).collect();
        let mut scope = Scope::of(&model.program).unwrap();
        let (mut kept, mut shared) = (model.executor(&grads, 1), model.executor(&[model.hidden], 1));
        kept.run(&mut scope, &run).unwrap();
        shared.run(&mut scope, &run).unwrap();
        assert!(model.made.gradients.len() > 4, "all layers are trained");
        for &(param, grad) in &model.made.gradients {
            let name = &model.program.var(param).name;
            let found = shared.gradient(param).unwrap();
            let sparse = name == "table" && table == Table::SelectedRows;
            assert_eq!(found.kind(), if sparse { StorageKind::SelectedRows } else { StorageKind::Dense });
            assert!(found == *kept.fetch(grad).unwrap().storage(), "`{name}`");
            assert!(floats(&found).iter().any(|&x| x != 0.0), "`{name}`");
        }
    }
}

/// A replaced gradient moves its parameter, and no other parameter.
#[test]
fn a_gradient_is_replaced() {
    for (table, threads) in [(Table::Dense, 1), (Table::SelectedRows, 3)] {
        let model = model(table, &sgd);
        let [words, labels] = batch(1);
        let feeds = [(model.words, &words), (model.labels, &labels)];
        let run = Run::train(&feeds, 0);
        let (mut one, mut two) = (Scope::of(&model.program).unwrap(), Scope::of(&model.program).unwrap());
        let before = two.get("table").unwrap();
        model.executor(&[], threads).run(&mut one, &run).unwrap();
        let mut executor = model.executor(&[], threads);
        executor.run(&mut two, &run.until(Stage::Gradients)).unwrap();
        // Rows 3 and 50 move, the first by the sum of two.
        let rows = SelectedRows::new(
            WORDS,
            vec![3, 50, 3],
            Array2::from_shape_fn((3, WIDTH), |(row, _)| [0.25f32, -0.5, 1.0][row]),
        );
        let rows = rows.unwrap();
        let param = model.param("table");
        match table {
            Table::Dense => executor.set_gradient(param, rows.densify().unwrap()).unwrap(),
            Table::SelectedRows => executor.set_gradient(param, rows.clone()).unwrap(),
        }
        assert_eq!(floats(&executor.gradient(param).unwrap()), floats(&rows.clone().into()));
        executor.update(&mut two).unwrap();
        let expected = before.as_slice::<f32>().unwrap().iter().zip(floats(&rows.into()));
        let expected: Vec<f32> = expected.map(|(x, g)| x - g).collect();
        assert_eq!(two.get("table").unwrap().as_slice::<f32>().unwrap(), expected);
        one.set("table", two.get("table").unwrap()).unwrap();
        same_contents(&mut one, &mut two, "all others move as in one run");
        // No row at all: nothing moves.
        if table == Table::SelectedRows {
            executor.run(&mut two, &run.until(Stage::Gradients)).unwrap();
            let none = SelectedRows::new(WORDS, Vec::new(), Dense::zeros(DType::F32, &[0, WIDTH]).unwrap());
            executor.set_gradient(param, none.unwrap()).unwrap();
            executor.update(&mut two).unwrap();
            assert_eq!(two.get("table").unwrap().as_slice::<f32>().unwrap(), expected);
        }
    }
}

/// Two replicas, each with the gradients of its half of a batch, step as one executor on the whole of it.
#[test]
fn replicas_step_together() {
    let model = model(Table::SelectedRows, &sgd);
    let run = |feeds: &[(VarId, &Variable)], numbers: &[u64], executor: &mut Executor, scope: &mut Scope| {
        let run = with!(Run::train(&[], 0), feeds, numbers);
        executor.run(scope, &run.until(Stage::Gradients)).unwrap();
    };
    let [words, labels] = batch(7);
    let slice = |part: std::ops::Range<usize>| {
        [&words, &labels].map(|value| value.slice_sequences(part.clone()).unwrap())
    };
    // A part counts in the mean over all rows by the number of its rows.
    let parts = [slice(0..2), slice(2..5)];
    let mut whole = (model.executor(&[], 1), Scope::of(&model.program).unwrap());
    run(&[(model.words, &words), (model.labels, &labels)], &[0, 1, 2, 3, 4], &mut whole.0, &mut whole.1);
    whole.0.update(&mut whole.1).unwrap();
    let mut replicas = parts.each_ref().map(|_| (model.executor(&[], 1), Scope::of(&model.program).unwrap()));
    for ((executor, scope), ([words, labels], numbers)) in
        replicas.iter_mut().zip(parts.iter().zip([&[0, 1][..], &[2, 3, 4]]))
    {
        run(&[(model.words, words), (model.labels, labels)], numbers, executor, scope);
    }
    for &(param, _) in &model.made.gradients {
        let mut sum: Option<Storage> = None;
        for ((executor, _), [part, _]) in replicas.iter_mut().zip(&parts) {
            let share = part.rows() as f32 / words.rows() as f32;
            let found = executor.gradient(param).unwrap();
            sum = Some(match (sum, found) {
                (None, found) => scaled(&found, share),
                (Some(sum), found) => joined(&sum, &scaled(&found, share)),
            });
        }
        let sum = sum.unwrap();
        replicas.iter_mut().for_each(|(executor, _)| executor.set_gradient(param, sum.clone()).unwrap());
    }
    for (executor, scope) in &mut replicas {
        executor.update(scope).unwrap();
    }
    let [(_, one), (_, two)] = &mut replicas;
    same_contents(one, two, "both replicas");
    let start = contents(&mut Scope::of(&model.program).unwrap());
    for (((name, a), (_, b)), (_, start)) in contents(one).iter().zip(&contents(&mut whole.1)).zip(&start) {
        let floats = |value: &Dense| value.as_slice::<f32>().unwrap().to_vec();
        assert!(a != start, "`{name}` moves");
        for (a, b) in floats(a).iter().zip(floats(b)) {
            assert!((a - b).abs() < 1e-5, "`{name}`: {a} is not {b}");
        }
    }
}

fn scaled(storage: &Storage, by: f32) -> Storage {
    let times = |dense: &Dense| {
        let numbers = dense.as_slice::<f32>().unwrap().iter().map(|x| x * by).collect();
        Dense::from_vec(dense.shape(), numbers).unwrap()
    };
    match storage {
        Storage::SelectedRows(rows) => {
            SelectedRows::new(rows.height(), rows.row_ids().to_vec(), times(rows.value())).unwrap().into()
        }
        other => times(other.as_dense().unwrap()).into(),
    }
}

/// The sum of two gradients: rows behind rows, numbers added to numbers.
fn joined(a: &Storage, b: &Storage) -> Storage {
    match (a, b) {
        (Storage::SelectedRows(a), Storage::SelectedRows(b)) => {
            let values = Dense::concat_rows(&[a.value(), b.value()]).unwrap();
            SelectedRows::new(a.height(), [a.row_ids(), b.row_ids()].concat(), values).unwrap().into()
        }
        (a, b) => {
            let sum = floats(a).iter().zip(floats(b)).map(|(a, b)| a + b).collect();
            Dense::from_vec(a.shape(), sum).unwrap().into()
        }
    }
}

/// A number that is not finite is found before anything is updated, and the gradients are then used up.
#[test]
fn a_replaced_gradient_is_checked() {
    let model = model(Table::SelectedRows, &adam);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = model.executor(&[model.loss], 1);
    let [words, labels] = batch(2);
    let feeds = [(model.words, &words), (model.labels, &labels)];
    let run = Run::train(&feeds, 0).until(Stage::Gradients);
    let rows = SelectedRows::new(WORDS, vec![7], Array2::from_elem((1, WIDTH), f32::NAN)).unwrap();
    let mut bias = vec![0.0f32; WIDTH];
    bias[3] = f32::INFINITY;
    let bias = Dense::from_vec(&[WIDTH], bias).unwrap();
    let wrong: [(&str, Storage); 2] = [("table", rows.into()), ("linear_0.bias", bias.into())];
    for (name, value) in wrong {
        executor.run(&mut scope, &run).unwrap();
        let before = contents(&mut scope);
        executor.set_gradient(model.param(name), value).unwrap();
        let error = executor.update(&mut scope).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFinite);
        assert!(error.place().variable.as_ref().is_some_and(|v| v.contains(name)), "{error}");
        assert!(error.to_string().contains("nothing was updated"), "{error}");
        assert!(before == contents(&mut scope), "nothing was updated");
        assert_eq!(executor.update(&mut scope).unwrap_err().kind(), ErrorKind::Program);
    }
    executor.run(&mut scope, &run).unwrap();
    executor.update(&mut scope).unwrap();
}

/// A gradient that does not fit is refused with the parameter's name, and the stored gradient does not change.
#[test]
fn a_gradient_that_does_not_fit() {
    let model = model(Table::SelectedRows, &sgd);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = model.executor(&[], 1);
    let [words, labels] = batch(3);
    let feeds = [(model.words, &words), (model.labels, &labels)];
    executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Gradients)).unwrap();
    let rows =
        |height, width| SelectedRows::new(height, vec![1], Array2::<f32>::zeros((1, width))).unwrap().into();
    let dense = |dtype, shape: &[usize]| Storage::from(Dense::zeros(dtype, shape).unwrap());
    let cases: [(&str, Storage, &str, &str); 6] = [
        ("table", dense(DType::F32, &[WORDS, WIDTH]), "selected_rows f32[300, 24]", "dense f32[300, 24]"),
        ("table", rows(WORDS + 1, WIDTH), "selected_rows f32[300, 24]", "selected_rows f32[301, 24]"),
        ("table", rows(WORDS, WIDTH - 1), "selected_rows f32[300, 24]", "selected_rows f32[300, 23]"),
        ("linear_0.bias", rows(WIDTH, 1), "dense f32[24]", "selected_rows f32[24, 1]"),
        ("linear_0.bias", dense(DType::F64, &[WIDTH]), "dense f32[24]", "dense f64[24]"),
        ("linear_0.weight", dense(DType::F32, &[WIDTH * WIDTH]), "dense f32[24, 24]", "dense f32[576]"),
    ];
    for (name, value, expected, got) in cases {
        let param = model.param(name);
        let before = executor.gradient(param).unwrap();
        let error = executor.set_gradient(param, value).unwrap_err();
        let expected = format!("expected {expected}, got {got}");
        says(&error, &format!("variable `{name}`: value of a gradient: {expected}"));
        assert!(executor.gradient(param).unwrap() == before, "{name}");
    }
    let error = executor.gradient(model.loss).unwrap_err().to_string();
    assert!(error.contains("gradient: expected a parameter that an update moves, got"), "{error}");
    assert!(executor.gradient(VarId(10_000)).is_err());
}

/// The second half comes once, and after a first half that ended well.
#[test]
fn the_order_of_calls() {
    let model = model(Table::Dense, &sgd);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = model.executor(&[model.loss], 1);
    let param = model.param("table");
    let [words, labels] = batch(4);
    let feeds = [(model.words, &words), (model.labels, &labels)];
    let run = Run::train(&feeds, 0);
    let refused = |executor: &mut Executor, scope: &mut Scope, got: &str| {
        let before = contents(scope);
        let expected = "expected a run until `Stage::Gradients`, before its updates, got";
        says(&executor.update(scope).unwrap_err(), &format!("update: {expected} {got}"));
        says(&executor.gradient(param).unwrap_err(), &format!("gradient: {expected} {got}"));
        let zeros = Dense::zeros(DType::F32, &[WORDS, WIDTH]).unwrap();
        says(&executor.set_gradient(param, zeros).unwrap_err(), &format!("gradient: {expected} {got}"));
        assert!(before == contents(scope), "nothing was updated");
    };
    refused(&mut executor, &mut scope, "no successful run");
    executor.run(&mut scope, &run).unwrap();
    refused(&mut executor, &mut scope, "a run until Updates");
    executor.run(&mut scope, &run.until(Stage::Forward)).unwrap();
    refused(&mut executor, &mut scope, "a run until Forward");
    executor.run(&mut scope, &run.until(Stage::Gradients)).unwrap();
    executor.run(&mut scope, &Run::infer(&[])).unwrap_err();
    refused(&mut executor, &mut scope, "no successful run");
    executor.run(&mut scope, &run.until(Stage::Gradients)).unwrap();
    // A scope that does not fit is refused before the gradients are used.
    let error = executor.update(&mut Scope::new()).unwrap_err().to_string();
    assert!(error.contains("scope: expected the variable, initialised or loaded"), "{error}");
    executor.update(&mut scope).unwrap();
    refused(&mut executor, &mut scope, "a run until Updates");
    assert!(executor.scalar(model.loss).unwrap() > 0.0, "what was fetched is there after the updates");

    let forward =
        self::model(Table::Dense, &|_, _| Minimization { gradients: Vec::new(), rate: VarId(0), norm: None });
    let mut executor = forward.executor(&[forward.loss], 1);
    executor.run(&mut scope, &run.until(Stage::Gradients)).unwrap();
    let error = executor.update(&mut scope).unwrap_err();
    says(&error, "update: expected a program that an optimizer has completed, got a program without updates");
}

/// Operators after an update may reuse the buffer of a gradient.
#[test]
fn a_program_that_goes_on_after_an_update() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let loss = x.linear(3).mean();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Sgd::new(0.1).minimize(&mut program, &registry, loss.id()).unwrap();
    let tanh = with!(Append::forward("tanh"), inputs: vec![("x", vec![x.id()])]);
    let late = program.append(&registry, BlockId(0), tanh).unwrap()[0][0];
    let mut executor = Executor::new(&program, &registry, &[late], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let fed = Variable::dense(array![[1.0f32, 2.0]]);
    let run = [(x.id(), &fed)];
    executor.run(&mut scope, &Run::train(&run, 0).until(Stage::Gradients)).unwrap();
    let error = executor.update(&mut scope).unwrap_err();
    says(
        &error,
        "update: expected a program whose updates come last, got a program that continues after the updates",
    );
    executor.run(&mut scope, &Run::train(&run, 0)).unwrap();
}

/// Both halves are in a profile, as one run.
#[test]
fn a_profile_of_two_halves() {
    let model = model(Table::Dense, &sgd);
    let mut scope = Scope::of(&model.program).unwrap();
    let mut executor = model.executor(&[], 1);
    let [words, labels] = batch(6);
    let feeds = [(model.words, &words), (model.labels, &labels)];
    executor.start_profile();
    executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Gradients)).unwrap();
    executor.update(&mut scope).unwrap();
    let profile = executor.take_profile().unwrap();
    assert_eq!(profile.runs, 1);
    let calls = |kind: &str| {
        let entries = profile.entries.iter().filter(|e| e.operator.starts_with(kind));
        entries.map(|e| e.calls).sum::<u64>()
    };
    assert_eq!(calls("sgd"), model.made.gradients.len() as u64);
    assert!(calls("lookup") + calls("embedding") > 0, "{profile}");
}
