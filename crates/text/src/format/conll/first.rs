//! Detects the columns of a file with a word and its tags per line, from the first lines of the file.

use std::collections::{HashMap, HashSet};

use unpadded::{Error, Result};

use super::line::{
    MARKS, Separator, bracket, cells, first_word, has_key, is_between, is_comment, is_mark, is_number,
    is_of_scheme, may_mark,
};
use crate::TextFile;
use crate::detect::column::most_frequent;
use crate::detect::tag_spelling::is_scheme;
use crate::source::lines::has_word;
use crate::source::reason::wrong_format;
use crate::source::records::{OneLine, shown};

/// The maximum number of lines that are read from the start of a file to detect its columns.
const LOOKED_AT: usize = 1000;
/// Number of bytes in these lines behind which no more of them are read.
const MOST: usize = 1 << 18;

/// Known header names of the column of the words.
const WORDS: &str = "token tokens word words form text";

/// Known header names of the column of the tags.
const TAGS: &str = "tag tags label labels ner ner_tag ner_tags pos pos_tag pos_tags upos xpos chunk chunk_tag chunk_tags iob \
    bio entity entities slot slots ne";

/// The usual tags of words that are symbols, such as `#`.
const SYMBOLS: [&str; 4] = ["SYM", "PUNCT", "#", "X"];

/// Known header names of a column with the number of the sentence.
const SENTENCES: [&str; 6] = ["sentence", "sentence_#", "sentence_id", "sentence_idx", "sent", "sent_id"];

/// The start of the line that has the names of the columns in a CoNLL-U Plus file.
const GLOBAL: &str = "# global.columns =";

/// Normalizes a name for comparison: lower case, with `_` in place of spaces and hyphens.
pub(crate) fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

/// Returns whether a name or one of its parts is known: `ne_coarse_lit` has the known part `ne`.
fn is_called(name: &str, known: &str) -> bool {
    has_word(known, name) || name.split('_').any(|part| has_word(known, part))
}

/// Returns the most frequent number of columns, the first of several, and how many lines have it; without lines, 2 and 0.
fn most(words: &[&String], separator: Separator) -> (usize, usize) {
    most_frequent(words.iter().map(|line| cells(line, separator).count())).unwrap_or((2, 0))
}

/// Returns whether runs of tabs align the columns: some cells between tabs are empty, but nearly all lines have as many
/// nonempty cells. Empty cells in different columns of lines with as many tabs are missing values instead.
fn are_aligned(words: &[&String]) -> bool {
    let empty = |line: &&String| -> Vec<bool> { cells(line, Separator::Tabs).map(str::is_empty).collect() };
    let rows: Vec<Vec<bool>> = words.iter().map(empty).collect();
    let Some(first) = rows.iter().find(|row| row.contains(&true)) else { return false };
    let missing = rows.iter().all(|row| row.len() == first.len()) && rows.iter().any(|row| row != first);
    let (count, lines) = most(words, Separator::TabRuns);
    !missing && count > 1 && lines * 10 >= words.len() * 9
}

/// The first lines of a file; blank lines replace the header and the lines that mark documents.
pub(crate) struct First {
    name: String,
    lines: Vec<String>,
    pub(crate) separator: Separator,
    /// The most frequent number of columns per line.
    pub(crate) count: usize,
    pub(crate) header: Option<Vec<String>>,
    /// The names in the `# global.columns` line of CoNLL-U Plus; `None` if the file has no such line.
    pub(crate) global: Option<Vec<String>>,
    /// Whether the file has the document marks of CoNLL-2012 or JNLPBA, such as `#begin document`.
    pub(crate) marked: bool,
}

/// The settings for the detection: the columns of the words and of the tags, and the header.
#[derive(Clone, Copy)]
pub(crate) struct ColumnSettings<'a> {
    pub(crate) words: Option<&'a str>,
    pub(crate) tags: Option<&'a str>,
    pub(crate) header: Option<bool>,
    /// The names in the header of the data set's first file; empty if there is no earlier file or no header.
    pub(crate) names: &'a [String],
}

