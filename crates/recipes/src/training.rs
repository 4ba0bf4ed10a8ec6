//! The preparation of a training that all recipes share: data, tokenizers and read options from a config.

use std::path::PathBuf;

use super::byte_size::ByteSize;
use super::config::Config;
use super::evaluation::Evaluation;
use super::portions::{ClassCount, PortionFacts};
use super::sections::{BatchRule, Tokens};
pub(super) use super::sections::{CONFIG, TASK};
use super::started::Origin;
use unpadded::data::{Batching, Data, Loader, TagScheme, Tokenizer};
use unpadded::predict::Predictor;
use unpadded::train::Trainer;
use unpadded::{Error, ErrorKind, Printable, Result};
use unpadded_text::{
    DataPaths, MalformedLines, QuestionKind, Questions, ReadOptions, SkipReport, TextFile, path_of_text,
};

/// Everything that is needed to begin a training.
#[non_exhaustive]
pub struct Preparation {
    /// The trainer of the model, with its metrics, and with the vocabularies and notes that checkpoints will have.
    pub trainer: Trainer,
    /// The training data.
    pub train: Box<dyn Data>,
    /// The development data, which are evaluated after each epoch.
    pub dev: Box<dyn Data>,
    /// The path of the test data, which [`scores`](super::scores) expects as `data.test`; `None` without test data.
    pub test: Option<PathBuf>,
    /// The name of the training texts, for example their path.
    pub name: String,
    /// The name of the metric that decides which epoch is the best.
    pub metric: &'static str,
    /// The length of each training text in tokens; empty for a language model.
    pub lengths: Vec<usize>,
    /// The share of the held-out texts' tokens that are in the vocabulary; `None` for models without a vocabulary of
    /// tokens.
    pub coverage: Option<f64>,
    /// Texts of the development data, each with its right answer.
    pub held_out: HeldOutTexts,
    /// The labels and tags of the training data and of the held-out texts, each kind sorted by name. The list is empty for tasks
    /// whose answers are texts or numbers.
    pub classes: Vec<ClassCount>,
    /// Scores a trained model on all development data, as a test file is scored. `None` for models that write texts, since
    /// decoding is slow, and for texts that would take too much memory during the training.
    pub score_held_out: Option<HeldOutScorer>,
    /// Messages for the user about the data, one line each.
    pub messages: Vec<String>,
    /// The malformed records that `data.skip_bad` left out, of each part of the data that has such records.
    pub skipped: Vec<SkipReport>,
    pub(super) facts: PortionFacts,
}

/// A function that scores a trained model, by its predictor, on the held-out texts of its training.
pub type HeldOutScorer = Box<dyn FnOnce(&Predictor) -> Result<Evaluation> + Send>;

/// Test data for a model.
#[non_exhaustive]
pub struct TestData {
    /// The test data as batches for [`Predictor::evaluate`].
    pub data: Box<dyn Data>,
    /// Messages for the user about how the test file was read, one line each.
    pub messages: Vec<String>,
}

/// Held-out texts with their right answers, for reports.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct HeldOutTexts {
    /// The name of the held-out texts, for example the path of `data.dev`; empty for a language model.
    pub name: String,
    /// The first held-out texts: at most [`Self::MOST`] texts, with about 16 MiB of text at most.
    pub cases: Vec<Case>,
    /// The number of all held-out texts.
    pub count: usize,
    /// Whether the held-out texts are a part of the training file, and not the texts of `data.dev`.
    pub divided: bool,
    pub(super) bytes: usize,
}

impl HeldOutTexts {
    /// Maximum number of held-out texts that are kept in memory.
    pub const MOST: usize = 5_000;
    /// The number of bytes of text after which no further text is kept; the last kept text may exceed this number.
    const MOST_BYTES: usize = 1 << 24;

    pub(super) fn add(&mut self, case: impl FnOnce() -> Case) {
        self.count += 1;
        if self.cases.len() < Self::MOST && self.bytes < Self::MOST_BYTES {
            let case = case();
            self.bytes += case.text.len();
            self.cases.push(case);
        }
    }
}

/// A text with its right answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Case {
    /// The text; in a tagged text, the words are joined by spaces.
    pub text: String,
    /// The right answer to the text.
    pub truth: Truth,
}

