//! Reads files with a word and its tags per line, as in the CoNLL shared tasks and in CoNLL-U. Detects the columns of
//! these files.

mod first;
mod line;
mod sentence_words;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::first::{ColumnSettings, First, plain};
use self::line::{
    Separator, bracket, cells, first_word, has_key, is_between, is_comment, is_document, is_mark, is_number,
    is_of_scheme,
};
pub(crate) use self::sentence_words::{KnownColumns, SentenceWords, joined};
use crate::TextFile;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{Parser, Records, shown, unbroken};
use unpadded::Result;

const UNIVERSAL: [&str; 10] =
    ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"];

/// The columns that all sentences of CoNLL-2012 have; further columns have the arguments of each predicate.
const ONTONOTES: [&str; 11] =
    ["document", "part", "number", "word", "pos", "parse", "lemma", "frameset", "sense", "speaker", "ne"];

/// The columns of a file of words and tags.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Columns {
    separator: Separator,
    count: usize,
    /// The column of the words, counted from 0.
    words: usize,
    tags: usize,
    /// Whether the first column numbers the words of each sentence.
    numbered: bool,
    /// Whether comment lines that begin with `#` may precede sentences.
    comments: bool,
    /// Whether the format is CoNLL-U or CoNLL-U Plus.
    universal: bool,
    /// Whether the format is CoNLL-2012, whose sentences may have different numbers of columns.
    #[serde(default)]
    ontonotes: bool,
    /// Whether each sentence begins with a comment line that has as many columns as the lines of words.
    #[serde(default)]
    titles: bool,
    /// The mark that begins a comment before a sentence, such as `;;`. `None` if the file has no such mark: a comment
    /// then begins with `#` and does not have as many columns as the lines of words.
    #[serde(default)]
    mark: Option<String>,
    #[serde(default)]
    header: bool,
    /// The names of the columns; empty if the names are unknown. They come from the header, from the
    /// `# global.columns` line of CoNLL-U Plus, or from the definition of CoNLL-2012.
    #[serde(default)]
    names: Vec<String>,
    /// Whether tags are bracketed as in CoNLL-2005, such as `(kind*`.
    #[serde(default)]
    brackets: bool,
    /// Notes for the user on decisions that the other fields do not show.
    #[serde(skip)]
    notes: Vec<&'static str>,
}

/// The words and the tags of a sentence, and the position of the sentence in the file.
#[derive(Default)]
pub(crate) struct Sentence {
    /// The line number of each word.
    pub(crate) lines: Vec<u64>,
    /// Whether other lines are between the words.
    pub(crate) has_gaps: bool,
    pub(crate) words: Vec<String>,
    pub(crate) tags: Vec<String>,
}

