//! Tables: cells between tabs, or between commas, semicolons or bars as in RFC 4180, parsed line by line, so that a line end in a
//! cell in quotation marks costs no more than the cell.

use std::collections::HashMap;

use super::columns::{Columns, Picked, Wanted};
use super::options::{FileFormat, ReadOptions};
use crate::data::lines::Reason;
use crate::data::records::{Parser, shown, unbroken};
use crate::data::{Malformed, Records, TextFile};
use crate::error::Result;

/// How many records are looked at to tell columns apart.
const LOOKED_AT: usize = 1000;

enum State {
    /// At the start of a cell.
    Start,
    Plain,
    Quoted,
    /// Behind a quotation mark in a cell in quotation marks: the end of the cell, or the first of two that stand for one.
    Closing,
}

/// Puts cells together.
struct Cells {
    separator: char,
    /// Whether cells may be in quotation marks.
    quotes: bool,
    state: State,
    row: Vec<String>,
    cell: String,
    /// Of the record so far.
    size: usize,
    line: u64,
    /// Where the cell in quotation marks begins.
    opened: u64,
}

impl Cells {
    fn new(separator: char, quotes: bool) -> Self {
        let (row, cell) = (Vec::new(), String::new());
        Self { separator, quotes, state: State::Start, row, cell, size: 0, line: 0, opened: 0 }
    }

    fn clear(&mut self) {
        self.row.clear();
        self.cell.clear();
        (self.state, self.size) = (State::Start, 0);
    }