/// The right answer to a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Truth {
    /// The label.
    Label(String),
    /// The right labels of a text, which may have none.
    Labels(Vec<String>),
    /// The number.
    Number(f64),
    /// The right tag of each word, and the label of the text (`None` for a text without a label).
    Tags(Vec<String>, Option<String>),
    /// The reference translations of a text.
    Texts(Vec<String>),
    /// No single right answer: for example, a language model may continue a text in many ways.
    Open,
}

/// The name of the note with the tokenizer of the texts that the model reads.
pub(super) const TOKENIZER_NOTE: &str = "tokens";
/// The name of the note with the tokenizer of the texts that the model writes.
pub(super) const TARGET_TOKENIZER_NOTE: &str = "target tokens";
/// The name of the note with the options with which the training files were read.
pub(super) const READ_AS: &str = "read as";

pub(super) struct Paths {
    pub(super) train: Option<PathBuf>,
    pub(super) dev: Option<PathBuf>,
    pub(super) test: Option<PathBuf>,
    /// The files in the folder of the data set that are neither the training, the development nor the test part.
    left_out: Vec<PathBuf>,
    pub(super) from: Origin,
    pub(super) memory: DataMemory,
    /// Whether the development texts are the training texts, because the texts are too few for a training and only checked.
    pub(super) too_few: bool,
}

/// The memory limit of a training in bytes; its methods return the shares of the limit that data may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataMemory(pub(super) u64);

impl DataMemory {
    /// Returns the memory limit that a config sets; if the config sets none, the data may take any amount of memory.
    pub(super) fn set_by(config: &Config) -> Self {
        Self(config.run.memory.map_or(u64::MAX, ByteSize::bytes))
    }

    fn share(self, divisor: u64) -> usize {
        usize::try_from(self.0 / divisor).unwrap_or(usize::MAX)
    }

    /// Returns the limit for the texts of a part, until the training begins, or for its rows, whose samples take as much again.
    pub(super) fn texts(self) -> usize {
        self.share(8)
    }

    /// Returns the maximum memory, in bytes, for the token ids of one part of the data.
    pub(super) fn ids(self) -> usize {
        self.share(4)
    }
}

impl Paths {
    pub(super) fn of(config: &Config) -> Result<Self> {
        let data = &config.data;
        let path = |setting: &Option<String>| setting.as_deref().map(path_of_text);
        let found = path(&data.train).map(DataPaths::find).transpose()?;
        let (train, own_dev, own_test, left_out) = match found {
            Some(DataPaths { train, dev, test, left_out, .. }) => (Some(train), dev, test, left_out),
            None => (None, None, None, Vec::new()),
        };
        let (dev, test) = (path(&data.dev).or(own_dev), path(&data.test).or(own_test));
        let (from, memory) = (Origin::default(), DataMemory::set_by(config));
        Ok(Self { train, dev, test, left_out, from, memory, too_few: false })
    }

    pub(super) fn left_out(&self) -> Option<String> {
        let names = self.left_out.iter().map(|path| path.file_name().unwrap_or(path.as_os_str()).display());
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let names = (!names.is_empty()).then(|| names.join(", "));
        names.map(|part| {
            format!("left out: {part}; `data.train`, `data.dev` and `data.test` name other parts")
        })
    }
}

pub(super) type Column = fn(ReadOptions, &str) -> ReadOptions;

pub(super) fn options(config: &Config, [text, label]: [Column; 2]) -> Result<ReadOptions> {
    let data = &config.data;
    let mut options = match data.skip_bad {
        true => ReadOptions::new().skip_malformed(data.skip_bad_share),
        // All malformed lines of a file are reported together, so that the user can correct the file at once.
        false => ReadOptions::new().malformed(MalformedLines::Collect),
    };
    options = data.format.iter().try_fold(options, |o, format| Ok::<_, Error>(o.format(format.parse()?)))?;
    options =
        data.separator.iter().try_fold(options, |o, noted| Ok::<_, Error>(o.separator(separator(noted)?)))?;
    if let Some(given) = &data.quote {
        options = match &**given {
            "none" => options.quotes(false),
            "double" => options.quotes(true),
            _ => return Err(Error::new("data.quote", "`none` or `double`", format!("{given:?}"))),
        };
    }
    options = data.skip_lines.into_iter().fold(options, ReadOptions::skip_lines);
    options = data.encoding.iter().try_fold(options, |o, name| Ok::<_, Error>(o.encoding(name.parse()?)))?;
    options = data.header.into_iter().fold(options, ReadOptions::header);
    options = data.text.iter().fold(options, |options, column| text(options, column));
    options = match &data.label[..] {
        [_, _, ..] => options.labels(&data.label),
        _ => data.label.iter().fold(options, |options, column| label(options, column)),
    };
    if let Some(name) = &data.scheme {
        let noted = |e: Error| e.noted("in `data.scheme`");
        options = options.scheme(TagScheme::from_name(name).map_err(noted)?);
    }
    if data.repair_tags {
        options = options.repair_tags();
    }
    Ok(if data.binary { options.binary() } else { options })
}

