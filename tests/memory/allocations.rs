//! Once the largest batch has been seen, a training step allocates nothing.
//!
//! Allocations of `rayon` for handing work to a thread are identified by the innermost crate of each allocation's backtrace, and
//! have a bound of their own: see [`HANDED`].

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, init};
use unpadded::optimizer::{Adam, AdamW, Optimizer, Sgd};
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::{Builder, DType, Variable, ops};

use crate::models::{Model, Random};
use crate::{models, peak_memory};

static COUNTS: AtomicBool = AtomicBool::new(false);
static OURS: AtomicUsize = AtomicUsize::new(0);
static OTHERS: AtomicUsize = AtomicUsize::new(0);
/// The bytes of the largest allocation.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// The backtraces of this crate's allocations.
static TRACES: Mutex<String> = Mutex::new(String::new());

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize) {
    if !COUNTS.load(Ordering::Relaxed) || INSIDE.replace(true) {
        return;
    }
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    let trace = Backtrace::force_capture().to_string();
    // The first frames are of the allocator and of this file.
    let own = |line: &&str| ["allocations::", "peak_memory::"].iter().any(|name| line.contains(name));
    let crates = trace.lines().filter(|line| !own(line));
    let innermost = crates.into_iter().find_map(|line| {
        let theirs = ["rayon", "crossbeam"].iter().any(|name| line.contains(&format!("{name}_")));
        let theirs = theirs || line.contains("rayon::");
        (theirs || line.contains("unpadded::")).then_some(theirs)
    });
    if innermost.is_none() {
        // The test harness, on its own thread.
    } else if innermost == Some(true) {
        OTHERS.fetch_add(1, Ordering::Relaxed);
    } else {
        OURS.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut traces) = TRACES.lock() {
            traces.push_str(&trace);
        }
    }
    INSIDE.set(false);
}

/// Counts allocations while `body` runs, on all threads: allocations of this crate, and of other crates.
fn allocations(body: impl FnOnce()) -> (usize, usize) {
    peak_memory::OBSERVER.get_or_init(|| count);
    OURS.store(0, Ordering::SeqCst);
    OTHERS.store(0, Ordering::SeqCst);
    LARGEST.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    body();
    COUNTS.store(false, Ordering::SeqCst);
    (OURS.load(Ordering::SeqCst), OTHERS.load(Ordering::SeqCst))
}

/// Steps until every batch was seen: the largest, then four smaller ones.
const WARM: usize = 5;
const STEPS: usize = 11;
/// Words of a sentence, at most.
const WORDS: usize = 16;

/// Trains on the largest batch, whose sentences have `words` words, and on smaller batches; returns each step's allocations, of
/// this crate and of others.
fn steps(model: &Model, optimizer: &dyn Optimizer, words: usize, threads: usize) -> Vec<(usize, usize)> {
    let net = Builder::new();
    let made = (model.build)(&net);
    let mut program = net.finish().unwrap();
    optimizer.minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
    let ids: Vec<VarId> = model.feeds.iter().map(|f| program.find(f.name()).unwrap()).collect();
    let mut exe = Executor::new(&program, &ops::catalogue(), &[made.loss.id()], threads).unwrap();
    let mut scope = Scope::of(&program).unwrap();

    // The first is the largest in every way: all documents have all sentences, and all of these all words.
    let largest = vec![vec![words; 6]; 48];
    let smaller = (1..WARM).map(|i| models::documents(40 - i, 6, 6 * words, &mut Random(i as u64)));
    let batches: Vec<Vec<Variable>> = std::iter::once(largest)
        .chain(smaller)
        .enumerate()
        .map(|(i, documents)| models::batch(model, &documents, i as u64))
        .collect();
    let numbers: Vec<u64> = (0..48).collect();
    let feeds: Vec<Vec<(VarId, &Variable)>> =
        batches.iter().map(|values| ids.iter().copied().zip(values).collect()).collect();
    let mut counts = Vec::with_capacity(STEPS);
    for step in 0..STEPS {
        let feeds = &feeds[step % WARM];
        let numbers = &numbers[..feeds[0].1.batch_size()];
        let mut run = || {
            exe.run(&mut scope, &Run::train(feeds, step as u64).numbers(numbers)).unwrap();
            assert!(exe.scalar(made.loss).unwrap().is_finite());
        };
        // The largest batch is the only one that is seen before counting.
        if step == 0 { run() } else { counts.push(allocations(run)) }
    }
    println!("{}, {threads} threads (ours, others'): {counts:?}", model.name);
    counts
}

