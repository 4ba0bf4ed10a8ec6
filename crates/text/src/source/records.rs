//! Records in the lines of a file: a record is one line, or a block of lines up to a blank line.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::Arc;

use unpadded::data::FileLine;
use unpadded::{AtCaller, Error, Printable, Result};

use super::lines::Lines;
use super::reason::{Reason, wrong_format};
use super::skipped::SkipLog;

pub(crate) type Stream<R> = Box<dyn Iterator<Item = Result<R>> + Send>;

/// Returns the records that `read` returns, up to the first error, which is the last item.
pub(crate) fn to_first_error<R: 'static>(
    read: impl FnMut() -> Result<Option<R>> + Send + 'static,
) -> Stream<R> {
    // What `read` holds, such as an open file, is dropped behind the last item.
    let mut read = Some(read);
    Box::new(std::iter::from_fn(move || {
        let record = read.as_mut()?().transpose();
        if !matches!(record, Some(Ok(_))) {
            read = None;
        }
        record
    }))
}

/// Returns the records unchanged, or the error `none` if there is no record.
pub(crate) fn at_least_one<R: 'static>(
    mut records: impl Iterator<Item = Result<R>> + Send + 'static,
    none: impl Fn() -> Error + Send + 'static,
) -> Stream<R> {
    let mut any = false;
    Box::new(std::iter::from_fn(move || {
        let record = records.next();
        let none = (record.is_none() && !any).then(&none).map(Err);
        any = true;
        none.or(record)
    }))
}

/// The treatment of malformed lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MalformedLines {
    /// A malformed line is an error, and reading ends: the error is the last item.
    #[default]
    Error,
    /// The record of a malformed line is skipped; [`Records::skipped`] counts the skipped records.
    Skip,
    /// Malformed lines are collected: all lines are read, and the last item is an error with the number of malformed
    /// records and the reasons for the first [`SkippedRecords::SHOWN`] of these records.
    Collect,
}

/// A value beside the content of a record: two records are equal whatever their values are.
#[derive(Clone, Default)]
pub(crate) struct Remark<T>(pub(crate) T);

impl<T: fmt::Debug> fmt::Debug for Remark<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> PartialEq for Remark<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Remark<T> {}

impl<T> Hash for Remark<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Returns the location of a record in a file; line 0 means that the line is unknown.
fn location(file: &Arc<str>, line: u64) -> Remark<Option<FileLine>> {
    Remark((line > 0).then(|| FileLine::new(Arc::clone(file), line)))
}

/// A text and its label. Two texts are equal even if they were read from different files or lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelledText {
    /// The text. A text of several columns ([`ReadOptions::texts`](crate::ReadOptions::texts)) has one tab between two
    /// cells. A tab or line break within a cell becomes a space. The text can therefore be cut into its columns again.
    pub text: String,
    /// The label, without white space at the start and the end. With several labels per text
    /// ([`ReadOptions::label_lists`](crate::ReadOptions::label_lists)), the character U+001F follows each label.
    pub label: String,
    /// The group of the text, from the column [`ReadOptions::group`](crate::ReadOptions::group): all texts of a group
    /// are held out together.
    pub(crate) group: Remark<Option<String>>,
    /// The last line of the record; `None` if the line is unknown.
    pub(crate) location: Remark<Option<FileLine>>,
}

impl LabelledText {
    /// Returns a text with a label, but without a group and without a place in a file.
    pub fn new(text: impl Into<String>, label: impl Into<String>) -> Self {
        Self { text: text.into(), label: label.into(), group: Remark(None), location: Remark(None) }
    }

    /// Sets the file and the line from which the text was read; line 0 means that the line is unknown.
    #[must_use]
    pub fn placed(self, file: &Arc<str>, line: u64) -> Self {
        Self { location: location(file, line), ..self }
    }
}