/// Returns the options for a file that a trained model reads: of the config or, by default, of the training files.
pub(super) fn options_of(config: &Config, columns: [Column; 2], known: &Predictor) -> Result<ReadOptions> {
    let set = options(config, columns)?;
    let Some(note) = known.note(READ_AS) else { return Ok(set) };
    set.or_note(note).map_err(|e| e.noted(format!("in note `{READ_AS}` of the checkpoint")))
}

/// Refuses a file of texts without tags, whose columns could be mistaken for words and tags.
pub(super) fn refuse_texts(path: &str, like: &ReadOptions) -> Result<()> {
    match Questions::open(path_of_text(path), like, QuestionKind::Words) {
        Ok(texts) if texts.are_to_tag() => {
            let expected = "words and their tags: one word per line, or fields with lists";
            let got = format!("texts without tags (read as {}); `predict` tags them", texts.read_as());
            Err(Error::of(ErrorKind::Format, format!("file `{path}`"), expected, got)
                .noted("`--set data.text=NAME` sets the field or column of the words"))
        }
        _ => Ok(()),
    }
}

pub(super) fn tokenizer_of(known: &Predictor, note: &str) -> Result<Tokenizer> {
    Tokenizer::from_name(known.note(note).unwrap_or_default())
}

fn separator(given: &str) -> Result<char> {
    let mut characters = given.chars();
    match (characters.next(), characters.next()) {
        _ if ["tab", "\\t"].contains(&given) => Ok('\t'),
        (Some(one), None) if one != '"' && one != '\n' => Ok(one),
        _ => Err(Error::new("data.separator", "one character, or `tab`", Printable(given).quoted(60))),
    }
}

pub(super) fn read_as(options: &ReadOptions) -> Option<String> {
    let message = options.to_string();
    (!message.is_empty()).then(|| format!("read as {message}"))
}

pub(super) fn skipped(name: &str, options: &ReadOptions) -> Option<String> {
    options.skipped().map(|report| format!("{name}: {report}"))
}

const TOO_FEW: &str = "too few records";

/// Marks an error about records that are too few for a training.
pub(super) fn too_few(error: Error) -> Error {
    error.caused_by(std::io::Error::other(TOO_FEW))
}

pub(super) fn is_too_few(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string() == TOO_FEW)
}

/// Returns the number n such that one of n texts is held out: 1 / `data.hold_out`, rounded.
pub(super) fn one_in(config: &Config) -> u64 {
    (1.0 / config.data.hold_out).round() as u64
}

pub(super) fn tokenizer(config: &Config) -> Result<Tokenizer> {
    match &config.text.tokenizer {
        Some(path) => {
            let json = TextFile::open(path_of_text(path)).and_then(|file| file.text());
            let json = json.map_err(|e| e.noted(format!("the file is the tokenizer `{path}`")))?;
            Tokenizer::from_json(path, &json)
        }
        None => Ok(of_kind(config, config.text.tokens.unwrap_or(Tokens::Pieces))),
    }
}

pub(super) fn target_tokenizer(config: &Config) -> Result<Tokenizer> {
    config.text.target_tokens.map_or_else(|| tokenizer(config), |tokens| Ok(of_kind(config, tokens)))
}

fn of_kind(config: &Config, tokens: Tokens) -> Tokenizer {
    let tokenizer = match tokens {
        Tokens::Whitespace => Tokenizer::whitespace(),
        Tokens::Words => Tokenizer::words(),
        Tokens::Characters => Tokenizer::characters(),
        Tokens::Pieces => Tokenizer::pieces(),
    };
    if config.text.lowercase { tokenizer.lowercase() } else { tokenizer }
}

pub(super) fn batches(loader: Loader, config: &Config) -> Loader {
    loader.batching(Batching::Sequences(config.training.batch))
}

pub(super) fn of_training(loader: Loader, config: &Config) -> Loader {
    let loader = loader.shuffle(config.run.seed).prefetch(4);
    match config.training.batching {
        BatchRule::Texts => loader,
        BatchRule::Memory => loader.batching(Batching::Memory),
    }
}
