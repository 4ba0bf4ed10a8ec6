//! Learns where names come from: LSTMs read the characters in both directions, and their last states say the class.
//!
//! `cargo run --release --example names` trains on names of invented languages; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Batching, Folder, LabelledTexts, Limits, Loader, TextFile, Tokenizer, Vocabulary};
use unpadded::layers::{Conv, Embedding, Lstm};
use unpadded::metrics::Accuracy;
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::predict::Predictor;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Result, Variable};

const MODEL: &str = "names";
const FEEDS: [&str; 2] = ["characters", "class"];
const CHARACTERS: Tokenizer = Tokenizer::characters();
const NAMES: [(&str, &str); 6] = [
    ("Ardic", include_str!("../datasets/names/Ardic.txt")),
    ("Belmari", include_str!("../datasets/names/Belmari.txt")),
    ("Corvish", include_str!("../datasets/names/Corvish.txt")),
    ("Dravene", include_str!("../datasets/names/Dravene.txt")),
    ("Eskuri", include_str!("../datasets/names/Eskuri.txt")),
    ("Fjallan", include_str!("../datasets/names/Fjallan.txt")),
];

/// Learns the class of names from a folder with a file a class (CLASS.txt, a name a line); --predict answers names from
/// standard input. Without --dev a tenth of the names is held out.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// A convolution makes each character's vector of those around it, before the LSTMs read them
    #[arg(long)]
    conv: bool,
}

/// The model: characters -> vectors, convolved or not -> an LSTM from each end -> their last states.
fn network(conv: bool, characters: &Vocabulary, classes: &Vocabulary, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let ids = net.feed("characters", DType::I64, &[], 1); // one a row, in sequences of any length
    let class = net.feed("class", DType::I64, &[], 0); // one a sequence
    let x = ids.embedding(Embedding::new(characters.len(), 64)).dropout(0.3);
    let x = if conv { net.concat(&[x, x.conv(Conv::new(3, 64)).relu()]) } else { x };
    let forth = x.lstm(128).sequence_pool(Pool::Last);
    let back = x.lstm(Lstm::new(128).backwards()).sequence_pool(Pool::First);
    let logits = net.concat(&[forth, back]).dropout(0.5).linear(classes.len());
    let (loss, probabilities) = (logits.cross_entropy(class).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &Adam::new(3e-3).clip_global_norm(1.0))?;
    let trainer = trainer.metric(Accuracy::new(logits, class)).output("probabilities", probabilities);
    Ok(trainer.vocabulary("characters", characters.clone()).vocabulary("classes", classes.clone()))
}

/// The distinct names of each class: of a folder, or those that come with the program.
fn read(folder: Option<&PathBuf>) -> Result<LabelledTexts> {
    let own = || NAMES.map(|(class, text)| (class.to_owned(), TextFile::embedded(class, text))).to_vec();
    let Some(folder) = folder else { return LabelledTexts::of_classes("datasets/names", own()) };
    let files = Folder::open(folder)?.extension("txt")?.file_per_class()?;
    LabelledTexts::of_classes(&folder.display().to_string(), files)
}

/// The likeliest class of a name, and its probability.
fn predict(predictor: &Predictor, name: &str) -> Result<String> {
    let ids = predictor.vocabulary("characters")?.ids(CHARACTERS.tokens(name.trim()))?;
    let feeds = [("characters", &Variable::from_sequence(ids)?)];
    let found = predictor.likeliest(&feeds, "probabilities", "classes")?;
    Ok(found.iter().map(|(class, probability)| format!("{class}\t{probability:.3}")).collect())
}

fn run(Cli { flags, conv }: &Cli) -> Outcome<()> {
    if let Some(predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&predictor, line));
    }
    let names = read(flags.train.as_ref())?;
    let (dataset, classes) = (names.name().to_owned(), names.labels()?);
    let (names, dev) = match &flags.dev {
        Some(folder) => (names, read(Some(folder))?),
        None => names.hold_out(10, flags.seed), // by the name alone, so that none is on both sides
    };
    let characters = names.vocabulary(&CHARACTERS, &Limits::default())?;
    let loader = |names: &LabelledTexts| -> Result<Loader> {
        Ok(names.loader(FEEDS, &CHARACTERS, (&characters, &classes))?.batching(Batching::Sequences(64)))
    };
    let (train, held) = (loader(&names)?.shuffle(flags.seed).prefetch(4), loader(&dev)?);
    let test = flags.test.as_ref().map(|of| loader(&read(Some(of))?)).transpose()?;
    let trainer = network(*conv, &characters, &classes, flags.seed)?;
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&train, &held), 30)? else { return Ok(()) };
    let value = 100.0 * report.best.map_or(f64::NAN, |best| best.value);
    trainer.use_best()?;
    let score = |names: &LabelledTexts| -> Result<f64> {
        Ok(trainer.evaluate(&loader(names)?)?.get("accuracy").unwrap_or(f64::NAN))
    };
    let of_each = dev.by_label().iter().map(score).collect::<Result<ndarray::Array1<f64>>>()?;
    let mean = 100.0 * of_each.mean().unwrap_or(f64::NAN);
    let chosen = "in the best epoch, chosen on the same names";
    flags::print(format!("\nheld-out accuracy {value:.1} %, mean of the classes {mean:.1} % ({chosen})"))?;
    if let Some(test) = &test {
        flags::print(format!("test: {}, in that epoch", trainer.evaluate(test)?))?;
    }
    flags.conclude(
        &Found { model: MODEL, dataset: &dataset, metric: "dev_accuracy", value, more: &[] },
        &report,
    )
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let file = |class: &str, names: &'static str| (class.to_owned(), TextFile::embedded(class, names));
    let names =
        LabelledTexts::of_classes("test", [file("Up", "anna\ninga\n"), file("Down", "otto\nbosko\n")])?;
    let (characters, classes) = (names.vocabulary(&CHARACTERS, &Limits::default())?, names.labels()?);
    let data = names.loader(FEEDS, &CHARACTERS, (&characters, &classes))?;
    let path = std::env::temp_dir().join(format!("unpadded-names-{}.ckpt", std::process::id()));
    for conv in [false, true] {
        let trainer = network(conv, &characters, &classes, 1)?.progress(unpadded::train::Progress::Quiet);
        let mut trainer = trainer.checkpoint(&path);
        let before = trainer.evaluate(&data)?.loss();
        trainer.fit(&data, &data, unpadded::train::Until::Epochs(40))?;
        assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
        assert!(predict(&Predictor::load(&path)?, " Enna")?.starts_with("Up\t"));
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
