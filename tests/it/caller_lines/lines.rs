//! A wrong setting is reported at the line that set it; a wrong row is named by its sample; and the output of a program that
//! ends with an error.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;

use ndarray::array;
use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batching, Continuous, Data, Field, Loader, Samples};
use unpadded::executor::{Executor, Run, Scope, interpret};
use unpadded::layers::{Embedding, Linear, Lstm, init};
use unpadded::metrics::{Average, F1, Loss};
use unpadded::ops::Pool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::predict::Predictor;
use unpadded::program::{Recurrence, Step, VarId};
use unpadded::train::{Progress, Steps, Trainer, Until};
use unpadded::{Builder, DType, Error, ErrorKind, Lod, Registry, Result, Var, Variable, ops};

use crate::refused::Outcome;
use crate::trained;
use crate::trainer::{dev, samples, train, trainer};

/// Something, and the line where its making begins.
struct Made<T>(T, u32);

#[track_caller]
fn made<T>(it: T) -> Made<T> {
    Made(it, Location::caller().line())
}

impl<T> Made<T> {
    /// Checks that the error names the line where this was made, and contains these words.
    #[track_caller]
    fn at_fault(&self, outcome: impl Outcome, words: &str) {
        says(self.1..Location::caller().line(), outcome, words);
    }
}

/// The error names a line of this call.
#[track_caller]
fn now(outcome: impl Outcome, words: &str) {
    let line = Location::caller().line();
    says(line..line + 5, outcome, words);
}

fn says(lines: Range<u32>, outcome: impl Outcome, words: &str) {
    let error = outcome.refused();
    assert!(error.to_string().contains(words), "expected `{words}` in: {error}");
    let line =
        error.place().caller.as_ref().and_then(|c| c.strip_prefix(file!())?.split(':').nth(1)?.parse().ok());
    assert!(line.is_some_and(|line: u32| lines.contains(&line)), "expected a line of {lines:?} in: {error}");
}

fn foreign() -> Var {
    let other = Builder::new();
    let mut x = other.feed("foreign", DType::F32, &[2], 0);
    for _ in 0..40 {
        x = other.tanh(x);
    }
    x
}

#[test]
fn settings_are_wrong_where_they_are_told() {
    let fit = |setting: &mut Made<Trainer>| setting.0.fit(&train(), &dev(), Until::Epochs(1)).map(drop);
    let fails = |mut setting: Made<Trainer>, words: &str| {
        let outcome = fit(&mut setting);
        says(setting.1..setting.1 + 3, outcome, words);
    };
    let other = || Loss::new(foreign());
    fails(
        made(trainer().metric(other().named("other"))),
        "metric `other`: expected variables that fit the model",
    );
    fails(
        made(trainer().metric(other().named("accuracy"))),
        "metrics: expected each name once, got `accuracy` twice",
    );
    fails(made(trainer().output("probabilities", foreign())), "a variable of this builder");
    let known = "selected metric: expected one of `loss`, `accuracy`, `macro F1`, got `f1`";
    fails(made(trainer().select("f1")), known);
    fails(made(trainer().patience(0)), "patience, in epochs: expected at least 1, got 0");
    let every = "steps from checkpoint to checkpoint: expected at least 1, got 0";
    fails(made(trainer().every(Steps(0))), every);
}

/// The optimizer is called through `dyn`, which has no caller, and the loss's own gradient by nobody.
#[test]
fn every_operator_of_a_training_names_a_line() {
    let net = Builder::new();
    let (x, y) = (net.feed("x", DType::F32, &[2], 1), net.feed("y", DType::I64, &[], 0));
    let logits = net.linear(net.sequence_pool(x, Pool::Sum), 3);
    let loss = net.mean(net.cross_entropy(logits, y));
    let trainer = made(Trainer::new(net, loss, &Sgd::new(0.1)).unwrap());
    let ops = &trainer.0.program().root().ops;
    ops.iter().for_each(|op| assert!(op.caller.starts_with(file!()), "{}: {}", op.kind, op.caller));
    let updates: Vec<_> = ops.iter().filter(|op| op.kind == "sgd").collect();
    let location = format!("{}:{}:", file!(), trainer.1);
    assert!(updates.len() == 2 && updates.iter().all(|op| op.caller.starts_with(&location)), "{updates:?}");
}

