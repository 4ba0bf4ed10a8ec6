//! Reads tables. Cells are separated by tabs or, as in RFC 4180, by commas, semicolons or bars. A table is parsed line
//! by line, even if a cell in quotation marks contains line ends.

use std::sync::Arc;

use unpadded::Result;

use self::dialect::{Cells, Dialect, Quotes, Rows, declared, first_rows};
use super::repeated::{repeats, without_repetitions};
use super::row::{FileRow, RecordMaker};
use crate::TextFile;
use crate::detect::column::{Column, Empty, TEXT, unread};
use crate::detect::columns::{ColumnChoice, Columns, number, shortened};
use crate::detect::options::ReadOptions;
use crate::format::FileFormat;
use crate::source::reason::Reason;
use crate::source::records::{Parser, Stream, of_columns, shown};
use crate::source::skipped::SkipLog;

mod dialect;

/// Returns the line number of the first record in the file.
fn first_line(file: &TextFile) -> Result<u64> {
    let (mut lines, mut number) = (file.first_lines()?, 1);
    while let Some(Ok(line)) = lines.next()?
        && (number <= file.skip_lines || line.trim().is_empty() || (number == 1 && declared(&line).is_some()))
    {
        number += 1;
    }
    Ok(number)
}

/// Returns whether each row below the first ends with an empty cell that the first row lacks.
fn trails(rows: &[Vec<String>]) -> bool {
    let Some((first, below)) = rows.split_first() else { return false };
    let ends = |row: &Vec<String>| row.len() == first.len() + 1 && row.last().is_some_and(String::is_empty);
    !below.is_empty() && below.iter().all(ends)
}

/// The decisions about a table: the separator, the quotation marks, the header and the wanted columns.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    dialect: Dialect,
    pub(crate) picked: ColumnChoice,
    empty: Empty,
    /// The cells of the header; empty for a table without a header.
    pub(crate) header: Arc<[String]>,
    log: Arc<SkipLog>,
}

