//! The trainer: N steps equal k steps, a save, everything built again, and N − k steps, byte for byte; and its other
//! guarantees about evaluation, stopping, and errors.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unpadded::data::{
    Batch, Batches, Batching, Continuous, Data, Field, Limits, Loader, Samples, Vocabulary,
};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::{Accuracy, Average, Better, F1, Loss, Metric};
use unpadded::op::Attributes;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Schedule, Sgd};
use unpadded::program::Initializer;
use unpadded::tensor::Dense;
use unpadded::train::{Progress, Report, Steps, StopReason, Trainer, Until};
use unpadded::{Builder, DType, Error, ErrorKind, Result, Var, Variable};

mod accumulate;
mod averaging;
mod best;
mod blocked;
mod dealt;
mod memory_limit;
mod metric_sums;
mod not_finite;
mod on_epoch;
mod parts;
mod precision;
mod processes;
mod rate;
mod refusals;
mod settled;
mod sums;

/// Opinions of a few words, some without any: the label says whether a word of the upper half came last.
pub(crate) fn samples(part: std::ops::Range<u64>) -> Samples {
    let random = |i: u64, k: u64| (i * 31 + k * 17 + i * k * 7 + (i * i) % 13) % 20;
    part.map(|i| {
        let words: Vec<i64> = (0..random(i, 99) % 7).map(|k| random(i, k) as i64).collect();
        let label = words.last().is_some_and(|&w| w >= 10);
        vec![Field::Ints(words), Field::Int(label.into())]
    })
    .collect()
}

/// 10 batches an epoch.
pub(crate) fn train() -> Loader {
    loader(samples(0..77)).shuffle(5)
}

pub(crate) fn dev() -> Loader {
    loader(samples(100..130))
}

fn loader(samples: Samples) -> Loader {
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(8))
}

/// With dropout, sparse updates, clipping and a schedule.
pub(crate) fn trainer() -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(20, 6).sparse());
    let h = net.lstm(net.dropout(x, 0.3), Lstm::new(8));
    let logits = net.linear(net.sequence_pool(h, Pool::Last), 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    let adam = Adam::new(0.02).lazy().clip_global_norm(1.0).schedule(Schedule::cosine(60).warm_up(5));
    Trainer::new(net, loss, &adam)
        .unwrap()
        .metric(Accuracy::new(logits, label))
        .metric(F1::new(logits, label, 2, Average::Macro))
        .output("logits", logits)
        .note("tokenizer", "words")
        .threads(1)
        .progress(Progress::Quiet)
}

/// A path of this test's own, that is empty.
pub(crate) fn path(name: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = format!("unpadded-trainer-{}-{number}-{name}.ckpt", std::process::id());
    let path = std::env::temp_dir().join(file);
    let _ = std::fs::remove_file(&path);
    path
}

/// Returns the bytes of the current state of a training.
pub(crate) fn bytes(trainer: &mut Trainer) -> Vec<u8> {
    let path = path("bytes");
    trainer.save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    bytes
}

/// The parameters and the optimizer's state.
fn values(trainer: &mut Trainer) -> Vec<(String, Dense)> {
    let names: Vec<String> = trainer.scope().names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), trainer.scope().get(&name).unwrap())).collect()
}

fn fit(trainer: &mut Trainer, until: Until) -> Report {
    trainer.fit(&train(), &dev(), until).unwrap()
}