#[test]
fn a_metric_that_fails_names_its_line_and_the_sample() {
    let data: Samples =
        (0..20u64).map(|i| vec![Field::Ints(vec![1; 3]), Field::Int(i64::from(i == 13))]).collect();
    let data = Loader::new(data, &["words", "label"]).unwrap().batching(Batching::Sequences(4)).shuffle(9);
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.sequence_pool(net.embedding(words, Embedding::new(3, 4)), Pool::Sum);
    let logits = net.linear(x, 2);
    let one = net.slice(logits, 0..1);
    let loss = net.mean(net.cross_entropy(logits, label));
    let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
    let mut setting = made(trainer.metric(F1::new(one, label, 1, Average::Micro).ignoring(5)));
    let outcomes =
        [setting.0.evaluate(&data).map(drop), setting.0.fit(&data, &data, Until::Epochs(1)).map(drop)];
    for outcome in outcomes {
        says(
            setting.1..setting.1 + 1,
            outcome,
            "`micro F1` of sample 13: expected labels of 0 to below 1, got 1",
        );
    }
}

#[test]
fn data_that_do_not_fit_are_wrong_where_they_were_made() {
    let fit = |data: &dyn Data| trainer().fit(data, &dev(), Until::Epochs(1)).map(drop);
    let data = made(Loader::new(samples(0..9), &["label", "words"]).unwrap());
    data.at_fault(fit(&data.0), "variable `label`: levels of LoD of a feed: expected 0, got 1");
    let data = made(Loader::new(samples(0..9), &["word", "label"]).unwrap());
    data.at_fault(fit(&data.0), "name of a feed in the data: expected one of `label`, `words`, got `word`");
    let one: Samples = (0..3).map(|i| vec![Field::Ints(vec![i])]).collect();
    let data = made(Loader::new(one, &["words"]).unwrap().shuffle(1).prefetch(2));
    let missing = "variable `label`: feeds: expected a value for this variable, got none";
    data.at_fault(fit(&data.0), missing);
    let floats: Samples = (0..3).map(|i| vec![Field::Floats(vec![i as f32]), Field::Int(0)]).collect();
    let data = made(Loader::new(floats, &["words", "label"]).unwrap());
    data.at_fault(fit(&data.0), "variable `words`: feed: expected i64 dense, got f32 dense");
    let (whole, until) = (train(), Until::Epochs(1));
    let data = made(Loader::new(samples(0..9), &["words", "tag"]).unwrap());
    data.at_fault(trainer().fit(&whole, &data.0, until), "expected one of `label`, `words`, got `tag`");
    let data = made(Continuous::new(vec![1; 9], 2, 3, ["words", "next"]).unwrap());
    data.at_fault(fit(&data.0), "name of a feed in the data: expected one of `label`, `words`, got `next`");
    let data = made(Loader::new(samples(0..9), &["words", "label"]).unwrap().batching(Batching::Tokens(0)));
    data.at_fault(fit(&data.0), "tokens of a batch: expected at least 1, got 0");
}

/// The place where a word is looked up and its tag is compared with the model's output.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Site {
    /// Over all words, behind a recurrent layer that runs from the end.
    Root,
    /// In a step over the words of a sentence.
    Step,
    /// In a step over the sentences of a document: all words of a sentence at once.
    Sentence,
    /// In a step over the words, in a step over the sentences.
    Inner,
}

/// The feeds and outputs of a model for a run: documents of sentences, whose words have tags.
struct Model {
    registry: Registry,
    program: unpadded::Program,
    feeds: [VarId; 2],
    loss: VarId,
}

const WORDS: usize = 50;
const TAGS: usize = 3;

