//! What every recipe makes of its config and its texts.

use std::path::PathBuf;

use super::config::Config;
use super::sections::Tokens;
pub(super) use super::sections::{CONFIG, TASK};
use super::started::Origin;
use crate::data::{Batching, Data, DataPaths, Loader, MalformedLines, ReadOptions, TagScheme, Tokenizer};
use crate::error::{Error, Result};
use crate::predict::Predictor;
use crate::train::Trainer;

/// A training that may begin.
#[non_exhaustive]
pub struct Preparation {
    /// The model, told by what it is measured and what its file will hold.
    pub trainer: Trainer,
    /// What it is trained on.
    pub train: Box<dyn Data>,
    /// What it is measured on after each epoch.
    pub dev: Box<dyn Data>,
    /// The path of what it is scored on at the end, if there is one: [`scores`](super::scores) takes it as `data.test`.
    pub test: Option<PathBuf>,
    /// What the texts are called.
    pub name: String,
    /// The metric that decides which epoch is the best.
    pub metric: &'static str,
    /// The lengths of the training texts, in tokens.
    pub lengths: Vec<usize>,
    /// Which share of the held-out tokens is known, where they are looked up in a vocabulary.
    pub coverage: Option<f64>,
    /// Texts of `dev`, each with what would be right.
    pub held_out: HeldOutTexts,
    /// Lines that say what was read, for people.
    pub said: Vec<String>,
}

/// What a model is tested on.
#[non_exhaustive]
pub struct TestData {
    /// What [`Predictor::evaluate`] takes.
    pub data: Box<dyn Data>,
    /// Lines that say how the file was read, for people.
    pub said: Vec<String>,
}

/// What was held out.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct HeldOutTexts {
    /// The first texts, [`Self::MOST`] of them at most.
    pub cases: Vec<Case>,
    /// How many texts there are.
    pub count: usize,
    /// Whether the counts of the labels include their labels.
    pub counted: bool,
}

impl HeldOutTexts {
    /// So many texts are looked at one by one, and stay in memory for that.
    pub const MOST: usize = 5_000;

    pub(super) fn add(&mut self, case: impl FnOnce() -> Case) {
        self.count += 1;
        if self.cases.len() < Self::MOST {
            self.cases.push(case());
        }
    }
}

impl FromIterator<Case> for HeldOutTexts {
    fn from_iter<I: IntoIterator<Item = Case>>(cases: I) -> Self {
        cases.into_iter().fold(Self::default(), |mut held, case| {
            held.add(|| case);
            held
        })
    }
}

/// A text with what would be right.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Case {
    /// The text; of tagged ones the words between spaces.
    pub text: String,
    /// What would be right.
    pub truth: Truth,
}

/// What would be right.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Truth {
    /// The label.
    Label(String),
    /// The labels, of which there may be none.
    Labels(Vec<String>),
    /// The number.
    Number(f64),
    /// The tag of each word, and the label of the text if it has one.
    Tags(Vec<String>, Option<String>),
    /// What it may become.
    Texts(Vec<String>),
    /// A text goes on in many ways.
    Open,
}

/// The notes of a recipe's file.
pub(super) const CUT: &str = "tokens";
/// How the text that is written is cut, if otherwise.
pub(super) const TARGET_CUT: &str = "target tokens";
/// How the training files were read.
pub(super) const READ_AS: &str = "read as";

/// Where the parts of the texts are.
pub(super) struct Paths {
    pub(super) train: Option<PathBuf>,
    pub(super) dev: Option<PathBuf>,
    pub(super) test: Option<PathBuf>,
    /// What is beside the parts and none of them.
    left_out: Vec<PathBuf>,
    /// The trained model to start from.
    pub(super) from: Origin,
}

impl Paths {
    /// As the config says; a folder that has the parts in it is cut into them.
    pub(super) fn of(config: &Config) -> Result<Self> {
        let data = &config.data;
        let path = |of: &Option<String>| of.as_ref().map(PathBuf::from);
        let (dev, test) = (path(&data.dev), path(&data.test));
        let Some(train) = &data.train else {
            return Ok(Self { train: None, dev, test, left_out: Vec::new(), from: Origin::default() });
        };
        let DataPaths { train, dev: own_dev, test: own_test, left_out } = DataPaths::find(train)?;
        Ok(Self {
            train: Some(train),
            dev: dev.or(own_dev),
            test: test.or(own_test),
            left_out,
            from: Origin::default(),
        })
    }

    /// What is left out, for people.
    pub(super) fn left_out(&self) -> Option<String> {
        let names = self.left_out.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()).display());
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| {
            format!(
                "left out: {}; `data.train`, `data.dev` and `data.test` name other parts",
                names.join(", ")
            )
        })
    }
}

/// What a column's name or number is set for.
pub(super) type Column = fn(ReadOptions, &str) -> ReadOptions;

