//! Words and tags in columns, as in the CoNLL shared tasks and in CoNLL-U: which columns there are, and their sentences.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::TextFile;
use super::lines::Reason;
use super::records::{OneLine, Parser, is_blank, shown, unbroken};
use crate::error::{Error, ErrorKind, Result};

/// What begins a line that says in CoNLL-2003 that a document begins.
const DOCUMENT: &str = "-DOCSTART-";

/// The columns of CoNLL-U.
const UNIVERSAL: [&str; 10] =
    ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"];

/// How many lines of a file decide what its columns are.
const LOOKED_AT: usize = 1000;

/// What separates columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Separator {
    /// Any number of spaces and tabs.
    Spaces,
    /// One tab.
    Tabs,
    /// Any number of tabs, by which columns are aligned.
    TabRuns,
}

/// The columns of a file of words and tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Columns {
    separator: Separator,
    count: usize,
    /// Counted from 0.
    words: usize,
    tags: usize,
    /// Whether the first column has the numbers of the words in their sentence.
    numbered: bool,
    /// Whether there are comments before sentences.
    comments: bool,
    /// Whether it is CoNLL-U.
    universal: bool,
}

/// A sentence, and where it is.
pub(super) struct Sentence {
    /// The line of its first word.
    pub(super) line: u64,
    /// Whether each word is a line after the one before it.
    pub(super) dense: bool,
    pub(super) words: Vec<String>,
    pub(super) tags: Vec<String>,
}

/// The cells of a line. Other white space than the separator is part of a cell.
fn cells(line: &str, separator: Separator) -> impl Iterator<Item = &str> {
    // Nothing is behind the last column.
    let line = line.trim_start_matches(['\r', ' ']).trim_end_matches(is_blank);
    let separates = move |c| if separator == Separator::Spaces { is_blank(c) } else { c == '\t' };
    let cells = line.split(separates).map(|cell| cell.trim_matches(' '));
    // No tab before the first column aligns it: its word is missing.
    let stays = move |at| separator == Separator::Tabs || (separator == Separator::TabRuns && at == 0);
    cells.enumerate().filter(move |(at, cell)| stays(*at) || !cell.is_empty()).map(|(_, cell)| cell)
}

/// Whether a tag looks like one of a scheme, as `O` or `B-kind`.
fn is_of_scheme(tag: &str) -> bool {
    let letter = |(letter, kind): (&str, &str)| matches!(letter, "B" | "I" | "E" | "S") && !kind.is_empty();
    tag == "O" || tag.split_once('-').is_some_and(letter)
}

