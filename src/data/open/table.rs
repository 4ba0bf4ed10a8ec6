//! Tables: cells between tabs, or between commas as in RFC 4180, read line by line, so that a line end in a cell in quotation marks
//! costs no more than the cell.

use super::columns::{Columns, Picked, Wanted};
use super::options::{FileFormat, ReadOptions};
use crate::data::lines::Reason;
use crate::data::records::{Parser, shown, unbroken};
use crate::data::{Records, TextFile};
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
            if line.trim().is_empty() {
                return Ok(None);
            }
            unbroken(line)?;
        }
        if !self.quotes {
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
                let expected = format!("{width} columns, as in the first line");
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

/// What stands between cells.
fn separator(format: FileFormat, options: &ReadOptions) -> char {
    options.separator.unwrap_or(if format == FileFormat::Tsv { '\t' } else { ',' })
}

/// The columns of a table that are wanted.
pub(super) fn picked(
    file: &TextFile,
    format: FileFormat,
    options: &ReadOptions,
    wanted: &[Wanted<'_>],
) -> Result<Picked> {
    let cells = Cells::new(separator(format, options), format == FileFormat::Csv);
    let records = file.records(Rows { cells, width: None, header: false, make: Ok })?;
    let (mut rows, mut wrong) = (Vec::<Vec<String>>::new(), None);
    for row in records.take(LOOKED_AT) {
        match row {
            Ok(row) => rows.push(row),
            Err(e) => {
                wrong.get_or_insert(e);
            }
        }
    }
    // What is malformed is said by whoever reads all of it, where there is anything else.
    if let (true, Some(wrong)) = (rows.is_empty(), wrong) {
        return Err(wrong);
    }
    Columns { name: &file.name(), rows: &rows, header: options.header }.pick(wanted)
}

/// The records of a table, each of the cells that were picked.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    format: FileFormat,
    options: &ReadOptions,
    picked: &Picked,
    mut make: impl FnMut(&mut dyn FnMut(usize) -> Result<String, Reason>) -> Result<R, Reason> + Send + 'static,
) -> Result<Records<R>> {
    let Picked { columns, names, width, header } = picked.clone();
    let cells = Cells::new(separator(format, options), format == FileFormat::Csv);
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
