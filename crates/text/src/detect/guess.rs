//! Detects the format of a file by its name, else by its first lines.

use std::io::Read;

use unpadded::{Error, ErrorKind, Result};

use super::options::{FileFormat, ReadOptions};
use crate::TextFile;
use crate::format::{fasttext, json, trees};
use crate::record::rows;
use crate::source::paths::{by_ending, extension};
use crate::source::records::{OneLine, Stream};

/// The kind of records that a caller wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Labelled,
    Pairs,
    Tagged,
    /// Texts or sentences whose words get tags: tables of texts, words with or without tags, or plain text.
    ToTag,
    Plain,
}

impl Task {
    /// The file formats that may have records of this kind.
    fn formats(self) -> &'static [FileFormat] {
        use FileFormat::{Columns, Csv, Dictionary, FastText, JsonLines, Parquet, Plain, Trees, Tsv};
        match self {
            Self::Labelled => &[Tsv, Csv, JsonLines, Parquet, Trees, FastText],
            Self::Pairs => &[Tsv, Csv, JsonLines, Parquet, Dictionary],
            Self::Tagged => &[Columns, JsonLines, Parquet],
            Self::ToTag => &[Columns, Plain, Tsv, Csv, JsonLines, Parquet],
            Self::Plain => &[Plain, Tsv, Csv, JsonLines, Parquet],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Labelled => "labelled texts",
            Self::Pairs => "pairs of texts",
            Self::Tagged => "tagged texts",
            Self::ToTag => "texts to tag",
            Self::Plain => "plain text",
        }
    }
}

/// The four bytes with which each Parquet file begins and ends.
pub(crate) const PARQUET: &[u8; 4] = b"PAR1";

/// A detected format, and the reason for the detection, which messages show. The reason is `None` if the user has set
/// the format.
#[derive(Debug, Clone)]
pub(crate) struct Guess {
    pub(crate) format: FileFormat,
    why: Option<String>,
}

impl Guess {
    /// Adds a note to an error: which format was detected, why, and how to override it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.why {
            Some(why) => error.noted(format!(
                "read as `{}`, since {why}; `format` (`data.format` in a config) overrides it",
                self.format
            )),
            None => error,
        }
    }

    /// Adds the note of [`Self::explain`] to each error among the records.
    pub(crate) fn explained<R: 'static>(&self, records: Stream<R>) -> Stream<R> {
        if self.why.is_none() {
            return records;
        }
        let guess = self.clone();
        Box::new(records.map(move |record| record.map_err(|e| guess.explain(e))))
    }
}

/// Returns the format of a file: the format in the options, else the detected format.
pub(crate) fn guess(file: &TextFile, options: &ReadOptions, task: Task) -> Result<Guess> {
    let guess = guessed(file, options, task)?;
    if guess.format == FileFormat::Parquet && cfg!(not(feature = "parquet")) {
        let what = format!("file `{}`, which is Parquet", file.name());
        let expected = "a build with the feature `parquet` (`--features parquet`)";
        return Err(Error::of(ErrorKind::Format, what, expected, "a build without this feature"));
    }
    Ok(guess)
}

fn guessed(file: &TextFile, options: &ReadOptions, task: Task) -> Result<Guess> {
    if let Some(format) = options.format {
        if task.formats().contains(&format) {
            return Ok(Guess { format, why: None });
        }
        let known: Vec<String> = task.formats().iter().map(|format| format!("`{format}`")).collect();
        let what = format!("format of file `{}`, to be read as {}", file.name(), task.name());
        return Err(Error::of(
            ErrorKind::Format,
            what,
            format!("one of {}", known.join(", ")),
            format!("`{format}`"),
        ));
    }
    let (name, mut bytes) = file.sample()?;
    let (name, mut first) = (name.to_lowercase(), [0; PARQUET.len()]);
    if bytes.read_exact(&mut first).is_ok() && first == *PARQUET {
        let why = Some("its first bytes are `PAR1`".to_owned());
        return Ok(Guess { format: FileFormat::Parquet, why });
    }
    if let Some(format) = by_name(&name, task) {
        let why = Some(format!("its name ends with `.{}`", extension(&name).unwrap_or_default()));
        return Ok(Guess { format, why });
    }
    if file.list().is_some() || (task != Task::Plain && json::is_whole(file)?) {
        return Ok(Guess {
            format: FileFormat::JsonLines,
            why: Some("it is a single JSON value".to_owned()),
        });
    }
    let (format, why) = by_lines(file, task)?;
    Ok(Guess { format, why: Some(why.to_owned()) })
}

