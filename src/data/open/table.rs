//! Reads tables. Cells are separated by tabs or, as in RFC 4180, by commas, semicolons or bars. A table is parsed line
//! by line, even if a cell in quotation marks contains line ends.

use std::collections::HashMap;

use super::column::{Column, Empty, TEXT};
use super::columns::{ColumnChoice, Columns, number};
use super::options::{FileFormat, ReadOptions};
use super::paths::by_ending;
use crate::data::lines::Reason;
use crate::data::records::{Parser, of_columns, shown, unbroken};
use crate::data::{MalformedLines, Records, TextFile};
use crate::error::Result;

/// Number of records that are read to detect the format of a table.
const LOOKED_AT: usize = 1000;

enum State {
    /// The parser is at the start of a cell.
    Start,
    Plain,
    Quoted,
    /// The parser is behind a quotation mark in a quoted cell: the mark ends the cell, or is the first half of a
    /// doubled quotation mark.
    Closing,
}

/// The meaning of quotation marks in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// Quotation marks are part of the text of a cell.
    Text,
    /// Quotation marks enclose a cell whose first character is a quotation mark.
    Cells,
    /// As [`Self::Cells`], but spaces after a separator do not belong to the cell.
    Spaced,
}

/// A parser that cuts lines into the cells of records.
struct Cells {
    separator: char,
    quotes: Quotes,
    state: State,
    /// Whether any cell has a quotation mark inside that does not open the cell.
    stray: bool,
    row: Vec<String>,
    cell: String,
    /// The number of bytes of the current record so far.
    size: usize,
    most: usize,
    /// The number of the current line in the file.
    line: u64,
    /// The number of the line in which the current quoted cell begins.
    opened: u64,
}

impl Cells {
    fn new(separator: char, quotes: Quotes) -> Self {
        Self {
            separator,
            quotes,
            state: State::Start,
            stray: false,
            row: Vec::new(),
            cell: String::new(),
            size: 0,
            most: TextFile::MAX_LINE,
            line: 0,
            opened: 0,
        }
    }

    fn clear(&mut self) {
        self.row.clear();
        self.cell.clear();
        (self.state, self.size) = (State::Start, 0);
    }

    /// Parses a line; returns the cells of the record if the record ends with this line, else `None`.
    fn line(&mut self, line: &str) -> Result<Option<Vec<String>>, Reason> {
        let within = matches!(self.state, State::Quoted);
        if !within {
            if line.trim().is_empty() || (self.line == 1 && declared(line).is_some()) {
                return Ok(None);
            }
            unbroken(line)?;
        }
        if self.quotes == Quotes::Text || !(within || line.contains('"')) {
            let cell = |cell: &str| match self.quotes {
                Quotes::Spaced => cell.trim_start_matches(' ').to_owned(),
                _ => cell.to_owned(),
            };
            return Ok(Some(line.split(self.separator).map(cell).collect()));
        }
        self.size += line.len();
        if self.size > self.most {
            let got = format!("a longer record; is the quotation mark of line {} never closed?", self.opened);
            return Err(Reason { expected: format!("a record of at most {} bytes", self.most), got });
        }
        for c in line.chars() {
            self.take(c).map_err(|got| {
                let expected = "nothing behind a closing quotation mark but the next cell".to_owned();
                Reason { expected, got: format!("{got:?} in {}", shown(line)) }
            })?;
        }
        if matches!(self.state, State::Quoted) {
            self.cell.push('\n');
            return Ok(None);
        }
        self.end_cell();
        self.size = 0;
        Ok(Some(std::mem::take(&mut self.row)))
    }

    fn end_cell(&mut self) {
        self.row.push(std::mem::take(&mut self.cell));
        self.state = State::Start;
    }

