//! Predictors: their inputs, their results, and their errors when an input is missing.

use std::collections::BTreeMap;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, ErrorKind, Registry, Variable, ops};

use crate::trained::{self, FEEDS};

fn predictor(checkpoint: &Checkpoint) -> Predictor {
    Predictor::new(checkpoint.clone(), &ops::catalogue()).unwrap().threads(2)
}

fn feeds<'a>(batch: &'a [(&'static str, Variable)]) -> Vec<(&'static str, &'a Variable)> {
    batch.iter().filter(|(name, _)| FEEDS.contains(name)).map(|(name, value)| (*name, value)).collect()
}

/// A predictor with the last parameters computes the results of the training program in inference.
#[test]
fn it_computes_what_training_computes() {
    let mut checkpoint = trained::checkpoint(6);
    checkpoint.best.clear();
    let batch = trained::batch();
    let out = predictor(&checkpoint).run(&feeds(&batch), &["state", "logits", "state"]).unwrap();

    let mut other = checkpoint.clone();
    let mut scope = Scope::new();
    other.restore(&mut scope).unwrap();
    let program = &checkpoint.program;
    let ids = ["state", "logits"].map(|name| program.find(&checkpoint.outputs[name]).unwrap());
    let mut executor = Executor::new(program, &ops::catalogue(), &ids, 1).unwrap();
    let all: Vec<_> = batch.iter().map(|(name, value)| (program.find(name).unwrap(), value)).collect();
    executor.run(&mut scope, &Run::infer(&all)).unwrap();
    let expected = ids.map(|id| executor.fetch(id).unwrap());
    assert_eq!(out, [expected[0].clone(), expected[1].clone(), expected[0].clone()]);
}

/// Runs a whole program on a batch.
type WholeRun = Box<dyn FnMut(&[(&str, &Variable)]) -> Vec<Variable>>;

/// Returns a checkpoint of the initial parameters, and a function that runs its whole program on a batch.
fn initial(net: Builder, outputs: BTreeMap<String, String>) -> (Checkpoint, WholeRun) {
    let mut checkpoint = Checkpoint::of(net.finish().unwrap(), outputs);
    let mut scope = Scope::of(&checkpoint.program).unwrap();
    for (_, parameter) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
        checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name).unwrap());
    }
    let program = checkpoint.program.clone();
    let ids: Vec<_> = checkpoint.outputs.values().map(|name| program.find(name).unwrap()).collect();
    let mut executor = Executor::new(&program, &ops::catalogue(), &ids, 1).unwrap();
    let run = move |feeds: &[(&str, &Variable)]| {
        let all: Vec<_> = feeds.iter().map(|(name, value)| (program.find(name).unwrap(), *value)).collect();
        executor.run(&mut scope, &Run::infer(&all)).unwrap();
        ids.iter().map(|&id| executor.fetch(id).unwrap()).collect()
    };
    (checkpoint, Box::new(run))
}

/// Rows of inner sequences that earlier batches have computed have the bits of a run of the whole program.
#[test]
fn inner_sequences_that_occur_again_keep_their_bits() {
    let net = Builder::new().seed(3);
    let characters = net.feed("characters", DType::I64, &[], 2).embedding(Embedding::new(9, 5));
    let spelled = characters.lstm(Lstm::new(6).backwards()).sequence_pool(Pool::First);
    let words = net.feed_like("words", DType::I64, &[], spelled).embedding(Embedding::new(4, 3));
    let states = net.concat(&[words, spelled, characters.sequence_pool(Pool::Max)]).gru(7);
    let (states, probabilities) = (net.name_of(states), net.name_of(states.linear(3).softmax()));
    let (checkpoint, mut run) =
        initial(net, [("probabilities".to_owned(), probabilities), ("states".to_owned(), states)].into());
    let [a, b, none] = [vec![1i64, 2, 3], vec![8], Vec::new()];
    let batches = [
        vec![vec![a.clone(), b.clone(), a.clone()], vec![], vec![none.clone()]],
        vec![vec![b.clone()]],
        vec![],
        vec![vec![vec![5, 1], none, a, vec![1, 2], b], vec![vec![1, 2]]],
    ];
    let predictor = predictor(&checkpoint);
    for batch in batches {
        let words: Vec<Vec<i64>> =
            batch.iter().map(|words| (0..words.len() as i64).map(|i| i % 4).collect()).collect();
        let fed = [Variable::from_nested(&batch).unwrap(), Variable::from_sequences(&words).unwrap()];
        let feeds = [("characters", &fed[0]), ("words", &fed[1])];
        assert_eq!(predictor.run(&feeds, &["probabilities", "states"]).unwrap(), run(&feeds));
    }
    let wrong = Variable::from_nested(&[vec![vec![1i64], vec![1], vec![9]]]).unwrap();
    let words = Variable::from_sequences(&[vec![0i64; 3]]).unwrap();
    let error =
        predictor.run(&[("characters", &wrong), ("words", &words)], &["states"]).unwrap_err().to_string();
    assert!(error.contains("sample 0, position 2"), "{error}");
}

