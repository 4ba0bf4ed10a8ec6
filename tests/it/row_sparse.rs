//! Row-sparse parameters: training equals, to the bit, the training of a dense table that starts with the same rows; saving,
//! resuming, predicting; and refusals.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batching, Field, Loader, Samples};
use unpadded::executor::{Executor, Run, Scope, Stage, diagnose, interpret};
use unpadded::layers::{Embedding, init};
use unpadded::op::Attributes;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adagrad, Adam, Optimizer, OptimizerKind, Options, Sgd, SparseMode};
use unpadded::predict::Predictor;
use unpadded::program::{Initializer, VarId};
use unpadded::tensor::{Dense, SelectedRows, Storage};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, ErrorKind, Program, Registry, Var, Variable, ops};

use crate::damage::{fields, file, record, sections};
use crate::models::Random;
use crate::trainer::path;

const HEIGHT: usize = 40;
const WIDTH: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Table {
    Dense,
    RowSparse,
}

struct Model {
    program: Program,
    registry: Registry,
    words: VarId,
    x: VarId,
    loss: VarId,
    rows: [VarId; 2],
}

/// A table that is looked up twice, once in a step block, a cell and a loss.
fn model(table: Table, dtype: DType, optimizer: Option<&dyn Optimizer>) -> Model {
    let net = Builder::new().seed(6);
    let words = net.feed("words", DType::I64, &[], 1);
    let start = init::embedding(0.5, Some(3));
    let dims = [HEIGHT, WIDTH];
    let weight = match table {
        Table::Dense => net.parameter("table", dtype, &dims, start),
        Table::RowSparse => net.row_sparse_parameter("table", dtype, &dims, start),
    };
    let x = net.lookup(words, weight, Some(3), true);
    let h = net.recurrent(words, |step, word| {
        let before = step.memory_of(dtype, &[WIDTH]);
        let x = step.lookup(word, weight, Some(3), true);
        let h = step.tanh(step.add(step.linear(x, WIDTH), step.linear(before, WIDTH)));
        step.update(before, h);
        h
    });
    let loss = net.mean(net.tanh(net.linear(net.add(x, h), 3)));
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let [words, x, h, loss] = [words, x, h, loss].map(Var::id);
    if let Some(optimizer) = optimizer {
        optimizer.minimize(&mut program, &registry, loss).unwrap();
    }
    Model { program, registry, words, x, loss, rows: [x, h] }
}

fn batch(random: &mut Random, below: usize) -> Variable {
    let mut sequence =
        |length: usize| -> Vec<i64> { (0..length).map(|_| random.below(below) as i64).collect() };
    let sequences: Vec<Vec<i64>> = [4, 0, 7, 1].map(&mut sequence).to_vec();
    Variable::from_sequences(&sequences).unwrap()
}

/// Returns every row of the row-sparse table, by looking up all of them.
fn all_rows(scope: &mut Scope, dtype: DType) -> Dense {
    let Model { program, registry, words, x, .. } = model(Table::RowSparse, dtype, None);
    let mut executor = Executor::new(&program, &registry, &[x], 1).unwrap();
    let every = Variable::from_sequence((0..HEIGHT as i64).collect()).unwrap();
    executor.run(scope, &Run::infer(&[(words, &every)])).unwrap();
    executor.fetch(x).unwrap().storage().as_dense().unwrap().clone()
}

/// The two trainings, some steps on, on some threads.
fn trained(optimizer: &dyn Optimizer, dtype: DType, threads: usize) -> [(Scope, Vec<f64>); 2] {
    [Table::Dense, Table::RowSparse].map(|table| {
        let Model { program, registry, words, loss, .. } = model(table, dtype, Some(optimizer));
        let mut scope = Scope::of(&program).unwrap();
        if table == Table::Dense {
            let mut other = Scope::of(&model(Table::RowSparse, dtype, None).program).unwrap();
            scope.set("table", all_rows(&mut other, dtype)).unwrap();
        }
        let mut executor = Executor::new(&program, &registry, &[loss], threads).unwrap();
        if threads > 1 {
            executor.divide_everything();
            executor.wake_all_threads();
        }
        let mut random = Random(5);
        let losses = (0..6).map(|step| {
            let words_fed = batch(&mut random, HEIGHT / 2);
            executor.run(&mut scope, &Run::train(&[(words, &words_fed)], step)).unwrap();
            executor.scalar(loss).unwrap()
        });
        let losses = losses.collect();
        (scope, losses)
    })
}

