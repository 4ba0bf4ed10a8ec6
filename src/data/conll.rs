//! Words and tags in columns, as in the CoNLL shared tasks and in CoNLL-U: which columns there are, and their sentences.

use std::collections::HashMap;
use std::fmt;

use super::TextFile;
use super::lines::Reason;
use super::records::{Parser, shown, unbroken};
use crate::error::{Error, ErrorKind, Result};

/// What begins a line that says in CoNLL-2003 that a document begins.
const DOCUMENT: &str = "-DOCSTART-";

/// The columns of CoNLL-U.
const UNIVERSAL: [&str; 10] =
    ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"];

/// How many lines of a file decide what its columns are.
const LOOKED_AT: usize = 1000;

/// The columns of a file of words and tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// Whether tabs alone separate them; else spaces do, too.
    tabs: bool,
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

/// The cells of a line: between tabs, or between spaces and tabs. Other white space is part of a cell.
fn cells(line: &str, tabs: bool) -> impl Iterator<Item = &str> {
    let line = line.trim_matches(['\r', ' ']);
    // Nothing is behind the last column.
    let line = if tabs { line.trim_end_matches(['\r', ' ', '\t']) } else { line };
    let separator = move |c: char| c == '\t' || (!tabs && c == ' ');
    line.split(separator).map(|cell| cell.trim_matches(' ')).filter(move |cell| tabs || !cell.is_empty())
}

/// The words of a line, between spaces and tabs.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    cells(line, false)
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

/// The first lines of a file.
struct Head {
    lines: Vec<String>,
    tabs: bool,
    count: usize,
}

impl Head {
    fn of(file: &TextFile) -> Result<Self> {
        let lines: Vec<String> = file.lines()?.map_while(Result::ok).take(LOOKED_AT).collect();
        let is_word = |line: &&String| !line.trim().is_empty() && !line.starts_with(DOCUMENT);
        let mut words: Vec<&String> =
            lines.iter().filter(is_word).filter(|line| !line.starts_with('#')).collect();
        if words.is_empty() {
            words = lines.iter().filter(is_word).collect();
        }
        let with_tabs = words.iter().filter(|line| line.contains('\t')).count();
        let tabs = with_tabs * 2 > words.len();
        // The number that most lines have, of equally frequent ones the first.
        let (mut counts, mut best) = (HashMap::new(), (0, 2));
        for line in &words {
            *counts.entry(cells(line, tabs).count()).or_insert(0) += 1;
        }
        for line in &words {
            let count = cells(line, tabs).count();
            let lines = counts.get(&count).copied().unwrap_or(0);
            if lines > best.0 {
                best = (lines, count);
            }
        }
        Ok(Self { tabs, count: best.1, lines })
    }

    /// Runs of lines that have all columns: about the sentences.
    fn sentences(&self) -> impl Iterator<Item = Vec<Vec<&str>>> {
        let fits = |line: &String| !line.starts_with('#') && cells(line, self.tabs).count() == self.count;
        self.lines
            .split(move |line| !fits(line))
            .filter(|lines| !lines.is_empty())
            .map(|lines| lines.iter().map(|line| cells(line, self.tabs).collect()).collect())
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
            starts && is_comment(line) && cells(line, self.tabs).count() != self.count
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
        let head = Head::of(file)?;
        let wrong = |expected: String, got: String| {
            Err(Error::of(ErrorKind::Format, format!("columns of file `{}`", file.name()), expected, got))
        };
        let name = file.name().to_lowercase();
        let named = name.strip_suffix(".gz").unwrap_or(&name).ends_with(".conllu");
        let numbered = head.is_numbered();
        let commented = head.lines.iter().find(|line| !line.trim().is_empty());
        let commented = commented.is_some_and(|line| line.starts_with('#'));
        let full = head.tabs && head.count == UNIVERSAL.len();
        let universal = named || (full && (numbered || commented));
        let mut found = Self {
            tabs: head.tabs || universal,
            count: if universal { UNIVERSAL.len() } else { head.count },
            words: usize::from(numbered || universal),
            tags: match (universal, numbered) {
                (true, _) => 3,
                (_, true) => head.first_tags(),
                _ => head.count.saturating_sub(1),
            },
            numbered,
            comments: head.has_comments(),
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
            let (tabs, comments) = (found.tabs, found.comments || like.comments);
            return Ok(Self { tabs, comments, ..*like });
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

    /// The sentences of a file, in its order.
    pub(super) fn sentences(self, file: &TextFile) -> Result<Vec<Sentence>> {
        let block = Block { columns: self, number: 0, spoiled: false, sentence: Sentence::begun(0) };
        file.records(block)?.read_all()
    }

    /// Whether a line says that a document begins, and is no word.
    fn is_mark(&self, line: &str) -> bool {
        let word = cells(line, self.tabs).nth(self.words);
        line.starts_with(DOCUMENT) || word.is_some_and(|word| word == DOCUMENT)
    }

    /// Whether a line is a comment, `begins` if no word of its sentence came before it.
    fn skips(&self, line: &str, begins: bool) -> bool {
        if self.numbered || self.universal {
            return line.starts_with('#');
        }
        let fits = || cells(line, self.tabs).count() == self.count;
        // A word `#` with its tag is a word, unless it cannot be told from a comment of as many words.
        begins && is_comment(line) && self.comments && (!self.tabs || !fits())
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
        let separator = if self.tabs { "tabs" } else { "spaces" };
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
        if columns.skips(line, begins) {
            self.sentence.dense &= begins;
            return Ok(());
        }
        unbroken(line)?;
        let (mut count, mut empty, mut first, mut word, mut tag) = (0, false, "", "", "");
        for (at, cell) in cells(line, columns.tabs).enumerate() {
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
        let between = if columns.tabs { " between tabs" } else { "" };
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