impl Columns {
    /// Detects the columns of a file. The user's settings are the columns `words` and `tags` (a number, counted from 1, or a
    /// name) and whether the first line is a `header`. A later file of a data set has the columns of the first file, `like`.
    pub(crate) fn of(
        file: &TextFile,
        words: Option<&str>,
        tags: Option<&str>,
        header: Option<bool>,
        like: Option<&Self>,
    ) -> Result<Self> {
        // With `like`, `words` and `tags` may name columns of the first file's header, which this file may lack.
        let names = like.map_or(&[][..], Self::header_names);
        let [own_words, own_tags] = [words, tags].map(|given| given.filter(|_| like.is_none()));
        let given = ColumnSettings { words: own_words, tags: own_tags, header, names };
        let first = First::of(file, given)?;
        let name = file.name().to_lowercase();
        let named = name.strip_suffix(".gz").unwrap_or(&name).ends_with(".conllu");
        let (numbered, ontonotes) = (first.is_numbered(), first.is_ontonotes(ONTONOTES.len()));
        let ten = first.is_universal(UNIVERSAL.len());
        let universal = named || ten || first.global.is_some();
        let names = match (&first.global, &first.header) {
            (Some(names), _) => names.clone(),
            (None, Some(names)) if !universal => names.clone(),
            _ if ontonotes => ONTONOTES.map(str::to_owned).to_vec(),
            _ => Vec::new(),
        };
        let mut found = Self {
            separator: match first.separator {
                Separator::Spaces if ten || !universal => Separator::Spaces,
                other if !universal => other,
                _ => Separator::Tabs,
            },
            count: match (universal, names.len()) {
                (true, 0) => UNIVERSAL.len(),
                (true, count) => count,
                _ if ontonotes => ONTONOTES.len(),
                _ => first.count,
            },
            words: usize::from(numbered || universal),
            tags: if numbered { first.first_tags() } else { first.count.saturating_sub(1) },
            numbered,
            universal,
            ontonotes,
            header: first.header.is_some(),
            names,
            ..Self::default()
        };
        let at = |name: &str| found.names().position(|own| own == name);
        let (form, tag) = match () {
            () if ontonotes => (at("word"), at("ne")),
            () if universal => (at("form"), at("upos").or(at("xpos"))),
            () => first.named(),
        };
        let (form, tag) = (form.unwrap_or(found.words), tag.unwrap_or(found.tags));
        (found.words, found.tags) = (form, tag.min(found.count.saturating_sub(1)));
        let is_open = !(universal || ontonotes || like.is_some() || found.header);
        if is_open && tags.is_none() {
            found.take_scheme(&first, words.is_some())?;
        }
        if !(universal || ontonotes || like.is_some()) {
            first.refuse_others(found.words, found.tags, words.is_some())?;
        }
        if found.count < 2 {
            let expected = "at least two columns, a word and its tag";
            return Err(first.wrong(expected, "one column in the first lines"));
        }
        if let Some(like) = like {
            let wrong = |expected: String, got: String| {
                Err(first.wrong(format!("{expected}, as in the file that was read before"), got))
            };
            let [own, other] = [&found, like].map(|columns| format!("`{}`", columns.names.join("`, `")));
            if like.count != found.count {
                return wrong(like.count.to_string(), found.count.to_string());
            }
            if found.header && like.header && found.names != like.names {
                return wrong(other, own);
            }
            if found.header && first.swaps(like.words, like.tags) {
                let (words, tags) = (like.words + 1, like.tags + 1);
                let expected = format!("words in column {words} and tags in column {tags}");
                return wrong(expected, format!("the header {own}"));
            }
            return Ok(Self {
                separator: found.separator,
                comments: first.has_comments() || like.comments,
                titles: !like.has_ids() && first.has_titles(like.tags),
                mark: like.mark.clone().or_else(|| first.mark(like.tags).filter(|_| !like.has_ids())),
                header: found.header,
                ..like.clone()
            });
        }
        let at = |what: &str, given: &str| {
            let by_name = || found.names().position(|name| name == plain(given));
            let number = given.parse().ok().filter(|number| (1..=found.count).contains(number));
            number.map(|number: usize| number - 1).or_else(by_name).ok_or_else(|| {
                let what = format!("column of the {what} in file `{}`", file.name());
                let names: Vec<&str> = found.names().collect();
                let names = match names.is_empty() {
                    false => format!(", or one of `{}`", names.join("`, `")),
                    true => String::new(),
                };
                wrong_format(what, format!("a number from 1 to {}{names}", found.count), format!("`{given}`"))
            })
        };
        let words = words.map_or(Ok(found.words), |given| at("words", given))?;
        let tags = tags.map_or(Ok(found.tags), |given| at("tags", given))?;
        (found.words, found.tags) = (words, tags);
        found.comments = first.has_comments();
        found.titles = !numbered && !universal && first.has_titles(found.tags);
        let is_bare = !(found.comments || found.titles || found.has_ids());
        found.mark = if is_bare { first.mark(found.tags) } else { None };
        if is_open && header.is_none() && found.mark.is_none() {
            first.refuse_unsure_header(found.tags)?;
        }
        if is_bare && found.mark.is_none() && first.has_hashes(found.tags) {
            found.notes.push("`#` before a sentence is a word");
        }
        if first.is_unbroken() {
            let note = "no blank line was found in the first lines, so that their words are one sentence";
            found.notes.push(note);
        }
        if first.marked {
            found.notes.push("lines between documents are no words");
        }
        found.brackets = !universal && first.has_brackets(found.tags);
        Ok(found)
    }