/// Returns the options to read a later file of a data set. These are the options with the properties that were detected
/// in the first file. If the name of the later file shows another format, only the user's settings are used.
pub(crate) fn alike(options: &ReadOptions, file: &TextFile, task: Task) -> ReadOptions {
    let other = by_name(&file.name(), task).is_some_and(|own| options.format.is_some_and(|of| of != own));
    match &options.told {
        Some(told) if other && told.format.is_none() => told.told(),
        _ => options.clone(),
    }
}

/// Returns the format of a file by the extension of its name; `None` if the task cannot have this format, or the
/// extension is unknown.
fn by_name(name: &str, task: Task) -> Option<FileFormat> {
    by_ending(name).filter(|format| task.formats().contains(format))
}

fn by_lines(file: &TextFile, task: Task) -> Result<(FileFormat, &'static str)> {
    const LOOKED_AT: usize = 20;
    if task == Task::Plain {
        return Ok((FileFormat::Plain, "its name shows no other format"));
    }
    let line = |line: &str| Ok((!line.trim().is_empty()).then(|| line.to_owned()));
    let lines = file.first_records(OneLine(line))?.map_while(Result::ok);
    let lines: Vec<String> = lines.take(LOOKED_AT).collect();
    let all = |is: &dyn Fn(&str) -> bool| !lines.is_empty() && lines.iter().all(|line| is(line));
    if all(&|line| line.trim_start().starts_with('{')) {
        return Ok((FileFormat::JsonLines, "its lines begin with `{`"));
    }
    let is_list = |line: &str| serde_json::from_str::<Vec<serde::de::IgnoredAny>>(line).is_ok();
    if all(&is_list) {
        return Ok((FileFormat::JsonLines, "its lines are lists of JSON"));
    }
    rows::texts(file, task.name())?;
    // A file without records is not an error here: the reader of the records reports it.
    match task {
        Task::Tagged | Task::ToTag => Ok((FileFormat::Columns, "it is a file and not JSON")),
        Task::Labelled if all(&fasttext::labelled) => {
            Ok((FileFormat::FastText, "its lines begin with `__label__`"))
        }
        Task::Labelled if all(&|line| trees::tree(line, false).is_ok()) => {
            Ok((FileFormat::Trees, "each line is in brackets"))
        }
        Task::Pairs if all(&|line| line.starts_with(";;;") || (!line.contains('\t') && spoken(line))) => {
            Ok((FileFormat::Dictionary, "each line is a word with phonemes in capital letters"))
        }
        _ if lines.iter().any(|line| line.contains('\t')) => {
            Ok((FileFormat::Tsv, "there are tabs in its first lines"))
        }
        _ if [',', ';', '|'].iter().any(|&separator| all(&|line| line.contains(separator))) => Ok((
            FileFormat::Csv,
            "there is no tab, but a comma, a semicolon or a bar in each of its first lines",
        )),
        Task::Pairs if !lines.is_empty() => Err(Error::of(
            ErrorKind::Format,
            format!("file `{}`", file.name()),
            "two texts per line, with a tab between the texts",
            "lines without a tab: two files whose lines belong together are named by one path, the source first, as `train.{de,en}`",
        )),
        _ => Ok((FileFormat::Tsv, "its first lines fit no other format")),
    }
}

/// Returns whether a line looks like a word followed by phonemes in capital letters.
fn spoken(line: &str) -> bool {
    let said = line.split('#').next().unwrap_or_default();
    let mut phonemes = said.split_whitespace().skip(1).peekable();
    let is = |p: &str| {
        p.len() <= 4
            && p.starts_with(|c: char| c.is_ascii_uppercase())
            && p.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    phonemes.peek().is_some() && phonemes.all(is)
}