#[test]
fn a_training_is_that_of_a_dense_table_that_starts_alike() {
    let options: [fn(&mut Options); 3] = [
        |_| {},
        |build| (build.clip_value, build.clip_norm) = (Some(0.01), Some(0.02)),
        |build| build.max_norm = Some(0.01),
    ];
    for (build, change) in OptimizerKind::variants().into_iter().zip(options.iter().cycle()) {
        let name = build.name;
        let optimizer = build.with(|options| {
            change(options);
            options.mode = SparseMode::Lazy;
        });
        for (dtype, threads) in [(DType::F32, 1), (DType::F64, 2)] {
            let [(mut dense, losses), (mut sparse, others)] = trained(&optimizer, dtype, threads);
            assert_eq!(losses, others, "{name}");
            assert_ne!(losses[0], losses[5], "{name}");
            let table = dense.get("table").unwrap();
            assert!(all_rows(&mut sparse, dtype).bits_eq(&table), "{name}");
            // Only rows of the lower half were looked up.
            let touched = sparse.value("table").unwrap();
            let touched = touched.as_selected_rows().unwrap();
            assert!(touched.is_merged() && touched.row_ids().len() > 10, "{name}");
            assert!(touched.row_ids().iter().all(|&id| id < 20 && id != 3), "{name}");
            for other in dense.names().map(str::to_owned).collect::<Vec<_>>() {
                let (value, expected) = (sparse.value(&other).unwrap(), dense.get(&other).unwrap());
                if other.starts_with("table.") {
                    assert_eq!(value.as_selected_rows().unwrap().row_ids(), touched.row_ids(), "{name}");
                }
                assert!(other == "table" || value.to_dense().unwrap().bits_eq(&expected), "{name}, {other}");
            }
        }
    }
}

#[test]
fn the_interpreter_finds_the_same_and_nothing_is_touched_by_reading() {
    let optimizer = Adagrad::new(0.5);
    let Model { program, registry, words, loss, rows, .. } =
        model(Table::RowSparse, DType::F64, Some(&optimizer));
    let mut scope = Scope::of(&program).unwrap();
    let grad = program.find("table@grad").unwrap();
    let wanted = [loss, rows[0], rows[1], grad];
    let mut executor = Executor::new(&program, &registry, &wanted, 1).unwrap();
    let mut random = Random(8);
    for step in 0..3 {
        let fed = batch(&mut random, HEIGHT);
        let feeds = [(words, &fed)];
        let before = scope.value("table").unwrap();
        let halfway = Run::train(&feeds, step).until(Stage::Gradients);
        let values = interpret(&program, &registry, &mut scope, &halfway).unwrap();
        assert!(diagnose(&program, &registry, &mut scope, &halfway).is_none());
        executor.run(&mut scope, &halfway).unwrap();
        assert_eq!(scope.value("table").unwrap(), before, "reading touches nothing");
        for var in wanted {
            let (found, expected) = (executor.fetch(var).unwrap(), &values[&var]);
            let (found, expected) =
                (found.storage().to_dense().unwrap(), expected.storage().to_dense().unwrap());
            for (a, b) in found.as_slice::<f64>().unwrap().iter().zip(expected.as_slice::<f64>().unwrap()) {
                assert!((a - b).abs() < 1e-12, "{a} is not {b}");
            }
        }
        executor.update(&mut scope).unwrap();
    }
}