    /// Swaps two columns if only the first has tags of a scheme. Fails if only other columns of several have such tags, and
    /// for CoNLL-2009.
    fn take_scheme(&mut self, first: &First, is_set: bool) -> Result<()> {
        let set = "set `tags` (`data.label` in a config)";
        if first.is_of_2009() {
            let expected =
                format!("a known column of tags: {set} to its number, such as 5 for the parts of speech");
            return Err(first.wrong(expected, "CoNLL-2009, whose last columns have predicates"));
        }
        match (first.schemes_beside(self.tags).as_slice(), self.count) {
            ([], _) => {}
            ([tags], 2) => {
                (self.words, self.tags) = (1 - tags, *tags);
                self.notes.push("since tags of a scheme are there");
            }
            (found, _) => {
                let at = found.iter().map(|at| (at + 1).to_string()).collect::<Vec<_>>().join(" and ");
                let words =
                    if is_set { "" } else { ", and `tokens` (`data.text`) to the column of the words" };
                let expected = format!(
                    "tags of a scheme in column {}: {set} to the column of the tags{words}",
                    self.tags + 1
                );
                return Err(first.wrong(expected, format!("tags of a scheme in column {at}")));
            }
        }
        Ok(())
    }

    /// Iterates over the names of the columns; there are no items if the columns have no names.
    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let universal: &[&str] = if self.universal && self.names.is_empty() { &UNIVERSAL } else { &[] };
        self.names.iter().map(String::as_str).chain(universal.iter().copied())
    }

    /// The names in the header; empty without a header.
    pub(crate) fn header_names(&self) -> &[String] {
        if self.header { &self.names } else { &[] }
    }

    /// Returns whether the first column has word numbers, also of ranges (`3-4`) and empty nodes (`5.1`).
    fn has_ids(&self) -> bool {
        self.numbered || (self.universal && self.names().next() == Some("id"))
    }

    /// Returns whether the file has both the column of the words and the column of the tags.
    pub(crate) fn are_whole(&self) -> bool {
        self.words < self.count && self.tags < self.count
    }

    pub(crate) fn sentences(&self, file: &TextFile) -> Result<Records<Sentence>> {
        file.records(Block::new(self))
    }

    fn is_mark(&self, line: &str) -> bool {
        is_mark(line) || cells(line, self.separator).nth(self.words).is_some_and(is_document)
    }

    /// Returns whether a line is a comment. `begins`: no word of the sentence precedes the line; `titled`, which this function
    /// updates: a comment with all columns precedes the line. A line of `#` with all columns is a word, unless it has a key, such
    /// as `# id 5`, or each sentence begins with a comment and `titled` is false. In a file with comments and columns between
    /// spaces, a line of `#`, a space and all columns may be both: an error, unless its tag is a tag of a scheme.
    fn skips(&self, line: &str, begins: bool, titled: &mut bool) -> Result<bool, Reason> {
        if begins && self.mark.as_deref() == Some(first_word(line)) {
            return Ok(true);
        }
        if !line.starts_with('#') {
            return Ok(false);
        }
        if self.has_ids() {
            return Ok(true);
        }
        let full = cells(line, self.separator).count() == self.count;
        if self.universal || self.ontonotes {
            return Ok(!full && is_comment(line));
        }
        if !begins || !(self.comments || self.titles) {
            return Ok(false);
        }
        if !full {
            return Ok(self.titles || is_comment(line));
        }
        let tag = cells(line, self.separator).nth(self.tags).unwrap_or_default();
        if is_of_scheme(tag) {
            return Ok(false);
        }
        if has_key(line) || (self.titles && !*titled) {
            *titled = true;
            return Ok(true);
        }
        if self.separator != Separator::Spaces || !is_comment(line) {
            return Ok(false);
        }
        let expected = format!(
            "a comment or a word, which a line of `#` and {} columns between spaces does not tell apart: use tabs, or remove \
             the comment",
            self.count
        );
        Err(Reason::of(expected, shown(line)))
    }
}