#[test]
fn k_steps_and_the_rest_are_all_steps_byte_for_byte() {
    let mut whole = trainer();
    fit(&mut whole, Until::Steps(34));
    let expected = bytes(&mut whole);
    // In an epoch, at its end before and after the evaluation, and at the very start.
    for k in [0, 1, 7, 10, 19, 20, 33] {
        let file = path("resume");
        let mut first = trainer();
        if k > 0 {
            fit(&mut first, Until::Steps(k));
        }
        first.save(&file).unwrap();
        drop(first);
        let mut second = trainer().threads(2);
        second.resume(&file).unwrap();
        assert_eq!(second.position().step, k);
        let report = fit(&mut second, Until::Steps(34));
        assert_eq!(report.resumed.map(|p| p.step), Some(k));
        assert_eq!((report.ended, report.steps, report.epochs), (StopReason::Done, 34, 3));
        let epochs: Vec<(u64, u64)> = report.history.iter().map(|epoch| (epoch.epoch, epoch.step)).collect();
        assert_eq!(epochs, [(1, 10), (2, 20), (3, 30)]);
        assert!(bytes(&mut second) == expected, "after {k} steps");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn evaluating_leaves_no_trace() {
    let mut plain = trainer();
    fit(&mut plain, Until::Steps(14));
    let mut other = trainer();
    let before = other.evaluate(&dev()).unwrap();
    fit(&mut other, Until::Steps(7));
    let between = other.evaluate(&train()).unwrap();
    assert!(before != other.evaluate(&dev()).unwrap() && between == other.evaluate(&train()).unwrap());
    fit(&mut other, Until::Steps(14));
    assert!(bytes(&mut plain) == bytes(&mut other));
}

#[test]
fn it_learns_and_reports() {
    let mut trainer = trainer();
    let report = fit(&mut trainer, Until::Epochs(12));
    assert_eq!((report.ended, report.epochs, report.steps), (StopReason::Done, 12, 120));
    assert!(report.last.get("accuracy").unwrap() > 0.85, "{}", report.last);
    assert!(report.last.loss() < 0.5 && report.last.get("macro F1").unwrap() > 0.85, "{}", report.last);
    let tokens: usize = train().batches(Some(0), 0).unwrap().map(|b| b.unwrap().tokens).sum();
    assert_eq!(report.tokens, 12 * tokens as u64);
    assert!(report.padded > report.tokens && report.seconds > 0.0 && report.tokens_per_s > 0.0);
    let best = report.best.unwrap();
    assert!(best.value >= report.last.get("accuracy").unwrap() && best.step == 10 * best.epoch);
    // The best parameters give the best value again.
    trainer.use_best().unwrap();
    assert_eq!(trainer.evaluate(&dev()).unwrap().get("accuracy"), Some(best.value));
    // The training is done: no step runs, and the scores describe the current model.
    let again = fit(&mut trainer, Until::Epochs(12));
    assert_eq!((again.steps, again.tokens, again.last.get("accuracy")), (120, 0, Some(best.value)));
    let mut fresh = self::trainer();
    let report = fit(&mut fresh, Until::Epochs(0));
    assert_eq!((report.epochs, report.steps, report.best), (0, 0, None));
    assert_eq!(report.last, fresh.evaluate(&dev()).unwrap());
}

#[test]
fn patience_ends_it_early_also_when_it_is_resumed() {
    let file = path("patience");
    let stuck = || trainer().select("loss").patience(2).checkpoint(&file);
    let mut first = stuck();
    // These labels are random, so that soon no epoch is better on dev.
    let random: Samples = (0..77u64)
        .map(|i| vec![Field::Ints(vec![(i % 20) as i64]), Field::Int((i * i % 3 % 2) as i64)])
        .collect();
    let (train, dev) = (loader(random).shuffle(1), dev());
    let report = first.fit(&train, &dev, Until::Epochs(200)).unwrap();
    let best = report.best.unwrap();
    assert_eq!((report.ended, report.epochs), (StopReason::Early, best.epoch + 2));
    assert!(report.last.loss() >= best.value);
    let mut second = stuck();
    second.resume(&file).unwrap();
    let again = second.fit(&train, &dev, Until::Epochs(200)).unwrap();
    assert_eq!((again.ended, again.steps, again.last), (StopReason::Early, report.steps, report.last));
    std::fs::remove_file(&file).unwrap();
}

/// Data whose batches a function changes.
struct Changed<F>(Loader, F);

impl<F: Fn(u64, Result<Batch>) -> Result<Batch> + Clone + Send + Sync + 'static> Data for Changed<F> {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        let change = self.1.clone();
        Ok(Box::new((from..).zip(self.0.batches(epoch, from)?).map(move |(k, batch)| change(k, batch))))
    }

    fn batch_count(&self) -> Option<u64> {
        self.0.batch_count()
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

/// Data whose batches `change` changes; it gets the number of each batch of an epoch, too.
fn changed(
    data: Loader,
    change: impl Fn(u64, Result<Batch>) -> Result<Batch> + Clone + Send + Sync + 'static,
) -> impl Data {
    Changed(data, change)
}

/// Data that sets a flag before its batch of this number.
fn flagging(data: Loader, at: u64, flag: Arc<AtomicBool>) -> impl Data {
    changed(data, move |k, batch| {
        if k == at {
            flag.store(true, Ordering::SeqCst);
        }
        batch
    })
}

/// Data that fails in its batch 6.
fn failing(data: Loader) -> impl Data {
    let broken = || Error::new("a.tsv:7", "text<TAB>label", "no tab");
    changed(data, move |k, batch| if k == 6 { Err(broken()) } else { batch })
}

/// Batches as they are, each with its own number.
pub(crate) struct Made(pub(crate) Vec<Vec<(String, Variable)>>);

impl Data for Made {
    fn batches(&self, _: Option<u64>, from: u64) -> Result<Batches> {
        let batch = |values: &Vec<(String, Variable)>| {
            let sequences = values.iter().map(|(_, value)| value.batch_size()).max().unwrap_or(0);
            let tokens = values.iter().map(|(_, value)| value.rows()).max().unwrap_or(0);
            Ok(Batch::of(values.clone(), (0..sequences as u64).collect(), tokens))
        };
        let rest: Vec<Result<Batch>> = self.0.iter().skip(from as usize).map(batch).collect();
        Ok(Box::new(rest.into_iter()))
    }

    fn batch_count(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn fingerprint(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A metric of the user's own.
struct OwnMetric<F>(&'static str, Var, usize, F);

impl<F: Fn(&mut [f64], &[Variable], usize) -> Result<()>> Metric for OwnMetric<F> {
    fn name(&self) -> &str {
        self.0
    }

    fn variables(&self) -> Vec<Var> {
        vec![self.1]
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn sums(&self) -> usize {
        self.2
    }

    fn update(&self, sums: &mut [f64], values: &[Variable], sequences: usize) -> Result<()> {
        (self.3)(sums, values, sequences)
    }

    fn value(&self, sums: &[f64]) -> f64 {
        sums[0]
    }
}

/// Makes a metric that reads one variable, with `sums` sums. `update` changes the sums by a batch; the first sum is the value.
pub(crate) fn own_metric(
    name: &'static str,
    variable: Var,
    sums: usize,
    update: impl Fn(&mut [f64], &[Variable], usize) -> Result<()> + 'static,
) -> impl Metric {
    OwnMetric(name, variable, sums, update)
}

#[test]
fn the_stop_flag_finishes_the_step_and_saves() {
    let mut whole = trainer();
    fit(&mut whole, Until::Epochs(2));
    let expected = bytes(&mut whole);
    let file = path("stopped");
    let mut stopped = trainer().checkpoint(&file);
    let flag = stopped.stop_flag();
    let report = stopped.fit(&flagging(train(), 3, flag.clone()), &dev(), Until::Epochs(2)).unwrap();
    assert_eq!(
        (report.ended, report.steps, flag.load(Ordering::SeqCst)),
        (StopReason::Interrupted, 4, false)
    );
    // Again, in the evaluation at the epoch's end, which is then made when it is resumed.
    let mut resumed = trainer().checkpoint(&file);
    resumed.resume(&file).unwrap();
    let flag = resumed.stop_flag();
    let report = resumed.fit(&train(), &flagging(dev(), 1, flag), Until::Epochs(2)).unwrap();
    assert_eq!(
        (report.ended, report.steps, report.epochs, report.best),
        (StopReason::Interrupted, 10, 0, None)
    );
    let mut last = trainer();
    assert!(last.resume_if(&file).unwrap() && !last.resume_if("no such file.ckpt").unwrap());
    fit(&mut last, Until::Epochs(2));
    assert!(bytes(&mut last) == expected);
    std::fs::remove_file(file).unwrap();
}

/// A writer whose text can be read elsewhere.
#[derive(Clone, Default)]
pub(crate) struct Written(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn it_says_what_it_does_in_plain_lines() {
    let (file, written) = (path("lines"), Written::default());
    let mut first = trainer().progress(Progress::To(Box::new(written.clone())));
    fit(&mut first, Until::Steps(13));
    first.save(&file).unwrap();
    let mut second = trainer().progress(Progress::To(Box::new(written.clone()))).checkpoint(&file);
    second.resume(&file).unwrap();
    let flag = second.stop_flag();
    second.fit(&flagging(train(), 5, flag), &dev(), Until::Epochs(9)).unwrap();
    fit(&mut second, Until::Epochs(2));
    let mut third = trainer().progress(Progress::To(Box::new(written.clone())));
    third.resume(&file).unwrap();
    fit(&mut third, Until::Epochs(2));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let shown = |line: &&str| !line.contains(", batch ") || !line.starts_with("epoch");
    let (slow, lines): (Vec<&str>, Vec<&str>) =
        text.lines().filter(shown).partition(|line| line.starts_with("debug build: "));
    // Each trainer prints the note once, in its first run, and only in an unoptimised build.
    let unoptimised = env!("UNPADDED_OPT_LEVEL") == "0";
    assert_eq!(slow.len(), if unoptimised { 3 } else { 0 }, "{text}");
    assert!(!unoptimised || text.starts_with("debug build: ") && slow[0].contains("opt-level = 3"), "{text}");
    assert!(lines[0].starts_with("epoch 1: loss 0.") && lines[0].contains("; dev loss 0."), "{text}");
    assert!(lines[0].contains(", accuracy 0.") && lines[0].contains(" (best so far); "), "{text}");
    assert!(lines[0].contains(" tokens/s, ") && lines[0].ends_with(" s"), "{text}");
    assert_eq!(lines[1], "resumed at epoch 2, batch 4 (step 13)");
    let saved =
        format!("interrupted; saved in `{}`, to resume at epoch 2, batch 7 (step 16)", file.display());
    assert_eq!(lines[2], saved);
    assert!(lines[3].starts_with("epoch 2/2: loss 0.") && lines.len() == 5, "{text}");
    assert_eq!(lines[4], "resumed at epoch 3, batch 1 (step 20): the training is complete");
    std::fs::remove_file(file).unwrap();
}

/// A language model over continuous text whose state is carried on.
fn language_model() -> Trainer {
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::I64, &[], 1);
    let y = net.feed_like("y", DType::I64, &[], x);
    let before = net.carried_state_of("before", DType::F32, &[6]);
    let embedded = net.embedding(x, Embedding::new(5, 6));
    let (h, last) = net.recurrent(embedded, |step, x_t| {
        let h_prev = step.memory_from(before);
        let h = step.tanh(step.add(step.linear(x_t, 6), step.linear(h_prev, 6)));
        step.update(h_prev, h);
        (h, step.last(h_prev))
    });
    net.carry(before, last);
    let losses = net.cross_entropy(net.linear(h, 5), y);
    let loss = net.mean(losses);
    Trainer::new(net, loss, &Adam::new(0.02))
        .unwrap()
        .metric(Loss::bits_per_character(losses))
        .threads(1)
        .progress(Progress::Quiet)
}

#[test]
fn a_carried_state_goes_on_from_batch_to_batch() {
    let ids: Vec<i64> = (0..101).map(|i: i64| i * i % 11 % 5).collect();
    let text = Continuous::new(ids.clone(), 3, 7, ["x", "y"]).unwrap();
    let windowed = language_model().evaluate(&text).unwrap();
    // In one window nothing needs to be carried.
    let at_once =
        language_model().evaluate(&Continuous::new(ids.clone(), 3, 100, ["x", "y"]).unwrap()).unwrap();
    for (name, value) in &windowed.0 {
        assert!((value - at_once.get(name).unwrap()).abs() < 1e-6, "{name}: {windowed}, {at_once}");
    }
    let bits = windowed.get("bits per character").unwrap();
    assert!((bits - windowed.loss() / std::f64::consts::LN_2).abs() < 1e-12);
    // And over a resumption, with evaluations between.
    let mut whole = language_model();
    whole.fit(&text, &text, Until::Epochs(3)).unwrap();
    assert!(whole.evaluate(&text).unwrap().loss() < windowed.loss());
    let file = path("carried");
    let mut first = language_model();
    first.fit(&text, &text, Until::Steps(8)).unwrap();
    first.evaluate(&text).unwrap();
    first.save(&file).unwrap();
    let mut second = language_model();
    second.resume(&file).unwrap();
    second.fit(&text, &text, Until::Epochs(3)).unwrap();
    assert!(bytes(&mut whole) == bytes(&mut second));
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_checkpoint_comes_every_so_many_steps() {
    let file = path("every");
    let mut training = trainer().checkpoint(&file).every(Steps(4));
    // The data fails in batch 6: the checkpoint of step 4 stays, and the error names it.
    let error = training.fit(&failing(train()), &dev(), Until::Epochs(3)).unwrap_err().to_string();
    assert!(
        error.starts_with("a.tsv:7: expected text<TAB>label, got no tab (at tests/it/trainer.rs:"),
        "{error}"
    );
    let stands = format!("; the checkpoint in `{}` is at epoch 1, batch 5 (step 4)", file.display());
    assert!(error.ends_with(&stands), "{error}");
    let mut whole = trainer();
    fit(&mut whole, Until::Steps(12));
    let expected = bytes(&mut whole);
    // Both continue: the trainer that saw the error, and a trainer from the file.
    assert_eq!(training.position().step, 6);
    fit(&mut training, Until::Steps(12));
    assert!(bytes(&mut training) == expected);
    let mut resumed = trainer();
    resumed.resume(&file).unwrap();
    fit(&mut resumed, Until::Steps(12));
    assert!(bytes(&mut resumed) == expected);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn counts_of_tokens_end_at_the_largest_number() {
    let countless = changed(train(), |_, batch| Ok(with!(batch?, tokens: usize::MAX, padded: usize::MAX)));
    let report = trainer().fit(&countless, &dev(), Until::Epochs(1)).unwrap();
    assert_eq!((report.steps, report.tokens), (10, u64::MAX));
}