#[test]
fn rows_start_alike_in_any_batch_and_program() {
    let mut scope = Scope::of(&model(Table::RowSparse, DType::F32, None).program).unwrap();
    let all = all_rows(&mut scope, DType::F32);
    let numbers = all.as_slice::<f32>().unwrap();
    assert_eq!(numbers[3 * WIDTH..4 * WIDTH], [0.0; WIDTH], "the padding row");
    assert!(numbers[4 * WIDTH..].iter().all(|&x| x != 0.0));
    // Another program with a table of the same name, higher and read alone.
    let net = Builder::new().seed(6);
    let ids = net.feed("ids", DType::I32, &[], 0);
    let table = net.row_sparse_parameter("table", DType::F32, &[1 << 62, WIDTH], init::normal(0.5));
    let x = net.lookup(ids, table, None, false);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut executor = Executor::new(&program, &registry, &[x.id()], 2).unwrap();
    let fed = Variable::dense(Dense::from_vec(&[2], vec![39i32, 7]).unwrap());
    executor.run(&mut Scope::of(&program).unwrap(), &Run::infer(&[(ids.id(), &fed)])).unwrap();
    let found = executor.fetch(x).unwrap();
    assert_eq!(
        found.as_slice::<f32>().unwrap(),
        [&numbers[39 * WIDTH..], &numbers[7 * WIDTH..8 * WIDTH]].concat()
    );
}

/// A classifier over hashes of words.
fn trainer(optimizer: &dyn Optimizer) -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = words.embedding(Embedding::new(1_000_000_000_000, 6).row_sparse());
    let logits = x.lstm(5).sequence_pool(Pool::Last).linear(2);
    Trainer::new(net, logits.cross_entropy(label).mean(), optimizer)
        .unwrap()
        .output("logits", logits)
        .threads(1)
        .progress(Progress::Quiet)
}

fn data() -> Loader {
    let hash = |word: i64| word * 23_456_789_017 % 1_000_000_000_000;
    let sample = |i: i64| vec![Field::from(vec![hash(i % 7), hash(3), hash(i * i % 11)]), (i % 2).into()];
    let samples = (0..40).map(sample).collect::<Samples>();
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(7)).shuffle(2)
}

#[test]
fn a_training_is_saved_and_goes_on_to_the_bit() {
    let adam = Adam::new(0.05).lazy().clip_global_norm(1.0);
    let file = path("row-sparse");
    let mut whole = trainer(&adam);
    whole.fit(&data(), &data(), Until::Epochs(4)).unwrap();
    whole.save(&file).unwrap();
    let expected = std::fs::read(&file).unwrap();

    let mut first = trainer(&adam);
    first.fit(&data(), &data(), Until::Epochs(2)).unwrap();
    first.save(&file).unwrap();
    let halfway = std::fs::read(&file).unwrap();
    let mut second = trainer(&adam);
    second.resume(&file).unwrap();
    second.save(&file).unwrap();
    assert!(std::fs::read(&file).unwrap() == halfway, "what is loaded is saved as it was");
    second.fit(&data(), &data(), Until::Epochs(4)).unwrap();
    second.save(&file).unwrap();
    assert!(std::fs::read(&file).unwrap() == expected, "the whole training");

    // Twelve words at most, of a trillion.
    let checkpoint = Checkpoint::load(&file).unwrap();
    let rows = checkpoint.tensors["embedding_0.weight"].as_selected_rows().unwrap();
    assert!(rows.is_merged() && (8..=12).contains(&rows.row_ids().len()));
    assert_eq!(rows.shape(), [1_000_000_000_000, 6]);
    assert!(expected.len() < 60_000, "{} bytes", expected.len());

    // A predictor returns the initial row of a word that was never seen.
    let predict = |predictor: &Predictor| {
        let words = Variable::from_sequences(&[vec![23_456_789_017i64, 5], vec![999_999_999_999]]).unwrap();
        predictor.run(&[("words", &words)], &["logits"]).unwrap()
    };
    let logits = predict(&Predictor::new(checkpoint, &ops::catalogue()).unwrap());
    let model = second.for_inference().unwrap();
    model.save(&file).unwrap();
    let loaded = Predictor::load(&file).unwrap();
    assert_eq!(predict(&loaded), logits);
    std::thread::scope(|scope| {
        let threads = [0; 3].map(|_| scope.spawn(|| predict(&loaded)));
        for thread in threads {
            assert_eq!(thread.join().unwrap(), logits);
        }
    });

    // Another training starts from it, and from its own words where it does not.
    let mut third = trainer(&Sgd::new(0.1));
    assert_eq!(third.load_fitting_parameters(&model).unwrap().only_in_model, [""; 0]);
    assert_eq!(third.scope().value("embedding_0.weight").unwrap(), model.tensors["embedding_0.weight"]);
    third.use_best().unwrap_err();
    third.fit(&data(), &data(), Until::Epochs(1)).unwrap();
    third.use_best().unwrap();
    std::fs::remove_file(file).unwrap();
}

