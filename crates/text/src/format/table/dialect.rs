//! Cuts the lines of a table into cells, and detects the separator and the meaning of quotation marks from the first
//! records of the file.

use std::collections::HashMap;
use std::sync::Arc;

use unpadded::Result;

use crate::detect::columns::number;
use crate::detect::options::ReadOptions;
use crate::format::FileFormat;
use crate::source::reason::Reason;
use crate::source::records::{Parser, shown, unbroken};
use crate::{MalformedLines, TextFile};

/// Number of records that are read to detect the format of a table.
const LOOKED_AT: usize = 1000;
/// Number of bytes in these records behind which no more of them are read.
const MOST: usize = 1 << 18;

#[derive(Default)]
pub(crate) enum State {
    /// The parser is at the start of a cell.
    #[default]
    Start,
    Plain,
    Quoted,
    /// Behind a quotation mark in a quoted cell, which ends the cell or is the first half of a doubled mark.
    Closing,
}

/// The meaning of quotation marks in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Quotes {
    /// Quotation marks are part of the text of a cell.
    #[default]
    Text,
    /// Quotation marks enclose a cell whose first character is a quotation mark.
    Cells,
    /// As [`Self::Cells`], but spaces after a separator do not belong to the cell.
    Spaced,
}

/// A parser that cuts lines into the cells of records.
#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) separator: char,
    pub(crate) quotes: Quotes,
    pub(crate) state: State,
    /// Whether any cell has a quotation mark inside that does not open the cell.
    pub(crate) stray: bool,
    pub(crate) row: Vec<String>,
    pub(crate) cell: String,
    /// The number of bytes of the current record so far.
    pub(crate) size: usize,
    pub(crate) most: usize,
    pub(crate) line: u64,
    /// The number of the line in which the current quoted cell begins.
    pub(crate) opened: u64,
    /// Whether a row had the width of the table.
    pub(crate) begun: bool,
    /// The number of lines above the table.
    pub(crate) above: u64,
}

