//! Writes like a text: an LSTM reads the text character by character and predicts the next character. Its state is carried from
//! window to window of the text; gradients stay within one window (truncated back-propagation through time).
//!
//! `cargo run --release --example char_lm` trains on the prose of this repository, which is small: expect words, not sense. Two
//! paths train on another text and measure on a second one.
mod paths;

use unpadded::data::{Continuous, Limits, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::Loss;
use unpadded::ops;
use unpadded::optimizer::Adam;
use unpadded::predict::{Predictor, Sampling};
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};
use unpadded_text::TextFile;

const CHARACTERS: Tokenizer = Tokenizer::characters();

/// Character → vector → LSTM → a score for each possible next character.
fn network(characters: &Vocabulary) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::I64, &[], 1); // a window of each stream, one id a row
    let y = net.feed_like("y", DType::I64, &[], x); // what comes next at each place
    let (h0, c0) = (net.carried_state(256), net.carried_state(256)); // where the window before ended
    let vectors = x.embedding(Embedding::new(characters.len(), 64));
    let (h, h_last, c_last) = net.lstm_states(vectors, Lstm::new(256).initial(h0, c0));
    net.carry(h0, h_last);
    net.carry(c0, c_last);
    let logits = h.dropout(0.2).linear(characters.len());
    let losses = logits.cross_entropy(y);
    let trainer = Trainer::new(net, losses.mean(), &Adam::new(3e-3).clip_global_norm(1.0))?;
    let trainer = trainer.metric(Loss::bits_per_character(losses)).output("logits", logits);
    Ok(trainer.vocabulary("characters", characters.clone()))
}

/// Trains for some epochs. Returns the trainer, with the parameters of the best one.
fn train(text: &str, dev: &str, epochs: u64) -> Result<Trainer> {
    let characters = Vocabulary::of(CHARACTERS.tokens(text), &Limits::default())?;
    // A long text is read at up to 64 places side by side, in windows of 64 characters.
    let windows = |text: &str| {
        let ids = characters.ids(CHARACTERS.tokens(text))?;
        let streams = (ids.len() / 2048).clamp(1, 64);
        Continuous::new(ids, streams, 64, ["x", "y"])
    };
    let mut trainer = network(&characters)?;
    trainer.fit(&windows(text)?, &windows(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    Ok(trainer)
}

/// Returns a text and the characters that the model writes after it. Below a temperature of 1 likely characters become likelier.
fn write(predictor: &Predictor, prompt: &str, temperature: f64, length: usize) -> Result<String> {
    let characters = predictor.vocabulary("characters")?;
    let mut sampler = Sampling::default().temperature(temperature).sampler(1)?;
    let mut session = predictor.session(&["logits"])?;
    let mut text = prompt.to_owned();
    let mut ids = characters.ids(CHARACTERS.tokens(prompt))?;
    for _ in 0..length {
        for id in ids.drain(..) {
            session.step(&[("x", &Variable::dense(ndarray::array![id]))])?;
        }
        let id = sampler.draw(session.output("logits")?.as_slice()?)?;
        text += characters.token(id).unwrap_or_default();
        ids.push(id);
    }
    Ok(text)
}

fn main() -> Result<()> {
    let [path, dev] = paths::paths(["prose/prose.txt", "prose/prose.txt"])?;
    let (text, dev) = match path == dev {
        true => {
            let whole = TextFile::open(path)?.text()?;
            let most = CHARACTERS.tokens(&whole).count() * 9 / 10;
            let end = CHARACTERS.tokens(&whole).take(most).map(|character| character.len()).sum();
            let (text, rest) = whole.split_at(end);
            (text.to_owned(), rest.to_owned())
        }
        false => (TextFile::open(path)?.text()?, TextFile::open(dev)?.text()?),
    };
    let mut trainer = train(&text, &dev, 15)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    let opening: String = dev.chars().take(200).collect();
    println!(
        "\nheld-out text, and what the model writes after it:\n{}",
        write(&predictor, &opening, 0.7, 300)?
    );
    Ok(())
}

#[test]
fn it_learns_and_writes() -> Result<()> {
    let text = "abcde".repeat(60);
    let mut trainer = train(&text, &text, 10)?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    assert_eq!(write(&predictor, "cdeabc", 0.0, 7)?, "cdeabcdeabcde");
    Ok(())
}
