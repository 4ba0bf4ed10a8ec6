//! Learns to label texts: an LSTM reads the words, and its last state says the label. Nothing is padded.
//!
//! `cargo run --release --example sentiment` trains on film reviews and shows what came of it; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Batching, Labelled, Limits, Loader, Samples, TextFile, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::train::metrics::Accuracy;
use unpadded::train::{Ended, Predictor, Progress, Report, Trainer};
use unpadded::{Builder, DType, Result, Var, Variable};

const MODEL: &str = "sentiment";
const TRAIN: (&str, &str) = ("datasets/reviews/train.tsv", include_str!("../datasets/reviews/train.tsv"));
const DEV: (&str, &str) = ("datasets/reviews/dev.tsv", include_str!("../datasets/reviews/dev.tsv"));
const WORDS: Tokenizer = Tokenizer::words().lowercase();

/// Learns to label texts, in lines of `text<TAB>label`; --predict labels the lines of standard input
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

/// The model: words -> vectors -> LSTM -> its state after the last word.
fn lstm(words: usize, labels: usize, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let ids = net.feed("words", DType::I64, &[], 1); // one a row, in sequences of any length
    let x = net.embedding(ids, Embedding::new(words, 128).sparse());
    let h = net.lstm(net.dropout(x, 0.6), Lstm::new(128));
    let last = net.sequence_pool(h, Pool::Last);
    classifier(net, last, labels, 2e-3)
}

/// What it is measured against: the mean of the words' vectors, whatever their order, with settings found for it.
fn bag_of_words(words: usize, labels: usize, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let ids = net.feed("words", DType::I64, &[], 1);
    let mean = net.sequence_pool(net.embedding(ids, Embedding::new(words, 128).sparse()), Pool::Mean);
    classifier(net, mean, labels, 1e-2)
}

fn classifier(net: Builder, text: Var, labels: usize, rate: f64) -> Result<Trainer> {
    let label = net.feed("label", DType::I64, &[], 0); // one a sequence
    let logits = net.linear(net.dropout(text, 0.6), labels);
    let loss = net.mean(net.cross_entropy(logits, label));
    let probabilities = net.softmax(logits);
    let trainer = Trainer::new(net, loss, &Adam::new(rate).lazy().clip_global_norm(1.0))?;
    Ok(trainer.metric(Accuracy::new(logits, label)).output("probabilities", probabilities))
}

/// A file of the user's, or the one that comes with the program: its name and its texts.
fn read(path: Option<&PathBuf>, (name, text): (&str, &'static str)) -> Result<(String, Vec<Labelled>)> {
    let file = path.map_or_else(|| Ok(TextFile::embedded(name, text)), TextFile::open)?;
    Ok((file.name(), file.labelled()?.read_all()?))
}

/// Texts as ids, in batches.
fn loader(
    (file, texts): &(String, Vec<Labelled>),
    words: &Vocabulary,
    labels: &Vocabulary,
) -> Outcome<Loader> {
    let sample = |Labelled { text, label }: &Labelled| {
        let start: String = text.chars().take(60).collect();
        let label = labels.lookup(label).map_err(|e| format!("{file}: the label of {start:?}: {e:#}"))?;
        Ok(vec![words.ids(WORDS.tokens(text))?.into(), label.into()])
    };
    let samples: Samples = texts.iter().map(sample).collect::<Outcome<_>>()?;
    Ok(Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(16)))
}

/// The likeliest label of a text and its probability.
fn predict(predictor: &mut Predictor, text: &str) -> Result<String> {
    let ids = predictor.vocabulary("words")?.ids(WORDS.tokens(text))?;
    let out = predictor.run(&[("words", &Variable::from_sequence(ids)?)], &["probabilities"])?;
    let probabilities = out[0].as_slice::<f32>()?.iter().zip(0..);
    let (probability, label) = probabilities.max_by(|a, b| a.0.total_cmp(b.0)).unwrap_or((&0.0, 0));
    let label = predictor.vocabulary("labels")?.token(label).unwrap_or_default();
    Ok(format!("{label}\t{probability:.3}"))
}

fn run(flags: &Flags) -> Outcome<()> {
    if let Some(mut predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&mut predictor, line));
    }
    if flags.train.is_some() && flags.dev.is_none() {
        return Err("--train: expected --dev FILE with it, of texts that training never sees".into());
    }
    let (train_texts, dev_texts) = (read(flags.train.as_ref(), TRAIN)?, read(flags.dev.as_ref(), DEV)?);
    let limits = Limits { min_count: 2, ..Limits::default() };
    let of_train = train_texts.1.iter().flat_map(|r| WORDS.tokens(&r.text));
    let words = Vocabulary::of(of_train, &limits).map_err(|e| format!("{}: {e:#}", train_texts.0))?;
    let labels = Vocabulary::labels(train_texts.1.iter().map(|r| &r.label))?;
    if labels.len() < 2 {
        return Err(format!("{}: expected two labels or more, got only one", train_texts.0).into());
    }
    let train = loader(&train_texts, &words, &labels)?.shuffle(flags.seed).prefetch(4);
    let dev = loader(&dev_texts, &words, &labels)?;
    let test =
        flags.test.as_ref().map(|path| loader(&read(Some(path), DEV)?, &words, &labels)).transpose()?;
    let trainer = lstm(words.len(), labels.len(), flags.seed)?
        .vocabulary("words", words.clone())
        .vocabulary("labels", labels.clone());
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&train, &dev), 30)? else { return Ok(()) };
    let percent = |report: &Report| 100.0 * report.best.map_or(f64::NAN, |best| best.value);
    let mut baseline = bag_of_words(words.len(), labels.len(), flags.seed)?.progress(Progress::Quiet);
    let counted = baseline.fit(&train, &dev, flags.until(30))?;
    if counted.ended == Ended::Interrupted {
        return flags::print("interrupted; the model is saved, the bag of words was not done");
    }
    let (value, counted) = (percent(&report), percent(&counted));
    let shown = format!("held-out accuracy {value:.1} %, a bag of words {counted:.1} %");
    flags::print(format!("\n{shown} (each in its best epoch, chosen on the same texts)"))?;
    if let Some(test) = &test {
        trainer.use_best()?;
        flags::print(format!("test: {}, in that epoch", trainer.evaluate(test)?))?;
    }
    let mut predictor = flags::load(&flags.save(MODEL), MODEL)?;
    for Labelled { text, label } in dev_texts.1.iter().take(4) {
        flags::print(format!("{} ({label} in truth): {text}", predict(&mut predictor, text)?))?;
    }
    flags.conclude(&Found { model: MODEL, dataset: &train_texts.0, metric: "dev_accuracy", value }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse().flags))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let texts = read(None, ("test", "good\tyes\nbad\tno\nnot good\tno\nnot bad\tyes\nit is good\tyes\n"))?;
    let words = Vocabulary::of(["good", "bad", "not", "it", "is"], &Limits::default())?;
    let labels = Vocabulary::labels(["yes", "no"])?;
    let data = loader(&texts, &words, &labels)?;
    let mut trainer = lstm(words.len(), labels.len(), 1)?.progress(Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    let path = std::env::temp_dir().join(format!("unpadded-sentiment-{}.ckpt", std::process::id()));
    let mut trainer = trainer.vocabulary("words", words).vocabulary("labels", labels).checkpoint(&path);
    trainer.fit(&data, &data, unpadded::train::Until::Epochs(200))?;
    assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
    assert!(predict(&mut Predictor::load(&path)?, "not Good")?.starts_with("no\t"));
    std::fs::remove_file(path)?;
    Ok(())
}
