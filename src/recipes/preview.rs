//! The first records of a data set as they are understood, before anything is built.

use super::config::{Config, Task};
use super::prepared::{Paths, options, read_as};
use super::rows;
use crate::data::{Labelled, LabelledFiles, LabelledRow, Pair, Pairs, PlainText, TaggedText, TaggedTexts};
use crate::error::{AtCaller, Error, Result};

/// How a data set is read, and its first records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// What was detected: the format, the columns, whether a line is a header, and why.
    pub said: Option<String>,
    /// The same as an object of JSON, by [`ReadOptions::to_json`](crate::data::ReadOptions::to_json); none of rows of features.
    pub how: Option<String>,
    /// The first records, each in a line.
    pub records: Vec<String>,
}

/// How many records are shown.
const SHOWN: usize = 3;

/// Reads the first records of the training data, however few there are.
///
/// # Errors
/// If the data have no path, cannot be read, or are not of the config's task.
#[track_caller]
pub fn preview(config: &Config) -> Result<Preview> {
    of(config).at_caller()
}

/// A text in quotation marks, and not too long.
fn cut(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

fn of(config: &Config) -> Result<Preview> {
    let paths = Paths::of(config)?;
    let Some(path) = paths.train.clone() else {
        return Err(Error::new("data.train", "a path", "none"));
    };
    let read = options(config)?;
    let (options, records) = match config.run.task {
        Task::Classify if rows::are_meant(config, &paths)? => {
            let rows = rows::open(config, &path)?;
            let first = rows.first_index().number();
            let row = |row: &LabelledRow| {
                let entries = row.indices.iter().zip(&row.values).take(8);
                let entries: Vec<String> =
                    entries.map(|(index, value)| format!("{}:{value}", index + first)).collect();
                format!("features {}, label {}", entries.join(" "), row.label)
            };
            let said = Some(format!("read as rows of features, whose indices count from {first}"));
            return Ok(Preview {
                said,
                how: None,
                records: rows.rows().iter().take(SHOWN).map(row).collect(),
            });
        }
        Task::Classify => {
            let files = LabelledFiles::open_with([path], &read)?;
            let texts = files.texts().take(SHOWN).collect::<Result<Vec<_>>>()?;
            let line = |of: &Labelled| format!("text {}, label {}", cut(&of.text), cut(&of.label));
            (files.read_as().clone(), texts.iter().map(line).collect())
        }
        Task::Translate => {
            let pairs = Pairs::open_with([path], &read)?;
            let line = |of: &Pair| format!("source {}, target {}", cut(&of.source), cut(&of.target));
            (pairs.read_as().clone(), pairs.pairs().iter().take(SHOWN).map(line).collect())
        }
        Task::Tag => {
            let texts = TaggedTexts::open_with([path], &read)?;
            let line = |of: &TaggedText| {
                let words = of.words.iter().zip(&of.tags).map(|(word, tag)| format!("{word}/{tag}"));
                let label = of.label.as_ref().map(|label| format!(", label {}", cut(label)));
                let words: Vec<String> = words.collect();
                format!("words/tags {}{}", cut(&words.join(" ")), label.unwrap_or_default())
            };
            (texts.read_as().clone(), texts.texts().iter().take(SHOWN).map(line).collect())
        }
        Task::Lm => {
            let text = PlainText::open_with([path], &read)?;
            let lines = text.text().lines().filter(|line| !line.trim().is_empty());
            (text.read_as().clone(), lines.take(SHOWN).map(cut).collect())
        }
    };
    Ok(Preview { said: read_as(&options), how: Some(options.to_json()), records })
}