    /// Takes a line, which may end a record.
    fn line(&mut self, line: &str) -> Result<Option<Vec<String>>, Reason> {
        self.line += 1;
        let within = matches!(self.state, State::Quoted);
        if !within {
            if line.trim().is_empty() || (self.line == 1 && declared(line).is_some()) {
                return Ok(None);
            }
            unbroken(line)?;
        }
        if !self.quotes || !(within || line.contains('"')) {
            return Ok(Some(line.split(self.separator).map(str::to_owned).collect()));
        }
        self.size += line.len();
        if self.size > TextFile::MAX_LINE {
            let got = format!("a longer one; is the quotation mark of line {} never closed?", self.opened);
            return Err(Reason {
                expected: format!("a record of at most {} bytes", TextFile::MAX_LINE),
                got,
            });
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

    /// Takes a character, unless it cannot stand there.
    fn take(&mut self, c: char) -> Result<(), char> {
        match self.state {
            State::Start if c == '"' => (self.state, self.opened) = (State::Quoted, self.line),
            State::Start | State::Plain | State::Closing if c == self.separator => self.end_cell(),
            State::Start | State::Plain => {
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

/// Makes records of the rows of a table.
struct Rows<F> {
    cells: Cells,
    /// How many cells each row has, if that is known.
    width: Option<usize>,
    /// Whether the next row is the header.
    header: bool,
    make: F,
}

impl<R, F: FnMut(Vec<String>) -> Result<R, Reason> + Send> Parser<R> for Rows<F> {
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

/// How the cells of a table are separated.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    separator: char,
    /// Whether cells may be in quotation marks.
    quotes: bool,
    /// What was decided, if it was not the usual.
    note: Option<String>,
}

/// What a separator is called in messages.
fn named(separator: char) -> String {
    if separator == '\t' { "tabs".to_owned() } else { format!("`{separator}`") }
}

/// The separator that a line such as `sep=;` declares, as Excel writes it above a table.
fn declared(line: &str) -> Option<char> {
    let mut rest = line.trim_end().strip_prefix("sep=")?.chars();
    rest.next().filter(|_| rest.next().is_none())
}

/// How well a separator fits the first records.
struct Fit {
    separator: char,
    /// Which share of the records has as many columns as most, of at least two.
    share: f64,
    /// Whether it is as in prose: a space is behind it, or digits are on both sides, wherever it is.
    loose: bool,
}

impl Fit {
    /// The share from which on a separator fits: a few records may be malformed.
    const FITS: f64 = 0.9;

    fn of(file: &TextFile, separator: char) -> Result<Self> {
        let (mut counts, mut loose, mut all) = (HashMap::<usize, usize>::new(), true, 0);
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let prose = |pair: &[String]| {
            pair[1].starts_with(' ') || (digit(pair[0].chars().next_back()) && digit(pair[1].chars().next()))
        };
        for row in rows(file, separator, true)?.take(LOOKED_AT).flatten() {
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

/// The first records, split at a separator. What is malformed ends them for a file that stops at errors.
fn rows(file: &TextFile, separator: char, quotes: bool) -> Result<Records<Vec<String>>> {
    let cells = Cells::new(separator, quotes);
    file.clone().malformed(Malformed::Skip).first_records(Rows {
        cells,
        width: None,
        header: false,
        make: Ok,
    })
}

impl Dialect {
    /// The separator that is set, declared in the first line, or gives equally many columns in most of the first records.
    pub(super) fn of(file: &TextFile, format: FileFormat, options: &ReadOptions) -> Result<Self> {
        let tabs = format == FileFormat::Tsv;
        if let Some(separator) = options.separator {
            return Ok(Self { separator, quotes: separator != '\t', note: None });
        }
        let usual = if tabs { '\t' } else { ',' };
        let mut lines = file.first_lines()?;
        let first = lines.next()?.and_then(Result::ok);
        if let Some(separator) = first.as_deref().and_then(declared) {
            let note = Some(format!("separated by {}, as line 1 says", named(separator)));
            return Ok(Self { separator, quotes: true, note });
        }
        if tabs && rows(file, usual, false)?.take(LOOKED_AT).flatten().any(|row| row.len() > 1) {
            return Ok(Self { separator: usual, quotes: false, note: None });
        }
        let fits = [usual, '\t', ';', '|', ','].map(|separator| Fit::of(file, separator));
        let fits: Vec<Fit> = fits.into_iter().collect::<Result<_>>()?;
        let of = |separator| Self { separator, quotes: separator != '\t' || !tabs, note: None };
        let tight = |fit: &&Fit| fit.fits() && !fit.loose;
        let mut found = fits.iter().filter(tight);
        let best = match found.next() {
            Some(best) => best,
            // Commas with a space behind each separate columns if the name says so, and nothing else does.
            None => return Ok(of(usual)),
        };
        let other = found.find(|fit| fit.separator != best.separator);
        let note = match other {
            Some(other) => Some(format!(
                "separated by {}; {} would give equal columns, too: `separator` (`data.separator` in a config) sets it",
                named(best.separator),
                named(other.separator)
            )),
            None => (best.separator != usual).then(|| format!("separated by {}", named(best.separator))),
        };
        Ok(Self { note, ..of(best.separator) })
    }

    fn cells(&self) -> Cells {
        Cells::new(self.separator, self.quotes)
    }
}

/// The line of the first record.
fn first_line(file: &TextFile) -> Result<u64> {
    let mut lines = file.first_lines()?;
    let mut number = 1;
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

/// What was decided about a table: the separator, the header, and the columns that are wanted.
#[derive(Debug, Clone)]
pub(super) struct Table {
    dialect: Dialect,
    picked: Picked,
}

impl Table {
    /// Detects what the options do not set from the first records of a file.
    pub(super) fn of(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
        wanted: &[Wanted<'_>],
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
        // The reader of the whole file reports malformed records, if there are other records.
        if let (true, Some(wrong)) = (rows.is_empty(), wrong) {
            return Err(wrong);
        }
        let (name, line) = (file.name(), first_line(file)?);
        let mut picked = Columns { name: &name, rows: &rows, line, header: options.header }.pick(wanted)?;
        picked.notes.splice(0..0, dialect.note.clone());
        Ok(Self { dialect, picked })
    }

    /// The name of each wanted column, or its number.
    pub(super) fn names(&self) -> &[String] {
        &self.picked.names
    }

    /// What was decided, and why.
    pub(super) fn notes(&self) -> &[String] {
        &self.picked.notes
    }

    pub(super) fn has_header(&self) -> bool {
        self.picked.header
    }

    /// Whether cells are separated by tabs.
    pub(super) fn has_tabs(&self) -> bool {
        self.dialect.separator == '\t'
    }

    /// The records, each made of the cells of the wanted columns.
    pub(super) fn records<R: 'static>(
        &self,
        file: &TextFile,
        mut make: impl FnMut(&mut dyn FnMut(usize) -> Result<String, Reason>) -> Result<R, Reason>
        + Send
        + 'static,
    ) -> Result<Records<R>> {
        let Picked { columns, names, width, header, .. } = self.picked.clone();
        let cells = self.dialect.cells();
        let make = move |mut row: Vec<String>| {
            let mut cell = |place: usize| {
                let column = columns.get(place).copied().unwrap_or_default();
                match row.get_mut(column).map(std::mem::take) {
                    Some(cell) if !cell.trim().is_empty() => Ok(cell),
                    _ => {
                        let name = names.get(place).map_or("", String::as_str);
                        let expected = format!("something in column {name}");
                        Err(Reason { expected, got: format!("nothing in {}", shown(&row.join(" | "))) })
                    }
                }
            };
            make(&mut cell)
        };
        file.records(Rows { cells, width: Some(width), header, make })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<Vec<String>>> {
        let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
        let rows = Rows { cells: Cells::new(',', true), width: None, header: false, make: Ok };
        TextFile::embedded("some.csv", text).records(rows)?.collect()
    }

    #[test]
    fn cells_are_as_in_rfc_4180() {
        let found =
            rows("a,b\r\n\"x,y\",\"say \"\"hi\"\"\"\n\n\"two\nlines\n\",\n5\" disk,é\n\"\",z").unwrap();
        let expected =
            [["a", "b"], ["x,y", "say \"hi\""], ["two\nlines\n", ""], ["5\" disk", "é"], ["", "z"]];
        assert_eq!(found, expected);
        for (text, expected) in [
            (
                "a,b\n\"x\" y,z\n",
                "some.csv:2: expected nothing behind a closing quotation mark but the next cell, got ' '",
            ),
            (
                "a,b\nc,\"d\ne\n",
                "some.csv:4: expected the end of the cell whose quotation mark is in line 2, got the end of",
            ),
        ] {
            let error = rows(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