/// Whether a line looks like a comment.
fn is_comment(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// The number of columns that most lines have, of equally frequent ones the first, and how many lines have it. At least two columns.
fn most(words: &[&String], separator: Separator) -> (usize, usize) {
    let (mut counts, mut best) = (HashMap::new(), (2, 0));
    for line in words {
        *counts.entry(cells(line, separator).count()).or_insert(0) += 1;
    }
    for line in words {
        let count = cells(line, separator).count();
        let lines = counts.get(&count).copied().unwrap_or(0);
        if lines > best.1 {
            best = (count, lines);
        }
    }
    best
}

/// Whether runs of tabs align columns: some cells are empty, and nearly all lines have the same number of others. Where all lines
/// have the same number of tabs, empty cells in other columns than in the first line are missing values.
fn are_aligned(words: &[&String]) -> bool {
    let empty = |line: &&String| -> Vec<bool> { cells(line, Separator::Tabs).map(str::is_empty).collect() };
    let rows: Vec<Vec<bool>> = words.iter().map(empty).collect();
    let Some(first) = rows.iter().find(|row| row.contains(&true)) else { return false };
    let missing = rows.iter().all(|row| row.len() == first.len()) && rows.iter().any(|row| row != first);
    let (count, lines) = most(words, Separator::TabRuns);
    !missing && count > 1 && lines * 10 >= words.len() * 9
}

/// The first lines of a file.
struct First {
    lines: Vec<String>,
    separator: Separator,
    count: usize,
}

impl First {
    fn of(file: &TextFile) -> Result<Self> {
        let lines = file.first_records(OneLine(|line: &str| Ok(Some(line.to_owned()))))?;
        let lines: Vec<String> = lines.map_while(Result::ok).take(LOOKED_AT).collect();
        let is_word = |line: &&String| !line.trim().is_empty() && !line.starts_with(DOCUMENT);
        let mut words: Vec<&String> =
            lines.iter().filter(is_word).filter(|line| !line.starts_with('#')).collect();
        if words.is_empty() {
            words = lines.iter().filter(is_word).collect();
        }
        let with_tabs = words.iter().filter(|line| line.contains('\t')).count();
        let separator = match with_tabs * 2 > words.len() {
            true if are_aligned(&words) => Separator::TabRuns,
            true => Separator::Tabs,
            false => Separator::Spaces,
        };
        Ok(Self { separator, count: most(&words, separator).0, lines })
    }

    fn count_of(&self, line: &str) -> usize {
        cells(line, self.separator).count()
    }

    /// Runs of lines that have all columns: about the sentences.
    fn sentences(&self) -> impl Iterator<Item = Vec<Vec<&str>>> {
        let fits = |line: &String| !line.starts_with('#') && self.count_of(line) == self.count;
        self.lines
            .split(move |line| !fits(line))
            .filter(|lines| !lines.is_empty())
            .map(|lines| lines.iter().map(|line| cells(line, self.separator).collect()).collect())
    }

    /// Whether the first column numbers the words of each sentence, from 0 or 1 on.
    fn is_numbered(&self) -> bool {
        let number = |row: &Vec<&str>| row.first().and_then(|cell| cell.parse::<usize>().ok());
        let start = self.sentences().next().and_then(|rows| rows.first().and_then(number));
        let Some(start @ (0 | 1)) = start else { return false };
        let is = |rows: Vec<Vec<&str>>| rows.iter().zip(start..).all(|(row, at)| number(row) == Some(at));
        self.count > 2 && self.sentences().any(|rows| rows.len() > 1) && self.sentences().all(is)
    }

    /// Whether there are comments before sentences: lines with another number of columns.
    fn has_comments(&self) -> bool {
        let mut before = "";
        self.lines.iter().any(|line| {
            let starts = before.trim().is_empty() || is_comment(before);
            before = line;
            starts && is_comment(line) && self.count_of(line) != self.count
        })
    }

    /// The first of the last columns that all look like tags of a scheme; else the last one.
    fn first_tags(&self) -> usize {
        let is = |at: &usize| {
            let mut rows = self.sentences().flatten();
            rows.all(|row| row.get(*at).is_some_and(|tag| is_of_scheme(tag)))
        };
        (2..self.count).rev().take_while(is).last().unwrap_or(self.count.saturating_sub(1))
    }
}

impl Columns {
    /// The columns of a file: words and tags where they are said to be, by number from 1 on or by a name of CoNLL-U; other parts of a data
    /// set are read as the first was.
    pub(super) fn of(
        file: &TextFile,
        words: Option<&str>,
        tags: Option<&str>,
        like: Option<&Self>,
    ) -> Result<Self> {
        let first = First::of(file)?;
        let wrong = |expected: String, got: String| {
            Err(Error::of(ErrorKind::Format, format!("columns of file `{}`", file.name()), expected, got))
        };
        let name = file.name().to_lowercase();
        let named = name.strip_suffix(".gz").unwrap_or(&name).ends_with(".conllu");
        let numbered = first.is_numbered();
        let commented = first.lines.iter().find(|line| !line.trim().is_empty());
        let commented = commented.is_some_and(|line| line.starts_with('#'));
        let full = first.separator != Separator::Spaces && first.count == UNIVERSAL.len();
        let universal = named || (full && (numbered || commented));
        let mut found = Self {
            separator: if universal { Separator::Tabs } else { first.separator },
            count: if universal { UNIVERSAL.len() } else { first.count },
            words: usize::from(numbered || universal),
            tags: match (universal, numbered) {
                (true, _) => 3,
                (_, true) => first.first_tags(),
                _ => first.count.saturating_sub(1),
            },
            numbered,
            comments: first.has_comments(),
            universal,
        };
        if found.count < 2 {
            return wrong("at least two, a word and its tag".into(), "one in its first lines".into());
        }
        if let Some(like) = like {
            if like.count != found.count {
                let expected = format!("{}, as in the file that was read before", like.count);
                return wrong(expected, found.count.to_string());
            }
            let (separator, comments) = (found.separator, found.comments || like.comments);
            return Ok(Self { separator, comments, ..*like });
        }
        let at = |what: &str, given: &str| {
            let by_name = || UNIVERSAL.iter().position(|name| universal && name.eq_ignore_ascii_case(given));
            let number = given.parse().ok().filter(|number| (1..=found.count).contains(number));
            number.map(|number: usize| number - 1).or_else(by_name).ok_or_else(|| {
                let what = format!("column of the {what} in file `{}`", file.name());
                let names = if universal {
                    format!(", or one of `{}`", UNIVERSAL.join("`, `"))
                } else {
                    String::new()
                };
                let expected = format!("a number from 1 to {}{names}", found.count);
                Error::of(ErrorKind::Format, what, expected, format!("`{given}`"))
            })
        };
        let words = words.map(|given| at("words", given)).transpose()?;
        let tags = tags.map(|given| at("tags", given)).transpose()?;
        (found.words, found.tags) = (words.unwrap_or(found.words), tags.unwrap_or(found.tags));
        Ok(found)
    }

    /// Whether the words and the tags are in one of the columns.
    pub(super) fn are_whole(self) -> bool {
        self.words < self.count && self.tags < self.count
    }

    /// The sentences of a file, in its order.
    pub(super) fn sentences(self, file: &TextFile) -> Result<Vec<Sentence>> {
        let block = Block { columns: self, number: 0, spoiled: false, sentence: Sentence::begun(0) };
        file.records(block)?.read_all()
    }

    /// Whether a line says that a document begins, and is no word.
    fn is_mark(&self, line: &str) -> bool {
        let word = cells(line, self.separator).nth(self.words);
        line.starts_with(DOCUMENT) || word.is_some_and(|word| word == DOCUMENT)
    }

    /// Whether a line is a comment, `begins` if no word of its sentence came before it. A line with all columns is the word `#`,
    /// but between spaces only if its tag is one of a scheme: a comment may have as many words.
    fn skips(&self, line: &str, begins: bool) -> Result<bool, Reason> {
        if self.numbered || self.universal {
            return Ok(line.starts_with('#'));
        }
        if !(begins && is_comment(line) && self.comments) {
            return Ok(false);
        }
        if cells(line, self.separator).count() != self.count {
            return Ok(true);
        }
        let tag = cells(line, self.separator).nth(self.tags).unwrap_or_default();
        if self.separator != Separator::Spaces || is_of_scheme(tag) {
            return Ok(false);
        }
        let expected = format!(
            "a comment or a word, which a line of `#` and {} columns between spaces does not tell apart: use tabs, or remove \
             the comment",
            self.count
        );
        Err(Reason { expected, got: shown(line) })
    }
}

/// As in `CoNLL-U, words in column 2 (form), tags in column 4 (upos), 10 columns between tabs`.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.universal {
            f.write_str("CoNLL-U, ")?;
        }
        let column = |at: usize| {
            let name = UNIVERSAL.get(at).filter(|_| self.universal);
            format!("column {}{}", at + 1, name.map_or_else(String::new, |name| format!(" ({name})")))
        };
        let (words, tags) = (column(self.words), column(self.tags));
        let separator = match self.separator {
            Separator::Spaces => "spaces",
            Separator::Tabs => "tabs",
            Separator::TabRuns => "runs of tabs",
        };
        write!(f, "words in {words}, tags in {tags}, {} columns between {separator}", self.count)?;
        if self.numbered && !self.universal {
            f.write_str(", of which the first numbers the words")?;
        }
        if self.comments && !self.universal {
            f.write_str(", lines with `#` are comments")?;
        }
        Ok(())
    }
}

