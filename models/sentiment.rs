//! Learns to label texts: an LSTM reads the words, and its last state says the label. Nothing is padded.
//!
//! `cargo run --release --example sentiment` trains on film reviews and shows what came of it; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Batching, Labelled, LabelledTexts, Limits, Loader, TextFile, Tokenizer, Vocabulary};
use unpadded::layers::Embedding;
use unpadded::metrics::Accuracy;
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::predict::Predictor;
use unpadded::train::{Ended, Progress, Report, Trainer};
use unpadded::{Builder, DType, Result, Var, Variable};

const MODEL: &str = "sentiment";
const FEEDS: [&str; 2] = ["words", "label"];
const TRAIN: (&str, &str) = ("datasets/reviews/train.tsv", include_str!("../datasets/reviews/train.tsv"));
const DEV: (&str, &str) = ("datasets/reviews/dev.tsv", include_str!("../datasets/reviews/dev.tsv"));
const WORDS: Tokenizer = Tokenizer::words().lowercase();

/// Learns to label texts, in lines of `text<TAB>label`; --predict labels the lines of standard input
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// What says the label is a weighted mean of the LSTM's states after all words, and not the last one
    #[arg(long)]
    attentive: bool,
}

/// The model: words -> vectors -> LSTM -> its state after the last word, or the states that attention picks.
fn lstm(attentive: bool, words: &Vocabulary, labels: &Vocabulary, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let ids = net.feed("words", DType::I64, &[], 1); // one a row, in sequences of any length
    let table = Embedding::new(words.len(), 128).sparse();
    let states = ids.embedding(table).dropout(0.6).lstm(128);
    let text = if attentive { attended(states) } else { states.sequence_pool(Pool::Last) };
    Ok(classifier(net, text, labels, 2e-3)?.vocabulary("words", words.clone()))
}

/// One row a text, Σ_t a_t h_t with a = softmax(tanh(h · W + b) · v) over its words (Lin et al., "A structured self-attentive
/// sentence embedding", 2017).
fn attended(states: Var) -> Var {
    let weights = states.linear(64).tanh().linear(1).sequence_softmax();
    (states * weights).sequence_pool(Pool::Sum)
}

/// What it is measured against: the mean of the words' vectors, whatever their order, with settings found for it.
fn bag_of_words(words: &Vocabulary, labels: &Vocabulary, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let x = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(words.len(), 128).sparse());
    classifier(net, x.sequence_pool(Pool::Mean), labels, 1e-2)
}

fn classifier(net: Builder, text: Var, labels: &Vocabulary, rate: f64) -> Result<Trainer> {
    let label = net.feed("label", DType::I64, &[], 0); // one a sequence
    let logits = text.dropout(0.6).linear(labels.len());
    let (loss, probabilities) = (logits.cross_entropy(label).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &Adam::new(rate).lazy().clip_global_norm(1.0))?;
    let trainer = trainer.metric(Accuracy::new(logits, label)).output("probabilities", probabilities);
    Ok(trainer.vocabulary("labels", labels.clone()))
}

/// A file of the user's, or the one that comes with the program.
fn read(path: Option<&PathBuf>, (name, text): (&str, &'static str)) -> Result<LabelledTexts> {
    LabelledTexts::of_lines(&path.map_or_else(|| Ok(TextFile::embedded(name, text)), TextFile::open)?)
}

/// The likeliest label of a text and its probability.
fn predict(predictor: &Predictor, text: &str) -> Result<String> {
    let words = Variable::from_sequence(predictor.vocabulary("words")?.ids(WORDS.tokens(text))?)?;
    let found = predictor.likeliest(&[("words", &words)], "probabilities", "labels")?;
    Ok(found.iter().map(|(label, probability)| format!("{label}\t{probability:.3}")).collect())
}

fn run(Cli { flags, attentive }: &Cli) -> Outcome<()> {
    if let Some(predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&predictor, line));
    }
    if flags.train.is_some() && flags.dev.is_none() {
        return Err("--train: expected --dev FILE with it, of texts that training never sees".into());
    }
    let (texts, held_out) = (read(flags.train.as_ref(), TRAIN)?, read(flags.dev.as_ref(), DEV)?);
    let words = texts.vocabulary(&WORDS, &Limits { min_count: 2, ..Limits::default() })?;
    let labels = texts.labels()?;
    let loader = |texts: &LabelledTexts| -> Result<Loader> {
        Ok(texts.loader(FEEDS, &WORDS, (&words, &labels))?.batching(Batching::Sequences(16)))
    };
    let (train, dev) = (loader(&texts)?.shuffle(flags.seed).prefetch(4), loader(&held_out)?);
    let test = flags.test.as_ref().map(|path| loader(&read(Some(path), DEV)?)).transpose()?;
    let trainer = lstm(*attentive, &words, &labels, flags.seed)?;
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&train, &dev), 30)? else { return Ok(()) };
    let percent = |report: &Report| 100.0 * report.best.map_or(f64::NAN, |best| best.value);
    let mut baseline = bag_of_words(&words, &labels, flags.seed)?.progress(Progress::Quiet);
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
    let predictor = flags::load(&flags.save(MODEL), MODEL)?;
    for Labelled { text, label, .. } in held_out.records().iter().take(4) {
        flags::print(format!("{} ({label} in truth): {text}", predict(&predictor, text)?))?;
    }
    flags.conclude(
        &Found { model: MODEL, dataset: texts.name(), metric: "dev_accuracy", value, more: &[] },
        &report,
    )
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let texts = read(None, ("test", "good\tyes\nbad\tno\nnot good\tno\nnot bad\tyes\nit is good\tyes\n"))?;
    let (words, labels) = (texts.vocabulary(&WORDS, &Limits::default())?, texts.labels()?);
    let data = texts.loader(FEEDS, &WORDS, (&words, &labels))?;
    let path = std::env::temp_dir().join(format!("unpadded-sentiment-{}.ckpt", std::process::id()));
    for attentive in [false, true] {
        let trainer = lstm(attentive, &words, &labels, 1)?.progress(Progress::Quiet);
        let mut trainer = trainer.checkpoint(&path);
        let before = trainer.evaluate(&data)?.loss();
        trainer.fit(&data, &data, unpadded::train::Until::Epochs(200))?;
        assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
        // Of so few texts attention learns to look at "not", whatever it is that is not.
        let asked = if attentive { "Bad" } else { "not Good" };
        assert!(predict(&Predictor::load(&path)?, asked)?.starts_with("no\t"));
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