/// Several threads: `rayon` keeps the work that waits for a thread in lists of blocks, and now and then begins a block.
const HANDED: usize = 4;

/// Checks that nothing is allocated, except by `rayon` with several threads.
#[track_caller]
fn nothing(model: &Model, optimizer: &dyn Optimizer, words: usize) {
    for threads in [1, 2, 3] {
        TRACES.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let counts = steps(model, optimizer, words, threads);
        nothing_counted(&counts, model.name, threads);
    }
}

#[track_caller]
fn nothing_counted(counts: &[(usize, usize)], name: &str, threads: usize) {
    let traces = TRACES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let shown = traces.get(..12_000).unwrap_or(&traces);
    assert!(counts.iter().all(|&(ours, _)| ours == 0), "{name}, {threads} threads: {counts:?}\n{shown}");
    let most = if threads == 1 { 0 } else { HANDED };
    assert!(counts.iter().all(|&(_, others)| others <= most), "{name}, {threads} threads: {counts:?}");
}

fn adam() -> Adam {
    Adam::new(1e-3).lazy().clip_global_norm(1.0)
}

fn sgd() -> Sgd {
    Sgd::new(1e-5).momentum(0.9).clip_global_norm(1.0)
}

/// A test for each model: its optimizer, and the words of the longest sentence.
macro_rules! tests {
    ($($test:ident: $model:ident, $optimizer:expr, $words:expr;)*) => {$(
        #[test]
        fn $test() {
            own_process!();
            nothing(&models::$model, &$optimizer, $words);
        }
    )*};
}
tests! {
    classifier: TRAINED, adam(), WORDS;
    nested: TRAINED_NESTED, adam(), WORDS;
    // Each step is large enough; fewer of them do.
    wide_weights: WIDE, sgd(), 4;
    many_classes: MANY_CLASSES, adam(), WORDS;
    static_rows: STATIC_ROWS, sgd(), WORDS;
    a_loop_in_a_loop: LOOP_IN_LOOP, sgd(), WORDS;
    levels_from_data: ERASED, adam(), WORDS;
}

/// The count is reliable: it sees this crate's allocations and attributes them.
#[test]
fn allocations_are_counted() {
    own_process!();
    let (ours, _) = allocations(|| drop(unpadded::Lod::from_lengths1(&[3, 0, 2]).unwrap()));
    assert!(ours > 0, "{ours}");
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2);
    let (ours, others) = allocations(|| drop(threads.build().unwrap()));
    let traces = TRACES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(ours == 0 && others > 0, "{ours} {others}\n{traces}");
}

/// Rows of csr, of which some entries repeat and are in no order.
fn bags(rows: usize, columns: usize, most: usize, random: &mut Random) -> Variable {
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for _ in 0..rows {
        indices.extend((0..most).map(|_| random.below(columns) as i64));
        indptr.push(indices.len() as i64);
    }
    let values = ndarray::Array1::from_shape_fn(indices.len(), |i| 0.5 + (i % 7) as f32);
    let csr = unpadded::tensor::Csr::new([rows, columns], indptr, indices, values).unwrap();
    Variable::new(csr, None).unwrap()
}

/// Sparse feeds, results and gradients come from a pool: once the largest were seen, they take no new memory either.
#[test]
fn sparse_values() {
    own_process!();
    const COLUMNS: usize = 3000;
    for threads in [1, 2] {
        let net = Builder::new().fallback(unpadded::Fallback::Allow);
        let (a, b) = (
            net.feed_csr("a", unpadded::DType::F32, COLUMNS, 0),
            net.feed_csr("b", unpadded::DType::F32, COLUMNS, 0),
        );
        let class = net.feed("class", unpadded::DType::I64, &[], 0);
        let both = a.sqrt() + b.tanh() * 0.5;
        let length = (both.square().sum_features() + 1e-6).sqrt();
        let weight =
            net.parameter("scale", unpadded::DType::F32, &[COLUMNS], unpadded::layers::init::constant(1.0));
        let x = both / length * weight;
        let logits = x.linear(5) + x.random_projection(8, 3).linear(5) + x.slice(0..40).softmax().linear(5);
        let loss = logits.cross_entropy(class).mean();
        let mut program = net.finish().unwrap();
        Sgd::new(1e-3).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
        let mut exe = Executor::new(&program, &ops::catalogue(), &[loss.id()], threads).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let random = &mut Random(3);
        let batches: Vec<[Variable; 3]> = [(64, 40), (40, 30), (64, 8), (3, 40), (50, 0)]
            .map(|(rows, most)| {
                let labels = ndarray::Array1::from_shape_fn(rows, |i| (i % 5) as i64);
                [bags(rows, COLUMNS, most, random), bags(rows, COLUMNS, most, random), Variable::from(labels)]
            })
            .into();
        let mut counts = Vec::new();
        TRACES.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for step in 0..11 {
            let [x, y, z] = &batches[step % 5];
            let feeds = [(a.id(), x), (b.id(), y), (class.id(), z)];
            let mut run = || exe.run(&mut scope, &Run::train(&feeds, step as u64)).unwrap();
            // The largest batch is the only one that is seen before counting.
            if step == 0 { run() } else { counts.push(allocations(run)) }
        }
        nothing_counted(&counts, "sparse values", threads);
    }
}