fn model(site: Site, reverse: bool) -> Result<Model> {
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 2);
    let tags = net.feed_like("tags", DType::I64, &[], words);
    let weight = net.parameter("weight", DType::F32, &[WORDS, 4], init::normal(0.1));
    let out = net.parameter("out", DType::F32, &[4, TAGS], init::xavier());
    // A loss that a memory reaches: it cannot leave the loop.
    let reached = |step: &Step, (word, tag): (Var, Var)| {
        let sum = step.memory(1);
        let x = step.add(step.lookup(word, weight, None, true), sum);
        let loss = step.cross_entropy(step.product(x, out, None), tag);
        let next = step.add(sum, loss);
        step.update(sum, next);
        next
    };
    let over = |level| Recurrence { level, reverse };
    let losses = match site {
        Site::Root => {
            let x = net.lookup(words, weight, None, true);
            let h = net.lstm(x, if reverse { Lstm::new(4).backwards() } else { Lstm::new(4) });
            net.cross_entropy(net.product(h, out, None), tags)
        }
        Site::Step => net.recurrent_with(over(None), (words, tags), reached),
        Site::Sentence => net.recurrent_with(over(Some(0)), (words, tags), |step, (words, tags)| {
            let sum = step.memory(1);
            let before = step.sequence_expand_as(sum, words);
            let x = step.add(step.lookup(words, weight, None, true), before);
            let loss = step.cross_entropy(step.product(x, out, None), tags);
            let next = step.add(sum, step.sequence_pool(loss, Pool::Sum));
            step.update(sum, next);
            next
        }),
        Site::Inner => net.recurrent_with(over(Some(0)), (words, tags), |step, inside| {
            let inner = step.recurrent_with(Recurrence { level: None, reverse }, inside, reached);
            step.sequence_pool(inner, Pool::Sum)
        }),
    };
    let loss = net.sum(losses);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Sgd::new(0.1).minimize(&mut program, &registry, loss.id())?;
    Ok(Model { registry, program, feeds: [words.id(), tags.id()], loss: loss.id() })
}

/// Documents by arithmetic, some empty, and the numbers of their samples.
fn documents(count: usize, salt: usize) -> (Vec<Vec<Vec<i64>>>, Vec<u64>) {
    let random = |i: usize, k: usize| (i * 37 + k * 101 + salt * 13 + i * k * 7 + (i * i) % 11) % 97;
    let sentence =
        |i: usize, s: usize| (0..random(i, s) % 5).map(|w| (random(i + s, w) % WORDS) as i64).collect();
    let document = |i: usize| (0..random(i, 99) % 4).map(|s| sentence(i, s)).collect();
    ((0..count).map(document).collect(), (0..count as u64).map(|i| 9000 - 7 * i).collect())
}