/// More distinct words than the tables of known words hold: some are computed again, and a batch of more words is computed whole.
#[test]
fn more_words_than_are_kept_keep_their_bits() {
    let net = Builder::new().seed(4);
    let words = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(30_000, 2));
    let last = net.name_of(words.lstm(2).sequence_pool(Pool::Last));
    let (checkpoint, mut run) = initial(net, [("last".to_owned(), last)].into());
    let predictor = predictor(&checkpoint).most_rows(1 << 20); // not in windows
    for range in [0..9000, 100..9100, 8000..20_000, 0..5000, 12_000..21_000, 0..30_000, 7..2000, 7..2000] {
        let texts: Vec<Vec<i64>> = range.collect::<Vec<i64>>().chunks(10).map(<[i64]>::to_vec).collect();
        let texts = Variable::from_sequences(&[texts.clone(), texts.clone(), texts].concat()).unwrap();
        assert_eq!(predictor.run(&[("words", &texts)], &["last"]).unwrap(), run(&[("words", &texts)]));
    }
}

#[test]
fn the_best_parameters_come_first() {
    let with_best = trained::checkpoint(6);
    let mut last = with_best.clone();
    last.best.clear();
    let mut best = last.clone();
    best.tensors.extend(with_best.best.clone());
    let batch = trained::batch();
    let run = |checkpoint: &Checkpoint| predictor(checkpoint).run(&feeds(&batch), &["logits"]).unwrap();
    assert_eq!(run(&with_best), run(&best));
    assert_ne!(run(&with_best), run(&last));
}

#[test]
fn nothing_that_the_outputs_do_not_need_is_wanted() {
    let checkpoint = trained::checkpoint(2);
    let some = predictor(&checkpoint);
    assert_eq!(some.feeds(), FEEDS);
    assert_eq!(some.outputs().collect::<Vec<_>>(), ["logits", "state"]);
    assert_eq!(some.note("tokenizer"), Some("words"));
    assert_eq!(some.note("none"), None);
    assert_eq!(some.vocabulary("labels").unwrap().id("good"), Some(1));
    // Labels may be given all the same.
    let batch = trained::batch();
    let all: Vec<_> = batch.iter().map(|(name, value)| (*name, value)).collect();
    assert_eq!(some.run(&all, &["logits"]), some.run(&feeds(&batch), &["logits"]));
    assert_eq!(some.run(&[], &[]).unwrap(), []);

    let error = Predictor::new(checkpoint, &Registry::empty()).err().unwrap().to_string();
    assert!(error.contains("expected a registered operator, got `embedding`"), "{error}");
    assert!(error.contains("; `Predictor::load_with` takes a registry that has the operator"), "{error}");
}