/// A pair of texts that belong together, such as a sentence and its translation. Two pairs are equal even if they were
/// read from different files or lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Pair {
    /// The source text, such as the text before a tab.
    pub source: String,
    /// The target text, such as the text behind a tab.
    pub target: String,
    /// The last line of the record; `None` if the line is unknown.
    pub(crate) location: Remark<Option<FileLine>>,
}

impl Pair {
    /// Returns a pair of a source and a target, without the line it was read from.
    pub fn new(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self { source: source.into(), target: target.into(), location: Remark(None) }
    }

    pub(crate) fn placed(self, file: &Arc<str>, line: u64) -> Self {
        Self { location: location(file, line), ..self }
    }
}

/// Joins cells with tabs; a tab or a line break within one of several cells becomes a space.
pub(crate) fn of_columns(mut cells: Vec<String>) -> String {
    if cells.len() > 1 {
        for cell in &mut cells {
            *cell = cell.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
        }
    }
    cells.join("\t")
}

/// Returns whether a character separates words and columns; a no-break space, for example, does not.
pub(crate) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

/// Returns the words of a line; spaces and tabs separate words.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_blank).filter(|word| !word.is_empty())
}

/// Refuses a carriage return inside a line: a file with carriage returns as line ends would be one line.
pub(crate) fn unbroken(line: &str) -> Result<(), Reason> {
    if !line.trim().contains('\r') {
        return Ok(());
    }
    Err(Reason::of("lines that end with a line feed", format!("a carriage return inside {}", shown(line))))
}

/// Quotes a line for an error message, and cuts it after 60 characters.
pub(crate) fn shown(line: &str) -> String {
    Printable(line).quoted(60)
}

fn two_cells<'a>(line: &'a str, expected: &str) -> Result<(&'a str, &'a str), Reason> {
    let wrong = |got: &str| Reason::of(expected, format!("{got} in {}", shown(line)));
    let (first, second) = line.split_once('\t').ok_or_else(|| wrong("no tab"))?;
    match second.matches('\t').count() {
        0 if first.trim().is_empty() => Err(wrong("nothing before the tab")),
        0 if second.trim().is_empty() => Err(wrong("nothing behind the tab")),
        0 => Ok((first, second)),
        more => Err(wrong(&format!("{} tabs", more + 1))),
    }
}

pub(crate) fn labelled(_: u64, line: &str) -> Result<Option<LabelledText>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let (text, label) = two_cells(line, "text, one tab and a label")?;
    Ok(Some(LabelledText::new(text, label.trim())))
}

/// Parses a pair from a line of two columns; a third column is ignored.
pub(crate) fn translation(line: &str) -> Result<Option<Pair>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let third = line.match_indices('\t').nth(1).map_or(line.len(), |(at, _)| at);
    let (two, rest) = line.split_at(third);
    let expected = "text, one tab and text, optionally followed by a tab and a third column";
    if rest.matches('\t').count() > 1 {
        return Err(Reason::of(expected, format!("{} tabs in {}", line.matches('\t').count(), shown(line))));
    }
    let (source, target) = two_cells(two, expected)?;
    Ok(Some(Pair::new(source, target)))
}

pub(crate) trait Parser<R>: Send {
    /// Parses the line with this number; returns a record if the line completes one.
    fn line(&mut self, number: u64, line: &str) -> Result<Option<R>, Reason>;

    /// Returns whether the next line is within a quoted cell of the current record.
    fn is_open(&self) -> bool {
        false
    }

    /// Returns whether the failure of a line within a quoted cell does not depend on where the record begins.
    fn fails_alike(&self) -> bool {
        false
    }

    /// Discards the current record, one of whose lines is malformed. Returns whether it is the first such line.
    fn spoil(&mut self) -> bool {
        true
    }

    /// Ends the parsing at the end of the file; returns a record if the end completes one.
    fn end(&mut self) -> Result<Option<R>, Reason> {
        Ok(None)
    }
}

/// A parser of lines that are at most one record each; the function gets the number of the line, too.
pub(crate) struct OneLine<F>(pub(crate) F);

