//! Labels texts: an LSTM reads the words of a text, and its last state decides the label. Nothing is padded.
//!
//! `cargo run --release --example sentiment` trains on the film reviews of this repository; two paths, of lines `text<TAB>label`, train on
//! other texts: `cargo run --release --example sentiment -- train.tsv dev.tsv`.
mod paths;

use unpadded::data::{Batching, Limits, Tokenizer, Vocabulary};
use unpadded::layers::Embedding;
use unpadded::metrics::Accuracy;
use unpadded::ops::{self, Pool};
use unpadded::optimizer::Adam;
use unpadded::predict::Predictor;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};
use unpadded_text::LabelledTexts;

const WORDS: Tokenizer = Tokenizer::words().lowercase();

/// Words → vectors → LSTM → its state after the last word → label.
fn network(words: &Vocabulary, labels: &Vocabulary) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let ids = net.feed("words", DType::I64, &[], 1); // one id a row, in sequences of any length
    let label = net.feed("label", DType::I64, &[], 0); // one a sequence
    let states = ids.embedding(Embedding::new(words.len(), 128).sparse()).dropout(0.6).lstm(128);
    let logits = states.sequence_pool(Pool::Last).dropout(0.6).linear(labels.len());
    let (loss, probabilities) = (logits.cross_entropy(label).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &Adam::new(2e-3).lazy().clip_global_norm(1.0))?;
    let trainer = trainer.metric(Accuracy::new(logits, label)).output("probabilities", probabilities);
    Ok(trainer.vocabulary("words", words.clone()).vocabulary("labels", labels.clone()))
}

/// Trains for some epochs. Returns the trainer, with the parameters of the best one.
fn train(texts: &LabelledTexts, dev: &LabelledTexts, epochs: u64) -> Result<Trainer> {
    let words = texts.vocabulary(&WORDS, &Limits::default().min_count(2))?;
    let labels = texts.labels()?;
    let batches = |texts: &LabelledTexts| texts.loader(["words", "label"], &WORDS, (&words, &labels));
    let mut trainer = network(&words, &labels)?.patience(5);
    let train = batches(texts)?.batching(Batching::Sequences(16)).shuffle(1).prefetch(4);
    trainer.fit(&train, &batches(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    Ok(trainer)
}

/// The likeliest label of a text, and its probability.
fn predict(predictor: &Predictor, text: &str) -> Result<String> {
    let words = Variable::from_sequence(predictor.vocabulary("words")?.ids(WORDS.tokens(text))?)?;
    let found = predictor.likeliest(&[("words", &words)], "probabilities", "labels")?;
    Ok(found.iter().map(|(label, probability)| format!("{label} {probability:.3}")).collect())
}

fn main() -> Result<()> {
    let [path, dev] = paths::paths(["reviews/train.tsv", "reviews/dev.tsv"])?;
    let dev = LabelledTexts::open(dev)?;
    let mut trainer = train(&LabelledTexts::open(path)?, &dev, 30)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    for text in dev.records().iter().take(4) {
        println!("{}, in truth {}: {}", predict(&predictor, &text.text)?, text.label, text.text);
    }
    Ok(())
}

#[test]
fn it_learns_and_predicts() -> Result<()> {
    use unpadded_text::LabelledText;
    let lines = [("good film", "yes"), ("a bad film", "no"), ("a good one", "yes"), ("bad one", "no")];
    let all = lines.iter().cycle().take(40).map(|(text, label)| LabelledText::new(*text, *label));
    let texts = LabelledTexts::new("texts", all.collect::<Vec<_>>());
    let mut trainer = train(&texts, &texts, 40)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    for (text, label) in lines {
        assert!(predict(&predictor, text)?.starts_with(label), "{text}");
    }
    Ok(())
}