/// Describes the columns, such as
/// `CoNLL-U, words in column 2 (form), tags in column 4 (upos), 10 columns between tabs`.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count < 2 {
            return f.write_str("a word in each line");
        }
        match (self.universal, self.names.is_empty()) {
            (true, true) => f.write_str("CoNLL-U, ")?,
            (true, false) => f.write_str("CoNLL-U Plus, ")?,
            _ if self.ontonotes => f.write_str("CoNLL-2012, ")?,
            _ => {}
        }
        let column = |at: usize| {
            let name = self.names().nth(at).filter(|name| !name.is_empty());
            format!("column {}{}", at + 1, name.map_or_else(String::new, |name| format!(" ({name})")))
        };
        let (words, tags) = (column(self.words), column(self.tags));
        let separator = match self.separator {
            Separator::Spaces => "spaces",
            Separator::Tabs => "tabs",
            Separator::TabRuns => "runs of tabs",
        };
        let least = if self.ontonotes { "at least " } else { "" };
        write!(f, "words in {words}, tags in {tags}, {least}{} columns between {separator}", self.count)?;
        if self.numbered && !self.universal {
            f.write_str(", of which the first numbers the words")?;
        }
        if self.header {
            f.write_str(", the first line is a header")?;
        }
        if self.titles {
            f.write_str(", the first line of each sentence, with `#`, is a comment")?;
        } else if self.comments && !self.universal {
            f.write_str(", lines with `#` are comments")?;
        }
        if let Some(mark) = &self.mark {
            write!(f, ", lines of `{mark}` before a sentence are comments")?;
        }
        for note in &self.notes {
            write!(f, ", {note}")?;
        }
        if self.brackets {
            f.write_str(", tags in brackets, as `(kind*`, are read as IOB2")?;
        }
        Ok(())
    }
}

/// A parser of sentences, which end at blank lines and marks of documents. A malformed line spoils a sentence.
#[derive(Default)]
struct Block {
    columns: Columns,
    /// Whether the header, the next line that does not begin with `#`, is still unread.
    header: bool,
    /// The line number of the header, until a caller takes it.
    top: Option<u64>,
    spoiled: bool,
    /// The number of the previous word in its sentence; `None` before the first word, or without numbers.
    id: Option<u64>,
    /// Whether a comment with all columns precedes the words of the current sentence.
    titled: bool,
    /// In a file with bracketed tags, the kind of the open chunk, such as `NP`; `None` outside of chunks.
    open: Option<String>,
    sentence: Sentence,
}

impl Block {
    fn new(columns: &Columns) -> Self {
        Self { header: columns.header, columns: columns.clone(), ..Self::default() }
    }