impl<R, F: FnMut(u64, &str) -> Result<Option<R>, Reason> + Send> Parser<R> for OneLine<F> {
    fn line(&mut self, number: u64, line: &str) -> Result<Option<R>, Reason> {
        self.0(number, line)
    }
}

/// The number of records that were skipped because they are malformed, and the reasons for the first of these records.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct SkippedRecords {
    /// The number of skipped records.
    pub count: u64,
    /// The reasons for the first skipped records, at most [`SkippedRecords::SHOWN`].
    pub first: Vec<Error>,
}

impl SkippedRecords {
    /// Maximum number of reasons that are kept.
    pub const SHOWN: usize = 10;

    /// Counts a skipped record, and keeps the reason if fewer than [`Self::SHOWN`] reasons are kept.
    pub(crate) fn add(&mut self, reason: impl FnOnce() -> Error) {
        self.count += 1;
        if self.first.len() < Self::SHOWN {
            self.first.push(reason());
        }
    }

    /// Returns all kept reasons as one error; `None` if no record was skipped. `read` records are well formed.
    pub(crate) fn all<R>(&self, read: u64) -> Result<Option<R>> {
        /// At most one in this many records is malformed by accident.
        const FEW: u64 = 100;
        Error::several(&self.first).map_or(Ok(None), |all| {
            let more = self.count > self.first.len() as u64;
            let all = if more { all.noted(format!("{} in all", self.count)) } else { all };
            Err(match self.count * FEW <= read {
                true => all.noted(format!(
                    "malformed: {} of {} records; `data.skip_bad = true` leaves them out, up to the share `data.skip_bad_share`",
                    self.count,
                    read + self.count
                )),
                false => all,
            })
        })
    }
}

/// A line that may be parsed once more.
struct HeldLine {
    number: u64,
    text: String,
    /// The reason why the line cannot be decoded; `text` then has replacement characters.
    bad: Option<Reason>,
}

/// An iterator over the records of a file, with one record in memory at a time. An error is the last item.
pub struct Records<R> {
    /// The unread lines of the file; `None` after the end of the file or after an error.
    lines: Option<Lines>,
    name: String,
    parser: Box<dyn Parser<R>>,
    policy: MalformedLines,
    skipped: SkippedRecords,
    read: u64,
    /// The log of skipped records; `None` if the records are read for detection.
    pub(crate) log: Option<Arc<SkipLog>>,
    /// The lines of a quoted cell that is still open. If its record is malformed, only the first line is skipped, and
    /// the other lines are parsed once more: a quotation mark without a partner would otherwise skip them all.
    held: VecDeque<HeldLine>,
    again: VecDeque<HeldLine>,
    /// How many lines of malformed records there were so far.
    parsed_again: u64,
    /// The number of bytes without a whole record behind which no more records are read: now, and behind the first record.
    most: [usize; 2],
    /// The position in the caller's code where the file was opened, for errors.
    caller: &'static Location<'static>,
}

impl<R> Records<R> {
    #[track_caller]
    pub(crate) fn new(lines: Lines, parser: Box<dyn Parser<R>>, policy: MalformedLines) -> Self {
        let (name, lines, caller) = (lines.name.to_string(), Some(lines), Location::caller());
        let ((skipped, log, held, again), most) = (Default::default(), [usize::MAX; 2]);
        Self {
            lines,
            name,
            parser,
            policy,
            skipped,
            read: 0,
            log,
            held,
            again,
            parsed_again: 0,
            most,
            caller,
        }
    }

    /// Ends the records, for detection, behind 128 KiB without a whole record: such records decide nothing, and each
    /// step of the detection would parse them to the end of the file. The first record may be longer if `first` is true.
    pub(crate) fn ahead(self, first: bool) -> Self {
        const MOST: usize = 1 << 17;
        Self { most: [if first { usize::MAX } else { MOST }, MOST], ..self }
    }

    /// Returns the records that were skipped so far.
    pub fn skipped(&self) -> &SkippedRecords {
        &self.skipped
    }