/// A checkpoint whose table has these rows, written and read.
fn checkpoint_with(ids: Vec<i64>, height: usize) -> Result<Checkpoint, unpadded::Error> {
    let mut first = trainer(&Adagrad::new(0.1));
    first.fit(&data(), &data(), Until::Epochs(1)).unwrap();
    let mut whole = first.for_inference().unwrap();
    let value = Dense::zeros(DType::F32, &[ids.len(), 6]).unwrap();
    whole
        .tensors
        .insert("embedding_0.weight".to_owned(), SelectedRows::new(height, ids, value).unwrap().into());
    Checkpoint::from_bytes(&whole.to_bytes()?)
}

#[test]
fn checkpoints_hold_rows_by_ascending_numbers() {
    let loaded = checkpoint_with(vec![7, 2, 7], 1_000_000_000_000).unwrap();
    assert_eq!(loaded.tensors["embedding_0.weight"].as_selected_rows().unwrap().row_ids(), [2, 7]);
    let none = checkpoint_with(vec![], 1_000_000_000_000).unwrap();
    assert!(none.tensors["embedding_0.weight"].as_selected_rows().unwrap().row_ids().is_empty());
    let error = checkpoint_with(vec![7], 10).unwrap_err().to_string();
    assert!(error.contains("f32[1000000000000, 6] selected_rows"), "{error}");
    let mut whole = none;
    whole.tensors.insert("embedding_0.weight".to_owned(), Dense::zeros(DType::F32, &[1, 6]).unwrap().into());
    assert!(whole.to_bytes().is_err());
}

#[test]
fn rows_of_damaged_checkpoints_are_refused() {
    let whole = checkpoint_with(vec![2, 7, 9], 1_000_000_000_000).unwrap();
    let parts = sections(&whole.to_bytes().unwrap());
    let at = parts.iter().position(|(name, _)| name == "rows").unwrap();
    let head = 4 + u32::from_le_bytes(*parts[at].1.first_chunk().unwrap()) as usize;
    let refused = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut parts = parts.clone();
        change(&mut parts[at].1);
        let error = Checkpoint::from_bytes(&file(&parts)).unwrap_err().to_string();
        assert!(error.contains("section `rows`") && error.contains(expected), "{error}");
    };
    let set = |index: usize, id: i64| {
        move |body: &mut Vec<u8>| body[head + 8 * index..][..8].copy_from_slice(&id.to_le_bytes())
    };
    refused(&set(0, -1), "ascending row numbers, at least 0 and below 1000000000000, got -1 at index 0");
    refused(&set(1, 2), "below 1000000000000, got 2 at index 1");
    refused(&set(2, 3), "below 1000000000000, got 3 at index 2");
    refused(&set(2, 1_000_000_000_000), "got 1000000000000 at index 2");
    refused(&|body| _ = body.pop(), "the bytes of 3 rows of f32[1000000000000, 6]");
    refused(&|body| body.extend([0; 32]), "the bytes of 3 rows");
    // A number of rows that would fill any memory.
    let many = |body: &mut Vec<u8>| {
        let fields = fields(&body[4..head]).into_iter();
        let changed =
            fields.map(|(n, value)| (n, if n == 4 { u64::MAX.to_le_bytes().to_vec() } else { value }));
        let made = record(&changed.collect::<Vec<_>>());
        body.splice(..head, (made.len() as u32).to_le_bytes().into_iter().chain(made));
    };
    refused(&many, "the bytes of 18446744073709551615 rows");
    // Rows are no tensor, and the other way round.
    let mut renamed = parts.clone();
    renamed[at].0 = "tensor".to_owned();
    assert!(Checkpoint::from_bytes(&file(&renamed)).is_err());
    let mut random = Random(4);
    for _ in 0..300 {
        let mut parts = parts.clone();
        let body = &mut parts[at].1;
        for _ in 0..=random.below(3) {
            let index = random.below(body.len());
            body[index] ^= 1 << random.below(8);
        }
        drop(Checkpoint::from_bytes(&file(&parts)));
    }
}