    /// Parses a character; if the character is not allowed at this position, it is returned as the error.
    fn take(&mut self, c: char) -> Result<(), char> {
        match self.state {
            State::Start if c == '"' => (self.state, self.opened) = (State::Quoted, self.line),
            State::Start | State::Plain | State::Closing if c == self.separator => self.end_cell(),
            State::Start | State::Closing if c == ' ' && self.quotes == Quotes::Spaced => {}
            State::Start | State::Plain => {
                self.stray |= c == '"';
                self.cell.push(c);
                self.state = State::Plain;
            }
            State::Quoted if c == '"' => self.state = State::Closing,
            State::Quoted => self.cell.push(c),
            State::Closing if c == '"' => {
                self.cell.push(c);
                self.state = State::Quoted;
            }
            State::Closing => return Err(c),
        }
        Ok(())
    }
}

/// A parser that makes one record of each row of a table.
struct Rows<F> {
    cells: Cells,
    /// The number of cells that each row must have; `None` accepts rows of any width.
    width: Option<usize>,
    /// Whether the next row of the table is the header.
    header: bool,
    make: F,
}

impl<R, F: FnMut(Vec<String>) -> Result<R, Reason> + Send> Parser<R> for Rows<F> {
    fn at(&mut self, line: u64) {
        self.cells.line = line;
    }

    fn line(&mut self, line: &str) -> Result<Option<R>, Reason> {
        let Some(row) = self.cells.line(line)? else { return Ok(None) };
        if std::mem::take(&mut self.header) {
            return Ok(None);
        }
        match self.width {
            Some(width) if width != row.len() => {
                let expected = format!("{width} columns, as in most of the first records");
                Err(Reason { expected, got: format!("{} in {}", row.len(), shown(line)) })
            }
            _ => (self.make)(row).map(Some),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.cells.state, State::Quoted)
    }

    fn fails_alike(&self) -> bool {
        matches!(self.cells.state, State::Closing) // a character behind a closing quotation mark
    }

    fn spoil(&mut self) -> bool {
        self.cells.clear();
        true
    }

    fn end(&mut self) -> Result<Option<R>, Reason> {
        if !matches!(self.cells.state, State::Quoted) {
            return Ok(None);
        }
        let expected = format!("the end of the cell whose quotation mark is in line {}", self.cells.opened);
        self.cells.clear();
        Err(Reason { expected, got: "the end of the file".to_owned() })
    }
}

/// The notation of a table's cells: the separator, and the meaning of quotation marks.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    separator: char,
    quotes: Quotes,
    /// Notes for the user on unusual decisions about the separator and the quotation marks.
    notes: Vec<String>,
}

/// Returns the name of a separator for messages.
fn named(separator: char) -> String {
    if separator == '\t' { "tabs".to_owned() } else { format!("`{separator}`") }
}

/// Parses a line such as `sep=;`, which Excel writes above a table, and returns the separator; `sep=\t` declares a tab.
/// Returns `None` for any other line.
fn declared(line: &str) -> Option<char> {
    let line = line.trim_end_matches(['\r', '\n', ' ']);
    let line = line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).unwrap_or(line);
    let (name, given) = line.split_once('=')?;
    if !name.eq_ignore_ascii_case("sep") {
        return None;
    }
    let mut given = if given == "\\t" { "\t" } else { given }.chars();
    given.next().filter(|_| given.next().is_none())
}

/// A measure of how well a separator fits the first records.
struct SeparatorFit {
    separator: char,
    /// The share of the first records whose number of columns is the most frequent number above 1.
    share: f64,
    /// Whether the separator is used as in prose: each separator has a space after it, or digits on both sides.
    loose: bool,
}

impl SeparatorFit {
    /// The minimum `share` of an accepted separator: up to a tenth of the records may be malformed.
    const FITS: f64 = 0.9;

