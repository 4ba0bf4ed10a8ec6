//! Reads the words of sentences for prediction from files with columns; tags in such a file are not read.

use unpadded::Result;

use super::first::{ColumnSettings, First};
use super::line::{Separator, cells, is_between};
use super::{Block, Columns, Sentence};
use crate::TextFile;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{Parser, is_blank, shown};

/// The words of a sentence as a text with one word per line, and, for each word, its line number in the file.
#[derive(Debug, Default)]
pub(crate) struct SentenceWords {
    pub(crate) text: String,
    pub(crate) words: Vec<u64>,
    /// In the first sentence of a file with a header, the line number of the header; else `None`.
    pub(crate) header: Option<u64>,
}

/// A parser of the words of sentences, with the line number of each word.
struct Marked(Block);

impl Marked {
    fn asked(&mut self, sentence: Option<Sentence>) -> Result<Option<SentenceWords>, Reason> {
        let Some(Sentence { words, lines, .. }) = sentence else { return Ok(None) };
        let header = self.0.top.take();
        Ok(Some(SentenceWords { text: joined(&words)?, words: lines, header }))
    }
}

/// Joins words into a text with one word per line. Models whose words may contain spaces take this input format.
pub(crate) fn joined(words: &[String]) -> Result<String, Reason> {
    match words.iter().find(|word| word.trim().is_empty() || word.contains(['\n', '\r'])) {
        Some(word) => Err(Reason::of("words of one line each", shown(word))),
        None => Ok(words.iter().flat_map(|word| [word, "\n"]).collect()),
    }
}

impl Parser<SentenceWords> for Marked {
    fn line(&mut self, number: u64, line: &str) -> Result<Option<SentenceWords>, Reason> {
        let found = self.0.line(number, line)?;
        self.asked(found)
    }

    fn spoil(&mut self) -> bool {
        self.0.spoil()
    }

    fn end(&mut self) -> Result<Option<SentenceWords>, Reason> {
        let found = self.0.end()?;
        self.asked(found)
    }
}

/// The facts about a file of words that are known before the file is read.
#[derive(Clone, Copy)]
pub(crate) struct KnownColumns<'a> {
    /// The columns of the training data or of an earlier file; `None` if there is no earlier file.
    pub(crate) like: Option<&'a Columns>,
    /// The name or the number that the user set for the column of the words; `None` if the user set neither.
    pub(crate) words: Option<&'a str>,
    /// Whether a setting or the file name shows that the file has columns.
    pub(crate) columns: bool,
}

impl Columns {
    /// Detects the columns of a file of words, as in `like` if possible; `None` for a file with a text per line.
    pub(crate) fn of_words(file: &TextFile, known: KnownColumns<'_>) -> Result<Option<Self>> {
        let KnownColumns { like, words, columns } = known;
        let names = like.map_or(&[][..], Self::header_names);
        let first = First::of(file, ColumnSettings { words, tags: None, header: None, names })?;
        /// Lines with more columns are texts; each of the columns would be looked for in all lines.
        const MOST_COLUMNS: usize = 1000;
        let are_columns = || first.count <= MOST_COLUMNS && first.are_columns(like.map(|like| like.count));
        if !(columns || first.header.is_some() || are_columns()) {
            return Ok(None);
        }
        let alike = like.filter(|_| words.is_none());
        let alike = alike.and_then(|like| Self::of(file, None, None, None, Some(like)).ok());
        let found = match alike {
            Some(alike) => alike,
            None if first.count > 1 => {
                // The names of the earlier file's columns are looked up in the header of this file.
                let named = |at: fn(&Self) -> usize| {
                    let name = like.and_then(|like| names.get(at(like)));
                    name.filter(|name| first.header.iter().flatten().any(|own| own == *name))
                        .map(String::as_str)
                };
                let words = words.or_else(|| named(|like| like.words));
                let tags = named(|like| like.tags).filter(|tags| words != Some(tags));
                // Without a column of tags, the detection fails; the last column is then tried as the tag column.
                Self::of(file, words, tags, None, None)
                    .or_else(|_| Self::of(file, words, Some(&first.count.to_string()), None, None))?
            }
            None => Self::alone(first.header.clone()),
        };
        if first.has_numbers(found.words) {
            let what = format!("words in column {} of file `{}`", found.words + 1, file.name());
            let set = "set `tokens` (`data.text`) to the number of the word column, counted from 1";
            return Err(wrong_format(what, "words", "only numbers").noted(set));
        }
        Ok(Some(Self { brackets: false, ..found }))
    }

    /// Returns whether a file has a header with the names of words and of tags, or blank lines between sentences.
    pub(crate) fn are_sentences(file: &TextFile, known: KnownColumns<'_>) -> Result<bool> {
        let names = known.like.map_or(&[][..], Self::header_names);
        let first = First::of(file, ColumnSettings { words: known.words, tags: None, header: None, names })?;
        Ok(first.header.is_some() || first.has_blocks())
    }

    fn alone(header: Option<Vec<String>>) -> Self {
        let (header, names) = (header.is_some(), header.unwrap_or_default());
        Self { separator: Separator::Tabs, count: 1, header, names, ..Self::default() }
    }

    pub(crate) fn asked(&self) -> Box<dyn Parser<SentenceWords>> {
        Box::new(Marked(Block::new(self)))
    }

    /// Appends `line` to `to`, with the answer `cell` in a new last column. In CoNLL-U, which has fixed columns, the answer
    /// replaces the `_` in the tag column or, if there is a tag, becomes the attribute `tags=…` in the last column (MISC).
    pub(crate) fn with(&self, line: &str, cell: &str, to: &mut String) {
        if self.universal {
            let cells: Vec<&str> = line.trim_end_matches(is_blank).split('\t').collect();
            let is_given = cells.get(self.tags).is_some_and(|own| *own != "_");
            let last = cells.len().saturating_sub(1);
            for (at, own) in cells.iter().enumerate() {
                if at > 0 {
                    to.push('\t');
                }
                match is_given {
                    false if at == self.tags => to.push_str(cell),
                    true if at == last && cell != "_" => {
                        let cell = cell.replace('|', "/");
                        match *own {
                            "_" => to.push_str(&format!("tags={cell}")),
                            own => to.push_str(&format!("{own}|tags={cell}")),
                        }
                    }
                    _ => to.push_str(own),
                }
            }
            return;
        }
        to.push_str(line.trim_end_matches(is_blank));
        to.push(if self.separator == Separator::Spaces { ' ' } else { '\t' });
        to.push_str(cell);
    }

    /// Returns whether a comment may be added before a sentence.
    pub(crate) fn has_comments(&self) -> bool {
        self.universal || self.comments
    }

    pub(crate) fn is_range(&self, line: &str) -> bool {
        self.has_ids() && cells(line, self.separator).next().is_some_and(is_between)
    }

    pub(crate) fn has_all(&self, line: &str) -> bool {
        !line.starts_with('#') && cells(line, self.separator).count() == self.count
    }

    /// Returns a note for the user on the place of the answers in CoNLL-U; `None` for other formats.
    pub(crate) fn answered(&self) -> Option<String> {
        let column = self.tags + 1;
        self.universal.then(|| {
            format!("tags in column {column} where that is `_`, else behind the last column as `tags=…`")
        })
    }
}