impl First {
    pub(crate) fn of(file: &TextFile, given: ColumnSettings<'_>) -> Result<Self> {
        let lines = file.first_records(OneLine(|_, line: &str| Ok(Some(line.to_owned()))))?;
        let mut size = 0;
        let bounded = |line: &String| {
            size += line.len();
            size - line.len() <= MOST
        };
        let lines = lines.map_while(Result::ok).take(LOOKED_AT).take_while(bounded);
        let mut lines: Vec<String> = lines.collect();
        let global = lines.iter().find(|line| !line.trim().is_empty());
        let global = global.and_then(|line| line.strip_prefix(GLOBAL));
        let global = global.map(|names| names.split_whitespace().map(plain).collect());
        let marked = lines.iter().any(|line| MARKS.iter().any(|mark| line.starts_with(mark)));
        for line in &mut lines {
            if is_mark(line) {
                line.clear();
            }
        }
        let is_word = |line: &&String| !line.trim().is_empty();
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
        let count = most(&words, separator).0;
        let mut first = Self { name: file.name(), separator, count, lines, global, marked, header: None };
        first.header = first.header(given)?;
        if first.header.is_some()
            && let Some(line) = first.lines.iter_mut().find(|line| begins(line))
        {
            line.clear();
        }
        Ok(first)
    }

    /// Returns whether many words follow one another without a blank line.
    pub(crate) fn is_unbroken(&self) -> bool {
        const MANY: usize = 30;
        self.lines.len() >= MANY && self.lines.iter().skip(1).all(|line| !line.trim().is_empty())
    }

    pub(crate) fn wrong(&self, expected: impl Into<String>, got: impl Into<String>) -> Error {
        wrong_format(format!("columns of file `{}`", self.name), expected, got)
    }

    /// Returns the names of the columns if the first line is a header: the word column and the tag column each have a known
    /// name or the name that the user set, and the name of the tag column does not occur as a tag in later lines.
    fn header(&self, given: ColumnSettings<'_>) -> Result<Option<Vec<String>>> {
        let Some((at, line)) = self.first_line() else { return Ok(None) };
        let names: Vec<String> = cells(line, self.separator).map(plain).collect();
        // `known`: all cells of the first line are names in the header of the earlier file.
        let known = !given.names.is_empty() && names.iter().all(|name| given.names.contains(name));
        if given.header == Some(true) || (given.header.is_none() && known) {
            return Ok(Some(names));
        }
        if given.header == Some(false) || names.len() != self.count {
            return Ok(None);
        }
        let fits = |given: Option<&str>, known: &str, column: usize| {
            let name = names.get(column).map(String::as_str).unwrap_or_default();
            match given.map(|given| (given, given.parse::<usize>())) {
                Some((_, Ok(number))) => number == column + 1 && has_word(known, name),
                Some((given, Err(_))) => plain(given) == name,
                None => is_called(name, known),
            }
        };
        let words = (0..names.len()).find(|&column| fits(given.words, WORDS, column));
        let tags =
            (0..names.len()).rev().find(|&column| fits(given.tags, TAGS, column) && words != Some(column));
        let (Some(words), Some(tags)) = (words, tags) else { return Ok(None) };
        let (mut again, mut other) = (None, false);
        for (number, line) in self.lines.iter().enumerate().skip(at + 1) {
            let row: Vec<String> = cells(line, self.separator).map(plain).collect();
            if row.get(tags) == names.get(tags) {
                let same = row.get(words) == names.get(words);
                again = again.or(same.then_some(number + 1));
                other |= !same;
            }
        }
        match again {
            _ if other => Ok(None),
            None => Ok(Some(names)),
            Some(number) => {
                let expected = "a header once, or words and their tags: `header` (`data.header` in a config) sets whether the first line is a header";
                let got = format!("the names of line {} again", at + 1);
                Err(wrong_format(format!("{}:{number}", self.name), expected, got))
            }
        }
    }

    pub(crate) fn has_numbers(&self, column: usize) -> bool {
        self.count > 1 && self.all(column, is_number)
    }

    /// Returns whether the lines have columns, and not text; `known` is the number of columns of an earlier file.
    pub(crate) fn are_columns(&self, known: Option<usize>) -> bool {
        /// The minimum share of lines with the most frequent width; the second, of lines as wide as an earlier file.
        const EVEN: [f64; 2] = [0.9, 0.5];
        let even = self.share() >= EVEN[0];
        if self.count < 2 || self.separator != Separator::Spaces {
            let alike = known == Some(self.count) && self.share() >= EVEN[1];
            return (even || alike) && (self.count > 1 || self.has_blocks());
        }
        // Texts of equal length may have the same number of words in each line, too.
        let tagged = (0..self.count).any(|at| self.all(at, is_of_scheme));
        let some = self.share() >= EVEN[1] && known == Some(self.count);
        even && (self.has_blocks() || tagged || self.is_numbered()) || some
    }

