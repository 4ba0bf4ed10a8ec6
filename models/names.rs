//! Classifies names by their origin: LSTMs read the characters of a name in both directions, and their last states decide the
//! class.
//!
//! `cargo run --release --example names` trains on names of invented languages. Two paths train on other names and measure on the second (the
//! same path twice: on a tenth of it): folders with a file a class and a name a line.
mod paths;

use unpadded::data::{Batching, Limits, Tokenizer, Vocabulary};
use unpadded::layers::{Conv, Embedding, Lstm};
use unpadded::metrics::Accuracy;
use unpadded::ops::{self, Pool};
use unpadded::optimizer::Adam;
use unpadded::predict::Predictor;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};
use unpadded_text::LabelledTexts;

const CHARACTERS: Tokenizer = Tokenizer::characters();

/// Characters → vectors, beside the outputs of a convolution over three vectors → an LSTM from each end → class.
fn network(characters: &Vocabulary, classes: &Vocabulary) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let ids = net.feed("characters", DType::I64, &[], 1); // one id a row, in sequences of any length
    let class = net.feed("class", DType::I64, &[], 0); // one a sequence
    let x = ids.embedding(Embedding::new(characters.len(), 64)).dropout(0.3);
    let x = net.concat(&[x, x.conv(Conv::new(3, 64)).relu()]);
    let forth = x.lstm(128).sequence_pool(Pool::Last);
    let back = x.lstm(Lstm::new(128).backwards()).sequence_pool(Pool::First);
    let logits = net.concat(&[forth, back]).dropout(0.5).linear(classes.len());
    let (loss, probabilities) = (logits.cross_entropy(class).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &Adam::new(3e-3).clip_global_norm(1.0))?;
    let trainer = trainer.metric(Accuracy::new(logits, class)).output("probabilities", probabilities);
    Ok(trainer.vocabulary("characters", characters.clone()).vocabulary("classes", classes.clone()))
}

/// Trains for some epochs. Returns the trainer, with the parameters of the best one.
fn train(names: &LabelledTexts, dev: &LabelledTexts, epochs: u64) -> Result<Trainer> {
    let (characters, classes) = (names.vocabulary(&CHARACTERS, &Limits::default())?, names.labels()?);
    let batches =
        |texts: &LabelledTexts| texts.loader(["characters", "class"], &CHARACTERS, (&characters, &classes));
    let mut trainer = network(&characters, &classes)?;
    let train = batches(names)?.batching(Batching::Sequences(64)).shuffle(1).prefetch(4);
    trainer.fit(&train, &batches(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    // The accuracy of each class: the classes may be very unequal in size.
    for of_class in dev.by_label() {
        let scores = trainer.evaluate(&batches(&of_class)?)?;
        println!("{}: {scores}", of_class.records()[0].label);
    }
    Ok(trainer)
}

/// The likeliest class of a name, and its probability.
fn predict(predictor: &Predictor, name: &str) -> Result<String> {
    let ids = predictor.vocabulary("characters")?.ids(CHARACTERS.tokens(name))?;
    let found =
        predictor.likeliest(&[("characters", &Variable::from_sequence(ids)?)], "probabilities", "classes")?;
    Ok(found.iter().map(|(class, probability)| format!("{class} {probability:.3}")).collect())
}

fn main() -> Result<()> {
    let [path, dev] = paths::paths(["names", "names"])?;
    let names = LabelledTexts::open(&path)?.distinct();
    // A name is on one side alone, wherever it is in the files.
    let (names, dev) =
        if path == dev { names.hold_out(10, 1) } else { (names, LabelledTexts::open(dev)?.distinct()) };
    let mut trainer = train(&names, &dev, 30)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    for name in dev.records().iter().step_by(dev.records().len().div_ceil(6)) {
        println!("{}: {}, in truth {}", name.text, predict(&predictor, &name.text)?, name.label);
    }
    Ok(())
}

#[test]
fn it_learns_and_predicts() -> Result<()> {
    use unpadded_text::LabelledText;
    let names = [("anna", "Up"), ("inga", "Up"), ("otto", "Down"), ("bosko", "Down")];
    let names = names.map(|(name, class)| LabelledText::new(name, class));
    let names = LabelledTexts::new("names", names.to_vec());
    let mut trainer = train(&names, &names, 40)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    assert!(predict(&predictor, "enna")?.starts_with("Up"));
    Ok(())
}
