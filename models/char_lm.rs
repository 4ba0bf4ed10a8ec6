//! Learns to write: an LSTM reads a text character by character and says which one comes next. Its state is carried
//! from window to window of the text; gradients stay within one (truncated back-propagation through time).
//!
//! `cargo run --release --example char_lm` trains on `datasets/prose`, which is small; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Continuous, Limits, TextFile, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::Loss;
use unpadded::optimizer::Adam;
use unpadded::predict::{Predictor, Sampler, Sampling, Session};
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Result, Variable};

const MODEL: &str = "char_lm";
const CHARACTERS: Tokenizer = Tokenizer::characters();
const BITS: &str = "bits per character";
const PROSE: (&str, &str) = ("datasets/prose/prose.txt", include_str!("../datasets/prose/prose.txt"));

/// Learns to write like a text, character by character; --predict goes on from each line of standard input. Without
/// --dev the last tenth of the text is held out: its first half to measure on after each epoch, the rest to test.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// Below 1 likely characters become likelier, at 0 it is always the likeliest
    #[arg(long, value_name = "NUMBER", default_value_t = 0.7, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw only from so many characters, the likeliest
    #[arg(long, value_name = "NUMBER", value_parser = flags::positive::<usize>, allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Draw only from the likeliest characters that together have this probability
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f64,
    /// How many characters to write
    #[arg(long, value_name = "NUMBER", default_value_t = 300, value_parser = flags::whole::<usize>, allow_negative_numbers = true)]
    length: usize,
}

/// The model: character -> vector -> LSTM -> a number for each character that could come next.
fn network(characters: usize, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let x = net.feed("x", DType::I64, &[], 1); // a window of each stream, one id a row
    let y = net.feed_like("y", DType::I64, &[], x); // what comes next at each place
    let (h0, c0) = (net.carried_state(256), net.carried_state(256)); // where the window before ended
    let vectors = x.embedding(Embedding::new(characters, 64));
    let (h, h_last, c_last) = net.lstm_states(vectors, Lstm::new(256).initial(h0, c0));
    net.carry(h0, h_last);
    net.carry(c0, c_last);
    let logits = h.dropout(0.2).linear(characters);
    let losses = logits.cross_entropy(y);
    let trainer = Trainer::new(net, losses.mean(), &Adam::new(3e-3).clip_global_norm(1.0))?;
    Ok(trainer.metric(Loss::bits_per_character(losses)).output("logits", logits))
}

/// A text in parallel streams, more of them for a longer one.
fn stream(text: &str, characters: &Vocabulary) -> Result<Continuous> {
    let ids = CHARACTERS.tokens(text).map(|character| characters.lookup(&character));
    Continuous::try_new(ids, (count(text) / 2048).clamp(1, 64), 64, ["x", "y"])
}

/// How many characters a text has. It is cut again where they are needed: a list of them takes far more memory.
fn count(text: &str) -> usize {
    CHARACTERS.tokens(text).count()
}

/// The first characters of a text, so many, and the rest.
fn split(text: &str, characters: usize) -> (&str, &str) {
    text.split_at(CHARACTERS.tokens(text).take(characters).map(|character| character.len()).sum())
}

/// What the model writes after a prompt, so many characters.
fn write(predictor: &Predictor, prompt: &str, mut sampler: Sampler, length: usize) -> Result<String> {
    let prompt = if prompt.is_empty() { "\n" } else { prompt };
    let characters = predictor.vocabulary("characters")?.clone();
    let mut session = predictor.session(&["logits"])?;
    let mut next = Variable::dense(ndarray::array![0i64]);
    let mut read = |id: i64, session: &mut Session| -> Result<()> {
        next.as_mut_slice()?[0] = id;
        session.step(&[("x", &next)])
    };
    for id in characters.ids(CHARACTERS.tokens(prompt))? {
        read(id, &mut session)?;
    }
    let mut text = String::new();
    for _ in 0..length {
        let id = sampler.draw(session.output("logits")?.as_slice()?)?;
        text.push_str(characters.token(id).unwrap_or_default());
        read(id, &mut session)?;
    }
    Ok(text)
}