/// A step on a large table takes memory for the rows that it touches, from the first step on, whatever updates untouched rows
/// owe.
#[test]
fn rows_of_a_large_table() {
    own_process!();
    const ROWS: usize = 400_000;
    const WIDTH: usize = 16;
    let rules: [&dyn Optimizer; 3] = [
        &AdamW::new(1e-3).weight_decay(0.1).clip_global_norm(1.0),
        &Sgd::new(0.1).momentum(0.9).clip_value(1.0),
        &adam(),
    ];
    for optimizer in rules {
        let net = Builder::new();
        let words = net.feed("words", unpadded::DType::I64, &[], 1);
        let bag = unpadded::layers::EmbeddingBag::new(ROWS, WIDTH).sparse();
        let loss = words.embedding_bag(bag).linear(2).square().mean();
        let mut program = net.finish().unwrap();
        optimizer.minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
        let mut exe = Executor::new(&program, &ops::catalogue(), &[loss.id()], 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let random = &mut Random(8);
        let mut largest = Vec::new();
        for step in 0..12 {
            let bags: Vec<Vec<i64>> =
                (0..20).map(|_| (0..30).map(|_| random.below(ROWS) as i64).collect()).collect();
            let words = [(words.id(), &Variable::from_sequences(&bags).unwrap())];
            allocations(|| exe.run(&mut scope, &Run::train(&words, step)).unwrap());
            largest.push(LARGEST.load(Ordering::SeqCst));
        }
        let table = ROWS * WIDTH * size_of::<f32>();
        assert!(largest.iter().all(|&bytes| bytes < table / 10), "{largest:?} bytes, of a table of {table}");
    }
}

/// After its first step a session allocates nothing per step: for a stacked LSTM, and for a decoder that attends to the inputs of
/// its start.
#[test]
fn a_step_of_a_session() {
    own_process!();
    let net = Builder::new();
    let source = net.feed("source", DType::I64, &[], 1).embedding(Embedding::new(9, 8)).gru(8);
    let words = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(9, 8)).lstm(8).lstm(8);
    let v = net.parameter("v", DType::F32, &[6], init::uniform(-0.5, 0.5));
    let logits = net.recurrent(words, |step, x| {
        let before = step.memory(8);
        let seen = before.linear(6).additive_attention(source.linear(6), source, v);
        let h = (step.concat(&[x, seen]).linear(8) + before.linear(8)).tanh();
        step.update(before, h);
        h
    });
    let logits = logits.linear(9);
    let outputs = [("logits".to_owned(), net.name_of(logits))];
    let mut checkpoint = Checkpoint::of(net.finish().unwrap(), outputs);
    let mut scope = Scope::of(&checkpoint.program).unwrap();
    for (_, parameter) in checkpoint.program.vars().filter(|(_, var)| var.persistable) {
        checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name).unwrap());
    }
    let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap().threads(1);
    let mut session = predictor.session(&["logits"]).unwrap();
    session.begin(&[("source", &Variable::from_sequence(vec![1i64, 2, 3, 4, 5]).unwrap())]).unwrap();
    let word = Variable::dense(ndarray::array![3i64]);
    let mut step = || session.step(&[("words", &word)]).unwrap();
    (0..2).for_each(|_| step());
    let counted = allocations(|| (0..20).for_each(|_| step()));
    assert_eq!(counted, (0, 0), "{}", TRACES.lock().unwrap_or_else(PoisonError::into_inner));
}