#[test]
fn errors_say_what_there_is() {
    let some = predictor(&trained::checkpoint(2));
    let batch = trained::batch();
    let fed = feeds(&batch);
    let message = |outcome: unpadded::Result<Vec<Variable>>| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("tests/it/predictor.rs:"), "{error}");
        error
    };
    let is = |error: String, expected: &str| assert!(error.starts_with(expected), "{error}");
    is(message(some.run(&fed, &["logit"])), "output: expected a known name (`logits`, `state`), got `logit`");
    is(message(some.run(&fed[..1], &["logits"])), "feeds for `logits`: expected `h` among them, got `words`");
    is(message(some.run(&[], &["state"])), "feeds for `state`: expected `words` among them, got none");
    let odd = [fed[0], ("word", fed[0].1)];
    is(message(some.run(&odd, &["logits"])), "feed: expected a known name (`words`, `h`, `c`), got `word`");
    is(
        message(some.run(&[fed[0], fed[0], fed[1], fed[2]], &["logits"])),
        "variable `words`: feed: expected each feed once",
    );
    let wrong = [("words", fed[1].1), fed[1], fed[2]];
    is(message(some.run(&wrong, &["logits"])), "variable `words`: feed: expected i64 dense, got f32 dense");
    assert!(some.run(&fed, &["logits"]).is_ok());
    let error = some.vocabulary("word").unwrap_err();
    is(error.to_string(), "vocabulary: expected a known name (`labels`, `words`), got `word`");

    let refused = |checkpoint: Checkpoint| {
        let error = Predictor::new(checkpoint, &ops::catalogue()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Program);
        error.to_string()
    };
    let mut none = trained::checkpoint(2);
    none.outputs.clear();
    assert!(refused(none).starts_with("outputs of the checkpoint: expected at least one, got none"));
    for name in ["linear_0.bias", "linear_0.bias@grad", "no such"] {
        let mut other = trained::checkpoint(2);
        other.outputs.insert("odd".to_owned(), name.to_owned());
        let error = refused(other);
        assert!(error.contains("expected a") && error.contains(name), "{error}");
    }
    let mut missing = trained::checkpoint(2);
    missing.best.clear();
    missing.tensors.remove("linear_0.bias");
    assert!(
        refused(missing).starts_with(
            "variable `linear_0.bias`: checkpoint: expected a value for this variable, got none"
        )
    );
}

/// A file whose parameters are not finite is refused, as its predictions would be NaN.
#[test]
fn parameters_that_are_not_finite_are_refused() {
    let file = std::env::temp_dir().join(format!("unpadded-predictor-{}.ckpt", std::process::id()));
    for (number, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut checkpoint = trained::checkpoint(2);
        let weight = checkpoint.best["linear_0.weight"].clone();
        let mut numbers = weight.as_dense().unwrap().as_slice::<f32>().unwrap().to_vec();
        numbers[3] = number;
        let odd = Dense::from_vec(weight.shape(), numbers).unwrap();
        // The best parameters predict; the last parameters do not matter.
        checkpoint.tensors.insert("linear_0.weight".to_owned(), odd.clone().into());
        assert!(Predictor::new(checkpoint.clone(), &ops::catalogue()).is_ok());
        checkpoint.best.insert("linear_0.weight".to_owned(), odd.into());
        checkpoint.save(&file).unwrap();
        let error = Predictor::load(&file).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFinite);
        let text = error.to_string();
        let what = "variable `linear_0.weight`: value of the checkpoint: expected finite numbers, got";
        assert!(text.starts_with(&format!("{what} {shown} at [1, 1] (at tests/it/predictor.rs:")), "{text}");
        assert!(text.ends_with(&format!("; in checkpoint `{}`", file.display())), "{text}");
    }
    std::fs::remove_file(file).unwrap();
}