impl Table {
    /// Detects the options of a table that are not set, from the first records of the file.
    pub(crate) fn of(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
        wanted: &[Column<'_>],
    ) -> Result<Self> {
        let dialect = Dialect::of(file, format, options)?;
        let rows = dialect.first_rows(file)?;
        let location = (&*file.name(), first_line(file)?);
        let mut picked =
            Columns::detect(location, &rows, options, wanted).map_err(|e| match trails(&rows) {
                true => e.noted(
                    "each row but the first ends with a separator: remove it, or end the header with one",
                ),
                false => e,
            })?;
        let above = match file.skip_lines {
            0 => None,
            1 => Some("1 line above the table is left out".to_owned()),
            count => Some(format!("{count} lines above the table are left out")),
        };
        picked.notes.splice(0..0, above.into_iter().chain(dialect.notes.iter().cloned()));
        let empty = Empty::of(wanted, options.pair, options.label_lists);
        let header = rows.first().filter(|_| picked.header).cloned().unwrap_or_default().into();
        Ok(Self { dialect, picked, empty, header, log: Arc::clone(&options.skips.0) })
    }

    /// Returns a table with a single column of texts; `None` if the name or the records differ from such a table.
    pub(crate) fn of_texts(file: &TextFile, options: &ReadOptions) -> Result<Option<Self>> {
        let Some(format) = FileFormat::of_name(&file.name()).filter(|format| format.is_table()) else {
            return Ok(None);
        };
        let options =
            ReadOptions { format: Some(format), text: Vec::new(), label: Vec::new(), ..options.clone() };
        let dialect = Dialect::of(file, format, &options)?;
        if !first_rows(file, dialect.separator, dialect.quotes)?.iter().all(|row| row.len() == 1) {
            return Ok(None);
        }
        Self::of(file, format, &options, &[Column { what: "text", given: Some("1"), known: TEXT }]).map(Some)
    }

    /// Reads the first records, of which the first one may be a header, without rows that repeat the first one.
    pub(crate) fn first_rows(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
    ) -> Result<Arc<[Vec<String>]>> {
        let Dialect { separator, quotes, .. } = Dialect::of(file, format, options)?;
        let rows = first_rows(file, separator, quotes)?;
        Ok(without_repetitions(&rows).map_or(rows, Arc::from))
    }

    /// Stores the detected header and separator of a file in `options`, with notes that explain the detection.
    pub(crate) fn note(&self, options: &mut ReadOptions) {
        options.notes.clone_from(&self.picked.notes);
        options.found.header = Some(self.has_header());
        options.found.separator = Some(self.dialect.separator);
    }

    pub(crate) fn has_header(&self) -> bool {
        self.picked.header
    }

    pub(crate) fn unread(&self) -> Option<String> {
        const MANY: usize = 5;
        let ColumnChoice { columns, width, .. } = &self.picked;
        let others: Vec<usize> = (0..*width).filter(|column| !columns.contains(column)).collect();
        if let ([first, .., last], true) = (&others[..], others.len() >= MANY)
            && last - first + 1 == others.len()
        {
            return Some(format!("columns {} to {} are not read", first + 1, last + 1));
        }
        let name = |column: &usize| match self.header.get(*column).map(|name| name.trim()) {
            Some(name) if !name.is_empty() => format!("{} (`{}`)", column + 1, shortened(name)),
            _ => (column + 1).to_string(),
        };
        unread("column", &others.iter().map(name).collect::<Vec<_>>())
    }

    /// Returns whether the separator is a tab and quotation marks are part of the text.
    pub(crate) fn has_tabs(&self) -> bool {
        self.dialect.separator == '\t' && self.dialect.quotes == Quotes::Text
    }

    /// Returns the separator, and whether cells may be quoted.
    pub(crate) fn writes(&self) -> (char, bool) {
        (self.dialect.separator, self.dialect.quotes != Quotes::Text)
    }

    /// Returns whether the first wanted column has only numbers in the first records.
    pub(crate) fn has_numbers(&self, file: &TextFile) -> Result<bool> {
        let cells = self.first_cells(file, 0)?;
        Ok(!cells.is_empty() && cells.iter().all(|cell| number(cell)))
    }

    /// Returns the cells of a wanted column in the first records.
    pub(crate) fn first_cells(&self, file: &TextFile, position: usize) -> Result<Vec<String>> {
        let column = self.picked.columns.get(position).copied().unwrap_or_default();
        let rows = self.dialect.first_rows(file)?;
        let is_header =
            |row: &&Vec<String>| self.has_header() && matches!(repeats(&self.header, row), Ok(true));
        let below = rows.iter().skip(usize::from(self.has_header())).filter(|row| !is_header(row));
        Ok(below.filter_map(|row| row.get(column)).cloned().collect())
    }

    /// Returns a parser that makes one text of the first `count` wanted columns of each row, including the header.
    pub(crate) fn texts<R: 'static>(&self, count: usize, make: fn(String) -> R) -> Box<dyn Parser<R>> {
        let columns = self.picked.columns.clone();
        let (header, mut is_below) = (Arc::clone(&self.header), false);
        let make = move |mut row: Vec<String>, _| {
            if std::mem::replace(&mut is_below, true) && repeats(&header, &row)? {
                let got = "the header again: remove this line, which has no answer";
                return Err(Reason::of("a record", got));
            }
            let cell = |&column: &usize| row.get_mut(column).map(std::mem::take).unwrap_or_default();
            Ok(make(of_columns(columns.iter().take(count).map(cell).collect())))
        };
        let cells = Cells { most: 1 << 22, ..self.dialect.cells() }; // the lines of a record are in memory
        Box::new(Rows { cells, width: Some(self.picked.width), header: false, make })
    }

    pub(crate) fn records<R: 'static>(&self, file: &TextFile, mut make: RecordMaker<R>) -> Result<Stream<R>> {
        let ColumnChoice { columns, names, width, header, .. } = self.picked.clone();
        let (cells, may_be) = (self.dialect.cells(), self.empty);
        let (mut wanted, mut empty) = (Vec::new(), Vec::new());
        let (top, log, name) =
            (Arc::clone(&self.header), Arc::clone(&self.log), Arc::<str>::from(file.name()));
        let make = move |mut row: Vec<String>, line: u64| {
            if repeats(&top, &row)? {
                log.add_header(&name, line);
                return Ok(None);
            }
            empty.clear();
            empty.extend(columns.iter().map(|&at| row.get(at).is_none_or(|cell| cell.trim().is_empty())));
            if let Some(position) = may_be.missing(&empty) {
                let name = names.get(position).map_or("", String::as_str);
                let row = shown(&row.join(" | "));
                let got = format!("nothing in {row}: fill the cell, or remove the record");
                return Err(Reason::of(format!("something in column `{name}`"), got));
            }
            wanted.clear();
            wanted.extend(columns.iter().map(|&at| row.get_mut(at).map(std::mem::take).unwrap_or_default()));
            make(FileRow::Cells(&mut wanted), line).map(Some)
        };
        let records = file.records(Rows { cells, width: Some(width), header, make })?;
        Ok(Box::new(records.filter_map(Result::transpose)))
    }
}

#[cfg(test)]
mod tests;
