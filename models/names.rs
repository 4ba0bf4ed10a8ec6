//! Learns where names come from: LSTMs read the characters in both directions, and their last states say the class.
//!
//! `cargo run --release --example names` trains on names of invented languages; see `--help`.
mod flags;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Batching, Fingerprint, Folder, Limits, Loader, Samples, TextFile};
use unpadded::data::{Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::train::metrics::Accuracy;
use unpadded::train::{Predictor, Trainer};
use unpadded::{Builder, DType, Result, Variable};

const MODEL: &str = "names";
const CHARACTERS: Tokenizer = Tokenizer::characters();
const NAMES: [(&str, &str); 6] = [
    ("Ardic", include_str!("../datasets/names/Ardic.txt")),
    ("Belmari", include_str!("../datasets/names/Belmari.txt")),
    ("Corvish", include_str!("../datasets/names/Corvish.txt")),
    ("Dravene", include_str!("../datasets/names/Dravene.txt")),
    ("Eskuri", include_str!("../datasets/names/Eskuri.txt")),
    ("Fjallan", include_str!("../datasets/names/Fjallan.txt")),
];
type Names = Vec<(String, String)>; // each with its class

/// Learns the class of names from a folder with a file a class (CLASS.txt, a name a line); --predict answers names from
/// standard input. Without --dev a tenth of the names is held out.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

/// The model: characters -> vectors -> an LSTM from each end -> their last states.
fn network(characters: usize, classes: usize, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let ids = net.feed("characters", DType::I64, &[], 1); // one a row, in sequences of any length
    let class = net.feed("class", DType::I64, &[], 0); // one a sequence
    let x = net.dropout(net.embedding(ids, Embedding::new(characters, 64)), 0.3);
    let forth = net.sequence_pool(net.lstm(x, Lstm::new(128)), Pool::Last);
    let back = net.sequence_pool(net.lstm(x, Lstm::new(128).backwards()), Pool::First);
    let logits = net.linear(net.dropout(net.concat(&[forth, back]), 0.5), classes);
    let loss = net.mean(net.cross_entropy(logits, class));
    let probabilities = net.softmax(logits);
    let trainer = Trainer::new(net, loss, &Adam::new(3e-3).clip_global_norm(1.0))?;
    Ok(trainer.metric(Accuracy::new(logits, class)).output("probabilities", probabilities))
}

/// The distinct names of each class: of a folder, or those that come with the program; and where they are from.
fn read(folder: Option<&PathBuf>) -> Result<(String, Names)> {
    let from = folder.map_or("datasets/names".to_owned(), |folder| folder.display().to_string());
    let files = match folder {
        Some(folder) => Folder::open(folder)?.extension("txt")?.file_per_class()?,
        None => NAMES.map(|(class, text)| (class.to_owned(), TextFile::embedded(class, text))).to_vec(),
    };
    let mut names = BTreeSet::new();
    for (class, file) in files {
        let lines = file.lines()?.read_all()?;
        let filled = lines.iter().map(|line| line.trim()).filter(|name| !name.is_empty());
        names.extend(filled.map(|name| (name.to_owned(), class.clone())));
    }
    Ok((from, names.into_iter().collect()))
}

/// Whether a name belongs to the tenth that is held out: by the name alone, so that none is on both sides.
fn held_out(name: &str) -> bool {
    Fingerprint::default().text(name).finish() % 10 == 0
}

fn loader((from, names): &(String, Names), characters: &Vocabulary, classes: &Vocabulary) -> Outcome<Loader> {
    let none = format!("{from}: expected at least one name, got none");
    let names = Some(names).filter(|names| !names.is_empty()).ok_or(none)?;
    let sample = |(name, class): &(String, String)| {
        let class = classes.lookup(class).map_err(|e| format!("{from}: the class of {name:?}: {e:#}"))?;
        Ok(vec![characters.ids(CHARACTERS.tokens(name))?.into(), class.into()])
    };
    let samples: Samples = names.iter().map(sample).collect::<Outcome<_>>()?;
    Ok(Loader::new(samples, &["characters", "class"])?.batching(Batching::Sequences(64)))
}

/// The likeliest class of a name, and its probability.
fn predict(predictor: &mut Predictor, name: &str) -> Result<String> {
    let ids = predictor.vocabulary("characters")?.ids(CHARACTERS.tokens(name.trim()))?;
    let out = predictor.run(&[("characters", &Variable::from_sequence(ids)?)], &["probabilities"])?;
    let probabilities = out[0].as_slice::<f32>()?.iter().zip(0..);
    let (probability, class) = probabilities.max_by(|a, b| a.0.total_cmp(b.0)).unwrap_or((&0.0, 0));
    Ok(format!("{}\t{probability:.3}", predictor.vocabulary("classes")?.token(class).unwrap_or_default()))
}

fn run(flags: &Flags) -> Outcome<()> {
    if let Some(mut predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&mut predictor, line));
    }
    let (dataset, names) = read(flags.train.as_ref())?;
    let classes = Vocabulary::labels(names.iter().map(|(_, class)| class))?;
    let (held, rest): (Names, Names) = names.iter().cloned().partition(|(name, _)| held_out(name));
    let split = ((format!("{dataset}, held out"), held), rest);
    let (dev, train) = if flags.dev.is_some() { (read(flags.dev.as_ref())?, names) } else { split };
    let of_train = train.iter().flat_map(|(name, _)| CHARACTERS.tokens(name));
    let characters = Vocabulary::of(of_train, &Limits::default())?;
    let train = loader(&(dataset.clone(), train), &characters, &classes)?.shuffle(flags.seed).prefetch(4);
    let held = loader(&dev, &characters, &classes)?;
    let test = flags.test.as_ref().map(|of| loader(&read(Some(of))?, &characters, &classes)).transpose()?;
    let trainer = network(characters.len(), classes.len(), flags.seed)?
        .vocabulary("characters", characters.clone())
        .vocabulary("classes", classes.clone());
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&train, &held), 30)? else { return Ok(()) };
    let value = 100.0 * report.best.map_or(f64::NAN, |best| best.value);
    trainer.use_best()?;
    let of = |class: &str| dev.1.iter().filter(|(_, of)| of == class).cloned().collect::<Names>();
    let of_each = classes.tokens().map(of).filter(|names| !names.is_empty()).map(|names| {
        let scores = trainer.evaluate(&loader(&(dev.0.clone(), names), &characters, &classes)?)?;
        Ok(scores.get("accuracy").unwrap_or(f64::NAN))
    });
    let mean = 100.0 * of_each.collect::<Outcome<ndarray::Array1<f64>>>()?.mean().unwrap_or(f64::NAN);
    let chosen = "in the best epoch, chosen on the same names";
    flags::print(format!("\nheld-out accuracy {value:.1} %, mean of the classes {mean:.1} % ({chosen})"))?;
    if let Some(test) = &test {
        flags::print(format!("test: {}, in that epoch", trainer.evaluate(test)?))?;
    }
    flags.conclude(&Found { model: MODEL, dataset: &dataset, metric: "dev_accuracy", value }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse().flags))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let names = [("anna", "Up"), ("inga", "Up"), ("otto", "Down"), ("bosko", "Down")];
    let names = names.map(|(name, class)| (name.to_owned(), class.to_owned())).to_vec();
    let characters = Vocabulary::of(CHARACTERS.tokens("abdgiknostv"), &Limits::default())?;
    let classes = Vocabulary::labels(["Up", "Down"])?;
    let (data, trainer) =
        (loader(&("test".to_owned(), names), &characters, &classes)?, network(characters.len(), 2, 1)?);
    let path = std::env::temp_dir().join(format!("unpadded-names-{}.ckpt", std::process::id()));
    let trainer = trainer.vocabulary("characters", characters).vocabulary("classes", classes);
    let mut trainer = trainer.checkpoint(&path).progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    trainer.fit(&data, &data, unpadded::train::Until::Epochs(40))?;
    assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
    assert!(predict(&mut Predictor::load(&path)?, " Enna")?.starts_with("Up\t"));
    std::fs::remove_file(path)?;
    Ok(())
}
