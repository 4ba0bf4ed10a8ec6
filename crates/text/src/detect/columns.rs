//! Detects the header of a table, and the columns that a reader needs, such as the text and the label.

use std::collections::{HashMap, HashSet};

use unpadded::metrics::edit_distance;
use unpadded::{Error, Result};

use super::column::{Column, SURE, language, most_frequent, plain};
use super::options::{DOUBT, ReadOptions};
use crate::format::labels::flag;
use crate::format::repeated::without_repetitions;
use crate::source::lines::quoted;
use crate::source::reason::{no_records, wrong_format};

#[derive(Debug, Clone)]
pub(crate) struct ColumnChoice {
    /// For each wanted column, its position in the table, counted from 0.
    pub(crate) columns: Vec<usize>,
    /// The name of each wanted column; without a header, the number of the column, counted from 1.
    pub(crate) names: Vec<String>,
    /// The most frequent number of columns in the first records.
    pub(crate) width: usize,
    pub(crate) header: bool,
    pub(crate) notes: Vec<String>,
}

/// The first records of a table.
pub(crate) struct Columns<'a> {
    name: &'a str,
    rows: &'a [Vec<String>],
    line: u64,
    header: Option<bool>,
    /// Whether the labels are numbers, which need not repeat.
    numbers: bool,
}

/// The user's setting for a wanted column: a number, a name, or nothing.
enum ColumnSetting<'a> {
    /// The number of the column, counted from 0.
    Number(usize),
    Name(&'a str),
    Nothing,
}

/// Formats a cell for a message, in one line and with at most 40 characters.
pub(crate) fn shortened(cell: &str) -> String {
    const SHOWN: usize = 40;
    let cell = cell.trim().replace('\n', "\\n");
    match cell.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", cell.get(..end).unwrap_or_default()),
        None => cell,
    }
}

/// Returns whether a cell can be the name of a column: the cell is neither blank nor a whole number.
fn is_name(cell: &str) -> bool {
    !cell.trim().is_empty() && cell.trim().parse::<usize>().is_err()
}

/// Returns whether a cell is a number, a percentage, a date or a time.
pub(crate) fn number(cell: &str) -> bool {
    let cell = cell.trim();
    let part = |c: char| c.is_ascii_digit() || "+-.,:/% eETZ".contains(c);
    cell.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && cell.contains(|c: char| c.is_ascii_digit())
        && cell.chars().all(part)
}

/// Returns whether a cell marks a missing value, such as an empty cell or `n/a`.
fn absent(cell: &str) -> bool {
    ["", "na", "n/a", "nan", "null", "none", "nil", "-", "?"].contains(&&*plain(cell))
}