impl Sentence {
    fn begun(line: u64) -> Self {
        Self { line, dense: true, words: Vec::new(), tags: Vec::new() }
    }
}

/// The lines up to a blank one, or up to the mark of a document, are a sentence. A malformed line spoils all of it.
struct Block {
    columns: Columns,
    /// Of the line that is parsed.
    number: u64,
    spoiled: bool,
    sentence: Sentence,
}

impl Block {
    fn word(&mut self, line: &str) -> Result<(), Reason> {
        let (columns, begins) = (self.columns, self.sentence.words.is_empty());
        if columns.skips(line, begins)? {
            self.sentence.dense &= begins;
            return Ok(());
        }
        unbroken(line)?;
        let (mut count, mut empty, mut first, mut word, mut tag) = (0, false, "", "", "");
        for (at, cell) in cells(line, columns.separator).enumerate() {
            (count, empty) = (at + 1, empty || cell.is_empty());
            if at == 0 {
                first = cell;
            }
            if at == columns.words {
                word = cell;
            }
            if at == columns.tags {
                tag = cell;
            }
        }
        let between = match columns.separator {
            Separator::Spaces => "",
            Separator::Tabs => " between tabs",
            Separator::TabRuns => " between runs of tabs",
        };
        let of = if columns.universal { ", as CoNLL-U has" } else { "" };
        if count != columns.count || empty {
            let got = if empty { "an empty one in".into() } else { format!("{count} in") };
            let expected = format!("{} columns{between}{of}", columns.count);
            return Err(Reason { expected, got: format!("{got} {}", shown(line)) });
        }
        if columns.universal && !first.bytes().all(|byte| byte.is_ascii_digit()) {
            // A range of words, as `3-4`, or an empty node, as `5.1`.
            if first.starts_with(|c: char| c.is_ascii_digit()) && first.contains(['-', '.']) {
                self.sentence.dense &= begins;
                return Ok(());
            }
            let expected = "the number of the word in column 1, as CoNLL-U has".to_owned();
            return Err(Reason { expected, got: format!("{} in {}", shown(first), shown(line)) });
        }
        if begins {
            self.sentence.line = self.number;
        }
        self.sentence.words.push(word.to_owned());
        self.sentence.tags.push(tag.to_owned());
        Ok(())
    }
}

impl Parser<Sentence> for Block {
    fn at(&mut self, line: u64) {
        self.number = line;
    }

    fn line(&mut self, line: &str) -> Result<Option<Sentence>, Reason> {
        let is_mark = || line.contains(DOCUMENT) && self.columns.is_mark(line);
        if line.trim().is_empty() || is_mark() {
            return self.end();
        }
        if self.spoiled { Ok(None) } else { self.word(line).map(|()| None) }
    }

    fn spoil(&mut self) -> bool {
        self.sentence = Sentence::begun(0);
        !std::mem::replace(&mut self.spoiled, true)
    }

    fn end(&mut self) -> Result<Option<Sentence>, Reason> {
        self.spoiled = false;
        let sentence = std::mem::replace(&mut self.sentence, Sentence::begun(0));
        Ok(Some(sentence).filter(|sentence| !sentence.words.is_empty()))
    }
}

#[cfg(test)]
mod tests;