/// How the config says that files are read; `data.text` and `data.label` are these columns.
pub(super) fn options(config: &Config, [text, label]: [Column; 2]) -> Result<ReadOptions> {
    let data = &config.data;
    // Whoever mends a file wants to know of more than one line.
    let mut options = ReadOptions::new().malformed(MalformedLines::Collect);
    if let Some(format) = &data.format {
        options = options.format(format.parse()?);
    }
    if let Some(header) = data.header {
        options = options.header(header);
    }
    if let Some(given) = &data.separator {
        options = options.separator(separator(given)?);
    }
    if let Some(name) = &data.encoding {
        options = options.encoding(name.parse()?);
    }
    options = data.text.iter().fold(options, |options, column| text(options, column));
    options = data.label.iter().fold(options, |options, column| label(options, column));
    if let Some(name) = &data.scheme {
        let of = |e: Error| e.noted("in `data.scheme`");
        options = options.scheme(TagScheme::from_name(name).map_err(of)?);
    }
    if data.repair_tags {
        options = options.repair_tags();
    }
    Ok(if data.binary { options.binary() } else { options })
}

/// How files are read for a model: as the config says, else as the files that it was trained on.
pub(super) fn options_of(
    config: &Config,
    columns: [Column; 2],
    predictor: &Predictor,
) -> Result<ReadOptions> {
    let set = options(config, columns)?;
    match predictor.note(READ_AS) {
        Some(note) => {
            set.or_note(note).map_err(|e| e.noted(format!("in note `{READ_AS}` of the checkpoint")))
        }
        None => Ok(set),
    }
}

/// Adds to an error about a file how the training files were read, since it is read like them.
pub(super) fn as_in_training(error: Error, options: &ReadOptions) -> Error {
    match read_as(options) {
        Some(said) => error.noted(format!("{said}, as the files of the training")),
        None => error,
    }
}

/// The tokenizer that a note of a model names.
pub(super) fn cut_of(predictor: &Predictor, note: &str) -> Result<Tokenizer> {
    Tokenizer::from_name(predictor.note(note).unwrap_or_default())
}

fn separator(given: &str) -> Result<char> {
    let mut characters = given.chars();
    match (characters.next(), characters.next()) {
        _ if ["tab", "\\t"].contains(&given) => Ok('\t'),
        (Some(one), None) if one != '"' && one != '\n' => Ok(one),
        _ => Err(Error::new("data.separator", "one character, or `tab`", format!("{given:?}"))),
    }
}

/// How a file was read, for people: what was guessed may be wrong.
pub(super) fn read_as(options: &ReadOptions) -> Option<String> {
    let said = options.to_string();
    (!said.is_empty()).then(|| format!("read as {said}"))
}

/// How another part was read, if otherwise than the training part.
pub(super) fn read_otherwise(name: &str, options: &ReadOptions, train: &ReadOptions) -> Option<String> {
    let (own, of_train) = (read_as(options)?, read_as(train)?);
    (own != of_train).then(|| format!("{name}: {own}"))
}

/// That there is something to learn from, and something else to measure on.
pub(super) fn both<N: AsRef<str>>(parts: impl IntoIterator<Item = (N, usize)>) -> Result<()> {
    let Some((name, _)) = parts.into_iter().find(|(_, size)| *size == 0) else { return Ok(()) };
    let expected = "texts to learn from and others to measure on: more of them (equal ones stay together), or `data.dev`";
    Err(Error::new(format!("texts of `{}`", name.as_ref()), expected, "none"))
}

/// One text in so many is held out.
pub(super) fn one_in(config: &Config) -> u64 {
    (1.0 / config.data.hold_out).round() as u64
}

pub(super) fn tokenizer(config: &Config) -> Result<Tokenizer> {
    match &config.text.tokenizer {
        Some(path) => Tokenizer::hugging_face(path),
        None => Ok(of_kind(config, config.text.tokens.unwrap_or(Tokens::Pieces))),
    }
}

/// The tokenizer of the text that is written.
pub(super) fn target_tokenizer(config: &Config) -> Result<Tokenizer> {
    match config.text.target_tokens {
        Some(tokens) => Ok(of_kind(config, tokens)),
        None => tokenizer(config),
    }
}

fn of_kind(config: &Config, tokens: Tokens) -> Tokenizer {
    let cut = match tokens {
        Tokens::Whitespace => Tokenizer::whitespace(),
        Tokens::Words => Tokenizer::words(),
        Tokens::Characters => Tokenizer::characters(),
        Tokens::Pieces => Tokenizer::pieces(),
    };
    if config.text.lowercase { cut.lowercase() } else { cut }
}

/// How a loader of texts makes batches of a training.
pub(super) fn batches(loader: Loader, config: &Config) -> Loader {
    loader.batching(Batching::Sequences(config.training.batch))
}