    fn of(file: &TextFile, separator: char) -> Result<Self> {
        let (mut counts, mut loose, mut all) = (HashMap::<usize, usize>::new(), true, 0);
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let prose = |pair: &[String]| {
            pair[1].starts_with(' ') || (digit(pair[0].chars().next_back()) && digit(pair[1].chars().next()))
        };
        let quotes = if is_spaced(file, separator)? { Quotes::Spaced } else { Quotes::Cells };
        for row in rows(file, separator, quotes)?.take(LOOKED_AT).flatten() {
            loose &= row.windows(2).all(prose);
            *counts.entry(row.len()).or_default() += 1;
            all += 1;
        }
        let fits = counts.iter().filter(|(width, _)| **width > 1).map(|(_, count)| *count).max();
        let share = fits.map_or(0.0, |fits| fits as f64 / f64::from(all));
        Ok(Self { separator, share, loose })
    }

    fn fits(&self) -> bool {
        self.share >= Self::FITS
    }
}

/// Reads the first records of the file, cut into cells at the separator. Malformed records are skipped.
fn rows(file: &TextFile, separator: char, quotes: Quotes) -> Result<Records<Vec<String>>> {
    let cells = Cells::new(separator, quotes);
    file.clone().malformed(MalformedLines::Skip).first_records(Rows {
        cells,
        width: None,
        header: false,
        make: Ok,
    })
}

/// Returns whether all first records have the same number of cells, at least two, and no cell has a stray quotation
/// mark.
fn are_even(file: &TextFile, separator: char, quotes: Quotes) -> Result<bool> {
    let (mut lines, mut cells) = (file.first_lines()?, Cells::new(separator, quotes));
    let (mut width, mut count) = (None, 0);
    while count < LOOKED_AT
        && let Some(line) = lines.next()?
    {
        cells.line += 1;
        match line.and_then(|line| cells.line(&line)) {
            Ok(None) => {}
            Ok(Some(row)) if row.len() > 1 && *width.get_or_insert(row.len()) == row.len() => count += 1,
            _ => return Ok(false),
        }
    }
    Ok(count > 0 && !cells.stray && !matches!(cells.state, State::Quoted))
}

/// Returns the text between the quotation marks of a quoted cell, if all quotation marks inside are doubled; otherwise
/// `None`.
fn unquoted(cell: &str) -> Option<&str> {
    let inner = cell.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.replace("\"\"", "").contains('"')).then_some(inner)
}

/// Returns whether cells between tabs are quoted as in CSV: all cells except numbers, or exactly the cells that need
/// quotation marks. If the result is `false`, quotation marks between tabs are text.
fn are_quoted(file: &TextFile) -> Result<bool> {
    let rows: Vec<Vec<String>> = rows(file, '\t', Quotes::Text)?.take(LOOKED_AT).flatten().collect();
    let cells = || rows.iter().flatten().map(String::as_str);
    if !cells().any(|cell| cell.starts_with('"')) {
        return Ok(false);
    }
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        // The rows have different widths: quoted cells may contain tabs and line ends.
        return are_even(file, '\t', Quotes::Cells);
    }
    let all = |rows: &[Vec<String>]| {
        let mut cells = rows.iter().flatten().filter(|cell| !number(cell) && !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| unquoted(cell).is_some())
    };
    // The header may be unquoted although the cells below it are quoted.
    let below = rows.get(1..).filter(|below| below.len() > 1);
    let needed = |cell: &str| unquoted(cell).is_some_and(|inner| inner.is_empty() || inner.contains('"'));
    let mut marked = cells().filter(|cell| cell.contains('"'));
    let doubled = cells().filter_map(unquoted).any(|inner| inner.contains('"'));
    Ok(all(&rows) || below.is_some_and(all) || (doubled && marked.all(needed)))
}