#[test]
fn a_row_out_of_range_is_named_by_its_sample() {
    for (round, site) in
        [Site::Root, Site::Step, Site::Sentence, Site::Inner].into_iter().cycle().take(24).enumerate()
    {
        let (docs, numbers) = documents([5, 40, 400][round % 3], round);
        let tags: Vec<Vec<Vec<i64>>> = docs
            .iter()
            .map(|d| d.iter().map(|s| s.iter().map(|w| w % TAGS as i64).collect()).collect())
            .collect();
        // A word, or a tag, somewhere in the batch.
        let places: Vec<(usize, usize)> = docs
            .iter()
            .enumerate()
            .flat_map(|(d, doc)| (0..doc.iter().map(Vec::len).sum()).map(move |w| (d, w)))
            .collect();
        let (document, position) = places[(round * 29 + 3) % places.len()];
        let spoil = |docs: &[Vec<Vec<i64>>], id: i64| {
            let mut docs = docs.to_vec();
            *docs[document].iter_mut().flatten().nth(position).unwrap() = id;
            Variable::from_nested(&docs).unwrap()
        };
        let is_word = round % 8 < 4;
        let words = if is_word { spoil(&docs, 99) } else { Variable::from_nested(&docs).unwrap() };
        let tags = if is_word { Variable::from_nested(&tags).unwrap() } else { spoil(&tags, -1) };
        let Model { registry, program, feeds: [of_words, of_tags], loss } =
            model(site, round % 2 == 0).unwrap();
        let feeds = [(of_words, &words), (of_tags, &tags)];
        let what = if is_word { "id" } else { "label" };
        let expected = format!("{what} of sample {}, position {position}: expected", numbers[document]);
        for threads in 1..4 {
            let mut executor = Executor::new(&program, &registry, &[loss], threads).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            for run in [Run::train(&feeds, 0), Run::infer(&feeds)] {
                let error = executor.run(&mut scope, &run.numbers(&numbers)).unwrap_err().to_string();
                assert!(
                    error.contains(&expected),
                    "{site:?}, {threads} threads: {error}\nexpected: {expected}"
                );
            }
        }
        if docs.len() == 5 {
            let mut scope = Scope::of(&program).unwrap();
            let run = Run::infer(&feeds).numbers(&numbers);
            let error = interpret(&program, &registry, &mut scope, &run).unwrap_err().to_string();
            assert!(error.contains(&expected), "{site:?}, interpreted: {error}\nexpected: {expected}");
        }
    }
}

/// In a training the number is the sample's position in the data, in a predictor the position of the sequence in the feed.
#[test]
fn trainers_and_predictors_name_the_sample() {
    let data = |bad: i64| {
        let sample = |i: i64| vec![Field::Ints(vec![1, if i == 17 { bad } else { 3 }]), Field::Int(i % 2)];
        Loader::new((0..30).map(sample).collect::<Samples>(), &["words", "label"]).unwrap().shuffle(3)
    };
    let error = trainer().fit(&data(20), &dev(), Until::Epochs(1)).unwrap_err();
    let text = "id of sample 17, position 1: expected at least 0 and below 20, the height, got 20";
    assert!(error.to_string().contains(text), "{error}");
    let labels: Samples =
        (0..30).map(|i| vec![Field::Ints(vec![1; 2]), Field::Int(2 * i64::from(i == 17))]).collect();
    let labels = Loader::new(labels, &["words", "label"]).unwrap().shuffle(4);
    let error = trainer().fit(&labels, &dev(), Until::Epochs(1)).unwrap_err();
    let text = "label of sample 17: expected at least 0 and below 2, the number of classes, got 2";
    assert!(error.to_string().contains(text), "{error}");

    let checkpoint: Checkpoint = trained::checkpoint(2);
    let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap();
    let batch = trained::batch();
    let mut feeds: BTreeMap<&str, &Variable> = batch.iter().map(|(name, value)| (*name, value)).collect();
    let words = Variable::from_sequences(&[vec![0i64], vec![1, 2, 6], vec![5, 2]]).unwrap();
    feeds.insert("words", &words);
    let feeds: Vec<(&str, &Variable)> =
        feeds.into_iter().filter(|(name, _)| trained::FEEDS.contains(name)).collect();
    let error = predictor.run(&feeds, &["logits"]).unwrap_err().to_string();
    assert!(
        error.contains("id of sample 1, position 2: expected at least 0 and below 6, the height, got 6"),
        "{error}"
    );
}

/// The output of a `main` that returns a `Result`.
#[test]
fn an_error_of_main_can_be_read() {
    let error = Error::of(ErrorKind::Io, "file `a.ckpt`", "to be readable", "none")
        .noted("the checkpoint in `b.ckpt` is at epoch 2")
        .noted("in checkpoint `a.ckpt`");
    let line = line!() - 3;
    let location = format!("(at {}:{line}:17)", file!());
    let text = format!("file `a.ckpt`: expected to be readable, got none {location}");
    assert_eq!(
        format!("{error:?}"),
        format!("{text}\n  the checkpoint in `b.ckpt` is at epoch 2\n  in checkpoint `a.ckpt`")
    );
    assert_eq!(
        error.to_string(),
        format!("{text}; the checkpoint in `b.ckpt` is at epoch 2; in checkpoint `a.ckpt`")
    );
    let error = trainer().fit(&train(), &trainer_without_data(), Until::Epochs(1)).unwrap_err();
    let (text, note) =
        (format!("{error:?}"), "\n  the training is at epoch 1, batch 11 (step 10); it has no checkpoint");
    assert!(text.ends_with(note) && !text.contains("Details"), "{text}");
}