fn run(cli: &Cli) -> Outcome<()> {
    let Cli { ref flags, temperature, top_k, top_p, length } = *cli;
    let sampler = Sampling { temperature, top_k, top_p, ..Sampling::default() }.sampler(flags.seed)?;
    if let Some(predictor) = flags.predictor(MODEL)? {
        let reply = |prompt: &str| write(&predictor, prompt, sampler.clone(), length);
        return flags::answer(|prompt| Ok(format!("{prompt}{}\n", reply(prompt)?)));
    }
    let prose = || Ok(TextFile::embedded(PROSE.0, PROSE.1));
    let file = flags.train.as_ref().map_or_else(prose, TextFile::open)?;
    let text = |path: &Option<PathBuf>| path.as_ref().map(|path| TextFile::open(path)?.text()).transpose();
    let (whole, dev, test) = (file.text()?, text(&flags.dev)?, text(&flags.test)?);
    let (train, rest) = if dev.is_some() { (&*whole, "") } else { split(&whole, count(&whole) * 9 / 10) };
    let (first, second) = if test.is_some() { (rest, "") } else { split(rest, count(rest) / 2) };
    let (dev, test) = (dev.as_deref().unwrap_or(first), test.as_deref().unwrap_or(second));
    let needed = if flags.test.is_some() { test } else { train };
    let counted = [("train", train), ("measure", dev), ("test", needed)].map(|(of, text)| (of, count(text)));
    if let Some((of, got)) = counted.iter().find(|(_, characters)| *characters < 2) {
        return Err(format!("text to {of} on: expected two characters or more, got {got}").into());
    }
    let characters = Vocabulary::of(CHARACTERS.tokens(train), &Limits::default())?;
    let (_, length_of_train) = counted[0];
    let size = if length_of_train < 1_000_000 { " (that is small: expect words, not sense)" } else { "" };
    flags::print(format!("{}: {} characters to train on{size}", file.name(), length_of_train))?;
    let trainer = network(characters.len(), flags.seed)?.vocabulary("characters", characters.clone());
    let opening = split(dev, 200).0.to_owned();
    let (train, dev) = (stream(train, &characters)?, stream(dev, &characters)?);
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&train, &dev), 15)? else { return Ok(()) };
    let value = report.best.map_or(f64::NAN, |best| best.value);
    flags::print(format!("\n{value:.3} {BITS} on held-out text, in the best epoch"))?;
    if count(test) > 1 {
        trainer.use_best()?;
        let bits = trainer.evaluate(&stream(test, &characters)?)?.get(BITS).unwrap_or(f64::NAN);
        flags::print(format!("{bits:.3} on other held-out text, by which nothing was chosen"))?;
    }
    let sample = write(&flags::load(&flags.save(MODEL), MODEL)?, &opening, sampler, length)?;
    flags::print(format!("\nfrom held-out text on, at temperature {temperature}:\n{sample}\n"))?;
    let (dataset, metric) = (&file.name(), "dev_bits_per_character");
    flags.conclude(&Found { model: MODEL, dataset, metric, value, more: &[] }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_writes() -> Outcome<()> {
    let text = "abcde".repeat(60);
    let characters = Vocabulary::of(CHARACTERS.tokens(&text), &Limits::default())?;
    let data = stream(&text, &characters)?;
    let path = std::env::temp_dir().join(format!("unpadded-char_lm-{}.ckpt", std::process::id()));
    let trainer = network(characters.len(), 1)?.vocabulary("characters", characters);
    let mut trainer = trainer.checkpoint(&path).progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    trainer.fit(&data, &data, unpadded::train::Until::Epochs(8))?;
    assert!(trainer.evaluate(&data)?.loss() < before / 4.0);
    let sampler = Sampling { temperature: 0.0, ..Sampling::default() }.sampler(1)?;
    assert_eq!(write(&Predictor::load(&path)?, "cdeabc", sampler, 7)?, "deabcde");
    Ok(std::fs::remove_file(path)?)
}