/// Returns whether every separator has a space after it, and some of these spaces are followed by a quotation mark.
fn is_spaced(file: &TextFile, separator: char) -> Result<bool> {
    let rows: Vec<Vec<String>> = rows(file, separator, Quotes::Cells)?.take(LOOKED_AT).flatten().collect();
    // The header may have no spaces after its separators.
    let below = rows.get(usize::from(rows.len() > 1)..).unwrap_or_default();
    let mut cells = below.iter().flat_map(|row| row.iter().skip(1)).filter(|cell| !cell.is_empty());
    let (mut marks, spaces) = (false, cells.all(|cell| cell.starts_with(' ')));
    for cell in below.iter().flat_map(|row| row.iter().skip(1)) {
        marks |= cell.trim_start_matches(' ').starts_with('"');
    }
    Ok(marks && spaces && are_even(file, separator, Quotes::Spaced)?)
}

impl Dialect {
    /// Detects the separator and the meaning of quotation marks. The options or the first line (such as `sep=;`) may
    /// set the separator; else it is the one that cuts most of the first records into the same number of cells.
    pub(super) fn of(file: &TextFile, format: FileFormat, options: &ReadOptions) -> Result<Self> {
        let tabs = format == FileFormat::Tsv;
        if let Some(separator) = options.separator {
            let told = options.told.as_deref().unwrap_or(options);
            if separator == '\t' && told.format == Some(FileFormat::Tsv) && told.separator.is_some() {
                return Ok(Self { separator, quotes: Quotes::Text, notes: Vec::new() });
            }
            return Self::quoted(file, separator, tabs || separator == '\t', Vec::new());
        }
        let usual = if tabs { '\t' } else { ',' };
        let mut lines = file.first_lines()?;
        let first = lines.next()?.and_then(Result::ok);
        if let Some(separator) = first.as_deref().and_then(declared) {
            let note = format!("separated by {}, as line 1 says", named(separator));
            return Self::quoted(file, separator, false, vec![note]);
        }
        if tabs && rows(file, usual, Quotes::Text)?.take(LOOKED_AT).flatten().any(|row| row.len() > 1) {
            return Self::quoted(file, usual, tabs, Vec::new());
        }
        let fits = [usual, '\t', ';', '|', ','].map(|separator| SeparatorFit::of(file, separator));
        let fits: Vec<SeparatorFit> = fits.into_iter().collect::<Result<_>>()?;
        let tight = |fit: &&SeparatorFit| fit.fits() && !fit.loose;
        let mut found = fits.iter().filter(tight);
        let best = match found.next() {
            Some(best) => best,
            // If no separator fits, or all that fit are used as in prose, the usual separator of the format is used.
            None => return Self::quoted(file, usual, tabs, Vec::new()),
        };
        let other = found.find(|fit| fit.separator != best.separator);
        let note = match other {
            Some(other) => Some(format!(
                "separated by {}; {} would give equal columns, too: `separator` (`data.separator` in a config) sets the separator",
                named(best.separator),
                named(other.separator)
            )),
            None => (best.separator != usual).then(|| format!("separated by {}", named(best.separator))),
        };
        Self::quoted(file, best.separator, tabs, note.into_iter().collect())
    }

    /// Detects the meaning of quotation marks for this separator. If `tabs` is true, quotation marks may be text.
    fn quoted(file: &TextFile, separator: char, tabs: bool, mut notes: Vec<String>) -> Result<Self> {
        let quotes = if separator == '\t' && tabs {
            if are_quoted(file)? {
                notes.push("cells are in quotation marks, as in CSV".to_owned());
                Quotes::Cells
            } else {
                Quotes::Text
            }
        } else if is_spaced(file, separator)? {
            notes.push(format!("spaces behind {} are left out", named(separator)));
            Quotes::Spaced
        } else {
            Quotes::Cells
        };
        Ok(Self { separator, quotes, notes })
    }

    fn cells(&self) -> Cells {
        Cells::new(self.separator, self.quotes)
    }
}

/// Returns the line number of the first record in the file.
fn first_line(file: &TextFile) -> Result<u64> {
    let (mut lines, mut number) = (file.first_lines()?, 1);
    while let Some(line) = lines.next()? {
        let skipped =
            line.is_ok_and(|line| line.trim().is_empty() || (number == 1 && declared(&line).is_some()));
        if !skipped {
            break;
        }
        number += 1;
    }
    Ok(number)
}