impl Columns<'_> {
    /// Finds the wanted columns in the first records of a file, or as in an earlier file. A header that is repeated below is
    /// detected among the rows without its repetitions.
    pub(crate) fn detect(
        (name, line): (&str, u64),
        rows: &[Vec<String>],
        options: &ReadOptions,
        wanted: &[Column<'_>],
    ) -> Result<ColumnChoice> {
        // Whether all wanted columns have names that were detected in an earlier file, not set by the user.
        let are_detected = options.as_set.as_ref().is_some_and(|as_set| {
            let set = as_set.columns().map(|(what, names)| (what, what != "group" && !names.is_empty()));
            wanted.iter().all(|one| one.given.is_some() && !set.contains(&(one.what, true)))
        });
        let pick = |rows: &[Vec<String>]| {
            let columns = Columns { name, rows, line, header: options.header, numbers: options.numbers };
            if are_detected { columns.pick_alike(wanted) } else { columns.pick(wanted) }
        };
        let once = without_repetitions(rows).and_then(|rows| pick(&rows).ok()).filter(|found| found.header);
        once.map_or_else(|| pick(rows), Ok)
    }

    /// Finds the wanted columns by the settings, the header and the values in the first records.
    fn pick(&self, wanted: &[Column<'_>]) -> Result<ColumnChoice> {
        let Some(first) = self.rows.first() else {
            return Err(no_records(self.name));
        };
        let width = self.width();
        let position = |name: &str| first.iter().position(|cell| cell.trim() == name.trim());
        // A setting from 1 to the number of columns is the position of a column; any other setting is its name.
        let given: Vec<ColumnSetting<'_>> = wanted
            .iter()
            .map(|one| match one.given.map(|given| (given, given.trim().parse::<usize>().ok())) {
                Some((_, Some(number))) if (1..=width).contains(&number) => ColumnSetting::Number(number - 1),
                Some((name, _)) => ColumnSetting::Name(name),
                None => ColumnSetting::Nothing,
            })
            .collect();
        let languages = self.has_languages(wanted, &given);
        let (header, why) = match languages {
            true => (true, format!("line {} is a header, since it names two languages", self.line)),
            false => self.header(wanted, &given),
        };
        if header && first.len() != width {
            let what = format!("header in line {} of file `{}`", self.line, self.name);
            let expected = format!("{width} columns, as most of the first records have");
            let got = format!("{}: {}", first.len(), quoted(first.iter().map(|cell| shortened(cell))));
            let advice = "put cells that hold a separator in quotation marks, and name every column";
            return Err(wrong_format(what, expected, got).noted(advice));
        }
        let set = |(one, given): (&Column<'_>, &ColumnSetting<'_>)| match given {
            ColumnSetting::Nothing => Ok(None),
            ColumnSetting::Number(column) => Ok(Some(*column)),
            ColumnSetting::Name(name) => {
                let found = position(name).filter(|_| header);
                found.ok_or_else(|| self.missing(wanted, one, name, header)).map(Some)
            }
        };
        let mut columns: Vec<Option<usize>> = wanted.iter().zip(&given).map(set).collect::<Result<_>>()?;
        // If the header names two languages, the first column is the source, so known names are not searched.
        if header && !languages {
            for (index, one) in wanted.iter().enumerate() {
                if columns[index].is_none() {
                    columns[index] = self.known(one, &columns);
                }
            }
        }
        let mut notes = vec![why];
        if languages && given.iter().any(|given| matches!(given, ColumnSetting::Number(_))) {
            notes.push("columns by their numbers".to_owned());
        }
        let free: Vec<usize> = (0..width).filter(|column| !columns.contains(&Some(*column))).collect();
        let open: Vec<usize> = (0..wanted.len()).filter(|&index| columns[index].is_none()).collect();
        let labelled = wanted.iter().any(|one| one.what == "label");
        match (&open[..], &free[..]) {
            ([], _) => {}
            (&[a], &[one]) => columns[a] = Some(one),
            (&[a, b], &[left, right]) => {
                let mut found = [left, right];
                if labelled && self.labels_come_first(left, right, header) {
                    notes.push(format!("column {} is the label, since its values repeat", left + 1));
                    found.reverse();
                }
                [columns[a], columns[b]] = found.map(Some);
                if labelled {
                    self.refuse_many_labels(found[1], header)?;
                }
            }
            // In a table of pairs, the first two free columns are the texts; further columns are ignored.
            (&[a, b], &[left, right, ..]) if !labelled => {
                (columns[a], columns[b]) = (Some(left), Some(right))
            }
            _ => {
                return Err(self.unclear(&wanted[open.first().copied().unwrap_or(0)], header));
            }
        }
        let columns: Vec<usize> = columns.into_iter().flatten().collect();
        for (at, (second, column)) in wanted.iter().zip(&columns).enumerate() {
            let Some((first, _)) = wanted.iter().zip(&columns).take(at).find(|(_, other)| *other == column)
            else {
                continue;
            };
            let (what, number) = (second.what, column + 1);
            return Err(match first.what == what {
                true => {
                    let what = format!("columns of the {what} in file `{}`", self.name);
                    let error = wrong_format(what, "each column once", format!("column {number} twice"));
                    error.noted(format!(
                        "`{}` (`{}` in a config) sets the columns",
                        second.what,
                        second.setting()
                    ))
                }
                false => {
                    let what =
                        format!("columns of the {} and the {what} in file `{}`", first.what, self.name);
                    let got = format!("column {number} for both");
                    wrong_format(what, "two columns", got).noted(second.advice())
                }
            });
        }
        let often = |column: usize| first.iter().filter(|cell| Some(*cell) == first.get(column)).count();
        if header {
            for ((one, given), &column) in wanted.iter().zip(&given).zip(&columns) {
                if often(column) > 1 && !matches!(given, ColumnSetting::Number(_)) {
                    let name = first.get(column).map_or("", |name| name.trim());
                    let what = format!("column `{name}` of file `{}`, the {}", self.name, one.what);
                    let error = wrong_format(what, "one column of that name", often(column).to_string());
                    return Err(error.noted(one.advice()));
                }
            }
        } else {
            if self.is_like_a_header(wanted, &columns) {
                let what = format!("line {} of file `{}`", self.line, self.name);
                let got = quoted(columns.iter().filter_map(|&column| self.first(column)).map(shortened));
                let expected = "a header with known names, or a record";
                let got = format!("{got}, a single word and a label that occurs nowhere else");
                let error = wrong_format(what, expected, got);
                return Err(error.noted(
                    "set `header` (`data.header` in a config) to true if the line names the columns, to false if it is a record",
                ));
            }
            notes.extend(self.perhaps_a_header(wanted, &columns));
        }
        let name = |&column: &usize| match first.get(column) {
            // A name that is a number would be read as a position in the next file, so the position is stored.
            Some(cell) if header && is_name(cell) && often(column) == 1 => cell.trim().to_owned(),
            _ => (column + 1).to_string(),
        };
        let names = columns.iter().map(name).collect();
        Ok(ColumnChoice { columns, names, width, header, notes })
    }

    /// Returns the most frequent number of cells per record; of equally frequent numbers, the first.
    fn width(&self) -> usize {
        most_frequent(self.rows.iter().map(Vec::len)).map_or(0, |(width, _)| width)
    }

    /// Returns whether the first record is a header, and the reason for this decision.
    fn header(&self, wanted: &[Column<'_>], given: &[ColumnSetting<'_>]) -> (bool, String) {
        let line = self.line;
        match self.header {
            Some(true) => return (true, format!("line {line} is a header, as set")),
            Some(false) => return (false, "no header, as set".to_owned()),
            None => {}
        }
        if let Some(name) = given.iter().find_map(|given| match given {
            // A number beyond the last column is the name of a column only if the first record has it.
            ColumnSetting::Name(name) => Some(name).filter(|name| is_name(name) || self.has(name)),
            _ => None,
        }) {
            return (true, format!("line {line} is a header, since `{}` names a column", shortened(name)));
        }
        if let Some(columns) = self.all_known(wanted, given) {
            // If a table has one column, its first line may be a text that happens to equal a known column name.
            if self.top().len() == 1 && !self.first(0).is_some_and(|cell| SURE.contains(&&*plain(cell))) {
                return (false, "no header".to_owned());
            }
            if self.repeats(wanted, &columns) {
                return (false, format!("no header: line {line} repeats below"));
            }
            return (true, format!("line {line} is a header, since it has known names"));
        }
        // Maximum number of words in the name of a column.
        const WORDS: usize = 5;
        let named = self.top().iter().all(|cell| cell.split_whitespace().count() <= WORDS);
        match (0..self.top().len()).find(|&column| named && self.is_above_numbers(column)) {
            Some(column) => {
                let name = shortened(self.first(column).unwrap_or_default());
                (true, format!("line {line} is a header, since all below `{name}` are numbers"))
            }
            None => (false, "no header".to_owned()),
        }
    }

    /// Returns whether the header of a table of pairs has two languages: the first two cells name different languages,
    /// and do not occur again in their columns. Returns `false` if a column is set by name, or if the header is set.
    fn has_languages(&self, wanted: &[Column<'_>], given: &[ColumnSetting<'_>]) -> bool {
        let pairs = wanted.iter().any(|one| one.what == "source") && wanted.len() == 2;
        let open =
            !given.iter().any(|given| matches!(given, ColumnSetting::Name(_))) && self.header.is_none();
        let named = |column| self.first(column).is_some_and(language) && !self.occurs_again(column);
        pairs && open && named(0) && named(1) && self.first(0) != self.first(1)
    }

    /// Returns the positions of the wanted columns if the first record has a known name for each of them.
    fn all_known(&self, wanted: &[Column<'_>], given: &[ColumnSetting<'_>]) -> Option<Vec<usize>> {
        // Several columns of a text have no known names; the known name of the label column then decides.
        if wanted.iter().all(|one| one.known.is_empty()) {
            return None;
        }
        let mut columns: Vec<Option<usize>> = vec![None; wanted.len()];
        for (index, one) in wanted.iter().enumerate() {
            let set = match given.get(index) {
                Some(ColumnSetting::Number(column)) => Some(*column),
                _ => None,
            };
            let of_set = |column: &usize| {
                one.known.is_empty() || one.has(&plain(self.first(*column).unwrap_or_default()))
            };
            columns[index] = set.filter(of_set).or_else(|| self.known(one, &columns));
        }
        columns.into_iter().collect()
    }

    /// Finds the wanted columns of a later file by the names or numbers in the earlier file. A header with known names
    /// overrides numbers, and names that this file lacks.
    fn pick_alike(&self, wanted: &[Column<'_>]) -> Result<ColumnChoice> {
        let fits = wanted.iter().all(|one| one.given.is_some_and(|given| is_name(given) && self.has(given)));
        let known = self.all_known(wanted, &[]).unwrap_or_default();
        let names_itself = known.len() > 1 && !self.repeats(wanted, &known);
        if fits || self.header == Some(false) || !names_itself {
            let picked = self.pick(wanted)?;
            self.refuse_swapped(wanted, &picked)?;
            self.refuse_numbers(wanted, &picked)?;
            return Ok(picked);
        }
        let own: Vec<Column<'_>> = wanted.iter().map(|one| Column { given: None, ..*one }).collect();
        self.pick(&own)
    }

    /// Refuses a later file without a header if its text and label columns seem to be swapped.
    fn refuse_swapped(&self, wanted: &[Column<'_>], picked: &ColumnChoice) -> Result<()> {
        const MANY: usize = 10;
        let at = |what: &str| wanted.iter().zip(&picked.columns).find(|(one, _)| one.what == what);
        let (Some((text, &own)), Some((_, &label))) = (at("text"), at("label")) else { return Ok(()) };
        if picked.header || self.rows.len() <= MANY || !self.labels_come_first(own, label, false) {
            return Ok(());
        }
        let (own, label) = (own + 1, label + 1);
        let what = format!("columns of file `{}`", self.name);
        let expected =
            format!("the text in column {own} and the label in column {label}, as in an earlier file");
        let got = format!("values in column {own} that repeat and are shorter than those in column {label}");
        let advice =
            "put the columns of all files in the same order, or their names in the first line of each file";
        Err(wrong_format(what, expected, got).noted(advice).noted(text.advice()))
    }

    /// Refuses a later file with a header of unknown names if the column with the number of the text has only numbers.
    fn refuse_numbers(&self, wanted: &[Column<'_>], picked: &ColumnChoice) -> Result<()> {
        let (Some(text), Some(&column)) = (wanted.first(), picked.columns.first()) else { return Ok(()) };
        let by_number = text.given.is_some_and(|given| !is_name(given));
        if !(picked.header && by_number && self.is_above_numbers(column)) {
            return Ok(());
        }
        let name = shortened(self.first(column).unwrap_or_default());
        let what =
            format!("column {} of file `{}`, the {} in an earlier file", column + 1, self.name, text.what);
        Err(wrong_format(what, "texts", format!("`{name}` with only numbers below")).noted(text.advice()))
    }

    fn has(&self, name: &str) -> bool {
        self.top().iter().any(|cell| cell.trim() == name.trim())
    }

    fn occurs_again(&self, column: usize) -> bool {
        self.first(column).is_some_and(|first| self.below(column).any(|cell| cell == first))
    }

    /// Returns whether a cell of the first record occurs again, so that it is not the name of its column; a text may be any name.
    fn repeats(&self, wanted: &[Column<'_>], columns: &[usize]) -> bool {
        let labelled = wanted.len() > 1 && wanted.iter().any(|one| one.what == "label");
        let mut all = wanted.iter().zip(columns);
        all.any(|(one, &column)| (!labelled || one.what == "label") && self.occurs_again(column))
    }

    /// Returns the position of a column that is not `taken` and has a known name in the first record.
    fn known(&self, one: &Column<'_>, taken: &[Option<usize>]) -> Option<usize> {
        let named = |name: &str| self.top().iter().position(|cell| plain(cell) == name);
        one.known().filter_map(named).find(|&column| !taken.contains(&Some(column)))
    }

    /// The cells of the first record; empty without a record.
    fn top(&self) -> &[String] {
        self.rows.first().map_or(&[], Vec::as_slice)
    }

    fn first(&self, column: usize) -> Option<&str> {
        self.top().get(column).map(|cell| cell.trim())
    }

    /// Iterates over the cells of a column in all records but the first.
    fn below(&self, column: usize) -> impl Iterator<Item = &str> {
        self.cells(column, true)
    }

    /// Iterates over the cells of a column, without the header if there is one.
    fn cells(&self, column: usize, header: bool) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().skip(usize::from(header));
        rows.filter_map(move |row| row.get(column)).map(|cell| cell.trim())
    }

    /// Returns whether the first cell of a column is not a number, while all other cells are numbers.
    fn is_above_numbers(&self, column: usize) -> bool {
        const FEW: usize = 2;
        let first = self.first(column).is_some_and(|cell| !number(cell) && !absent(cell));
        let numbers = self.below(column).filter(|cell| !absent(cell)).count();
        first && numbers >= FEW && self.below(column).all(|cell| number(cell) || absent(cell))
    }

    /// Returns a note if the first record may be a header: if a cell is a known name, if both texts of a pair are short, or if
    /// the label occurs in no other record, although there are few labels.
    fn perhaps_a_header(&self, wanted: &[Column<'_>], columns: &[usize]) -> Option<String> {
        const MANY: usize = 20;
        let again = |column: usize| self.occurs_again(column);
        let known = |(one, &column): (&Column<'_>, &usize)| {
            self.first(column).is_some_and(|cell| one.has(&plain(cell))) && !again(column)
        };
        let label = wanted.iter().position(|one| one.what == "label").and_then(|index| columns.get(index));
        let alone = label.is_some_and(|&label| {
            // A cell of the label column may have several labels.
            let labels =
                |cell| str::split(cell, [',', ';', '|']).map(str::trim).filter(|label| !label.is_empty());
            let below = self.below(label).flat_map(labels).collect::<HashSet<_>>();
            let first = self.first(label).unwrap_or_default();
            let is_new = !first.is_empty() && !labels(first).any(|label| below.contains(label));
            self.rows.len() > MANY && below.len() * 4 <= self.rows.len() && is_new
        });
        let pairs = wanted.iter().any(|one| one.what == "source");
        // The first cell has only letters, digits and ` _-/`, and is shorter than nearly all other cells of the column.
        let plain = |cell: &str| cell.chars().all(|c| c.is_alphanumeric() || " _-/".contains(c));
        let short = |&column: &usize| {
            let size = |cell: &str| cell.chars().count();
            let own = self.first(column).filter(|cell| plain(cell)).map(size);
            let longer = own.map_or(0, |own| self.below(column).filter(|cell| size(cell) > own).count());
            self.rows.len() > 2 && longer * 10 >= (self.rows.len() - 1) * 9
        };
        let titled = pairs && columns.iter().all(short);
        if self.header.is_some() || !(alone || titled || wanted.iter().zip(columns).any(known)) {
            return None;
        }
        let cells = columns.iter().filter_map(|&column| self.first(column)).map(shortened);
        let line = self.line;
        Some(format!(
            "line {line} ({}) {DOUBT}, set `header` (`data.header` in a config) to true",
            quoted(cells)
        ))
    }

    /// Returns whether the first record may be a header with unknown names. The label of such a record occurs only
    /// once, while all other labels repeat; its text is one word, shorter than all other texts.
    fn is_like_a_header(&self, wanted: &[Column<'_>], columns: &[usize]) -> bool {
        const MANY: usize = 10;
        let column_of =
            |what: &str| wanted.iter().position(|one| one.what == what).and_then(|at| columns.get(at));
        let (Some(&text), Some(&label)) = (column_of("text"), column_of("label")) else { return false };
        let (Some(word), Some(name)) = (self.first(text), self.first(label)) else { return false };
        if self.header.is_some() || self.rows.len() <= MANY || word.contains(char::is_whitespace) {
            return false;
        }
        // A header may be repeated below.
        let others = |column: usize| {
            let below = self.rows.iter().skip(1).filter(|row| row.as_slice() != self.top());
            below.filter_map(move |row| row.get(column)).map(|cell| cell.trim())
        };
        let mut counts = HashMap::<&str, usize>::new();
        others(label).for_each(|cell| *counts.entry(cell).or_default() += 1);
        let size = |cell: &str| cell.chars().count();
        !counts.contains_key(name)
            && counts.values().all(|&count| count > 1)
            && others(text).all(|cell| cell.is_empty() || size(cell) > size(word))
    }

    /// Returns whether the left of two columns is the label: its values repeat, while the values of the right column hardly
    /// do, and are shorter than texts, unless there are far fewer distinct labels.
    fn labels_come_first(&self, left: usize, right: usize, header: bool) -> bool {
        let different = |column| self.cells(column, header).collect::<HashSet<_>>().len();
        let long = |column| self.cells(column, header).map(str::len).sum::<usize>();
        let (of_left, of_right) = (different(left), different(right));
        let hardly = of_right * 2 > self.rows.len().saturating_sub(usize::from(header));
        hardly && of_left * 4 <= of_right * 3 && (long(left) <= long(right) || of_left * 10 <= of_right)
    }

    /// Refuses a detected column `label` with too many distinct values for a column of labels.
    fn refuse_many_labels(&self, label: usize, header: bool) -> Result<()> {
        const MANY: usize = 20;
        let rows = self.rows.len().saturating_sub(usize::from(header));
        let different = self.cells(label, header).collect::<HashSet<_>>().len();
        let may_differ = self.numbers && self.cells(label, header).all(number);
        if rows < MANY || different * 2 <= rows || may_differ {
            return Ok(());
        }
        let what = format!("labels in column {} of file `{}`", label + 1, self.name);
        let got = format!("{different} different values in {rows} records");
        Err(wrong_format(what, "values that repeat", got).noted(
            "set `text` (`data.text` in a config) and `label` (`data.label`) to the numbers of their columns, from 1 on",
        ))
    }

    fn missing(&self, wanted: &[Column<'_>], one: &Column<'_>, given: &str, header: bool) -> Error {
        let first = self.top();
        let what = format!("column `{given}` of file `{}`, the {}", self.name, one.what);
        if self.width() == 1 && ["label", "target"].contains(&one.what) {
            let got = format!("a single column, `{}`", shortened(first.first().map_or("", String::as_str)));
            let error = wrong_format(what, format!("a column with a {} for each text", one.what), got);
            return error
                .noted("`predict` accepts texts without this column, but training and scoring need it");
        }
        if !header || !is_name(given) {
            let why = if is_name(given) { ", since no line is a header" } else { "" };
            let expected = format!("a number from 1 to {}{why}", self.width());
            return wrong_format(what, expected, format!("`{given}`"));
        }
        let names: Vec<String> = first.iter().map(|cell| shortened(cell)).collect();
        let error = missing(what, given, &names);
        let mut settings: Vec<&str> = wanted.iter().map(Column::setting).collect();
        settings.dedup();
        match wanted.iter().any(|one| first.iter().any(|cell| one.names(cell))) {
            true => error,
            false => error.noted(format!(
                "line {} names none of the wanted columns: if the line is a record, put a header with {} above it; or set `header` (`data.header` \
                 in a config) to false and `{}` to numbers from 1 on",
                self.line,
                quoted(wanted.iter().filter_map(|one| one.given)),
                settings.join("` and `")
            )),
        }
    }

    fn unclear(&self, one: &Column<'_>, header: bool) -> Error {
        let first = self.top();
        let what = format!("column of the {} in file `{}`", one.what, self.name);
        let cells = quoted(first.iter().map(|cell| shortened(cell)));
        let got = match header {
            true => format!("the columns {cells}"),
            false => {
                let plural = if first.len() == 1 { "" } else { "s" };
                format!("{} column{plural} without known names; line {} is {cells}", first.len(), self.line)
            }
        };
        let expected = format!("a column called {}", quoted(one.known().take(4)));
        let mut error = wrong_format(what, expected, got).noted(one.advice());
        let is_flags = |column: &usize| {
            let mut cells = self.below(*column).peekable();
            cells.peek().is_some() && cells.all(|cell| flag(cell).is_some())
        };
        // Without a header, columns have only numbers.
        let name = |column: usize| match self.first(column) {
            Some(name) if flag(name).is_none() => name.to_owned(),
            _ => (column + 1).to_string(),
        };
        let flags: Vec<String> = (0..first.len()).filter(is_flags).map(name).collect();
        error = of_flags(error, one, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        match first.len() {
            1 => error.noted(
                "`separator` (`data.separator` in a config) sets the character that separates columns; if each file is one class, set `format` \
                 (`data.format`) to `file-per-class`",
            ),
            _ => error,
        }
    }
}

/// Adds advice to the error for an unknown text or label column if several columns, with these names, have only 0 and 1.
pub(crate) fn of_flags(error: Error, one: &Column<'_>, names: &[&str]) -> Error {
    if !["text", "label"].contains(&one.what) || names.len() < 2 {
        return error;
    }
    let list = names.iter().map(|name| format!("\"{}\"", shortened(name))).collect::<Vec<_>>().join(", ");
    error.noted(format!(
        "{} have only 0 and 1: `data.target = \"labels\"` and `data.label = [{list}]` in a config read them as labels (`labels`)",
        quoted(names.iter().map(|name| shortened(name)))
    ))
}

/// Returns the error for a column name `given` that is not in `names`; it suggests the nearest name.
pub(crate) fn missing(what: String, given: &str, names: &[impl AsRef<str>]) -> Error {
    let names = || names.iter().map(|name| name.as_ref().trim());
    let error = wrong_format(what, format!("one of {}", quoted(names())), format!("`{given}`"));
    let letters = |name: &str| plain(name).chars().collect::<Vec<_>>();
    let nearest = names().map(|name| (edit_distance(&letters(name), &letters(given)), name)).min();
    match nearest {
        Some((distance, name)) if distance * 2 <= given.chars().count().max(2) => {
            error.noted(format!("the nearest is `{name}`"))
        }
        _ => error,
    }
}