#[test]
fn scopes_keep_the_storage() {
    let Model { program, .. } = model(Table::RowSparse, DType::F32, None);
    let mut scope = Scope::of(&program).unwrap();
    let text = |error: unpadded::Error| error.to_string();
    let error = text(scope.get("table").unwrap_err());
    assert!(error.contains("variable `table`") && error.contains("`Scope::value`"), "{error}");
    let dense = Dense::zeros(DType::F32, &[HEIGHT, WIDTH]).unwrap();
    let error = text(scope.set("table", dense.clone()).unwrap_err());
    assert!(error.contains("expected f32[40, 5] selected_rows, got f32[40, 5]"), "{error}");
    let rows =
        |height: usize| SelectedRows::new(height, vec![4, 1], Dense::zeros(DType::F32, &[2, WIDTH]).unwrap());
    assert!(scope.set("table", rows(41).unwrap()).is_err());
    assert!(scope.set("another", rows(40).unwrap()).is_err());
    let fresh = all_rows(&mut scope, DType::F32);
    let mut clone = scope.clone();
    scope.set("table", rows(40).unwrap()).unwrap();
    assert_eq!(scope.value("table").unwrap().as_selected_rows().unwrap().row_ids(), [1, 4]);
    assert_eq!(all_rows(&mut scope, DType::F32).as_slice::<f32>().unwrap()[5..10], [0.0; 5]);
    assert!(all_rows(&mut clone, DType::F32).bits_eq(&fresh), "a clone has rows of its own");
    // A dense program does not take the table of this one.
    let dense = model(Table::Dense, DType::F32, None).program;
    let error = text(scope.initialize(&dense).unwrap_err());
    assert!(error.contains("expected f32[40, 5], got f32[40, 5] selected_rows"), "{error}");
}

#[test]
fn what_has_no_rows_of_its_own_is_refused_by_name() {
    let refused = |build: &dyn Fn(&Builder), expected: &[&str]| {
        let net = Builder::new();
        build(&net);
        let error = net.finish().unwrap_err();
        let text = error.to_string();
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains("row_sparse.rs"), "{text}");
    };
    let table = |net: &Builder, start: Initializer| net.row_sparse_parameter("t", DType::F32, &[9, 4], start);
    for (start, reason) in [
        (init::orthogonal(), "`orthogonal`: its rows depend on each other"),
        (init::xavier(), "`xavier_uniform`: its range follows from the height"),
        (init::gate_biases(&[1.0]), "[GH]"),
        (Initializer::new("magic", Attributes::new()), "`magic`"),
    ] {
        refused(&|net| _ = table(net, start.clone()), &["variable `t`", reason]);
    }
    for dims in [&[9][..], &[9, 4, 2], &[(1 << 62) + 1, 4], &[]] {
        let make = |net: &Builder| _ = net.row_sparse_parameter("t", DType::F32, dims, init::zeros());
        refused(&make, &["variable `t`", "expected [height, width] with a height of at most 2^62"]);
    }
    let ints = |net: &Builder| _ = net.row_sparse_parameter("t", DType::I64, &[9, 4], init::zeros());
    refused(&ints, &["expected f32 or f64, got i64"]);
    // No operator but a lookup reads it, and it is never made dense by itself.
    refused(
        &|net| _ = table(net, init::zeros()).tanh(),
        &["variable `t`", "input `x`", "no row-sparse parameter"],
    );
    let product =
        |net: &Builder| _ = net.feed("x", DType::F32, &[9], 0).product(table(net, init::zeros()), None);
    refused(&product, &["variable `t`", "no row-sparse parameter"]);
    refused(&|net| _ = table(net, init::zeros()).to_dense(), &["no row-sparse parameter"]);
    let wide = |net: &Builder| {
        let ids = net.feed("ids", DType::I64, &[], 0);
        net.lookup(ids, table(net, init::zeros()), Some(9), true);
    };
    refused(&wide, &["attribute `padding_id`", "below 9"]);
}