impl ReadOptions {
    /// Returns whether all wanted columns have names that were detected in an earlier file, not set by the user.
    pub(super) fn are_detected(&self, wanted: &[Column<'_>]) -> bool {
        let Some(told) = &self.told else { return false };
        let is_told = |one: &Column<'_>| match one.what {
            "text" => !told.text.is_empty(),
            "label" => told.label.is_some(),
            "source" => told.source.is_some(),
            _ => told.target.is_some(),
        };
        wanted.iter().all(|one| one.given.is_some() && !is_told(one))
    }
}

/// The decisions about a table: the separator, the quotation marks, the header and the wanted columns.
#[derive(Debug, Clone)]
pub(super) struct Table {
    dialect: Dialect,
    picked: ColumnChoice,
    empty: Empty,
}

impl Table {
    /// Detects the options of a table that are not set, from the first records of the file.
    pub(super) fn of(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
        wanted: &[Column<'_>],
    ) -> Result<Self> {
        let dialect = Dialect::of(file, format, options)?;
        let records =
            file.first_records(Rows { cells: dialect.cells(), width: None, header: false, make: Ok })?;
        let (mut rows, mut wrong) = (Vec::<Vec<String>>::new(), None);
        for row in records.take(LOOKED_AT) {
            match row {
                Ok(row) => rows.push(row),
                Err(e) => {
                    wrong.get_or_insert(e);
                }
            }
        }
        // A malformed record is an error here only if all first records are malformed; otherwise the reader of the
        // whole file reports it.
        if let (true, Some(wrong)) = (rows.is_empty(), wrong) {
            return Err(wrong);
        }
        let (name, line) = (file.name(), first_line(file)?);
        let columns = Columns { name: &name, rows: &rows, line, header: options.header };
        let mut picked =
            if options.are_detected(wanted) { columns.pick_alike(wanted)? } else { columns.pick(wanted)? };
        picked.notes.splice(0..0, dialect.notes.iter().cloned());
        Ok(Self { dialect, picked, empty: Empty::of(wanted, options.pair, options.label_lists) })
    }

    /// Returns a table whose only column has the texts. Returns `None` unless the file name has the extension of a
    /// table and each of the first records has one cell.
    pub(super) fn of_texts(file: &TextFile, options: &ReadOptions) -> Result<Option<Self>> {
        let Some(format @ (FileFormat::Csv | FileFormat::Tsv)) = by_ending(&file.name()) else {
            return Ok(None);
        };
        let options = ReadOptions { format: Some(format), text: Vec::new(), label: None, ..options.clone() };
        let dialect = Dialect::of(file, format, &options)?;
        let mut cells = rows(file, dialect.separator, dialect.quotes)?.take(LOOKED_AT);
        if !cells.all(|row| row.is_ok_and(|row| row.len() == 1)) {
            return Ok(None);
        }
        Self::of(file, format, &options, &[Column { what: "text", given: Some("1"), known: TEXT }]).map(Some)
    }

    /// Reads the first records, of which the first one may be a header.
    pub(super) fn first_rows(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
    ) -> Result<Vec<Vec<String>>> {
        let Dialect { separator, quotes, .. } = Dialect::of(file, format, options)?;
        Ok(rows(file, separator, quotes)?.take(LOOKED_AT).flatten().collect())
    }

    /// Returns the name of each wanted column; in a table without a header, the column's number, from 1 on.
    pub(super) fn names(&self) -> &[String] {
        &self.picked.names
    }

    /// Stores the detected header and separator of a file in `options`, with notes that explain the detection.
    pub(super) fn note(&self, options: &mut ReadOptions) {
        options.notes = self.notes().to_vec();
        options.found.header = Some(self.has_header());
        options.found.separator = Some(self.dialect.separator);
    }

    /// Returns the notes that explain how the table is read.
    pub(super) fn notes(&self) -> &[String] {
        &self.picked.notes
    }

    pub(super) fn has_header(&self) -> bool {
        self.picked.header
    }

    /// Returns whether the separator is a tab and quotation marks are part of the text.
    pub(super) fn has_tabs(&self) -> bool {
        self.dialect.separator == '\t' && self.dialect.quotes == Quotes::Text
    }

    /// Returns the separator, and whether cells may be quoted.
    pub(super) fn writes(&self) -> (char, bool) {
        (self.dialect.separator, self.dialect.quotes != Quotes::Text)
    }

    /// Returns the most frequent number of columns in the first records.
    pub(super) fn width(&self) -> usize {
        self.picked.width
    }

    /// Returns whether the table has a column with this number, counted from 1.
    pub(super) fn has_column(&self, number: Option<&str>) -> bool {
        let number = number.and_then(|number| number.trim().parse::<usize>().ok());
        number.is_some_and(|number| (1..=self.width()).contains(&number))
    }

    /// Returns whether the first wanted column has only numbers in the first records.
    pub(super) fn has_numbers(&self, file: &TextFile) -> Result<bool> {
        let column = self.picked.columns.first().copied().unwrap_or_default();
        let rows = rows(file, self.dialect.separator, self.dialect.quotes)?.take(LOOKED_AT).flatten();
        let mut cells = rows.filter_map(|row| row.into_iter().nth(column)).peekable();
        Ok(cells.peek().is_some() && cells.all(|cell| number(&cell)))
    }

    /// Returns the column names in the header; empty for a table without a header.
    pub(super) fn header(&self, file: &TextFile) -> Result<Vec<String>> {
        if !self.has_header() {
            return Ok(Vec::new());
        }
        rows(file, self.dialect.separator, self.dialect.quotes)?.next().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Returns a parser that makes one text of the first `count` wanted columns of each row, including the header.
    pub(super) fn texts<R: 'static>(&self, count: usize, make: fn(String) -> R) -> Box<dyn Parser<R>> {
        let columns = self.picked.columns.clone();
        let make = move |mut row: Vec<String>| {
            let cell = |&column: &usize| row.get_mut(column).map(std::mem::take).unwrap_or_default();
            Ok(make(of_columns(columns.iter().take(count).map(cell).collect())))
        };
        let cells = Cells { most: 1 << 22, ..self.dialect.cells() }; // the lines of a record are in memory
        Box::new(Rows { cells, width: Some(self.picked.width), header: false, make })
    }

    /// Reads the records of the file; `make` makes each record from the cells of the wanted columns.
    pub(super) fn records<R: 'static>(
        &self,
        file: &TextFile,
        mut make: impl FnMut(&mut dyn FnMut(usize) -> String) -> R + Send + 'static,
    ) -> Result<Records<R>> {
        let (ColumnChoice { columns, names, width, header, .. }, mut empty) =
            (self.picked.clone(), Vec::new());
        let (cells, may_be) = (self.dialect.cells(), self.empty);
        let make = move |mut row: Vec<String>| {
            let is_empty = |&column: &usize| row.get(column).is_none_or(|cell| cell.trim().is_empty());
            empty.clear();
            empty.extend(columns.iter().map(is_empty));
            if let Some(place) = may_be.missing(&empty) {
                let name = names.get(place).map_or("", String::as_str);
                let expected = format!("something in column `{name}`");
                let row = shown(&row.join(" | "));
                return Err(Reason {
                    expected,
                    got: format!("nothing in {row}: fill the cell, or remove the record"),
                });
            }
            let mut cell = |place: usize| {
                let column = columns.get(place).copied().unwrap_or_default();
                row.get_mut(column).map(std::mem::take).unwrap_or_default()
            };
            Ok(make(&mut cell))
        };
        file.records(Rows { cells, width: Some(width), header, make })
    }
}

#[cfg(test)]
mod tests;