impl Cells {
    pub(crate) fn new(separator: char, quotes: Quotes) -> Self {
        Self { separator, quotes, most: TextFile::MAX_LINE, ..Self::default() }
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
            let is_above = self.line <= self.above || (self.line == 1 && declared(line).is_some());
            if is_above || line.trim().is_empty() {
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
            return Err(Reason::of(format!("a record of at most {} bytes", self.most), got));
        }
        for c in line.chars() {
            self.take(c).map_err(|got| {
                let expected = "nothing behind a closing quotation mark but the next cell";
                let advice = "`data.quote = \"none\"` in a config reads quotation marks as text";
                Reason::of(expected, format!("{got:?} in {}: {advice}", shown(line)))
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
pub(crate) struct Rows<F> {
    pub(crate) cells: Cells,
    /// The number of cells that each row must have; `None` accepts rows of any width.
    pub(crate) width: Option<usize>,
    /// Whether the next row of the table is the header.
    pub(crate) header: bool,
    /// Makes a record from a row and the number of its last line.
    pub(crate) make: F,
}

impl<R, F: FnMut(Vec<String>, u64) -> Result<R, Reason> + Send> Parser<R> for Rows<F> {
    fn line(&mut self, number: u64, line: &str) -> Result<Option<R>, Reason> {
        self.cells.line = number;
        let Some(row) = self.cells.line(line)? else { return Ok(None) };
        let is_header = std::mem::take(&mut self.header);
        if let Some(width) = self.width.filter(|width| !is_header && *width != row.len()) {
            let expected = format!("{width} columns, as in most of the first records");
            let titles = match self.cells.begun {
                true => "",
                false => ": `data.skip_lines` in a config leaves out title lines above a table",
            };
            return Err(Reason::of(expected, format!("{} in {}{titles}", row.len(), shown(line))));
        }
        self.cells.begun = true;
        if is_header { Ok(None) } else { (self.make)(row, number).map(Some) }
    }

    fn is_open(&self) -> bool {
        matches!(self.cells.state, State::Quoted)
    }

    fn fails_alike(&self) -> bool {
        // A character behind a closing quotation mark; wrong numbers of columns and sizes leave other states.
        matches!(self.cells.state, State::Closing)
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
        let got = "the end of the file: `data.quote = \"none\"` in a config reads quotation marks as text";
        Err(Reason::of(expected, got))
    }
}

/// The notation of a table's cells: the separator, and the meaning of quotation marks.
#[derive(Debug, Clone)]
pub(crate) struct Dialect {
    pub(crate) separator: char,
    pub(crate) quotes: Quotes,
    above: u64,
    /// Notes for the user on unusual decisions about the separator and the quotation marks.
    pub(crate) notes: Vec<String>,
}

fn named(separator: char) -> String {
    if separator == '\t' { "tabs".to_owned() } else { format!("`{separator}`") }
}

/// Returns the separator of a line such as `sep=;`, which Excel writes above a table; `sep=\t` declares a tab.
pub(crate) fn declared(line: &str) -> Option<char> {
    let line = line.trim_end_matches(['\r', '\n', ' ']);
    let line = line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).unwrap_or(line);
    let (name, given) = line.split_once('=')?;
    if !name.eq_ignore_ascii_case("sep") {
        return None;
    }
    let mut given = if given == "\\t" { "\t" } else { given }.chars();
    given.next().filter(|_| given.next().is_none())
}

struct SeparatorFit {
    separator: char,
    /// The share of the first records whose number of columns is the most frequent number above 1.
    share: f64,
    /// Whether the separator fits the first record and at least three in four records.
    nearly: bool,
    /// Whether the separator is used as in prose: each separator has a space after it, or digits on both sides.
    loose: bool,
    /// Whether spaces behind the separator are left out.
    spaced: bool,
}

impl SeparatorFit {
    /// The minimum `share` of an accepted separator: up to a tenth of the records may be malformed.
    const FITS: f64 = 0.9;

    fn of(file: &TextFile, separator: char, marks: Option<bool>) -> Result<Self> {
        let quotes = if marks == Some(false) { Quotes::Text } else { Quotes::Cells };
        let mut rows = first_rows(file, separator, quotes)?;
        let spaced = marks != Some(false) && is_spaced(file, separator, &rows)?;
        if spaced {
            rows = first_rows(file, separator, Quotes::Spaced)?;
        }
        let (mut counts, all) = (HashMap::<usize, usize>::new(), rows.len());
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let prose = |pair: &[String]| {
            pair[1].starts_with(' ') || (digit(pair[0].chars().next_back()) && digit(pair[1].chars().next()))
        };
        let loose = rows.iter().all(|row| row.windows(2).all(prose));
        rows.iter().for_each(|row| *counts.entry(row.len()).or_default() += 1);
        let fits =
            counts.iter().filter(|(width, _)| **width > 1).max_by_key(|(width, count)| (**count, **width));
        let share = fits.map_or(0.0, |(_, fits)| *fits as f64 / all as f64);
        // A separator at the end of each row, but not of the header, gives the rows a further cell.
        let ends = |row: &Vec<String>| row.last().is_some_and(String::is_empty);
        let trails =
            rows.len() > 1 && rows.iter().skip(1).filter(|row| ends(row)).count() * 4 >= 3 * (rows.len() - 1);
        let width = rows.first().map_or(0, Vec::len);
        let first =
            fits.is_some_and(|(most, _)| *most == width || (trails && width > 1 && *most == width + 1));
        let nearly = first && (all >= 4 || trails) && share >= if trails { 0.5 } else { 0.75 };
        Ok(Self { separator, share, nearly, loose, spaced })
    }

    fn fits(&self) -> bool {
        self.share >= Self::FITS
    }
}

/// Returns the first well-formed records, which are cut once for all steps of the detection.
pub(crate) fn first_rows(file: &TextFile, separator: char, quotes: Quotes) -> Result<Arc<[Vec<String>]>> {
    let key = format!("{:?}", (file.characters(), separator, quotes));
    file.head.found(key, || {
        let (cells, mut size) = (Cells { above: file.skip_lines, ..Cells::new(separator, quotes) }, 0);
        let file = file.clone().malformed(MalformedLines::Skip);
        let rows = file
            .first_records(Rows { cells, width: None, header: false, make: |row, _| Ok(row) })?
            .ahead(false);
        let bounded = |row: &Vec<String>| {
            let before = size;
            size += row.iter().map(|cell| cell.len() + 1).sum::<usize>();
            before <= MOST
        };
        Ok(rows.take(LOOKED_AT).flatten().take_while(bounded).collect())
    })
}

/// Returns whether all first records have the same number of cells, at least two, without stray quotation marks.
fn are_even(file: &TextFile, separator: char, quotes: Quotes) -> Result<bool> {
    let (mut lines, mut cells) = (file.first_lines()?, Cells::new(separator, quotes));
    cells.above = file.skip_lines;
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

/// Returns the text between quotation marks around a cell, if all quotation marks inside are doubled.
fn unquoted(cell: &str) -> Option<&str> {
    let inner = cell.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.replace("\"\"", "").contains('"')).then_some(inner)
}

/// Returns whether cells between tabs are quoted as in CSV: all but numbers, or exactly those that need it.
fn are_quoted(file: &TextFile) -> Result<bool> {
    let rows = first_rows(file, '\t', Quotes::Text)?;
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

/// Returns whether a space follows every separator, and some of these spaces precede a quotation mark.
fn is_spaced(file: &TextFile, separator: char, rows: &[Vec<String>]) -> Result<bool> {
    // The header may have no spaces after its separators.
    let below = rows.get(usize::from(rows.len() > 1)..).unwrap_or_default();
    let cells = || below.iter().flat_map(|row| row.iter().skip(1));
    let spaces = cells().all(|cell| cell.is_empty() || cell.starts_with(' '));
    let marks = cells().any(|cell| cell.trim_start_matches(' ').starts_with('"'));
    Ok(marks && spaces && are_even(file, separator, Quotes::Spaced)?)
}

impl Dialect {
    /// Returns the notation of the table's cells, which is detected once for a file and its settings.
    pub(crate) fn of(file: &TextFile, format: FileFormat, options: &ReadOptions) -> Result<Self> {
        let as_set = options.as_set.as_deref().unwrap_or(options);
        let set = as_set.format == Some(FileFormat::Tsv) && as_set.separator.is_some();
        let key = format!("{:?}", (file.characters(), format, options.separator, set, options.quotes));
        file.head.found(key, || match options.separator.filter(|&separator| set && separator == '\t') {
            Some(separator) if options.quotes != Some(true) => {
                Ok(Self { separator, quotes: Quotes::Text, above: file.skip_lines, notes: Vec::new() })
            }
            _ => Self::detected(file, format, (options.separator, options.quotes)),
        })
    }

    /// Detects the separator and the meaning of quotation marks. The options or the first line (such as `sep=;`) may
    /// set the separator; else it is the one that cuts most of the first records into the same number of cells.
    fn detected(
        file: &TextFile,
        format: FileFormat,
        (separator, marks): (Option<char>, Option<bool>),
    ) -> Result<Self> {
        let tabs = format == FileFormat::Tsv;
        if let Some(separator) = separator {
            return Self::quoted(file, separator, (tabs || separator == '\t', marks), Vec::new(), None);
        }
        let usual = if tabs { '\t' } else { ',' };
        let mut lines = file.first_lines()?;
        let first = lines.next()?.and_then(Result::ok);
        if let Some(separator) = first.as_deref().and_then(declared) {
            let note = format!("separated by {}, as line 1 says", named(separator));
            return Self::quoted(file, separator, (false, marks), vec![note], None);
        }
        let tabs = (tabs, marks);
        if tabs.0 && first_rows(file, usual, Quotes::Text)?.iter().any(|row| row.len() > 1) {
            return Self::quoted(file, usual, tabs, Vec::new(), None);
        }
        let separators: &[char] = if tabs.0 { &['\t', ';', '|', ','] } else { &[',', '\t', ';', '|'] };
        let fits = separators.iter().map(|separator| SeparatorFit::of(file, *separator, marks));
        let fits: Vec<SeparatorFit> = fits.collect::<Result<_>>()?;
        let tight = |fit: &&SeparatorFit| fit.fits() && !fit.loose;
        let mut found: Vec<&SeparatorFit> = fits.iter().filter(tight).collect();
        if found.is_empty() {
            // In a small file, one malformed record is more than a tenth of the records.
            found.extend(fits.iter().filter(|fit| fit.nearly && !fit.loose));
            found.sort_by(|a, b| b.share.total_cmp(&a.share)); // stable: the first of equal fits remains first
        }
        let best = match found.first() {
            Some(best) => *best,
            // If no separator fits, or all that fit are used as in prose, the usual separator of the format is used.
            None => return Self::quoted(file, usual, tabs, Vec::new(), fits.first()),
        };
        let note = match found.get(1) {
            Some(other) => Some(format!(
                "separated by {}; {} would give {} columns, too: `separator` (`data.separator` in a config) sets the separator",
                named(best.separator),
                named(other.separator),
                if best.fits() { "equal" } else { "nearly equal" }
            )),
            None => (best.separator != usual).then(|| format!("separated by {}", named(best.separator))),
        };
        Self::quoted(file, best.separator, tabs, note.into_iter().collect(), Some(best))
    }

    /// Detects the meaning of quotation marks, unless `marks` sets it; they may be text if `tabs` is true. `fit` is a known fit.
    fn quoted(
        file: &TextFile,
        separator: char,
        (tabs, marks): (bool, Option<bool>),
        mut notes: Vec<String>,
        fit: Option<&SeparatorFit>,
    ) -> Result<Self> {
        let is_spaced = || match fit {
            Some(fit) => Ok(fit.spaced),
            None => is_spaced(file, separator, &first_rows(file, separator, Quotes::Cells)?),
        };
        let may_be_text = separator == '\t' && tabs && marks.is_none();
        let (quotes, note) = match () {
            () if marks == Some(false) => (Quotes::Text, Some("quotation marks are text".to_owned())),
            () if may_be_text && !are_quoted(file)? => (Quotes::Text, None),
            () if may_be_text => (Quotes::Cells, Some("cells are in quotation marks, as in CSV".to_owned())),
            () if is_spaced()? => {
                (Quotes::Spaced, Some(format!("spaces behind {} are left out", named(separator))))
            }
            () => (Quotes::Cells, None),
        };
        notes.extend(note);
        Ok(Self { separator, quotes, above: file.skip_lines, notes })
    }

    /// Returns the first records; an error only if all of them are malformed.
    pub(crate) fn first_rows(&self, file: &TextFile) -> Result<Arc<[Vec<String>]>> {
        let rows = first_rows(file, self.separator, self.quotes)?;
        if !rows.is_empty() {
            return Ok(rows);
        }
        let all = Rows { cells: self.cells(), width: None, header: false, make: |row, _| Ok(row) };
        Ok(file.first_records(all)?.next().transpose()?.into_iter().collect())
    }

    pub(crate) fn cells(&self) -> Cells {
        Cells { above: self.above, ..Cells::new(self.separator, self.quotes) }
    }
}