#[test]
fn ids_out_of_range_and_gradients_that_do_not_fit_are_refused() {
    let Model { program, registry, words, loss, .. } =
        model(Table::RowSparse, DType::F32, Some(&Sgd::new(0.1)));
    let mut executor = Executor::new(&program, &registry, &[loss], 2).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    for odd in [-1, HEIGHT as i64] {
        let fed = Variable::from_sequences(&[vec![1i64], vec![2, odd]]).unwrap();
        let error = executor.run(&mut scope, &Run::train(&[(words, &fed)], 0)).unwrap_err().to_string();
        let expected = format!(
            "id of sample 1, position 1: expected at least 0 and below {HEIGHT}, the height, got {odd}"
        );
        assert!(error.contains(&expected), "{error}");
    }
    let touched = scope.value("table").unwrap();
    assert!(touched.as_selected_rows().unwrap().row_ids().is_empty());

    // Moves of rows without a gradient are refused, as of a dense table.
    for optimizer in
        [&Adam::new(0.1) as &dyn Optimizer, &Sgd::new(0.1).momentum(0.9), &Sgd::new(0.1).weight_decay(0.1)]
    {
        let Model { mut program, registry, loss, .. } = model(Table::RowSparse, DType::F32, None);
        let error = optimizer.minimize(&mut program, &registry, loss).unwrap_err();
        assert!(error.to_string().contains("`.lazy()`"), "{error}");
        assert_eq!(error.place().variable.as_deref(), Some("table"));
    }

    // A dense gradient from elsewhere.
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 0);
    let table = net.row_sparse_parameter("table", DType::F32, &[2, 3], init::zeros());
    let other = net.parameter("gradient", DType::F32, &[2, 3], init::zeros());
    net.lookup(ids, table, None, true);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let error = Sgd::new(0.1).update(&mut program, &registry, vec![(table.id(), other.id())]).unwrap_err();
    let expected = "gradient of a row-sparse parameter: expected selected rows, as a lookup in a row-sparse parameter gives, got f32[2, 3]";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.place().variable.as_deref(), Some("table"));
}