    fn word(&mut self, number: u64, line: &str) -> Result<(), Reason> {
        let (columns, begins) = (&self.columns, self.sentence.words.is_empty());
        if columns.skips(line, begins, &mut self.titled)? {
            self.sentence.has_gaps |= !begins;
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
        let source = match (columns.universal, columns.names.is_empty()) {
            (true, true) => ", as CoNLL-U has",
            (true, false) => ", as `global.columns` has",
            _ => "",
        };
        let fits = count == columns.count || (columns.ontonotes && count > columns.count);
        if !fits || empty {
            let got = if empty { "an empty column in".into() } else { format!("{count} in") };
            let least = if columns.ontonotes { "at least " } else { "" };
            let expected = format!("{least}{} columns{between}{source}", columns.count);
            return Err(Reason::of(expected, format!("{got} {}", shown(line))));
        }
        if columns.has_ids() && !is_number(first) {
            // A line with a range of words (`3-4`) or an empty node (`5.1`) is no word, and is skipped.
            if is_between(first) {
                self.sentence.has_gaps |= !begins;
                return Ok(());
            }
            if columns.universal {
                let expected = "the number of the word in column 1, as CoNLL-U has";
                return Err(Reason::of(expected, format!("{} in {}", shown(first), shown(line))));
            }
        }
        if columns.has_ids() && is_number(first) {
            let id = first.parse().ok();
            let next = self.id.and_then(|id: u64| id.checked_add(1));
            if !(if begins { matches!(id, Some(0 | 1)) } else { id == next }) {
                let expected = match (begins, next) {
                    (false, Some(_)) if matches!(id, Some(0 | 1)) => {
                        "a blank line before the first word of the next sentence".to_owned()
                    }
                    (false, Some(next)) => format!("the word with number {next}"),
                    _ => "the word with number 1 at the start of a sentence".to_owned(),
                };
                return Err(Reason::of(expected, format!("{} in {}", shown(first), shown(line))));
            }
            self.id = id;
        }
        let tag = if columns.brackets { inside(&mut self.open, tag)? } else { tag.to_owned() };
        self.sentence.lines.push(number);
        self.sentence.words.push(word.to_owned());
        self.sentence.tags.push(tag);
        Ok(())
    }
}

/// Translates a bracketed tag, such as `(kind*`, to IOB2; updates `open`, the kind of the open chunk.
fn inside(open: &mut Option<String>, tag: &str) -> Result<String, Reason> {
    let wrong = |expected: &str| Err(Reason::of(expected, format!("`{tag}`")));
    let Some((begun, ends)) = bracket(tag) else {
        return wrong("a tag in brackets, as all tags before: `(kind*`, `*`, `*)` or `(kind*)`");
    };
    let (found, kind) = match (begun, open.take()) {
        (Some(_), Some(_)) => return wrong("the end `*)` of a chunk before the next chunk"),
        (None, None) if ends => return wrong("a chunk, begun by `(kind*`, before its end"),
        (None, None) => return Ok("O".to_owned()),
        (None, Some(kind)) => (format!("I-{kind}"), kind),
        (Some(kind), None) => (format!("B-{kind}"), kind.to_owned()),
    };
    *open = Some(kind).filter(|_| !ends);
    Ok(found)
}

impl Parser<Sentence> for Block {
    fn line(&mut self, number: u64, line: &str) -> Result<Option<Sentence>, Reason> {
        let may_be = line.starts_with(['#', '-']) || line.contains("-DOC") || line.contains("-doc");
        if line.trim().is_empty() || (may_be && self.columns.is_mark(line)) {
            return self.end();
        }
        if self.header && !line.starts_with('#') {
            (self.header, self.top) = (false, Some(number));
            return Ok(None);
        }
        if self.spoiled { Ok(None) } else { self.word(number, line).map(|()| None) }
    }

    fn spoil(&mut self) -> bool {
        (self.sentence, self.open) = (Sentence::default(), None);
        !std::mem::replace(&mut self.spoiled, true)
    }

    fn end(&mut self) -> Result<Option<Sentence>, Reason> {
        (self.spoiled, self.titled) = (false, false);
        let sentence = std::mem::take(&mut self.sentence);
        if let Some(kind) = self.open.take() {
            let expected = format!("the end `*)` of the chunk `({kind}*`");
            return Err(Reason::of(expected, "the end of the sentence"));
        }
        Ok(Some(sentence).filter(|sentence| !sentence.words.is_empty()))
    }
}

#[cfg(test)]
mod tests;