/// Finite parameters and feeds may overflow all the same; the result is then an error and no prediction.
#[test]
fn an_output_that_is_no_number_is_an_error() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let large = net.exp(x);
    let share = net.softmax(large);
    let outputs = [("large", large), ("share", share)].map(|(name, var)| (name.to_owned(), net.name_of(var)));
    let checkpoint = Checkpoint::of(net.finish().unwrap(), outputs);
    let some = predictor(&checkpoint);
    let rows = Variable::dense(ndarray::array![[0.0f32, 1.0], [0.0, 1000.0]]);
    let error = some.run(&[("x", &rows)], &["large", "share"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite);
    let expected = "output `share`: expected numbers, got NaN in row 1 (at tests/it/predictor.rs:";
    assert!(error.to_string().starts_with(expected), "{error}");
    // Infinity is a valid output: the logarithm of zero, for example.
    assert_eq!(
        some.run(&[("x", &rows)], &["large"]).unwrap()[0].as_slice::<f32>().unwrap()[3],
        f32::INFINITY
    );
}

/// The test is that this compiles.
#[test]
fn a_predictor_may_be_cloned_and_shared_by_threads() {
    fn holds<T: Clone + Send + Sync>() {}
    holds::<Predictor>();
}

/// Texts of several lengths, one batch each.
fn batches() -> Vec<[(&'static str, Variable); 3]> {
    let state = |rows: usize| Variable::dense(Dense::zeros(DType::F32, &[rows, 2]).unwrap());
    let texts = (1..=12i64).map(|n| (0..n).map(|i| (i * n) % 6).collect::<Vec<_>>());
    let batch = |text: Vec<i64>| {
        let words = Variable::from_sequences(&[text.clone(), vec![2], text]).unwrap();
        [("words", words), ("h", state(3)), ("c", state(3))]
    };
    texts.map(batch).collect()
}

fn lent<'a>(batch: &'a [(&'static str, Variable); 3]) -> [(&'static str, &'a Variable); 3] {
    batch.each_ref().map(|(name, value)| (*name, value))
}

/// By one predictor and by clones, each with threads of its own or on shared ones; a batch that is refused in one thread
/// leaves the others alone.
#[test]
fn threads_that_predict_at_once_get_the_bits_of_one() {
    const OUTPUTS: [&str; 2] = ["logits", "state"];
    let (checkpoint, batches) = (trained::checkpoint(6), batches());
    let one = predictor(&checkpoint).threads(1);
    let expected: Vec<_> = batches.iter().map(|batch| one.run(&lent(batch), &OUTPUTS).unwrap()).collect();
    for (threads, most_rows) in [(1, 16_384), (2, 16_384), (1, 4)] {
        let some = predictor(&checkpoint).threads(threads).most_rows(most_rows);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let own = some.clone();
                let (some, batches, expected) = (&some, &batches, &expected);
                scope.spawn(move || {
                    let used = if seed % 2 == 0 { some } else { &own };
                    for round in 0..3 * batches.len() {
                        let at = (round * 5 + seed) % batches.len();
                        let fed = lent(&batches[at]);
                        let found = used.run(&fed, &OUTPUTS[..1 + seed / 2]).unwrap();
                        assert_eq!(found, expected[at][..1 + seed / 2], "thread {seed}, batch {at}");
                        if seed == 3 {
                            let unknown = Variable::from_sequences(&[vec![6i64], vec![2], vec![]]).unwrap();
                            let wrong = [("words", &unknown), fed[1], fed[2]];
                            let error = used.run(&wrong, &OUTPUTS).unwrap_err().to_string();
                            assert!(error.contains("expected at least 0 and below 6"), "{error}");
                            assert!(used.run(&fed[..2], &OUTPUTS).is_err());
                        }
                    }
                });
            }
        });
    }
}

/// Whichever clone is dropped first, the others keep their weights.
#[test]
fn clones_are_dropped_in_any_order() {
    let (checkpoint, batches) = (trained::checkpoint(6), batches());
    let run = |some: &Predictor, at: usize| some.run(&lent(&batches[at]), &["logits"]).unwrap();
    let first = predictor(&checkpoint);
    let expected = run(&first, 3);
    let second = first.clone();
    let third = second.clone().threads(1);
    drop(first);
    assert_eq!(run(&second, 3), expected);
    let fourth = second.clone();
    assert_eq!(run(&third, 3), expected);
    drop(third);
    drop(second);
    assert_eq!(run(&fourth, 3), expected);
}