#[test]
fn a_gradient_that_is_not_finite_touches_nothing() {
    let Model { program, registry, words, loss, .. } =
        model(Table::RowSparse, DType::F32, Some(&Sgd::new(0.1)));
    let mut executor = Executor::new(&program, &registry, &[loss], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let odd = Dense::from_vec(&[1, WIDTH], vec![f32::NAN; WIDTH]).unwrap();
    scope.set("table", SelectedRows::new(HEIGHT, vec![8], odd).unwrap()).unwrap();
    let fed = Variable::from_sequence(vec![8i64, 5]).unwrap();
    let run = [(words, &fed)];
    let error = executor.run(&mut scope, &Run::train(&run, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite);
    let Storage::SelectedRows(rows) = scope.value("table").unwrap() else { panic!("it is row-sparse") };
    assert_eq!(rows.row_ids(), [8]);
    let found = diagnose(&program, &registry, &mut scope, &Run::train(&run, 0)).unwrap();
    assert_eq!(found.place().variable.as_deref(), Some("table"));
}

#[test]
fn a_program_with_a_table_is_saved_and_loaded() {
    let Model { program, registry, .. } = model(Table::RowSparse, DType::F32, Some(&Adagrad::new(0.1)));
    let bytes = program.to_bytes().unwrap();
    let loaded = Program::from_bytes(&bytes).unwrap();
    assert_eq!(loaded, program);
    Executor::new(&loaded, &registry, &[], 1).unwrap();
    let printed = program.to_string();
    assert!(printed.contains("f32[40, 5] selected_rows") && printed.contains("storage"), "{printed}");
}

/// Pooled rows of a row-sparse table, weighted or not, and their gradients equal the results of a dense table to the bit.
#[test]
fn bags_read_a_row_sparse_table() {
    use unpadded::ops::{BagPool, LookupBag};
    use unpadded::tensor::StorageKind;
    let known = SelectedRows::new(HEIGHT, vec![1, 4, 5, 30], numbers(4)).unwrap();
    for (pool, weighted, threads) in [
        (BagPool::Sum, false, 1),
        (BagPool::Sum, true, 2),
        (BagPool::Mean, false, 2),
        (BagPool::Max, false, 1),
    ] {
        let ends = [Table::Dense, Table::RowSparse].map(|table| {
            let net = Builder::new();
            let ids = net.feed("ids", DType::I64, &[], 1);
            let weights = net.feed_like("weights", DType::F64, &[], ids);
            let dims = [HEIGHT, WIDTH];
            let weight = match table {
                Table::Dense => net.parameter("table", DType::F64, &dims, init::constant(0.0)),
                Table::RowSparse => net.row_sparse_parameter("table", DType::F64, &dims, init::constant(0.0)),
            };
            let gradient = StorageKind::SelectedRows;
            // The weights of a bag are learnt as well.
            let scale = net.parameter("scale", DType::F64, &[1], init::constant(1.5));
            let weights_of = net.mul(weights, scale);
            let options = LookupBag::default()
                .pool(pool)
                .padding_id(5)
                .gradient(gradient)
                .weights(weighted.then_some(weights_of));
            let out = net.lookup_bag(ids, weight, options);
            let loss = net.mean(net.tanh(out));
            let (registry, mut program) = (net.registry(), net.finish().unwrap());
            let [ids, weights, loss] = [ids, weights, loss].map(Var::id);
            Adagrad::new(0.5).minimize(&mut program, &registry, loss).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            match table {
                Table::Dense => scope.set("table", known.densify().unwrap()).unwrap(),
                Table::RowSparse => scope.set("table", known.clone()).unwrap(),
            }
            let mut executor = Executor::new(&program, &registry, &[loss], threads).unwrap();
            let fed = Variable::from_sequences(&[vec![4i64, 2, 4], vec![], vec![5, 30, 1, 39]]).unwrap();
            let by =
                Variable::from_sequences(&[vec![0.5, 1.0, -2.0], vec![], vec![3.0, 0.1, 0.2, 1.0]]).unwrap();
            let losses: Vec<f64> = (0..3)
                .map(|step| {
                    let feeds = [(ids, &fed), (weights, &by)];
                    executor
                        .run(&mut scope, &Run::train(if weighted { &feeds } else { &feeds[..1] }, step))
                        .unwrap();
                    executor.scalar(loss).unwrap()
                })
                .collect();
            let table = match scope.value("table").unwrap() {
                Storage::SelectedRows(rows) => rows.densify().unwrap(),
                other => other.into_dense().unwrap(),
            };
            (losses, table, scope.get("scale").unwrap())
        });
        let [(losses, table, scale), (sparse_losses, sparse, sparse_scale)] = ends;
        assert_eq!(losses, sparse_losses, "{pool:?}");
        assert!(losses[0] != losses[2] && table.bits_eq(&sparse) && scale.bits_eq(&sparse_scale), "{pool:?}");
    }
}

fn numbers(rows: usize) -> Dense {
    ndarray::Array2::from_shape_fn((rows, WIDTH), |(i, j)| ((i * 7 + j * 3) as f64).sin()).into()
}