    /// Reads all remaining records; at least one must remain.
    ///
    /// # Errors
    /// Fails with the first error in the file, or if no record remains.
    #[track_caller]
    pub fn read_all(&mut self) -> Result<Vec<R>> {
        let records: Vec<R> = self.by_ref().collect::<Result<_>>().at_caller()?;
        if records.is_empty() {
            let got = match self.skipped.count {
                0 => "none".to_owned(),
                count => format!("none, and {count} malformed records"),
            };
            return Err(wrong_format(format!("records of file `{}`", self.name), "at least one", got));
        }
        Ok(records)
    }

    fn read(&mut self) -> Result<Option<R>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        let ([most, later], mut size) = (self.most, 0);
        loop {
            let (number, line) = match self.again.pop_front() {
                Some(HeldLine { number, text, bad }) => (number, Some((Cow::Owned(text), bad))),
                None => {
                    let number = lines.number + 1;
                    let line = match lines.next()? {
                        Some(Ok(line)) => Some((line, None)),
                        Some(Err(reason)) => Some((Cow::Owned(lines.lossy()), Some(reason))),
                        None => None,
                    };
                    (number, line)
                }
            };
            let (logs, past) = (self.log.is_some(), size > most);
            let outcome = match line.as_ref().filter(|_| !past) {
                Some((line, bad)) => {
                    size += line.len() + 1;
                    match bad {
                        // A quoted cell may go on behind a line that cannot be decoded.
                        Some(_)
                            if logs && self.parser.line(number, line).is_ok() && self.parser.is_open() =>
                        {
                            Ok(None)
                        }
                        Some(reason) => Err(reason.clone()),
                        None => self.parser.line(number, line),
                    }
                }
                None => self.parser.end(),
            };
            let ended = line.is_none() || past;
            if let (true, Some((text, bad))) = (logs && (outcome.is_err() || self.parser.is_open()), line) {
                self.held.push_back(HeldLine { number, text: text.into_owned(), bad });
            }
            let reason = match outcome {
                Ok(None) if !ended => continue,
                Ok(None) if self.policy == MalformedLines::Collect => {
                    return self.skipped.all(self.read);
                }
                Ok(record) => match self.held.iter().position(|line| line.bad.is_some()) {
                    // All lines of the record belong to it, so none of them is parsed once more.
                    Some(bad) => {
                        self.held.drain(..bad);
                        self.held.truncate(1);
                        self.held.front().and_then(|line| line.bad.clone()).unwrap_or_default()
                    }
                    None => {
                        self.held.clear();
                        (self.most, self.read) = ([later; 2], self.read + 1);
                        return Ok(record);
                    }
                },
                Err(reason) => reason,
            };
            if self.policy == MalformedLines::Error {
                return Err(lines.malformed(reason));
            }
            let is_first = self.parser.spoil();
            // Lines are parsed once more only while they are fewer than all lines so far: then, no file takes long.
            self.parsed_again += self.held.len() as u64;
            let skipped = if self.parsed_again > lines.number + 1000 { self.held.len() } else { 1 };
            let mut at = number;
            for _ in 0..skipped.max(1) {
                let line = self.held.pop_front();
                at = line.as_ref().map_or(at, |line| line.number);
                if let (Some(log), true) = (&self.log, is_first) {
                    let text = line.as_ref().map_or("", |line| line.text.as_str());
                    log.add(&self.name, [at, 0], &reason, text)?;
                }
            }
            if is_first {
                self.skipped.add(|| reason.at(format!("{}:{at}", self.name)));
            }
            self.held.append(&mut self.again);
            std::mem::swap(&mut self.held, &mut self.again);
        }
    }
}

impl<R> Iterator for Records<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Result<R>> {
        let record = self.read().map_err(|e| e.made_at(self.caller)).transpose();
        if !matches!(record, Some(Ok(_))) {
            self.lines = None;
        }
        record
    }
}

impl<R> fmt::Debug for Records<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("name", &self.name)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}