    /// The share of lines with the most frequent number of columns; blank lines and comments are not counted.
    fn share(&self) -> f64 {
        let lines = || self.lines.iter().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let fit = lines().filter(|line| self.count_of(line) == self.count).count();
        fit as f64 / (lines().count().max(1)) as f64
    }

    /// Returns whether a blank line is between lines that are not blank.
    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks().nth(1).is_some()
    }

    /// Iterates over the runs of lines between blank lines.
    fn blocks(&self) -> impl Iterator<Item = &[String]> {
        self.lines.split(|line| line.trim().is_empty()).filter(|lines| !lines.is_empty())
    }

    /// Returns the first line that is neither blank nor a comment, with its index.
    fn first_line(&self) -> Option<(usize, &String)> {
        self.lines.iter().enumerate().find(|(_, line)| begins(line))
    }

    fn count_of(&self, line: &str) -> usize {
        cells(line, self.separator).count()
    }

    /// Iterates over runs of lines with the most frequent number of columns; a run is roughly a sentence.
    fn sentences(&self) -> impl Iterator<Item = Vec<Vec<&str>>> {
        let fits = |line: &String| !line.starts_with('#') && self.count_of(line) == self.count;
        self.lines
            .split(move |line| !fits(line))
            .filter(|lines| !lines.is_empty())
            .map(|lines| lines.iter().map(|line| cells(line, self.separator).collect()).collect())
    }

    fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        self.sentences().flatten()
    }

    /// Returns whether `fits` is true for each cell of a column, in lines with the most frequent width.
    fn all(&self, column: usize, fits: impl Fn(&str) -> bool) -> bool {
        let mut rows = self.rows().peekable();
        rows.peek().is_some() && rows.all(|row| row.get(column).is_some_and(|cell| fits(cell)))
    }

    /// Returns whether the first column has word numbers that start from 0 or 1 in each sentence. Ranges of words, such as
    /// `3-4`, and empty nodes, such as `5.1`, are ignored.
    pub(crate) fn is_numbered(&self) -> bool {
        let ids = |rows: &Vec<Vec<&str>>| -> Vec<Option<usize>> {
            let cell = |row: &Vec<&str>| row.first().copied().unwrap_or_default().to_owned();
            let words = rows.iter().map(cell).filter(|id| !is_between(id));
            words.map(|id| id.parse::<usize>().ok()).collect()
        };
        let all: Vec<Vec<Option<usize>>> = self.sentences().map(|rows| ids(&rows)).collect();
        let Some(Some(start @ (0 | 1))) = all.first().and_then(|ids| ids.first()).copied() else {
            return false;
        };
        // A few errors in the numbering are accepted: the reader of the sentences reports each of them.
        let begun = all.iter().filter(|ids| ids.first().is_none_or(|id| *id == Some(start))).count();
        let pairs = || all.iter().flat_map(|ids| ids.windows(2));
        let goes_on = |pair: &&[Option<usize>]| matches!(pair, [Some(id), Some(next)] if id.checked_add(1) == Some(*next));
        let counted = pairs().filter(goes_on).count();
        let numbers = all.iter().flatten().all(Option::is_some);
        self.count > 2
            && numbers
            && begun * 10 >= all.len() * 9
            && counted > 0
            && counted * 2 >= pairs().count()
    }

    /// Returns whether the file has the ten columns of CoNLL-U. A file with tabs must also have word numbers or begin
    /// with a comment. A file with spaces must have word numbers and a column of syntactic heads.
    pub(crate) fn is_universal(&self, count: usize) -> bool {
        let commented = self.lines.iter().find(|line| !line.trim().is_empty());
        let commented = commented.is_some_and(|line| line.starts_with('#'));
        let heads = || self.all(6, |head| head == "_" || is_number(head));
        self.count == count
            && match self.separator {
                Separator::Spaces => self.is_numbered() && heads(),
                _ => self.is_numbered() || commented,
            }
    }

    /// Returns whether the file has the columns of CoNLL-2012, in which the third column has word numbers.
    pub(crate) fn is_ontonotes(&self, count: usize) -> bool {
        let fits = |row: &Vec<&str>| row.len() >= count && row.get(2).is_some_and(|id| is_number(id));
        let mut rows = self.lines.iter().filter(|line| begins(line)).take(LOOKED_AT);
        let mut rows = rows.by_ref().map(|line| cells(line, self.separator).collect::<Vec<_>>()).peekable();
        self.marked && rows.peek().is_some() && rows.all(|row| fits(&row))
    }

    /// Returns whether comments that begin with `#` precede sentences. Such a comment has a key, such as `# id 5`, or
    /// does not have as many columns as the lines of words.
    pub(crate) fn has_comments(&self) -> bool {
        let mut before = "";
        self.lines.iter().any(|line| {
            let starts = before.trim().is_empty() || is_comment(before);
            before = line;
            starts && is_comment(line) && (self.count_of(line) != self.count || has_key(line))
        })
    }

    /// Returns whether a sentence begins with a line that looks like a comment, but has a cell in the tag column. A
    /// line whose cell is a tag of a scheme is not counted.
    pub(crate) fn has_hashes(&self, tags: usize) -> bool {
        let mut before = "";
        self.lines.iter().any(|line| {
            let starts = before.trim().is_empty();
            before = line;
            let tag = cells(line, self.separator).nth(tags);
            starts && is_comment(line) && tag.is_some_and(|tag| !is_of_scheme(tag))
        })
    }

    /// Returns whether each sentence begins with a comment with `#`, some of them with as many columns as the lines of words,
    /// no other lines begin with `#`, and no cell in the tag column of these comments is also the tag of a word.
    pub(crate) fn has_titles(&self, tags: usize) -> bool {
        let blocks: Vec<&[String]> = self.blocks().collect();
        let known: HashSet<&str> = self.rows().filter_map(|row| row.get(tags).copied()).collect();
        let (mut found, mut seconds) = (Vec::new(), HashSet::new());
        for block in &blocks {
            let Some((first, rest)) = block.split_first() else { return false };
            if !first.starts_with('#') || rest.is_empty() || rest.iter().any(|line| line.starts_with('#')) {
                return false;
            }
            if self.count_of(first) == self.count {
                found.extend(cells(first, self.separator).nth(tags));
                let mut words = first.split_whitespace();
                let first = words.next().unwrap_or_default();
                seconds.insert((first, words.next().filter(|_| words.next().is_some())));
            }
        }
        let same =
            seconds.len() == 1 && seconds.iter().all(|(first, second)| *first == "#" && second.is_some());
        let distinct: HashSet<&str> = found.iter().copied().collect();
        let many = distinct.len() > 1 && distinct.len() * 2 > found.len();
        blocks.len() > 1
            && !found.is_empty()
            && (same || many)
            && found.iter().all(|tag| !known.contains(tag) && !is_of_scheme(tag))
    }

    /// Returns the mark, such as `#`, `;;` or `%%`, that begins a comment before most sentences; `None` if there is no
    /// such mark. No other line begins with the mark, and no comment has a tag in the tag column.
    pub(crate) fn mark(&self, tags: usize) -> Option<String> {
        let mut counts = HashMap::<&str, usize>::new();
        for first in self.blocks().filter_map(|lines| lines.first()) {
            *counts.entry(first_word(first)).or_default() += 1;
        }
        let (mark, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        if !may_mark(mark) || count < 2 || count * 2 <= self.blocks().count() {
            return None;
        }
        let tag = |line: &'_ String| cells(line, self.separator).nth(tags).map(str::to_owned);
        let (marked, others): (Vec<&String>, Vec<&String>) =
            self.blocks().flatten().partition(|line| first_word(line) == mark);
        let known: HashSet<String> = others.into_iter().filter_map(tag).collect();
        let is_tag =
            |tag: String| known.contains(&tag) || is_of_scheme(&tag) || SYMBOLS.contains(&tag.as_str());
        let is_word = marked.len() > count || marked.iter().any(|line| tag(line).is_some_and(is_tag));
        (!is_word).then(|| mark.to_owned())
    }

    /// Returns the columns that have tags of a scheme such as IOB2; empty if the column `tags` has tags of a scheme.
    pub(crate) fn schemes_beside(&self, tags: usize) -> Vec<usize> {
        let sentences: Vec<Vec<Vec<&str>>> = self.sentences().collect();
        let is = |at: &usize| {
            let cell = |row: &Vec<&str>| row.get(*at).copied().unwrap_or_default().to_owned();
            let column: Vec<Vec<String>> =
                sentences.iter().map(|rows| rows.iter().map(cell).collect()).collect();
            is_scheme(&column.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let known = |row: &Vec<&str>| row.get(tags).is_some_and(|tag| is_of_scheme(tag));
        if sentences.iter().flatten().any(known) || is(&tags) {
            return Vec::new();
        }
        (0..self.count).filter(|at| *at != tags).filter(is).collect()
    }

    /// Refuses a first line that may be a header with unknown names. Such a line has no cell that occurs again in its
    /// column, while all tags of other lines occur often.
    pub(crate) fn refuse_unsure_header(&self, tags: usize) -> Result<()> {
        const MANY: usize = 20;
        let Some((at, line)) = self.first_line() else { return Ok(()) };
        let row: Vec<&str> = cells(line, self.separator).collect();
        let mut counts = HashMap::<&str, usize>::new();
        let (mut rows, mut again) = (0, false);
        for line in self.lines.iter().skip(at + 1).filter(|line| begins(line)) {
            rows += 1;
            let other: Vec<&str> = cells(line, self.separator).collect();
            again |= other.iter().zip(&row).any(|(other, own)| other == own);
            *counts.entry(other.get(tags).copied().unwrap_or_default()).or_default() += 1;
        }
        let often = counts.len() * 10 <= rows && counts.values().all(|&count| count > 2);
        let is_scheme = row.get(tags).is_none_or(|tag| is_of_scheme(tag));
        if row.len() != self.count || rows <= MANY || again || !often || is_scheme {
            return Ok(());
        }
        let expected = "words and tags, or a header with known names (`token`, `tag`): `header` (`data.header` in a config) sets whether the first line is a header";
        let got = format!("{}, whose words are in no other line", shown(line));
        Err(wrong_format(format!("{}:{}", self.name, at + 1), expected, got))
    }

    /// Returns whether the file is CoNLL-2009: word numbers, heads in columns 9 and 10, and 14 columns or more.
    pub(crate) fn is_of_2009(&self) -> bool {
        let head = |cell: &str| cell == "_" || is_number(cell);
        self.count >= 14 && self.is_numbered() && self.all(8, head) && self.all(9, head)
    }

    /// Returns the first tag column of a file with word numbers. The tag columns are the run of last columns in which
    /// all cells are tags of a scheme. If the last column has other cells, the last column is returned.
    pub(crate) fn first_tags(&self) -> usize {
        let is = |at: &usize| self.all(*at, is_of_scheme);
        (2..self.count).rev().take_while(is).last().unwrap_or(self.count.saturating_sub(1))
    }

    /// Returns whether all tags are bracketed as in CoNLL-2005, such as `(kind*`.
    pub(crate) fn has_brackets(&self, tags: usize) -> bool {
        self.all(tags, |tag| bracket(tag).is_some())
    }

    /// Finds the columns of the words and of the tags by the names in the header.
    pub(crate) fn named(&self) -> (Option<usize>, Option<usize>) {
        let at = |fits: &dyn Fn(&str) -> bool| -> Vec<usize> {
            let names = self.header.iter().flatten().enumerate();
            names.filter(|(_, name)| fits(name)).map(|(at, _)| at).collect()
        };
        let first = |known: &str| {
            let whole = at(&|name| has_word(known, name)).first().copied();
            whole.or_else(|| at(&|name| is_called(name, known)).first().copied())
        };
        let words = first(WORDS);
        // The tag column is the last column with a known name; else the first column whose name has a known part.
        let tags = at(&|name| has_word(TAGS, name)).last().copied().or_else(|| first(TAGS));
        (words, tags.filter(|at| Some(*at) != words))
    }

    /// Returns whether the header has a known tag name above the words, or a known word name above the tags.
    pub(crate) fn swaps(&self, words: usize, tags: usize) -> bool {
        let is = |at: usize, known: &str| {
            let name = self.header.iter().flatten().nth(at);
            name.is_some_and(|name| has_word(known, name))
        };
        is(words, TAGS) || is(tags, WORDS)
    }

    /// Refuses other formats that look like columns, such as annotations of brat or PubTator.
    pub(crate) fn refuse_others(&self, words: usize, tags: usize, is_set: bool) -> Result<()> {
        let mut lines = self.lines.iter().filter(|line| begins(line));
        let all = |is: &dyn Fn(&String) -> bool| {
            let mut lines = self.lines.iter().filter(|line| begins(line)).peekable();
            lines.peek().is_some() && lines.all(is)
        };
        let first = lines.next().cloned().unwrap_or_default();
        let several = lines.next().is_some();
        let columns = "a word and its tag in each line, a blank line behind each sentence";
        let brat = |line: &String| {
            let mut cells = line.split('\t');
            let kind = cells.next().is_some_and(|id| {
                id.starts_with(['T', 'R', 'E', 'A', 'N', '*'])
                    && id.get(1..).is_some_and(|id| id.is_empty() || is_number(id))
            });
            kind && cells.next().is_some_and(|cell| cell.contains(' '))
        };
        if all(&brat) && first.contains('\t') {
            return Err(self.wrong(
                columns,
                "annotations of brat (`.ann`), which refer to positions in another file: convert them to columns",
            ));
        }
        let mut parts = first.split('|');
        if parts.next().is_some_and(is_number)
            && matches!(parts.next(), Some("t" | "a"))
            && parts.next().is_some()
        {
            return Err(self.wrong(columns, "annotations of PubTator: convert them to columns"));
        }
        if self.separator == Separator::Spaces && several {
            let has = |line: &String, mark: char| {
                let last = cells(line, self.separator).last().is_some_and(|cell| cell.contains(mark));
                last && (mark == ',' || self.count_of(line) == 1)
            };
            if let Some(mark) = [',', ';', '|'].into_iter().find(|&mark| all(&|line| has(line, mark))) {
                let expected = "columns between tabs or spaces";
                let got = format!(
                    "`{mark}` in each line: replace each `{mark}` by a tab, write a blank line behind each sentence, and leave out its number"
                );
                return Err(self.wrong(expected, got));
            }
            let joined = |mark: char| {
                all(&|line| cells(line, self.separator).all(|cell| cell.trim_matches(mark).contains(mark)))
            };
            if let Some(mark) = ['/', '_', '|'].into_iter().find(|&mark| joined(mark)) {
                let got = format!("words joined to tags by `{mark}`: write one word and its tag per line");
                return Err(self.wrong(columns, got));
            }
        }
        let is_id = |cell: &str| cell.bytes().all(|byte| byte.is_ascii_digit() || b"-.:_#".contains(&byte));
        let repeats = |rows: &Vec<Vec<&str>>| {
            let mut words = rows.iter().map(|row| row.get(words));
            let first = words.next();
            words.all(|word| Some(word) == first)
        };
        let are_ids = || several && words != tags && self.all(words, is_id);
        let are_repeated = || {
            self.sentences().filter(|rows| rows.len() > 1).count() > 1
                && self.sentences().all(|rows| repeats(&rows))
        };
        let unlikely = match !is_set && self.count > 2 {
            true if are_ids() => Some("only numbers"),
            true if are_repeated() => Some("the same word in each line of a sentence"),
            _ => None,
        };
        if let Some(got) = unlikely {
            let expected =
                "words in column 1; `tokens` (`data.text` in a config) sets the number of the word column";
            return Err(self.wrong(expected, format!("{got}, as in {}", shown(&first))));
        }
        let numbered = self.header.iter().flatten().find(|name| SENTENCES.contains(&name.as_str()));
        let is_blank = |line: &&String| line.trim().is_empty();
        let ends = || self.lines.iter().skip_while(is_blank).any(|line| is_blank(&line));
        if let Some(name) = numbered.filter(|_| several && !ends()) {
            let expected = "a blank line behind each sentence";
            return Err(self.wrong(
                expected,
                format!("no blank line, and a column `{name}`: write a blank line where the value of this column changes"),
            ));
        }
        Ok(())
    }
}

fn begins(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}