fn trainer_without_data() -> Loader {
    Loader::new(samples(0..3), &["words", "tag"]).unwrap()
}

#[test]
fn a_constant_may_come_first() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    let one = net.parameter("one", DType::F32, &[2], init::constant(1.0));
    let two = net.parameter("two", DType::F32, &[1], init::constant(2.0));
    let column = net.slice(x, 0..1);
    let made = [
        net.sub(one, x),
        net.div(two, x),
        net.maximum(two, x),
        net.minimum(one, x),
        net.sub(column, x),
        net.sub(one, column),
    ];
    made.iter().for_each(|&var| assert_eq!(net.spec(var).unwrap(), net.spec(x).unwrap()));
    let wanted = made.map(Var::id);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let fed =
        Variable::sequences(array![[1.0f32, 4.0], [-2.0, 8.0]], Lod::from_lengths1(&[1, 0, 1]).unwrap());
    let fed = fed.unwrap();
    let mut executor = Executor::new(&program, &registry, &wanted, 1).unwrap();
    executor.run(&mut Scope::of(&program).unwrap(), &Run::infer(&[(x.id(), &fed)])).unwrap();
    let value = |executor: &mut Executor, k: usize| {
        executor.fetch(wanted[k]).unwrap().as_slice::<f32>().unwrap().to_vec()
    };
    assert_eq!(value(&mut executor, 0), [0.0, -3.0, 3.0, -7.0]);
    assert_eq!(value(&mut executor, 1), [2.0, 0.5, -1.0, 0.25]);
    assert_eq!(value(&mut executor, 2), [2.0, 4.0, 2.0, 8.0]);
    assert_eq!(value(&mut executor, 3), [1.0, 1.0, -2.0, 1.0]);
    assert_eq!(value(&mut executor, 4), [0.0, -3.0, 0.0, -10.0]);
    assert_eq!(value(&mut executor, 5), [0.0, 0.0, 3.0, 3.0]);
}

/// Of the step's first input, if that holds floats.
#[test]
fn a_memory_has_the_dtype_of_the_step() {
    for (dtype, expected) in [(DType::F64, DType::F64), (DType::F32, DType::F32), (DType::I64, DType::F32)] {
        let net = Builder::new();
        let x = net.feed("x", dtype, &[1], 1);
        let last = net.recurrent(x, |step, _| {
            let memory = step.memory(1);
            assert_eq!(step.spec(memory).unwrap().dtype, expected);
            step.update(memory, step.scale(memory, 2.0, 1.0));
            step.last(memory)
        });
        assert_eq!(net.spec(last).unwrap().dtype, expected);
    }
}

/// Layers, memories and tables of nothing are refused; operators take rows without numbers.
#[test]
fn width_zero() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    now(net.linear(x, 0), "width of layer `linear`: expected at least 1, got 0");
    now(net.lstm(x, Lstm::new(0)), "width of layer `lstm`: expected at least 1, got 0");
    let ids = net.feed("ids", DType::I64, &[], 1);
    now(net.embedding(ids, Embedding::new(0, 3)), "rows of layer `embedding`: expected at least one, got 0");
    now(net.recurrent(x, |step, _| step.memory(0)), "row of a memory: expected at least one number, got [0]");
    let empty = net.slice(x, 1..1);
    assert_eq!(net.spec(net.tanh(empty)).unwrap().width(), 0);
    assert!(net.linear(empty, Linear::new(2)).error().is_none());
}
